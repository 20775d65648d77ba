"""The command `mergeberg alter`: runs a ClickHouse statement about partitions.

The statements are those of Spark SQL (docs/reference/statements.md). `ch` is the source of
--source. In EXPORT, db.t or t without a source is a table of that source. A lake table has its
catalog in its name, or is completed by --catalog. The destination of EXPORT can be ns.t or t, in
the catalog lake and the namespace default.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from catalog.network import TimeOuts
from catalog.source_defaults import DEFAULT_SOURCE
from catalog.sources import SourcePlace
from spark_ext.actions.export import Stopping
from spark_ext.cli.option_values import pairs
from spark_ext.cli.output import output_for
from spark_ext.cli.statement_run import StatementRun, check_ending, statement_exports
from spark_ext.engine.session import SparkSettings
from spark_ext.sql.grammar import parse_statement, syntax_error_of
from spark_ext.sql.messages import in_alter
from spark_ext.sql.session_settings import SessionSettings
from spark_ext.sql.statement_exports import exports_of
from spark_ext.sql.statement_settings import refuse_fast_without_effect
from spark_ext.sql.statements import Alter, KillQuery
from tableformat.clickhouse_codes import SYNTAX_ERROR
from tableformat.errors import TableFormatError, UsageError

__all__ = ["alter"]


def alter(  # noqa: PLR0913, PLR0917  one parameter per option
    statement: str, database: str, grace: float, master: str, conf: tuple[str, ...],
    cluster_host: tuple[str, ...], source: SourcePlace, warehouse: Path, ledger: str | None,
    time_outs: TimeOuts, catalog: str | None,
    *, allow_alter: bool, yes: bool, dry_run: bool, fast: bool, as_json: bool
) -> int:  # fmt: skip
    """Run `mergeberg alter`; return the exit code."""
    given = pairs("--conf", conf)
    settings = SessionSettings(
        {DEFAULT_SOURCE: replace(source, allow_alter=allow_alter, database=database)},
        ledger,
        DEFAULT_SOURCE,
        warehouse,
        time_outs,
    )
    read = parse_statement(statement)
    if read is None:
        message = (
            f"Cannot read the statement {statement[:60]!r}: it is not about partitions of "
            "ClickHouse's or of the lake. `mergeberg --help` lists the statements as commands."
        )
        raise syntax_error_of(statement) or UsageError(message, code=SYNTAX_ERROR)
    if fast:
        refuse_fast_without_effect(read, "--fast")
    output = output_for(as_json=as_json)
    running = StatementRun(
        settings, output, read, in_alter, as_json=as_json, fast=fast, catalog=catalog, yes=yes
    )
    check_ending(running.ending)
    try:
        if isinstance(read, KillQuery):
            return running.kill(read, dry_run=dry_run)
        spark = SparkSettings(master, tuple(given.items()))
        hosts, stopping = (
            pairs("--cluster-host", cluster_host),
            Stopping(grace, running.output.note),
        )
        if not isinstance(read, Alter) or not exports_of(read):
            exports = partial(statement_exports, spark, hosts, stopping, running)
            return running.change(exports, dry_run=dry_run)
        with stopping:
            return running.export(read, spark, given, hosts, stopping, dry_run=dry_run)
    except TableFormatError as error:
        error.reword(in_alter)
        raise

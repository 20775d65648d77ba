"""`mergeberg alter`: a statement of ClickHouse's about partitions, from the command line.

The same statements as in Spark SQL (docs/reference/statements.md): `ch` is the source that --source
names, a bare db.t after EXPORT's ALTER TABLE too, and a lake table has its catalog in front.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import click

from catalog.bounded_rest import TimeOuts
from catalog.iceberg import LOCAL_CATALOG, configured_catalogs, open_catalog
from catalog.ledgers.uris import open_ledger
from catalog.shards import local_tables
from catalog.sources import SourcePlace
from spark_ext.cancelling import PROOF_SECONDS
from spark_ext.cli.exporting import Exporting
from spark_ext.cli.options import (
    catalog_options,
    cluster_host_option,
    grace_option,
    ledger_options,
    output_for,
    output_options,
    pairs,
    session_options,
    source_options,
)
from spark_ext.cli.output import Output
from spark_ext.cli.result_file import check_ending, rendered, write_answer
from spark_ext.killing import kill_queries
from spark_ext.procedures.exporting import EXPORTED, exported_rows
from spark_ext.procedures.statements import refuse_on_lake_table
from spark_ext.session import SparkSettings
from spark_ext.sql.asked import asked_by, exports_of
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.names import Names
from spark_ext.sql.passing_on import run_by_clickhouse
from spark_ext.sql.session_settings import SessionSettings, SourceTable
from spark_ext.sql.statement_settings import check_export_is_allowed, read_statement_settings
from spark_ext.sql.statements import Ending, KillMode, KillQuery, Statement
from spark_ext.stopping import Stopping
from spark_ext.wiring import Places
from tableformat.errors import UsageError
from tableformat.export.exit_codes import worst
from tableformat.export.outcome import Outcome

__all__ = ["alter"]

_SOURCE: Final = "ch"
_COLUMNS: Final = tuple(column.name for column in EXPORTED)


@click.command()
@click.argument("statement")
@click.option(
    "--allow-alter",
    is_flag=True,
    envvar="MERGEBERG_ALLOW_ALTER",
    help="Let a statement about a ClickHouse table change it.",
)
@grace_option
@click.option("--dry-run", is_flag=True, help="Say what an EXPORT would do, and do nothing.")
@session_options
@cluster_host_option
@source_options()
@ledger_options
@catalog_options
@output_options
def alter(  # noqa: PLR0913, PLR0917  one parameter per option
    statement: str, grace: float, master: str, conf: tuple[str, ...],
    cluster_host: tuple[str, ...], source: SourcePlace, warehouse: Path, ledger: str | None,
    time_outs: TimeOuts,
    *, allow_alter: bool, dry_run: bool, as_json: bool
) -> int:  # fmt: skip
    """Run a STATEMENT of ClickHouse's about partitions, as in Spark SQL.

    The source is called ch. INTO OUTFILE and FORMAT write what became of each partition.

    \b
    Examples:
      mergeberg alter "ALTER TABLE ch.db.events EXPORT PARTITION ID '202401' \\
          TO TABLE lake.analytics.events SETTINGS allow_experimental_export_merge_tree_part = 1"
      mergeberg alter "ALTER TABLE ch.db.events DETACH PARTITION 202401" --allow-alter
    """  # noqa: D301  \b is Click's mark for lines to keep
    given = pairs("--conf", conf)
    settings = SessionSettings(
        {_SOURCE: replace(source, allow_alter=allow_alter)},
        ledger,
        _SOURCE,
        warehouse,
        time_outs,
    )
    read = parse_statement(statement)
    if read is None:
        message = (
            f"Cannot read the statement {statement[:60]!r}: it is none of ClickHouse's about "
            "partitions. docs/reference/statements.md lists them."
        )
        raise UsageError(message)
    running = _Running(settings, output_for(as_json=as_json), read, as_json=as_json)
    check_ending(running.ending)
    if isinstance(read, KillQuery):
        return running.kill(read)
    if not exports_of(read):
        return running.change(dry_run=dry_run)
    spark = SparkSettings(master, tuple(given.items()))
    with Stopping(grace, running.output.note) as stopping:
        hosts = pairs("--cluster-host", cluster_host)
        return running.export(spark, given, hosts, stopping, dry_run=dry_run)


@dataclass(slots=True)
class _Running:
    """One statement, and what is said about it; also the observer of its exports."""

    settings: SessionSettings
    output: Output
    statement: Statement
    outcomes: list[Outcome] = field(default_factory=list)
    as_json: bool = field(default=False, kw_only=True)

    @property
    def ending(self) -> Ending:
        """Where the answer goes, and how it is written."""
        return self.statement.ending

    @property
    def names(self) -> Names:
        """How names are looked up: there is one source, and no table of Spark's."""
        catalogs = frozenset((LOCAL_CATALOG, *configured_catalogs()))
        return Names(self.settings, catalogs, frozenset(), (LOCAL_CATALOG,), lambda _: False)

    def export(
        self,
        spark: SparkSettings,
        conf: Mapping[str, str],
        hosts: Mapping[str, str],
        stopping: Stopping,
        *,
        dry_run: bool,
    ) -> int:
        """Run the exports of the statement; return the exit code."""
        settings = read_statement_settings(self.statement, conf)
        check_export_is_allowed(self.statement, settings)
        asked = asked_by(self.statement, settings, self.names)
        exporting = Exporting(spark, self.output, as_json=self.as_json, observer=self)
        codes = []
        for one in asked:
            request = one.request
            lake = open_catalog(
                request.to.catalog,
                warehouse=self.settings.warehouse,
                time_outs=self.settings.time_outs,
            )
            places = Places(one.source.place, lake, self.settings.ledger)
            tables = local_tables(
                one.source.place, request.table, cluster=one.cluster, cluster_hosts=hosts
            )
            if dry_run:
                codes.append(exporting.rehearse(request, places, tables))
            else:
                codes.append(exporting.run(request, places, tables, stopping))
        if not dry_run:
            self._answer(exported_rows(tuple(self.outcomes)))
        return worst(codes)

    def change(self, *, dry_run: bool) -> int:
        """Let ClickHouse run the statement, or refuse it by name; return the exit code."""
        read = self.statement
        if isinstance(read, KillQuery):
            raise TypeError(read)
        table = self.names.table(read.table.parts)
        if not isinstance(table, SourceTable):
            raise refuse_on_lake_table(read, table)
        if dry_run:
            self.output.say(f"it would be run by ClickHouse on {table.table}; nothing was done")
            return 0
        run_by_clickhouse(read, read.table.parts[0], table)
        said = f"run by ClickHouse on {table.table}"
        if self._is_shaped():
            self._answer(((None, "done", None, None, None, None, None, said),))
        else:
            self.output.say(said)
        return 0

    def kill(self, read: KillQuery) -> int:
        """Give up what statements export; return the exit code."""
        settings = self.settings
        with contextlib.closing(
            open_ledger(settings.ledger, local_warehouse=settings.warehouse)
        ) as ledger:
            killed = kill_queries(
                read.query_ids,
                ledger,
                lambda name: open_catalog(
                    name, warehouse=settings.warehouse, time_outs=settings.time_outs
                ),
                wait=PROOF_SECONDS if read.mode is KillMode.SYNC else 0.0,
                note=self.output.note,
            )
        self.output.table(
            ("kill_status", "query_id", "partition_id", "message"),
            [
                {
                    "kill_status": one.status.value,
                    "query_id": one.row.claim.query_id,
                    "partition_id": one.row.key.partition_id,
                    "message": one.message,
                }
                for one in killed
            ],
        )
        return 0

    def note(self, text: str) -> None:
        """Hear one sentence."""
        self.output.note(text)

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Hear that files begin to be written."""
        self.output.begin(partitions, rows, size)

    def rows(self, written: int) -> None:
        """Hear how many rows are written."""
        self.output.rows(written)

    def finished(self, outcome: Outcome) -> None:
        """Keep an outcome; print it where the statement does not say how."""
        self.outcomes.append(outcome)
        if not self._is_shaped():
            self.output.finished(outcome)

    def _is_shaped(self) -> bool:
        return self.ending.outfile is not None or self.ending.format is not None

    def _answer(self, rows: Sequence[Sequence[object]]) -> None:
        """Write the rows where and how the statement says."""
        if not self._is_shaped():
            return
        text = rendered(self.ending, _COLUMNS, rows)
        outfile = self.ending.outfile
        if outfile is not None:
            write_answer(outfile, text)
        if outfile is None or outfile.stdout:
            self.output.document(text.rstrip("\n"))

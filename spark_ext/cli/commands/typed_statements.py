"""Runs the commands that are statements on lake tables (`spark_ext.cli.typed_commands`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from catalog.network import TimeOuts
from catalog.source_defaults import DEFAULT_SOURCE
from catalog.sources import SourcePlace
from spark_ext.actions.export import Stopping
from spark_ext.cli.option_values import pairs
from spark_ext.cli.output import output_for
from spark_ext.cli.statement_run import StatementRun, statement_exports
from spark_ext.engine.session import SparkSettings
from spark_ext.sql.arguments import Argument, GivenValue
from spark_ext.sql.messages import in_command
from spark_ext.sql.session_settings import SessionSettings
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import TypedStatement
from tableformat.errors import TableFormatError
from tableformat.names import split_identifiers

__all__ = ["run_typed"]

_MASTER: Final = "local[*]"


def run_typed(  # noqa: PLR0913  one parameter per option that several commands have
    typed: TypedStatement,
    *,
    table: str,
    warehouse: Path,
    ledger: str | None,
    time_outs: TimeOuts,
    dry_run: bool,
    as_json: bool,
    catalog: str | None = None,
    yes: bool = False,
    source: SourcePlace | None = None,
    grace: float = 0.0,
    master: str = _MASTER,
    conf: tuple[str, ...] = (),
    cluster_host: tuple[str, ...] = (),
    **given: Any,
) -> int:
    """Run one statement; return the exit code.

    Raises:
        TableFormatError: the statement is refused or failed; the message names its options.
    """
    # Without --source, the name ch must still be known, so that ch.db.t is no lake table.
    place = SourcePlace("") if source is None else source
    settings = SessionSettings(
        {DEFAULT_SOURCE: place}, ledger, DEFAULT_SOURCE, warehouse, time_outs
    )
    values = {one.name: _value(one, given[one.name]) for one in typed.arguments}
    statement = typed.of(DottedName(split_identifiers(table)), values, _spelled)
    options = click.get_current_context().command.params
    known = {name for one in options for name in one.opts}
    reword = partial(_reworded, typed, known)
    output = output_for(as_json=as_json)
    run = StatementRun(
        settings, output, statement, reword, as_json=as_json, catalog=catalog, yes=yes
    )
    spark = SparkSettings(master, tuple(pairs("--conf", conf).items()))
    hosts = pairs("--cluster-host", cluster_host)
    stopping = Stopping(grace, run.output.note)
    try:
        # These commands refuse a ClickHouse table; `mergeberg alter` needs --allow-alter for it.
        run.names.lake(statement.table.parts)
        exports = partial(statement_exports, spark, hosts, stopping, run)
        return run.change(exports, dry_run=dry_run)
    except TableFormatError as error:
        error.reword(reword)
        raise


def _value(one: Argument, given: Any) -> GivenValue:
    """Return the value of an option; Click collects the values of all options but flags."""
    if one.is_flag:
        return bool(given)
    texts: tuple[str, ...] = given
    if one.several:
        return texts
    return texts[0] if texts else None


def _spelled(one: Argument) -> str:
    return one.option


def _reworded(typed: TypedStatement, known: set[str], text: str) -> str:
    return in_command(typed.reword(text, _spelled), known)

"""The commands that are statements on lake tables, made from the list `spark_ext.sql.statements`.

Each makes the statement that `mergeberg alter` reads from text, and runs it as that does. Those
that bring rows from another table have the options of a source, too, which is called ch there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from catalog.network import TimeOuts
from catalog.sources import SourcePlace
from spark_ext.actions.export import Stopping
from spark_ext.cli.options import (
    catalog_options,
    cluster_host_option,
    grace_option,
    ledger_options,
    named_catalog_option,
    output_for,
    output_options,
    pairs,
    session_options,
    source_options,
    yes_option,
)
from spark_ext.cli.statement_run import SOURCE, StatementRun, statement_exports
from spark_ext.engine.session import SparkSettings
from spark_ext.sql.arguments import Argument, GivenValue
from spark_ext.sql.messages import in_command
from spark_ext.sql.session_settings import SessionSettings
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import TYPED, TypedStatement
from tableformat.errors import TableFormatError
from tableformat.names import split_identifiers

__all__ = ["TYPED_COMMANDS", "example"]

_TABLE: Final = "lake.analytics.events"
_MASTER: Final = "local[*]"
# With a single quote, and nothing that means something between double ones.
_IN_DOUBLE_QUOTES: Final = re.compile(r"""\A[^"$`\\!]*'[^"$`\\!]*\Z""")


def example(typed: TypedStatement, values: Mapping[str, GivenValue]) -> str:
    """Return a command line with these arguments."""
    words = ["mergeberg", typed.command, _TABLE]
    for name, value in values.items():
        option = next(one.option for one in typed.arguments if one.name == name)
        words += [option] if value is True else [option, str(value)]
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    """Return a word as a shell reads it, and a person too where it has single quotes inside."""
    return shlex.quote(word) if _IN_DOUBLE_QUOTES.search(word) is None else f'"{word}"'


def _run(  # noqa: PLR0913  one parameter per option that several commands have
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
        TableFormatError: it cannot be done; the message is in the words of the command.
    """
    # A command without --source knows the name only, so that ch.db.t is told from a lake table.
    place = SourcePlace("") if source is None else source
    settings = SessionSettings({SOURCE: place}, ledger, SOURCE, warehouse, time_outs)
    values = {one.name: _value(one, given[one.name]) for one in typed.arguments}
    statement = typed.of(DottedName(split_identifiers(table)), values, _spelled)
    options = click.get_current_context().command.params
    known = {name for one in options for name in one.opts}
    said = partial(_said, typed, known)
    output = output_for(as_json=as_json)
    run = StatementRun(settings, output, statement, said, as_json=as_json, catalog=catalog, yes=yes)
    spark = SparkSettings(master, tuple(pairs("--conf", conf).items()))
    hosts = pairs("--cluster-host", cluster_host)
    stopping = Stopping(grace, run.output.note)
    try:
        # Of a ClickHouse table the same word is `mergeberg alter`'s, which asks for a permission.
        run.names.lake(statement.table.parts)
        exports = partial(statement_exports, spark, hosts, stopping, run)
        return run.change(exports, dry_run=dry_run)
    except TableFormatError as error:
        error.reword(said)
        raise


def _value(one: Argument, given: Any) -> GivenValue:
    """Return what an option says; all but the flags are collected, so that none is lost."""
    if one.is_flag:
        return bool(given)
    texts: tuple[str, ...] = given
    if one.several:
        return texts
    return texts[0] if texts else None


def _spelled(one: Argument) -> str:
    return one.option


def _said(typed: TypedStatement, known: set[str], text: str) -> str:
    return in_command(typed.told(text, _spelled), known)


def _once(context: click.Context, option: click.Parameter, given: Any) -> Any:
    """Refuse an option that is given twice: only one of them would count."""
    if len(given) > 1:
        message = f"{option.opts[0]} is given twice. Give it once, or write several commands."
        raise click.BadParameter(message, context, option)
    return given


def _option(one: Argument) -> click.Option:
    said = f"{one.says[0].upper()}{one.says[1:]}."
    if one.is_flag:
        return click.Option([one.option, one.name], is_flag=True, help=said)
    return click.Option(
        [one.option, one.name],
        multiple=True,
        required=one.is_required,
        callback=None if one.several else _once,
        metavar=one.option.strip("-").replace("-", "_").upper(),
        help=f"{said} Repeatable." if one.several else said,
    )


def _help(typed: TypedStatement) -> str:
    examples = "\n".join(f"  {example(typed, values)}" for values in typed.examples)
    others = f"\n\nA ClickHouse table is {SOURCE}.database.table; --source says where it is."
    more = others if typed.reads_others else ""
    return f"{typed.help}{more}\n\n\b\nExamples:\n{examples}"


def _command(typed: TypedStatement) -> click.Command:
    shared: tuple[Callable[[Any], Any], ...] = (
        click.option("--dry-run", is_flag=True, help="Say what it would do, and do nothing."),
        yes_option,
        named_catalog_option,
        ledger_options,
        catalog_options,
        output_options,
    )
    of_others = (grace_option, session_options, cluster_host_option, source_options())
    callback: Callable[..., int] = partial(_run, typed)
    for option in reversed((*(of_others if typed.reads_others else ()), *shared)):
        callback = option(callback)
    made = click.command(typed.command, help=_help(typed))(click.argument("table")(callback))
    made.params[1:1] = [_option(one) for one in typed.arguments]
    return made


TYPED_COMMANDS: Final = tuple(
    sorted((_command(typed) for typed in TYPED.values()), key=lambda one: str(one.name))
)
"""One command for each typed statement."""

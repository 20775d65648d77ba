"""Statements about a table of a ClickHouse: that ClickHouse runs them, and answers.

Only where the source allows it (DESIGN 6, `allow-alter`). The text is written anew from what was
read: names without the source in front, no INTO OUTFILE and no FORMAT, SETTINGS as they were given.
ON CLUSTER stays, for ClickHouse (P-69).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from catalog.altering import check_pass_on, pass_on
from catalog.sources import DEFAULT_DATABASE
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_settings import checked_setting
from spark_ext.sql.statement_text import render_statement
from spark_ext.sql.statements import (
    Alter,
    AttachFrom,
    ChangeRows,
    Command,
    DottedName,
    Ending,
    MoveToTable,
    Optimize,
    ReplaceFrom,
    Setting,
)
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError

__all__ = ["for_clickhouse", "run_by_clickhouse"]

# A mutation that is only begun would go on when nobody looks, of an embedded ClickHouse never.
_WAIT: Final = Setting("mutations_sync", 1)


def run_by_clickhouse(
    statement: Alter | Optimize | ChangeRows,
    source: str | None,
    table: SourceTable,
    *,
    dry_run: bool = False,
) -> None:
    """Let a table's own ClickHouse run a statement.

    Args:
        statement: about the table; none that exports.
        source: the name of the table's source.
        table: what its name means.
        dry_run: only check that it may be run; nothing is sent.

    Raises:
        UnsupportedError: a table elsewhere stands in it, it is not to be waited for, or the source
            is frozen parts (code 48).
        RefusedError: the source does not allow it.
        SourceError: ClickHouse refuses it, with its code, or cannot be reached.
    """
    at_source = DottedName((table.table.database, table.table.name))
    database = table.place.database
    text = render_statement(for_clickhouse(statement, source, at_source, database))
    if dry_run:
        check_pass_on(table.place, table.table, text)
    else:
        pass_on(table.place, table.table, text)


def for_clickhouse(
    statement: Alter | Optimize | ChangeRows,
    source: str | None,
    table: DottedName,
    database: str = DEFAULT_DATABASE,
) -> Alter | Optimize | ChangeRows:
    """Return a statement as the ClickHouse of its table reads it.

    Args:
        statement: as it was given.
        source: the name of the table's source, which may stand before other tables in it.
        table: its table, as ClickHouse names it.
        database: that of tables that are named alone.

    Raises:
        UnsupportedError: a table of another source or of the lake stands in it; or it is not to
            be waited for.
    """
    match statement:
        case Alter(_, commands, cluster, ending):
            here = tuple(_here(one, source, database) for one in commands)
            given = _synchronous(ending.settings)
            if not any(one.name == _WAIT.name for one in given):
                given = (*given, _WAIT)
            return Alter(table, here, cluster, Ending(settings=given))
        case Optimize(ending=ending):
            return replace(statement, table=table, ending=Ending(settings=ending.settings))
        case ChangeRows(settings=given):
            return replace(statement, table=table, settings=_synchronous(given))
        case _ as never:
            assert_never(never)


def _synchronous(settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """Return settings that let ClickHouse answer only when it is done; its own default does not.

    Raises:
        UsageError: the one that says it has another value than a number.
        UnsupportedError: it says that the answer is not to be waited for.
    """
    return tuple(
        replace(one, value=checked_setting(one)) if one.name == _WAIT.name else one
        for one in settings
    )


def _here(command: Command, source: str | None, database: str) -> Command:
    """Return a command whose other table, if it has one, is named as ClickHouse names it."""
    if not isinstance(command, AttachFrom | ReplaceFrom | MoveToTable):
        return command
    what = f"Cannot use the table {command.table} in a statement about a table of {source}"
    match command.table.parts:
        case (first, of, name) if first == source:
            return replace(command, table=DottedName((of, name)))
        case (_, _):
            return command
        case (name,):
            return replace(command, table=DottedName((database, name)))
        case _:
            why = "it is elsewhere, and this operation is not there yet"
            raise UnsupportedError(f"{what}: {why}. Export it instead.", code=NOT_IMPLEMENTED)

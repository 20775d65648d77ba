"""Resolves the exports of a statement, and passes statements on to a table's own ClickHouse.

`requested_exports` returns one export for each EXPORT command, with all names resolved. Spark SQL,
Python and `mergeberg alter` use it. All of them have one query id, by which KILL QUERY ends the
whole statement (RQ…QueryCancellation).

`run_by_clickhouse` lets ClickHouse run a statement about its own table, if the source allows it
(`allow-alter`, docs/reference/spark-sources.md). The text is rendered again from the parsed
statement: names have no source prefix, INTO OUTFILE and FORMAT are dropped, SETTINGS stay.
ON CLUSTER stays for ClickHouse (P-69).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias, assert_never

from catalog.clickhouse.source import ClickHouseSource
from catalog.hive import tree_name
from catalog.source_defaults import DEFAULT_DATABASE
from catalog.sources import check_pass_on, pass_on
from spark_ext.actions.exports import clickhouse_destination, unsupported
from spark_ext.sql.clauses import Ending, Setting
from spark_ext.sql.grammar import render_statement
from spark_ext.sql.names import Names
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statement_settings import (
    StatementSettings,
    check_export_is_allowed,
    checked_setting,
)
from spark_ext.sql.statements import (
    Alter,
    AttachFrom,
    ChangeRows,
    Command,
    Export,
    MoveToTable,
    Optimize,
    ReplaceFrom,
    Statement,
)
from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED
from tableformat.errors import RefusedError, UnsupportedError, UsageError
from tableformat.export.job import ExportRequest
from tableformat.export.request import AllPartitions, ByExpression, ById, Selection, check_options
from tableformat.mergetree.expression import render_expression
from tableformat.mergetree.partition_literal import All, ByValue
from tableformat.mergetree.partition_literal import ById as ByLiteralId
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import LakeName, PartName, new_query_id

__all__ = [
    "SessionExport",
    "exports_of",
    "for_clickhouse",
    "reads_source",
    "refuse_temporary",
    "requested_exports",
    "run_by_clickhouse",
]

Given: TypeAlias = Mapping[str, SourceTable]
"""Tables of open ClickHouse sessions, by the names that a statement uses for them."""

_NOTHING: Final[Given] = {}
_BARE: Final = 2


@dataclass(frozen=True, slots=True)
class SessionExport:
    """One export of a statement or call, with all names resolved.

    `request.table` is the table of `source`. `cluster` is the cluster whose shards have the table;
    None for that of the table itself. With `verify`, every export is compared with its source.
    """

    source: SourceTable
    request: ExportRequest
    cluster: str | None = None
    verify: bool = False


def exports_of(statement: Statement) -> tuple[Export, ...]:
    """Return the EXPORT commands of a statement; empty if it has none.

    Raises:
        UnsupportedError: the statement has other commands too.
    """
    if not isinstance(statement, Alter):
        return ()
    exports = tuple(one for one in statement.commands if isinstance(one, Export))
    if exports and len(exports) < len(statement.commands):
        other = next(one for one in statement.commands if not isinstance(one, Export))
        message = (
            f"Cannot run {other} together with EXPORT PARTITION: one runs on the lake, the other "
            "on ClickHouse. Write two statements."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    return exports


def requested_exports(
    statement: Alter, settings: StatementSettings, names: Names, given: Given = _NOTHING
) -> tuple[SessionExport, ...]:
    """Return the exports of a statement, with all names resolved before the first one runs.

    Args:
        statement: a statement with EXPORT commands.
        settings: the settings of the statement and its session.
        names: the name resolution of the session.
        given: tables of open ClickHouse sessions that the statement may name.

    Raises:
        RefusedError: the settings do not allow exports (code 344), or a table is exported to
            itself (36).
        UsageError: a name is ambiguous or names nothing, or the table of an open session is
            exported without waiting.
        UnsupportedError: a part is exported, or the destination cannot hold an export (code 48).
    """
    check_export_is_allowed(settings)
    held = given.get(".".join(statement.table.parts))
    refuse_temporary(statement, held)
    if held is not None and not settings.wait:
        message = (
            f"Cannot begin to export {held.table} with export_merge_tree_partition_wait = 0: its "
            "session may be closed before the export has ended. Leave the setting out."
        )
        raise UsageError(message)
    source = held or names.source(statement.table.parts)
    exports = exports_of(statement)
    to = {
        one: _destination(one, statement.table, source, names, settings.directories)
        for one in dict.fromkeys(export.to for export in exports)
    }
    query_id = new_query_id()
    return tuple(
        _session_export(one, to[one.to], source, statement, settings, query_id) for one in exports
    )


def reads_source(statement: Statement, names: Names) -> bool:
    """Whether a statement on a lake table exports from a ClickHouse table: ATTACH or REPLACE FROM.

    Raises:
        TableFormatError: the name after FROM cannot be resolved.
    """
    commands = statement.commands if isinstance(statement, Alter) else ()
    others = [one.table for one in commands if isinstance(one, AttachFrom | ReplaceFrom)]
    return any(isinstance(names.table(one.parts), SourceTable) for one in others)


def refuse_temporary(statement: Statement, held: SourceTable | None) -> None:
    """Refuse ALTER TEMPORARY TABLE unless the caller gave the session of the table.

    Raises:
        UnsupportedError: the table is temporary, and no session was given (code 48).
    """
    if isinstance(statement, Alter) and statement.is_temporary and held is None:
        message = (
            f"Cannot find the temporary table {statement.table}: only the session that created it "
            "sees it. Pass the session, from Python: spark_ext.sql(spark, '...', "
            f"tables={{'{statement.table}': SessionTable(session, '{statement.table}')}})."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _session_export(
    export: Export,
    to: LakeName,
    source: SourceTable,
    statement: Alter,
    settings: StatementSettings,
    query_id: str,
) -> SessionExport:
    request = ExportRequest(
        table=source.table,
        to=to,
        selection=_selection(export),
        options=(
            check_options(settings.options)
            if settings.replace_partition
            or (settings.force and (settings.check_rows or settings.incremental))
            else settings.options
        ),
        conversions={},
        strict=settings.strict,
        directories=settings.directories,
        max_retries=settings.max_retries,
        abandoned_ttl=settings.abandoned_ttl,
        limits=settings.limits,
        format=settings.file_format,
        query_id=query_id,
    )
    return SessionExport(source, request, cluster=statement.cluster)


def _described(source: SourceTable, opened: ClickHouseSource | None) -> MergeTreeTable:
    """Describe the table to export; use `opened` if its source is open already."""
    if opened is not None:
        return opened.describe(source.table)
    with contextlib.closing(source.open()) as its_own:
        return its_own.describe(source.table)


def _selection(export: Export) -> Selection:
    match export.of:
        case ByLiteralId(partition_id):
            return ById(partition_id)
        case ByValue(value):
            return ByExpression(render_expression(value))
        case All():
            return AllPartitions()
        case PartName() as part:
            message = (
                f"Cannot export the part {part}: only whole partitions become visible. Write "
                "EXPORT PARTITION ID '...' with the part's partition."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
        case _ as never:
            assert_never(never)


def _destination(
    to: DottedName,
    itself: DottedName,
    source: SourceTable,
    names: Names,
    directories: Mapping[str, str],
) -> LakeName:
    """Return the lake table or the Hive tree that a command exports to.

    A name without catalog or source is looked up in the ClickHouse of the source first.

    Raises:
        UsageError: the name is ambiguous, or names nothing.
        RefusedError: the destination is the source table itself, or does not fit it.
        UnsupportedError: the destination is a ClickHouse table that reads no Hive tree, or is in a
            catalog that is not Iceberg's.
    """
    what = f"Cannot export {source.table} to {to}"
    where = "Write TO TABLE catalog.namespace.table with an Iceberg catalog, or hive.`uri`."
    is_bare = len(to.parts) <= _BARE and not names.is_tree(to.parts)
    named = names.bare(source.place, to.parts) if is_bare else names.clickhouse_table(to.parts)
    if named == source or to == itself:
        message = f"{what}: Exporting to the same table is not allowed. {where}"
        raise RefusedError(message, code=BAD_ARGUMENTS)
    if named is not None:
        with contextlib.closing(named.open()) as opened:
            found = clickhouse_destination(
                opened,
                named.table,
                # An embedded source can be open only once at a time.
                partial(_described, source, opened if named.place == source.place else None),
                directories,
                what,
                where,
            )
        if found is not None and is_bare:
            why = "it is a table of ClickHouse over Hive directories"
            raise UsageError(f"{what}: {why}. Write source.database.table, or hive.`uri`.")
        if found is not None:
            return tree_name(found)
    other = names.other_catalog(to.parts)
    if other is not None:
        raise unsupported(what, f"of the catalog {other}", where)
    return names.destination(to.parts)


# Without waiting, a mutation's failure would not be reported, and an embedded ClickHouse would
# close before the mutation ends.
_WAIT: Final = Setting("mutations_sync", 1)


def run_by_clickhouse(
    statement: Alter | Optimize | ChangeRows,
    source: str | None,
    table: SourceTable,
    *,
    dry_run: bool = False,
) -> None:
    """Run a statement about a ClickHouse table in the table's own ClickHouse.

    Args:
        statement: a statement without EXPORT.
        source: the name of the source.
        table: the table of the statement.
        dry_run: check that the statement is allowed, and do not run it.

    Raises:
        UnsupportedError: the statement names a table of another source or of the lake, or asks
            not to wait; or the source is frozen parts (code 48).
        RefusedError: the source does not allow changes.
        SourceError: ClickHouse refuses the statement, with its code, or cannot be reached.
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
    """Return a statement with ClickHouse's own table names, for the ClickHouse of its table.

    Args:
        statement: the statement of the user.
        source: the name of the source, which other table names in the statement may begin with.
        table: the statement's table, by its name in ClickHouse.
        database: the database of table names without one.

    Raises:
        UnsupportedError: the statement names a table of another source or of the lake, or asks
            not to wait.
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
    """Return the settings after a check of `mutations_sync`, which must ask ClickHouse to wait.

    Raises:
        UsageError: its value is not a number.
        UnsupportedError: its value asks ClickHouse not to wait.
    """
    return tuple(
        replace(one, value=checked_setting(one)) if one.name == _WAIT.name else one
        for one in settings
    )


def _here(command: Command, source: str | None, database: str) -> Command:
    """Return a command with ClickHouse's own name of its other table, if it has one."""
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
            why = "it is in another place, and this operation is not supported there yet"
            raise UnsupportedError(f"{what}: {why}. Export it instead.", code=NOT_IMPLEMENTED)

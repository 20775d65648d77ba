"""What a statement with EXPORT asks for, its names resolved: one export for each command.

The same for Spark SQL, Python and `mergeberg alter`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, assert_never

from catalog.clickhouse.source import ClickHouseSource
from catalog.tree_names import tree_name
from spark_ext.clickhouse_destination import clickhouse_destination, unsupported
from spark_ext.sql.names import Names
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_settings import StatementSettings, check_export_is_allowed
from spark_ext.sql.statement_text import render_command
from spark_ext.sql.statements import Alter, DottedName, Export, Statement
from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED
from tableformat.errors import RefusedError, UnsupportedError, UsageError
from tableformat.export.claim import check_wish
from tableformat.export.job import ExportRequest
from tableformat.export.selection import AllPartitions, ByExpression, ById, Selection
from tableformat.mergetree.expression_text import render_expression
from tableformat.mergetree.partition_literal import All, ByValue
from tableformat.mergetree.partition_literal import ById as ByLiteralId
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import LakeName, PartName

__all__ = ["SessionExport", "asked_by", "exports_of", "refuse_temporary"]

Given: TypeAlias = Mapping[str, SourceTable]
"""Tables of open sessions, by the names that stand for them in a statement."""

_NOTHING: Final[Given] = {}
_BARE: Final = 2


@dataclass(frozen=True, slots=True)
class SessionExport:
    """One export that is asked for; `request.table` is that of `source`.

    `cluster` is whose shards have the table, None for its own. With `verify` every export is
    compared with its source.
    """

    source: SourceTable
    request: ExportRequest
    cluster: str | None = None
    verify: bool = False


def exports_of(statement: Statement) -> tuple[Export, ...]:
    """Return the exports of a statement, none of another one.

    Raises:
        UnsupportedError: it does something else, too.
    """
    if not isinstance(statement, Alter):
        return ()
    exports = tuple(one for one in statement.commands if isinstance(one, Export))
    if exports and len(exports) < len(statement.commands):
        other = next(one for one in statement.commands if not isinstance(one, Export))
        message = (
            f"Cannot run {render_command(other)} together with EXPORT PARTITION: the one is of "
            "the lake, the other of ClickHouse. Write two statements."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    return exports


def asked_by(
    statement: Alter, settings: StatementSettings, names: Names, given: Given = _NOTHING
) -> tuple[SessionExport, ...]:
    """Return what a statement asks to be exported, all of it resolved before anything is done.

    Args:
        statement: whose commands export.
        settings: what it and its session say.
        names: how its names are looked up.
        given: tables of open sessions that it may name.

    Raises:
        RefusedError: its settings do not allow it (code 344); a table is exported to itself (36),
            or to a table of ClickHouse (48).
        UsageError: a name may mean several things, or none; or the table of an open session is to
            be exported without waiting.
        UnsupportedError: a part is exported, or the destination is no table of the lake (code 48).
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
    return tuple(_asked(one, to[one.to], source, statement, settings) for one in exports)


def refuse_temporary(statement: Statement, held: SourceTable | None) -> None:
    """Refuse ALTER TEMPORARY TABLE of a table that no open session was given for.

    Raises:
        UnsupportedError: it is one (code 48).
    """
    if isinstance(statement, Alter) and statement.is_temporary and held is None:
        message = (
            f"Cannot find the temporary table {statement.table}: only the session that made it "
            "sees it. Give the session along, from Python: spark_ext.sql(spark, '...', "
            f"tables={{'{statement.table}': SessionTable(session, '{statement.table}')}})."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _asked(
    export: Export,
    to: LakeName,
    source: SourceTable,
    statement: Alter,
    settings: StatementSettings,
) -> SessionExport:
    request = ExportRequest(
        table=source.table,
        to=to,
        selection=_selection(export),
        wish=check_wish(settings.wish) if settings.replace_partition else settings.wish,
        conversions={},
        strict=settings.strict,
        directories=settings.directories,
        max_retries=settings.max_retries,
        abandoned_ttl=settings.abandoned_ttl,
        limits=settings.limits,
        format=settings.file_format,
    )
    return SessionExport(source, request, cluster=statement.cluster)


def _described(source: SourceTable, opened: ClickHouseSource | None) -> MergeTreeTable:
    """Return the table to export, from its source where that is open already."""
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
                f"Cannot export the part {part}: what becomes visible at once is a partition. "
                "Write EXPORT PARTITION ID '...' with the part's partition."
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
    """Return the lake table, or the tree of Hive directories, that is exported to.

    A name without a catalog, or source, is looked up in the ClickHouse of the source first.

    Raises:
        UsageError: it may mean several things, or none.
        RefusedError: it is the table itself, or another one of ClickHouse.
        UnsupportedError: it is of a catalog that is not Iceberg's.
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
                # A directory is open once at a time.
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

"""Opens part folders in our own ClickHouse: a read-only table over the directory itself.

The table is a plain MergeTree on a plain disk: nothing is written into the directory, and every
system table shows its parts as a server would. ClickHouse silently skips parts that it cannot
load, so the loaded parts are compared with the folders.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, texts
from catalog.clickhouse.embedded import OwnClickHouse
from catalog.clickhouse.frozen.definition import Definition, FrozenSettings, read_definition
from catalog.clickhouse.frozen.folders import PartFolder, PartFolders, find_folders
from catalog.clickhouse.missing_columns import with_missing_columns
from catalog.clickhouse.part_directories import plain_disk_sql
from catalog.clickhouse.snapshot.staging import files_layout
from catalog.clickhouse.table_description import describe, list_parts, of_table
from catalog.network import some
from tableformat.errors import RefusedError, SourceError, UsageError
from tableformat.mergetree.engine_text import staging_engine
from tableformat.mergetree.missing_columns import column_list, columns_of_parts
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import TableName, quote_identifier, quote_string

__all__ = ["OpenedParts", "check_unchanged", "open_clickhouse", "open_parts"]

_STATED: Final = "mergeberg_statement"
"""The database in which a statement's table is described, apart from that of the table."""


def open_clickhouse(zone: str) -> Connection:
    """Start our own ClickHouse to open parts in.

    Args:
        zone: the time zone for keys and defaults, '' for this host's.

    Raises:
        UsageError: there is no such time zone.
        SourceError: ClickHouse does not start.
    """
    clickhouse = OwnClickHouse("parts")
    try:
        if zone:
            clickhouse.command(f"SET session_timezone = {quote_string(zone)}")
    except ClickHouseError as error:
        clickhouse.close()
        message = (
            f"Cannot use the time zone {zone!r}: {error.reason}. Name it as the server does that "
            "wrote the parts, for example &zone=Europe/Berlin."
        )
        raise UsageError(message, code=error.code) from error
    except BaseException:
        clickhouse.close()
        raise
    return clickhouse


@dataclass(frozen=True, slots=True)
class OpenedParts:
    """Parts that are open as `table`: their folders, their statement, and the parts not loaded.

    `stated` is the statement's table if the parts had to be opened without default expressions that
    cannot be evaluated here and that no part needs; else None.
    """

    table: TableName
    definition: Definition
    folders: PartFolders
    missing: tuple[PartFolder, ...]
    stated: MergeTreeTable | None = None


def open_parts(
    connection: Connection, capabilities: Capabilities, settings: FrozenSettings, table: TableName
) -> OpenedParts:
    """Create the table over the directory, under its own name, and check which parts are loaded.

    Raises:
        NotFoundError: there are no parts, or the statement is another table's.
        RefusedError: the parts cannot be read, or the statement does not fit them.
        UsageError: the statement cannot be parsed.
        SourceError: ClickHouse does not open them, or loads none of them.
    """
    folders = find_folders(settings.directory)
    definition = read_definition(connection, settings.ddl_file)
    definition.check_name(table, settings.ddl_file)
    connection.command(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(table.database)}")
    try:
        stated = _open(connection, capabilities, definition, table, folders.directory)
    except ClickHouseError as error:
        message = (
            f"Cannot open the parts in {folders.directory} as {table}: {error.reason}. Check that "
            f"the statement in {settings.ddl_file} is that of the table when they were frozen."
        )
        raise RefusedError(message, code=error.code) from error
    loaded = _loaded(connection, table)
    listed = {str(folder.name) for folder in folders.parts}
    if foreign := sorted(loaded - listed):
        message = (
            f"Cannot read the parts in {folders.directory}: ClickHouse also loaded "
            f"{some(foreign)}. Something writes there; name a directory that nobody "
            "changes."
        )
        raise SourceError(message)
    missing = tuple(folder for folder in folders.parts if str(folder.name) not in loaded)
    if not loaded and not any(folder.damage for folder in folders.parts):
        raise _nothing_loaded(settings, definition, folders)
    return OpenedParts(table, definition, folders, missing, stated)


def check_unchanged(opened: OpenedParts) -> None:
    """Check that the directory has the same folders as when it was opened.

    Raises:
        SourceError: it does not.
    """
    before = {str(folder.name) for folder in opened.folders.parts}
    now = {str(folder.name) for folder in find_folders(opened.folders.directory).parts}
    if changed := sorted(before ^ now):
        message = (
            f"Cannot read the parts in {opened.folders.directory}: its folders changed while they "
            f"were read: {some(changed)}. Name a directory that nobody changes."
        )
        raise SourceError(message)


def _open(
    connection: Connection,
    capabilities: Capabilities,
    definition: Definition,
    table: TableName,
    directory: Path,
) -> MergeTreeTable | None:
    """Create the table; return that of the statement if the table differs from it.

    Raises:
        ClickHouseError: it cannot be created.
    """
    try:
        connection.command(_create_sql(capabilities, definition, table, directory))
    except ClickHouseError as error:
        # Expressions may need functions or tables of the server, but the parts may not need them.
        with contextlib.suppress(ClickHouseError):
            return _open_bare(connection, capabilities, definition, table, directory)
        raise error from None
    return None


def _open_bare(
    connection: Connection,
    capabilities: Capabilities,
    definition: Definition,
    table: TableName,
    directory: Path,
) -> MergeTreeTable:
    """Create the table with only the expressions that its parts need; return the statement's table.

    Raises:
        ClickHouseError: a needed expression cannot be evaluated, or something else is wrong.
    """
    stated = TableName(_STATED, table.name)
    connection.command(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(_STATED)}")
    # ClickHouse evaluates no expression when it attaches a table.
    engine = staging_engine(replace(definition.engine, settings=()), ())
    connection.command(
        f"ATTACH TABLE {stated.sql} UUID {quote_string(str(uuid.uuid4()))}"
        f" ({definition.columns}) {engine}"
    )
    found = describe(connection, capabilities, stated)
    connection.command(f"DROP TABLE {stated.sql} SYNC")
    lacked: frozenset[str] = frozenset()
    while True:
        columns = column_list(columns_of_parts(found.columns, lacked))
        bare = replace(definition, columns=columns)
        connection.command(_create_sql(capabilities, bare, table, directory))
        parts = with_missing_columns(connection, table, list_parts(connection, capabilities, table))
        missing = frozenset(column for part in parts for column in part.lacks)
        if missing <= lacked:
            return found
        lacked = missing
        connection.command(f"DROP TABLE {table.sql} SYNC")


def _create_sql(
    capabilities: Capabilities, definition: Definition, table: TableName, directory: Path
) -> str:
    nothing = MergeTreeTable(table, "", "", definition.engine, (), "", "", "")
    opening = files_layout(nothing, capabilities).settings
    bare = replace(definition.engine, settings=())
    disk = plain_disk_sql(directory)
    engine = staging_engine(bare, (*opening, ("table_disk", "1"), ("disk", disk)))
    return f"CREATE TABLE {table.sql} ({definition.columns}) {engine}"


def _loaded(connection: Connection, table: TableName) -> frozenset[str]:
    """Return the parts that ClickHouse has loaded, empty and patch parts included."""
    return frozenset(
        texts(connection, f"SELECT name FROM system.parts WHERE active AND {of_table(table)}")
    )


def _nothing_loaded(
    settings: FrozenSettings, definition: Definition, folders: PartFolders
) -> SourceError:
    engine = definition.engine
    return SourceError(
        f"Cannot read the parts in {folders.directory}: ClickHouse loaded none of "
        f"{len(folders.parts)} under PARTITION BY {engine.partition_by or 'tuple()'} ORDER BY "
        f"{engine.order_by}, so they are damaged, or {settings.ddl_file} is not the statement of "
        "their table. Check its keys."
    )

"""Creates and drops staging tables, which hold a snapshot's parts as hard links.

This module owns their database, their names (`<job>_<number>`, which identify leftovers of an ended
job) and their clauses. `protocol.py` fills them, `proof.py` proves their content, and
`leftovers.py` reuses those of an ended job. See docs/operating/staging.md.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from catalog.clickhouse.capabilities import Capabilities, Offer
from catalog.clickhouse.connection import (
    ClickHouseError,
    Connection,
    definitions,
    one_text,
    text,
    texts,
    ttl_columns,
    whole,
)
from catalog.clickhouse.staging_comment import Made, Origin
from catalog.clickhouse.table_description import of_table
from catalog.processes import this_process
from tableformat.clickhouse_codes import (
    BAD_ARGUMENTS,
    UNKNOWN_SETTING,
)
from tableformat.mergetree.engine_text import old_staging_engine, staging_engine
from tableformat.mergetree.missing_columns import column_list, columns_of_parts
from tableformat.mergetree.readability import PART_OFFSET, check_readable, has_column
from tableformat.mergetree.table import Column, Engine, MergeTreeTable
from tableformat.mergetree.table_settings import with_files
from tableformat.names import TableName, quote_identifier, quote_string
from tableformat.source import Leftover, PartsLayout, ServedLayout

__all__ = [
    "create_database",
    "create_staging",
    "drop_staging",
    "files_layout",
    "is_closed",
    "layout_of",
    "list_leftovers",
    "make_readonly",
    "next_staging",
    "origins",
    "place_of",
    "staging_columns",
    "staging_table",
    "sweep_leftovers",
]

_NAME: Final = re.compile(r"(?P<job>.+)_(?P<number>\d+)\Z", re.DOTALL)
_TRUE: Final = ("1", "true")


def staging_table(connection: Connection, name: str) -> TableName:
    """Return the qualified name of a staging table."""
    return TableName(connection.staging_database, name)


def next_staging(connection: Connection, job: str) -> TableName:
    """Return an unused name for a staging table of a job.

    Raises:
        SourceError: the source cannot be read.
    """
    numbers = [int(number) for owner, number in _leftovers(connection) if owner == job]
    return staging_table(connection, f"{job}_{max(numbers, default=0) + 1}")


def create_staging(
    connection: Connection,
    capabilities: Capabilities,
    table: MergeTreeTable,
    name: TableName,
    lacked: Collection[str] = (),
) -> None:
    """Create an empty staging table for parts of `table`, in which nothing merges or expires.

    `lacked` are the stored columns that a part lacks.

    Raises:
        UnsupportedError: no other table can hold parts of such a table.
        ClickHouseError: ClickHouse refuses to create it.
        SourceError: the source cannot be used.
    """
    create_database(connection, capabilities)
    has_ttl = _create_table(connection, capabilities, table, name, lacked)
    try:
        if capabilities.has(Offer.TTL_MERGES):
            if has_ttl:
                _remove_ttl(connection, name)
            connection.command(f"SYSTEM STOP TTL MERGES {name.sql}")
        connection.command(f"SYSTEM STOP MERGES {name.sql}")
    except ClickHouseError:
        drop_staging(connection, capabilities, name)
        raise


def make_readonly(
    connection: Connection, capabilities: Capabilities, table: MergeTreeTable, name: TableName
) -> None:
    """Forbid every change of a filled staging table of `table`, if the version supports that.

    Raises:
        SourceError: the source cannot be used.
    """
    # A table of the old syntax has no settings.
    if capabilities.has(Offer.READONLY_TABLES) and not table.engine.old_arguments:
        connection.command(f"ALTER TABLE {name.sql} MODIFY SETTING table_readonly = 1")


def drop_staging(connection: Connection, capabilities: Capabilities, name: TableName) -> None:
    """Drop a staging table of any size, if it exists.

    Raises:
        SourceError: the source cannot be used.
    """
    connection.command(f"DROP TABLE IF EXISTS {name.sql}{capabilities.drop_suffix}")


def is_closed(engine: Engine, capabilities: Capabilities) -> bool:
    """Whether a staging table was completely filled and has not been opened for changes since.

    False if the version cannot make a table read-only, because an incomplete table looks like a
    complete one there.
    """
    settings = dict(engine.settings)
    blocked = all(settings.get(name) == value for name, value in capabilities.blockers)
    return engine.name == "MergeTree" and blocked and settings.get("table_readonly") in _TRUE


def origins(
    connection: Connection, capabilities: Capabilities, names: Collection[str]
) -> Mapping[str, Origin]:
    """Return the source tables of staging tables, as recorded in their comments.

    Staging tables that do not exist or have no such comment are left out.

    Raises:
        SourceError: the source cannot be read.
    """
    return {
        name: origin
        for name, comment, _ in _comments(connection, capabilities)
        if name in names and (origin := Origin.parse(comment)) is not None
    }


def list_leftovers(connection: Connection, capabilities: Capabilities) -> tuple[Leftover, ...]:
    """Return every staging table, in order of name.

    Raises:
        SourceError: the source cannot be read.
    """
    found = connection.rows(
        "SELECT table, sum(bytes_on_disk), sumIf(rows, active) FROM system.parts"
        f" WHERE database = {quote_string(connection.staging_database)} GROUP BY table"
    )
    sizes = {text(row[0]): (whole(row[1]), whole(row[2])) for row in found}
    leftovers = []
    for name, comment, seconds in _comments(connection, capabilities):
        if owner := _NAME.match(name):
            size, rows = sizes.get(name, (0, 0))
            origin = Origin.parse(comment)
            table = None if origin is None else origin.table
            made_by = origin.made.shown if origin is not None and origin.made else ""
            leftovers.append(
                Leftover(name, owner["job"], seconds * 1000, size, rows, table, made_by)
            )
    return tuple(leftovers)


def sweep_leftovers(
    connection: Connection,
    capabilities: Capabilities,
    is_alive: Callable[[str], bool],
    keep: Collection[str] = (),
) -> tuple[str, ...]:
    """Drop the staging tables of ended jobs.

    Args:
        connection: the source.
        capabilities: of the source.
        is_alive: whether the job of a name may still need its staging tables.
        keep: names of staging tables to keep.

    Returns:
        The names of the dropped tables.

    Raises:
        SourceError: the source cannot be used.
    """
    dropped = []
    for job, number in _leftovers(connection):
        name = staging_table(connection, f"{job}_{number}")
        if name.name not in keep and not is_alive(job):
            drop_staging(connection, capabilities, name)
            dropped.append(name.name)
    return tuple(dropped)


def place_of(staging: TableName, capabilities: Capabilities) -> str:
    """Return the table from which tasks read a staging table's parts; '' to read them from disk."""
    return staging.sql if capabilities.address else ""


def layout_of(
    connection: Connection, capabilities: Capabilities, table: MergeTreeTable
) -> PartsLayout | ServedLayout:
    """Return how the parts of a staging table are read: through its server, or as files.

    Raises:
        RefusedError: the table cannot be read reliably (`tableformat.mergetree.readability`).
        SourceError: the source cannot be read.
    """
    check_readable(table)
    if capabilities.address:
        known = table.server_zone and "session_timezone" in capabilities.query_settings
        zone = (("session_timezone", table.server_zone),) if known else ()
        return ServedLayout(
            host=capabilities.address,
            columns=tuple((c.name, c.type_text) for c in table.stored_columns),
            order_by=table.engine.order_by,
            zone=table.server_zone,
            settings=(*capabilities.reading_settings, *zone),
            typed=capabilities.makes_wire_values,
            ranges=not has_column(table, PART_OFFSET) and _reads_ranges(connection, table.name),
        )
    return files_layout(table, capabilities)


def files_layout(table: MergeTreeTable, capabilities: Capabilities) -> PartsLayout:
    """Return the clauses with which parts of a table open as files if they lack no column."""
    # A setting of the configuration applies to every table that does not set it.
    opening = tuple(dict(with_files((*capabilities.configured, *table.engine.settings))).items())
    named = {name for name, _ in opening}
    permissions = tuple(pair for pair in capabilities.permissions if pair[0] not in named)
    return PartsLayout(
        columns=column_list(columns_of_parts(table.columns, ())),
        partition_by=table.engine.partition_by,
        order_by=table.engine.order_by,
        primary_key=table.engine.primary_key,
        settings=(*opening, *permissions),
        zone=table.server_zone,
        ranges=not has_column(table, PART_OFFSET),
    )


def _reads_ranges(connection: Connection, name: TableName) -> bool:
    """Whether a query can select rows by their position in the part."""
    try:
        connection.rows(f"SELECT {PART_OFFSET} FROM {name.sql} LIMIT 0")
    except ClickHouseError:
        # The version lacks the column, or an ALIAS of the table cannot be computed: tasks read
        # whole parts.
        return False
    return True


def create_database(connection: Connection, capabilities: Capabilities) -> None:
    """Create the staging database if it does not exist.

    It is looked up first, because CREATE DATABASE IF NOT EXISTS needs a right even if it exists.

    Raises:
        SourceError: the source cannot be used.
    """
    name = quote_string(connection.staging_database)
    if texts(connection, f"SELECT name FROM system.databases WHERE name = {name}"):
        return
    atomic = " ENGINE = Atomic" if capabilities.has(Offer.TABLE_IDS) else ""
    connection.command(
        f"CREATE DATABASE IF NOT EXISTS {quote_identifier(connection.staging_database)}{atomic}"
    )


def staging_columns(table: MergeTreeTable, lacked: Collection[str]) -> tuple[Column, ...]:
    """Return the columns of a staging table for parts that may lack columns of their table."""
    texts = (*(i.expression for i in table.indices), *(p.query for p in table.projections))
    return columns_of_parts(table.columns, lacked, texts)


def _create_table(
    connection: Connection,
    capabilities: Capabilities,
    table: MergeTreeTable,
    name: TableName,
    lacked: Collection[str],
) -> bool:
    """Create the table, without the permission settings if the version does not accept them.

    Returns:
        Whether its columns may have a TTL.
    """
    comment = ""
    if capabilities.has(Offer.TABLE_COMMENTS):
        origin = Origin.of(table, Made.by(this_process(), datetime.now(UTC)))
        comment = f" COMMENT {quote_string(origin.comment)}"
    start = f"CREATE TABLE {name.sql} AS {table.name.sql}"
    # Parts of the old syntax cannot be opened as files, but their server reads them.
    if table.engine.old_arguments and capabilities.address:
        sign = Offer.OLD_SYNTAX_SETTING
        allowed = ((sign.sign.name, "1"),) if capabilities.has(sign) else ()
        connection.command(f"{start} {old_staging_engine(table.engine, allowed)}{comment}")
        return True
    engines = [
        staging_engine(table.engine, (*capabilities.blockers, *permissions))
        for permissions in (capabilities.permissions, ())
    ]
    bare = staging_columns(table, lacked)
    if bare != table.columns:
        listed = ", ".join((column_list(bare), *_structures(connection, table)))
        # The definition may need settings, for example for types; CREATE ... AS needs none.
        with contextlib.suppress(ClickHouseError):
            _create_with(connection, f"CREATE TABLE {name.sql} ({listed})", engines, comment)
            return False
    _create_with(connection, start, engines, comment)
    return True


def _create_with(connection: Connection, start: str, engines: list[str], comment: str) -> None:
    try:
        connection.command(f"{start} {engines[0]}{comment}")
    except ClickHouseError as error:
        # Not every version accepts a query's settings there; it may allow the definition without
        # them.
        if error.code != UNKNOWN_SETTING or engines[0] == engines[1]:
            raise
        connection.command(f"{start} {engines[1]}{comment}")


def _structures(connection: Connection, table: MergeTreeTable) -> tuple[str, ...]:
    """Return the definitions of a table's indices and projections, which a clone must have."""
    if not table.indices and not table.projections:
        return ()
    query = one_text(
        connection,
        f"SELECT create_table_query FROM system.tables WHERE {of_table(table.name, column='name')}",
    )
    return tuple(d for d in definitions(query) if d.startswith(("INDEX ", "PROJECTION ")))


def _remove_ttl(connection: Connection, name: TableName) -> None:
    """Remove the TTLs of columns; CREATE ... AS copies them, but not the table's own TTL."""
    query = one_text(
        connection,
        f"SELECT create_table_query FROM system.tables WHERE {of_table(name, column='name')}",
    )
    for column in ttl_columns(query):
        try:
            connection.command(
                f"ALTER TABLE {name.sql} MODIFY COLUMN {quote_identifier(column)} REMOVE TTL"
            )
        except ClickHouseError as error:
            # It was a column named TTL in the default expression of another one.
            if error.code != BAD_ARGUMENTS or "doesn't have TTL" not in error.reason:
                raise


def _leftovers(connection: Connection) -> tuple[tuple[str, str], ...]:
    """Return job and number of every staging table; other tables of the database are ignored."""
    names = texts(
        connection,
        "SELECT name FROM system.tables"
        f" WHERE database = {quote_string(connection.staging_database)} ORDER BY name",
    )
    return tuple((found["job"], found["number"]) for n in names if (found := _NAME.match(n)))


def _comments(
    connection: Connection, capabilities: Capabilities
) -> tuple[tuple[str, str, int], ...]:
    """Return the name, comment and last change of each table in the database.

    The time is in seconds since 1970. The last change of a staging table is its closing.
    """
    comment = "comment" if capabilities.has(Offer.TABLE_COMMENTS) else "''"
    found = connection.rows(
        f"SELECT name, {comment}, toUnixTimestamp(metadata_modification_time) FROM system.tables"
        f" WHERE database = {quote_string(connection.staging_database)} ORDER BY name"
    )
    return tuple((text(row[0]), text(row[1]), whole(row[2])) for row in found)

"""Creates, finds again and drops staging tables, which hold a snapshot's parts as hard links.

This module owns their database, their names (`<job>_<number>`, which identify leftovers of an ended
job) and their clauses. `protocol.py` fills them, and `proof.py` proves their content. See
docs/operating/staging.md.

`Origin` is the comment of a staging table: its source table, its creator and the time. The comment
is written when the staging table is created. It identifies leftovers for users, and prevents a job
from reusing the staging table of another source table. The creator is a process on a host, never a
user. Comments of earlier releases have only the source table.

`find_left_snapshot` reuses the snapshot of an ended job: staging tables outlive the process that
filled them.

    staging tables in the ledger -> exists, of this table, closed, with the same definition?
    -> exactly the recorded parts? -> CHECK, counts, probes, digest, as for a new clone

Since the job ended, a server may have restarted, and an operator may have dropped or changed a
staging table; or the job ended while it filled one. So everything is checked again. A partition
that does not pass is left out, and a new snapshot of it is taken, which costs time but no row.
Changes of the source table do not matter, except that its definition must match the staging table,
because the files were planned for it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

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
from catalog.clickhouse.snapshot.comparison import Clone, differences, paired
from catalog.clickhouse.snapshot.proof import Proved, prove
from catalog.clickhouse.table_description import (
    describe,
    list_parts,
    of_table,
    with_missing_columns,
)
from catalog.processes import this_process
from tableformat.clickhouse_codes import (
    BAD_ARGUMENTS,
    UNKNOWN_SETTING,
)
from tableformat.errors import NotFoundError, UnsupportedError
from tableformat.ledger import Owner
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.engine_text import old_staging_engine, staging_engine
from tableformat.mergetree.missing_columns import column_list, columns_of_parts
from tableformat.mergetree.table import Column, Engine, MergeTreeTable
from tableformat.mergetree.table_settings import (
    PART_OFFSET,
    check_readable,
    has_column,
    is_on,
    with_files,
)
from tableformat.names import PartitionId, TableName, quote_identifier, quote_string
from tableformat.source import (
    FrozenPart,
    FrozenPartition,
    Leftover,
    LeftSnapshot,
    PartsLayout,
    Probe,
    ServedLayout,
    SourceSnapshot,
)

__all__ = [
    "Made",
    "Origin",
    "Search",
    "create_database",
    "create_staging",
    "drop_staging",
    "files_layout",
    "find_left_snapshot",
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
    return engine.name == "MergeTree" and blocked and is_on(engine.settings, "table_readonly")


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
        RefusedError: the table cannot be read reliably (`tableformat.mergetree.table_settings`).
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
    names = {index.name for index in table.indices}
    # ClickHouse makes indices of its own for columns, also of ALIAS columns, and a clone must have
    # them. system.data_skipping_indices has the expression of such a column, not its name.
    own = (c.name for c in table.columns if f"{_OWN_INDEX}{c.name}" in names)
    texts = (
        *map(quote_identifier, own),
        *(index.expression for index in table.indices),
        *(projection.query for projection in table.projections),
    )
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


_OWN_INDEX: Final = "auto_minmax_index_"
"""The start of the names of indices that a table's settings add, one for each column."""
_WHAT: Final = "staged by mergeberg from"


@dataclass(frozen=True, slots=True)
class Made:
    """The process that created a staging table, and the time in UTC seconds by its host's clock."""

    owner: Owner
    at: datetime

    @classmethod
    def by(cls, owner: Owner, at: datetime) -> Self:
        """Return the creator with a time of any zone, converted to UTC and whole seconds."""
        return cls(owner, at.astimezone(UTC).replace(microsecond=0))

    @property
    def shown(self) -> str:
        """The creator and time as a message shows them."""
        return f"{self.owner}, {_text_of(self.at)}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a staging table: the table's name at its creation, and the table's identity."""

    table: TableName
    identity: str
    made: Made | None = None

    @classmethod
    def of(cls, table: MergeTreeTable, made: Made | None = None) -> Self:
        """Return the origin for parts of a described table."""
        return cls(table.name, table.identity, made)

    @property
    def comment(self) -> str:
        """The comment of the staging table; it is ASCII for any name."""
        names = {"database": self.table.database, "table": self.table.name}
        members: dict[str, Any] = {"what": _WHAT, **names, "identity": self.identity}
        if self.made is not None:
            owner = self.made.owner
            members["owner"] = {"host": owner.host, "process": owner.pid, "start": owner.start}
            members["made"] = _text_of(self.made.at)
        return json.dumps(members)

    @classmethod
    def parse(cls, comment: str) -> Self | None:
        """Parse a comment; return None if it is not one of ours."""
        try:
            read: Any = json.loads(comment)
        except ValueError:
            return None
        if not isinstance(read, dict) or read.get("what") != _WHAT:
            return None
        match read:
            case {"database": str(database), "table": str(table), "identity": str(identity)} if (
                database and table and identity
            ):
                return cls(TableName(database, table), identity, _made(read))
        return None


def _made(read: Any) -> Made | None:
    """Return the creator of a staging table, None if the comment lacks the process or the time."""
    match read:
        case {
            "owner": {"host": str(host), "process": int(process), "start": str(start)},
            "made": str(at),
        }:
            try:
                moment = datetime.fromisoformat(at)
            except ValueError:
                return None
            return Made.by(Owner(host, process, start), moment) if moment.tzinfo else None
        case _:
            return None


def _text_of(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


Left = Mapping[PartitionId, LeftSnapshot]


@dataclass(frozen=True, slots=True)
class Search:
    """Partitions of a described table to find, with the probes and digest columns to compute."""

    table: MergeTreeTable
    wanted: Left
    probes: tuple[Probe, ...]
    digest: tuple[DigestColumn, ...] = ()


def find_left_snapshot(
    connection: Connection, capabilities: Capabilities, search: Search
) -> SourceSnapshot:
    """Return the wanted partitions that staging tables still hold completely, proved again.

    Raises:
        SourceError: the source cannot be read.
    """
    found: dict[PartitionId, FrozenPartition] = {}
    handle = []
    for staging in _usable(connection, capabilities, search):
        missing = {one: left for one, left in search.wanted.items() if one not in found}
        proved = _proved(connection, capabilities, staging, search, missing)
        if proved.partitions:
            found |= {partition.partition_id: partition for partition in proved.partitions}
            handle.append(staging.name)
    layout = layout_of(connection, capabilities, search.table)
    return SourceSnapshot(
        table=search.table,
        layout=layout.over(search.table, found.values()),
        partitions=tuple(found[one] for one in sorted(found)),
        refused=(),
        handle=tuple(handle),
    )


def _usable(
    connection: Connection, capabilities: Capabilities, search: Search
) -> tuple[TableName, ...]:
    """Return the recorded staging tables that belong to this table and are unchanged."""
    names = {name: None for left in search.wanted.values() for name in left.staging}
    if not names:
        return ()
    owners = origins(connection, capabilities, names)
    return tuple(
        staging_table(connection, name)
        for name in names
        if name in owners
        and owners[name].identity == search.table.identity
        and _is_unchanged(connection, capabilities, search.table, staging_table(connection, name))
    )


def _is_unchanged(
    connection: Connection, capabilities: Capabilities, table: MergeTreeTable, staging: TableName
) -> bool:
    """Whether a staging table is closed and opens its parts as a new one would."""
    try:
        found = describe(connection, capabilities, staging)
    except (NotFoundError, UnsupportedError):
        # It was dropped meanwhile, or replaced by another object.
        return False
    parts = with_missing_columns(connection, staging, list_parts(connection, capabilities, staging))
    bare = staging_columns(table, {column for part in parts for column in part.lacks})
    return (
        is_closed(found.engine, capabilities)
        and not differences(table, found, copy=True, bare=bare)
        and _opening(table, capabilities) == _opening(found, capabilities)
    )


def _opening(table: MergeTreeTable, capabilities: Capabilities) -> dict[str, str]:
    """Return the settings of a table that decide how its parts open as files."""
    # Permissions are added to every table that is opened.
    given = dict(capabilities.permissions)
    settings = files_layout(table, capabilities).settings
    return {name: value for name, value in settings if name not in given}


def _proved(
    connection: Connection,
    capabilities: Capabilities,
    staging: TableName,
    search: Search,
    missing: Left,
) -> Proved:
    """Prove the missing partitions of which a staging table has exactly the recorded parts."""
    wanted = {one: left for one, left in missing.items() if staging.name in left.staging}
    parts = _matched(connection, capabilities, staging, wanted)
    if not parts:
        return Proved((), {})
    clone = Clone(search.table.name, staging, parts)
    return prove(connection, capabilities, clone, search.probes, search.digest)


def _matched(
    connection: Connection, capabilities: Capabilities, staging: TableName, wanted: Left
) -> dict[PartitionId, tuple[FrozenPart, ...]]:
    """Return each partition's parts with their recorded names, without partitions that differ."""
    # A partition without recorded parts would match, empty, in every table.
    recorded = {one: left for one, left in wanted.items() if left.parts}
    if not recorded:
        return {}
    listed = list_parts(connection, capabilities, staging, tuple(recorded))
    held = with_missing_columns(connection, staging, listed)
    place = place_of(staging, capabilities)
    matched = {}
    for one, left in recorded.items():
        copies = tuple(part for part in held if part.partition_id == one)
        pairs = paired(copies, left.parts, place=place)
        if pairs is not None:
            matched[one] = pairs
    return matched

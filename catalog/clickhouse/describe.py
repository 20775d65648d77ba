"""Reads what a MergeTree table is from the system tables: columns, clauses, parts, partitions.

The clauses are taken from `engine_full`: `sorting_key` hides DESC and shows columns that a clone
must not have (types.md section 4, source.md section 1).
"""

from __future__ import annotations

import re
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.comparison import named_sizes_sql
from catalog.clickhouse.connection import (
    ClickHouseError,
    Connection,
    Row,
    flag,
    one_text,
    text,
    texts,
    whole,
)
from catalog.clickhouse.keeper_node import MAIN_KEEPER, node_of
from catalog.clickhouse.offers import Offer
from catalog.clickhouse.table_refusals import not_found, not_merge_tree
from catalog.clickhouse.table_text import ttl_columns
from catalog.clickhouse.views import written_table
from tableformat.clickhouse_codes import ACCESS_DENIED
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.parts import Part, PartitionSummary
from tableformat.mergetree.table import (
    Column,
    Engine,
    MergeTreeTable,
    Projection,
    SkipIndex,
)
from tableformat.mergetree.type_text import parse_type, render_type
from tableformat.mergetree.types import AggregateFunction, DataType, rebuild
from tableformat.names import PartitionId, TableName, quote_identifier, quote_string

__all__ = [
    "active_parts",
    "describe",
    "engine_of",
    "has_active_parts",
    "list_partitions",
    "list_parts",
    "of_table",
    "row_policies",
]

_NIL_UUID: Final = "00000000-0000-0000-0000-000000000000"
_UUID_DIRECTORY: Final = re.compile(r"/store/[0-9a-f]{3}/(?P<uuid>[0-9a-f-]{36})/?\Z")


def describe(connection: Connection, capabilities: Capabilities, name: TableName) -> MergeTreeTable:
    """Return the table as it is now.

    Raises:
        NotFoundError: no such database or table; the nearest names are given.
        UnsupportedError: it is not of the MergeTree family.
        SourceError: the source cannot be read.
    """
    found = connection.rows(
        f"SELECT engine, engine_full, {_or(capabilities, Offer.TABLE_IDS, 'toString(uuid)', '')},"
        f" {_or(capabilities, Offer.STORAGE_POLICIES, 'storage_policy', 'default')},"
        f" create_table_query, {_directory_sql(capabilities)}"
        f" FROM system.tables WHERE {of_table(name, column='name')}"
    )
    if not found:
        raise not_found(connection, name)
    kind, engine_full, uuid, policy, create_query, directory = (text(v) for v in found[0])
    if not kind.endswith("MergeTree"):
        is_view = kind == "MaterializedView"
        target = written_table(connection, name, create_query, uuid) if is_view else None
        raise not_merge_tree(name, kind, target)
    engine = parse_engine(engine_full)
    uuid = _own_uuid(uuid, directory)
    path, keeper = _keeper_path(connection, capabilities, name, engine)
    return MergeTreeTable(
        name=name,
        identity=f"keeper:{path}" if path else _identity(capabilities, name, uuid, directory),
        uuid=uuid,
        engine=engine,
        columns=_columns(connection, capabilities, name),
        storage_policy=policy,
        server_version=capabilities.version,
        server_zone=capabilities.server_zone,
        has_ttl_columns=bool(ttl_columns(create_query)),
        indices=_indices(connection, capabilities, name),
        projections=_projections(connection, capabilities, name),
        keeper_node=node_of(connection, path, keeper) if path else None,
    )


def engine_of(connection: Connection, name: TableName) -> str | None:
    """Return the engine of any table or view, None when there is no such table.

    Raises:
        SourceError: the source cannot be read.
    """
    found = texts(
        connection, f"SELECT engine FROM system.tables WHERE {of_table(name, column='name')}"
    )
    return found[0] if found else None


def list_partitions(connection: Connection, name: TableName) -> tuple[PartitionSummary, ...]:
    """Return the partitions with active parts, in the order of their ids; patch parts are left out.

    Their times are for `partition_times.py` to read.

    Raises:
        SourceError: the source cannot be read.
    """
    found = connection.rows(
        "SELECT partition_id, any(partition), countIf(rows > 0), sum(rows), sum(bytes_on_disk)"
        f" FROM system.parts WHERE {active_parts(name)} GROUP BY partition_id ORDER BY partition_id"
    )
    return tuple(
        PartitionSummary(
            PartitionId(text(row[0])),
            text(row[1]),
            whole(row[2]),
            whole(row[3]),
            whole(row[4]),
        )
        for row in found
    )


def list_parts(
    connection: Connection,
    capabilities: Capabilities,
    name: TableName,
    partition_ids: tuple[PartitionId, ...] = (),
) -> tuple[Part, ...]:
    """Return the active parts that hold rows, of some partitions or (none given) of all.

    `disk` of each part is the root directory of its disk, '' where the server does not say. Where
    it has no hashes, `hash_of_all_files` is the text that `comparison.py` reads.

    Raises:
        SourceError: the source cannot be read.
    """
    ids = ", ".join(quote_string(str(one)) for one in partition_ids)
    disks = capabilities.has(Offer.PART_DISKS) and capabilities.has(Offer.DISKS)
    join = " LEFT JOIN system.disks AS d ON d.name = p.disk_name" if disks else ""
    hashes = capabilities.has(Offer.PART_HASHES)
    found = connection.rows(
        "SELECT p.name, p.partition_id, p.rows, p.bytes_on_disk, p.data_uncompressed_bytes,"
        f" {'p.hash_of_all_files' if hashes else named_sizes_sql('p')},"
        f" {'d.path' if disks else quote_string('')}, p.path,"
        f" {_or(capabilities, Offer.PART_TYPES, 'toString(p.part_type)', 'Wide')},"
        " p.min_block_number, p.max_block_number, p.level, p.data_version,"
        f" {'p.has_lightweight_delete' if capabilities.has(Offer.DELETED_ROWS) else '0'}"
        f" FROM system.parts AS p{join} WHERE {active_parts(name)} AND p.rows > 0"
        f"{f' AND p.partition_id IN ({ids})' if ids else ''}"
        " ORDER BY p.partition_id, p.min_block_number, p.max_block_number"
    )
    return tuple(_part(row) for row in found)


def has_active_parts(connection: Connection, name: TableName, partition_id: PartitionId) -> bool:
    """Whether a partition has active parts, be they without rows.

    Raises:
        SourceError: the source cannot be read.
    """
    found = texts(
        connection,
        f"SELECT name FROM system.parts WHERE {active_parts(name)}"
        f" AND partition_id = {quote_string(str(partition_id))} LIMIT 1",
    )
    return bool(found)


def row_policies(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> tuple[str, ...] | None:
    """Return the row policies of a table, which its clone would not apply; None when hidden.

    They are hidden from a user without the grant SHOW ROW POLICIES, also in an embedded ClickHouse
    without a configuration of its own (where none can be made either), and by versions that keep
    them in configuration files only.

    Raises:
        SourceError: the source cannot be read.
    """
    if not capabilities.has(Offer.ROW_POLICIES):
        return None
    database = f"database = {quote_string(name.database)}"
    try:
        return texts(
            connection,
            f"SELECT name FROM system.row_policies WHERE {database}"
            f" AND table IN ({quote_string(name.name)}, '', '*') ORDER BY name",
        )
    except ClickHouseError as error:
        if error.code == ACCESS_DENIED:
            return None
        raise


def of_table(name: TableName, *, column: str = "table") -> str:
    """Return the condition that leaves the rows of one table in a system table."""
    return (
        f"database = {quote_string(name.database)}"
        f" AND {quote_identifier(column)} = {quote_string(name.name)}"
    )


def active_parts(name: TableName) -> str:
    """Return the condition that leaves the active parts of one table in system.parts.

    Patch parts hold updates for other parts and have partition ids of their own: they are left out.
    """
    return f"active AND {of_table(name)} AND NOT startsWith(partition_id, 'patch-')"


def _or(capabilities: Capabilities, offer: Offer, sql: str, otherwise: str) -> str:
    """Return the SQL of a column, or a text in its place where it is not there."""
    return sql if capabilities.has(offer) else quote_string(otherwise)


def _directory_sql(capabilities: Capabilities) -> str:
    if capabilities.has(Offer.DATA_PATHS):
        # `[1]` of no paths is ''.
        return "data_paths[1]"
    return _or(capabilities, Offer.DATA_PATH, "data_path", "")


def _part(row: Row) -> Part:
    return Part(
        name=text(row[0]),
        partition_id=PartitionId(text(row[1])),
        rows=whole(row[2]),
        bytes_on_disk=whole(row[3]),
        uncompressed_bytes=whole(row[4]),
        hash_of_all_files=text(row[5]),
        disk=text(row[6]),
        path=text(row[7]),
        part_type=text(row[8]),
        min_block=whole(row[9]),
        max_block=whole(row[10]),
        level=whole(row[11]),
        data_version=whole(row[12]),
        has_lightweight_delete=flag(row[13]),
    )


def _columns(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> tuple[Column, ...]:
    order = " ORDER BY position" if capabilities.has(Offer.COLUMN_POSITIONS) else ""
    found = connection.rows(
        "SELECT name, type, toString(default_kind), default_expression, comment"
        f" FROM system.columns WHERE {of_table(name)}{order}"
    )
    columns = []
    for row in found:
        column, type_text, kind, expression, comment = (text(value) for value in row)
        of = rebuild(parse_type(type_text), lambda inner: _with_value(connection, inner))
        columns.append(Column(column, of, type_text, kind, expression, comment))
    return tuple(columns)


def _with_value(connection: Connection, of: DataType) -> DataType:
    """Return a state with the type of what it comes to, which its own type does not say."""
    if not isinstance(of, AggregateFunction):
        return of
    empty = f"defaultValueOfTypeName({quote_string(render_type(of))})"
    try:
        found = one_text(connection, f"SELECT toTypeName(finalizeAggregation({empty}))")
    except ClickHouseError:
        # Not every version can make an empty state of every function; then nothing is finalized.
        return of
    return AggregateFunction(of.arguments, parse_type(found))


def _indices(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> tuple[SkipIndex, ...]:
    if not capabilities.has(Offer.SKIP_INDICES):
        return ()
    found = connection.rows(
        "SELECT name, expr, type_full, granularity FROM system.data_skipping_indices"
        f" WHERE {of_table(name)}"
    )
    return tuple(
        SkipIndex(text(row[0]), text(row[1]), text(row[2]), whole(row[3])) for row in found
    )


def _projections(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> tuple[Projection, ...]:
    if not capabilities.has(Offer.PROJECTIONS):
        return ()
    found = connection.rows(f"SELECT name, query FROM system.projections WHERE {of_table(name)}")
    return tuple(Projection(text(row[0]), text(row[1])) for row in found)


def _own_uuid(uuid: str, directory: str) -> str:
    """Return a table's UUID; chdb's `default` database hides it, the data directory has it."""
    found = _UUID_DIRECTORY.search(directory)
    return found["uuid"] if uuid == _NIL_UUID and found else uuid


def _keeper_path(
    connection: Connection, capabilities: Capabilities, name: TableName, engine: Engine
) -> tuple[str, str]:
    """Return the path of a replicated table, '' for any other, and the ensemble that has it."""
    if not engine.replicated:
        return "", MAIN_KEEPER
    keeper = _or(capabilities, Offer.KEEPER_NAMES, "zookeeper_name", MAIN_KEEPER)
    found = connection.rows(
        f"SELECT zookeeper_path, {keeper} FROM system.replicas WHERE {of_table(name)}"
    )
    return (text(found[0][0]), text(found[0][1])) if found else ("", MAIN_KEEPER)


def _identity(capabilities: Capabilities, name: TableName, uuid: str, directory: str) -> str:
    """Return what tells a table without a Keeper from others, whatever they are called."""
    if uuid not in ("", _NIL_UUID):
        return f"uuid:{uuid}"
    server = capabilities.server_uuid
    if not server:
        # An old server has no identity of its own. Several may run on one host.
        return f"host:{capabilities.host_name}:{directory}:{name}"
    # Nor has an embedded ClickHouse: its directory stands for it.
    where = f"server:{server}" if server != _NIL_UUID else f"directory:{directory}"
    return f"{where}:{name}"

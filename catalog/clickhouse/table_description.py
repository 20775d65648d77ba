"""Reads the definition, parts and partitions of a MergeTree table from the system tables.

- The clauses come from `engine_full`, because `sorting_key` hides DESC and shows columns that a
  clone must not have.
- `node_of` reads the Keeper node that identifies a replicated table (`table.KeeperNode`). Of the
  nodes that ClickHouse creates with the path it takes the parent of the replicas: every version
  from 18.16 on has it, no later change of the table touches it, and it has few siblings.
- `written_table` resolves a materialized view to its target: the table after TO, else
  `.inner_id.UUID` of a view with a UUID, else `.inner.NAME`.
- `object_table` reads location and partitioning of a table over objects. It never shows the
  engine arguments, because an access key is not masked there. Hive partitioning is declared so:

    S3, GCS           partition_strategy = 'hive', by name
    AzureBlobStorage  'hive' by position, after (connection or address, container, path,
                      [account, key,] format, compression)
    HDFS              has no strategy: a pattern `hdfs://host:port/dir/**/*.parquet` and
                      PARTITION BY
- `with_missing_columns` finds the stored columns that parts lack. ClickHouse lists the columns of
  parts slowly: half a second for a thousand parts, and always for the whole table. A part's missing
  columns change only with the columns of the table. So each connection looks up each part once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

from catalog.clickhouse.capabilities import Capabilities, Offer
from catalog.clickhouse.connection import (
    ClickHouseError,
    Connection,
    Row,
    flag,
    one_text,
    text,
    texts,
    ttl_columns,
    whole,
)
from catalog.clickhouse.snapshot.comparison import named_sizes_sql
from catalog.network import some
from tableformat.clickhouse_codes import (
    ACCESS_DENIED,
    KEEPER_EXCEPTION,
    NO_ZOOKEEPER,
    NOT_IMPLEMENTED,
    UNKNOWN_DATABASE,
    UNKNOWN_IDENTIFIER,
    UNKNOWN_TABLE,
)
from tableformat.errors import NotFoundError, UnsupportedError, UsageError
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.mergetree.table import (
    Column,
    Engine,
    KeeperNode,
    KeeperUnavailable,
    MergeTreeTable,
    Part,
    PartitionSummary,
    Projection,
    SkipIndex,
)
from tableformat.mergetree.types import (
    AggregateFunction,
    DataType,
    parse_type,
    rebuild,
    render_type,
)
from tableformat.names import (
    PartitionId,
    TableName,
    quote_identifier,
    quote_string,
    split_identifiers,
)

__all__ = [
    "MAIN_KEEPER",
    "ObjectTable",
    "ViewError",
    "active_parts",
    "describe",
    "engine_of",
    "has_active_parts",
    "list_partitions",
    "list_parts",
    "node_of",
    "not_found",
    "not_merge_tree",
    "object_table",
    "of_table",
    "row_policies",
    "with_missing_columns",
    "written_table",
]

MAIN_KEEPER: Final = "default"
"""The name of the main ensemble; others are auxiliary."""


def node_of(
    connection: Connection, path: str, keeper: str
) -> KeeperNode | KeeperUnavailable | None:
    """Return the Keeper node of a table; None if the server has no such ensemble.

    Args:
        connection: to a server.
        path: the table's path in Keeper.
        keeper: the name of the ensemble with the path.

    Raises:
        SourceError: the server cannot be read, or its user may not read `system.zookeeper`.
    """
    # Versions that cannot read auxiliary ensembles do not have the column.
    of_keeper = "" if keeper == MAIN_KEEPER else f" AND zookeeperName = {quote_string(keeper)}"
    try:
        found = connection.rows(
            "SELECT czxid, toUnixTimestamp(ctime) FROM system.zookeeper"
            f" WHERE path = {quote_string(path)} AND name = 'replicas'{of_keeper}"
        )
    except ClickHouseError as error:
        if error.code in (UNKNOWN_TABLE, NO_ZOOKEEPER):
            return None
        if of_keeper and error.code == UNKNOWN_IDENTIFIER:
            return None
        if error.code == KEEPER_EXCEPTION:
            return KeeperUnavailable(error.reason)
        raise
    if not found:
        return KeeperUnavailable(f"it has no node {path}/replicas")
    ((czxid, created),) = found
    return KeeperNode(whole(czxid), whole(created) * 1000)


_WORD: Final = r"(?:`(?:[^`\\]|\\.|``)+`|\w+)"
_NAME: Final = rf"{_WORD}(?:\.{_WORD})?"
# Other clauses before TO, such as a schedule, have no parentheses and no quoted name.
_TO: Final = re.compile(
    rf"\ACREATE MATERIALIZED VIEW {_NAME}(?: [^(`]*?)?? TO (?P<to>{_NAME})(?=[ (]|\Z)"
)


class ViewError(UnsupportedError):
    """The name is that of a view, which has no parts; `target` is its target table, if known."""

    def __init__(self, message: str, *, code: int | None, target: TableName | None) -> None:
        """Keep the target."""
        super().__init__(message, code=code)
        self.target = target


def written_table(
    connection: Connection, view: TableName, statement: str, uuid: str
) -> TableName | None:
    """Return the table that a materialized view writes to, None if it is unknown.

    Args:
        connection: the source.
        view: the view's name.
        statement: its `create_table_query`.
        uuid: the view's UUID, '' if it has none.

    Raises:
        SourceError: the source cannot be read.
    """
    found = _TO.match(statement)
    if found is not None:
        *database, table = split_identifiers(found["to"])
        return TableName(database[0] if database else view.database, table)
    names = ", ".join(quote_string(one) for one in (f".inner_id.{uuid}", f".inner.{view.name}"))
    inner = texts(
        connection,
        "SELECT name FROM system.tables"
        f" WHERE database = {quote_string(view.database)} AND name IN ({names})",
    )
    return TableName(view.database, inner[0]) if inner else None


def not_found(connection: Connection, name: TableName) -> NotFoundError:
    """Return the error for a table that does not exist, with the most similar names.

    Raises:
        SourceError: the source cannot be read.
    """
    databases = texts(connection, "SELECT name FROM system.databases ORDER BY name")
    if name.database not in databases:
        near = _near(name.database, databases)
        message = (
            f"Cannot find the table {name}: there is no database {name.database!r}."
            f"{_nearest(near, databases)}"
        )
        similar = str(TableName(near[0], name.name)) if len(near) == 1 else ""
        return NotFoundError(message, code=UNKNOWN_DATABASE, named=str(name), similar=similar)
    tables = texts(
        connection,
        "SELECT name FROM system.tables"
        f" WHERE database = {quote_string(name.database)} ORDER BY name",
    )
    near = _near(name.name, tables)
    message = (
        f"Cannot find the table {name}: the database {name.database!r} has no such table."
        f"{_nearest(near, tables)}"
    )
    similar = str(TableName(name.database, near[0])) if len(near) == 1 else ""
    return NotFoundError(message, code=UNKNOWN_TABLE, named=str(name), similar=similar)


def _near(wanted: str, names: tuple[str, ...]) -> list[str]:
    return difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)


def _nearest(near: list[str], names: tuple[str, ...]) -> str:
    if near:
        return f" Did you mean {' or '.join(near)}?"
    return f" It holds: {some(names, most=10)}." if names else " There is nothing in it."


def not_merge_tree(name: TableName, kind: str, target: TableName | None) -> UnsupportedError:
    """Return the refusal of a table of another engine; `target` is the target table of a view."""
    remedy = (
        f"Name the table that it writes to{f', {target}' if target else ''}."
        if kind in ("MaterializedView", "Distributed", "Buffer")
        else "Copy the rows into a MergeTree table first (INSERT INTO ... SELECT)."
    )
    message = (
        f"Cannot read partitions of {name}: its engine is {kind}, and only tables of the "
        f"MergeTree family have partitions and parts. {remedy}"
    )
    if kind == "MaterializedView":
        return ViewError(message, code=NOT_IMPLEMENTED, target=target)
    return UnsupportedError(message, code=NOT_IMPLEMENTED)


_NIL_UUID: Final = "00000000-0000-0000-0000-000000000000"
_UUID_DIRECTORY: Final = re.compile(r"/store/[0-9a-f]{3}/(?P<uuid>[0-9a-f-]{36})/?\Z")


def describe(connection: Connection, capabilities: Capabilities, name: TableName) -> MergeTreeTable:
    """Return the current definition of a table.

    Raises:
        NotFoundError: no such database or table; the error has the most similar names.
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
        server="" if path else capabilities.server_uuid.removeprefix(_NIL_UUID),
    )


def engine_of(connection: Connection, name: TableName) -> str | None:
    """Return the engine of any table or view, None if it does not exist.

    Raises:
        SourceError: the source cannot be read.
    """
    found = texts(
        connection, f"SELECT engine FROM system.tables WHERE {of_table(name, column='name')}"
    )
    return found[0] if found else None


def list_partitions(connection: Connection, name: TableName) -> tuple[PartitionSummary, ...]:
    """Return the partitions with active parts, sorted by id, without patch parts.

    `source.with_times` adds their times.

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
    """Return the active parts with rows of some partitions, or of all if none is given.

    A patch part changes the parts of its partition whose data version is less than its last block.

    `disk` of a part is the root directory of its disk, '' if the server does not show it. Without
    hashes, `hash_of_all_files` is the text of `named_sizes_sql`.

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
        f" FROM system.parts AS p{join} WHERE active AND {of_table(name)} AND p.rows > 0"
        f"{f' AND (p.partition_id IN ({ids}) OR {_IS_PATCH})' if ids else ''}"
        " ORDER BY p.partition_id, p.min_block_number, p.max_block_number"
    )
    listed = [_part(row) for row in found]
    patches = [part for part in listed if _PATCH.match(str(part.partition_id))]
    return tuple(_patched(part, patches) for part in listed if part not in patches)


def _patched(part: Part, patches: Iterable[Part]) -> Part:
    """Return a part with the patch parts that are not written into it."""
    later = (one for one in patches if part.data_version < one.max_block)
    of = str(part.partition_id)
    found = tuple(one.name for one in later if _PATCH.sub("", str(one.partition_id)) == of)
    return replace(part, patches=found) if found else part


def has_active_parts(connection: Connection, name: TableName, partition_id: PartitionId) -> bool:
    """Whether a partition has active parts, with or without rows.

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
    """Return the row policies of a table, which its clone would not apply; None if hidden.

    They are hidden from a user without the grant SHOW ROW POLICIES, in an embedded ClickHouse
    without a configuration (where none can be created), and in versions that have them only in
    configuration files.

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
    """Return the WHERE condition that selects one table in a system table."""
    return (
        f"database = {quote_string(name.database)}"
        f" AND {quote_identifier(column)} = {quote_string(name.name)}"
    )


_IS_PATCH: Final = "startsWith(p.partition_id, 'patch-')"
_PATCH: Final = re.compile(r"\Apatch-[0-9a-f]{32}-")
"""What the id of a patch part has before the id of the partition that it changes."""


def active_parts(name: TableName) -> str:
    """Return the WHERE condition that selects the active parts of one table in system.parts.

    Patch parts, which hold updates of other parts under partition ids of their own, are left out.
    """
    return f"active AND {of_table(name)} AND NOT startsWith(partition_id, 'patch-')"


def _or(capabilities: Capabilities, offer: Offer, sql: str, otherwise: str) -> str:
    """Return the SQL of a column, or a text as its value if the version lacks the column."""
    return sql if capabilities.has(offer) else quote_string(otherwise)


def _directory_sql(capabilities: Capabilities) -> str:
    if capabilities.has(Offer.DATA_PATHS):
        # `[1]` of an empty array is ''.
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
    """Return the type of an aggregate state with its result type, which its name does not show."""
    if not isinstance(of, AggregateFunction):
        return of
    empty = f"defaultValueOfTypeName({quote_string(render_type(of))})"
    try:
        found = one_text(connection, f"SELECT toTypeName(finalizeAggregation({empty}))")
    except ClickHouseError:
        # Not every version can create an empty state of every function.
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
    """Return a table's UUID; chdb's `default` database hides it, but the data directory has it."""
    found = _UUID_DIRECTORY.search(directory)
    return found["uuid"] if uuid == _NIL_UUID and found else uuid


def _keeper_path(
    connection: Connection, capabilities: Capabilities, name: TableName, engine: Engine
) -> tuple[str, str]:
    """Return the Keeper path of a replicated table, '' for any other, and its ensemble."""
    if not engine.replicated:
        return "", MAIN_KEEPER
    keeper = _or(capabilities, Offer.KEEPER_NAMES, "zookeeper_name", MAIN_KEEPER)
    found = connection.rows(
        f"SELECT zookeeper_path, {keeper} FROM system.replicas WHERE {of_table(name)}"
    )
    return (text(found[0][0]), text(found[0][1])) if found else ("", MAIN_KEEPER)


def _identity(capabilities: Capabilities, name: TableName, uuid: str, directory: str) -> str:
    """Return a text that identifies a table without Keeper; a UUID survives renames."""
    if uuid not in ("", _NIL_UUID):
        return f"uuid:{uuid}"
    server = capabilities.server_uuid
    if not server:
        # An old server has no identity. Several may run on one host.
        return f"host:{capabilities.host_name}:{directory}:{name}"
    # An embedded ClickHouse has none either: its data directory identifies it.
    where = f"server:{server}" if server != _NIL_UUID else f"directory:{directory}"
    return f"{where}:{name}"


_HIVE: Final = "hive"
_AZURE: Final = "AzureBlobStorage"
_HDFS: Final = "HDFS"
_BELOW: Final = ("/**/*.parquet", "/**.parquet")
_PLACE: Final = 3
"""The number of first arguments of AzureBlobStorage with its location."""


@dataclass(frozen=True, slots=True)
class ObjectTable:
    """A table over object storage; `address` is '' if a named collection has it.

    In Azure `address` is a connection string or the URL of an account, and `container` and `path`
    are set; in HDFS it is the URL of the directory. `is_hive`: its rows are in directories
    `column=value`.
    """

    engine: str
    address: str
    container: str
    path: str
    format: str
    is_hive: bool
    partition_by: str
    columns: tuple[str, ...]


def object_table(connection: Connection, name: TableName) -> ObjectTable | None:
    """Return a table over object storage, None if it does not exist or has another engine.

    Raises:
        SourceError: the source cannot be read.
    """
    found = connection.rows(
        f"SELECT engine_full FROM system.tables WHERE {of_table(name, column='name')}"
    )
    if not found:
        return None
    try:
        engine = parse_engine(text(found[0][0]))
        whole = parse_expression(f"tuple({engine.arguments})")
    except (UsageError, UnsupportedError):
        # The arguments of these engines are always literals or functions of literals.
        return None
    given = whole.arguments if isinstance(whole, Call) else ()
    placed = _placed(engine.name, _texts(given), _options(given), divided=bool(engine.partition_by))
    columns = texts(connection, f"SELECT name FROM system.columns WHERE {of_table(name)}")
    return ObjectTable(engine.name, *placed, engine.partition_by, columns)


def _placed(
    engine: str, given: tuple[str, ...], options: Mapping[str, str], *, divided: bool
) -> tuple[str, str, str, str, bool]:
    """Return address, container, path, format, and whether the table is over Hive directories."""
    first = given[0] if given else ""
    if engine == _AZURE and len(given) >= _PLACE:
        address, container, path, *rest = given
        # It follows the format and the compression.
        at = next((n for n, one in enumerate(rest) if n > 1 and one.lower() == _HIVE), None)
        return address, container, path, "" if at is None else rest[at - 2], at is not None
    if engine == _HDFS:
        below = next((first.removesuffix(end) for end in _BELOW if first.endswith(end)), "")
        return below, "", "", given[1] if len(given) > 1 else "", bool(below) and divided
    is_hive = options.get("partition_strategy", "").lower() == _HIVE
    return first, "", "", options.get("format", ""), is_hive


def _texts(given: tuple[Expression, ...]) -> tuple[str, ...]:
    """Return the positional arguments as texts, '' for any other."""
    unnamed = (one for one in given if not (isinstance(one, Call) and one.function == "equals"))
    return tuple(
        one.value if isinstance(one, Literal) and isinstance(one.value, str) else ""
        for one in unnamed
    )


def _options(given: tuple[Expression, ...]) -> Mapping[str, str]:
    """Return the named arguments as texts."""
    found = {}
    for one in given:
        match one:
            case Call("equals", (ColumnName(name), Literal(str(value)))):
                found[name] = value
            case _:
                pass
    return found


_NAMED: Final = 1000
"""Number of part names in one query."""


@dataclass(frozen=True, slots=True)
class _MissingColumns:
    """The missing columns of a table's parts, by part name, for its stored columns.

    `contents` distinguishes parts from those of an earlier table of the same name.
    """

    columns: tuple[str, ...]
    lacks: Mapping[str, tuple[str, ...]]
    contents: dict[str, str] = field(default_factory=dict)

    def knows(self, parts: Iterable[Part]) -> bool:
        """Whether each of the parts was looked up."""
        return all(
            p.name in self.lacks
            and self.contents.setdefault(p.name, p.hash_of_all_files) == p.hash_of_all_files
            for p in parts
        )


_BY_CONNECTION: Final[WeakKeyDictionary[Connection, dict[TableName, _MissingColumns]]] = (
    WeakKeyDictionary()
)


def with_missing_columns(
    connection: Connection, name: TableName, parts: tuple[Part, ...]
) -> tuple[Part, ...]:
    """Return active parts of a table with the stored columns that they lack.

    Raises:
        SourceError: the source cannot be read.
    """
    if not parts:
        return ()
    stored = (
        f"SELECT name FROM system.columns WHERE {of_table(name)}"
        " AND toString(default_kind) NOT IN ('ALIAS', 'EPHEMERAL')"
    )
    columns = texts(connection, stored)
    by_table = _BY_CONNECTION.setdefault(connection, {})
    missing = by_table.get(name)
    if missing is None or missing.columns != columns or not missing.knows(parts):
        missing = by_table[name] = _look(connection, name, columns)
        missing.knows(parts)
    # A part that no longer exists was merged or dropped; the caller notices it.
    return tuple(replace(p, lacks=missing.lacks.get(p.name, ())) for p in parts)


def _look(connection: Connection, name: TableName, columns: tuple[str, ...]) -> _MissingColumns:
    held = f"FROM system.parts_columns WHERE active AND {of_table(name)}"
    stored = ", ".join(quote_string(column) for column in columns)
    counts = connection.rows(
        f"SELECT name, countIf(column IN ({stored or quote_string('')})) {held} GROUP BY name"
    )
    has = {text(row[0]): set[str]() for row in counts if whole(row[1]) < len(columns)}
    lacking = sorted(has)
    for begin in range(0, len(lacking), _NAMED):
        names = ", ".join(quote_string(one) for one in lacking[begin : begin + _NAMED])
        for row in connection.rows(f"SELECT name, column {held} AND name IN ({names})"):
            has[text(row[0])].add(text(row[1]))
    found: dict[str, tuple[str, ...]] = {text(row[0]): () for row in counts}
    for part, names_held in has.items():
        found[part] = tuple(c for c in columns if c not in names_held)
    return _MissingColumns(columns, found)

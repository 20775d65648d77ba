"""Computes partition ids of values and of data file rows with our own empty ClickHouse.

Hashes, time zones, conversions of literals and functions of a partition key keep ClickHouse's
own meaning. No source server is needed: a lake table stores its source's partition key
(`tableformat.iceberg.properties`). The ClickHouse is removed afterwards.

- `partition_id_of` inserts the members of a literal, as ALTER ... PARTITION takes it, and reads
  the partition id. Messages about a literal that names no partition are the same as in
  `catalog/clickhouse/source.py`.
- `RowPartitions` implements `tableformat.operations.partition_files.RowPartitions`. It inserts
  the distinct values of the key columns of a data file, in the source's types, and reads their
  partitions.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, DateType, IntegerType, LongType, StringType

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, text, texts
from catalog.clickhouse.embedded import LEAST_SECONDS, OwnClickHouse
from catalog.clickhouse.rows.files import ROW_NUMBER, numbered
from catalog.processes import Closing
from catalog.storages.schemes import Storages
from tableformat.clickhouse_codes import (
    NO_SUCH_COLUMN_IN_TABLE,
    NOT_IMPLEMENTED,
    SUPPORT_IS_DISABLED,
    SYNTAX_ERROR,
    UNKNOWN_IDENTIFIER,
)
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import (
    Advice,
    DestinationError,
    NotFoundError,
    RefusedError,
    UnsupportedError,
    UsageError,
)
from tableformat.iceberg.arrow_schema import file_schema
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.read_columns import FileColumn, file_columns, with_mapped_ids
from tableformat.iceberg.snapshot import table_of
from tableformat.mergetree.compatibility import key_columns
from tableformat.mergetree.definition_sql import (
    evaluated_columns,
    evaluated_engine,
    evaluated_key,
    evaluated_zone,
)
from tableformat.mergetree.digest_sql import source_columns
from tableformat.mergetree.expression import Call, Expression, Literal, render_expression
from tableformat.mergetree.expression_parser import parse_expression, parse_partition_key
from tableformat.mergetree.missing_columns import column_list
from tableformat.mergetree.partition_literal import (
    All,
    ById,
    ByValue,
    parse_partition_literal,
    render_partition_literal,
)
from tableformat.mergetree.table import Column, Engine, MergeTreeTable
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    LowCardinality,
    Nullable,
    Simple,
    SimpleAggregateFunction,
    Tuple,
    parse_type,
    render_type,
)
from tableformat.messages import Command, Option
from tableformat.names import PartitionId, quote_identifier, quote_string

__all__ = [
    "KeyTables",
    "RowPartitions",
    "all_partitions_error",
    "key_types",
    "no_such_partition",
    "partition_id_of",
    "unresolved",
]

_UNPARTITIONED: Final = PartitionId("all")
_KEY: Final = "default.key"
_VALUE: Final = "default.value"
_PLAIN: Final = "MergeTree"
# Engines whose arguments are columns that statements cannot set.
_BY_COLUMNS: Final = (
    "ReplacingMergeTree",
    "CollapsingMergeTree",
    "VersionedCollapsingMergeTree",
)
# For a key without columns.
_ANY: Final = Column("none", Simple("UInt8"), "UInt8")
# The same, for engines whose merges compute values.
_BY_VALUES: Final = ("SummingMergeTree", "AggregatingMergeTree", "CoalescingMergeTree")
# Settings that existing tables may need; none changes rows.
_KEY_SETTINGS: Final = (
    "allow_nullable_key",
    "allow_floating_point_partition_key",
    "allow_summing_columns_in_partition_or_order_key",
    "allow_coalescing_columns_in_partition_or_order_key",
    "allow_dimensions_outside_sorting_key",
)
_PLAIN_VALUES: Final = (BooleanType, DateType, IntegerType, LongType, StringType)
"""Types whose partition values are written as they are."""
# It stops background merges; OPTIMIZE FINAL still merges all rows at once.
_UNMERGED: Final = "max_bytes_to_merge_at_max_space_in_pool = 1"


def partition_id_of(table: MergeTreeTable, expression: str) -> PartitionId:
    """Return the id of the partition that an expression names, whether it exists or not.

    Args:
        table: as its source describes it, or as a lake table stores it.
        expression: the text after PARTITION: `202401`, `('x', 3)`, `ID '202401'`.

    Raises:
        UsageError: the expression is not made of literals, does not fit the partition key
            (ClickHouse's code and text), or names all partitions.
        SourceError: the embedded ClickHouse cannot run.
    """
    match parse_partition_literal(expression):
        case All():
            raise all_partitions_error(table, expression)
        case ById(one):
            return one
        case ByValue() as literal:
            with OwnClickHouse("value", seconds=LEAST_SECONDS) as connection:
                return _Scratch(connection, table, expression).id_of(literal)
        case unexpected:
            assert_never(unexpected)


def all_partitions_error(table: MergeTreeTable, expression: str) -> UsageError:
    """Return the error for ALL where one partition must be named."""
    return UsageError(
        f"Cannot find the partition {expression} of {table.name}: it means all partitions. Use "
        f"{Option.ALL}."
    )


def no_such_partition(table: MergeTreeTable, expression: str) -> NotFoundError:
    """Return the error for a value that no active part has."""
    return NotFoundError(
        f"Cannot find the partition {expression} of {table.name}: no active part has that "
        f"value. List the partitions with {Command.PARTITIONS}.",
        advice=frozenset({Advice.LIST_PARTITIONS}),
    )


def unresolved(table: MergeTreeTable, expression: str, error: ClickHouseError) -> UsageError:
    """Return the error for a value that does not fit the partition key."""
    what = f"Cannot find the partition {expression} of {table.name}"
    if error.code == SUPPORT_IS_DISABLED:
        message = (
            f"{what}: lightweight updates have not been written into its parts yet. "
            f"Run ALTER TABLE {table.name.sql} APPLY PATCHES IN PARTITION {expression} "
            "SETTINGS mutations_sync = 2, or name the partition by its id."
        )
        return RefusedError(message, code=error.code)
    # The user did not write the statement, so a position in it would not help.
    reason = "it is not a value" if error.code == SYNTAX_ERROR else error.reason.rstrip(".")
    message = (
        f"{what}: {reason}. The partition key is {table.engine.partition_by or 'tuple()'}; "
        f"name a partition as {Command.PARTITIONS} shows it."
    )
    return UsageError(message, code=error.code)


def key_types(connection: Connection, table: MergeTreeTable) -> tuple[DataType, ...]:
    """Return the types of the members of a table's partition key, in order.

    Raises:
        UnsupportedError: this ClickHouse does not show the value of a partition (code 48).
        SourceError: the source cannot be read.
    """
    try:
        return _member_types(connection, table.name.sql)
    except ClickHouseError as error:
        if error.code not in (UNKNOWN_IDENTIFIER, NO_SUCH_COLUMN_IN_TABLE):
            raise
        message = (
            f"Cannot name directories by the partition key of {table.name}: this ClickHouse, "
            f"{table.server_version}, does not show the values of a partition's key "
            "(_partition_value). Export the table to an Iceberg table."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED) from error


def _member_types(connection: Connection, table: str) -> tuple[DataType, ...]:
    ((_, of_value, *_),) = connection.rows(f"DESCRIBE TABLE (SELECT _partition_value FROM {table})")
    of = parse_type(text(of_value))
    return tuple(member for _, member in of.elements) if isinstance(of, Tuple) else (of,)


class KeyTables:
    """Creates tables with the partition key of an absent table, in our own ClickHouse.

    Stored definitions become SQL only through `definition_sql`.
    """

    def __init__(self, connection: Connection, table: MergeTreeTable) -> None:
        """Apply the settings that such tables need.

        Args:
            connection: to our own ClickHouse.
            table: the absent table.
        """
        self._connection, self._table = connection, table
        capabilities = probe_capabilities(connection)
        allowed = [name for name in _KEY_SETTINGS if name in capabilities.table_settings]
        self._settings = ", ".join(f"{name} = 1" for name in allowed)
        # A DateTime without a zone gets the session's zone when its table is created.
        zone = f"session_timezone = {quote_string(evaluated_zone(table.server_zone) or 'UTC')}"
        permissions = (f"{name} = {value}" for name, value in capabilities.permissions)
        connection.command(f"SET {', '.join((zone, *permissions))}")

    def make(self, name: str, columns: tuple[Column, ...], key: str) -> None:
        """Create a table, partitioned by `key` if it is not ''.

        Raises:
            RefusedError: the key or a default reads more than its row.
        """
        by = f" PARTITION BY {evaluated_key(key)}" if key else ""
        settings = f" SETTINGS {self._settings}" if self._settings else ""
        listed = column_list(evaluated_columns(columns))
        self._connection.command(
            f"CREATE TABLE {name} ({listed}) ENGINE = MergeTree{by} ORDER BY tuple(){settings}"
        )

    def make_as_is(self, name: str, columns: tuple[Column, ...]) -> None:
        """Create the absent table, without its replication, storage and TTL.

        The caller chooses the columns and their defaults. The columns by which the engine collapses
        or replaces rows are keys, too, so the engine is kept for them.

        Raises:
            RefusedError: a key or a default reads more than its row.
        """
        engine = self._table.engine
        kind = _text(engine) if engine.family in _BY_COLUMNS else _PLAIN
        self._make(name, columns, kind, self._settings)

    def make_merging(self, name: str, columns: tuple[Column, ...], *, merges: bool) -> None:
        """Create a similar table for the rows of a merge, without background merges.

        Unless it `merges` rows, it keeps all of them.

        Raises:
            RefusedError: a key reads more than its row.
        """
        engine = self._table.engine
        known = merges and engine.family in (*_BY_COLUMNS, *_BY_VALUES)
        settings = ", ".join(part for part in (self._settings, _UNMERGED) if part)
        self._make(name, columns, _text(engine) if known else _PLAIN, settings)

    def _make(self, name: str, columns: tuple[Column, ...], kind: str, settings: str) -> None:
        engine = evaluated_engine(self._table.engine)
        clauses = (
            ("PARTITION BY", engine.partition_by),
            ("PRIMARY KEY", engine.primary_key),
            ("ORDER BY", engine.order_by or "tuple()"),
            ("SETTINGS", settings),
        )
        text = " ".join(f"{words} {value}" for words, value in clauses if value)
        listed = column_list(evaluated_columns(columns))
        self._connection.command(f"CREATE TABLE {name} ({listed}) ENGINE = {kind} {text}")


def _text(engine: Engine) -> str:
    """Return an engine with its arguments, without replication."""
    given = parse_expression(f"tuple({engine.arguments})")
    arguments = given.arguments if isinstance(given, Call) else ()
    if engine.replicated:
        arguments = tuple(a for a in arguments if not isinstance(a, Literal))
    return f"{engine.family}({', '.join(render_expression(a) for a in arguments)})"


class _Scratch:
    """An empty table with the partition key, and one with a single row of the value."""

    def __init__(self, connection: Connection, table: MergeTreeTable, expression: str) -> None:
        self._connection = connection
        self._table = table
        self._expression = expression
        self._tables = KeyTables(connection, table)

    def id_of(self, literal: ByValue) -> PartitionId:
        sql = render_partition_literal(literal)
        key = self._table.engine.partition_by
        self._tables.make(_KEY, key_columns(self._table) or (_ANY,), key)
        try:
            # The table is empty; ClickHouse checks the value before it looks for the partition.
            self._connection.command(f"ALTER TABLE {_KEY} DROP PARTITION {sql}")
        except ClickHouseError as error:
            raise unresolved(self._table, self._expression, error) from error
        if not parse_partition_key(key):
            return _UNPARTITIONED
        members = self._members()
        names = [quote_identifier(m.name) for m in members]
        self._tables.make(
            _VALUE, members, f"tuple({', '.join(names)})" if len(names) > 1 else names[0]
        )
        found = self._proved(_values(literal.value, members), sql)
        if found is not None:
            return found
        message = (
            f"Cannot find the partition {self._expression} of {self._table.name}: only the source "
            f"can convert it to a value of the partition key {key}. Name the partition by its id, "
            "for example ID '202401'."
        )
        raise UsageError(message)

    def _members(self) -> tuple[Column, ...]:
        """Return the members of the key with their types, as columns."""
        types = _member_types(self._connection, _KEY)
        return tuple(Column(f"c{i}", one, render_type(one)) for i, one in enumerate(types))

    def _proved(self, values: str, sql: str) -> PartitionId | None:
        """Return the id of a row with these values, if the literal drops exactly that row.

        If ClickHouse converts the literal to another value than CAST does, it drops nothing.
        """
        parts = "SELECT partition_id FROM system.parts WHERE active AND table = 'value'"
        try:
            self._connection.command(f"INSERT INTO {_VALUE} SELECT {values}")
        except ClickHouseError:
            return None
        (found,) = texts(self._connection, parts)
        self._connection.command(f"ALTER TABLE {_VALUE} DROP PARTITION {sql}")
        return None if texts(self._connection, f"{parts} AND rows > 0") else PartitionId(found)


def _values(value: Expression, members: tuple[Column, ...]) -> str:
    """Return the SELECT list of the literal's members, cast to the key's types."""
    match value:
        case Call("tuple", given) if len(given) == len(members):
            pass
        case _ if len(members) > 1:
            # A CAST to a tuple.
            given = tuple(
                Call("tupleElement", (value, Literal(at + 1))) for at in range(len(members))
            )
        case _:
            given = (value,)
    return ", ".join(
        f"CAST({render_expression(one)} AS {member.type_text})"
        for one, member in zip(given, members, strict=True)
    )


_TABLE: Final = "default.rows"
_NUMBERED: Final = "default.numbered"
_ALL: Final = frozenset({PartitionId("all")})
_MICROSECONDS: Final = DateTime64(6, "UTC")
_SETTINGS: Final = "max_partitions_per_insert_block = 0, input_format_null_as_default = 0"


class RowPartitions(Closing):
    """Implements `tableformat.operations.partition_files.RowPartitions`.

    The first file starts the ClickHouse; `close`, or leaving the context, ends it.
    """

    def __init__(self, source: RememberedSource, storages: Storages) -> None:
        """Keep the storages of locations; nothing is started yet."""
        self._source = source
        self._storages = storages
        self._key = key_columns(source.table)
        self._held: OwnClickHouse | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that the key reads."""
        return tuple(column.name for column in self._key)

    def check(self, state: LakeTableState) -> None:
        """Refuse a table without all columns that the key reads.

        Raises:
            RefusedError: one was renamed or dropped.
        """
        table = table_of(state)
        existing = {field.name for field in table.schema().fields}
        lacking = ", ".join(name for name in self.columns if name not in existing)
        if lacking:
            message = (
                f"Cannot tell to which partition of {'.'.join(table.name())} rows belong: it no "
                f"longer has the column {lacking}, which its partition key reads. Rename it back."
            )
            raise RefusedError(message)

    def close(self) -> None:
        """End the ClickHouse, if it runs. Closing again does nothing."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def ids(self, file: BranchFile, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions of a data file's rows, deleted ones included.

        The file is not opened if its partition values show them: then all its rows have the same
        values in the columns of the key.

        Raises:
            RefusedError: the table lacks a column that the key reads.
            DestinationError: the file cannot be read, or lacks a column of the key.
            UnsupportedError: its storage is not supported.
        """
        if not self._key:
            return _ALL
        self.check(state)
        scratch = self._opened().directory
        values = _key_of_rows(file, state, self.columns)
        if values is not None:
            path = scratch / f"values-{uuid.uuid4().hex}.parquet"
            pq.write_table(values, path)
        else:
            path = self._storages(file.path).fetch(file.path, scratch)
        try:
            return self.ids_in(path, state)
        except OSError as error:
            raise _unknown(file.path, str(error)) from error
        finally:
            if path.parent == scratch:
                path.unlink(missing_ok=True)

    def ids_in(self, path: Path, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions of a local file's rows.

        Raises:
            OSError: it cannot be read, lacks a column of the key, or has an invalid value.
        """
        if not self._key:
            return _ALL
        try:
            return self._distinct_ids(path, state)
        except (pa.ArrowException, ClickHouseError) as error:
            reason = error.reason if isinstance(error, ClickHouseError) else str(error)
            raise OSError(reason) from error

    def numbers_in(self, path: Path, wanted: PartitionId, state: LakeTableState) -> pa.Array:
        """Return the numbers of a local file's rows that belong to a partition.

        Args:
            path: a file of the key's columns, at least one, and `files.ROW_NUMBER`.
            wanted: the partition.
            state: of the table, whose field ids the columns have.

        Raises:
            OSError: it cannot be read, lacks a column of the key, has an invalid value, or a row
                got no partition.
        """
        clickhouse = self._opened()
        found = clickhouse.directory / f"numbers-{uuid.uuid4().hex}.parquet"
        try:
            self._insert(path, state, _NUMBERED, (ROW_NUMBER,))
            (stored,) = texts(clickhouse, f"SELECT toString(count()) FROM {_NUMBERED}")
            if (rows := pq.read_metadata(path).num_rows) != int(stored):
                message = f"{int(stored):,} of {rows:,} rows got a partition"
                raise OSError(message)
            clickhouse.command(
                f"INSERT INTO FUNCTION file({quote_string(str(found))}, Parquet)"
                f" SELECT {ROW_NUMBER} FROM {_NUMBERED}"
                f" WHERE _partition_id = {quote_string(str(wanted))} ORDER BY {ROW_NUMBER}"
            )
            return pq.read_table(found).column(ROW_NUMBER).combine_chunks().cast(pa.int64())
        except (pa.ArrowException, ClickHouseError) as error:
            reason = error.reason if isinstance(error, ClickHouseError) else str(error)
            raise OSError(reason) from error
        finally:
            found.unlink(missing_ok=True)

    def _opened(self) -> OwnClickHouse:
        if self._held is None:
            self._held = OwnClickHouse("partitions", seconds=LEAST_SECONDS)
            source = self._source.table
            tables, key = KeyTables(self._held, source), source.engine.partition_by
            tables.make(_TABLE, self._key, key)
            if self._key:
                tables.make(_NUMBERED, (*self._key, *numbered(ROW_NUMBER)), key)
        return self._held

    def _distinct_ids(self, path: Path, state: LakeTableState) -> frozenset[PartitionId]:
        self._insert(path, state, _TABLE)
        found = texts(self._opened(), f"SELECT DISTINCT _partition_id FROM {_TABLE}")
        return frozenset(PartitionId(one) for one in found)

    def _insert(
        self, path: Path, state: LakeTableState, into: str, more: tuple[str, ...] = ()
    ) -> None:
        """Fill a table with the distinct values of the key's columns, and of numbers.

        Raises:
            OSError: the file lacks a column of the key.
            pa.ArrowException: it cannot be read.
            ClickHouseError: it cannot be read, or a value is invalid.
        """
        clickhouse = self._opened()
        clickhouse.allow(pq.read_metadata(path).num_rows, path.stat().st_size)
        wanted = source_columns(self._key, self._source.conversions)
        table = table_of(state)
        mapping = table.name_mapping()
        mapped = mapping.root if mapping is not None else ()
        written = with_mapped_ids(pq.read_schema(path), mapped)
        read_as = file_columns(wanted, table.schema(), written)
        lacking = ", ".join(column.name for column in read_as if column.written is None)
        if lacking:
            message = f"it lacks {lacking}, which the partition key reads"
            raise OSError(message)
        # A unique name, so that nothing cached for another file is read.
        link = clickhouse.directory / f"rows-{uuid.uuid4().hex}.parquet"
        link.symlink_to(path)
        structure = ", ".join((_read(read_as), *(f"{name} UInt64" for name in more)))
        names = ", ".join((*map(quote_identifier, self.columns), *more))
        values = ", ".join((self._values(read_as), *more))
        try:
            clickhouse.command(f"TRUNCATE TABLE {into}")
            clickhouse.command(
                f"INSERT INTO {into} ({names}) SETTINGS {_SETTINGS} SELECT DISTINCT {values}"
                f" FROM file({quote_string(str(link))}, Parquet, {quote_string(structure)})"
                f"{self._where(read_as)}"
            )
        finally:
            link.unlink()

    def _values(self, read_as: tuple[FileColumn, ...]) -> str:
        """Return the key's columns in the source's types; the cast raises for other values."""
        written = {one.name: quote_identifier(one.written or "") for one in read_as}
        return ", ".join(
            f"accurateCast({written[one.name]}, {quote_string(one.type_text)})" for one in self._key
        )

    def _where(self, read_as: tuple[FileColumn, ...]) -> str:
        """Return the clause that refuses times which the source's types cannot hold.

        ClickHouse checks numbers and texts, but wraps a Date or a DateTime around at its end:
        9999-12-31 becomes a day of 2105.
        """
        odd = (_beyond(*pair) for pair in zip(read_as, self._key, strict=True))
        conditions = [f"NOT throwIf({of}, {quote_string(text)})" for of, text in filter(None, odd)]
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _beyond(read: FileColumn, column: Column) -> tuple[str, str] | None:
    """Return the condition for values that a column cannot hold, and its message."""
    kept = _innermost(column.type)
    name = quote_identifier(read.written or "")
    cast = f"accurateCast({name}, {quote_string(column.type_text)})"
    if kept == Simple("Date") and _innermost(read.type) == Simple("Date32"):
        odd = f"toDate32({cast}) != {name}"
    elif isinstance(kept, DateTime | DateTime64) and _innermost(read.type) == _MICROSECONDS:
        precision = kept.precision if isinstance(kept, DateTime64) else 0
        unit = 10 ** max(6 - precision, 0)
        micros = f"toUnixTimestamp64Micro(toDateTime64({cast}, 6, 'UTC'))"
        # The cast rounds down to its unit.
        odd = f"toUnixTimestamp64Micro({name}) - {micros} NOT BETWEEN 0 AND {unit - 1}"
    else:
        return None
    text = f"column {column.name} has a value that {column.type_text} cannot hold"
    return f"ifNull({odd}, 0)", text


def _innermost(of: DataType) -> DataType:
    while isinstance(of, Nullable | LowCardinality | SimpleAggregateFunction):
        of = of.of
    return of


def _read(columns: tuple[FileColumn, ...]) -> str:
    return ", ".join(
        f"{quote_identifier(one.written or '')} {render_type(one.type)}" for one in columns
    )


def _key_of_rows(
    file: BranchFile, state: LakeTableState, columns: tuple[str, ...]
) -> pa.Table | None:
    """Return a row with the values that all rows of a file have in some columns; None if unknown.

    They are known of columns by which the file is partitioned as they are.
    """
    table = table_of(state)
    spec = table.specs().get(file.spec_id)
    if spec is None or len(spec.fields) != len(file.partition):
        return None
    values = {
        f.source_id: value
        for f, value in zip(spec.fields, file.partition, strict=True)
        if isinstance(f.transform, IdentityTransform)
    }
    fields = [f for f in table.schema().fields if f.name in columns]
    if not all(
        isinstance(f.field_type, _PLAIN_VALUES)
        and isinstance(values.get(f.field_id), (bool, int, str))
        for f in fields
    ):
        return None
    as_written = file_schema(Schema(*fields))
    stored = (pa.int32() if pa.types.is_date32(f.type) else f.type for f in as_written)
    found = [values[f.field_id] for f in fields]
    arrays = [pa.array([one], of) for one, of in zip(found, stored, strict=True)]
    cast = [one.cast(f.type) for one, f in zip(arrays, as_written, strict=True)]
    return pa.table(cast, as_written)


def _unknown(location: str, reason: str) -> DestinationError:
    return DestinationError(
        f"Cannot tell to which partition {location} belongs: {reason}. Only its rows show that, "
        "because no export of this ledger from a table with this partition key wrote it. Make it "
        "readable, or rewrite it with the engine that wrote it, and run it again."
    )

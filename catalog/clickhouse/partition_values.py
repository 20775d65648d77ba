"""Which partition a value names, by ClickHouse's own meaning and without the source's server.

A lake table remembers its source's partition key (`tableformat.iceberg.properties`). A ClickHouse
of our own, empty and gone afterwards, takes the value as it takes it in ALTER ... PARTITION and
computes the id: conversions of literals, time zones and hashes are its business (types.md 5.3).
What is said of a literal that names no partition is the same here and in `source.py`.
"""

from __future__ import annotations

from typing import Final, assert_never

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, text, texts
from catalog.clickhouse.own import LEAST_SECONDS, OwnClickHouse
from tableformat.clickhouse_codes import (
    NO_SUCH_COLUMN_IN_TABLE,
    NOT_IMPLEMENTED,
    SUPPORT_IS_DISABLED,
    SYNTAX_ERROR,
    UNKNOWN_IDENTIFIER,
)
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError, UsageError
from tableformat.mergetree.division import key_columns
from tableformat.mergetree.evaluated_definition import (
    evaluated_columns,
    evaluated_engine,
    evaluated_key,
    evaluated_zone,
)
from tableformat.mergetree.expression import Call, Expression, Literal
from tableformat.mergetree.expression_text import (
    parse_expression,
    parse_partition_key,
    render_expression,
)
from tableformat.mergetree.lacked_columns import column_list
from tableformat.mergetree.partition_literal import (
    All,
    ById,
    ByValue,
    parse_partition_literal,
    render_partition_literal,
)
from tableformat.mergetree.table import Column, Engine, MergeTreeTable
from tableformat.mergetree.type_text import parse_type, render_type
from tableformat.mergetree.types import DataType, Simple, Tuple
from tableformat.names import PartitionId, quote_identifier, quote_string

__all__ = [
    "KeyTables",
    "key_types",
    "no_such_partition",
    "partition_id_of",
    "stands_for_all",
    "unresolved",
]

_UNPARTITIONED: Final = PartitionId("all")
_KEY: Final = "default.key"
_VALUE: Final = "default.value"
_PLAIN: Final = "MergeTree"
# Engines whose arguments are columns that no statement may set.
_BY_COLUMNS: Final = (
    "ReplacingMergeTree",
    "CollapsingMergeTree",
    "VersionedCollapsingMergeTree",
)
# Of a key without columns.
_ANY: Final = Column("none", Simple("UInt8"), "UInt8")
# Likewise, and of what merges make of rows.
_BY_VALUES: Final = ("SummingMergeTree", "AggregatingMergeTree", "CoalescingMergeTree")
# What a table may need that exists already; none changes what is done with rows.
_KEY_SETTINGS: Final = (
    "allow_nullable_key",
    "allow_floating_point_partition_key",
    "allow_summing_columns_in_partition_or_order_key",
    "allow_coalescing_columns_in_partition_or_order_key",
    "allow_dimensions_outside_sorting_key",
)
# OPTIMIZE FINAL merges all the same, all rows at once.
_UNMERGED: Final = "max_bytes_to_merge_at_max_space_in_pool = 1"


def partition_id_of(table: MergeTreeTable, expression: str) -> PartitionId:
    """Return the id of the partition that an expression names, whether there is one or not.

    Args:
        table: as its source describes it, or as a lake table remembers it.
        expression: what stands after PARTITION: `202401`, `('x', 3)`, `ID '202401'`.

    Raises:
        UsageError: the expression is not made of literals, does not fit the partition key
            (ClickHouse's code and text), or stands for all partitions.
        SourceError: the embedded ClickHouse cannot be run.
    """
    match parse_partition_literal(expression):
        case All():
            raise stands_for_all(table, expression)
        case ById(one):
            return one
        case ByValue() as literal:
            with OwnClickHouse("value", seconds=LEAST_SECONDS) as connection:
                return _Scratch(connection, table, expression).id_of(literal)
        case unexpected:
            assert_never(unexpected)


def stands_for_all(table: MergeTreeTable, expression: str) -> UsageError:
    """Return what is said of ALL where one partition is to be named."""
    return UsageError(
        f"Cannot find the partition {expression} of {table.name}: it stands for all of them. Use "
        "--all."
    )


def no_such_partition(table: MergeTreeTable, expression: str) -> NotFoundError:
    """Return what is said of a value that no active part has."""
    return NotFoundError(
        f"Cannot find the partition {expression} of {table.name}: no active part has that "
        "value. List the partitions with `mergeberg partitions`."
    )


def unresolved(table: MergeTreeTable, expression: str, error: ClickHouseError) -> UsageError:
    """Return what is said of a value that ClickHouse does not take for the partition key's."""
    what = f"Cannot find the partition {expression} of {table.name}"
    if error.code == SUPPORT_IS_DISABLED:
        message = (
            f"{what}: lightweight updates have not been written into its parts yet. "
            f"Run ALTER TABLE {table.name.sql} APPLY PATCHES IN PARTITION {expression} "
            "SETTINGS mutations_sync = 2, or name the partition by its id."
        )
        return RefusedError(message, code=error.code)
    # Of a statement that the user has not written, the place in it says nothing.
    reason = "it is no value" if error.code == SYNTAX_ERROR else error.reason.rstrip(".")
    message = (
        f"{what}: {reason}. The partition key is {table.engine.partition_by or 'tuple()'}; "
        "name a partition as `mergeberg partitions` shows it."
    )
    return UsageError(message, code=error.code)


def key_types(connection: Connection, table: MergeTreeTable) -> tuple[DataType, ...]:
    """Return the types of the members of a table's partition key, in their order.

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
    """Makes tables that are divided as one is that is not there, in a ClickHouse of our own.

    Nothing of its definition becomes SQL as it is written (`evaluated_definition`).
    """

    def __init__(self, connection: Connection, table: MergeTreeTable) -> None:
        """Set what such tables need.

        Args:
            connection: to the ClickHouse of our own.
            table: the one that is not there.
        """
        self._connection, self._table = connection, table
        capabilities = probe_capabilities(connection)
        allowed = [name for name in _KEY_SETTINGS if name in capabilities.table_settings]
        self._settings = ", ".join(f"{name} = 1" for name in allowed)
        # A DateTime without a zone takes the one in force when its table is made.
        zone = f"session_timezone = {quote_string(evaluated_zone(table.server_zone) or 'UTC')}"
        permissions = (f"{name} = {value}" for name, value in capabilities.permissions)
        connection.command(f"SET {', '.join((zone, *permissions))}")

    def make(self, name: str, columns: tuple[Column, ...], key: str) -> None:
        """Create a table; without a `key` it is not divided.

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
        """Create the table that is not there, without its replication, storage and TTL.

        Its columns are given: which defaults of them are wanted, the caller knows.

        What its engine collapses or replaces rows by is part of it: such columns are keys, too.

        Raises:
            RefusedError: a key or a default reads more than its row.
        """
        engine = self._table.engine
        kind = _text(engine) if engine.family in _BY_COLUMNS else _PLAIN
        self._make(name, columns, kind, self._settings)

    def make_merging(self, name: str, columns: tuple[Column, ...], *, merges: bool) -> None:
        """Create a table like it for the rows of a merge, which nothing merges by itself.

        Unless it `merges` rows, it leaves all of them as they are.

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
    """Return an engine with its arguments and without its replication."""
    given = parse_expression(f"tuple({engine.arguments})")
    arguments = given.arguments if isinstance(given, Call) else ()
    if engine.replicated:
        arguments = tuple(a for a in arguments if not isinstance(a, Literal))
    return f"{engine.family}({', '.join(render_expression(a) for a in arguments)})"


class _Scratch:
    """An empty table with the partition key, and one whose only row has the value."""

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
            # Nothing is there to be dropped: this is how ClickHouse checks the value.
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
            f"Cannot find the partition {self._expression} of {self._table.name}: which value of "
            f"the partition key {key} it is can only be told by the source. Name the partition by "
            "its id, for example ID '202401'."
        )
        raise UsageError(message)

    def _members(self) -> tuple[Column, ...]:
        """Return the members of the key with their types, as columns."""
        types = _member_types(self._connection, _KEY)
        return tuple(Column(f"c{i}", one, render_type(one)) for i, one in enumerate(types))

    def _proved(self, values: str, sql: str) -> PartitionId | None:
        """Return the id of a row with these values, when the literal drops exactly that row.

        A literal that ClickHouse takes as another value than CAST does would drop nothing.
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
    """Return the SELECT list of the literal's members as the key's types."""
    match value:
        case Call("tuple", given) if len(given) == len(members):
            pass
        case _:
            given = (value,)
    return ", ".join(
        f"CAST({render_expression(one)} AS {member.type_text})"
        for one, member in zip(given, members, strict=True)
    )

"""The table of `make big`: twenty columns of every common kind, three months, many parts.

Rows follow from their number alone, so a run can be repeated. Hostile values stand among them:
limits of integers, NaN, infinities and -0, empty and 300-byte strings, characters of four bytes,
days before 1970 and after 2100.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from catalog.clickhouse.connection import Connection

__all__ = ["COLUMNS", "KEY", "TABLE", "Column", "Partition", "columns_of", "fill", "partitions"]

TABLE: Final = "shop.orders"
KEY: Final = ("kind", "account", "seen", "id")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its ClickHouse type, and its value as SQL over the row's number `n`."""

    name: str
    type: str
    value: str


@dataclass(frozen=True, slots=True)
class Partition:
    """A month of rows, written in so many parts."""

    month: int
    rows: int
    parts: int

    @property
    def id(self) -> str:
        """The partition id that ClickHouse gives it."""
        return f"2024{self.month:02d}"


COLUMNS: Final = (
    Column("id", "UInt64", "if(n % 1000 = 0, 18446744073709551615 - n, cityHash64(n))"),
    Column("account", "UInt32", "intHash32(n) % 50000"),
    Column("kind", "LowCardinality(String)", "concat('kind ', toString(cityHash64(n, 1) % 40))"),
    Column("day", "Date", "toDate({month}) + cityHash64(n, 2) % 28"),
    Column("seen", "DateTime('UTC')", "toDateTime({month}, 'UTC') + cityHash64(n, 3) % 2419200"),
    Column("moment", "DateTime64(3, 'UTC')", "fromUnixTimestamp64Milli(toInt64(n * 7919), 'UTC')"),
    Column("born", "Date32", "toDate32('1925-01-01') + toInt32(cityHash64(n, 4) % 73000)"),
    Column("state", "Enum8('new' = -1, 'paid' = 2, 'sent' = 1)",
           "['new', 'paid', 'sent'][n % 3 + 1]"),
    Column("amount", "Decimal(18, 4)",
           "toDecimal64(toInt64(cityHash64(n, 5) % 2000000) - 1000000, 4) / 8"),
    Column("balance", "Decimal(38, 10)", "toDecimal128(toInt64(cityHash64(n, 6)), 10)"),
    Column("score", "Float64",
           "multiIf(n % 997 = 0, nan, n % 991 = 0, -inf, n % 983 = 0, -0.,"
           " sin(n) * exp10(n % 60 - 30))"),
    Column("ratio", "Float32", "toFloat32(cos(n))"),
    Column("active", "Bool", "cityHash64(n, 7) % 2 = 1"),
    Column("token", "UUID", "reinterpretAsUUID(sipHash128(n))"),
    Column("name", "String", "concat('name ', toString(cityHash64(n, 8) % 100000))"),
    Column("text", "String",
           "multiIf(n % 11 = 0, '', n % 5003 = 0, repeat('é€😀', 40),"
           " lower(hex(sipHash128(n, 9))))"),
    Column("note", "Nullable(String)", "if(n % 3 = 0, NULL, concat('note ', toString(n % 1000)))"),
    Column("age", "Nullable(Int32)",
           "multiIf(n % 4 = 0, NULL, n % 5000 = 1, -2147483648, toInt32(n % 100))"),
    Column("tags", "Array(String)",
           "arrayMap(i -> concat('t', toString(n % (i + 7))), range(n % 4))"),
    Column("codes", "Array(Nullable(Int64))",
           "arrayMap(i -> if(i = 1, NULL, toInt64(n * i) - 1000000), range(n % 3))"),
)  # fmt: skip
"""In the order of the table. `{month}` stands for the first day of the partition's month."""

# A part for each block: nothing is merged before the export, and no insert is slowed down.
_SETTINGS: Final = (
    "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1, "
    "parts_to_delay_insert = 100000, parts_to_throw_insert = 100000"
)
_PARTS: Final = (4, 300, 1)


def partitions(rows: int) -> tuple[Partition, ...]:
    """Return three months of about `rows` rows together: a few parts, 300 parts, one part."""
    shares = [rows * 2 // 5, rows * 2 // 5, rows - rows * 2 // 5 * 2]
    return tuple(
        Partition(month, share, parts)
        for month, (share, parts) in enumerate(zip(shares, _PARTS, strict=True), 1)
    )


def columns_of(number: int) -> tuple[Column, ...]:
    """Return so many columns: those of the table, again and again under other names."""
    more = (
        replace(COLUMNS[i % len(COLUMNS)], name=f"{COLUMNS[i % len(COLUMNS)].name}_{i}")
        for i in range(len(COLUMNS), number)
    )
    return (*COLUMNS[:number], *more)


def fill(
    clickhouse: Connection,
    wanted: tuple[Partition, ...],
    columns: tuple[Column, ...] = COLUMNS,
) -> None:
    """Make the table and its rows.

    Raises:
        SourceError: ClickHouse refused a statement.
    """
    declared = ", ".join(f"{c.name} {c.type}" for c in columns)
    clickhouse.command(f"CREATE DATABASE {TABLE.partition('.')[0]}")
    clickhouse.command(
        f"CREATE TABLE {TABLE} ({declared}) ENGINE = MergeTree PARTITION BY toYYYYMM(day)"
        f" ORDER BY ({', '.join(KEY)}) SETTINGS {_SETTINGS}"
    )
    first = 0
    for partition in wanted:
        for part in range(partition.parts):
            start = partition.rows * part // partition.parts
            stop = partition.rows * (part + 1) // partition.parts
            clickhouse.command(_insert(partition, first + start, stop - start, columns))
        first += partition.rows


def _insert(partition: Partition, first: int, rows: int, columns: tuple[Column, ...]) -> str:
    """Return an INSERT whose rows become exactly one part."""
    month = f"'2024-{partition.month:02d}-01'"
    values = ", ".join(f"{c.value.replace('{month}', month)} AS {c.name}_" for c in columns)
    # Aliases differ from the columns' names, else an expression over `n` could mean another column.
    return (
        f"INSERT INTO {TABLE} SELECT {values} FROM (SELECT number AS n FROM"
        f" numbers({first}, {rows})) SETTINGS max_insert_threads = 1, max_threads = 2,"
        f" min_insert_block_size_rows = {max(rows, 1)}, min_insert_block_size_bytes = 0"
    )

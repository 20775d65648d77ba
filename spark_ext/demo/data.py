"""Fills the demo's ClickHouse with the events of a web shop.

All values are computed from hashes of row numbers, so that every run creates the same rows. The
table is renamed to `db.events` in the last step, so that a table of this name is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.connection import Connection, text, whole
from tableformat.names import TableName

__all__ = ["ENGINE", "MONTHS", "ROWS", "TABLE", "Month", "fill", "months"]

TABLE: Final = TableName("db", "events")
ENGINE: Final = "ENGINE = MergeTree PARTITION BY toYYYYMM(ts) ORDER BY (country, ts)"
MONTHS: Final = ("2024-01-01", "2024-02-01", "2024-03-01")
ROWS: Final = 1_000_000
"""Rows of a month: enough to show progress, few enough for a small machine."""

_UNFINISHED: Final = TableName("db", "events_unfinished")

_COLUMNS: Final = """
    ts         DateTime('UTC'),
    country    LowCardinality(String),
    event      Enum8('view' = 1, 'cart' = 2, 'order' = 3, 'refund' = 4),
    visit      UUID,
    user_id    UInt64,
    product    LowCardinality(String),
    price      Decimal(10, 2),
    quantity   UInt8,
    coupon     Nullable(String),
    tags       Array(String)
"""
# The sum of two uniform values gives quiet nights and a busy noon. Squaring makes some visitors
# come often. The price depends on the product.
_ROWS_OF_MONTH: Final = """
WITH
    toDate('{month}') AS month,
    dateDiff('day', month, month + INTERVAL 1 MONTH) AS days,
    cityHash64(toYYYYMM(month), number) AS first,
    cityHash64(first) AS second,
    cityHash64(second) AS third,
    [('desk lamp', 39.90), ('bookshelf', 129.00), ('office chair', 249.50), ('rug', 89.95),
     ('coffee table', 159.00), ('wall clock', 24.99), ('cushion', 14.95), ('mirror', 64.50),
     ('plant pot', 12.49), ('sofa', 899.00)] AS products,
    products[1 + toUInt64(pow(third % 1009 / 1009, 1.5) * 10)] AS chosen,
    ['mobile', 'newsletter', 'gift', 'sale'] AS known_tags
SELECT
    toDateTime(month, 'UTC') + INTERVAL (second % days) DAY
        + INTERVAL intDiv(intDiv(second, 100) % 86400 + intDiv(third, 100) % 86400, 2) SECOND AS ts,
    ['DE', 'DE', 'DE', 'DE', 'FR', 'FR', 'FR', 'NL', 'NL', 'IT', 'IT', 'AT', 'CH', 'PL', 'ES',
     'DK'][1 + intDiv(first, 7) % 16] AS country,
    multiIf(first % 1000 < 820, 'view', first % 1000 < 930, 'cart', first % 1000 < 992, 'order',
            'refund') AS event,
    reinterpretAsUUID(sipHash128(user_id, toDate(ts))) AS visit,
    700001 + toUInt64(pow(intDiv(second, 1000) % 1000000 / 1000000, 2) * 250000) AS user_id,
    chosen.1 AS product,
    toDecimal64(chosen.2, 2) AS price,
    multiIf(third % 100 < 75, 1, third % 100 < 93, 2, 4) AS quantity,
    if(intDiv(first, 1000) % 9 = 0, concat('SAVE', toString(5 * (1 + third % 4))), NULL) AS coupon,
    arrayFilter((tag, bit) -> bitTest(first, 20 + bit), known_tags, [0, 1, 2, 3]) AS tags
FROM numbers({rows})
"""


@dataclass(frozen=True, slots=True)
class Month:
    """A partition of the table: its id and its rows."""

    partition_id: str
    rows: int


def fill(clickhouse: Connection, *, rows: int = ROWS) -> Iterator[Month]:
    """Create the table month by month; yield each month when its rows are inserted.

    Args:
        clickhouse: the connection to ClickHouse.
        rows: the number of rows in each month.

    Raises:
        ClickHouseError: ClickHouse refused a statement.
        SourceError: ClickHouse ended.
    """
    clickhouse.command(f"CREATE DATABASE IF NOT EXISTS {TABLE.database}")
    clickhouse.command(f"DROP TABLE IF EXISTS {_UNFINISHED} SYNC")
    clickhouse.command(f"CREATE TABLE {_UNFINISHED} ({_COLUMNS}) {ENGINE}")
    for month in MONTHS:
        select = _ROWS_OF_MONTH.format(month=month, rows=rows)
        clickhouse.command(f"INSERT INTO {_UNFINISHED} {select}")
        yield Month(month[:7].replace("-", ""), rows)
    clickhouse.command(f"RENAME TABLE {_UNFINISHED} TO {TABLE}")


def months(clickhouse: Connection) -> tuple[Month, ...]:
    """Return the partitions of the table; none if it was never completed."""
    found = clickhouse.rows(
        "SELECT partition_id, sum(rows) FROM system.parts WHERE active AND "
        f"database = '{TABLE.database}' AND table = '{TABLE.name}' "
        "GROUP BY partition_id ORDER BY partition_id"
    )
    return tuple(Month(text(name), whole(rows)) for name, rows in found)

"""A value names the same partition from the lake table's properties as from the source.

B.6; the statements of ClickHouse's own tests 00502_custom_partitioning_local and
00502_custom_partitioning_replicated_zookeeper, as far as they name partitions.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.clickhouse.rows.partitions import partition_id_of
from tableformat.errors import UsageError
from tableformat.iceberg.properties import remembered_source, table_properties
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.partition_literal import date_in_quotes
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId, TableName
from tests.support.clickhouse_source import Clickhouse

# Columns, key, rows, and literals of partitions that are there.
TABLES = {
    "not partitioned": ("x UInt8", "tuple()", "(1), (2)", ["tuple()", "ID 'all'"]),
    "by week": (
        "d Date, x UInt8", "toMonday(d)", "('2000-01-01', 1), ('2000-01-03', 3)",
        ["'2000-01-03'", "'1999-12-27'"],
    ),
    "by a tuple": (
        "d Date, x UInt8, y UInt8", "(d, x)", "('2000-01-01', 1, 1), ('2000-01-02', 1, 3)",
        [
            *("('2000-01-01', 1)", "('2000-01-02', 1)", "ID '20000101-1'"),
            "(toDate('2000-01-01'), 2 - 1)",
            "CAST(('2000-01-01', 1) AS Tuple(Date, UInt8))",
        ],
    ),
    "by a string": ("s String, x UInt8", "s", "('aaa', 1), ('bbb', 3)", ["'aaa'", "'bbb'"]),
    "by a length": ("s String", "length(s)", "('a'), ('aa')", ["1", "tuple(toUInt64(2))"]),
    "by month": (
        "d Date", "toYYYYMM(d)", "('2019-01-25')",
        [
            *("201901", "'201901'", "tuple(toYYYYMM(toDate('2019-01-25')))"),
            *("tuple(toYYYYMM(toDate('2019-01-01') + 24))", "tuple(plus(201900, 1))"),
            *("tuple(CASE WHEN 1 = 1 THEN 201901 END)", "toYYYYMM(toDate('2019-01-25'))"),
            "CAST('201901' AS UInt32)",
        ],
    ),
    "by day": (
        "d Date", "d", "('2024-01-31')",
        # Without quotes a Date is the number of its day.
        ["'2024-01-31'", "19753", "tuple(toDate('2024-01-30') + 1)", date_in_quotes("2024-01-31"),
         "DATE '2024-01-31'", "toDate('2024-01-31')", "'2024-01-31'::Date"],
    ),
    "by hour of a zone": (
        "t DateTime('Asia/Tokyo')", "toStartOfHour(t)", "('2024-01-31 00:30:00')",
        ["'2024-01-31 00:00:00'"],
    ),
    "by what may be NULL": (
        "n Nullable(Int32), k UInt8", "n", "(NULL, 1), (-5, 2)", ["NULL", "-5"],
    ),
}  # fmt: skip
WRONG = {
    "by week": ["'x'", "1.5", "ALL", "d", "2000-01-03"],
    "by day": ["20240131", "2024-01-31", "tuple(2024-01-31)"],
    "by a tuple": ["('2000-01-01')", "(300, 300)"],
    "by a length": ["-1", "upper('x')"],
    "not partitioned": ["1"],
}


def made(clickhouse: Clickhouse, kind: str) -> TableName:
    """Make one of the tables, with its rows."""
    columns, key, rows, _ = TABLES[kind]
    by = f"PARTITION BY {key} ORDER BY tuple() SETTINGS allow_nullable_key = 1"
    name = clickhouse.table(f"ENGINE = MergeTree {by}", columns)
    clickhouse.command(f"INSERT INTO {name.sql} VALUES {rows}")
    return name


def remembered(table: MergeTreeTable) -> MergeTreeTable:
    """Return a table as the lake gives it back."""
    found = remembered_source(table_properties(table, map_columns(table)))
    assert found is not None
    return found.table


@pytest.mark.parametrize("kind", TABLES)
def test_a_value_names_the_same_partition_with_and_without_the_source(
    clickhouse: Clickhouse, kind: str
) -> None:
    """Harm prevented: a statement on the lake table takes away another partition."""
    table = clickhouse.source.describe(made(clickhouse, kind))
    known = {p.partition_id for p in clickhouse.source.partitions(table.name)}

    for literal in TABLES[kind][3]:
        found = partition_id_of(remembered(table), literal)
        assert found == clickhouse.source.find_partition(table, literal)
        assert found in known


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_value_of_the_key_is_refused_in_the_same_words(
    clickhouse: Clickhouse, kind: str
) -> None:
    table = clickhouse.source.describe(made(clickhouse, kind))

    for literal in WRONG[kind]:
        with pytest.raises(UsageError, match="Cannot") as at_source:
            clickhouse.source.find_partition(table, literal)
        with pytest.raises(UsageError, match="Cannot") as without:
            partition_id_of(remembered(table), literal)
        assert (without.value.message, without.value.code) == (
            at_source.value.message,
            at_source.value.code,
        )


def test_a_partition_that_is_not_there_has_an_id_all_the_same(clickhouse: Clickhouse) -> None:
    """The caller decides whether the lake has the partition."""
    table = clickhouse.source.describe(made(clickhouse, "by month"))

    assert partition_id_of(remembered(table), "203001") == PartitionId("203001")


def test_a_time_without_a_zone_is_read_in_that_of_the_source(clickhouse: Clickhouse) -> None:
    """Harm prevented: the id of another hour, because the lake is used in another country."""
    zone = "America/New_York"
    clickhouse.command(f"SET session_timezone = '{zone}'")
    name = clickhouse.table("ENGINE = MergeTree PARTITION BY t ORDER BY t", "t DateTime")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES ('2024-01-31 00:00:00')")
    clickhouse.command("SET session_timezone = ''")
    table = replace(clickhouse.source.describe(name), server_zone=zone)

    ((seconds,),) = clickhouse.rows(f"SELECT toUnixTimestamp(t) FROM {name.sql}")
    assert partition_id_of(remembered(table), "'2024-01-31 00:00:00'").value == str(seconds)


def test_a_value_that_only_the_source_can_read_is_refused(clickhouse: Clickhouse) -> None:
    """Harm prevented: a truncated value names another partition."""
    name = clickhouse.table("ENGINE = MergeTree PARTITION BY s ORDER BY s", "s FixedString(3)")

    with pytest.raises(UsageError, match="only the source can convert it"):
        partition_id_of(clickhouse.source.describe(name), "'abcd'")

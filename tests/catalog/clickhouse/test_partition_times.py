"""A partition's times are those of its time column, in that column's type, or not known."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from catalog.clickhouse.source import ClickHouseSource
from tableformat.mergetree.table import NoTimes, PartitionSummary, Times
from tableformat.names import TableName
from tests.support.clickhouse_source import Clickhouse, Through
from tests.support.frozen_folders import freeze

_NULLABLE: Final = " SETTINGS allow_nullable_key = 1"
_LOW: Final = "SET allow_suspicious_low_cardinality_types = 1"


def listed(source: ClickHouseSource, name: TableName) -> tuple[PartitionSummary, ...]:
    return source.with_times(source.describe(name), source.partitions(name))


def times(source: ClickHouseSource, name: TableName) -> dict[str, Times | str]:
    return {
        str(one.partition_id): one.times.why if isinstance(one.times, NoTimes) else one.times
        for one in listed(source, name)
    }


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("Date", ("1970-01-01", "2024-02-29", "2149-06-06")),
        ("Date32", ("1900-01-01", "1969-12-31", "2024-02-29", "2299-12-31")),
        ("DateTime('UTC')", ("1970-01-01 00:00:00", "2106-02-07 06:28:15")),
        ("DateTime('America/New_York')", ("2023-12-31 23:00:00", "2024-07-01 12:00:00")),
        (
            "DateTime64(3, 'UTC')",
            ("1900-01-01 00:00:00.000", "1969-12-31 23:59:59.999", "2024-01-31 12:00:00.500",
             "2106-02-07 06:28:16.000", "2299-12-31 23:59:59.999"),
        ),
        ("DateTime64(9, 'Asia/Kathmandu')", ("1969-01-01 00:00:00.000000001",)),
        ("Nullable(DateTime64(6, 'UTC'))", ("1969-01-01 00:00:00.000001", "2262-01-01 00:00:00.5")),
        ("Nullable(Date)", ("1970-01-01", "2024-02-29")),
        ("LowCardinality(Date)", ("1970-01-02", "2024-02-29")),
    ],
)  # fmt: skip
def test_times_are_those_of_the_column(
    clickhouse: Clickhouse, kind: str, values: tuple[str, ...]
) -> None:
    """Harm prevented: `archive --where` takes a partition of 2299 for one of 2027."""
    clickhouse.command(_LOW)
    name = clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY toYear(t) ORDER BY tuple(){_NULLABLE}",
        f"k UInt8, t {kind}",
    )
    for value in values:
        clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, '{value}')")
    clickhouse.command(f"INSERT INTO {name.sql} SELECT k, t FROM {name.sql}")
    expected = clickhouse.rows(
        f"SELECT _partition_id, toString(min(t)), toString(max(t)) FROM {name.sql}"
        " GROUP BY _partition_id"
    )

    found = times(clickhouse.source, name)

    assert found == {one: Times(str(low), str(high)) for one, low, high in expected}
    assert {t.least for t in found.values() if isinstance(t, Times)} == {
        value.ljust(26, "0") if "(DateTime64(6" in kind else value for value in values
    }


def test_a_partition_spans_all_its_parts(clickhouse: Clickhouse) -> None:
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY k ORDER BY (k, toStartOfDay(t))",
        "k UInt8, t DateTime64(3)",
    )
    keyed = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY (k, toYear(t) > 0) ORDER BY k",
        "k UInt8, t DateTime64(3, 'UTC')",
    )
    for value in ("2299-01-01 00:00:00.001", "1969-01-01 00:00:00", "2024-01-01 00:00:00"):
        for one in (name, keyed):
            clickhouse.command(f"INSERT INTO {one.sql} VALUES (1, '{value}'), (1, '{value}')")

    (found,) = listed(clickhouse.source, keyed)

    assert found.times == Times("1969-01-01 00:00:00.000", "2299-01-01 00:00:00.001")
    assert "reads no column of a time" in str(times(clickhouse.source, name)["1"])


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("k", "the partition key of {}, k, reads no column of a time"),
        ("tuple()", "the partition key of {}, tuple(), reads no column of a time"),
        ("(d, e)", "the partition key of {}, (d, e), reads several columns of a time (d, e)"),
        ("(t, u)", "the partition key of {}, (t, u), reads several columns of a time (t, u)"),
    ],
)
def test_where_the_key_has_no_one_time_it_says_so(
    clickhouse: Clickhouse, key: str, why: str
) -> None:
    name = clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY {key} ORDER BY k",
        "k UInt8, d Date, e Date32, t DateTime, u DateTime64(3)",
    )
    clickhouse.command(f"INSERT INTO {name.sql} (k) VALUES (1)")

    assert set(times(clickhouse.source, name).values()) == {why.format(name)}


def test_of_dates_and_times_the_date_counts(clickhouse: Clickhouse) -> None:
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY (toYYYYMM(t), d) ORDER BY tuple()",
        "d Date32, t DateTime64(3, 'UTC')",
    )
    clickhouse.command(f"INSERT INTO {name.sql} VALUES ('2250-01-02', '2024-01-01 00:00:00')")

    assert [*times(clickhouse.source, name).values()] == [Times("2250-01-02", "2250-01-02")]


@pytest.mark.parametrize("kind", ["Nullable(DateTime64(3))", "Nullable(Date)"])
def test_a_partition_of_nulls_has_no_times(clickhouse: Clickhouse, kind: str) -> None:
    name = clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY t ORDER BY tuple(){_NULLABLE}", f"k UInt8, t {kind}"
    )
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, NULL)")

    assert [*times(clickhouse.source, name).values()] == [Times("", "")]


@pytest.mark.parametrize("kind", ["DateTime64(3, 'UTC')", "DateTime('UTC')"])
def test_rows_that_are_deleted_lightly_count_as_in_the_parts(
    clickhouse: Clickhouse, kind: str
) -> None:
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY toYear(t) ORDER BY k", f"k UInt8, t {kind}"
    )
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, '2024-01-01'), (2, '2024-12-01')")
    clickhouse.command(f"DELETE FROM {name.sql} WHERE k = 2")

    (found,) = listed(clickhouse.source, name)

    assert found.max_time.startswith("2024-12-01 00:00:00")


def test_rows_that_are_hidden_from_the_user_leave_it_unknown(clickhouse: Clickhouse) -> None:
    """Harm prevented: the newest row is hidden, and the partition is archived as an old one."""
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY toYear(t) ORDER BY k", "k UInt8, t DateTime64(3, 'UTC')"
    )
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, '2024-01-01'), (2, '2024-12-01')")

    class Hiding(Through):
        def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
            return super().rows(sql.replace(f"FROM {name.sql} AS __src", f"FROM (SELECT *, "
                f"_partition_id FROM {name.sql} WHERE k = 1) AS __src"))  # fmt: skip

    source = ClickHouseSource(lambda _: Hiding(clickhouse.connection))

    assert times(source, name) == {
        "2024": f"{name} shows 1 of its 2 rows. A row policy or a setting of the user hides rows"
    }


def test_only_the_index_of_parts_is_read(clickhouse: Clickhouse) -> None:
    """Harm prevented: a list of partitions reads a column of a table of terabytes."""
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY toYear(t) ORDER BY k", "k UInt32, t DateTime64(3, 'UTC')"
    )
    clickhouse.command(
        f"INSERT INTO {name.sql} SELECT number, toDateTime64('2023-12-01', 3, 'UTC') + number"
        " FROM numbers(5000000)"
    )

    class Limited(Through):
        def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
            if f"FROM {name.sql}" in sql:
                sql += f"{',' if 'SETTINGS' in sql else ' SETTINGS'} max_rows_to_read = 1000"
            return super().rows(sql)

    source = ClickHouseSource(lambda _: Limited(clickhouse.connection))

    assert times(source, name) == {
        "2023": Times("2023-12-01 00:00:00.000", "2023-12-31 23:59:59.000"),
        "2024": Times("2024-01-01 00:00:00.000", "2024-01-27 20:53:19.000"),
    }


def test_frozen_parts_have_the_times_of_their_table(clickhouse: Clickhouse, tmp_path: Path) -> None:
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY toYear(t) ORDER BY k", "k UInt8, t DateTime64(3, 'UTC')"
    )
    for year in (1969, 2024, 2299):
        clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, '{year}-05-06 07:08:09.123')")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, '2024-06-06 07:08:09.123')")
    folders = freeze(clickhouse, name, tmp_path)

    with folders.source() as source:
        assert times(source, name) == times(clickhouse.source, name)
    (folders.directory / "2024_4_4_0" / "checksums.txt").unlink()
    with folders.source() as source:
        found = times(source, name)

    assert found["2024"] == "its part 2024_4_4_0 cannot be opened"
    assert found["2299"] == Times(*["2299-05-06 07:08:09.123"] * 2)

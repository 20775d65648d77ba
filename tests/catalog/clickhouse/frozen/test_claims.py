"""Parts are refused under another table's statement, even if ClickHouse opens them.

ClickHouse raises no error in these cases: it returns no rows, or all of them under wrong keys, or
truncated numbers.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tableformat.errors import RefusedError, SourceError, UsageError
from tests.support.clickhouse_source import Clickhouse
from tests.support.frozen_folders import Folders, freeze

_COLUMNS = "d Date, k UInt64, b UInt64, n Nullable(Int32), s String"
_ROWS = (
    "SELECT toDate('2024-01-01') + number % 60, number, 1000 - number,"
    " if(number % 3 = 0, NULL, number), toString(number) FROM numbers(1000)"
)


@pytest.fixture
def folders(clickhouse: Clickhouse, tmp_path: Path) -> Folders:
    """Two months in one part each."""
    name = clickhouse.table("ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY k", _COLUMNS)
    clickhouse.command(f"INSERT INTO {name.sql} {_ROWS}")
    return freeze(clickhouse, name, tmp_path)


@pytest.mark.parametrize("key", ["toYear(d)", "tuple(toYYYYMM(d), k % 2)", "s"])
def test_a_partition_key_under_which_nothing_opens_is_refused(folders: Folders, key: str) -> None:
    """ClickHouse loads no part and raises no error."""
    wrong = folders.replaced("PARTITION BY toYYYYMM(d)", f"PARTITION BY {key}")

    with pytest.raises(SourceError, match=r"ClickHouse loaded none of 2 under PARTITION BY .*keys"):
        wrong.snapshot()


@pytest.mark.parametrize("key", ["toYYYYMMDD(d)", "toYYYYMM(d + 1)", "toUInt32(b)"])
def test_a_partition_key_under_which_everything_opens_is_refused(
    folders: Folders, key: str
) -> None:
    """With a key of the same type the rows would go to a wrong lake partition."""
    refused = folders.replaced("PARTITION BY toYYYYMM(d)", f"PARTITION BY {key}").refusals()

    assert refused.keys() == {"202401", "202402"}
    assert "the partition is that of (202401), but PARTITION BY" in refused["202401"]


@pytest.mark.parametrize("key", ["b", "s", "(b, k)", "k DESC", "(s, k)", "n"])
def test_a_sorting_key_that_is_no_order_of_the_rows_is_refused(folders: Folders, key: str) -> None:
    """The lake would promise an order that its files do not have."""
    wrong = folders.replaced("ORDER BY k", f"ORDER BY {key}")
    if "n" in key:
        wrong = wrong.replaced("SETTINGS ", "SETTINGS allow_nullable_key = 1, ")

    refused = wrong.refusals()

    assert refused.keys() == {"202401", "202402"}
    assert "its part 202401_1_1_0 are not in the order of ORDER BY" in refused["202401"]


@pytest.mark.parametrize(
    ("columns", "key", "rows"),
    [
        ("k UInt64, n Nullable(Int32)", "(n, k)", "number, if(number % 3 = 0, NULL, number % 7)"),
        ("k UInt64, f Float64", "(f, k)", "number, if(number % 3 = 0, nan, number % 7)"),
        ("k UInt64, u UUID", "(u, k)", "number, generateUUIDv4()"),
        ("k UInt64, e Enum8('z' = 1, 'a' = 2, 'm' = -3)", "(e, k)",
         "number, ['z', 'a', 'm'][1 + number % 3]"),
        ("k UInt64, i IPv6", "(i, k)", "number, toIPv6(concat('::', hex(number * 7 % 99)))"),
        ("k UInt64, l LowCardinality(Nullable(String))", "(l, k)", "number, toString(number % 7)"),
        ("k UInt64, a Array(Int8)", "(a, k)", "number, range(number % 5)"),
        ("k UInt64, t Tuple(Int8, String)", "(t, k)", "number, (number % 7 - 3, toString(number))"),
        ("k UInt64, x Decimal(38, 5)", "(x DESC, k)", "number, -3 * (number % 7)"),
        ("k UInt64, s String", "(cityHash64(s) % 5, lower(s))", "number, toString(number)"),
        ("k Int128, s FixedString(3)", "(-k, s)", "number - 50, toString(number)"),
    ],
)  # fmt: skip
def test_a_true_sorting_key_of_any_type_passes(
    clickhouse: Clickhouse, tmp_path: Path, columns: str, key: str, rows: str
) -> None:
    settings = "allow_nullable_key = 1, allow_experimental_reverse_key = 1, index_granularity = 8"
    name = clickhouse.table(f"ENGINE = MergeTree ORDER BY {key} SETTINGS {settings}", columns)
    clickhouse.command(f"INSERT INTO {name.sql} SELECT {rows} FROM numbers(500)")

    folders = freeze(clickhouse, name, tmp_path)

    assert folders.refusals() == {}
    assert [p.visible_rows for p in folders.snapshot().partitions] == [500]


@pytest.mark.parametrize(
    "key",
    [
        "(partition, shown)",
        "tuple(partition)",
        "(partition % 2, lower(shown))",
        "part",
        "toDate('2024-01-01') + partition",
    ],
)
def test_keys_of_any_form_and_columns_of_any_name_pass(
    clickhouse: Clickhouse, tmp_path: Path, key: str
) -> None:
    """Harm prevented: a name of the proof's own query hides a column of the same name."""
    name = clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY {key} ORDER BY (row, k0, part) SETTINGS"
        " allow_nullable_key = 1",
        "partition UInt8, shown String, computed UInt8, alone UInt8, row UInt64, k0 UInt8,"
        " part Nullable(String), before_part UInt8",
    )
    clickhouse.command(
        f"INSERT INTO {name.sql} SELECT 1 + number % 2, 'x', 7, 8, number, 100 - number % 9,"
        " if(number % 2, NULL, 'p'), 9 FROM numbers(100)"
    )
    folders = freeze(clickhouse, name, tmp_path)

    snapshot = folders.snapshot()

    assert snapshot.refused == ()
    assert sum(p.visible_rows for p in snapshot.partitions) == 100
    assert len(snapshot.partitions) == 2


def test_a_time_zone_that_divides_otherwise_is_refused(
    clickhouse: Clickhouse, tmp_path: Path
) -> None:
    """The zone of the server that wrote a time decides its day."""
    name = clickhouse.table(
        "ENGINE = MergeTree PARTITION BY toYYYYMMDD(at) ORDER BY at", "at DateTime"
    )
    clickhouse.command(
        f"INSERT INTO {name.sql} SELECT toDateTime('2024-01-01 00:00:00') + number * 600"
        " FROM numbers(144) SETTINGS session_timezone = 'UTC'"
    )
    folders = freeze(clickhouse, name, tmp_path)
    ((zone,),) = clickhouse.rows("SELECT serverTimezone()")

    right = folders.with_settings(zone=str(zone))
    wrong = folders.with_settings(zone="Asia/Tokyo")

    assert right.refusals() == {}
    assert right.snapshot().table.server_zone == zone
    assert all("in the time zone Asia/Tokyo" in text for text in wrong.refusals().values())
    assert wrong.refusals()


def test_a_zone_that_is_none_is_refused(folders: Folders) -> None:
    with pytest.raises(UsageError, match="Cannot use the time zone 'Mars/Base'"):
        folders.with_settings(zone="Mars/Base").snapshot()


def test_a_column_of_the_parts_that_the_statement_lacks_refuses_them(folders: Folders) -> None:
    """Its values would be lost."""
    refused = folders.replaced("    `s` String", "    `other` String").refusals()

    assert refused.keys() == {"202401", "202402"}
    assert "its parts hold s, which the table does not have" in refused["202401"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("`b` UInt64", "`b` UInt8"),
        ("`b` UInt64", "`b` Int64"),
        ("`s` String", "`s` FixedString(2)"),
        ("`d` Date", "`d` DateTime"),
        ("`n` Nullable(Int32)", "`n` Int32"),
    ],
)
def test_a_column_of_another_type_refuses_the_parts(folders: Folders, old: str, new: str) -> None:
    """ClickHouse would cast the values: 1000 would become 232."""
    wrong = folders.replaced(old, new)

    if new == "`d` DateTime":
        with pytest.raises(SourceError, match="ClickHouse loaded none of 2"):
            wrong.snapshot()
        return
    refused = wrong.refusals()
    assert refused.keys() == {"202401", "202402"}
    column, _, kind = old.partition(" ")
    assert f"holds the column {column.strip('`')} as {kind}, and" in refused["202401"]
    with wrong.source() as source:
        described = source.describe(wrong.table)
        ids = tuple(p.partition_id for p in source.partitions(described.name))
        assert source.refusals(described.name, ids).keys() == set(ids)


@pytest.mark.parametrize(
    ("held", "type_name", "value"),
    [
        ("Enum8('a' = 1)", "Enum8('a' = 1, 'b' = 2)", "'a'"),
        ("String", "LowCardinality(String)", "'x'"),
        ("LowCardinality(String)", "String", "'x'"),
        ("UInt8", "Nullable(UInt8)", "7"),
        ("DateTime", "DateTime('UTC')", "1700000000"),
        ("DateTime64(3)", "DateTime64(3, 'Asia/Tokyo')", "1700000000"),
    ],
)
def test_a_type_that_reads_the_same_values_passes(
    clickhouse: Clickhouse, tmp_path: Path, held: str, type_name: str, value: str
) -> None:
    """Such an ALTER never rewrites a part, so its type in the part is the old one for ever."""
    name = clickhouse.table("ENGINE = MergeTree ORDER BY k", f"k UInt64, v {held}")
    clickhouse.command(f"INSERT INTO {name.sql} VALUES (1, {value})")
    folders = freeze(clickhouse, name, tmp_path)

    assert folders.replaced(f"`v` {held}", f"`v` {type_name}").refusals() == {}


def test_a_column_that_no_part_has_yet_gives_its_default(
    clickhouse: Clickhouse, tmp_path: Path
) -> None:
    name = clickhouse.filled()
    folders = freeze(clickhouse, name, tmp_path)
    later = folders.replaced("`s` String", "`s` String,\n    `later` UInt64 DEFAULT k * 2")

    assert [p.visible_rows for p in later.snapshot().partitions] == [50, 50]
    assert later.snapshot().table.columns[-1].default_expression == "k * 2"


def test_a_statement_that_ClickHouse_refuses_is_refused_with_its_reason(  # noqa: N802
    folders: Folders,
) -> None:
    wrong = folders.replaced("ORDER BY k", "ORDER BY nope")

    with pytest.raises(RefusedError, match=re.escape("Cannot open the parts in ")) as raised:
        wrong.snapshot()
    assert "nope" in raised.value.message

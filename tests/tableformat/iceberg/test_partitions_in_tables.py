"""Partitions of real tables: the ids are ClickHouse's, the values come from the rows."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal as Number
from typing import Any

import pytest

from tableformat.errors import RefusedError
from tableformat.iceberg.partition_proof import directory, partition_values, probe, value_texts
from tableformat.iceberg.partition_spec import DerivedSpec, chosen_spec, derive_spec
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.iceberg.spec_fields import parse_spec
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import parse_type
from tableformat.names import PartitionId
from tableformat.source import ProbedValue
from tests.strategies.mapping import column_of, table_of
from tests.support.embedded_clickhouse import EmbeddedClickHouse

Values = dict[str, tuple[Any, ...]]


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        yield started


def described(key: str, **types: str) -> MergeTreeTable:
    return table_of(
        *(column_of(name, parse_type(text)) for name, text in types.items()), partition_by=key
    )


def create(clickhouse: EmbeddedClickHouse, table: MergeTreeTable, rows: str) -> None:
    declared = ", ".join(f"{c.name} {c.type_text}" for c in table.columns)
    clickhouse.run(
        "DROP TABLE IF EXISTS t SYNC",
        f"CREATE TABLE t ({declared}) ENGINE = MergeTree PARTITION BY {table.engine.partition_by} "
        "ORDER BY tuple() SETTINGS allow_nullable_key = 1",
        f"INSERT INTO t VALUES {rows}",
    )


def probed(
    clickhouse: EmbeddedClickHouse, spec: DerivedSpec, columns: MappedColumns
) -> dict[str, tuple[ProbedValue, ...]]:
    """Measure the probes of every partition as a source does."""
    asked = [probe(f, columns) for f in spec.fields]
    inner = ", ".join(f"{p.sql} AS v{i}" for i, p in enumerate(asked))
    outer = ", ".join(
        f"arrayElement(arrayMap(v -> {p.text_sql}, [{end}(v{i})]), 1) AS {end}{i}"
        for i, p in enumerate(asked)
        for end in ("min", "max")
    )
    nulls = ", ".join(f"countIf(v{i} IS NULL) AS n{i}" for i in range(len(asked)))
    rows = clickhouse.rows(
        f"SELECT id, {outer}, {nulls} FROM (SELECT _partition_id AS id, {inner} FROM t AS __src) "
        "GROUP BY id"
    )
    count = len(asked)
    return {
        row[0]: tuple(
            ProbedValue(row[1 + 2 * i], row[2 + 2 * i], row[1 + 2 * count + i])
            for i in range(count)
        )
        for row in rows
    }


def values(clickhouse: EmbeddedClickHouse, spec: DerivedSpec, columns: MappedColumns) -> Values:
    return {
        name: partition_values(spec, columns, found, PartitionId(name))
        for name, found in probed(clickhouse, spec, columns).items()
    }


def test_null_keys_and_hashed_ids_have_the_values_of_their_rows(
    clickhouse: EmbeddedClickHouse,
) -> None:
    """ClickHouse names such a partition by a hash, and its text may be that of a string."""
    table = described("(s, n)", s="Nullable(String)", n="Nullable(Int32)")
    columns = map_columns(table)
    create(clickhouse, table, "(NULL, 1), ('ᴺᵁᴸᴸ', 1), ('', NULL), (NULL, NULL), ('a/b', -5)")
    spec = derive_spec(table, columns)

    found = values(clickhouse, spec, columns)

    assert set(found.values()) == {(None, 1), ("ᴺᵁᴸᴸ", 1), ("", None), (None, None), ("a/b", -5)}
    assert all(len(name) == 32 for name in found)
    assert {directory(spec, columns, one) for one in found.values()} == {
        "s=__HIVE_DEFAULT_PARTITION__/n=1",
        "s=ᴺᵁᴸᴸ/n=1",
        "s=__HIVE_DEFAULT_PARTITION__/n=__HIVE_DEFAULT_PARTITION__",
        "s=a%2Fb/n=-5",
    }


def test_a_null_time_is_a_partition_of_its_own(clickhouse: EmbeddedClickHouse) -> None:
    table = described("toYYYYMM(ts)", ts="Nullable(DateTime64(3, 'UTC'))")
    columns = map_columns(table)
    create(clickhouse, table, "('2024-01-05 00:00:00'), (NULL), ('1950-02-01 00:00:00')")

    found = values(clickhouse, derive_spec(table, columns), columns)

    assert sorted(found.values(), key=str) == [(-239,), (648,), (None,)]


def test_a_partition_of_another_zone_has_the_month_of_its_rows_or_is_refused(
    clickhouse: EmbeddedClickHouse,
) -> None:
    """A DateTime without a zone was cut into months by the zone of its day."""
    table = described("toYYYYMM(ts)", ts="DateTime")
    columns = map_columns(table)
    clickhouse.run("SET session_timezone = 'Asia/Tokyo'")
    create(clickhouse, table, "('2024-01-01 03:00:00'), ('2024-02-10 00:00:00')")
    clickhouse.run("SET session_timezone = 'UTC'")
    spec = derive_spec(table, columns)

    early = values(clickhouse, spec, columns)
    clickhouse.run("SET session_timezone = 'Asia/Tokyo'")
    clickhouse.run("INSERT INTO t VALUES ('2024-02-01 00:30:00')")
    clickhouse.run("SET session_timezone = 'UTC'")

    assert early == {"202401": (647,), "202402": (649,)}, "January there was December in UTC"
    with pytest.raises(RefusedError, match=r"partition 202402 .* 2024-01 and 2024-02"):
        values(clickhouse, spec, columns)


def test_a_time_beyond_the_year_9999_has_no_month(clickhouse: EmbeddedClickHouse) -> None:
    """ClickHouse clamps its month to 9999-12: a filter on the real year would not find the row."""
    table = described("toYYYYMM(ts)", ts="DateTime64(0, 'UTC')")
    columns = map_columns(table)
    create(clickhouse, table, "(reinterpret(toInt64(569034720000), 'DateTime64(0, ''UTC'')'))")

    for text in ("month(ts)", "year(ts)", "day(ts)", "ts"):
        spec = chosen_spec(table, parse_spec(text, columns))
        with pytest.raises(RefusedError, match=r"outside the years 1 to 9999.*without ts"):
            values(clickhouse, spec, columns)


def test_a_clamped_time_differs_from_the_last_month(clickhouse: EmbeddedClickHouse) -> None:
    table = described("toYYYYMM(ts)", ts="DateTime64(0, 'UTC')")
    columns = map_columns(table)
    create(
        clickhouse,
        table,
        "('9999-12-05 00:00:00'), (reinterpret(toInt64(253402300800), 'DateTime64(0, ''UTC'')'))",
    )

    with pytest.raises(RefusedError, match="9999-12 and a time outside the years 1 to 9999"):
        values(clickhouse, derive_spec(table, columns), columns)


def test_the_day_of_the_year_does_not_distinguish_the_last_days_of_2299(
    clickhouse: EmbeddedClickHouse,
) -> None:
    """ClickHouse gives both the number 364; read as day(d), the key would hide one of them."""
    key = "(toYear(d), toDayOfYear(d))"
    table = described(key, d="Date32")
    columns = map_columns(table)
    create(clickhouse, table, "('2299-12-30'), ('2299-12-31')")

    partitions = clickhouse.rows("SELECT DISTINCT _partition_id FROM t")

    assert partitions == [("2299-364",)]
    for refused in (key, "formatDateTime(d, '%Y-%j')"):
        with pytest.raises(RefusedError, match="no Iceberg transform"):
            derive_spec(described(refused, d="Date32"), columns)


def test_a_day_before_the_year_one_has_no_value(clickhouse: EmbeddedClickHouse) -> None:
    table = described("d", d="Date32")
    columns = map_columns(table)
    create(clickhouse, table, "(CAST(toInt32(-719163) AS Date32))")

    with pytest.raises(RefusedError, match="outside the years 1 to 9999"):
        values(clickhouse, derive_spec(table, columns), columns)


@pytest.mark.parametrize(
    ("of", "given", "shown", "text"),
    [
        ("Bool", "true", "c=true", "true"),
        ("Int8", "-5", "c=-5", "-5"),
        ("UInt64", "18446744073709551615", "c=18446744073709551615", "18446744073709551615"),
        ("Decimal(38, 20)", "'1e-20'", "c=0.00000000000000000001", "0.00000000000000000001"),
        ("Int128", "'-7'", "c=-7", "-7"),
        ("String", "'a b:ü'", "c=a%20b%3Aü", "a b:ü"),
        ("FixedString(3)", "'a'", "c=610000", "610000"),
        ("Enum8('it''s' = 1)", "1", "c=it%27s", "it's"),
        ("Date", "'2024-02-29'", "c=2024-02-29", "2024-02-29"),
        ("Date32", "'1900-01-01'", "c=1900-01-01", "1900-01-01"),
        (
            "DateTime('Asia/Tokyo')",
            "'2024-01-01 09:00:00'",
            "c=2024-01-01T00%3A00%3A00%2B00%3A00",
            "2024-01-01T00:00:00+00:00",
        ),
        ("IPv4", "'10.0.0.1'", "c=10.0.0.1", "10.0.0.1"),
        ("IPv6", "'::1'", "c=%3A%3A1", "::1"),
        ("Time", "'-01:00:00'", "c=-3600", "-3600"),
        ("LowCardinality(Nullable(String))", "''", "c=__HIVE_DEFAULT_PARTITION__", ""),
    ],
)
def test_every_value_has_a_directory_that_people_can_read(
    clickhouse: EmbeddedClickHouse, of: str, given: str, shown: str, text: str
) -> None:
    table = described("c", c=of)
    columns = map_columns(table)
    create(clickhouse, table, f"({given})")
    spec = derive_spec(table, columns)

    ((_, value),) = values(clickhouse, spec, columns).items()

    assert directory(spec, columns, value) == shown
    assert value_texts(spec, columns, value) == (text,)


@pytest.mark.parametrize("of", ["Decimal(19, 2)", "Decimal(38, 10)", "UInt64"])
def test_wide_decimals_are_truncated_to_the_digit(clickhouse: EmbeddedClickHouse, of: str) -> None:
    """ClickHouse's own function takes 18 digits."""
    table = described("c", c=of)
    columns = map_columns(table)
    whole = of == "UInt64"
    create(clickhouse, table, "('12345')" if whole else "('-12345.67')")
    spec = chosen_spec(table, parse_spec("truncate(1000, c)", columns))

    ((_, (value,)),) = values(clickhouse, spec, columns).items()

    unscaled = 10 ** (2 if "19" in of else 10)
    wanted = Number(12000) if whole else Number(-((1234567 * unscaled // 100 + 999) // 1000 * 1000))
    assert value * (1 if whole else unscaled) == wanted


def test_a_wide_decimal_below_its_least_multiple_is_refused(clickhouse: EmbeddedClickHouse) -> None:
    table = described("c", c="Decimal(38, 0)")
    columns = map_columns(table)
    create(clickhouse, table, f"('-{'9' * 38}')")
    spec = chosen_spec(table, parse_spec("truncate(7, c)", columns))

    with pytest.raises(RefusedError, match="cannot hold"):
        values(clickhouse, spec, columns)


@pytest.mark.parametrize("spec", ["bucket(16, c)", "hour(c)", "c", "month(c)"])
def test_a_chosen_spec_takes_what_iceberg_allows_of_a_time(
    clickhouse: EmbeddedClickHouse, spec: str
) -> None:
    table = described("toMonday(c)", c="DateTime('Asia/Kolkata')")
    columns = map_columns(table)
    create(clickhouse, table, "('2024-01-03 00:00:00')")
    chosen = chosen_spec(table, parse_spec(spec, columns))

    ((_, (value,)),) = values(clickhouse, chosen, columns).items()

    instant = 1704220200 * 1_000_000
    field = chosen.fields[0]
    assert value == field.iceberg.transform(columns.columns[0].type)(instant)

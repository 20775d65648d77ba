"""What ClickHouse allows and Iceberg does not is found in the data, and shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableformat.export.slice_sql import data_checks
from tableformat.export.slices import DataCheck
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import parse_type
from tableformat.messages import plain
from tests.strategies.conversions import converted_samples
from tests.strategies.mapping import Sample, column_of, samples, table_of
from tests.support.embedded_clickhouse import EmbeddedClickHouse

LONG, WHOLE, TWICE = "greatest long", "whole microseconds", "key twice"
PLACE, YEARS = "more digits than the chosen decimal", "years 0 to 9999"
FARTHEST = 92 * 10**17
TICKS = "reinterpret(toInt64({}), 'DateTime64({})')"
NANO = (TICKS.format(1, 9), TICKS.format(2, 9))


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        started.run(
            "SET allow_suspicious_low_cardinality_types = 1",
            "SET enable_time_time64_type = 1",
            "SET allow_suspicious_variant_types = 1",
        )
        yield started


def checks_of(type_text: str, conversion: str = "") -> tuple[DataCheck, ...]:
    table = table_of(Column("c", parse_type(type_text), type_text))
    return data_checks(map_columns(table, {"c": conversion} if conversion else {}))


def found(
    clickhouse: EmbeddedClickHouse, checks: tuple[DataCheck, ...], sql: str
) -> list[tuple[DataCheck, str]]:
    """Return the checks that the value of `sql` breaks, each with its sample."""
    return [
        (check, rows[0][0])
        for check in checks
        if (
            rows := clickhouse.rows(
                f"SELECT {check.sample_sql} FROM (SELECT {sql} AS c) AS __src WHERE {check.bad_sql}"
            )
        )
    ]


@pytest.mark.parametrize(
    ("type_text", "conversion", "bad", "what", "always"),
    [
        ("String", "", "unhex('61FF')", "UTF-8", False),
        ("LowCardinality(Nullable(String))", "", "CAST(unhex('FF') AS {})", "UTF-8", False),
        ("Map(String, Array(String))", "", "map('a', ['b', unhex('FF')])", "UTF-8", False),
        ("Array(Tuple(a Int8, b String))", "", "CAST([(1, unhex('FF'))] AS {})", "UTF-8", False),
        ("Decimal(5, 0)", "", "CAST(toDecimal32(2000000, 0) * 1000 AS {})", "digits", False),
        ("Decimal(2, 2)", "", "CAST(-toDecimal32('5.25', 2) AS {})", "digits", False),
        ("Array(Decimal(5, 2))", "", "CAST([-toDecimal32('1000', 2)] AS {})", "digits", False),
        ("UInt64", "long", "toUInt64(9223372036854775808)", LONG, False),
        ("Array(Nullable(UInt64))", "long", "CAST([18446744073709551615] AS {})", LONG, False),
        ("DateTime64(0)", "", TICKS.format(10**14, 0), "64 bits of microseconds", False),
        ("DateTime64(3)", "", TICKS.format(-(10**16), 3), "64 bits of microseconds", False),
        ("DateTime64(9)", "", TICKS.format(-1, 9), WHOLE, True),
        ("Nullable(DateTime64(7))", "", f"CAST({TICKS.format(15, 7)} AS {{}})", WHOLE, True),
        ("Array(DateTime64(8))", "", f"[{TICKS.format(1, 8)}]", WHOLE, True),
        ("Map(String, Int8)", "", "map('a', 1, 'b', 2, 'a', 3)", TWICE, True),
        ("Array(Map(Int8, Map(Int8, Int8)))", "", "[map(1, map(7, 1, 7, 2))]", TWICE, True),
        ("Nested(a Int8, b String)", "", "[(1, unhex('FF'))]", "UTF-8", False),
        ("SimpleAggregateFunction(any, String)", "", "unhex('FF')", "UTF-8", False),
        ("FixedString(2)", "string", "CAST(unhex('00FF') AS FixedString(2))", "UTF-8", False),
        ("Array(FixedString(1))", "string", "CAST([unhex('FF')] AS {})", "UTF-8", False),
        ("Int128", "decimal(38,0)", f"toInt128('-1{'0' * 38}')", "38 digits", True),
        ("UInt256", "decimal(38,0)", f"toUInt256('1{'0' * 38}')", "38 digits", True),
        ("UInt256", "decimal(38,0)", "bitNot(toUInt256(0))", "38 digits", True),
        ("Array(Int256)", "decimal(38,0)", f"[toInt256('1{'0' * 60}')]", "38 digits", True),
        ("Decimal(50, 5)", "decimal(38,4)", "CAST('1.00001' AS {})", PLACE, True),
        ("Decimal(50, 5)", "decimal(38,10)", f"CAST('-1{'0' * 28}' AS {{}})", PLACE, True),
        ("Decimal(50, 5)", "decimal(38,38)", "CAST('-1' AS {})", PLACE, True),
        ("Decimal(5, 0)", "decimal(6,0)", "CAST(toDecimal32(9e6, 0) AS {})", "digits", False),
        ("Map(DateTime64(9), Int8)", "truncate", f"map({NANO[0]}, 1, {NANO[1]}, 2)", TWICE, True),
        ("DateTime64(7)", "string", TICKS.format(FARTHEST, 7), YEARS, True),
        ("DateTime64(8)", "string", TICKS.format(-FARTHEST, 8), YEARS, True),
        ("DateTime64(0)", "string", TICKS.format(253402300800, 0), YEARS, True),
        ("DateTime64(3)", "string", TICKS.format(-62167219200001, 3), YEARS, True),
        ("Variant(String, UInt8)", "", "CAST(unhex('FF') AS {})", "UTF-8", False),
        ("Variant(String, UInt8)", "json", "CAST(unhex('FF') AS {})", "UTF-8", False),
        ("Variant(Array(String), UInt64)", "", "CAST([unhex('FF')] AS {})", "UTF-8", False),
        ("Variant(Int8, UInt64)", "long", f"CAST(toUInt64({2**63}) AS {{}})", LONG, False),
        ("Dynamic", "json", "CAST(unhex('FF') AS Dynamic)", "UTF-8", False),
        ("Dynamic", "struct", "CAST(unhex('FF') AS Dynamic)", "UTF-8", False),
        ("Geometry", "wkb", "CAST(CAST([(0, 0)] AS Ring) AS Geometry)", "a Ring", False),
    ],
)  # fmt: skip
def test_a_value_that_iceberg_cannot_hold_is_found(
    clickhouse: EmbeddedClickHouse,
    type_text: str,
    conversion: str,
    bad: str,
    what: str,
    always: bool,  # noqa: FBT001  a column of the table above
) -> None:
    """Found beforehand where the file would be written without a word, else when it failed."""
    checks = checks_of(type_text, conversion)

    broken = found(clickhouse, checks, bad.format(type_text))

    assert [(c.always, what in c.what) for c, _ in broken] == [(always, True)]
    assert broken[0][1]
    assert broken[0][0].way_round


@pytest.mark.parametrize(
    "type_text",
    [
        "Nullable(Decimal(1, 1))",
        "Nullable(Decimal(5, 2))",
        "Array(Nullable(Decimal(1, 1)))",
        "Nullable(FixedString(2)) as string",
        "Nullable(Int256) as decimal(38,0)",
        "Nullable(Decimal(50, 5)) as decimal(38,38)",
        "Nullable(DateTime64(7)) as string",
        "Nullable(DateTime64(9))",
        "Nullable(JSON)",
        "Variant(String, UInt64) as long",
        "Variant(String, UInt64) as json",
        "Dynamic as struct",
        "Geometry as wkb",
    ],
)
def test_a_null_breaks_no_rule(clickhouse: EmbeddedClickHouse, type_text: str) -> None:
    """Harm prevented: NULLs are shown as the values that a file could not hold."""
    of, _, conversion = type_text.partition(" as ")
    null = f"CAST({'[NULL]' if of.startswith('Array') else 'NULL'} AS {of})"

    assert checks_of(of, conversion)
    assert not found(clickhouse, checks_of(of, conversion), null)


@settings(max_examples=60, deadline=None)
@given(sample=st.one_of(samples(), converted_samples()))
def test_values_that_iceberg_holds_pass_every_check(
    clickhouse: EmbeddedClickHouse, sample: Sample
) -> None:
    """A false alarm would refuse a good partition."""
    table = table_of(column_of("c", sample.type))
    checks = data_checks(map_columns(table, {"c": sample.conversion} if sample.conversion else {}))
    if not checks:
        return

    ((bad,),) = clickhouse.rows(
        f"SELECT countIf({' OR '.join(f'({c.bad_sql})' for c in checks)}) FROM "
        f"(SELECT arrayElement([{', '.join(sample.sql)}], number + 1) AS c "
        f"FROM numbers({len(sample.sql)})) AS __src"
    )

    assert bad == 0


def test_a_string_that_is_not_text_is_shown_in_hex_with_the_way_round(
    clickhouse: EmbeddedClickHouse,
) -> None:
    ((check, sample),) = found(clickhouse, checks_of("String"), "unhex('61FF')")

    assert sample == "61FF"
    assert plain(check.way_round) == "export the bytes with --convert c=binary"


@pytest.mark.parametrize("type_text", ["Int32", "UUID", "FixedString(3)", "DateTime64(6)", "Date"])
def test_a_type_that_always_fits_needs_no_check(type_text: str) -> None:
    assert checks_of(type_text) == ()


def test_bytes_need_no_check_when_they_are_exported_as_bytes() -> None:
    assert checks_of("String", "binary") == ()

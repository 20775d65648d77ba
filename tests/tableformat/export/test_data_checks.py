"""What ClickHouse allows and Iceberg does not is found in the data, and shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableformat.export.data_checks import data_checks
from tableformat.export.slices import DataCheck
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.table import Column
from tableformat.mergetree.type_text import parse_type
from tests.embedded_clickhouse import EmbeddedClickHouse
from tests.strategies_mapping import Sample, column_of, samples, table_of

LONG, WHOLE, TWICE = "greatest long", "whole microseconds", "key twice"
TICKS = "reinterpret(toInt64({}), 'DateTime64({})')"


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        started.run(
            "SET allow_suspicious_low_cardinality_types = 1", "SET enable_time_time64_type = 1"
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
    ["Nullable(Decimal(1, 1))", "Nullable(Decimal(5, 2))", "Array(Nullable(Decimal(1, 1)))"],
)
def test_a_null_breaks_no_rule(clickhouse: EmbeddedClickHouse, type_text: str) -> None:
    """Harm prevented: NULLs are shown as the values that a file could not hold."""
    null = f"CAST({'[NULL]' if type_text.startswith('Array') else 'NULL'} AS {type_text})"

    assert not found(clickhouse, checks_of(type_text, ""), null)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_values_that_iceberg_holds_pass_every_check(
    clickhouse: EmbeddedClickHouse, data: st.DataObject
) -> None:
    """A false alarm would refuse a good partition."""
    sample: Sample = data.draw(samples())
    table = table_of(column_of("c", sample.type))
    checks = data_checks(map_columns(table))
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
    assert check.way_round == "export the bytes with --convert c=binary"


@pytest.mark.parametrize("type_text", ["Int32", "UUID", "FixedString(3)", "DateTime64(6)", "Date"])
def test_a_type_that_always_fits_needs_no_check(type_text: str) -> None:
    assert checks_of(type_text) == ()


def test_bytes_need_no_check_when_they_are_exported_as_bytes() -> None:
    assert checks_of("String", "binary") == ()

"""The text of types, read and written as ClickHouse does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import UsageError
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    Nullable,
    Simple,
    SimpleAggregateFunction,
    Time64,
    Tuple,
    Unknown,
    parse_type,
    render_type,
)
from tests.strategies.types import NASTY, data_types
from tests.tableformat.mergetree.clickhouse_process import ClickHouse

# What is written in CREATE TABLE; system.columns may show another form of the same type.
COLUMNS = (
    *("Int8", "Int16", "Int32", "Int64", "Int128", "Int256", "UInt8", "UInt64", "UInt256"),
    *(
        "Float32",
        "Float64",
        "BFloat16",
        "Bool",
        "String",
        "FixedString(16)",
        "UUID",
        "IPv4",
        "IPv6",
    ),
    *(
        "Decimal(9, 2)",
        "Decimal32(3)",
        "Decimal64(4)",
        "Decimal128(5)",
        "Decimal256(70)",
        "Decimal",
    ),
    *("Date", "Date32", "DateTime", "DateTime('Asia/Tokyo')", "DateTime64", "DateTime64(3, 'UTC')"),
    *("DateTime64(9)", "Time", "Time64(6)", "IntervalDay", "IntervalNanosecond"),
    "Enum8('b' = 1, 'a' = -128)",
    r"Enum16('q\'q' = 1, 'b\\s' = 2, 'new\nline' = -300, 'a`b\"c' = 4, 'ü😀' = 5, '' = 6)",
    r"Enum8('\0z' = 1, '\x07\e\b\f\r\t' = 2, 'it''s), (' = 3, '\d\%' = 4)",
    "Nullable(Int8)",
    "Nullable(DateTime64(6, 'Europe/Berlin'))",
    "Nullable(Enum8('a' = 1))",
    "LowCardinality(Nullable(String))",
    "LowCardinality(FixedString(16))",
    "Array(Array(Nullable(UInt8)))",
    "Tuple(UInt8, String)",
    "Tuple(a UInt8, `b c` String)",
    "Tuple()",
    "Tuple(`1` Int8, `x.y` Int8, `a\\`b` Int8, `ba\\\\ck` Int8, `new\\nline` Int8, `ü` Int8)",
    "Tuple(`from` Int8, `SELECT` Int8, `nan` Int8, `INF` Int8, `true` Int8, `all` Int8)",
    "Tuple(Tuple Int8, UInt8 Int8, not Int8, interval Int8, key Int8, _ Int8)",
    "Tuple(a Tuple(b Tuple(c Int8, d Enum8('x)' = 1))))",
    "Nullable(Tuple(a Int8))",
    "Map(String, Array(Tuple(k Int8, v Nullable(String))))",
    "Map(LowCardinality(String), UInt64)",
    "Nested(a UInt8, `b b` String, n Nested(c Int8))",
    "Variant(String, UInt8, Array(Int8))",
    *("Point", "Ring", "Polygon", "MultiPolygon", "LineString", "MultiLineString", "Geometry"),
    "SimpleAggregateFunction(sum, UInt64)",
    "SimpleAggregateFunction(groupArrayArray(5), Array(String))",
    "AggregateFunction(quantiles(0.5, 0.9), Float64)",
    "AggregateFunction(1, sumMap, Array(UInt8), Array(UInt64))",
    *("JSON", "Dynamic", "Dynamic(max_types=8)", "QBit(Float32, 8)"),
    r"JSON(max_dynamic_paths=8, a.b UInt32, SKIP c.d, SKIP REGEXP 'x\'y')",
)
SETTINGS = (
    "enable_time_time64_type = 1, allow_suspicious_low_cardinality_types = 1, flatten_nested = 0, "
    "allow_experimental_nullable_tuple_type = 1"
)


def test_every_type_that_clickhouse_shows_is_read_and_written_the_same(
    clickhouse: ClickHouse,
) -> None:
    """The type that we remember for a column is the one that the user sees in ClickHouse."""
    columns = ", ".join(f"c{i} {text}" for i, text in enumerate(COLUMNS))
    clickhouse.rows(
        f"CREATE TABLE types ({columns}) ENGINE = MergeTree ORDER BY tuple() SETTINGS {SETTINGS}"
    )

    shown = [
        str(row[0])
        for row in clickhouse.rows(
            "SELECT type FROM system.columns WHERE database = 'default' AND table = 'types' "
            "ORDER BY position"
        )
    ]

    assert len(shown) == len(COLUMNS)
    assert [render_type(parse_type(text)) for text in shown] == shown
    assert not [text for text in shown if isinstance(parse_type(text), Unknown)]


@given(data_types)
def test_a_type_that_is_written_is_read_as_the_same_type(of: DataType) -> None:
    assert parse_type(render_type(of)) == of


@given(data_types, st.text(" \n\t", max_size=3))
def test_white_space_between_the_parts_means_nothing(of: DataType, space: str) -> None:
    assert parse_type(f"{space}{render_type(of)}{space}") == of


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("Decimal64(4)", Decimal(18, 4)),
        ("Decimal256(0)", Decimal(76, 0)),
        ("Decimal(5)", Decimal(5, 0)),
        ("Decimal", Decimal(10, 0)),
        ("DateTime", DateTime(None)),
        ("DateTime32", DateTime(None)),
        ("DateTime64", DateTime64(3, None)),
        ("Time64", Time64(3)),
        ("DateTime64( 3,'UTC' )", DateTime64(3, "UTC")),
        (r"Enum8('it''s' = -1, 'a\tb' = 2)", Enum(8, (("it's", -1), ("a\tb", 2)))),
        (r"Enum8('\xc3\xbc' = 1)", Enum(8, (("ü", 1),))),
        ("Tuple(`a``b` Int8)", Tuple((("a`b", Simple("Int8")),))),
        ('Tuple("a b" Int8)', Tuple((("a b", Simple("Int8")),))),
        (
            "SimpleAggregateFunction(anyLast, Nullable(String))",
            SimpleAggregateFunction("anyLast", Nullable(Simple("String"))),
        ),
    ],
)
def test_other_ways_to_write_a_type_are_read_too(text: str, of: DataType) -> None:
    assert parse_type(text) == of


@pytest.mark.parametrize("text", ["UUID2", "uint8", "Int8(3)", "Object('json')", "New(a (b), ')')"])
def test_an_unknown_name_keeps_its_text_and_is_no_error(text: str) -> None:
    """A new release of ClickHouse must not stop the export of tables that do not use its types."""
    assert parse_type(text) == Unknown(text)
    assert parse_type(f"Array({text})") == Array(Unknown(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it ends where the name of a type"),
        ("Array(Int8", r"it ends where '\)' is expected"),
        ("Array", r"it ends where '\(' after Array"),
        ("Array()", r"'\)' at position 7 where the name of a type"),
        ("Int8)", r"'\)' at position 5 where the end"),
        ("Int8 String", "'String' at position 6 where the end"),
        ("Enum8('a')", r"'\)' at position 10 where '='"),
        ("Enum8('a = 1", "the quote ' at position 7 is not closed"),
        ("Enum8('a' = x)", "'x' at position 13 where a code"),
        ("Decimal(1.5, 2)", "'1.5' at position 9 where a precision"),
        ("FixedString(-1)", "'-' at position 13 where a length"),
        ("Map(Int8)", r"'\)' at position 9 where ','"),
        ("Tuple(a Int8, String)", r"'\)' at position 21 where the name of a type"),
        ("Nested()", r"'\)' at position 8 where the name of an element"),
        ("DateTime(UTC)", "'UTC' at position 10 where a time zone in quotes"),
        ("JSON(a", "it ends where a closing bracket"),
        ("Array(" * 200 + "Int8" + ")" * 200, "nested deeper than 100 levels"),
    ],
)
def test_a_malformed_type_is_an_error_that_says_where(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_type(text)


@given(st.text(NASTY + "aA1 Int8Tuple", max_size=30))
def test_no_text_makes_anything_but_a_type_or_an_error(text: str) -> None:
    try:
        of = parse_type(text)
    except UsageError:
        return
    assert parse_type(render_type(of)) == of

"""The SELECT list and its order, as ClickHouse reads them."""

from __future__ import annotations

import pytest

from tableformat.errors import InternalError
from tableformat.export.slice_sql import order_by, select_list
from tableformat.mergetree.table import Engine
from tableformat.mergetree.types import Simple, Unknown, parse_type
from tableformat.mergetree.wire_types import WIRE_SETTINGS, wire_expression
from tableformat.names import quote_identifier
from tests.strategies.mapping import column_of
from tests.support.embedded_clickhouse import EmbeddedClickHouse


@pytest.mark.parametrize(
    ("of", "sql"),
    [
        ("Int32", "x"),
        ("Array(LowCardinality(String))", "x"),
        ("FixedString(3)", "x"),
        ("UUID", "x"),
        ("UInt64", "CAST(x AS Decimal(20, 0))"),
        ("Nullable(UInt64)", "CAST(x AS Nullable(Decimal(20, 0)))"),
        ("LowCardinality(Nullable(Date))", "CAST(x AS Nullable(Date32))"),
        ("DateTime('Asia/Tokyo')", "CAST(x AS DateTime64(6, 'UTC'))"),
        ("Enum8('a' = 1)", "CAST(x AS String)"),
        ("Map(String, UInt64)", "CAST(x AS Map(String, Decimal(20, 0)))"),
        ("Tuple(UInt8, Date)", "CAST(x AS Tuple(_1 UInt8, _2 Date32))"),
        ("Nullable(Point)", "CAST(x AS Nullable(Tuple(x Float64, y Float64)))"),
        ("Array(IPv4)", "CAST(x AS Array(String))"),
        ("SimpleAggregateFunction(sum, Int64)", "x"),
        ("Nested(a UInt8, b String)", "x"),
        ("Nullable(JSON)", "if(isNull(x), NULL, toJSONString(assumeNotNull(x)))"),
        ("Array(JSON)", "arrayMap(x0 -> toJSONString(x0), x)"),
    ],
)
def test_a_value_leaves_clickhouse_as_its_wire_type(of: str, sql: str) -> None:
    """One CAST of the whole value if that is enough, else an expression inside it."""
    assert wire_expression("x", parse_type(of)) == sql


def test_a_number_that_shall_be_long_leaves_unsigned_so_that_nothing_wraps() -> None:
    assert wire_expression("x", parse_type("Array(UInt64)"), conversion="long") == "x"


def test_a_type_without_mapping_never_reaches_clickhouse() -> None:
    with pytest.raises(InternalError, match="UUID2"):
        wire_expression("x", Unknown("UUID2"))


def test_an_aggregate_functions_state_never_leaves_without_a_conversion() -> None:
    """Harm prevented: Arrow would hand over the address of the state in memory."""
    with pytest.raises(InternalError, match="AggregateFunction"):
        wire_expression("x", parse_type("Array(AggregateFunction(uniq, String))"))


DRIFT = [
    "output_format_arrow_date_as_uint16 = 1",
    "output_format_arrow_string_as_string = 0",
    "output_format_arrow_fixed_string_as_fixed_byte_array = 0",
    "output_format_arrow_low_cardinality_as_dictionary = 1",
    "output_format_arrow_uuid_as_fixed_byte_array = 1",
    "output_format_arrow_unsupported_types_as_binary = 1",
    "output_format_json_quote_64bit_integers = 1",
    "output_format_json_quote_64bit_floats = 1",
    "output_format_json_quote_decimals = 1",
    "output_format_json_quote_denormals = 0",
    "output_format_json_escape_forward_slashes = 1",
    "output_format_json_named_tuples_as_objects = 0",
    "output_format_json_skip_null_value_in_named_tuples = 1",
    "output_format_json_map_as_array_of_tuples = 1",
    "output_format_decimal_trailing_zeros = 1",
    "date_time_output_format = 'iso'",
]
DRIFTING = {
    "Date": "'2024-01-02'",
    "String": "'a'",
    "FixedString(2)": "'ab'",
    "LowCardinality(String)": "'a'",
    "UUID": "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'",
    "Decimal(50, 5)": "'1.5'",
    "JSON": """'{"big":9223372036854775807,"d":1.5,"s":"x/y"}'""",
    "Variant(Float64, Tuple(a Nullable(UInt8), b Map(String, UInt8)))": (
        "CAST((NULL, map('k', 1)) AS Tuple(a Nullable(UInt8), b Map(String, UInt8)))"
    ),
    "Dynamic": "CAST(nan AS Float64)",
    "DateTime64(9, 'UTC')": "'2024-01-02 03:04:05.000000001'",
}
CONVERTED = {"Dynamic": "json", "DateTime64(9, 'UTC')": "string"}


def test_the_form_of_a_value_does_not_depend_on_the_defaults_of_a_server() -> None:
    """Harm prevented: after an upgrade dates are numbers, labels codes, and JSON another text."""
    values = ", ".join(
        f"CAST({sql} AS {of}) AS {quote_identifier(of)}" for of, sql in DRIFTING.items()
    )
    wire = ", ".join(
        wire_expression(quote_identifier(of), parse_type(of), conversion=CONVERTED.get(of, ""))
        + f" AS c{i}"
        for i, of in enumerate(DRIFTING)
    )
    query = f"SELECT {wire} FROM (SELECT {values})"
    with EmbeddedClickHouse() as clickhouse:
        clickhouse.run("SET allow_suspicious_variant_types = 1")
        settled = clickhouse.arrow(f"{query} SETTINGS {WIRE_SETTINGS}")
        without = clickhouse.arrow(query)
        for setting in DRIFT:
            clickhouse.run(f"SET {setting}")
            # A setting that is not in the list of this page would be found here.
            again = clickhouse.arrow(f"{query} SETTINGS {WIRE_SETTINGS}")
            assert again.equals(settled), setting
        drifted = clickhouse.arrow(query)

    assert not drifted.equals(without)
    assert settled.column("c6").to_pylist() == ['{"big":9223372036854775807,"d":1.5,"s":"x/y"}']
    assert settled.column("c7").to_pylist() == [
        {
            "type": "Tuple(a Nullable(UInt8), b Map(String, UInt8))",
            "Float64": None,
            "Tuple_a_Nullable_UInt8_b_Map_String_UInt8": {"a": None, "b": [("k", 1)]},
        }
    ]
    assert settled.column("c8").to_pylist() == ['"nan"']


def test_every_column_is_qualified_so_that_no_alias_replaces_it_in_order_by() -> None:
    """ORDER BY `id` would mean the cast value, and ClickHouse would sort all rows again."""
    columns = [column_of("id", Simple("UInt64")), column_of("a`b", Simple("String"))]

    assert select_list(columns) == (
        "CAST(`__src`.`id` AS Decimal(20, 0)) AS `id`, `__src`.`a\\`b` AS `a\\`b`"
    )
    assert select_list(columns, {"id": "long"}).startswith("`__src`.`id` AS `id`")


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (Engine("MergeTree"), ""),
        (Engine("MergeTree", order_by="tuple()"), ""),
        (
            Engine("MergeTree", order_by="(a, toDate(ts) DESC)"),
            "{a}, toDate({ts}) DESC NULLS FIRST",
        ),
        (Engine("MergeTree", primary_key="a"), "{a}"),
    ],
)
def test_rows_are_selected_in_the_order_of_parts(engine: Engine, text: str) -> None:
    plain = order_by(engine).replace("`", "")

    assert plain == text.format(a="__src.a", ts="__src.ts")


def test_a_column_may_have_any_name_that_a_query_of_ours_uses() -> None:
    """Harm prevented: a Tuple column named like the table's alias hides other columns."""
    columns = [column_of("t", parse_type("Tuple(b String)")), column_of("b", Simple("Bool"))]

    assert "`t`.`b`" not in select_list(columns)

"""The SELECT list and its order, as ClickHouse reads them."""

from __future__ import annotations

import pytest

from tableformat.errors import InternalError
from tableformat.mergetree.table import Engine
from tableformat.mergetree.type_text import parse_type
from tableformat.mergetree.types import Simple
from tableformat.mergetree.wire_types import wire_expression
from tableformat.parquet.wire import order_by, select_list
from tests.strategies_mapping import column_of


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
    ],
)
def test_a_value_leaves_clickhouse_as_its_wire_type(of: str, sql: str) -> None:
    assert wire_expression("x", parse_type(of)) == sql


def test_a_number_that_shall_become_long_leaves_unsigned_so_that_nothing_wraps() -> None:
    assert wire_expression("x", parse_type("Array(UInt64)"), conversion="long") == "x"


def test_a_type_without_mapping_never_reaches_clickhouse() -> None:
    with pytest.raises(InternalError, match="IPv4"):
        wire_expression("x", Simple("IPv4"))


def test_every_column_is_qualified_so_that_its_alias_never_takes_its_place_in_order_by() -> None:
    """ORDER BY `id` would mean the cast value, and ClickHouse would sort everything anew."""
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
def test_rows_are_asked_for_in_the_order_in_which_parts_hold_them(
    engine: Engine, text: str
) -> None:
    plain = order_by(engine).replace("`", "")

    assert plain == text.format(a="__src.a", ts="__src.ts")


def test_a_column_may_have_any_name_that_a_query_of_ours_uses() -> None:
    """Harm prevented: a Tuple column called like the table's alias answers for its neighbours."""
    columns = [column_of("t", parse_type("Tuple(b String)")), column_of("b", Simple("Bool"))]

    assert "`t`.`b`" not in select_list(columns)

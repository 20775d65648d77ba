"""Whether it is seen that a merge would leave one row or another, by the order of insertion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.clickhouse.embedded import OwnClickHouse
from tableformat.errors import UnsupportedError
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.final_merge import (
    RowMerge,
    ambiguous_rows,
    ambiguous_values,
    merged_columns,
    order_checks,
    refuse_merge,
)
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.types import parse_type
from tableformat.names import TableName

_MERGE = RowMerge("OPTIMIZE TABLE FINAL", merges=True)
_REPLACING = "ReplacingMergeTree(v) ORDER BY (mergeberg_key, n)"
_VERSIONED = "VersionedCollapsingMergeTree(s, v) ORDER BY (mergeberg_key, n)"


@pytest.fixture(scope="module")
def held() -> Iterator[OwnClickHouse]:
    with OwnClickHouse("unclear") as connection:
        connection.command(
            "CREATE TABLE default.t (mergeberg_key Float64, n Nullable(Float64), v Float64, s Int8)"
            " ENGINE = MergeTree ORDER BY tuple()"
        )
        yield connection


def is_unclear(held: OwnClickHouse, engine: str, rows: str) -> bool:
    """Put rows into a table, and ask whether a merge of them is unclear."""
    held.command("TRUNCATE TABLE default.t")
    held.command(f"INSERT INTO default.t VALUES {rows}")
    return bool(held.rows(ambiguous_rows(_MERGE, parse_engine(engine), "default.t")))


@pytest.mark.parametrize(
    ("engine", "rows"),
    [
        (_REPLACING, "(1, NULL, 5, 1), (1, NULL, 5, 1)"),
        (_REPLACING, "(0, 1, 5, 1), (-0., 1, 5, 1)"),
        (_REPLACING, "(nan, NULL, 5, 1), (-nan, NULL, 5, 1)"),
        (_REPLACING, "(1, 1, nan, 1), (1, 1, nan, 1), (1, 1, 7, 1)"),
        (_REPLACING, "(1, 1, 0, 1), (1, 1, -0., 1), (1, 1, -3, 1)"),
        ("ReplacingMergeTree ORDER BY tuple()", "(1, 1, 5, 1), (2, 1, 6, 1)"),
        (_VERSIONED, "(0, 1, 5, 1), (-0., 1, 5, 1)"),
        (_VERSIONED, "(1, 1, nan, 1), (1, 1, -nan, 1), (1, 1, nan, -1)"),
        (_VERSIONED, "(1, 1, 5, 1), (1, 1, 5, 2), (1, 1, 5, -1)"),
        (_VERSIONED, "(1, 1, 5, 0), (1, 1, 5, -1)"),
    ],
)
def test_what_a_merge_takes_for_one_key_is_one_key(
    held: OwnClickHouse, engine: str, rows: str
) -> None:
    """Harm prevented: a row of the latest version goes, and an older one stays."""
    assert is_unclear(held, engine, rows)


@pytest.mark.parametrize(
    ("engine", "rows"),
    [
        (_REPLACING, "(1, NULL, 5, 1), (1, NULL, 5, 1), (1, NULL, 6, 1), (1, 0, 7, 1)"),
        (_REPLACING, "(1, 1, nan, 1), (1, 1, 7, 1), (1, 1, 7, 1), (0, 1, 1, 1), (-0., 1, 2, 1)"),
        ("ReplacingMergeTree(v) ORDER BY tuple()", "(1, 1, 5, 1), (2, 1, 6, 1)"),
        (_VERSIONED, "(1, 1, 5, 1), (1, 1, 5, -1), (1, 1, 6, -1), (2, 1, 6, 2)"),
        ("VersionedCollapsingMergeTree(s, v) ORDER BY tuple()", "(1, 1, 5, 1), (2, 1, 5, -1)"),
    ],
)
def test_rows_of_which_only_one_can_stay_are_clear(
    held: OwnClickHouse, engine: str, rows: str
) -> None:
    assert not is_unclear(held, engine, rows)


_SUMMING = "SummingMergeTree ORDER BY k"
_OF_TUPLES = "allow_tuple_element_aggregation"
_AGGREGATING = "AggregatingMergeTree ORDER BY k"
_COALESCING = "CoalescingMergeTree ORDER BY k"


def is_unclear_value(held: OwnClickHouse, engine: str, of: str, values: str) -> bool:
    """Merge values of one key, and check whether the result depends on their order."""
    columns = (("k", "Float64"), ("v", of))
    table = MergeTreeTable(
        TableName("db", "t"),
        "",
        "",
        parse_engine(engine),
        tuple(Column(name, parse_type(text), text) for name, text in columns),
        "",
        "",
        "UTC",
    )
    held.command("DROP TABLE IF EXISTS default.values")
    held.command(
        f"CREATE TABLE default.values (k Float64, v {of}) ENGINE = MergeTree ORDER BY tuple()"
    )
    rows = ", ".join(f"(1, {one})" for one in values.split(", "))
    held.command(f"INSERT INTO default.values VALUES {rows}")
    asked = order_checks(merged_columns(table))
    (found,) = held.rows(ambiguous_values(asked, table.engine, "default.values"))
    return any(found)


@pytest.mark.parametrize(
    ("engine", "of", "values"),
    [
        (_SUMMING, "Float64", "0.1, 0.7, 0.3"),
        (_SUMMING, "Float64", "1e300, -1e300, 1"),
        (_SUMMING, "Float32", "16777216, 1, 1"),
        (_SUMMING, "Float64", "nan, 1"),
        (_SUMMING, "Bool", "true, true"),
        (_SUMMING, "String", "'a', 'b'"),
        ("SummingMergeTree(w) ORDER BY k", "Int32", "1, 2"),
        ("SummingMergeTree ORDER BY (k, v % 2)", "Int32", "1, 3"),
        (_AGGREGATING, "SimpleAggregateFunction(anyLast, Nullable(String))", "'a', 'b', NULL"),
        (_AGGREGATING, "SimpleAggregateFunction(max, Float64)", "0, -0."),
        (_AGGREGATING, "SimpleAggregateFunction(groupArrayArray, Array(Int32))", "[1], [2]"),
        (_COALESCING, "Nullable(Int32)", "1, NULL, 2"),
        (_COALESCING, "Int32", "1, 0"),
    ],
)
def test_values_that_another_order_gives_are_not_taken(
    held: OwnClickHouse, engine: str, of: str, values: str
) -> None:
    """Harm prevented: a value in the lake that ClickHouse does not have."""
    assert is_unclear_value(held, engine, of, values)


@pytest.mark.parametrize(
    ("engine", "of", "values"),
    [
        (_SUMMING, "Float64", "0.1, 0.7"),
        (_SUMMING, "Float64", "0.25, 3, -1000000.5"),
        (_SUMMING, "Float64", "0.1, 0.1, 0.1"),
        (_SUMMING, "Nullable(Float32)", "0.1, NULL, 0.7, NULL"),
        (_SUMMING, "Decimal(5, 2)", "999.99, 0.01, -3"),
        (_SUMMING, "Nullable(Int8)", "127, 1, NULL"),
        (_SUMMING, "String", "'a', 'a'"),
        (_AGGREGATING, "SimpleAggregateFunction(anyLast, Nullable(String))", "'a', NULL, 'a'"),
        (_AGGREGATING, "SimpleAggregateFunction(max, LowCardinality(String))", "'b', 'a', ''"),
        (_AGGREGATING, "SimpleAggregateFunction(min, Float64)", "0, 5, -3"),
        (_COALESCING, "Nullable(Int32)", "1, NULL, 1"),
    ],
)
def test_values_that_every_order_gives_are_taken(
    held: OwnClickHouse, engine: str, of: str, values: str
) -> None:
    assert not is_unclear_value(held, engine, of, values)


@pytest.mark.parametrize(
    ("rows", "unclear"),
    [
        ("(1, 1, 5, 1), (1, 1, 6, 1), (1, 1, 5, -1)", True),
        ("(1, 1, 5, 1), (1, 1, 5, -1)", True),
        ("(1, 1, 5, 1), (1, 1, 5, 2)", True),
        ("(1, 1, 5, 1), (1, 1, 5, 1), (1, 1, 6, -1)", False),
        ("(1, 1, 5, -1), (1, 1, 5, -1), (2, 1, 7, 1)", False),
    ],
)
def test_states_and_cancels_go_where_every_order_leaves_the_same(
    held: OwnClickHouse, rows: str, *, unclear: bool
) -> None:
    """Harm prevented: a state that was cancelled, or one that is not there any more."""
    engine = parse_engine("CollapsingMergeTree(s) ORDER BY (mergeberg_key, n)")
    columns = [Column(name, parse_type("Float64"), "") for name in ("mergeberg_key", "n", "v", "s")]
    held.command("TRUNCATE TABLE default.t")
    held.command(f"INSERT INTO default.t VALUES {rows}")
    assert bool(held.rows(ambiguous_rows(_MERGE, engine, "default.t", columns))) is unclear


def test_a_setting_refuses_a_merge_only_if_it_is_on_in_any_form() -> None:
    def is_refused(value: str) -> bool:
        try:
            refuse_merge(_MERGE, parse_engine(f"{_SUMMING} SETTINGS {_OF_TUPLES} = {value}"))
        except UnsupportedError:
            return True
        return False

    forms = ("0", "false", "'FALSE'", "1", "true", "'TRUE'")
    assert [form for form in forms if is_refused(form)] == ["1", "true", "'TRUE'"]


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("GraphiteMergeTree('rollup') ORDER BY k", "configuration and on the time"),
        (f"{_SUMMING} SETTINGS {_OF_TUPLES} = 1", "members of tuples"),
        (f"{_SUMMING} SETTINGS {_OF_TUPLES} = true", "members of tuples"),
    ],
)
def test_merges_by_what_no_row_says_are_refused(engine: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as refused:
        refuse_merge(_MERGE, parse_engine(engine))
    assert refused.value.code == 48

"""Whether it is seen that a merge leaves other values when rows were inserted in another order.

What ClickHouse leaves is asked of itself: it merges the same rows in every order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from random import Random

import pytest

from catalog.clickhouse.own import OwnClickHouse
from catalog.clickhouse.partition_values import KeyTables
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.row_merge import RowMerge, unclear_rows
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.type_text import parse_type
from tableformat.mergetree.unclear_values import Question, unclear_values
from tableformat.mergetree.value_merge import merged_columns
from tableformat.names import TableName, quote_identifier

MERGE = RowMerge("OPTIMIZE TABLE FINAL", merges=True)
MOST = 3
WHOLE = ("0", "1", "-1", "5", "127")
FLOATS = ("0.", "-0.", "1", "-1", "0.1", "0.25", "1e30", "-1e30", "nan", "inf", "3", "0.7")
TEXTS = ("''", "'a'", "'b'")
MAPS = ("map('a', 1)", "map('a', -1, 'b', 2)", "map('b', 0)", "map()", "map('c', 5)")


Values = dict[str, dict[str, list[str]]]


def _maybe(*values: str) -> tuple[str, ...]:
    return ("NULL", *values)


@dataclass(frozen=True)
class Case:
    """An engine, and columns of a table beside its key: name, type, values."""

    engine: str
    columns: tuple[tuple[str, str, tuple[str, ...]], ...]
    clear: float
    """At least this share of columns and keys is not refused."""


CASES = {
    "summing": Case(
        "SummingMergeTree",
        (
            ("i8", "Int8", WHOLE),
            ("u64", "UInt64", ("0", "1", "18446744073709551615")),
            ("i256", "Int256", WHOLE),
            ("d", "Decimal(5, 2)", ("0", "999.99", "-999.99")),
            ("n", "Nullable(Int32)", _maybe(*WHOLE)),
            ("lc", "LowCardinality(UInt16)", ("0", "1", "65535")),
            ("f", "Float64", FLOATS),
            ("f32", "Nullable(Float32)", _maybe(*FLOATS, "16777216")),
            ("b", "BFloat16", FLOATS),
            ("ok", "Bool", ("true", "false")),
            ("s", "String", TEXTS),
            ("a", "Array(Int32)", ("[]", "[1]")),
            ("e", "Enum8('x' = 1, 'y' = 2)", ("'x'", "'y'")),
            ("t", "DateTime", ("0", "1")),
            ("m", "Map(String, Int64)", MAPS),
            ("tu", "Tuple(Int32, Int32)", ("(1, 2)", "(0, 0)")),
            ("x", "SimpleAggregateFunction(max, Int64)", WHOLE),
            ("in_key", "Int32", ("0", "1")),
        ),
        0.6,
    ),
    "summing some": Case(
        "SummingMergeTree((v, n))",
        (
            ("v", "Int32", WHOLE),
            ("n", "Nullable(Int64)", _maybe(*WHOLE)),
            ("w", "Int32", ("0", "1")),
            ("x", "SimpleAggregateFunction(max, Int64)", ("0", "1")),
            ("s", "String", TEXTS),
        ),
        0.6,
    ),
    "summing zeros": Case("SummingMergeTree", (("v", "Int8", ("0", "1", "-1")),), 1.0),
    "summing maps": Case(
        "SummingMergeTree",
        (
            ("hitsMap.k", "Array(UInt8)", ("[1, 2]", "[2, 1]")),
            ("hitsMap.v", "Array(Int32)", ("[1, -1]", "[-1, 5]", "[0, 0]")),
            ("twoMap.kID", "Array(UInt8)", ("[1, 2]", "[2, 1]")),
            ("twoMap.otherKey", "Array(UInt8)", ("[1, 1]", "[2, 1]")),
            ("twoMap.v", "Array(Int32)", ("[1, -1]", "[0, 0]")),
            ("floatMap.k", "Array(UInt8)", ("[1]", "[2]")),
            ("floatMap.v", "Array(Float64)", ("[0.1]", "[-0.7]", "[1e30]")),
            ("other.k", "Array(UInt8)", ("[1]", "[2]")),
        ),
        0.3,
    ),
    "aggregating": Case(
        "AggregatingMergeTree",
        (
            ("s", "SimpleAggregateFunction(sum, Int64)", WHOLE),
            ("sd", "SimpleAggregateFunction(sum, Nullable(Decimal(38, 2)))", _maybe("1.5", "-1.5")),
            ("sf", "SimpleAggregateFunction(sum, Float64)", FLOATS),
            ("so", "SimpleAggregateFunction(sumWithOverflow, UInt8)", ("1", "255")),
            ("least", "SimpleAggregateFunction(min, Nullable(String))", _maybe(*TEXTS)),
            ("most", "SimpleAggregateFunction(max, Float64)", FLOATS),
            ("f32", "SimpleAggregateFunction(min, Nullable(Float32))", _maybe(*FLOATS)),
            ("d", "SimpleAggregateFunction(max, DateTime64(3))", ("0", "1")),
            ("some", "SimpleAggregateFunction(any, Nullable(Int32))", _maybe("1", "2")),
            ("last", "SimpleAggregateFunction(anyLast, String)", TEXTS),
            ("lc", "SimpleAggregateFunction(anyLast, LowCardinality(Nullable(String)))",
             _maybe(*TEXTS)),
            ("bits", "SimpleAggregateFunction(groupBitXor, UInt16)", ("0", "1", "3")),
            ("ands", "SimpleAggregateFunction(groupBitAnd, UInt16)", ("0", "1", "3")),
            ("sums", "SimpleAggregateFunction(sumMap, Map(String, Int64))", MAPS),
            ("most_of", "SimpleAggregateFunction(maxMap, Map(String, Int64))", MAPS),
            ("sets", "SimpleAggregateFunction(groupUniqArrayArray, Array(Int32))",
             ("[1, 2]", "[2, 3]")),
            ("lists", "SimpleAggregateFunction(groupArrayArray, Array(Int32))", ("[1]", "[2]")),
            ("plain", "String", TEXTS),
            ("in_key", "SimpleAggregateFunction(sum, Int64)", ("2", "4")),
        ),
        0.6,
    ),
    "coalescing": Case(
        "CoalescingMergeTree",
        (
            ("n", "Nullable(Int32)", _maybe("1", "2")),
            ("s", "LowCardinality(Nullable(String))", _maybe(*TEXTS)),
            ("f", "Nullable(Float64)", _maybe("0.", "-0.", "nan")),
            ("v", "Int32", ("0", "1")),
            ("a", "Array(Int32)", ("[]", "[1]")),
            ("m", "Map(String, Int64)", MAPS),
            ("x", "SimpleAggregateFunction(sum, Int64)", WHOLE),
            ("xMap.k", "Array(UInt8)", ("[1]", "[2]")),
            ("xMap.v", "Array(UInt8)", ("[1]", "[2]")),
        ),
        0.4,
    ),
    "coalescing some": Case(
        "CoalescingMergeTree(n)",
        (
            ("n", "Nullable(Int32)", _maybe("1", "2")),
            ("o", "Nullable(Int32)", _maybe("1", "2")),
        ),
        0.4,
    ),
    "collapsing": Case(
        "CollapsingMergeTree(sign)",
        (("sign", "Int8", ("1", "-1")), ("v", "UInt8", ("0", "1"))),
        0.2,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def held() -> Iterator[OwnClickHouse]:
    with OwnClickHouse("orders") as connection:
        yield connection


def table_of(case: Case) -> MergeTreeTable:
    """Return the table of a case; a column `in_key` is read by its sorting key."""
    order = "(k, in_key % 2)" if any(name == "in_key" for name, *_ in case.columns) else "k"
    columns = (("k", "Int32"), *((name, of) for name, of, _ in case.columns))
    return MergeTreeTable(
        TableName("db", "t"),
        "",
        "",
        parse_engine(f"{case.engine} ORDER BY {order}"),
        tuple(Column(name, parse_type(of), of) for name, of in columns),
        "",
        "26.9",
        "UTC",
    )


def drawn(case: Case, random: Random, keys: int) -> list[tuple[int, list[str]]]:
    """Return rows of some keys: each with its number among those of its key."""
    rows = []
    for key in range(keys):
        first = [random.choice(values) for *_, values in case.columns]
        for number in range(random.randint(2, MOST)):
            # Often the same as in the row before.
            values = [
                f"CAST({one if random.random() < 0.5 else random.choice(values)} AS {of})"
                for one, (_, of, values) in zip(first, case.columns, strict=True)
            ]
            rows.append((number, [str(key), *values]))
    return rows


def merged(
    held: OwnClickHouse, table: MergeTreeTable, rows: list[tuple[int, list[str]]], order: list[int]
) -> Values:
    """Insert the rows of each key in an order, merge them, and return what is left."""
    held.command("TRUNCATE TABLE default.merged")
    placed = sorted(rows, key=lambda row: order.index(row[0]))
    values = ", ".join(f"({', '.join(row)})" for _, row in placed)
    held.command(f"INSERT INTO default.merged SETTINGS optimize_on_insert = 0 VALUES {values}")
    held.command("OPTIMIZE TABLE default.merged FINAL SETTINGS optimize_throw_if_noop = 1")
    return values_in(held, table, "default.merged")


def values_in(held: OwnClickHouse, table: MergeTreeTable, name: str) -> Values:
    """Return the bytes of the values of each column, by key."""
    names = [c.name for c in table.columns]
    shown = ", ".join(f"hex(formatRow('RowBinary', {quote_identifier(n)}))" for n in names)
    found: Values = {}
    for key, *values in held.rows(f"SELECT toString(k), {shown} FROM {name} ORDER BY ALL"):
        of_key = found.setdefault(str(key), {name: [] for name in names})
        for column, value in zip(names, values, strict=True):
            of_key[column].append(str(value))
    return found


@pytest.mark.parametrize(
    ("seed", "keys"),
    [(1, 8), *(pytest.param(n, 40, marks=pytest.mark.soak) for n in range(2, 12))],
)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_not_refused_is_the_same_in_every_order(
    held: OwnClickHouse, case: Case, seed: int, keys: int
) -> None:
    """Harm prevented: a value that ClickHouse would not have left, because rows came otherwise."""
    table, random = table_of(case), Random(seed)  # noqa: S311  chance, no secret
    held.command("DROP TABLE IF EXISTS default.merged")
    held.command("DROP TABLE IF EXISTS default.rows")
    tables = KeyTables(held, table)
    tables.make("default.rows", table.columns, "")
    tables.make_merging("default.merged", table.columns, merges=True)
    rows = drawn(case, random, keys)
    values = ", ".join(f"({', '.join(row)})" for _, row in rows)
    held.command(f"INSERT INTO default.rows VALUES {values}")

    every = [merged(held, table, rows, list(order)) for order in permutations(range(MOST))]

    names = [name for name, *_ in case.columns]
    given = values_in(held, table, "default.rows")
    kept = {one.column.name for one in merged_columns(table) if not one.computed}
    clear = 0
    for key in map(str, range(keys)):
        unclear = unclear_of(held, table, f"(SELECT * FROM default.rows WHERE k = {key})")
        left = [one.get(key) for one in every]
        for name in names:
            # The columns of a structure are merged together.
            if any(one.partition(".")[0] == name.partition(".")[0] for one in unclear):
                continue
            clear += 1
            found = {tuple(one[name]) for one in left if one is not None}
            assert len(found) <= 1, (name, found, [row for _, row in rows if row[0] == key])
            if name in kept:
                assert all(set(one) <= set(given[key][name]) for one in found), (name, found)
        if not unclear:
            assert all(one == left[0] for one in left), (left, key)
    assert clear >= case.clear * keys * len(names)


def unclear_of(held: OwnClickHouse, table: MergeTreeTable, rows: str) -> set[str]:
    """Return the columns that are refused of some rows."""
    asked = [Question((one,), one.hangs) for one in merged_columns(table)]
    if asked:
        (found,) = held.rows(unclear_values(asked, table.engine, rows))
        return {one.names[0] for one, hangs in zip(asked, found, strict=True) if hangs}
    sql = unclear_rows(MERGE, table.engine, rows, table.columns)
    return {c.name for c in table.columns} if held.rows(sql) else set()

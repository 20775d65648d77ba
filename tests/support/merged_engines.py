"""Tables of the engines that make one row of those of a sorting key, with rows by chance."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

__all__ = ["CASES", "MOST", "Case", "drawn"]

MOST = 3
"""Rows of a key."""
WHOLE = ("0", "1", "-1", "5", "127")
FLOATS = ("0.", "-0.", "1", "-1", "0.1", "0.25", "1e30", "-1e30", "nan", "inf", "3", "0.7")
TEXTS = ("''", "'a'", "'b'")
MAPS = ("map('a', 1)", "map('a', -1, 'b', 2)", "map('b', 0)", "map()", "map('c', 5)")


def _maybe(*values: str) -> tuple[str, ...]:
    return ("NULL", *values)


@dataclass(frozen=True)
class Case:
    """An engine, and columns of a table in addition to its key: name, type, values."""

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

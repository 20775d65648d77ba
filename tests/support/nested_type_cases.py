"""Cases as in `type_cases.py`, of types that hold other values: containers and shapes."""

from __future__ import annotations

from decimal import Decimal as D  # noqa: N817  stands in every other line
from typing import Final

from tests.support.type_cases import NULL, case

__all__ = ["CONTAINERS", "SHAPES"]

_U: Final = "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'"
_HEX: Final = _U.strip("'").replace("-", "")
_BACK: Final = "reinterpret(toInt64(-1), 'DateTime64(9, \\'UTC\\')')"
_JUST: Final = "1969-12-31 23:59:59.999999"


def _xy(*numbers: float) -> list[dict[str, float]]:
    return [
        {"x": float(x), "y": float(y)} for x, y in zip(numbers[::2], numbers[1::2], strict=True)
    ]


CONTAINERS: Final = [
    case(
        "Array(UInt64)",
        "list<decimal(20, 0)>",
        {"[]": [], "[0, 18446744073709551615]": [D(0), D(2**64 - 1)]},
    ),
    case("Array(UInt64)", "list<long>", {"[1, 9223372036854775807]": [1, 2**63 - 1]}, "long"),
    case("Array(Nullable(Int8))", "list<int>", {"[1, NULL]": [1, None]}),
    case(
        "Array(Array(LowCardinality(Nullable(String))))",
        "list<list<string>>",
        {"[['a', NULL], []]": [["a", None], []]},
    ),
    case("Array(Nullable(UUID))", "list<fixed[16]>", {f"[{_U}, NULL]": [_HEX, None]}, "binary"),
    case("Array(IPv6)", "list<string>", {"['::1']": ["::1"]}),
    case("Array(IntervalDay)", "list<long>", {"[toIntervalDay(3)]": [3]}),
    case("Array(Nullable(Enum8('a' = 1, 'b' = 2)))", "list<string>", {"['b', NULL]": ["b", None]}),
    case(
        "Array(Nullable(Enum8('a' = 1, 'b' = 2)))", "list<int>", {"['b', NULL]": [2, None]}, "long"
    ),
    case(
        "Array(Nullable(DateTime64(9, 'UTC')))",
        "list<timestamptz>",
        {f"[{_BACK}, NULL]": [_JUST, None]},
        "truncate",
    ),
    case("Array(Int256)", "list<decimal(38, 0)>", {"['-5', '7']": [D(-5), D(7)]}, "decimal(38,0)"),
    case("Array(FixedString(2))", "list<string>", {"['a\\0']": ["a\0"]}, "string"),
    case(
        "Tuple(a UInt8, `b c` Nullable(String))",
        "",
        {"(1, NULL)": {"a": 1, "b c": None}, "(2, 'x')": {"a": 2, "b c": "x"}},
    ),
    case("Tuple(UInt8, Date)", "", {"(1, '2024-01-02')": {"_1": 1, "_2": "2024-01-02"}}),
    case(
        "Tuple(a Tuple(b UUID, c Array(Nullable(UUID))))",
        "",
        {f"tuple(({_U}, [NULL, {_U}]))": {"a": {"b": _HEX, "c": [None, _HEX]}}},
        "binary",
    ),
    case(
        "Nullable(Tuple(a UInt64, b Nullable(JSON)))",
        "",
        {
            NULL: None,
            "(1, '{\"x\":1}')": {"a": D(1), "b": '{"x":1}'},
            "(2, NULL)": {"a": D(2), "b": None},
        },
    ),
    case(
        "Map(String, UInt64)",
        "map<string, decimal(20, 0)>",
        {
            "map()": [],
            "map('a', 1, 'b', 18446744073709551615)": [("a", D(1)), ("b", D(2**64 - 1))],
        },
    ),
    case(
        "Map(UUID, Array(Nullable(UUID)))",
        "map<fixed[16], list<fixed[16]>>",
        {f"map({_U}, [{_U}, NULL])": [(_HEX, [_HEX, None])]},
        "binary",
    ),
    case(
        "Map(LowCardinality(String), Nullable(IPv4))",
        "map<string, long>",
        {"map('a', '0.0.0.9', 'b', NULL)": [("a", 9), ("b", None)]},
        "long",
    ),
    case(
        "Map(IPv6, IntervalHour)",
        "map<string, long>",
        {"map('::1', toIntervalHour(2))": [("::1", 2)]},
    ),
    case(
        "Map(DateTime64(9, 'UTC'), Int8)",
        "map<timestamptz, int>",
        {f"map({_BACK}, 1)": [(_JUST, 1)]},
        "truncate",
    ),
    case(
        "Nested(a UInt8, `b` Nullable(IPv4))",
        "",
        {"[(1, NULL), (2, '1.2.3.4')]": [{"a": 1, "b": None}, {"a": 2, "b": "1.2.3.4"}], "[]": []},
    ),
    case("Nested(a UInt8, j JSON)", "", {"[(1, '{\"k\":[1,2]}')]": [{"a": 1, "j": '{"k":[1,2]}'}]}),
    case(
        "Array(Tuple(n Array(Tuple(u UInt64))))",
        "",
        {"[tuple([tuple(5)])]": [{"n": [{"u": 5}]}]},
        "long",
    ),
    case(
        "Nested(n Nested(u UUID))",
        "",
        {f"[tuple([tuple({_U})])]": [{"n": [{"u": _HEX}]}]},
        "binary",
    ),
    case("SimpleAggregateFunction(sum, UInt64)", "decimal(20, 0)", {"3": D(3)}),
    case(
        "SimpleAggregateFunction(anyLast, Nullable(IPv4))",
        "string",
        {"'1.1.1.1'": "1.1.1.1", NULL: None},
    ),
    case(
        "SimpleAggregateFunction(groupArrayArray, Array(UUID))",
        "list<fixed[16]>",
        {f"[{_U}]": [_HEX]},
        "binary",
    ),
]
SHAPES: Final = [
    case("Point", "", {"(1, 2)": _xy(1, 2)[0], "(nan, inf)": {"x": "nan", "y": float("inf")}}),
    case("Point", "", {"(1, 2)": _xy(1, 2)[0]}, "struct"),
    case("Point", "binary", {"(1, 2)": "0101000000000000000000f03f0000000000000040"}, "wkb"),
    case("Nullable(Point)", "", {NULL: None, "(1, 2)": _xy(1, 2)[0]}),
    case(
        "Nullable(Point)",
        "binary",
        {NULL: None, "(1, 2)": "0101000000000000000000f03f0000000000000040"},
        "wkb",
    ),
    case("Ring", "", {"[(0, 0), (1, 1)]": _xy(0, 0, 1, 1), "[]": []}),
    case("Ring", "", {"[(1, 1)]": _xy(1, 1)}, "struct"),
    case("LineString", "", {"[(0, 0), (1, 1)]": _xy(0, 0, 1, 1)}),
    case("LineString", "binary", {"[]": "010200000000000000"}, "wkb"),
    case("MultiPoint", "", {"[(0, 0), (1, 1)]": _xy(0, 0, 1, 1)}),
    case("MultiPoint", "binary", {"[]": "010400000000000000"}, "wkb"),
    case("Polygon", "", {"[[(0, 0), (1, 1)], []]": [_xy(0, 0, 1, 1), []]}),
    case("Polygon", "binary", {"[]": "010300000000000000"}, "wkb"),
    case("MultiLineString", "", {"[[(0, 0), (1, 1)]]": [_xy(0, 0, 1, 1)]}),
    case("MultiLineString", "binary", {"[]": "010500000000000000"}, "wkb"),
    case("MultiPolygon", "", {"[[[(0, 0), (1, 1)]]]": [[_xy(0, 0, 1, 1)]]}),
    case("MultiPolygon", "binary", {"[]": "010600000000000000"}, "wkb"),
    case("Array(Point)", "", {"[(1, 2)]": _xy(1, 2)}),
    case(
        "Array(Point)",
        "list<binary>",
        {"[(1, 2)]": ["0101000000000000000000f03f0000000000000040"]},
        "wkb",
    ),
]

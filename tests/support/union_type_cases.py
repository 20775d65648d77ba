"""Cases as in `type_cases.py`, of types whose values differ in type, of vectors and of states."""

from __future__ import annotations

from decimal import Decimal as D  # noqa: N817  stands in every other line
from typing import Any, Final

from tests.support.type_cases import NULL, Case, case

__all__ = ["STATES", "UNIONS"]

_U: Final = "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'"
_POINT: Final = {"x": 1.0, "y": 2.0}
_WKB: Final = "0101000000000000000000f03f0000000000000040"
_LIST: Final = "Variant(String, UInt64, Array(UInt64))"
_MIXED: Final = "Variant(UUID, Tuple(a UInt8, b Nullable(Date)), QBit(Float32, 2))"
_OBJECT: Final = """'{"b":1,"a":{"u":18446744073709551615,"f":1.5,"s":"x/y"}}'"""
_TUPLE: Final = "Tuple_a_UInt8_b_Nullable_Date"


def _geometry(kind: str, value: Any) -> dict[str, Any]:
    shapes = (
        *("LineString", "MultiLineString", "MultiPoint", "MultiPolygon"),
        *("Point", "Polygon", "Ring"),
    )
    return {"type": kind} | {s: None if s == "Point" else [] for s in shapes} | {kind: value}


_GEOMETRY: Final = {
    "CAST((1, 2) AS Point)": _geometry("Point", _POINT),
    "CAST([(0, 0), (1, 1)] AS Ring)": _geometry(
        "Ring", [{"x": 0.0, "y": 0.0}, {"x": 1.0, "y": 1.0}]
    ),
    NULL: None,
}
UNIONS: Final = [
    case("Geometry", "", _GEOMETRY),
    case("Geometry", "", _GEOMETRY, "struct"),
    case("Geometry", "string", {"CAST((1, 2) AS Point)": "[1,2]", NULL: None}, "json"),
    case("Geometry", "string", {"CAST([(0, 0)] AS Ring)": "[[0,0]]"}, "string"),
    case(
        "Geometry",
        "binary",
        {"CAST((1, 2) AS Point)": _WKB, NULL: None},
        "wkb",
    ),
    case(
        _LIST,
        "",
        {
            f"CAST('x' AS {_LIST})": {
                "type": "String",
                "Array_UInt64": [],
                "String": "x",
                "UInt64": None,
            },
            f"CAST(toUInt64('18446744073709551615') AS {_LIST})": {
                "type": "UInt64",
                "Array_UInt64": [],
                "String": None,
                "UInt64": D(2**64 - 1),
            },
            f"CAST([toUInt64(7)] AS {_LIST})": {
                "type": "Array(UInt64)",
                "Array_UInt64": [D(7)],
                "String": None,
                "UInt64": None,
            },
            NULL: None,
        },
    ),
    case(
        "Variant(String, UInt64)",
        "",
        {
            "CAST(toUInt64(5) AS Variant(String, UInt64))": {
                "type": "UInt64",
                "String": None,
                "UInt64": 5,
            }
        },
        "long",
    ),
    case(
        "Variant(String, UInt64)",
        "",
        {"CAST('a' AS Variant(String, UInt64))": {"type": "String", "String": "a", "UInt64": None}},
        "struct",
    ),
    case(
        "Variant(String, Float64)",
        "string",
        {
            "CAST('a/b' AS Variant(String, Float64))": '"a/b"',
            "CAST(CAST(nan AS Float64) AS Variant(String, Float64))": '"nan"',
            NULL: None,
        },
        "json",
    ),
    case(
        "Variant(String, UInt64)",
        "string",
        {
            f"CAST(toUInt64({2**64 - 1}) AS Variant(String, UInt64))": f"{2**64 - 1}",
        },
        "string",
    ),
    case(
        _MIXED,
        "",
        {
            f"CAST((1, NULL)::Tuple(a UInt8, b Nullable(Date)) AS {_MIXED})": {
                "type": "Tuple(a UInt8, b Nullable(Date))",
                "QBit_Float32_2": [],
                _TUPLE: {"a": 1, "b": None},
                "UUID": None,
            },
            f"CAST(toUUID({_U}) AS {_MIXED})": {
                "type": "UUID",
                "QBit_Float32_2": [],
                _TUPLE: None,
                "UUID": _U.strip("'"),
            },
            f"CAST(CAST([1, 2] AS QBit(Float32, 2)) AS {_MIXED})": {
                "type": "QBit(Float32, 2)",
                "QBit_Float32_2": [1.0, 2.0],
                _TUPLE: None,
                "UUID": None,
            },
        },
    ),
    case(
        "Array(Variant(IPv4, Map(String, UInt8)))",
        "",
        {
            "[CAST(toIPv4('1.2.3.4') AS Variant(IPv4, Map(String, UInt8))), NULL]": [
                {"type": "IPv4", "IPv4": "1.2.3.4", "Map_String_UInt8": []},
                None,
            ]
        },
    ),
    case(
        "Variant(LowCardinality(String), UInt8)",
        "",
        {
            "CAST(toLowCardinality('x') AS Variant(LowCardinality(String), UInt8))": {
                "type": "LowCardinality(String)",
                "LowCardinality_String": "x",
                "UInt8": None,
            }
        },
    ),
    case(
        "Map(String, Variant(Bool, Map(String, UInt8)))",
        "",
        {
            "map('k', CAST(map('a', 1) AS Variant(Bool, Map(String, UInt8))))": [
                ("k", {"type": "Map(String, UInt8)", "Bool": None, "Map_String_UInt8": [("a", 1)]})
            ],
        },
    ),
    case(
        "Dynamic",
        "string",
        {"5": "5", "'a\"/'": '"a\\"/"', NULL: None, "CAST(nan AS Float64)": '"nan"'},
        "json",
    ),
    case("Dynamic", "string", {"[1, 2]": "[1,2]", NULL: None}, "string"),
    case(
        "Dynamic(max_types=2)",
        "",
        {
            "toUInt8(5)": {"type": "UInt8", "json": "5"},
            "toUInt64('18446744073709551615')": {"type": "UInt64", "json": "18446744073709551615"},
            NULL: None,
        },
        "struct",
    ),
    case(
        "Array(Dynamic)",
        "",
        {"[CAST(1 AS Dynamic), NULL]": [{"type": "UInt8", "json": "1"}, None]},
        "struct",
    ),
    case(
        "Map(String, Dynamic)",
        "map<string, string>",
        {"map('a', CAST(1 AS Dynamic), 'b', NULL)": [("a", "1"), ("b", None)]},
        "json",
    ),
    case(
        "JSON",
        "string",
        {
            "'{}'": "{}",
            _OBJECT: '{"a":{"f":1.5,"s":"x/y","u":18446744073709551615},"b":1}',
        },
    ),
    case("JSON", "string", {"'{\"a\":1}'": '{"a":1}'}, "json"),
    case(
        "JSON(a Nullable(Float64), max_dynamic_paths=1)",
        "string",
        {'\'{"a":null,"z":[1,"x"]}\'': '{"a":null,"z":[1,"x"]}'},
        "string",
    ),
    case("Nullable(JSON)", "string", {NULL: None, "'{\"a\":[null]}'": '{"a":[null]}'}),
    case("Array(JSON)", "list<string>", {"['{\"a\":1}']": ['{"a":1}']}),
    case(
        "QBit(Float32, 3)",
        "list<float>",
        {
            "[1, 2, 3]": [1.0, 2.0, 3.0],
            "[0.1, nan, inf]": [0.10000000149011612, "nan", float("inf")],
        },
    ),
    case("QBit(Float64, 2)", "list<double>", {"[0.1, -0.0]": [0.1, -0.0]}),
    case("QBit(BFloat16, 2)", "list<float>", {"[1.5, 2]": [1.5, 2.0]}),
    case("QBit(Float32, 2)", "string", {"[1.5, 2]": "[1.5,2]"}, "string"),
    case("Nullable(QBit(Float32, 2))", "string", {NULL: None, "[1.5, 2]": "[1.5,2]"}, "string"),
    case(
        "Array(QBit(Float32, 2))",
        "list<list<float>>",
        {"[CAST([1, 2] AS QBit(Float32, 2))]": [[1.0, 2.0]]},
    ),
]
STATES: Final[list[Case]] = [
    case(
        "AggregateFunction(sum, UInt64)",
        "decimal(20, 0)",
        {"sumState(toUInt64(5))": D(5)},
        "finalize",
    ),
    case(
        "AggregateFunction(sum, UInt64)",
        "binary",
        {"sumState(toUInt64(5))": "0500000000000000"},
        "state",
    ),
    case("AggregateFunction(uniq, String)", "decimal(20, 0)", {"uniqState('a')": D(1)}, "finalize"),
    case(
        "AggregateFunction(avg, Float64)", "double", {"avgState(toFloat64(2.5))": 2.5}, "finalize"
    ),
    case(
        "AggregateFunction(quantiles(0.5, 0.9), Float64)",
        "list<double>",
        {"quantilesState(0.5, 0.9)(toFloat64(2))": [2.0, 2.0]},
        "finalize",
    ),
    case(
        "AggregateFunction(groupArray, IPv4)",
        "list<string>",
        {"groupArrayState(toIPv4('1.2.3.4'))": ["1.2.3.4"]},
        "finalize",
    ),
    case(
        "AggregateFunction(max, Nullable(Int8))",
        "int",
        {"maxState(CAST(NULL AS Nullable(Int8)))": None, "maxState(CAST(3 AS Nullable(Int8)))": 3},
        "finalize",
    ),
    case(
        "AggregateFunction(sumMap, Array(UInt8), Array(UInt64))",
        "",
        {"sumMapState([toUInt8(1)], [toUInt64(2)])": {"_1": [1], "_2": [D(2)]}},
        "finalize",
    ),
    case(
        "Array(AggregateFunction(sum, UInt64))",
        "list<decimal(20, 0)>",
        {"[sumState(toUInt64(5))]": [D(5)]},
        "finalize",
    ),
    case(
        "Tuple(s AggregateFunction(sum, UInt64), n UInt8)",
        "",
        {"tuple(sumState(toUInt64(5)), 1)": {"s": "0500000000000000", "n": 1}},
        "state",
    ),
]
"""Cases of the states of aggregate functions."""

"""Every mapped type as a column: one line each, with extremes, empties and NULL.

A type that is new in `tableformat/iceberg/schema.py` gets its line here; every reader is then
asked for it, and the recorded results (`recorded.json`) are rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["COLUMNS", "NESTED_UUID", "Column", "rows"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a source table.

    Attributes:
        name: as in ClickHouse and in the lake.
        type: ClickHouse's text.
        values: SQL of the values, repeated until every row has one.
        truth: SQL of what the lake must hold, `{}` being the column; its own value where its kind
            stays as it is. Independent of the mapping that is tested.
        ordered: whether `<` means the same on both sides.
    """

    name: str
    type: str
    values: tuple[str, ...]
    truth: str = "{}"
    ordered: bool = True


def _integers(bits: int, *, signed: bool) -> tuple[str, ...]:
    if not signed:
        return "0", "1", str(2**bits - 1), str(2 ** (bits - 1))
    return "0", "-1", str(-(2 ** (bits - 1))), str(2 ** (bits - 1) - 1)


_FLOATS = ("0", "-0.", "1.5", "-2.25", "inf", "-inf", "nan")
_TEXTS = ("''", "'a'", "'ab'", "'ü'", "'🦆'", "'it''s'", "'a\\\\b'", "'a\\0b'", "repeat('z', 40)")
_TIMES = (
    "'1970-01-01 00:00:00.000000'",
    "'1969-12-31 23:59:59.999999'",
    "'2024-02-29 12:34:56.789012'",
    "'1900-01-01 00:00:00.000001'",
    "'2299-12-31 23:59:59.999999'",
)
_SECONDS = "0", "1", "1709210096", "4294967295"
_DATES = "'1970-01-01'", "'2024-02-29'", "'2149-06-06'"
_UUIDS = (
    "'00000000-0000-0000-0000-000000000000'",
    "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'",
    "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
)
_POINTS = "(0, 0)", "(-1.5, 2.25)", "(inf, -0.0)"
_TEXT = "toString({})"

COLUMNS: Final = (
    Column("int8", "Int8", _integers(8, signed=True)),
    Column("int16", "Int16", _integers(16, signed=True)),
    Column("int32", "Int32", _integers(32, signed=True)),
    Column("int64", "Int64", _integers(64, signed=True)),
    Column("uint8", "UInt8", _integers(8, signed=False)),
    Column("uint16", "UInt16", _integers(16, signed=False)),
    Column("uint32", "UInt32", _integers(32, signed=False)),
    Column("uint64", "UInt64", _integers(64, signed=False)),
    Column("int128", "Int128", _integers(128, signed=True), _TEXT),
    Column("uint256", "UInt256", _integers(256, signed=False), _TEXT),
    Column("float32", "Float32", ("0.1", *_FLOATS), "toFloat64({})"),
    Column("float64", "Float64", ("0.1", "5e-324", *_FLOATS)),
    Column("bfloat16", "BFloat16", ("0.5", "-3.140625"), "toFloat64({})"),
    Column("bool", "Bool", ("true", "false")),
    Column("decimal9", "Decimal(9, 2)", ("'9999999.99'", "'-9999999.99'", "'0.01'", "'0'")),
    Column("decimal18", "Decimal(18, 4)", ("'99999999999999.9999'", "'-0.0001'")),
    Column("decimal38", "Decimal(38, 10)", (f"'{'9' * 28}.{'9' * 10}'", f"'-{'9' * 28}.1'", "0")),
    Column("decimal76", "Decimal(76, 3)", (f"'{'9' * 73}.125'", "'-1.5'"), _TEXT),
    Column("string", "String", _TEXTS),
    Column("fixed", "FixedString(4)", ("'abcd'", "'ab'", "unhex('00ff80fe')")),
    Column("low", "LowCardinality(String)", ("'red'", "'green'", "''")),
    Column("date", "Date", _DATES),
    Column("date32", "Date32", ("'1900-01-01'", "'1969-12-31'", "'2299-12-31'", *_DATES)),
    Column("datetime", "DateTime('UTC')", _SECONDS),
    Column("tokyo", "DateTime('Asia/Tokyo')", _SECONDS),
    Column("seconds", "DateTime64(0, 'UTC')", ("'1969-12-31 23:59:59'", "'2024-02-29 12:00:00'")),
    Column("millis", "DateTime64(3, 'UTC')",
           ("'1969-12-31 23:59:59.999'", "'2024-02-29 12:00:00'")),
    Column("micros", "DateTime64(6, 'UTC')", _TIMES),
    Column("nanos", "DateTime64(9, 'UTC')", ("'1969-12-31 23:59:59.999999'", "'2024-02-29 1:2:3'")),
    Column("time", "Time", ("'-999:59:59'", "'00:00:00'", "'999:59:59'"), "toInt64({})"),
    Column("time64", "Time64(3)", ("'-10:00:00.001'", "'23:59:59.999'"), "toDecimal64({}, 3)"),
    Column("enum", "Enum8('one' = 1, 'minus' = -1, '' = 0)", ("'one'", "'minus'", "''"), _TEXT),
    Column("uuid", "UUID", _UUIDS, ordered=False),
    Column("null_int", "Nullable(Int32)", ("NULL", "0", "-1")),
    Column("null_uint64", "Nullable(UInt64)", ("18446744073709551615", "NULL")),
    Column("null_float", "Nullable(Float64)", ("1.5", "NULL", "nan")),
    Column("null_string", "Nullable(String)", ("NULL", "''", "'x'")),
    Column("null_low", "LowCardinality(Nullable(String))", ("'x'", "NULL")),
    Column("null_decimal", "Nullable(Decimal(9, 2))", ("NULL", "'-1.5'")),
    Column("null_date", "Nullable(Date32)", ("'1969-12-31'", "NULL", "'1970-01-01'")),
    Column("null_micros", "Nullable(DateTime64(6, 'UTC'))", ("NULL", *_TIMES)),
    Column("null_uuid", "Nullable(UUID)", ("NULL", *_UUIDS), ordered=False),
    Column("null_bool", "Nullable(Bool)", ("NULL", "true", "false")),
    Column("list", "Array(String)", ("[]", "['']", "['a', 'ü', 'a']")),
    Column("list_null", "Array(Nullable(UInt64))",
           ("[]", "[NULL]", "[18446744073709551615, NULL]")),
    Column("lists", "Array(Array(Int32))", ("[]", "[[]]", "[[1, -2], [], [3]]")),
    Column("map", "Map(String, Int64)", ("map()", "map('', -1)", "map('b', 1, 'a', 2)")),
    Column("map_list", "Map(UInt32, Array(Nullable(Date32)))",
           ("map()", "map(7, ['1969-12-31', NULL])")),
    Column("struct", "Tuple(a Int32, `b c` Nullable(String))", ("(1, NULL)", "(-1, 'x')")),
    Column("unnamed", "Tuple(UInt8, String)", ("(1, 'x')", "(255, '')")),
    Column("structs", "Array(Tuple(a Bool, `x.y` Decimal(38, 2)))",
           ("[]", "[(true, '-0.01'), (false, '1')]")),
    Column("null_struct", "Nullable(Tuple(a Int32, b Nullable(String)))",
           ("NULL", "(1, NULL)", "(-1, 'x')")),
    Column("sum", "SimpleAggregateFunction(sum, Int64)", ("0", "-9223372036854775808")),
    Column("ipv4", "IPv4", ("'0.0.0.0'", "'255.255.255.255'", "'10.0.0.9'"), _TEXT),
    Column("ipv6", "IPv6", ("'::'", "'2001:db8::1'", "'::ffff:1.2.3.4'"), _TEXT),
    Column("interval", "IntervalDay", ("INTERVAL 0 DAY", "INTERVAL -7 DAY"), "toInt64({})"),
    Column("json", "JSON", ("'{}'", """'{"b": [1, "ü"], "a": {"c": null, "d": true}}'"""),
           "toJSONString({})"),
    Column("variant", "Variant(String, UInt64)", ("NULL", "'x'", "''", "18446744073709551615"),
           "CAST(if(isNull({0}), NULL, (toString(variantType({0})), {0}.String, {0}.UInt64))"
           " AS Nullable(Tuple(String, Nullable(String), Nullable(UInt64))))"),
    Column("qbit", "QBit(Float32, 2)", ("[0.1, -0.0]", "[1, 2]"),
           "CAST(CAST({} AS Array(Float32)) AS Array(Float64))"),
    Column("point", "Point", _POINTS),
    Column("line", "LineString", ("[]", f"[{', '.join(_POINTS)}]")),
    Column("ring", "Ring", ("[]", f"[{', '.join(_POINTS)}]")),
    Column("polygon", "Polygon", ("[]", "[[]]", f"[[{', '.join(_POINTS)}], []]")),
    Column("polygons", "MultiPolygon", ("[]", f"[[[{', '.join(_POINTS)}], []]]")),
    Column("nested.name", "Array(String)", ("[]", "['a', 'b']")),
    Column("n.dotted", "Int32", ("1", "-1")),
    Column("sp ace-ü", "String", ("'a'", "'b'")),
    Column("select", "Int32", ("7", "-7")),
    Column("Größe🦆", "Nullable(Int64)", ("1", "NULL")),
    Column("quo\"te'd", "String", ("'q'", "'r'")),
)  # fmt: skip


# A reader that stumbles over this does so whatever other column it is asked for.
NESTED_UUID: Final = Column("uuids", "Array(Tuple(u UUID, n Int32))", ("[]", f"[({_UUIDS[1]}, 1)]"))


def rows(columns: tuple[Column, ...], count: int) -> tuple[str, ...]:
    """Return the rows of a table as SQL: the number of the row, then a value of each column."""
    return tuple(
        f"({i}, {', '.join(c.values[i % len(c.values)] for c in columns)})" for i in range(count)
    )

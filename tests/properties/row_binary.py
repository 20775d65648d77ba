"""Values as ClickHouse's RowBinary has them: the form in which the properties write and read them.

ClickHouse takes and gives any value of any type in this form, digit by digit: a Decimal with more
digits than its type, a DateTime64 far outside the calendar, bytes that are no text, a Map that
holds a key twice. Nothing of our SELECT list has a part in it.

A value in Python is what is stored, not what is shown:

    integers, Interval*, DateTime, DateTime64, Time, Time64, Date, Enum, IPv4   the number
    Decimal           the digits as a number, without the point
    Float*, BFloat16  a float;  Bool: a bool
    String, FixedString, JSON, UUID, IPv6, AggregateFunction    bytes (a UUID's in network order)
    Array, Nested, QBit, shapes: a list;   Tuple, Point: a tuple;   Map: a list of pairs
    Nullable          None or the value
    Variant, Geometry (number of the alternative, value) or None
    Dynamic           (type, value) or None, of the types of `DYNAMIC_CODES` and their arrays
"""

from __future__ import annotations

import struct
from typing import Any, Final

from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Dynamic,
    Enum,
    FixedString,
    Json,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    QBit,
    Simple,
    SimpleAggregateFunction,
    Time64,
    Tuple,
    Variant,
    render_type,
)

__all__ = ["DYNAMIC_CODES", "GEOMETRY", "POINT", "SHAPES", "RowReader", "encode", "integer_size"]

POINT: Final = Tuple((("x", Simple("Float64")), ("y", Simple("Float64"))))
_LINE: Final = Array(POINT)
SHAPES: Final[dict[str, DataType]] = {
    "Point": POINT,
    "Ring": _LINE,
    "LineString": _LINE,
    "MultiPoint": _LINE,
    "Polygon": Array(_LINE),
    "MultiLineString": Array(_LINE),
    "MultiPolygon": Array(Array(_LINE)),
}
GEOMETRY: Final = tuple(
    Simple(name)
    for name in (
        *("LineString", "MultiLineString", "MultiPolygon", "Point", "Polygon", "Ring"),
        "MultiPoint",
    )
)
"""The alternatives of Geometry by ClickHouse's numbers."""
DYNAMIC_CODES: Final[dict[DataType, int]] = {
    Simple("UInt64"): 0x04,
    Simple("Int64"): 0x0A,
    Simple("Float64"): 0x0E,
    Simple("Date"): 0x0F,
    Simple("String"): 0x15,
    Simple("UUID"): 0x1D,
    Simple("Bool"): 0x2D,
}
_TYPES: Final = {code: of for of, code in DYNAMIC_CODES.items()}
_ARRAY: Final = 0x1E
_NO_TYPE: Final = 0x00
_NO_ALTERNATIVE: Final = 255
_FLOATS: Final = {"Float64": "<d", "Float32": "<f"}
_SIZES: Final = {
    **{f"{sign}Int{bits}": bits // 8 for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)},
    "Date": 2,
    "Date32": 4,
    "Time": 4,
    "IPv4": 4,
}
_UNSIGNED: Final = ("UInt", "IPv4")


def integer_size(of: DataType) -> tuple[int, bool] | None:
    """Return bytes and sign of what a type stores as a whole number, None for other types."""
    match of:
        case Simple(name) if name in _SIZES:
            return _SIZES[name], not name.startswith(_UNSIGNED) and name != "Date"
        case Simple(name) if name.startswith("Interval"):
            return 8, True
        case Decimal(precision, _):
            return next(s for p, s in ((9, 4), (18, 8), (38, 16), (76, 32)) if precision <= p), True
        case DateTime():
            return 4, False
        case DateTime64() | Time64():
            return 8, True
        case Enum(bits, _):
            return bits // 8, True
        case _:
            return None


def encode(of: DataType, value: Any) -> bytes:
    """Return a value in RowBinary."""
    if (size := integer_size(of)) is not None:
        return int(value).to_bytes(size[0], "little", signed=size[1])
    match of:
        case Simple("Float32" | "Float64" as name):
            return struct.pack(_FLOATS[name], value)
        case Simple("BFloat16"):
            return struct.pack("<f", value)[2:]
        case Simple("Bool"):
            return bytes([value])
        case Simple("String") | Json():
            return _length(len(value)) + bytes(value)
        case Simple("UUID"):
            return bytes(value[7::-1] + value[:7:-1])
        case FixedString() | Simple("IPv6") | AggregateFunction():
            return bytes(value)
        case Simple("Geometry"):
            return _alternative(GEOMETRY, value)
        case Simple(name):
            return encode(SHAPES[name], value)
        case Nullable(inner):
            return b"\1" if value is None else b"\0" + encode(inner, value)
        case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            return encode(inner, value)
        case Array(inner):
            return _length(len(value)) + b"".join(encode(inner, v) for v in value)
        case QBit(inner, _):
            return encode(Array(inner), value)
        case Nested(elements):
            return encode(Array(Tuple(elements)), value)
        case Tuple(elements):
            return b"".join(encode(t, v) for (_, t), v in zip(elements, value, strict=True))
        case Map(key, inner):
            return encode(Array(Tuple(((None, key), (None, inner)))), value)
        case Variant(alternatives):
            return _alternative(alternatives, value)
        case Dynamic():
            return bytes([_NO_TYPE]) if value is None else _dynamic_type(value[0]) + encode(*value)
        case _:
            raise AssertionError(of)


def _length(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _alternative(alternatives: tuple[DataType, ...], value: tuple[int, Any] | None) -> bytes:
    if value is None:
        return bytes([_NO_ALTERNATIVE])
    return bytes([value[0]]) + encode(alternatives[value[0]], value[1])


def _dynamic_type(of: DataType) -> bytes:
    match of:
        case Array(inner):
            return bytes([_ARRAY]) + _dynamic_type(inner)
        case _:
            return bytes([DYNAMIC_CODES[of]])


class RowReader:
    """Reads the values of one row after the other."""

    def __init__(self, row: bytes) -> None:
        self._row = row
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether everything was read."""
        return self._at == len(self._row)

    def read(self, of: DataType) -> Any:
        """Return the next value, which is of that type."""
        if (size := integer_size(of)) is not None:
            return int.from_bytes(self._take(size[0]), "little", signed=size[1])
        match of:
            case Simple("Float32" | "Float64" as name):
                return struct.unpack(_FLOATS[name], self._take(8 if name == "Float64" else 4))[0]
            case Simple("BFloat16"):
                return struct.unpack("<f", b"\0\0" + self._take(2))[0]
            case Simple("Bool"):
                return self._take(1) == b"\1"
            case Simple("String") | Json():
                return self._take(self._number())
            case Simple("UUID"):
                stored = self._take(16)
                return stored[7::-1] + stored[:7:-1]
            case Simple("IPv6"):
                return self._take(16)
            case FixedString(length):
                return self._take(length)
            case Simple("Geometry"):
                return self._variant(GEOMETRY)
            case Simple(name):
                return self.read(SHAPES[name])
            case Nullable(inner):
                return None if self._take(1) == b"\1" else self.read(inner)
            case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
                return self.read(inner)
            case Array(inner) | QBit(inner, _):
                return [self.read(inner) for _ in range(self._number())]
            case Nested(elements):
                return self.read(Array(Tuple(elements)))
            case Tuple(elements):
                return tuple(self.read(inner) for _, inner in elements)
            case Map(key, inner):
                return [(self.read(key), self.read(inner)) for _ in range(self._number())]
            case Variant(alternatives):
                return self._variant(alternatives)
            case Dynamic():
                found = self._type()
                return None if found is None else (found, self.read(found))
            case AggregateFunction():
                return self._state(of)
            case _:
                raise AssertionError(of)

    def _take(self, size: int) -> bytes:
        taken = self._row[self._at : self._at + size]
        assert len(taken) == size, "the row ends inside a value"
        self._at += size
        return taken

    def _number(self) -> int:
        number = shift = 0
        while (byte := self._take(1)[0]) > 127:
            number |= (byte & 127) << shift
            shift += 7
        return number | byte << shift

    def _variant(self, alternatives: tuple[DataType, ...]) -> tuple[int, Any] | None:
        number = self._take(1)[0]
        if number == _NO_ALTERNATIVE:
            return None
        return number, self.read(alternatives[number])

    def _type(self) -> DataType | None:
        code = self._take(1)[0]
        if code == _NO_TYPE:
            return None
        if code == _ARRAY:
            inner = self._type()
            assert inner is not None
            return Array(inner)
        return _TYPES[code]

    def _state(self, of: AggregateFunction) -> bytes:
        start = self._at
        match of.arguments.split(", "):
            case ["sum", "UInt64" | "Int64" | "Float64"]:
                self._take(8)
            case ["count"]:
                self._number()
            case ["groupArray", "String"]:
                for _ in range(self._number()):
                    self._take(self._number())
            case ["max", "Int8"]:
                self._take(self._take(1)[0])
            case _:
                raise AssertionError(render_type(of))
        return self._row[start : self._at]

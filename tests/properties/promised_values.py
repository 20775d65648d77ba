"""What docs/reference/types.md promises of one value, a second time: the judge of the properties.

Written from that page, not from the code, and from the values as ClickHouse stores them
(`row_binary.py`), not as our SELECT list gives them. Values of the lake are compared in this form:

    whole numbers, also in decimals of scale 0    the number's digits as text
    decimal               its digits as text, without zeros at the end
    float, double         "nan", or the bytes of the number: -0.0 and 0.0 differ
    date, timestamptz     the days, the microseconds since 1970: no calendar stands between
    uuid                  its text;  string: a text;  binary, fixed: bytes
    JSON text             what the text means: objects as lists of pairs, numbers as above

Nothing else is forgotten. `promised_columns.py` puts values together to columns.
"""

from __future__ import annotations

import ipaddress
import json
import math
import socket
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Context
from decimal import Decimal as Number
from typing import Any, Final

from tableformat.mergetree import conversions as limits
from tableformat.mergetree.conversions import Limit
from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    Json,
    Map,
    QBit,
    Simple,
    Time64,
    Tuple,
)
from tests.properties.row_binary import GEOMETRY, SHAPES

__all__ = ["Kept", "find_kept", "found_number", "json_of", "json_text", "well_known"]

_WIDE: Final = Context(prec=200)
_JSON_WORDS: Final = ("json", "string")
_ORDINAL_1970: Final = date(1970, 1, 1).toordinal()


def _nothing(_: Any) -> Limit | None:
    return None


@dataclass(frozen=True)
class Kept:
    """One value in the lake: `wanted` of what is stored, `found` of what a reader gives.

    `broken` says which limit a stored value breaks.
    """

    wanted: Callable[[Any], Any]
    found: Callable[[Any], Any]
    broken: Callable[[Any], Limit | None] = _nothing


def find_kept(of: DataType, how: str) -> Kept | None:
    """Return how a value of a type is kept under a conversion, None for types taken apart."""
    match of:
        case Simple(name):
            return _simple(name, how)
        case Decimal(precision, scale):
            return _decimal(precision, scale, how)
        case FixedString():
            if how == "string":
                return Kept(_text, _same, _is_text(limits.FIXED_UTF8))
            return Kept(_same, _same)
        case DateTime():
            return Kept(lambda s: s * 1_000_000, int)
        case DateTime64(precision, _):
            return _datetime64(precision, how)
        case Time64(precision):
            if how == "string":
                return Kept(lambda ticks: clock(ticks, precision), _same)
            return Kept(lambda ticks: _scaled(ticks, precision), found_number)
        case Enum(_, labels):
            if how == "long":
                return Kept(str, found_number)
            by_code = {code: label for label, code in labels}
            return Kept(lambda code: by_code[code], _same)
        case Json():
            return Kept(lambda b: json_text(_text(b)), json_text, _is_text(limits.JSON_UTF8))
        case QBit(element, _):
            number = find_kept(element, "")
            assert number is not None
            if how == "string":
                return Kept(lambda v: [number.wanted(n) for n in v], lambda t: _numbers(t, element))
            return Kept(
                lambda v: [number.wanted(n) for n in v], lambda v: [number.found(n) for n in v]
            )
        case AggregateFunction() if how == "state":
            return Kept(_same, _same)
        case _:
            return None


def found_number(value: Any) -> str:
    """Return a whole number or decimal as it is compared."""
    number = Number(value)
    return "0" if not number else f"{number.normalize(_WIDE):f}"


def json_text(text: str) -> Any:
    """Return what a JSON text means, as it is compared."""
    return json.loads(
        text, parse_int=found_number, parse_float=found_number, object_pairs_hook=list
    )


def json_of(of: DataType, value: Any) -> Any:
    """Return what the JSON text of a stored value must mean; the type is one of `Variant`s here."""
    match of:
        case Simple("Bool"):
            return value
        case Simple("Float64"):
            return _json_float(value)
        case Simple("String"):
            return _text(value)
        case Simple("UUID"):
            return str(uuid.UUID(bytes=value))
        case Simple("Date"):
            return day_text(value)
        case Decimal(_, scale):
            return _scaled(value, scale)
        case Array(inner):
            return [json_of(inner, v) for v in value]
        case Tuple(elements):
            members = zip(elements, value, strict=True)
            if elements[0][0] is None or SHAPES["Point"] == of:
                return [json_of(inner, v) for (_, inner), v in members]
            return [(name, json_of(inner, v)) for (name, inner), v in members]
        case Map(Simple("String"), inner):
            return [(_text(k), json_of(inner, v)) for k, v in value]
        case Simple(name) if name in SHAPES:
            return json_of(SHAPES[name], value)
        case _:
            return str(value)


def well_known(name: str, value: Any) -> bytes:
    """Return the well-known binary of a shape, in the order of bytes of this format's number 1."""
    kinds = ("Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon")
    head = struct.pack("<BI", 1, kinds.index(name) + 1)
    match name:
        case "Point":
            return head + struct.pack("<dd", *value)
        case "LineString":
            return head + _points(value)
        case "Polygon":
            # ClickHouse takes one empty ring for none.
            rings = [] if value == [[]] else value
            return head + struct.pack("<I", len(rings)) + b"".join(map(_points, rings))
        case _:
            one = name.removeprefix("Multi")
            return (
                head + struct.pack("<I", len(value)) + b"".join(well_known(one, v) for v in value)
            )


def clock(ticks: int, precision: int) -> str:
    """Return a Time or Time64 as ClickHouse writes it."""
    seconds, rest = divmod(abs(ticks), 10**precision)
    tail = f".{rest:0{precision}d}" if precision else ""
    sign = "-" if ticks < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}"


def day_text(days: int) -> str:
    """Return a day as text, years 0 to 9999; Python's calendar begins with year 1."""
    # The calendar repeats after 400 years.
    shift = 400 if days < 1 - _ORDINAL_1970 else 0
    shown = date.fromordinal(_ORDINAL_1970 + days + (146_097 if shift else 0))
    return f"{shown.year - shift:04d}-{shown.month:02d}-{shown.day:02d}"


def _same(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _is_text(limit: Limit) -> Callable[[bytes], Limit | None]:
    def broken(value: bytes) -> Limit | None:
        try:
            value.decode()
        except UnicodeDecodeError:
            return limit
        return None

    return broken


def _over(limit: Limit, greatest: int) -> Callable[[int], Limit | None]:
    return lambda n: limit if abs(n) > greatest else None


def _simple(name: str, how: str) -> Kept | None:
    match name:
        case "UInt64" if how == "string":
            return Kept(str, _same)
        case "UInt64":
            return Kept(
                str, found_number, _over(limits.LONG, 2**63 - 1) if how == "long" else _nothing
            )
        case "Int128" | "UInt128" | "Int256" | "UInt256":
            if how == "decimal(38,0)":
                return Kept(found_number, found_number, _over(limits.TOO_LONG, 10**38 - 1))
            return Kept(str, _same)
        case "Float32" | "BFloat16" | "Float64":
            return Kept(_float, _float)
        case "Bool":
            return Kept(_same, _same)
        case "String" if how == "binary":
            return Kept(_same, _same)
        case "String":
            return Kept(_text, _same, _is_text(limits.UTF8))
        case "Date" | "Date32":
            return Kept(_same, int)
        case "Time" if how == "string":
            return Kept(lambda s: clock(s, 0), _same)
        case "UUID" if how == "binary":
            return Kept(_same, _same)
        case "UUID":
            return Kept(lambda b: str(uuid.UUID(bytes=b)), _uuid)
        case "IPv4" if how != "long":
            return Kept(lambda n: str(ipaddress.IPv4Address(n)), _same)
        case "IPv6" if how == "binary":
            return Kept(_same, _same)
        case "IPv6":
            return Kept(lambda b: socket.inet_ntop(socket.AF_INET6, b), _same)
        case "Geometry":
            return _geometry(how)
        case "Nothing":
            return None
        case _ if name in SHAPES:
            return (
                Kept(lambda v: well_known(name, v), _same)
                if how == "wkb" and name != "Ring"
                else None
            )
        case _:
            return Kept(str, found_number)


def _geometry(how: str) -> Kept | None:
    if how in _JSON_WORDS:
        return Kept(
            lambda v: None if v is None else json_of(GEOMETRY[v[0]], v[1]),
            lambda text: None if text is None else json_text(text),
        )
    if how != "wkb":
        return None

    def ring(value: tuple[int, Any] | None) -> Limit | None:
        return limits.RING if value and GEOMETRY[value[0]].name == "Ring" else None

    return Kept(
        lambda v: None if v is None or ring(v) else well_known(GEOMETRY[v[0]].name, v[1]),
        _same,
        ring,
    )


def _decimal(precision: int, scale: int, how: str) -> Kept:
    chosen = _digits(how)
    if precision <= 38:
        kept = (
            chosen[0]
            if chosen and chosen[1] == scale and precision <= chosen[0] <= 38
            else precision
        )
        greatest = 10**kept - 1
        return Kept(lambda n: _scaled(n, scale), found_number, _over(limits.DIGITS, greatest))
    if chosen and chosen[0] == 38 and chosen[1] <= 38:
        places = chosen[1]

        def too_fine(unscaled: int) -> Limit | None:
            moved = abs(unscaled) * 10**places
            exact = moved % 10**scale == 0 and moved // 10**scale < 10**38
            return None if exact else limits.TOO_FINE

        return Kept(lambda n: _scaled(n, scale), found_number, too_fine)
    return Kept(lambda n: _scaled(n, scale), _same)


def _digits(how: str) -> tuple[int, int] | None:
    if not how.startswith("decimal("):
        return None
    precision, scale = how.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def _datetime64(precision: int, how: str) -> Kept:
    unit = 10 ** max(6 - precision, 0)
    per_microsecond = 10 ** max(precision - 6, 0)
    match how:
        case "long":
            return Kept(str, found_number)
        case "string":
            return Kept(
                lambda t: _instant_text(t, precision), _same, lambda t: _years(t, precision)
            )
        case _ if precision <= 6:
            in_range = _over(limits.RANGE, (2**63 - 1) // unit) if precision < 6 else _nothing
            return Kept(lambda ticks: ticks * unit, int, in_range)
        case "truncate":
            return Kept(lambda ticks: ticks // per_microsecond, int)
        case _:
            return Kept(
                lambda ticks: ticks // per_microsecond,
                int,
                lambda ticks: limits.FINER if ticks % per_microsecond else None,
            )


def _years(ticks: int, precision: int) -> Limit | None:
    return None if -719_528 <= ticks // 10**precision // 86_400 <= 2_932_896 else limits.YEARS


def _instant_text(ticks: int, precision: int) -> str:
    if _years(ticks, precision):
        return "outside"
    days, rest = divmod(ticks, 86_400 * 10**precision)
    return f"{day_text(days)} {clock(rest, precision)}"


def _scaled(unscaled: int, scale: int) -> str:
    return found_number(Number(unscaled).scaleb(-scale, _WIDE))


def _float(value: float) -> Any:
    return "nan" if math.isnan(value) else struct.pack(">d", value)


def _json_float(value: float) -> Any:
    if math.isnan(value) or math.isinf(value):
        return repr(value)
    return found_number(Number(repr(value)))


def _numbers(text: str, element: DataType) -> list[Any]:
    """Return what a vector as text holds; of 32 bits and fewer ClickHouse writes fewer digits."""
    values = [float(n) for n in text.strip("[]").split(",") if n]
    if element == Simple("Float64"):
        return [_float(n) for n in values]
    return [_float(struct.unpack("<f", struct.pack("<f", n))[0]) for n in values]


def _points(value: Any) -> bytes:
    return struct.pack("<I", len(value)) + b"".join(struct.pack("<dd", *p) for p in value)


def _uuid(value: Any) -> str:
    return str(uuid.UUID(bytes=value) if isinstance(value, bytes) else value)

"""Lists how the values of each type leave ClickHouse (docs/reference/types.md).

Every type has a default and the conversions that a user may choose. Each entry has the wire type,
the SQL if a CAST is not enough, the faithfulness class, and the limit that the data must keep.

No other module knows types by name. `wire_types.py` combines values to columns,
`iceberg/column_types.py` maps them to Iceberg types, and `export/data_checks.py` checks the limits;
docs/reference/types.md shows the table to users. A type that is not listed is refused, never
guessed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tableformat.mergetree import conversions as limits
from tableformat.mergetree.conversions import (
    DEFAULT,
    Conversion,
    Faithfulness,
    Handling,
    TypeConversions,
    WireValue,
)
from tableformat.mergetree.type_text import render_type
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
)

__all__ = ["GEOMETRY", "conversions_of", "find_value", "takes"]

_GREATEST_PRECISION: Final = 38
_MICROSECONDS: Final = 6
_INSTANT: Final = DateTime64(_MICROSECONDS, "UTC")
_STRING: Final = Simple("String")
_INT64: Final = Simple("Int64")
_FLOAT64: Final = Simple("Float64")
_A, _B, _C = Faithfulness.LOSSLESS, Faithfulness.OTHER_KIND, Faithfulness.CHECKED


def find_value(of: DataType, conversion: Conversion = DEFAULT) -> WireValue | Handling:
    """Return how values of a type leave ClickHouse; a conversion that does not apply is ignored.

    Args:
        of: any type.
        conversion: the user's choice.
    """
    ways = _ways(of)
    chosen = ways.chosen(conversion)
    return ways.default if chosen is None else chosen


def takes(of: DataType, conversion: Conversion) -> bool:
    """Whether the conversion applies to values of this type itself."""
    return _ways(of).chosen(conversion) is not None


def conversions_of(of: DataType) -> tuple[str, ...]:
    """Return the possible values of `--convert` for this type, as text for the user."""
    ways = _ways(of)
    return (*ways.words, *([ways.decimal_text] if ways.decimal_text else []))


def _ways(of: DataType) -> TypeConversions:
    match of:
        case Simple(name):
            return _simple(name)
        case Decimal():
            return _decimal(of)
        case FixedString(length):
            return _fixed_string(length)
        case DateTime():
            return TypeConversions(WireValue(_INSTANT, _A))
        case DateTime64(precision, _):
            return _datetime64(precision)
        case Time64(precision):
            seconds = WireValue(Decimal(18, precision), _B, f"{render_type(of)} as seconds")
            return TypeConversions(seconds, {"string": _text(render_type(of))})
        case Enum(bits, _):
            label = WireValue(_STRING, _B, f"label of Enum{bits}")
            code = WireValue(Simple(f"Int{bits}"), _B, f"code of Enum{bits}")
            return TypeConversions(label, {"long": code, "string": label})
        case QBit(element, _):
            return _qbit(of, element)
        case Json():
            return TypeConversions(_JSON, {"json": _JSON, "string": _JSON})
        case Dynamic():
            return TypeConversions(Handling.REFUSED, {**_as_json("Dynamic"), "struct": _TYPED_JSON})
        case Variant():
            return TypeConversions(
                Handling.BY_ELEMENT, {"struct": Handling.BY_ELEMENT, **_as_json("Variant")}
            )
        case AggregateFunction(_, value):
            finalize: dict[str, WireValue | Handling] = (
                {} if value is None else {"finalize": Handling.BY_ELEMENT}
            )
            return TypeConversions(Handling.REFUSED, {**finalize, "state": _STATE})
        case Nullable() | LowCardinality() | Array() | Map() | Nested() | SimpleAggregateFunction():
            return TypeConversions(Handling.BY_ELEMENT)
        case Tuple(elements) if elements:
            return TypeConversions(Handling.BY_ELEMENT)
        case _:
            return TypeConversions(Handling.REFUSED)


def _simple(name: str) -> TypeConversions:
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _WIDE:
        text = WireValue(_STRING, _B, f"{name} as decimal text")
        number = WireValue(
            Decimal(_GREATEST_PRECISION, 0),
            _C,
            # CAST has no such conversion; the function checks for 128 bits, not for 38 digits.
            sql="toDecimal128({}, 0)",
            limit=limits.TOO_LONG,
            bad=limits.longer_than(_GREATEST_PRECISION),
        )
        whole = (_GREATEST_PRECISION, 0)
        return TypeConversions(
            text,
            {"string": text},
            lambda *digits: number if digits == whole else None,
            "decimal(38,0)",
        )
    if name in _SHAPES:
        shape = WireValue(_SHAPES[name], _A)
        well_known = replace(_WKB, note=f"{name} as well-known binary")
        # ClickHouse's wkb() does not take a Ring.
        more = {} if name == "Ring" else {"wkb": well_known}
        return TypeConversions(shape, {"struct": shape, **more})
    if name.startswith("Interval"):
        unit = f"{name.removeprefix('Interval').lower()}s"
        number = WireValue(_INT64, _B, f"number of {unit}")
        return TypeConversions(number, {"long": number})
    return TypeConversions(Handling.REFUSED)


def _text(name: str) -> WireValue:
    return WireValue(_STRING, _B, f"{name} as text")


def _decimal(of: Decimal) -> TypeConversions:
    if of.precision <= _GREATEST_PRECISION:

        def wider(precision: int, scale: int) -> WireValue | None:
            fits = of.precision <= precision <= _GREATEST_PRECISION and scale == of.scale
            return _digits(of, precision) if fits else None

        return TypeConversions(_digits(of, of.precision), {}, wider, f"decimal(P,{of.scale})")
    text = WireValue(_STRING, _B, f"{render_type(of)} as decimal text")

    def narrower(precision: int, scale: int) -> WireValue | None:
        if precision != _GREATEST_PRECISION or scale > _GREATEST_PRECISION:
            return None
        return WireValue(
            Decimal(precision, scale),
            _C,
            limit=limits.TOO_FINE,
            bad=limits.finer_than(precision, scale),
        )

    return TypeConversions(text, {"string": text}, narrower, "decimal(38,S)")


def _digits(of: Decimal, precision: int) -> WireValue:
    bad = limits.more_digits_than(precision, of.scale)
    return WireValue(Decimal(precision, of.scale), _C, limit=limits.DIGITS, bad=bad)


def _fixed_string(length: int) -> TypeConversions:
    # A CAST would remove trailing NULs.
    text = WireValue(
        _STRING,
        _C,
        f"FixedString({length}) as text, with its NUL bytes",
        sql="concat({}, '')",
        limit=limits.FIXED_UTF8,
        bad="NOT isValidUTF8(concat({}, ''))",
    )
    return TypeConversions(WireValue(FixedString(length), _A), {"string": text})


def _datetime64(precision: int) -> TypeConversions:
    ticks = "reinterpretAsInt64({})"
    number = WireValue(_INT64, _B, f"DateTime64({precision}) as ticks since 1970", sql=ticks)
    # In UTC: local time repeats an hour when summer time ends.
    text = WireValue(
        _STRING,
        _B,
        f"DateTime64({precision}) as text in UTC",
        sql="toString({}, 'UTC')",
        limit=limits.YEARS,
        bad=limits.beyond_years(precision),
    )
    words: dict[str, WireValue | Handling] = {"long": number, "string": text}
    if precision <= _MICROSECONDS:
        # A coarser precision has instants that Iceberg cannot represent.
        coarse = precision < _MICROSECONDS
        bad = limits.beyond_microseconds(precision) if coarse else ""
        limit = limits.RANGE if coarse else None
        whole = WireValue(_INSTANT, _C if coarse else _A, limit=limit, bad=bad)
        return TypeConversions(whole, words)
    per_microsecond = 10 ** (precision - _MICROSECONDS)
    whole = WireValue(_INSTANT, _C, limit=limits.FINER, bad=f"{ticks} % {per_microsecond} != 0")
    # Rounding functions multiply or round towards zero; only this division floors all ticks.
    floor = f"intDiv({ticks}, {per_microsecond}) - ({ticks} % {per_microsecond} < 0)"
    cut = WireValue(
        _INSTANT,
        _B,
        f"DateTime64({precision}) cut off to microseconds",
        sql=f"reinterpret(toInt64({floor}), 'DateTime64(6, \\'UTC\\')')",
    )
    return TypeConversions(whole, {"truncate": cut, **words})


def _qbit(of: QBit, element: DataType) -> TypeConversions:
    of_list = Array(_FLOAT64 if element == _FLOAT64 else Simple("Float32"))
    # Inside a Variant the value is NULL if another alternative is active.
    plain = f"if(isNull({{}}), [], CAST(assumeNotNull({{}}) AS {render_type(of_list)}))"
    vector = WireValue(of_list, _B, f"{render_type(of)} as a list", sql=plain)
    return TypeConversions(
        vector, {"string": replace(_text(render_type(of)), sql=f"toString({plain})")}
    )


def _as_json(name: str) -> dict[str, WireValue | Handling]:
    value = replace(
        _JSON,
        type=Nullable(_STRING),
        note=f"{name} as JSON text",
        sql="if(isNull({}), NULL, toJSONString({}))",
        bad="NOT isValidUTF8(assumeNotNull(toJSONString({})))",
    )
    return {"json": value, "string": value}


_JSON: Final = WireValue(
    _STRING,
    _B,
    "JSON text as ClickHouse writes it",
    sql="toJSONString({})",
    limit=limits.JSON_UTF8,
    bad="NOT isValidUTF8(toJSONString({}))",
)
_TYPED_JSON: Final = WireValue(
    Nullable(Tuple((("type", _STRING), ("json", _STRING)))),
    _B,
    "Dynamic as its type and JSON text",
    sql=(
        "if(isNull({}), NULL, CAST(tuple(toString(dynamicType({})), "
        "assumeNotNull(toJSONString({}))) AS Tuple(type String, json String)))"
    ),
    limit=limits.JSON_UTF8,
    bad="NOT isValidUTF8(assumeNotNull(toJSONString({})))",
)
_STATE: Final = WireValue(
    _STRING, _B, "state of an aggregate function, of one ClickHouse version", is_text=False
)
_WKB: Final = WireValue(_STRING, _B, sql="wkb({})", is_text=False)


def _uint64() -> TypeConversions:
    # decimal(20,0) holds every value, long would wrap. Arrow refuses values that do not fit.
    unsigned = Simple("UInt64")
    bad = f"{{}} > {2**63 - 1}"
    long = WireValue(unsigned, _C, limit=limits.LONG, bad=bad)
    text = WireValue(_STRING, _B, "UInt64 as decimal text")
    return TypeConversions(WireValue(Decimal(20, 0), _A), {"long": long, "string": text})


def _string() -> TypeConversions:
    text = WireValue(_STRING, _C, limit=limits.UTF8, bad="NOT isValidUTF8({})")
    return TypeConversions(
        text, {"string": text, "binary": WireValue(_STRING, _A, "String as bytes", is_text=False)}
    )


def _uuid() -> TypeConversions:
    number = WireValue(
        FixedString(16), _B, "UUID as its 16 bytes in network order", sql="UUIDToNum({})"
    )
    return TypeConversions(
        WireValue(Simple("UUID"), _A), {"string": _text("UUID"), "binary": number}
    )


def _addresses() -> dict[str, TypeConversions]:
    number = WireValue(Simple("UInt32"), _B, "IPv4 as a number")
    network = WireValue(
        FixedString(16),
        _B,
        "IPv6 as its 16 bytes in network order",
        sql="reinterpretAsFixedString({})",
    )
    fourth, sixth = _text("IPv4"), _text("IPv6")
    return {
        "IPv4": TypeConversions(fourth, {"long": number, "string": fourth}),
        "IPv6": TypeConversions(sixth, {"binary": network, "string": sixth}),
    }


def _geometry() -> TypeConversions:
    network = replace(
        _WKB,
        type=Nullable(_STRING),
        note="Geometry as well-known binary",
        sql="if(isNull({}), NULL, wkb({}))",
        limit=limits.RING,
        bad="toString(variantType({})) = 'Ring'",
    )
    return TypeConversions(
        Handling.BY_ELEMENT, {"struct": Handling.BY_ELEMENT, **_as_json("Geometry"), "wkb": network}
    )


_SAME: Final = (
    *("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"),
    *("Float32", "Float64", "Bool", "Date32"),
)
_PLAIN: Final[dict[str, TypeConversions]] = {
    **{name: TypeConversions(WireValue(Simple(name), _A)) for name in _SAME},
    **_addresses(),
    "UInt64": _uint64(),
    "BFloat16": TypeConversions(WireValue(Simple("Float32"), _A)),
    # Servers before 26.2 write Date as a number; Date32 is a date in every version.
    "Date": TypeConversions(WireValue(Simple("Date32"), _A)),
    "String": _string(),
    "Time": TypeConversions(WireValue(_INT64, _B, "Time as seconds"), {"string": _text("Time")}),
    "UUID": _uuid(),
    "Geometry": _geometry(),
}
_WIDE: Final = frozenset({"Int128", "UInt128", "Int256", "UInt256"})
_POINT: Final = Tuple((("x", _FLOAT64), ("y", _FLOAT64)))
_LINE: Final = Array(_POINT)
_SHAPES: Final[dict[str, DataType]] = {
    "Point": _POINT,
    "Ring": _LINE,
    "LineString": _LINE,
    "MultiPoint": _LINE,
    "Polygon": Array(_LINE),
    "MultiLineString": Array(_LINE),
    "MultiPolygon": Array(Array(_LINE)),
}
GEOMETRY: Final = tuple(Simple(name) for name in sorted(_SHAPES))
"""The alternatives of a Geometry, which is a Variant."""

"""Defines the wire type of each type and builds the SQL that converts a column to it.

ClickHouse casts every column to a small set of types whose Arrow form is the same in all server
versions and keeps every value: `Int8..64, UInt8..32, Float32/64, Bool, Decimal(P <= 38), String,
FixedString, Date32, DateTime64(6, 'UTC'), UUID` and `Array`, `Tuple`, `Map`, `Nullable` of these.
Arrow data has no zone of a DateTime and no labels of an Enum, so no value can be corrected after it
has left ClickHouse.

`find_value` lists how the values of a type leave ClickHouse: every type has a default and the
conversions that a user may choose. Each entry has the wire type, the SQL if a CAST is not enough,
the faithfulness class, and the limit that the data must keep. No other module knows types by name:
`iceberg/schema.py` maps the values to Iceberg types, `export/slice_sql.py` checks the limits, and
docs/reference/types.md shows the table to users. A type that is not listed is refused, never
guessed.

`wire_expression` combines the values at any depth: one CAST of the whole column if that is enough,
else an expression over its elements. `iceberg/schema.py` decides which types can be exported; a
refused type has no wire type.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tableformat.errors import InternalError
from tableformat.mergetree import conversions as limits
from tableformat.mergetree.conversions import (
    DEFAULT,
    Conversion,
    Faithfulness,
    Handling,
    TypeConversions,
    WireValue,
    parse_conversion,
)
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
    rebuild,
    render_type,
)
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string

__all__ = [
    "GEOMETRY",
    "WIRE_PAIRS",
    "WIRE_SETTINGS",
    "alternative_sql",
    "alternatives_of",
    "conversions_of",
    "element_name",
    "find_value",
    "qualified",
    "takes",
    "wire_expression",
    "wire_type",
    "without_low_cardinality",
]

_GREATEST_PRECISION: Final = 38
_MICROSECONDS: Final = 6
_INSTANT: Final = DateTime64(_MICROSECONDS, "UTC")
_STRING: Final = Simple("String")
_INT64: Final = Simple("Int64")
_FLOAT64: Final = Simple("Float64")
_SECONDS: Final = "number of seconds"
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
            seconds = WireValue(
                Decimal(18, precision), _B, f"{render_type(of)} as seconds", meaning=_SECONDS
            )
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
            state = replace(_STATE, meaning=f"state of {render_type(of)}")
            return TypeConversions(Handling.REFUSED, {**finalize, "state": state})
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
        number = WireValue(_INT64, _B, f"number of {unit}", meaning=f"number of {unit}")
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
    number = WireValue(
        _INT64,
        _B,
        f"DateTime64({precision}) as ticks since 1970",
        sql=ticks,
        meaning=f"ticks of 10^-{precision} s since 1970",
    )
    # In UTC: local time repeats an hour when summer time ends.
    text = WireValue(
        _STRING,
        _B,
        f"DateTime64({precision}) as text in UTC",
        sql="toString({}, 'UTC')",
        limit=limits.YEARS,
        bad=limits.beyond_years(precision),
        meaning="text of a DateTime64 in UTC",
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
        # A CAST to String writes no quotes around a text.
        meaning="JSON text of a value of any type",
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
    meaning="type and JSON text of a Dynamic",
)
_STATE: Final = WireValue(
    _STRING, _B, "state of an aggregate function, of one ClickHouse version", is_text=False
)
_WKB: Final = WireValue(_STRING, _B, sql="wkb({})", is_text=False, meaning="well-known binary")


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
        FixedString(16),
        _B,
        "UUID as its 16 bytes in network order",
        sql="UUIDToNum({})",
        meaning="bytes of a UUID in network order",
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
        meaning="bytes of an IPv6 in network order",
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
    "Time": TypeConversions(
        WireValue(_INT64, _B, "Time as seconds", meaning=_SECONDS), {"string": _text("Time")}
    ),
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


WIRE_PAIRS: Final = (
    ("output_format_arrow_string_as_string", "1"),
    ("output_format_arrow_date_as_uint16", "0"),
    ("output_format_arrow_fixed_string_as_fixed_byte_array", "1"),
    ("output_format_arrow_uuid_as_fixed_byte_array", "0"),
    ("output_format_arrow_low_cardinality_as_dictionary", "0"),
    ("output_format_arrow_unsupported_types_as_binary", "0"),
    ("output_format_json_quote_64bit_integers", "0"),
    ("output_format_json_quote_64bit_floats", "0"),
    ("output_format_json_quote_decimals", "0"),
    ("output_format_json_quote_denormals", "1"),
    ("output_format_json_escape_forward_slashes", "0"),
    ("output_format_json_validate_utf8", "0"),
    ("output_format_json_named_tuples_as_objects", "1"),
    ("output_format_json_skip_null_value_in_named_tuples", "0"),
    ("output_format_json_map_as_array_of_tuples", "0"),
    ("output_format_decimal_trailing_zeros", "0"),
    ("date_time_output_format", "simple"),
)
"""The settings of every query of wire values, whose form must not depend on defaults."""

WIRE_SETTINGS: Final = ", ".join(
    f"{name} = {value if value.isdecimal() else quote_string(value)}" for name, value in WIRE_PAIRS
)
"""The same as text after SETTINGS."""

_TYPE_MEMBER: Final = "type"
_WORDS: Final = re.compile(r"[A-Za-z0-9]+")
_LONGEST_NAME: Final = 60


def qualified(column: str) -> str:
    """Return a source column as SQL, qualified by `SOURCE_ALIAS`, the alias in every query."""
    return f"{quote_identifier(SOURCE_ALIAS)}.{quote_identifier(column)}"


def element_name(name: str | None, position: int) -> str:
    """Return the name of a tuple's element outside ClickHouse: unnamed ones are `_1`, `_2`, ...

    Args:
        name: the element's own name, if it has one.
        position: from 0.
    """
    return f"_{position + 1}" if name is None else name


def alternatives_of(of: DataType) -> tuple[tuple[str, DataType], ...]:
    """Return name and type of each alternative of a Variant or Geometry, () for other types.

    The names are those of the struct's members: the words of the type (`Array_String`), made unique
    without regard to case, as Spark compares names, and different from the member `type`.
    """
    match of:
        case Variant(alternatives):
            pass
        case Simple("Geometry"):
            alternatives = GEOMETRY
        case _:
            return ()
    taken, found = {_TYPE_MEMBER}, []
    for alternative in alternatives:
        # An Enum's name leaves its labels out.
        text = (
            f"Enum{alternative.bits}" if isinstance(alternative, Enum) else render_type(alternative)
        )
        base = name = "_".join(_WORDS.findall(text))[:_LONGEST_NAME].rstrip("_")
        number = 2
        while name.lower() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.lower())
        found.append((name, alternative))
    return tuple(found)


def alternative_sql(sql: str, of: DataType) -> str:
    """Return the SQL of one alternative of a Variant: NULL, or empty, if another one is active."""
    return f"variantElement({sql}, {quote_string(render_type(of))})"


def wire_type(of: DataType, *, conversion: str = "") -> DataType:
    """Return the wire type of a value of type `of`.

    Args:
        of: a ClickHouse type.
        conversion: the user's `--convert` for the column, '' for the default.

    Raises:
        InternalError: the type has no mapping; `iceberg.schema.map_columns` refuses it first.
    """
    return _wire(of, parse_conversion(conversion))


def wire_expression(sql: str, of: DataType, *, conversion: str = "") -> str:
    """Return the SQL that converts `sql`, a value of type `of`, to its wire type.

    Values of a wire type pass unchanged; LowCardinality is removed. The target type has Nullable
    inside it, because a plain CAST fails for NULL.

    Args:
        sql: a column or an expression.
        of: its ClickHouse type.
        conversion: as in `wire_type`.

    Raises:
        InternalError: as `wire_type`.
    """
    return _expression(sql, of, parse_conversion(conversion), depth=0)


def without_low_cardinality(of: DataType) -> DataType:
    """Return the type without LowCardinality at any depth: it is an encoding, not another value."""
    return rebuild(of, lambda inner: inner.of if isinstance(inner, LowCardinality) else inner)


def _plain(of: DataType) -> DataType:
    """Return the type without its outer encoding or alias."""
    match of:
        case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            return inner
        case Nested(elements):
            return Array(Tuple(elements))
        case _:
            return of


def _wire(of: DataType, conversion: Conversion) -> DataType:
    found = find_value(of, conversion)
    if isinstance(found, WireValue):
        return found.type
    match of:
        case _ if found is Handling.REFUSED:
            pass
        case LowCardinality() | SimpleAggregateFunction() | Nested():
            return _wire(_plain(of), conversion)
        case Nullable(inner):
            return _optional(_wire(inner, conversion))
        case Array(inner):
            return Array(_wire(inner, conversion))
        case Tuple(elements):
            return Tuple(
                tuple(
                    (element_name(name, i), _wire(inner, conversion))
                    for i, (name, inner) in enumerate(elements)
                )
            )
        case Map(key, value):
            return Map(_wire(key, conversion), _wire(value, conversion))
        case AggregateFunction(_, value) if value is not None:
            return _wire(value, DEFAULT)
        case _ if members := alternatives_of(of):
            wires = tuple((name, _optional(_wire(inner, conversion))) for name, inner in members)
            return Nullable(Tuple(((_TYPE_MEMBER, Simple("String")), *wires)))
        case _:
            pass
    message = (
        f"Cannot read a value of the ClickHouse type {of!r}: it has no wire type. "
        "This is a bug, please report it."
    )
    raise InternalError(message)


def _optional(wire: DataType) -> DataType:
    """Return the type as Nullable; ClickHouse has no Nullable Array or Map."""
    return wire if isinstance(wire, Nullable | Array | Map) else Nullable(wire)


def _expression(sql: str, of: DataType, conversion: Conversion, *, depth: int) -> str:
    found = find_value(of, conversion)
    target = _wire(of, conversion)
    if isinstance(found, WireValue):
        return found.sql.replace("{}", sql) if found.sql else _cast(sql, of, target)
    if _castable(of, conversion):
        return _cast(sql, of, target)
    match of:
        case LowCardinality() | SimpleAggregateFunction() | Nested():
            plain = _plain(of)
            same = sql if not isinstance(of, LowCardinality) else _cast_to(sql, plain)
            return _expression(same, plain, conversion, depth=depth)
        case Nullable(inner):
            inside = _expression(f"assumeNotNull({sql})", inner, conversion, depth=depth)
            return f"if(isNull({sql}), NULL, {inside})"
        case Array(inner):
            return _each(sql, inner, conversion, depth)
        case Tuple(elements):
            members = (
                _expression(f"tupleElement({sql}, {i})", inner, conversion, depth=depth)
                for i, (_, inner) in enumerate(elements, start=1)
            )
            return _cast_to(f"tuple({', '.join(members)})", target)
        case Map(key, value):
            keys = _each(f"mapKeys({sql})", key, conversion, depth)
            values = _each(f"mapValues({sql})", value, conversion, depth)
            return _cast_to(f"({keys}, {values})", target)
        case AggregateFunction(_, value) if value is not None:
            return _expression(f"finalizeAggregation({sql})", value, DEFAULT, depth=depth)
        case _:
            return _struct(sql, of, conversion, depth)


def _struct(sql: str, of: DataType, conversion: Conversion, depth: int) -> str:
    """Return a Variant as a struct: the name of the active type, then a member per alternative."""
    members = [f"toString(variantType({sql}))"]
    for _, alternative in alternatives_of(of):
        value = alternative_sql(sql, alternative)
        wire = _wire(alternative, conversion)
        has_null = not isinstance(wire, Array | Map | Nullable)
        inner = Nullable(alternative) if has_null else alternative
        members.append(_expression(value, inner, conversion, depth=depth))
    target = _wire(of, conversion)
    plain = target.of if isinstance(target, Nullable) else target
    whole = _cast_to(f"tuple({', '.join(members)})", plain)
    return f"if(isNull({sql}), NULL, {whole})"


def _each(sql: str, inner: DataType, conversion: Conversion, depth: int) -> str:
    element = f"x{depth}"
    inside = _expression(element, inner, conversion, depth=depth + 1)
    return sql if inside == element else f"arrayMap({element} -> {inside}, {sql})"


def _castable(of: DataType, conversion: Conversion) -> bool:
    """Whether one CAST of the whole value yields its wire value."""
    found = find_value(of, conversion)
    if isinstance(found, WireValue):
        return not found.sql
    match of:
        case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            return _castable(inner, conversion)
        case Nullable(inner) | Array(inner):
            return _castable(inner, conversion)
        case Tuple(elements) | Nested(elements):
            return all(_castable(inner, conversion) for _, inner in elements)
        case Map(key, value):
            return _castable(key, conversion) and _castable(value, conversion)
        case _:
            return False


def _cast(sql: str, of: DataType, target: DataType) -> str:
    return sql if target == rebuild(of, _plain) else _cast_to(sql, target)


def _cast_to(sql: str, target: DataType) -> str:
    return f"CAST({sql} AS {render_type(target)})"

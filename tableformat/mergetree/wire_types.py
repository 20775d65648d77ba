"""Builds the SQL that converts each column to its wire type, in which it leaves ClickHouse.

ClickHouse casts every column to a small set of types whose Arrow form is the same in all server
versions and keeps every value: `Int8..64, UInt8..32, Float32/64, Bool, Decimal(P <= 38), String,
FixedString, Date32, DateTime64(6, 'UTC'), UUID` and `Array`, `Tuple`, `Map`, `Nullable` of these.
Arrow data has no zone of a DateTime and no labels of an Enum, so no value can be corrected after it
has left ClickHouse.

This module combines the values of `wire_values.py` at any depth: one CAST of the whole column if
that is enough, else an expression over its elements. `iceberg/schema.py` decides which types can be
exported; a refused type has no wire type.
"""

from __future__ import annotations

import re
from typing import Final

from tableformat.errors import InternalError
from tableformat.mergetree.conversions import (
    DEFAULT,
    Conversion,
    Handling,
    WireValue,
    parse_conversion,
)
from tableformat.mergetree.type_text import render_type
from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    DataType,
    Enum,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    Simple,
    SimpleAggregateFunction,
    Tuple,
    Variant,
    rebuild,
)
from tableformat.mergetree.wire_values import GEOMETRY, find_value
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string

__all__ = [
    "WIRE_PAIRS",
    "WIRE_SETTINGS",
    "alternative_sql",
    "alternatives_of",
    "element_name",
    "qualified",
    "wire_expression",
    "wire_type",
    "without_low_cardinality",
]

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
        f"Cannot export a value of the ClickHouse type {of!r}: it has no wire type. "
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

"""The canonical wire: as which ClickHouse type each value leaves ClickHouse (types.md section 3).

Every column is cast in ClickHouse to a small set of types whose Arrow form is the same in all
server versions and keeps every value: `Int8..64, UInt8..32, Float32/64, Bool, Decimal(P <= 38),
String, FixedString, Date32, DateTime64(6, 'UTC'), UUID` and `Array`, `Tuple`, `Map`, `Nullable` of
these. Arrow alone no longer knows a DateTime's zone or an Enum's labels, so nothing is mended after
the hand-over.

This file owns the wire type and the SQL of a value. Which types may be exported at all is decided
by `iceberg/schema.py`; a type that it refuses has no wire type here.
"""

from __future__ import annotations

from typing import Final

from tableformat.errors import InternalError
from tableformat.mergetree.type_text import render_type
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    LowCardinality,
    Map,
    Nullable,
    Simple,
    Time64,
    Tuple,
)
from tableformat.names import SOURCE_ALIAS, quote_identifier

__all__ = [
    "element_name",
    "qualified",
    "wire_expression",
    "wire_type",
    "without_low_cardinality",
]

_SAME: Final = frozenset(
    {
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "UInt8",
        "UInt16",
        "UInt32",
        "Float32",
        "Float64",
        "Bool",
        "String",
        "Date32",
        "UUID",
    }
)
_SIMPLE: Final[dict[str, DataType]] = {
    # Iceberg has no unsigned 64 bits: decimal(20,0) holds them all, long would wrap.
    "UInt64": Decimal(20, 0),
    "Int128": Simple("String"),
    "UInt128": Simple("String"),
    "Int256": Simple("String"),
    "UInt256": Simple("String"),
    "BFloat16": Simple("Float32"),
    # Servers before 26.2 give Date as a bare number; Date32 is a date in all of them.
    "Date": Simple("Date32"),
    "Time": Simple("Int64"),
}
_INSTANT: Final = DateTime64(6, "UTC")
_GREATEST_PRECISION: Final = 38


def qualified(column: str) -> str:
    """Return a source column as SQL, in the table that every query calls `SOURCE_ALIAS`."""
    return f"{quote_identifier(SOURCE_ALIAS)}.{quote_identifier(column)}"


def element_name(name: str | None, position: int) -> str:
    """Return the name of a tuple's element outside ClickHouse: unnamed ones are `_1`, `_2`, ...

    Args:
        name: the element's own name, if it has one.
        position: from 0.
    """
    return f"_{position + 1}" if name is None else name


def wire_type(of: DataType, *, conversion: str = "") -> DataType:
    """Return the type that a value of type `of` has on the wire.

    Args:
        of: a type of the first half of types.md section 3.
        conversion: what the user chose for the column (`--convert`), '' for the default. `long`
            keeps UInt64 as it is, so that Arrow's safe cast refuses what does not fit.

    Raises:
        InternalError: the type has no mapping; `iceberg.schema.map_columns` refuses it first.
    """
    match of:
        case Simple(name="UInt64") if conversion == "long":
            return of
        case Simple(name) if name in _SAME:
            return of
        case Simple(name) if name in _SIMPLE:
            return _SIMPLE[name]
        case Decimal(precision, _) if precision > _GREATEST_PRECISION:
            return Simple("String")
        case Decimal() | FixedString():
            return of
        case DateTime() | DateTime64():
            return _INSTANT
        case Time64(precision):
            return Decimal(18, precision)
        case Enum():
            return Simple("String")
        case LowCardinality(inner):
            return wire_type(inner, conversion=conversion)
        case Nullable(inner):
            return Nullable(wire_type(inner, conversion=conversion))
        case Array(inner):
            return Array(wire_type(inner, conversion=conversion))
        case Tuple(elements):
            return Tuple(
                tuple(
                    (element_name(name, i), wire_type(inner, conversion=conversion))
                    for i, (name, inner) in enumerate(elements)
                )
            )
        case Map(key, value):
            return Map(
                wire_type(key, conversion=conversion), wire_type(value, conversion=conversion)
            )
        case _:
            message = (
                f"Cannot export a value of the ClickHouse type {of!r}: it has no wire type. "
                "This is a bug, please report it."
            )
            raise InternalError(message)


def wire_expression(sql: str, of: DataType, *, conversion: str = "") -> str:
    """Return SQL that gives the value of `sql`, which has the type `of`, as its wire type.

    Values that are already canonical pass as they are; LowCardinality leaves ClickHouse plain. The
    target type carries Nullable inside, because a plain CAST stops at NULL.

    Args:
        sql: a column or an expression.
        of: its ClickHouse type.
        conversion: as in `wire_type`.

    Raises:
        InternalError: as `wire_type`.
    """
    target = wire_type(of, conversion=conversion)
    if target == without_low_cardinality(of):
        return sql
    return f"CAST({sql} AS {render_type(target)})"


def without_low_cardinality(of: DataType) -> DataType:
    """Return the type with every LowCardinality taken off: it is an encoding, not another value."""
    match of:
        case LowCardinality(inner):
            return without_low_cardinality(inner)
        case Nullable(inner):
            return Nullable(without_low_cardinality(inner))
        case Array(inner):
            return Array(without_low_cardinality(inner))
        case Tuple(elements):
            return Tuple(tuple((name, without_low_cardinality(inner)) for name, inner in elements))
        case Map(key, value):
            return Map(without_low_cardinality(key), without_low_cardinality(value))
        case _:
            return of

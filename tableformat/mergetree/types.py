"""Defines ClickHouse data types as values; `type_text` parses and renders them.

An unknown type is `Unknown`: it keeps its text and is refused when it is used, never guessed
(docs/reference/types.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

__all__ = [
    "SIMPLE_TYPES",
    "AggregateFunction",
    "Array",
    "DataType",
    "DateTime",
    "DateTime64",
    "Decimal",
    "Dynamic",
    "Enum",
    "FixedString",
    "Json",
    "LowCardinality",
    "Map",
    "Nested",
    "Nullable",
    "QBit",
    "Simple",
    "SimpleAggregateFunction",
    "Time64",
    "Tuple",
    "Unknown",
    "Variant",
    "contains",
    "rebuild",
]

SIMPLE_TYPES: Final = frozenset(
    [
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "Int128",
        "Int256",
        "UInt8",
        "UInt16",
        "UInt32",
        "UInt64",
        "UInt128",
        "UInt256",
        "Float32",
        "Float64",
        "BFloat16",
        "Bool",
        "String",
        "Date",
        "Date32",
        "Time",
        "UUID",
        "IPv4",
        "IPv6",
        "Point",
        "Ring",
        "Polygon",
        "MultiPolygon",
        "LineString",
        "MultiLineString",
        "MultiPoint",
        "Geometry",
        "Nothing",
        "IntervalNanosecond",
        "IntervalMicrosecond",
        "IntervalMillisecond",
        "IntervalSecond",
        "IntervalMinute",
        "IntervalHour",
        "IntervalDay",
        "IntervalWeek",
        "IntervalMonth",
        "IntervalQuarter",
        "IntervalYear",
    ]
)


@dataclass(frozen=True, slots=True)
class Simple:
    """A type without arguments, one of `SIMPLE_TYPES`."""

    name: str


@dataclass(frozen=True, slots=True)
class FixedString:
    """FixedString(length), in bytes."""

    length: int


@dataclass(frozen=True, slots=True)
class Decimal:
    """Decimal(precision, scale); Decimal32/64/128/256 are read as their precision."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class DateTime:
    """DateTime, with its own zone or (None) the server's."""

    zone: str | None = None


@dataclass(frozen=True, slots=True)
class DateTime64:
    """DateTime64(precision), with its own zone or (None) the server's."""

    precision: int
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Time64:
    """Time64(precision)."""

    precision: int


@dataclass(frozen=True, slots=True)
class Enum:
    """Enum8 or Enum16 with its labels and codes, in the order of the declaration."""

    bits: int
    labels: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Nullable:
    """Nullable(of)."""

    of: DataType


@dataclass(frozen=True, slots=True)
class LowCardinality:
    """LowCardinality(of)."""

    of: DataType


@dataclass(frozen=True, slots=True)
class Array:
    """Array(of)."""

    of: DataType


@dataclass(frozen=True, slots=True)
class Tuple:
    """Tuple of named (name given) or unnamed (None) elements; never mixed."""

    elements: tuple[tuple[str | None, DataType], ...]


@dataclass(frozen=True, slots=True)
class Nested:
    """Nested(name type, ...), as it appears with flatten_nested = 0."""

    elements: tuple[tuple[str, DataType], ...]


@dataclass(frozen=True, slots=True)
class Map:
    """Map(key, value). Duplicate keys are legal in ClickHouse."""

    key: DataType
    value: DataType


@dataclass(frozen=True, slots=True)
class Variant:
    """Variant(alternatives)."""

    alternatives: tuple[DataType, ...]


@dataclass(frozen=True, slots=True)
class SimpleAggregateFunction:
    """SimpleAggregateFunction(function, of): stored as `of`."""

    function: str
    of: DataType


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """AggregateFunction(...): a state; `arguments` is the text between the parentheses.

    `value` is the type of the state's final value (finalizeAggregation). It is not part of the
    text, so types of one text are equal. A source asks ClickHouse for it, and leaves None if
    ClickHouse cannot determine it.
    """

    arguments: str
    value: DataType | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Json:
    """JSON; `arguments` is the text between the parentheses, '' if there is none."""

    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Dynamic, with its own limit of types or (None) the default one."""

    max_types: int | None = None


@dataclass(frozen=True, slots=True)
class QBit:
    """QBit(element, length): a vector of floating point numbers, stored bit by bit."""

    element: DataType
    length: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """A type that this release does not know."""

    text: str


DataType = (
    Simple
    | FixedString
    | Decimal
    | DateTime
    | DateTime64
    | Time64
    | Enum
    | Nullable
    | LowCardinality
    | Array
    | Tuple
    | Nested
    | Map
    | Variant
    | SimpleAggregateFunction
    | AggregateFunction
    | Json
    | Dynamic
    | QBit
    | Unknown
)


def contains(of: DataType, wanted: Callable[[DataType], bool]) -> bool:
    """Whether a type, or one nested in it, satisfies a predicate."""
    found = []

    def collect(one: DataType) -> DataType:
        found.append(wanted(one))
        return one

    rebuild(of, collect)
    return any(found)


def rebuild(of: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """Return `of` with `change` applied to every type in it, inner types first.

    `AggregateFunction.value` is unchanged, because it is not part of the type's text.
    """
    match of:
        case Nullable(inner):
            of = Nullable(rebuild(inner, change))
        case LowCardinality(inner):
            of = LowCardinality(rebuild(inner, change))
        case Array(inner):
            of = Array(rebuild(inner, change))
        case Tuple(elements):
            of = Tuple(tuple((name, rebuild(inner, change)) for name, inner in elements))
        case Nested(members):
            of = Nested(tuple((name, rebuild(inner, change)) for name, inner in members))
        case Map(key, value):
            of = Map(rebuild(key, change), rebuild(value, change))
        case Variant(alternatives):
            of = Variant(tuple(rebuild(inner, change) for inner in alternatives))
        case SimpleAggregateFunction():
            of = replace(of, of=rebuild(of.of, change))
        case _:
            pass
    return change(of)

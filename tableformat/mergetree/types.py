"""Defines ClickHouse data types as values, and parses and renders their text.

The text is that of system.columns.type. An unknown type is `Unknown`: it keeps its text, is no
error here, and is refused by column when it is used, never guessed (docs/reference/types.md). A
type of system.columns renders to the same text, including its quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar, assert_never

from tableformat.errors import UsageError
from tableformat.mergetree.sql_tokens import TokenKind, TokenReader
from tableformat.names import quote_identifier, quote_string

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
    "parse_type",
    "read_type",
    "rebuild",
    "render_type",
    "type_matcher",
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


T = TypeVar("T")

_DECIMALS: Final = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
# The limit for digits of an argument; ClickHouse's own lengths and codes have fewer.
_LONGEST: Final = 18
_ENUMS: Final = {"Enum8": 8, "Enum16": 16}
_OF_ONE: Final[dict[str, Callable[[DataType], DataType]]] = {
    "Nullable": Nullable,
    "LowCardinality": LowCardinality,
    "Array": Array,
}
_NEEDS_ARGUMENTS: Final = frozenset(
    (*_DECIMALS, *_ENUMS, *_OF_ONE, "FixedString", "Tuple", "Nested", "Map", "Variant", "QBit")
) | {"AggregateFunction", "SimpleAggregateFunction"}
# Types without arguments; ClickHouse itself always shows the arguments.
_DEFAULTS: Final[dict[str, DataType]] = {
    "DateTime": DateTime(),
    "DateTime32": DateTime(),
    "DateTime64": DateTime64(3),
    "Time64": Time64(3),
    "Decimal": Decimal(10, 0),
    "JSON": Json(),
    "Dynamic": Dynamic(),
}
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Plain names that ClickHouse puts in backticks.
_QUOTED_WORDS: Final = frozenset(
    (
        "null",
        "nan",
        "inf",
        "infinity",
        "true",
        "false",
        "distinct",
        "all",
        "table",
        "select",
        "from",
    )
)


_FAMILIES: Final[dict[str, Callable[[DataType], bool]]] = {
    "AggregateFunction": lambda of: isinstance(of, AggregateFunction),
    "DateTime": lambda of: isinstance(of, DateTime),
    "DateTime32": lambda of: isinstance(of, DateTime),
    "DateTime64": lambda of: isinstance(of, DateTime64),
    "Decimal": lambda of: isinstance(of, Decimal),
    "Dynamic": lambda of: isinstance(of, Dynamic),
    "Enum": lambda of: isinstance(of, Enum),
    "Enum8": lambda of: isinstance(of, Enum) and of.bits == _ENUMS["Enum8"],
    "Enum16": lambda of: isinstance(of, Enum) and of.bits == _ENUMS["Enum16"],
    "FixedString": lambda of: isinstance(of, FixedString),
    "JSON": lambda of: isinstance(of, Json),
    "QBit": lambda of: isinstance(of, QBit),
    "Time64": lambda of: isinstance(of, Time64),
    "Variant": lambda of: isinstance(of, Variant),
}
"""The types with arguments that a name without arguments stands for."""


def type_matcher(text: str) -> Callable[[DataType], bool] | None:
    """Return whether a type is the one that a user named; None if the text names no type.

    A name without arguments stands for all types of this name: `DateTime64` for every precision and
    zone. A time without a zone stands for every zone.
    """
    if text in _FAMILIES:
        return _FAMILIES[text]
    try:
        named = parse_type(text)
    except UsageError:
        return None
    match named:
        case Unknown():
            return None
        case DateTime64(precision, None):
            return lambda of: isinstance(of, DateTime64) and of.precision == precision
        case _:
            return lambda of: of == named


def parse_type(text: str) -> DataType:
    """Parse a type.

    Args:
        text: as in system.columns, e.g. `Array(Tuple(a UInt8, b Nullable(String)))`.

    Raises:
        UsageError: the text is malformed: an open bracket or quote, missing or surplus arguments.
    """
    reader = TokenReader(text, "type", advice="Write it as system.columns shows it.")
    found = read_type(reader)
    reader.expect_end()
    return found


def read_type(reader: TokenReader) -> DataType:
    """Parse a type at the reader's position in a longer text.

    Raises:
        UsageError: as `parse_type`.
    """
    reader.enter_level()
    name = reader.expect_kind(TokenKind.WORD, "the name of a type")
    if not reader.peek().is_symbol("("):
        found = _bare(reader, name.text)
    else:
        start = name.start
        reader.take()
        found = _with_arguments(reader, name.text, start)
    reader.leave_level()
    return found


def _bare(reader: TokenReader, name: str) -> DataType:
    if name in SIMPLE_TYPES:
        return Simple(name)
    if name in _NEEDS_ARGUMENTS:
        raise reader.syntax_error(f"'(' after {name}")
    return _DEFAULTS.get(name, Unknown(name))


def _with_arguments(reader: TokenReader, name: str, start: int) -> DataType:
    """Parse from after the opening bracket to the closing one."""
    match name:
        case "AggregateFunction":
            return AggregateFunction(_between(reader))
        case "JSON":
            return Json(_between(reader))
        case "SimpleAggregateFunction":
            return _simple_aggregate(reader, start)
        case "Tuple":
            found: DataType = _tuple(reader)
        case "Nested":
            found = Nested(tuple(_list_of(reader, _named_element)))
        case "Variant":
            found = Variant(tuple(_list_of(reader, read_type)))
        case "Dynamic":
            found = _dynamic(reader)
        case "QBit":
            element = read_type(reader)
            reader.expect(",")
            found = QBit(element, _integer(reader, "a length"))
            if reader.accept(","):
                # A stride, or an argument of a later release: an unknown layout.
                return Unknown(reader.text[start : reader.skip_group().stop])
        case "Map":
            key = read_type(reader)
            reader.expect(",")
            found = Map(key, read_type(reader))
        case _ if name in _OF_ONE:
            found = _OF_ONE[name](read_type(reader))
        case _ if name in _ENUMS:
            found = Enum(_ENUMS[name], tuple(_list_of(reader, _label)))
        case _:
            scalar = _with_numbers(reader, name)
            if scalar is None:
                return Unknown(reader.text[start : reader.skip_group().stop])
            found = scalar
    reader.expect(")")
    return found


def _with_numbers(reader: TokenReader, name: str) -> DataType | None:
    """Parse the types whose arguments are numbers and zones; None for other types."""
    match name:
        case "FixedString":
            return FixedString(_integer(reader, "a length"))
        case "Decimal":
            precision = _integer(reader, "a precision")
            scale = _integer(reader, "a scale") if reader.accept(",") else 0
            return Decimal(precision, scale)
        case _ if name in _DECIMALS:
            return Decimal(_DECIMALS[name], _integer(reader, "a scale"))
        case "Time64":
            return Time64(_integer(reader, "a precision"))
        case "DateTime" | "DateTime32":
            return DateTime(_zone(reader))
        case "DateTime64":
            precision = _integer(reader, "a precision")
            return DateTime64(precision, _zone(reader) if reader.accept(",") else None)
        case _:
            return None


def _between(reader: TokenReader) -> str:
    """Return the text up to the closing bracket, and take the bracket."""
    first = reader.peek().start
    return reader.text[first : reader.skip_group().start].rstrip()


def _dynamic(reader: TokenReader) -> Dynamic:
    name = reader.expect_kind(TokenKind.WORD, "max_types")
    if name.text != "max_types":
        raise reader.syntax_error("max_types", token=name)
    reader.expect("=")
    return Dynamic(_integer(reader, "a number of types"))


def _zone(reader: TokenReader) -> str:
    return reader.expect_kind(TokenKind.STRING, "a time zone in quotes").value


def _integer(reader: TokenReader, wanted: str) -> int:
    token = reader.expect_kind(TokenKind.NUMBER, wanted)
    if not token.text.isdecimal() or len(token.text) > _LONGEST:
        raise reader.syntax_error(wanted, token=token)
    return int(token.text)


def _list_of(reader: TokenReader, read: Callable[[TokenReader], T]) -> list[T]:
    found = [read(reader)]
    while reader.accept(","):
        found.append(read(reader))
    return found


def _label(reader: TokenReader) -> tuple[str, int]:
    label = reader.expect_kind(TokenKind.STRING, "a label in quotes").value
    reader.expect("=")
    sign = -1 if reader.accept("-") else 1
    return label, sign * _integer(reader, "a code")


def _tuple(reader: TokenReader) -> Tuple:
    if reader.peek().is_symbol(")"):
        return Tuple(())
    # A type follows a name; arguments, a comma or the end follow an unnamed element.
    if reader.peek().kind is TokenKind.QUOTED or not reader.peek(1).is_symbol("(", ",", ")"):
        return Tuple(tuple(_list_of(reader, _named_element)))
    return Tuple(tuple((None, of) for of in _list_of(reader, read_type)))


def _named_element(reader: TokenReader) -> tuple[str, DataType]:
    if reader.peek().kind not in (TokenKind.WORD, TokenKind.QUOTED):
        raise reader.syntax_error("the name of an element")
    name = reader.take().value
    return name, read_type(reader)


def _simple_aggregate(reader: TokenReader, start: int) -> DataType:
    first = reader.expect_kind(TokenKind.WORD, "an aggregate function")
    stop = first.stop
    if reader.accept("("):
        stop = reader.skip_group().stop
    reader.expect(",")
    of = read_type(reader)
    if reader.accept(","):
        # Functions of several arguments do not store a single value of one type.
        return Unknown(reader.text[start : reader.skip_group().stop])
    reader.expect(")")
    return SimpleAggregateFunction(reader.text[first.start : stop], of)


def render_type(of: DataType) -> str:
    """Return the text of a type as ClickHouse writes it; `parse_type` reads it back."""
    match of:
        case Simple(name):
            return name
        case FixedString(length):
            return f"FixedString({length})"
        case Decimal(precision, scale):
            return f"Decimal({precision}, {scale})"
        case DateTime(zone):
            return "DateTime" if zone is None else f"DateTime({quote_string(zone)})"
        case DateTime64(precision, zone):
            tail = "" if zone is None else f", {quote_string(zone)}"
            return f"DateTime64({precision}{tail})"
        case Time64(precision):
            return f"Time64({precision})"
        case Enum(bits, labels):
            listed = ", ".join(f"{quote_string(label)} = {code}" for label, code in labels)
            return f"Enum{bits}({listed})"
        case Nullable(inner):
            return f"Nullable({render_type(inner)})"
        case LowCardinality(inner):
            return f"LowCardinality({render_type(inner)})"
        case Array(inner):
            return f"Array({render_type(inner)})"
        case Tuple(elements):
            return f"Tuple({', '.join(_element(name, inner) for name, inner in elements)})"
        case Nested(elements):
            return f"Nested({', '.join(_element(name, inner) for name, inner in elements)})"
        case Map(key, value):
            return f"Map({render_type(key)}, {render_type(value)})"
        case Variant(alternatives):
            return f"Variant({', '.join(render_type(inner) for inner in alternatives)})"
        case SimpleAggregateFunction(function, inner):
            return f"SimpleAggregateFunction({function}, {render_type(inner)})"
        case AggregateFunction(arguments):
            return f"AggregateFunction({arguments})"
        case Json(arguments):
            return f"JSON({arguments})" if arguments else "JSON"
        case Dynamic(max_types):
            return "Dynamic" if max_types is None else f"Dynamic(max_types={max_types})"
        case QBit(element, length):
            return f"QBit({render_type(element)}, {length})"
        case Unknown(text):
            return text
        case _:
            assert_never(of)


def _element(name: str | None, of: DataType) -> str:
    if name is None:
        return render_type(of)
    plain = _PLAIN.match(name) and name.lower() not in _QUOTED_WORDS
    return f"{name if plain else quote_identifier(name)} {render_type(of)}"

"""What docs/reference/types.md promises of a whole column: values inside values, and refusals.

The normalisation under which ClickHouse's rows and those of the readers are compared: single values
as in `promised_values.py`; lists in their order; maps as lists of pairs in their order; structs as
pairs of name and value, unnamed members `_1`, `_2`; a Variant as the name of its type and the value
of that alternative, after the others were seen to be NULL or empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tableformat.mergetree import conversions as limits
from tableformat.mergetree.conversions import Limit
from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    DataType,
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
from tests.properties.promised_values import find_kept, json_of, json_text
from tests.properties.row_binary import GEOMETRY, SHAPES, RowReader

__all__ = ["Promise", "finalized", "inner_types", "words_of"]

_TEXT: Final = ("string",)
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "UInt64": ("long", "string"),
    **dict.fromkeys(("Int128", "UInt128", "Int256", "UInt256"), ("string", "decimal(38,0)")),
    "String": ("string", "binary"),
    "Time": _TEXT,
    "UUID": ("string", "binary"),
    "IPv4": ("long", "string"),
    "IPv6": ("binary", "string"),
    "Geometry": ("struct", "json", "string", "wkb"),
    "Ring": ("struct",),
    **{name: ("struct", "wkb") for name in SHAPES if name != "Ring"},
}
_GEOMETRY_ORDER: Final = tuple(sorted(GEOMETRY, key=lambda of: of.name))


def words_of(of: DataType) -> tuple[str, ...]:
    """Return the conversions that a type itself takes; of decimals one of each kind."""
    match of:
        case Simple(name) if name.startswith("Interval"):
            return ("long",)
        case Simple(name):
            return _WORDS.get(name, ())
        case Decimal(precision, scale) if precision <= 38:
            return (f"decimal({min(precision + 3, 38)},{scale})",)
        case Decimal(_, scale):
            return ("string", f"decimal(38,{min(scale, 38)})", "decimal(38,0)")
        case FixedString() | Time64() | QBit():
            return _TEXT
        case DateTime64(precision, _):
            return ("truncate", "long", "string") if precision > 6 else ("long", "string")
        case Enum():
            return ("long", "string")
        case Json():
            return ("json", "string")
        case Dynamic():
            return ("json", "string", "struct")
        case AggregateFunction():
            return ("finalize", "state")
        case Variant():
            return ("struct", "json", "string")
        case _:
            return ()


def inner_types(of: DataType) -> Iterator[DataType]:
    """Yield a type and every type in it."""
    yield of
    match of:
        case Nullable(inner) | LowCardinality(inner) | Array(inner) | QBit(inner, _):
            yield from inner_types(inner)
        case SimpleAggregateFunction(_, inner):
            yield from inner_types(inner)
        case Tuple(elements) | Nested(elements):
            for _, inner in elements:
                yield from inner_types(inner)
        case Map(key, inner):
            yield from inner_types(key)
            yield from inner_types(inner)
        case Variant(alternatives):
            for inner in alternatives:
                yield from inner_types(inner)
        case _:
            pass


def finalized(of: AggregateFunction, state: bytes) -> tuple[DataType, Any]:
    """Return type and value of what a state comes to (finalizeAggregation)."""
    reader = RowReader(state)
    match of.arguments.split(", "):
        case ["sum", name]:
            return Simple(name), reader.read(Simple(name))
        case ["count"]:
            # A number of this form is the length of an array of nothing.
            return Simple("UInt64"), len(reader.read(Array(Tuple(()))))
        case ["groupArray", "String"]:
            return Array(Simple("String")), reader.read(Array(Simple("String")))
        case ["max", "Int8"]:
            is_there = reader.read(Simple("Bool"))
            return Simple("Int8"), reader.read(Simple("Int8")) if is_there else 0
        case _:
            raise AssertionError(of)


@dataclass(frozen=True)
class Promise:
    """A conversion, '' for none, and what becomes of values under it."""

    how: str = ""

    def is_refused(self, of: DataType) -> bool:
        """Whether a type is of class D and the conversion does not change that."""
        match of:
            case Dynamic():
                return self.how not in ("json", "string", "struct")
            case AggregateFunction():
                return self.how not in ("finalize", "state")
            case Tuple(()) | Simple("Nothing"):
                return True
            case Nullable(QBit()):
                return self.how != "string"
            case Variant() if self.how in ("json", "string"):
                return False
            case _:
                return any(self.is_refused(t) for t in _members(of))

    def applies(self, of: DataType) -> bool:
        """Whether the conversion says something about any value of a type."""
        if self.how in _decimals(of) or self.how in words_of(of):
            return True
        if isinstance(of, Variant | AggregateFunction) and self.how in words_of(of):
            return True
        return any(self.applies(t) for t in _members(of))

    def wanted(self, of: DataType, value: Any) -> Any:
        """Return what a stored value must be in the lake."""
        kept = find_kept(of, self.how)
        if kept is not None:
            return kept.wanted(value)
        match of:
            case Nullable(inner):
                return None if value is None else self.wanted(inner, value)
            case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
                return self.wanted(inner, value)
            case Array(inner):
                return [self.wanted(inner, v) for v in value]
            case Nested(elements):
                return self.wanted(Array(Tuple(elements)), value)
            case Tuple(elements):
                members = zip(_names(elements), elements, value, strict=True)
                return [(name, self.wanted(inner, v)) for name, (_, inner), v in members]
            case Map(key, inner):
                return [(self.wanted(key, k), self.wanted(inner, v)) for k, v in value]
            case Simple(name) if name in SHAPES:
                return self.wanted(SHAPES[name], value)
            case AggregateFunction():
                return Promise().wanted(*finalized(of, value))
            case Dynamic():
                return None if value is None else self._dynamic(*value)
            case _:
                return self._wanted_alternative(of, value)

    def found(self, of: DataType, value: Any) -> Any:
        """Return a reader's value in the same form."""
        kept = find_kept(of, self.how)
        if kept is not None:
            return None if value is None else kept.found(value)
        match of:
            case Nullable(inner):
                return None if value is None else self.found(inner, value)
            case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
                return self.found(inner, value)
            case Array(inner):
                return [self.found(inner, v) for v in value]
            case Nested(elements):
                return self.found(Array(Tuple(elements)), value)
            case Tuple(elements):
                members = zip(value.items(), elements, strict=True)
                return [(name, self.found(inner, v)) for (name, v), (_, inner) in members]
            case Map(key, inner):
                pairs = [p.values() if isinstance(p, dict) else p for p in value]
                return [(self.found(key, k), self.found(inner, v)) for k, v in pairs]
            case Simple(name) if name in SHAPES:
                return self.found(SHAPES[name], value)
            case AggregateFunction(arguments):
                return Promise().found(_VALUES[arguments], value)
            case Dynamic() if value is None:
                return None
            case Dynamic() if self.how == "struct":
                return (value["type"], json_text(value["json"]))
            case Dynamic():
                return json_text(value)
            case _:
                return self._found_alternative(of, value)

    def broken(self, of: DataType, value: Any) -> set[Limit]:
        """Return the limits that a stored value breaks."""
        kept = find_kept(of, self.how)
        if kept is not None:
            limit = kept.broken(value)
            return {limit} if limit else set()
        match of:
            case Map(key, inner):
                keys = [repr(self._key(key, k)) for k, _ in value]
                twice = {limits.TWICE} if len(set(keys)) < len(keys) else set()
                inside = (
                    self.broken(t, v) for p in value for t, v in zip((key, inner), p, strict=True)
                )
                return twice.union(*inside)
            case AggregateFunction():
                return Promise().broken(*finalized(of, value))
            case Variant() if self.how in ("json", "string"):
                return _broken_json(of.alternatives[value[0]], value[1]) if value else set()
            case Dynamic():
                return _broken_json(*value) if value else set()
            case _:
                found: set[Limit] = set()
                return found.union(*(self.broken(t, v) for t, v in _inside(of, value)))

    def _key(self, of: DataType, value: Any) -> Any:
        return self.wanted(of, value) if self.how == "truncate" else value

    def _dynamic(self, of: DataType, value: Any) -> Any:
        text = json_of(of, value)
        return (render_type(of), text) if self.how == "struct" else text

    def _wanted_alternative(self, of: DataType, value: tuple[int, Any] | None) -> Any:
        if value is None:
            return None
        inner = (of.alternatives if isinstance(of, Variant) else GEOMETRY)[value[0]]
        if self.how in ("json", "string"):
            return json_of(inner, value[1])
        return render_type(inner), self.wanted(inner, value[1])

    def _found_alternative(self, of: DataType, value: Any) -> Any:
        if value is None:
            return None
        if self.how in ("json", "string"):
            return json_text(value)
        alternatives = of.alternatives if isinstance(of, Variant) else _GEOMETRY_ORDER
        kind, *members = value.values()
        shown = dict(zip(map(render_type, alternatives), members, strict=True))
        inner = next(t for t in alternatives if render_type(t) == kind)
        others = {k: v for k, v in shown.items() if k != kind and v not in (None, [], {})}
        return (kind, self.found(inner, shown[kind])) if not others else ("not only", kind, others)


_VALUES: Final[dict[str, DataType]] = {
    **{f"sum, {name}": Simple(name) for name in ("UInt64", "Int64", "Float64")},
    "count": Simple("UInt64"),
    "groupArray, String": Array(Simple("String")),
    "max, Int8": Simple("Int8"),
}


def _members(of: DataType) -> list[DataType]:
    match of:
        case Nullable(inner) | LowCardinality(inner) | Array(inner):
            return [inner]
        case SimpleAggregateFunction(_, inner):
            return [inner]
        case Tuple(elements) | Nested(elements):
            return [inner for _, inner in elements]
        case Map(key, inner):
            return [key, inner]
        case Variant(alternatives):
            return list(alternatives)
        case Simple("Geometry"):
            return list(GEOMETRY)
        case _:
            return []


def _decimals(of: DataType) -> tuple[str, ...]:
    """Return the decimals that a type may become; `words_of` names only one of each kind."""
    match of:
        case Decimal(precision, scale) if precision <= 38:
            return tuple(f"decimal({p},{scale})" for p in range(precision, 39))
        case Decimal():
            return tuple(f"decimal(38,{s})" for s in range(39))
        case _:
            return ()


def _names(elements: tuple[tuple[str | None, DataType], ...]) -> list[str]:
    return [f"_{i}" if name is None else name for i, (name, _) in enumerate(elements, start=1)]


def _inside(of: DataType, value: Any) -> Iterator[tuple[DataType, Any]]:
    match of:
        case Nullable(inner) | LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            if value is not None:
                yield inner, value
        case Array(inner):
            yield from ((inner, v) for v in value)
        case Nested(elements):
            yield from ((Tuple(elements), v) for v in value)
        case Tuple(elements):
            yield from ((inner, v) for (_, inner), v in zip(elements, value, strict=True))
        case Variant(alternatives) if value is not None:
            yield alternatives[value[0]], value[1]
        case _:
            pass


def _broken_json(of: DataType, value: Any) -> set[Limit]:
    """Return what is wrong with a value that becomes JSON text: only texts can be."""
    if of == Simple("String"):
        broken = Promise().broken(of, value)
        return {limits.JSON_UTF8} if broken else set()
    pairs = (
        [(t, v) for p in value for t, v in zip((of.key, of.value), p, strict=True)]
        if isinstance(of, Map)
        else list(_inside(of, value))
    )
    found: set[Limit] = set()
    return found.union(*(_broken_json(t, v) for t, v in pairs))

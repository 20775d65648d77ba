"""Strategies for the types of columns that ClickHouse takes, of every family, nested to depth 4."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final

from hypothesis import strategies as st

from tableformat.mergetree.types import (
    SIMPLE_TYPES,
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
from tests.properties.promised_columns import inner_types, words_of
from tests.properties.row_binary import SHAPES
from tests.strategies.types import zones

__all__ = ["CONVERSIONS", "FAMILIES", "column_types", "family_of", "has_plain_json", "not_among"]

_DEPTH: Final = 4
_INTEGERS: Final = tuple(
    Simple(f"{sign}Int{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)
)
_LISTS: Final = tuple(Simple(name) for name in SHAPES if name != "Point")
_SIMPLE: Final = tuple(
    Simple(name)
    for name in sorted(SIMPLE_TYPES)
    if name not in SHAPES and name not in ("Geometry", "Nothing") and Simple(name) not in _INTEGERS
)
_NAMES: Final = ("a", "B b", "x.y", "ü", "1", 'q"q', "tick`", "back\\", "Null", "type")
_ENUMS: Final = (
    Enum(8, (("a", -128), ("it's", 1), ("", 127))),
    Enum(16, (("x", -32768), ("ü😀", 0), ("back\\slash", 32767))),
)
_STATES: Final = tuple(
    AggregateFunction(arguments)
    for arguments in (
        *("sum, UInt64", "sum, Int64", "sum, Float64", "count", "groupArray, String", "max, Int8"),
    )
)
_SIMPLE_STATES: Final = (
    SimpleAggregateFunction("sum", Simple("Int64")),
    SimpleAggregateFunction("sum", Simple("UInt64")),
    SimpleAggregateFunction("anyLast", Nullable(Simple("IPv4"))),
    SimpleAggregateFunction("max", Simple("String")),
    SimpleAggregateFunction("groupArrayArray", Array(Simple("UUID"))),
)
_PLAIN_JSON: Final[tuple[DataType, ...]] = (
    *map(Simple, ("String", "UInt64", "Int64", "UInt8", "Float64", "Bool", "Date", "UUID")),
    Array(Simple("UInt64")),
    Array(Simple("String")),
    Map(Simple("String"), Simple("UInt8")),
    Tuple((("a", Simple("UInt8")), ("B b", Simple("String")))),
    Decimal(9, 2),
)
_OTHER_ALTERNATIVES: Final[tuple[DataType, ...]] = (
    *(FixedString(3), DateTime64(9, "UTC"), DateTime64(3, "UTC"), Simple("IPv4"), Simple("Date32")),
    *(LowCardinality(Simple("String")), QBit(Simple("Float32"), 2), _ENUMS[0], Simple("Int128")),
    *(Decimal(50, 3), Simple("IPv6"), DateTime("Asia/Tokyo"), Array(Nullable(Simple("UUID")))),
    *(Simple("Point"), Simple("Ring"), Time64(3), Array(Simple("UInt64"))),
)

_decimals = st.one_of(
    st.sampled_from([(9, 2), (18, 18), (38, 0), (38, 10), (5, 0), (50, 5), (76, 76), (39, 0)]),
    st.integers(1, 76).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))),
).map(lambda ps: Decimal(*ps))
_zoned: st.SearchStrategy[DataType] = st.one_of(
    st.builds(DateTime, st.none() | zones), st.builds(DateTime64, st.integers(0, 9), zones)
)
_fixed = st.integers(1, 20).map(FixedString)
_vectors = st.builds(
    QBit,
    st.sampled_from([Simple("Float32"), Simple("Float64"), Simple("BFloat16")]),
    st.integers(1, 9),
)
# What may stand inside Nullable, a Map's key and LowCardinality, each with its own exceptions.
_scalars: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from(_INTEGERS),
    st.sampled_from(_SIMPLE),
    st.sampled_from(_ENUMS),
    _zoned,
    _fixed,
    _decimals,
    st.integers(0, 9).map(Time64),
)
_keys: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from(_INTEGERS[:4]),
    st.sampled_from(
        [Simple(n) for n in ("String", "UUID", "Date", "Date32", "IPv4", "IPv6", "Bool", "UInt64")]
    ),
    st.sampled_from([LowCardinality(Simple("String")), _ENUMS[0], FixedString(2), Decimal(9, 2)]),
    st.builds(DateTime64, st.sampled_from([3, 6, 9]), st.just("UTC")),
)
_low: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from(
        [
            *_INTEGERS,
            *(Simple(n) for n in ("String", "Date", "Date32", "UUID", "IPv4", "IPv6", "Float64")),
            *(Simple("Bool"), Simple("Float32"), FixedString(4), DateTime("Asia/Tokyo")),
        ]
    )
)
_nullable: st.SearchStrategy[DataType] = st.one_of(
    _scalars, st.sampled_from([Simple("Point"), Json()]), _vectors
)
_variants = st.one_of(
    st.lists(st.sampled_from(_PLAIN_JSON), min_size=1, max_size=4, unique=True),
    st.lists(
        st.sampled_from(_PLAIN_JSON + _OTHER_ALTERNATIVES), min_size=1, max_size=4, unique=True
    ),
).map(lambda found: Variant(tuple(sorted(found, key=lambda of: render_type(of).encode()))))
_plain: st.SearchStrategy[DataType] = st.one_of(
    _scalars,
    _nullable.map(Nullable),
    st.one_of(_low, _low.map(Nullable)).map(LowCardinality),
    st.one_of(
        st.sampled_from([Json(), Json("max_dynamic_paths=2"), Simple("Geometry"), Simple("Point")]),
        st.sampled_from(_LISTS),
        _vectors,
    ),
    _variants,
)
# Refused unless a conversion is named.
_refused: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from([Dynamic(), Dynamic(4)]), st.sampled_from(_STATES), st.just(Tuple(()))
)


def _members(
    of: st.SearchStrategy[DataType],
) -> st.SearchStrategy[tuple[tuple[str, DataType], ...]]:
    names = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3, unique=True)
    return names.flatmap(lambda found: st.tuples(*(st.tuples(st.just(n), of) for n in found)))


def _nested(depth: int, leaves: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    if depth == 0:
        return leaves
    inner = _nested(depth - 1, leaves)
    unnamed = st.lists(inner, min_size=1, max_size=3).map(
        lambda found: Tuple(tuple((None, t) for t in found))
    )
    return st.one_of(
        leaves,
        inner.map(Array),
        _members(inner).map(Tuple),
        unnamed,
        _members(inner).filter(lambda ms: all("." not in n for n, _ in ms)).map(Nested),
        st.builds(Map, _keys, inner),
        _members(_scalars).map(lambda ms: Nullable(Tuple(ms))),
    )


# Each level of nesting costs time and is seldom another case.
_ANY: Final = st.sampled_from([0, 0, 0, 1, 1, 1, 2, 2, 3, _DEPTH]).flatmap(
    [_nested(depth, _plain) for depth in range(_DEPTH + 1)].__getitem__
)
_WITH_REFUSED: Final = _nested(2, _plain | _refused)


def column_types() -> st.SearchStrategy[DataType]:
    """Return types of columns; one in twenty or so is refused without a conversion."""
    return st.integers(0, 23).flatmap(
        lambda n: {
            21: _refused,
            22: _WITH_REFUSED,
            23: st.sampled_from(_SIMPLE_STATES),
        }.get(n, _ANY)
    )


def has_plain_json(of: DataType) -> bool:
    """Whether the properties know the JSON text of every Variant in a type."""
    return all(
        set(inner.alternatives) <= set(_PLAIN_JSON)
        for inner in inner_types(of)
        if isinstance(inner, Variant)
    )


def conversions_of_families(types: Iterable[DataType]) -> frozenset[tuple[str, str]]:
    """Return the conversions that types take, by family; of decimals the digits do not count."""
    return frozenset(
        (family_of(of), word.partition("(")[0]) for of in types for word in words_of(of)
    )


def family_of(of: DataType) -> str:
    """Return the family of a type: its name, with what changes its mapping."""
    match of:
        case Decimal(precision, _):
            return "Decimal" if precision <= 38 else "Decimal of more than 38 digits"
        case DateTime64(precision, _):
            return f"DateTime64({precision})"
        case Tuple(()):
            return "Tuple()"
        case Tuple(((None, _), *_)):
            return "Tuple without names"
        case _:
            return render_type(of).partition("(")[0]


SAMPLES: Final[tuple[DataType, ...]] = (
    *map(Simple, sorted(SIMPLE_TYPES - {"Nothing"})),
    *(Decimal(9, 2), Decimal(50, 5), FixedString(3), DateTime("Asia/Tokyo"), Time64(3), *_ENUMS),
    *(DateTime64(p, "UTC") for p in range(10)),
    *(Json(), Dynamic(), QBit(Simple("Float32"), 3), _STATES[0], _SIMPLE_STATES[0]),
    *(Variant((Simple("String"),)), Nullable(Simple("Int8")), LowCardinality(Simple("String"))),
    *(Array(Simple("UInt8")), Map(Simple("String"), Simple("UInt8")), Tuple(())),
    *(Tuple((("a", Simple("UInt8")),)), Tuple(((None, Simple("UInt8")),))),
    Nested((("a", Simple("UInt8")),)),
)
"""A type of every family of docs/reference/types.md that a column can have."""
FAMILIES: Final = frozenset(map(family_of, SAMPLES))
CONVERSIONS: Final = conversions_of_families(SAMPLES)
"""Every conversion of that page, by family."""


def not_among(
    families: Container[str], conversions: Container[tuple[str, str]]
) -> Iterator[tuple[DataType, str]]:
    """Yield a type and a conversion ('' for none) of each family and conversion not among these."""
    for of in SAMPLES:
        if family_of(of) not in families:
            yield of, ""
        for word in words_of(of):
            if (family_of(of), word.partition("(")[0]) not in conversions:
                yield of, word

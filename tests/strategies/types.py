"""Strategies for ClickHouse types, whole and nested, as values of `tableformat.mergetree.types`."""

from __future__ import annotations

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
    Unknown,
    Variant,
)

# Characters that some text form gives a meaning, before all others.
NASTY = "'\"`\\(),= \n\t\0\b\f\r;-/*{}[]%_.:ü😀"

nasty_text = st.text(
    st.one_of(st.sampled_from(NASTY), st.characters(exclude_categories=["Cs"])), max_size=12
)
names = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
    st.sampled_from(["null", "NULL", "nan", "select", "from", "Tuple", "UInt8", "1", "x.y", "not"]),
    nasty_text.filter(bool),
)
zones = st.sampled_from(["UTC", "Asia/Tokyo", "Europe/Berlin", "Etc/GMT+5"])


@st.composite
def decimals(draw: st.DrawFn, greatest: int = 76) -> Decimal:
    precision = draw(st.integers(1, greatest))
    return Decimal(precision, draw(st.integers(0, precision)))


@st.composite
def enums(draw: st.DrawFn) -> Enum:
    bits = draw(st.sampled_from([8, 16]))
    codes = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    labels = draw(st.lists(nasty_text, min_size=1, max_size=5, unique=True))
    chosen = draw(st.lists(codes, min_size=len(labels), max_size=len(labels), unique=True))
    return Enum(bits, tuple(zip(labels, sorted(chosen), strict=True)))


scalars: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from(sorted(SIMPLE_TYPES)).map(Simple),
    st.integers(1, 256).map(FixedString),
    decimals(),
    st.builds(DateTime, st.none() | zones),
    st.builds(DateTime64, st.integers(0, 9), st.none() | zones),
    st.integers(0, 9).map(Time64),
    enums(),
    st.builds(Dynamic, st.none() | st.integers(0, 254)),
    st.builds(QBit, st.sampled_from([Simple("Float32"), Simple("Float64")]), st.integers(1, 9)),
)
unread: st.SearchStrategy[DataType] = st.sampled_from(
    [
        Unknown("UUID2"),
        Unknown("QBit(Float32, 8, 4)"),
        Json(),
        Json("max_dynamic_paths=8, `a.b` UInt32, SKIP REGEXP 'x)\\'y'"),
        AggregateFunction("count"),
        AggregateFunction("quantiles(0.5, 0.9), Float64"),
    ]
)


def _containers(of: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    some = st.integers(0, 4)
    unnamed = some.flatmap(lambda n: st.tuples(*[st.tuples(st.none(), of)] * n))
    named = st.lists(names, min_size=1, max_size=4, unique=True).flatmap(
        lambda chosen: st.tuples(*(st.tuples(st.just(name), of) for name in chosen))
    )
    functions = st.sampled_from(["sum", "anyLast", "groupArrayArray(5)"])
    return st.one_of(
        of.map(Nullable),
        of.map(LowCardinality),
        of.map(Array),
        unnamed.map(Tuple),
        named.map(Tuple),
        named.map(Nested),
        st.builds(Map, of, of),
        st.lists(of, min_size=1, max_size=4).map(lambda found: Variant(tuple(found))),
        st.builds(SimpleAggregateFunction, functions, of),
    )


# Every type that has a text form; many of them no ClickHouse would take for a column.
data_types: st.SearchStrategy[DataType] = st.recursive(scalars | unread, _containers, max_leaves=8)

"""Columns with values: a type, SQL literals of it, and what a reader of the lake must see."""

from __future__ import annotations

import ipaddress
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal as Number
from typing import Any

from hypothesis import strategies as st

from tableformat.mergetree.table import Column, Engine, MergeTreeTable
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
    Variant,
    render_type,
)
from tableformat.names import TableName, quote_string

__all__ = [
    "Leaf",
    "Sample",
    "column_of",
    "instants",
    "leaf_value",
    "nested_types",
    "samples",
    "table_of",
    "type_samples",
]

ZONES = ("UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata")
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_LONGEST_TIME = 3_599_999


@dataclass(frozen=True)
class Sample:
    """Values of one type: `sql` literals, and `seen`, the same values on the lake's side.

    Instants are seen as microseconds since 1970, so that no calendar stands between.
    """

    type: DataType
    sql: tuple[str, ...]
    seen: tuple[Any, ...]
    conversion: str = ""


Leaf = Callable[[DataType], st.SearchStrategy[tuple[str, Any]]]
"""Gives SQL of a value that holds no other value, and what is seen of it."""


def column_of(name: str, of: DataType, **more: str) -> Column:
    """Return a column of a type."""
    return Column(name, of, render_type(of), **more)


def table_of(*columns: Column, server_zone: str = "UTC", **clauses: str) -> MergeTreeTable:
    """Return a table with these columns and engine clauses."""
    return MergeTreeTable(
        name=TableName("db", "t"),
        identity="uuid",
        uuid="uuid",
        engine=Engine("MergeTree", **clauses),  # type: ignore[arg-type]
        columns=columns,
        storage_policy="default",
        server_version="26.9.2.1",
        server_zone=server_zone,
    )


def instants(*, first: int = _FIRST_SECOND, last: int = _LAST_SECOND) -> st.SearchStrategy[int]:
    """Microseconds since 1970, with the edges of hours, days, months and years among them."""
    edges = [
        (date(y, m, 1) - date(1970, 1, 1)).days * 86_400 + h * 3600
        for y in (1900, 1950, 1969, 1970, 1971, 2000, 2024, 2106, 2262, 2300)
        for m in (1, 2, 3, 11, 12)
        for h in (0, 1, 23)
    ]
    seconds = st.one_of(
        st.integers(first, last), st.sampled_from([e for e in edges if first <= e <= last])
    )
    return st.builds(
        lambda s, us: min(max(s * 1_000_000 + us, first * 1_000_000), last * 1_000_000),
        seconds,
        st.sampled_from([-1, 0, 1, 999_999, 123_456]),
    )


@st.composite
def samples(draw: st.DrawFn, *, rows: int = 3, depth: int = 2) -> Sample:
    """A type of the mapping with `rows` values of it, without conversion."""
    of = draw(_types(depth))
    return draw(type_samples(of, rows=rows))


def type_samples(
    of: DataType, *, rows: int = 3, conversion: str = "", leaf: Leaf | None = None
) -> st.SearchStrategy[Sample]:
    """Values of one given type; `leaf` makes those inside, as seen under a conversion."""
    return st.lists(_value(of, leaf or leaf_value), min_size=rows, max_size=rows).map(
        lambda pairs: Sample(of, tuple(p[0] for p in pairs), tuple(p[1] for p in pairs), conversion)
    )


_INTEGERS = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)]
_LEAVES: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from([Simple(n) for n in _INTEGERS]),
    st.sampled_from(
        [
            Simple(n)
            for n in (
                *("Float32", "Float64", "BFloat16", "Bool", "String"),
                *("Date", "Date32", "Time", "UUID"),
                *("IPv4", "IPv6", "IntervalDay", "Point", "LineString"),
            )
        ]
    ),
    st.just(Variant((Simple("Date"), Simple("String"), Simple("UInt64")))),
    st.builds(FixedString, st.integers(1, 20)),
    st.integers(1, 76).flatmap(lambda p: st.builds(Decimal, st.just(p), st.integers(0, p))),
    st.builds(DateTime, st.sampled_from(ZONES)),
    st.builds(DateTime64, st.integers(0, 9), st.sampled_from(ZONES)),
    st.builds(Time64, st.sampled_from([0, 3, 6, 9])),
    st.just(Enum(8, (("a", -1), ("it's", 2), ("", 0)))),
    st.just(Enum(16, (("ä", 1000), ("b", -30000)))),
)
_LOW = st.one_of(
    st.sampled_from([Simple(n) for n in ("String", "UInt64", "Int32", "Date", "UUID", "IPv6")]),
    st.builds(DateTime, st.sampled_from(ZONES)),
    st.builds(FixedString, st.integers(1, 5)),
)
_KEYS = st.one_of(
    st.sampled_from([Simple(n) for n in ("String", "UInt64", "Date", "UUID", "Int8")]),
    st.builds(DateTime, st.sampled_from(ZONES)),
    st.just(LowCardinality(Simple("String"))),
)
_ELEMENT_NAMES = ("x.y", "b b", "ü")


# No list and no Variant may be Nullable.
_NULLABLE = _LEAVES.filter(lambda of: of != Simple("LineString") and not isinstance(of, Variant))


def _types(depth: int) -> st.SearchStrategy[DataType]:
    low = st.one_of(_LOW, _LOW.map(Nullable)).map(LowCardinality)
    return nested_types(st.one_of(_LEAVES, _NULLABLE.map(Nullable), low), depth)


def nested_types(plain: st.SearchStrategy[DataType], depth: int) -> st.SearchStrategy[DataType]:
    """Return types of containers over plain ones."""
    if depth == 0:
        return plain
    inner = nested_types(plain, depth - 1)
    return st.one_of(
        plain,
        inner.map(Array),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: Tuple(tuple(zip(_ELEMENT_NAMES, ts, strict=False)))
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: Tuple(tuple((None, t) for t in ts))),
        st.builds(Map, _KEYS, inner),
    )


def _value(of: DataType, leaf: Leaf) -> st.SearchStrategy[tuple[str, Any]]:
    match of:
        case Nullable(inner):
            text = render_type(of)
            return st.one_of(
                st.just((f"CAST(NULL AS {text})", None)),
                _value(inner, leaf).map(lambda p: (f"CAST({p[0]} AS {text})", p[1])),
            )
        case LowCardinality(inner):
            return _value(inner, leaf).map(lambda p: (f"CAST({p[0]} AS {render_type(of)})", p[1]))
        case Array(inner):
            return st.lists(_value(inner, leaf), max_size=3).map(
                lambda ps: (
                    f"CAST([{', '.join(p[0] for p in ps)}] AS {render_type(of)})"
                    if ps
                    else _empty(of),
                    [p[1] for p in ps],
                )
            )
        case Map(key, value):
            pairs = st.lists(
                st.tuples(_value(key, leaf), _value(value, leaf)),
                max_size=3,
                unique_by=lambda p: p[0][0],
            )
            return pairs.map(
                lambda ps: (
                    f"CAST(map({_listed(ps)}) AS {render_type(of)})" if ps else _empty(of),
                    [(k[1], v[1]) for k, v in ps],
                )
            )
        case Tuple(elements):
            names = [n if n is not None else f"_{i}" for i, (n, _) in enumerate(elements, start=1)]
            return st.tuples(*(_value(t, leaf) for _, t in elements)).map(
                lambda ps: (
                    f"CAST(tuple({', '.join(p[0] for p in ps)}) AS {render_type(of)})",
                    dict(zip(names, (p[1] for p in ps), strict=True)),
                )
            )
        case _:
            return leaf(of)


def _empty(of: DataType) -> str:
    # An empty literal has no type of its own, and not every type can be made of none.
    return f"defaultValueOfTypeName({quote_string(render_type(of))})"


def _listed(pairs: list[tuple[tuple[str, Any], tuple[str, Any]]]) -> str:
    return ", ".join(f"{key[0]}, {value[0]}" for key, value in pairs)


def leaf_value(of: DataType) -> st.SearchStrategy[tuple[str, Any]]:
    """Return SQL of a value that holds no other value, and what is seen of it by default."""
    text = render_type(of)
    match of:
        case Simple(name):
            return _simple_value(name)
        case Variant(alternatives):
            return _variant(text, alternatives)
        case Time64(p):
            ticks = st.integers(-_LONGEST_TIME * 10**p, _LONGEST_TIME * 10**p)
            return ticks.map(lambda n: (f"CAST('{_clock(n, p)}' AS {text})", _scaled(n, p)))
        case FixedString(n):
            return st.binary(min_size=n, max_size=n).map(
                lambda b: (f"CAST(unhex('{b.hex()}') AS {text})", b)
            )
        case Decimal(p, s):
            return st.integers(-(10**p) + 1, 10**p - 1).map(
                lambda u: (f"CAST('{_point(u, s)}' AS {text})", _decimal_seen(u, p, s))
            )
        case DateTime(zone):
            return st.integers(0, 2**32 - 1).map(
                lambda n: (f"toDateTime(toUInt32({n}), '{zone}')", n * 1_000_000)
            )
        case DateTime64(p, zone):
            return _datetime64(p, str(zone))
        case Enum(_, labels):
            return st.sampled_from([name for name, _ in labels]).map(
                lambda s: (f"CAST(unhex('{s.encode().hex()}') AS {text})", s)
            )
        case _:
            raise AssertionError(of)


def _simple_value(name: str) -> st.SearchStrategy[tuple[str, Any]]:
    match name:
        case _ if name in _INTEGERS:
            return _integer(name)
        case "Bool":
            return st.booleans().map(lambda b: (f"CAST('{str(b).lower()}' AS Bool)", b))
        case "String":
            return st.text(max_size=8).map(lambda s: (f"unhex('{s.encode().hex()}')", s))
        case "UUID":
            return st.uuids().map(lambda u: (f"toUUID('{u}')", uuid.UUID(str(u))))
        case "IPv4":
            four = st.integers(0, 2**32 - 1).map(lambda n: str(ipaddress.IPv4Address(n)))
            return four.map(lambda a: (f"toIPv4('{a}')", a))
        case "IPv6":
            # Python writes addresses with an IPv4 inside in another way.
            six = st.integers(2**64, 2**128 - 1).map(lambda n: str(ipaddress.IPv6Address(n)))
            return six.map(lambda a: (f"toIPv6('{a}')", a))
        case "IntervalDay":
            days = st.integers(-(2**63), 2**63 - 1)
            return days.map(lambda n: (f"CAST(toInt64('{n}') AS IntervalDay)", n))
        case "Point":
            return _point_value()
        case "LineString":
            return st.lists(_point_value(), max_size=3).map(
                lambda ps: (
                    f"CAST([{', '.join(p[0] for p in ps)}] AS LineString)",
                    [p[1] for p in ps],
                )
            )
        case "Date":
            return st.integers(0, 65_535).map(lambda d: (f"toDate(toUInt16({d}))", _day(d)))
        case "Date32":
            days = st.integers(-719_162, 2_932_896)
            return days.map(lambda d: (f"CAST(toInt32({d}) AS Date32)", _day(d)))
        case "Time":
            seconds = st.integers(-_LONGEST_TIME, _LONGEST_TIME)
            return seconds.map(lambda n: (f"CAST('{_clock(n, 0)}' AS Time)", n))
        case "Float64":
            return st.floats().map(
                lambda f: (f"reinterpretAsFloat64(toUInt64({_bits('<d', '<Q', f)}))", f)
            )
        case "Float32":
            return st.floats(width=32).map(
                lambda f: (f"reinterpretAsFloat32(toUInt32({_bits('<f', '<I', f)}))", f)
            )
        case "BFloat16":
            return st.sampled_from([0.0, -1.5, 3.0, 2.0**100, float("inf")]).map(
                lambda f: (f"CAST({'inf' if f == float('inf') else f} AS BFloat16)", f)
            )
        case _:
            raise AssertionError(name)


def _point_value() -> st.SearchStrategy[tuple[str, Any]]:
    numbers = st.tuples(*[leaf_value(Simple("Float64"))] * 2)
    return numbers.map(
        lambda xy: (f"CAST(({xy[0][0]}, {xy[1][0]}) AS Point)", {"x": xy[0][1], "y": xy[1][1]})
    )


def _variant(text: str, alternatives: tuple[DataType, ...]) -> st.SearchStrategy[tuple[str, Any]]:
    names = [render_type(inner) for inner in alternatives]

    def of_one(number: int) -> st.SearchStrategy[tuple[str, Any]]:
        def seen(value: Any) -> dict[str, Any]:
            others = dict.fromkeys(names)
            return {"type": names[number]} | others | {names[number]: value}

        # A cast of a text alone is parsed: '0' would become a number.
        of = f"Variant({names[number]})"
        return leaf_value(alternatives[number]).map(
            lambda p: (f"CAST(CAST({p[0]} AS {of}) AS {text})", seen(p[1]))
        )

    null = st.just((f"CAST(NULL AS {text})", None))
    return st.one_of(null, *(of_one(number) for number in range(len(alternatives))))


def _integer(name: str) -> st.SearchStrategy[tuple[str, Any]]:
    bits = int(name.lstrip("UInt"))
    low, high = (0, 2**bits - 1) if name[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    numbers = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0]))

    def seen(n: int) -> Any:
        return str(n) if bits > 64 else Number(n) if name == "UInt64" else n

    return numbers.map(lambda n: (f"CAST('{n}' AS {name})", seen(n)))


def _datetime64(precision: int, zone: str) -> st.SearchStrategy[tuple[str, Any]]:
    def literal(us: int) -> tuple[str, Any]:
        if precision < 6:
            us -= us % 10 ** (6 - precision)
        ticks = us // 10 ** (6 - precision) if precision < 6 else us * 10 ** (precision - 6)
        return f"reinterpret(toInt64({ticks}), 'DateTime64({precision}, ''{zone}'')')", us

    # In 64 bits nanoseconds reach from 1677 to 2262, coarser ticks as much further.
    reach = 9_200_000_000 * 10 ** (9 - precision)
    return instants(first=max(-reach, _FIRST_SECOND), last=min(reach, _LAST_SECOND)).map(literal)


def _day(days: int) -> date:
    return date.fromordinal(date(1970, 1, 1).toordinal() + days)


def _bits(number: str, whole: str, value: float) -> int:
    bits: int = struct.unpack(whole, struct.pack(number, value))[0]
    return bits


def _scaled(unscaled: int, scale: int) -> Number:
    return Number(unscaled).scaleb(-scale) if scale else Number(unscaled)


def _point(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :] or '0'}"


def _decimal_seen(unscaled: int, precision: int, scale: int) -> Any:
    if precision <= 38:
        return Number(_point(unscaled, scale))
    return _point(unscaled, scale).rstrip("0").rstrip(".")


def _clock(ticks: int, precision: int) -> str:
    seconds, rest = divmod(abs(ticks), 10**precision)
    tail = f".{rest:0{precision}d}" if precision else ""
    sign = "-" if ticks < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}"

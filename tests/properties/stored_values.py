"""Strategies for stored values of any type (`row_binary.py`), edges before all others."""

from __future__ import annotations

import functools
from typing import Any, Final

from hypothesis import strategies as st

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
from tests.properties.promised_columns import Promise
from tests.properties.promised_values import find_kept
from tests.properties.row_binary import DYNAMIC_CODES, GEOMETRY, SHAPES, encode, integer_size

__all__ = ["drawn_value", "least_value"]

_LONGEST_TIME: Final = 3_599_999
_DAYS: Final = (-25_567, -1, 0, 1, 49_709, 65_535, 120_529, -719_162, -719_528, 2_932_896)
_TEXTS: Final = ("", "a", "ü😀", "\0", "it's", '"q"\\', "a\nb\t", "ᴺᵁᴸᴸ", "null", "a/b", " ")
_RAW: Final = (b"\xff", b"\xc3(", b"a\x80b", b"\xed\xa0\x80", b"\0\0")
# Only what ClickHouse writes as it came: JSON is normalised when it is stored.
_JSON: Final = (
    *(b"{}", b'{"a":1}', b'{"a":{"b":[1,2,null]},"c":"x"}', '{"ü":"\\"/"}'.encode()),
    *(b'{"n":18446744073709551615,"m":-9223372036854775808}', b'{"f":1.5,"t":true}'),
    *(b'{"a.b":1}', b'{"a":null,"b":{}}', b'{"d":"2020-01-01","l":[{"x":1},{"y":"z"}]}'),
)
_FLOATS: Final = (0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), -1e-30)


def drawn_value(draw: st.DrawFn, of: DataType, promise: Promise, *, tame: bool) -> Any:
    """Draw a stored value.

    Args:
        draw: of the strategy that wants it.
        of: its type.
        promise: how the column is converted.
        tame: leave out what the lake cannot hold under the conversion.
    """
    if tame and isinstance(of, Variant | Dynamic) and promise.how in ("json", "string"):
        value = _drawn(draw, of, Promise(), tame=True)
        return value if not promise.broken(of, value) else None
    if find_kept(of, promise.how) is None and not isinstance(of, AggregateFunction):
        return _drawn(draw, of, promise, tame=tame)
    value = _drawn(draw, of, promise, tame=False)
    return value if not tame or not promise.broken(of, value) else least_value(of)


def least_value(of: DataType) -> Any:
    """Return a value of a type that no conversion refuses."""
    match of:
        case Simple("Float32" | "Float64" | "BFloat16"):
            return 0.0
        case Simple("Bool"):
            return False
        case Simple("String"):
            return b""
        case Json():
            return b"{}"
        case FixedString(length):
            return b"\0" * length
        case Simple("UUID" | "IPv6"):
            return b"\0" * 16
        case Enum(_, labels):
            return labels[0][1]
        case QBit(_, length):
            return [0.0] * length
        case AggregateFunction():
            return _STATES[of.arguments][0]
        case Simple("Point"):
            return (0.0, 0.0)
        case Simple(name) if name in SHAPES:
            return []
        case Simple("Geometry") | Dynamic():
            return None
        case _:
            return 0


def _drawn(draw: st.DrawFn, of: DataType, promise: Promise, *, tame: bool) -> Any:
    def again(inner: DataType) -> Any:
        return drawn_value(draw, inner, promise, tame=tame)

    match of:
        case Nullable(inner):
            return None if draw(_ONE_OF_FOUR) else again(inner)
        case LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            return again(inner)
        case Array(inner):
            return [again(inner) for _ in range(draw(_FEW))]
        case Nested(elements):
            return [again(Tuple(elements)) for _ in range(draw(_FEW))]
        case Tuple(elements):
            return tuple(again(inner) for _, inner in elements)
        case Map(key, inner):
            pairs = [(again(key), again(inner)) for _ in range(draw(_FEW))]
            if not tame:
                # Two values of a small type meet seldom.
                return [*pairs, *pairs[:1]] if draw(_ONE_OF_FOUR) else pairs
            keys = {repr(promise.wanted(key, k)): (k, v) for k, v in pairs}
            return list(keys.values())
        case Variant(alternatives):
            number = draw(st.integers(-1, len(alternatives) - 1))
            return None if number < 0 else (number, again(alternatives[number]))
        case Simple("Geometry"):
            number = draw(st.integers(-1, len(GEOMETRY) - 1))
            shape = _leaf(GEOMETRY[max(number, 0)])
            return None if number < 0 else (number, draw(shape))
        case Dynamic():
            kind = draw(_DYNAMIC)
            return None if kind is None else (kind, again(kind))
        case _:
            return draw(_leaf(of))


_ONE_OF_FOUR: Final = st.sampled_from([False, False, False, True])
_FEW: Final = st.sampled_from([0, 1, 1, 2, 3])
_DYNAMIC: Final = st.sampled_from(
    [None, *DYNAMIC_CODES, Array(Simple("Int64")), Array(Simple("String"))]
)
_STATES: Final[dict[str, list[bytes]]] = {
    "sum, UInt64": [b"\0" * 8, b"\5" + b"\0" * 7, b"\xff" * 8],
    "sum, Int64": [b"\0" * 8, b"\xff" * 8],
    "sum, Float64": [b"\0" * 8, encode(Simple("Float64"), -1.5), encode(Simple("Float64"), 1e300)],
    "count": [b"\0", b"\5", b"\xac\2"],
    "groupArray, String": [b"\0", b"\1\2ab", b"\2\0\1\xff"],
    "max, Int8": [b"\1\3", b"\1\x80", b"\0"],
}


@functools.cache
def _leaf(of: DataType) -> st.SearchStrategy[Any]:
    if (size := integer_size(of)) is not None:
        return _integer(of, *size)
    match of:
        case Simple("Float64"):
            return st.sampled_from(_FLOATS) | st.floats()
        case Simple("Float32"):
            return st.floats(width=32)
        case Simple("BFloat16"):
            return st.sampled_from([f for f in _FLOATS if f != -1e-30] + [2.0**100])
        case Simple("Bool"):
            return st.booleans()
        case Simple("String"):
            texts = st.sampled_from([t.encode() for t in _TEXTS])
            return st.one_of(texts, st.text(max_size=6).map(str.encode), st.sampled_from(_RAW))
        case Json():
            return st.sampled_from(_JSON)
        case FixedString(length):
            few = st.sampled_from([b"\0" * length, b"a" * length, b"\xff" * length])
            return few | st.binary(min_size=length, max_size=length)
        case Simple("UUID"):
            edges = [bytes(16), b"\xff" * 16, bytes(range(16))]
            return st.sampled_from(edges) | st.binary(min_size=16, max_size=16)
        case Simple("IPv6"):
            edges = [bytes(16), bytes(15) + b"\1", bytes(10) + b"\xff\xff\1\2\3\4", b"\xfe\x80" * 8]
            mixed = st.lists(st.sampled_from([b"\0\0", b"\0\1", b"\x20\1"]), min_size=8, max_size=8)
            return st.one_of(st.sampled_from(edges), mixed.map(b"".join))
        case QBit(inner, length):
            return st.lists(_leaf(inner), min_size=length, max_size=length)
        case AggregateFunction(arguments):
            return st.sampled_from(_STATES[arguments])
        case Simple("Point"):
            return st.tuples(*[st.sampled_from(_FLOATS)] * 2)
        case Simple(name):
            inner = SHAPES[name]
            assert isinstance(inner, Array)
            of_inner = Simple("Point") if inner.of == SHAPES["Point"] else _SMALLER[name]
            return st.lists(_leaf(of_inner), max_size=2)
        case _:
            raise AssertionError(of)


_SMALLER: Final = {
    "Polygon": Simple("Ring"),
    "MultiLineString": Simple("LineString"),
    "MultiPolygon": Simple("Polygon"),
}


def _integer(of: DataType, size: int, signed: bool) -> st.SearchStrategy[int]:  # noqa: FBT001
    low, high = (
        (-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1) if signed else (0, 2 ** (8 * size) - 1)
    )
    match of:
        case Simple("Date32"):
            return st.sampled_from(_DAYS) | st.integers(-25_567, 120_529)
        case Simple("Time"):
            return st.sampled_from([0, -1, _LONGEST_TIME]) | st.integers(
                -_LONGEST_TIME, _LONGEST_TIME
            )
        case Time64(precision):
            most = _LONGEST_TIME * 10**precision
            return st.sampled_from([0, -1, most, -most]) | st.integers(-most, most)
        case Enum(_, labels):
            return st.sampled_from([code for _, code in labels])
        case Decimal(precision, _):
            # ClickHouse checks the bytes of a Decimal, not its digits.
            most = 10**precision - 1
            over = [n for n in (most + 1, high, low) if n != most]
            edges = st.sampled_from([0, 1, -1, most, -most, 10 ** (precision // 2)])
            return st.one_of(edges, st.integers(-most, most), st.sampled_from(over))
        case DateTime64(precision, _):
            return _ticks(precision)
        case DateTime():
            return st.sampled_from([0, 1, high, 1_711_846_800]) | st.integers(0, high)
        case _:
            return st.sampled_from([0, 1, low, high]) | st.integers(low, high)


def _ticks(precision: int) -> st.SearchStrategy[int]:
    unit = 10**precision
    # The years 1900 and 2299, the first and the last with four digits, and what 64 bits hold.
    seconds = (-2_208_988_800, 10_413_791_999, -62_135_596_800, 253_402_300_799)
    ends = [-(2**63), 2**63 - 1, (2**63 - 1) // 10 ** max(0, 6 - precision)]
    edges = [0, -1, 1, unit - 1, *(s * unit for s in seconds if abs(s * unit) < 2**63)]
    micros = st.integers(-2_208_988_800_000_000, 4_000_000_000_000_000)
    whole = micros.map(
        lambda n: n * 10 ** (precision - 6) if precision > 6 else n // 10 ** (6 - precision)
    )
    return st.one_of(whole, st.sampled_from(edges), st.sampled_from([*ends, 1001]))

"""Columns under a conversion: as `mapping.py`, with what a reader must see of each."""

from __future__ import annotations

import ipaddress
from decimal import Decimal as Number
from typing import Any, Final

from hypothesis import strategies as st

from tableformat.mergetree.types import (
    DataType,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    LowCardinality,
    Nullable,
    Simple,
    render_type,
)
from tests.strategies.mapping import Sample, leaf_value, nested_types, type_samples

__all__ = ["converted_samples"]

_ENUM: Final = Enum(8, (("a", -128), ("it's", 2)))
_FIFTY: Final = Decimal(50, 3)
# Which types a word converts; the others inside a column stay as they are.
_FITTING: Final[dict[str, tuple[DataType, ...]]] = {
    "long": (
        Simple("UInt64"),
        Simple("IPv4"),
        _ENUM,
        *(DateTime64(p, "UTC") for p in (0, 3, 7, 9)),
    ),
    "binary": (Simple("String"), Simple("UUID"), Simple("IPv6")),
    "string": (Simple("UInt64"), Simple("UUID"), FixedString(3), Simple("Int128")),
    "truncate": tuple(DateTime64(p, "Asia/Kolkata") for p in (7, 8, 9)),
    "decimal(38,0)": (Simple("Int128"), Simple("UInt256"), Simple("Int256")),
    "decimal(38,5)": (_FIFTY,),
}
_OTHERS: Final = (Simple("Date"), Simple("Float64"), Decimal(9, 2))


@st.composite
def converted_samples(draw: st.DrawFn, *, depth: int = 2) -> Sample:
    """A type in which something fits a conversion, the conversion, and three values."""
    word = draw(st.sampled_from(sorted(_FITTING)))
    leaves = st.sampled_from([*_FITTING[word], *_OTHERS])
    low = st.sampled_from(
        [of for of in _FITTING[word] if of in (Simple("UInt64"), Simple("UUID"), Simple("String"))]
        or [Simple("String")]
    )
    plain = st.one_of(
        leaves, leaves.map(Nullable), low.map(lambda of: LowCardinality(Nullable(of)))
    )
    of = draw(nested_types(plain, depth).filter(lambda found: _fits(found, _FITTING[word])))
    return draw(type_samples(of, conversion=word, leaf=lambda leaf: _leaf(leaf, word)))


def _fits(of: DataType, fitting: tuple[DataType, ...]) -> bool:
    return any(render_type(leaf) in render_type(of) for leaf in fitting)


def _leaf(of: DataType, word: str) -> st.SearchStrategy[tuple[str, Any]]:
    text = render_type(of)
    match of, word:
        case (Simple("UInt64"), "long"):
            return st.sampled_from([0, 2**63 - 1]).map(lambda n: (f"toUInt64('{n}')", n))
        case (Simple("UInt64"), "string"):
            return st.integers(0, 2**64 - 1).map(lambda n: (f"toUInt64('{n}')", str(n)))
        case (Simple("IPv4"), "long"):
            return st.integers(0, 2**32 - 1).map(
                lambda n: (f"toIPv4('{ipaddress.IPv4Address(n)}')", n)
            )
        case (Simple("IPv6"), "binary"):
            return st.integers(0, 2**128 - 1).map(
                lambda n: (f"toIPv6('{ipaddress.IPv6Address(n)}')", n.to_bytes(16))
            )
        case (Simple("UUID"), "binary"):
            return st.uuids().map(lambda u: (f"toUUID('{u}')", u.bytes))
        case (Simple("UUID"), "string"):
            return st.uuids().map(lambda u: (f"toUUID('{u}')", str(u)))
        case (Simple("String"), "binary"):
            return st.binary(max_size=6).map(lambda b: (f"unhex('{b.hex()}')", b))
        case (FixedString(length), "string"):
            texts = st.text(st.sampled_from("ab\0"), min_size=length, max_size=length)
            return texts.map(lambda t: (f"CAST(unhex('{t.encode().hex()}') AS {text})", t))
        case (Enum(_, labels), "long"):
            return st.sampled_from(labels).map(lambda e: (f"CAST({e[1]} AS {text})", e[1]))
        case (DateTime64(precision, zone), "long" | "truncate"):
            return _ticks(precision, str(zone), whole=word == "long")
        case (Simple("Int128" | "Int256" | "UInt256" as name), "decimal(38,0)"):
            least = 0 if name.startswith("U") else 1 - 10**38
            return st.integers(least, 10**38 - 1).map(
                lambda n: (f"CAST('{n}' AS {name})", Number(n))
            )
        case (Decimal(50, 3), "decimal(38,5)"):
            digits = st.integers(0, 10**36 - 1).map(lambda n: f"{n // 1000}.{n % 1000:03d}")
            signed = st.tuples(st.sampled_from(["", "-"]), digits).map("".join)
            return signed.map(lambda n: (f"CAST('{n}' AS {text})", Number(n)))
        case _:
            return leaf_value(of)


def _ticks(precision: int, zone: str, *, whole: bool) -> st.SearchStrategy[tuple[str, Any]]:
    """Instants on both sides of 1970 and at the ends of 64 bits, as ticks or microseconds."""
    reach = min(2**63, 60 * 10**9 * 10**precision)
    ticks = st.one_of(
        st.integers(-reach, reach - 1), st.sampled_from([-reach, -1001, -1000, -1, 0, 1, reach - 1])
    )
    return ticks.map(
        lambda n: (
            f"reinterpret(toInt64('{n}'), 'DateTime64({precision}, ''{zone}'')')",
            n if whole else n // 10 ** (precision - 6),
        )
    )

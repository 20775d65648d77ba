"""A digest computed from docs/spec/digest.md alone, without ClickHouse and without our SQL."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from tableformat.mergetree.types import (
    Array,
    DataType,
    Decimal,
    Map,
    Nullable,
    Simple,
    Tuple,
    parse_type,
)

__all__ = ["column_checksum", "row_checksum", "siphash"]

_MASK = 2**64 - 1


def siphash(data: bytes) -> int:
    """Return SipHash-2-4 under the key of zeros."""
    v = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    _rounds(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & _MASK
        v[1] = _rotated(v[1], 13) ^ v[0]
        v[0] = _rotated(v[0], 32)
        v[2] = (v[2] + v[3]) & _MASK
        v[3] = _rotated(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & _MASK
        v[3] = _rotated(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & _MASK
        v[1] = _rotated(v[1], 17) ^ v[2]
        v[2] = _rotated(v[2], 32)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK


def fold(words: Sequence[int]) -> int:
    """Return S(a, b, ...): each word hashed, and each hash with what is before it."""
    first, *rest = (siphash(struct.pack("<Q", word)) for word in words)
    for one in rest:
        first = siphash(struct.pack("<QQ", first, one))
    return first


def hashed(value: Any, of: DataType) -> int:
    """Return h(value): integers for days, microseconds and unscaled decimals, bytes for text."""
    match of:
        case Nullable(inner):
            return hashed(value, inner)
        case Tuple(elements):
            values = (None,) * len(elements) if value is None else value
            return fold([hashed(v, t) for v, (_, t) in zip(values, elements, strict=True)])
        case Map(key, item):
            return hashed(value, Array(Tuple(((None, key), (None, item)))))
        case Array(inner):
            each = enumerate(value or (), start=1)
            total = sum(fold([i, hashed(v, inner)]) for i, v in each) & _MASK
            return fold([len(value or ()), total])
        case _:
            pass
    if value is None:
        return 0
    match of:
        case Simple("Float64"):
            bits = b"\0\0\0\0\0\0\xf8\x7f" if math.isnan(value) else struct.pack("<d", value)
            return siphash(bits)
        case Decimal():
            return siphash(value.to_bytes(16, "little", signed=True))
        case _ if isinstance(value, bytes):
            return siphash(value)
        case _:
            return siphash(int(value).to_bytes(8, "little", signed=True))


def column_checksum(values: Sequence[Any], of: str) -> int:
    """Return the checksum of a column of a canonical type."""
    return sum(hashed(value, parse_type(of)) for value in values) & _MASK


def row_checksum(columns: Sequence[Sequence[Any]], types: Sequence[str]) -> int:
    """Return the checksum of rows, given by columns in the order of their names."""
    rows = zip(*columns, strict=True)
    parsed = [parse_type(of) for of in types]
    return (
        sum(fold([hashed(v, of) for v, of in zip(row, parsed, strict=True)]) for row in rows)
        & _MASK
    )

"""Strategies for partition and sorting keys of whole tables, with the columns that they are over.

Whether a key has a partition spec is known here by construction; what each function divides is the
subject of `test_partition_keys.py` and of the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from tableformat.iceberg.key_functions import MATRIX
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    LowCardinality,
    Nullable,
    Simple,
)
from tests.properties.key_texts import spellings

__all__ = ["PartitionKey", "SortingKey", "partition_keys", "sorting_keys"]

_ENUM: Final = Enum(8, (("a", -1), ("it's", 2)))
_NOT_HERE: Final = ("icebergYear", "icebergMonth", "icebergDay", "icebergHour")
_DAY: Final = 86_400
_TEXTS: Final = (b"", b"a", "üb".encode(), b"a b/c%", b"\0")


@dataclass(frozen=True)
class PartitionKey:
    """A partition key, its columns with a few values each, and why it is refused, if it is."""

    sql: str = ""
    columns: tuple[tuple[str, DataType], ...] = ()
    values: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class SortingKey:
    """A sorting key with its columns; `primary` is a primary key of its own."""

    sql: str = "tuple()"
    columns: tuple[tuple[str, DataType], ...] = ()
    values: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    primary: str = ""


def _timed(of: DataType, column: int, values: tuple[int, ...]) -> list[tuple[DataType, str, Any]]:
    """Return the keys over a time of which the matrix says that they are exact."""
    return [
        (of, text, values)
        for row, cells in MATRIX.items()
        if row not in _NOT_HERE and cells.split()[column].startswith("=")
        for text in spellings(row)
    ]


_DAYS: Final = (0, 19_000, 19_030, 65_000)
_EARLY_DAYS: Final = (-25_567, -1, 0, 19_000)
_SECONDS: Final = (0, 19_000 * _DAY - 1, 19_000 * _DAY, 2**32 - 1)
_MILLIS: Final = (-1, 0, -2_208_988_800_000, 10_413_791_999_000, 1_700_000_000_123)
_INTS: Final = (-11, -1, 0, 9, 10)
_WHOLE: Final = (0, 9, 10, 2**32 - 1)
_EXACT: Final[list[tuple[DataType, str, Any]]] = [
    (Simple("UInt8"), "{c}", (0, 1, 255)),
    (Simple("String"), "{c}", _TEXTS),
    (LowCardinality(Simple("String")), "{c}", _TEXTS),
    (Nullable(Simple("Int32")), "{c}", (None, -1, 0, 7)),
    (Nullable(Simple("String")), "{c}", (None, b"", b"x")),
    (Simple("Int64"), "{c}", (-(2**63), -1, 2**63 - 1)),
    (Simple("UInt64"), "{c}", (0, 2**63, 2**64 - 1)),
    (Simple("Bool"), "{c}", (False, True)),
    (Simple("Date"), "{c}", _DAYS),
    (Simple("Date32"), "{c}", _EARLY_DAYS),
    (DateTime("Asia/Kolkata"), "{c}", _SECONDS),
    (DateTime64(3, "UTC"), "{c}", _MILLIS),
    (_ENUM, "{c}", (-1, 2)),
    (FixedString(2), "{c}", (b"\0\0", b"a\0", b"\xff\xfe")),
    (Decimal(9, 2), "{c}", (-150, 0, 99_999)),
    (Decimal(38, 10), "{c}", (-(10**38) + 1, 0, 10**38 - 1)),
    (Simple("IPv4"), "{c}", (0, 2**32 - 1)),
    (Simple("UInt32"), "intDiv({c}, 10)", _WHOLE),
    (Simple("UInt32"), "{c} - {c} % 10", _WHOLE),
    (Simple("Int32"), "icebergTruncate(10, {c})", _INTS),
    (Simple("Int64"), "{c} - positiveModulo({c}, 10)", _INTS),
    (Simple("Int32"), "bitShiftRight({c}, 3)", _INTS),
    (Simple("String"), "substringUTF8({c}, 1, 1)", _TEXTS),
    (Simple("String"), "icebergTruncate(1, {c})", _TEXTS),
    (Simple("Int32"), "icebergBucket(3, {c})", _INTS),
    (Simple("String"), "icebergBucket(3, {c})", _TEXTS),
    (Simple("UUID"), "icebergBucket(3, {c})", (bytes(16), bytes(range(16)))),
    (DateTime("Asia/Tokyo"), "toYYYYMM({c}, 'UTC')", _SECONDS),
    (DateTime64(6, "America/New_York"), "toDate32(toTimezone({c}, 'UTC'))", (-1, 0, 10**15)),
    *_timed(Simple("Date"), 0, _DAYS),
    *_timed(Simple("Date32"), 1, _EARLY_DAYS),
    *_timed(DateTime("UTC"), 2, _SECONDS),
    *_timed(DateTime64(3, "UTC"), 3, _MILLIS),
]
_INEXACT: Final[list[tuple[DataType, str, Any]]] = [
    (Simple("Date"), "toMonday({c})", _DAYS),
    (Simple("UInt32"), "{c} % 3", _WHOLE),
    (Simple("String"), "cityHash64({c}) % 2", _TEXTS),
    (Simple("String"), "lower({c})", _TEXTS),
    (Simple("UUID"), "{c}", (bytes(16), bytes(range(16)))),
    (Simple("Int32"), "intDiv({c}, 10)", _INTS),
    (DateTime("Asia/Tokyo"), "toYYYYMM({c})", _SECONDS),
    (Simple("UInt64"), "icebergBucket(3, {c})", (0, 2**64 - 1)),
]
_SORTED: Final[list[tuple[DataType, Any]]] = [
    (Simple("Int64"), (-(2**63), -1, 0, 2**63 - 1)),
    (Nullable(Simple("Int32")), (None, -1, 0)),
    (Simple("String"), (*_TEXTS, b"\xef\xbf\xbf", "𝄞".encode())),
    (Nullable(Simple("String")), (None, b"", b"a")),
    (LowCardinality(Simple("String")), _TEXTS),
    (Simple("Float64"), (-0.0, 0.0, float("nan"), float("-inf"), 1.5)),
    (Simple("UUID"), (bytes(16), bytes(range(16)), b"\xff" * 16)),
    (DateTime64(3, "UTC"), _MILLIS),
    (DateTime("Asia/Tokyo"), _SECONDS),
    (Simple("Date"), _DAYS),
    (_ENUM, (-1, 2)),
    (Decimal(38, 2), (-(10**38) + 1, 0, 10**38 - 1)),
    (Simple("Bool"), (False, True)),
    (Simple("UInt64"), (0, 2**64 - 1)),
    (Simple("IPv6"), (bytes(16), b"\xff" * 16)),
]
_ORDERS: Final = (
    *(("{c}", ""), ("({c}, n)", "{c}"), ("({c} DESC, n)", ""), ("(n, {c})", "n")),
    *(("(cityHash64(n), {c})", ""), ("(n DESC, {c} DESC)", "")),
)
_DAY_ORDERS: Final = (("toDate({c})", ""), ("(toYYYYMM({c}), {c})", "toYYYYMM({c})"))
_NUMBER_ORDERS: Final = (("(negate({c}), n)", ""), ("(intDiv({c}, 10), {c})", ""))


_NAMED_IN_AVRO: Final = (FixedString, Decimal)


@st.composite
def partition_keys(draw: st.DrawFn) -> PartitionKey:
    """None, one expression or two; one in eight has no partition spec."""
    count = draw(st.sampled_from([0, 1, 1, 1, 2]))
    columns, values, texts, refused = [], [], [], []
    for name in ("p", "q")[:count]:
        inexact = draw(st.integers(0, 9)) == 9
        of, text, some = draw(st.sampled_from(_INEXACT if inexact else _EXACT))
        if ("p", of) in columns and (of == Simple("UInt64") or isinstance(of, _NAMED_IN_AVRO)):
            # Manifests would define a type twice, and DuckDB ends the process (`reader_limits.py`).
            break
        columns.append((name, of))
        values.append((name, tuple(some)))
        texts.append(text.replace("{c}", name))
        if inexact:
            refused.append(name)
    if not texts:
        return PartitionKey()
    sql = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return PartitionKey(sql, tuple(columns), tuple(values), tuple(refused))


@st.composite
def sorting_keys(draw: st.DrawFn) -> SortingKey:
    """None, or over a column `o` and the number of the row."""
    of, values = draw(st.sampled_from(_SORTED))
    choices = [("tuple()", ""), ("n", ""), *_ORDERS]
    match of:
        case Simple("Date") | DateTime() | DateTime64():
            choices += _DAY_ORDERS
        case Simple("Int64" | "UInt64"):
            choices += _NUMBER_ORDERS
        case _:
            pass
    sql, primary = draw(st.sampled_from(choices))
    if "{c}" not in sql:
        return SortingKey(sql)
    return SortingKey(
        sql.replace("{c}", "o"), (("o", of),), (("o", tuple(values)),), primary.replace("{c}", "o")
    )

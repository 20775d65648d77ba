"""Columns with many values for partition keys: as text for ClickHouse and as Iceberg has them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Any

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
    render_type,
)

__all__ = ["ZONES", "KeyColumn", "key_columns"]

ZONES = ("UTC", "Asia/Tokyo", "Asia/Kolkata", "America/New_York", "Europe/London")
_NULL = "N"
_YEARS = (1, 2, 1000, 1582, 1900, 1901, 1950, 1969, 1970, 1971, 2000, 2024, 2105, 2106, 2107)
_LATE_YEARS = (2148, 2149, 2150, 2261, 2262, 2299, 2300, 5461, 9998, 9999)
# When the clocks of New York, London and Lord Howe change, and the day that Samoa left out.
_CLOCK_CHANGES = (1710054000, 1730613600, 1711846800, 1729990800, 1712415600, 1325239200)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
_NANOSECONDS = 9_200_000_000


@dataclass(frozen=True)
class KeyColumn:
    """A column `c`: its type, how it is converted, and its values.

    `make` is SQL that makes a value of the text `x`; `texts` are those texts, `values` the same
    values inside Iceberg, where instants are microseconds since 1970.
    """

    type: DataType
    make: str
    texts: tuple[str, ...]
    values: tuple[Any, ...]
    conversion: str = ""

    @property
    def name(self) -> str:
        return f"{render_type(self.type)} {self.conversion}".strip()

    def select(self) -> str:
        """Return a query of the columns n, from 0, and c."""
        texts = ",".join(self.texts)
        value = f"CAST({self.make} AS {render_type(self.type)})"
        if isinstance(self.type, Nullable):
            value = f"if(x = '{_NULL}', NULL, {value})"
        pairs = f"arrayZip(range({len(self.texts)}), splitByChar(',', '{texts}'))"
        return (
            f"SELECT toUInt32(p.1) AS n, {value} AS c "
            f"FROM (SELECT arrayJoin({pairs}) AS p, p.2 AS x)"
        )

    def kept(self, wanted: Callable[[Any], bool]) -> KeyColumn:
        """Return the column with some of its values."""
        pairs = [p for p in zip(self.texts, self.values, strict=True) if wanted(p[1])]
        texts, values = zip(*pairs, strict=True) if pairs else ((), ())
        return replace(self, texts=texts, values=values)

    def optional(self) -> KeyColumn:
        """Return the column with NULL, too."""
        return replace(
            self,
            type=Nullable(self.type),
            make=self.make if "x = " in self.make else f"assumeNotNull({self.make})",
            texts=(*self.texts, _NULL),
            values=(*self.values, None),
        )


def key_columns(seed: int, count: int) -> Iterator[KeyColumn]:
    """Yield a column of about `count` values for every type that a key may have."""
    chosen = random.Random(seed)  # noqa: S311  (the same values again for the same seed)
    yield from _times(chosen, count)
    yield from _numbers(chosen, count)
    yield from _texts(chosen, count)
    yield from _ids(chosen, count)


def _seconds(chosen: random.Random, count: int, first: int, last: int) -> list[int]:
    edges = [
        int(datetime(y, m, d, tzinfo=UTC).timestamp()) + offset
        for y in (*_YEARS, *_LATE_YEARS)
        for m, d in ((1, 1), (1, 2), (3, 1), (6, 30), (12, 31))
        for offset in (-1, 0, 3599, 3600, 86_399)
    ]
    changes = [at + hours * 1800 for at in _CLOCK_CHANGES for hours in range(-4, 5)]
    found = [s for s in (*edges, *changes, -1, 0, 1, first, last) if first <= s <= last]
    chosen.shuffle(found)
    dense = chosen.randint(max(first, 0), min(last, 2**32) - 86_400)
    found = found[: max(count // 2, 20)] + [dense + n * 599 for n in range(count // 10)]
    while len(found) < count:
        found.append(chosen.randint(first, last))
        found.append(chosen.randint(max(first, 0), min(last, 2**32 - 1)))
    return [first, last, -1 if first < 0 else 0, 0, *found]


def _times(chosen: random.Random, count: int) -> Iterator[KeyColumn]:
    days = sorted({s // 86_400 for s in _seconds(chosen, count, 0, 65_535 * 86_400)})
    yield _of(Simple("Date"), "toDate(toUInt16(x))", days, days)
    days = sorted({s // 86_400 for s in _seconds(chosen, count, _FIRST, _LAST)})
    yield _of(Simple("Date32"), "CAST(toInt32(x) AS Date32)", days, days)
    yield _of(Simple("Date32"), "CAST(toInt32(x) AS Date32)", days, days).optional()
    for zone in ZONES:
        seconds = _seconds(chosen, count, 0, 2**32 - 1)
        made = f"toDateTime(toUInt32(x), '{zone}')"
        instants = [s * 1_000_000 for s in seconds]
        plain = _of(DateTime(zone), made, seconds, instants)
        yield plain
        yield replace(plain, type=LowCardinality(DateTime(zone)))
        for precision in (0, 3, 6, 9):
            yield _ticks(chosen, count, precision, zone)


def _ticks(chosen: random.Random, count: int, precision: int, zone: str) -> KeyColumn:
    reach = _NANOSECONDS if precision == 9 else _LAST
    seconds = _seconds(chosen, count, max(-reach, _FIRST), min(reach, _LAST))
    unit = 10**precision
    # Finer ticks than microseconds are not exported.
    step = 1000 if precision == 9 else 1
    ticks = [
        s * unit + chosen.choice((0, unit - step, 0, unit // 2 // step * step)) for s in seconds
    ]
    ticks += [-step, 0, step]
    instants = [t * 10 ** (6 - precision) if precision <= 6 else t // 1000 for t in ticks]
    made = f"reinterpret(toInt64(x), 'DateTime64({precision}, \\'{zone}\\')')"
    return _of(DateTime64(precision, zone), made, ticks, instants)


def _numbers(chosen: random.Random, count: int) -> Iterator[KeyColumn]:
    for bits in (8, 16, 32, 64):
        for name in (f"Int{bits}", f"UInt{bits}"):
            low, high = (
                (0, 2**bits - 1) if name[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            )
            found = _whole(chosen, count, low, high)
            as_kept: list[Any] = [Number(n) for n in found] if name == "UInt64" else found
            column = _of(Simple(name), f"to{name}(x)", found, as_kept)
            yield column
            if name in ("Int8", "Int32", "UInt64"):
                yield column.optional()
            if name == "UInt64":
                small = [n for n in found if n < 2**63]
                yield replace(_of(Simple(name), f"to{name}(x)", small, small), conversion="long")
    for precision, scale in ((9, 2), (18, 4), (19, 0), (30, 7), (38, 10)):
        top = 10**precision - 1
        unscaled = _whole(chosen, count, -top, top)
        of = Decimal(precision, scale)
        numbers = [Number((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in unscaled]
        yield _of(of, f"CAST(x AS {render_type(of)})", [f"{n:f}" for n in numbers], numbers)


def _whole(chosen: random.Random, count: int, low: int, high: int) -> list[int]:
    near = [e + o for e in (low, high, 0, low // 2, high // 2) for o in range(-12, 13)]
    found = [n for n in near if low <= n <= high]
    while len(found) < count:
        size = chosen.randint(1, high.bit_length())
        found.append(max(low, min(high, chosen.choice((-1, 1)) * chosen.getrandbits(size))))
    return found


def _texts(chosen: random.Random, count: int) -> Iterator[KeyColumn]:
    letters = "ab\0\x7f\x80é߿ࠀ\ud7ff\ue000\uffff\U00010000\U0010fffféß中👍🏽\u0301"
    texts = ["", "a", "\0", "\0\0", "ᴺᵁᴸᴸ", "\N{ZERO WIDTH JOINER}"]
    while len(texts) < count:
        texts.append("".join(chosen.choices(letters, k=chosen.randint(0, 12))))
    raw = [t.encode() for t in texts]
    yield _of(Simple("String"), "unhex(x)", [b.hex() for b in raw], texts)
    yield _of(LowCardinality(Simple("String")), "unhex(x)", [b.hex() for b in raw], texts)
    yield _of(Simple("String"), "unhex(x)", [b.hex() for b in raw], texts).optional()
    raw = [chosen.randbytes(chosen.randint(0, 8)) for _ in range(count)] + raw[: count // 2]
    yield replace(
        _of(Simple("String"), "unhex(x)", [b.hex() for b in raw], raw), conversion="binary"
    )
    raw = [chosen.randbytes(5).translate(bytes(range(256)), b"\7") for _ in range(count)]
    raw = [b.ljust(5, b"\0") for b in raw] + [b"ab\0\0\0", b"\0" * 5, b"\xff" * 5]
    yield _of(FixedString(5), "CAST(unhex(x) AS FixedString(5))", [b.hex() for b in raw], raw)


def _ids(chosen: random.Random, count: int) -> Iterator[KeyColumn]:
    ids = [uuid.UUID(int=chosen.getrandbits(128)) for _ in range(count)]
    ids += [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID(int=1)]
    texts = [str(i) for i in ids]
    yield _of(Simple("UUID"), "toUUID(x)", texts, [i.bytes for i in ids])
    raw = replace(_of(Simple("UUID"), "toUUID(x)", texts, [i.bytes for i in ids]))
    yield replace(raw, conversion="binary")
    labels = Enum(8, (("ä", -3), ("it''s", 2), ("", 0), ("b", 127)))
    codes = [chosen.choice((-3, 2, 0, 127)) for _ in range(min(count, 50))] + [-3, 2, 0, 127]
    by_code = {code: label for label, code in labels.labels}
    made = f"CAST(toInt8(x) AS {render_type(labels)})"
    yield _of(labels, made, codes, [by_code[c] for c in codes])
    yield replace(_of(labels, made, codes, codes), conversion="long")
    yield _of(Simple("Bool"), "CAST(x AS Bool)", ["true", "false"], [True, False])
    fourth = _whole(chosen, count, 0, 2**32 - 1)
    dotted = [".".join(str(b) for b in n.to_bytes(4, "big")) for n in fourth]
    yield _of(Simple("IPv4"), "toIPv4(toUInt32(x))", fourth, dotted)
    yield replace(_of(Simple("IPv4"), "toIPv4(toUInt32(x))", fourth, fourth), conversion="long")
    sixth = [chosen.randbytes(16) for _ in range(count)] + [bytes(16), b"\xff" * 16]
    made = "toIPv6(IPv6NumToString(CAST(unhex(x) AS FixedString(16))))"
    column = _of(Simple("IPv6"), made, [b.hex() for b in sixth], sixth)
    yield replace(column, conversion="binary")


def _of(of: DataType, made: str, texts: Sequence[Any], values: Sequence[Any]) -> KeyColumn:
    return KeyColumn(of, made, tuple(str(t) for t in texts), tuple(values))

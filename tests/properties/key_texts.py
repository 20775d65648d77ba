"""Partition keys over a column `c`, as texts: everything that the matrix knows, and much else."""

from __future__ import annotations

from collections.abc import Iterator

from tableformat.iceberg.key_functions import MATRIX, PARTS, plain_type
from tableformat.mergetree.types import DataType, DateTime, DateTime64, Nullable, Simple

__all__ = ["FORMATS", "UNKNOWN", "WIDTHS", "key_texts", "spellings"]

WIDTHS = (1, 2, 3, 7, 10, 16, 255, 256, 257, 1000, 65_536, 2**31 - 1)
FORMATS = {
    "year": ("%Y", "year %Y"),
    "month": ("%Y-%m", "%Y%m", "%m/%Y"),
    "day": ("%F", "%Y%m%d", "%d.%m.%Y"),
    "hour": ("%F %H", "%Y%m%d%H", "%H %d.%m.%Y"),
}
UNKNOWN = (
    *("toMonday({c})", "toStartOfQuarter({c})", "toYYYYMM({c}) % 100", "toDayOfWeek({c})"),
    *("toStartOfInterval({c}, INTERVAL 6 HOUR)", "toStartOfFiveMinutes({c})", "toMonth({c})"),
    *("cityHash64({c}) % 8", "murmurHash3_32({c}) % 16", "lower({c})", "length({c})", "abs({c})"),
    *("{c} % 10", "{c} > 0", "floor({c}, -1)", "negate({c})", "toHour({c})", "toISOYear({c})"),
    *("toStartOfInterval({c}, INTERVAL 3 MONTH)", "intDiv(toUnixTimestamp({c}), 60)"),
)
"""What is no exact transform; some of it only with another expression."""
_TUPLES = (
    *(
        "(toYear({c}), toMonth({c}))",
        "(toMonth({c}), toYear({c}))",
        "(toYYYYMM({c}), toQuarter({c}))",
    ),
    *("(toYear({c}), toMonth({c}), toDayOfMonth({c}))", "(toYear({c}), toDayOfYear({c}))"),
    *(
        "(toDate({c}), toHour({c}))",
        "(toYYYYMMDD({c}), HOUR({c}))",
        "(toDate32({c}), toMonday({c}))",
    ),
    *("(toYYYYMM({c}), toYear({c}), toDate({c}))", "(toYear({c}), toQuarter({c}))"),
    *("(YEAR({c}), MONTH({c}), DAY({c}), HOUR({c}))", "({c}, toMonday({c}))"),
)
_NESTED = ("toYYYYMM(toDate({c}))", "toStartOfMonth(toDate32({c}))", "toYear({c}::Date)")


def spellings(row: str) -> tuple[str, ...]:
    """Return the SQL of a row of the matrix, `{c}` in place of the time."""
    function, _, argument = row.rstrip(")").partition("(")
    match function:
        case "dateTrunc":
            return (f"dateTrunc('{argument}', {{c}})", f"DATE_TRUNC('{argument.upper()}', {{c}})")
        case "toStartOfInterval":
            return (
                f"toStartOfInterval({{c}}, INTERVAL 1 {argument.upper()})",
                f"time_bucket({{c}}, toInterval{argument.title()}(1))",
            )
        case "formatDateTime":
            return tuple(f"formatDateTime({{c}}, '{form}')" for form in FORMATS[argument])
        case "intDiv":
            return (f"intDiv(toUnixTimestamp({{c}}), {argument.rpartition(' ')[2]})",)
        case _:
            return (f"{row}({{c}})",)


def key_texts(of: DataType, functions: frozenset[str]) -> Iterator[str]:
    """Yield the keys to try on a column of a type.

    Args:
        of: the column's type.
        functions: what this ClickHouse has.
    """
    yield "c"
    match plain_type(of):
        case Simple("Date" | "Date32"):
            # Dates have no hours in ClickHouse.
            # A plain CAST stops at NULL.
            day = "::Nullable(Date)" if isinstance(of, Nullable) else "::Date"
            texts = (t.replace("::Date", day) for t in _timed(("c",), functions))
            yield from (t for t in texts if "hour" not in t.lower())
        case DateTime() | DateTime64():
            yield from _timed(("c", "toTimezone(c, 'UTC')"), functions)
            yield from ("toTimezone(c, 'UTC')", "icebergBucket(16, toDateTime64(c, 6))")
            yield from ("toYYYYMM(c, 'UTC')", "toDate(c, 'UTC')", "formatDateTime(c, '%F', 'UTC')")
        case _:
            yield from _counted()
            exact = "Nullable(Decimal(20, 0))" if isinstance(of, Nullable) else "Decimal(20, 0)"
            yield f"icebergBucket(16, CAST(c AS {exact}))"
    yield from (f"icebergBucket({n}, c)" for n in (1, 7, 16, 2**31 - 1))


def _timed(operands: tuple[str, ...], functions: frozenset[str]) -> Iterator[str]:
    rows = [row for row in MATRIX if row.partition("(")[0] in functions]
    for operand in operands:
        for text in (*(s for row in rows for s in spellings(row)), *_TUPLES, *_NESTED, *UNKNOWN):
            yield text.replace("{c}", operand)
        for part in PARTS:
            yield f"(toYear({operand}), toDate({operand}), {part}({operand}))"


def _counted() -> Iterator[str]:
    for n in WIDTHS:
        yield from (f"intDiv(c, {n})", f"c DIV {n} * {n}", f"c - c % {n}", f"c - pmod(c, {n})")
        yield f"icebergTruncate({n}, c)"
    for n in (1, 2, 3, 7, 100):
        yield from (f"substringUTF8(c, 1, {n})", f"leftUTF8(c, {n})")
        yield from (f"substring(c, 1, {n})", f"left(c, {n})", f"mid(c, 1, {n})")
    yield from (f"bitShiftRight(c, {k})" for k in (0, 1, 3, 7, 8, 15, 30))
    yield "toString(c)"
    yield from (text.replace("{c}", "c") for text in UNKNOWN)

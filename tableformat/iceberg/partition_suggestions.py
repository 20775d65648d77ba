"""Suggests a partition spec for a key without an exact one: fields that the data may prove.

A suggested field holds one or several whole partitions of the key, so that each exported partition
belongs to one Iceberg partition (`partition_proof.py` proves it). A field that would split a
partition of the key is never suggested.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyiceberg.types import UUIDType

from tableformat.iceberg.key_functions import (
    CanonicalFunction,
    Instant,
    canonical_function,
    follows_utc,
    instant,
)
from tableformat.iceberg.partition_widths import width
from tableformat.iceberg.schema import MappedColumns
from tableformat.iceberg.spec_fields import SpecField, why_not
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal

__all__ = ["suggestions"]

_BUCKETS: Final = 16
# In any zone whose offset is whole hours; the proof on the data decides.
_WITHIN_HOURS: Final = frozenset(
    {
        "toStartOfHour",
        "toStartOfMinute",
        "toStartOfFiveMinutes",
        "toStartOfTenMinutes",
        "toStartOfFifteenMinutes",
        "toStartOfSecond",
        "timeSlot",
        "toRelativeHourNum",
        "toRelativeMinuteNum",
        "toRelativeSecondNum",
        "toYYYYMMDDhhmmss",
        "toUnixTimestamp",
        "toStartOfInterval(hour)",
        "dateTrunc(hour)",
        "formatDateTime(hour)",
    }
)
# In UTC only.
_WITHIN_YEARS: Final = frozenset({"toStartOfQuarter", "toRelativeQuarterNum"})
# By interval unit: how many make a field, the field, and whether that holds in UTC only.
_INTERVALS: Final = {
    "toIntervalSecond": (3600, "hour", False),
    "toIntervalMinute": (60, "hour", False),
    "toIntervalHour": (24, "day", True),
    "toIntervalMonth": (12, "year", True),
    "toIntervalQuarter": (4, "year", True),
}
_TRUNCATED: Final = {
    "second": ("hour", False),
    "minute": ("hour", False),
    "hour": ("hour", False),
    "quarter": ("year", True),
}


def suggestions(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> tuple[SpecField, ...]:
    """Return the field that may hold an expression's partitions, if there is one."""
    found = _suggested(expression, columns, server_zone)
    return (found,) if found is not None and not why_not(found, columns) else ()


def _suggested(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> SpecField | None:
    match expression:
        case ColumnName(name):
            column = columns.find(name)
            hashed = column is not None and isinstance(column.type, UUIDType)
            return SpecField(name, "bucket", _BUCKETS) if hashed else None
        case Call("intDiv", (Call("toUnixTimestamp", (operand,)), Literal(int(seconds)))) if (
            seconds > 0
        ):
            unit = "hour" if 3600 % seconds == 0 else "day" if 86_400 % seconds == 0 else ""
            return _timed(operand, unit, columns) if unit else None
        case Call("dateTrunc", (Literal(str(unit)), operand, *rest)) if unit.lower() in _TRUNCATED:
            field, needs_utc = _TRUNCATED[unit.lower()]
            allowed = not needs_utc or _in_utc(operand, rest, columns, server_zone)
            return _timed(operand, field, columns) if allowed else None
        case Call("toStartOfInterval", (operand, Call(unit, (Literal(int(n)),)), *rest)) if (
            unit in _INTERVALS and n > 0
        ):
            count, field, needs_utc = _INTERVALS[unit]
            allowed = count % n == 0 and (
                not needs_utc or _in_utc(operand, rest, columns, server_zone)
            )
            if unit == "toIntervalHour" and n == 1:
                field, allowed = "hour", True
            return _timed(operand, field, columns) if allowed else None
    if (found := width(expression)) is not None:
        return SpecField(found.column, "truncate", found.number)
    return _of_function(canonical_function(expression), columns, server_zone)


def _of_function(
    spelled: CanonicalFunction | None, columns: MappedColumns, server_zone: str
) -> SpecField | None:
    if spelled is None:
        return None
    if spelled.row in _WITHIN_HOURS:
        return _timed(spelled.operand, "hour", columns)
    zone: list[Expression] = [Literal(spelled.zone)] if spelled.zone else []
    if spelled.row in _WITHIN_YEARS and _in_utc(spelled.operand, zone, columns, server_zone):
        return _timed(spelled.operand, "year", columns)
    return None


def _timed(operand: Expression, transform: str, columns: MappedColumns) -> SpecField | None:
    seen = instant(operand, columns, "UTC")
    if not isinstance(seen, Instant):
        return None
    return SpecField(seen.column, transform)


def _in_utc(
    operand: Expression, rest: list[Expression], columns: MappedColumns, server_zone: str
) -> bool:
    seen = instant(operand, columns, server_zone)
    if not isinstance(seen, Instant):
        return False
    match rest:
        case [Literal(str(zone))]:
            seen = replace(seen, zone=zone)
        case []:
            pass
        case _:
            return False
    return follows_utc(seen)

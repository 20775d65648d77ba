"""Parts of a date in a key: `toMonth(ts)` divides only what another field has divided before.

A month of the year alone is no Iceberg transform: it holds the months of all years. Beside the year
it is the month: `(toYear(ts), toMonth(ts))` is month(ts), `(toDate(ts), toHour(ts))` is hour(ts). A
part of what is divided already (`(toDate(ts), toMonday(ts))`) divides nothing more. Whether the
parts are right on all data was observed with the matrix (`partition_matrix.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tableformat.iceberg.key_spelling import spell
from tableformat.iceberg.partition_matrix import Instant, follows_utc, instant
from tableformat.iceberg.schema import MappedColumns
from tableformat.iceberg.spec_fields import TIME_TRANSFORMS
from tableformat.mergetree.expression import Expression

__all__ = ["PARTS", "CalendarPart", "calendar_part", "divided"]

# By function: what must be divided already, and what is divided then.
PARTS: Final = {
    "toMonth": ("year", "month"),
    # Not beside the year alone: the last two days of 2299 have the same one as Date32.
    "toDayOfYear": ("day", "day"),
    "toDayOfMonth": ("month", "day"),
    "toHour": ("day", "hour"),
    "toQuarter": ("month", "month"),
    "toStartOfQuarter": ("month", "month"),
    "toDayOfWeek": ("day", "day"),
    "toMonday": ("day", "day"),
    "toWeek": ("day", "day"),
    "toISOWeek": ("day", "day"),
    "toISOYear": ("day", "day"),
    "toYearWeek": ("day", "day"),
    "toStartOfWeek": ("day", "day"),
}


@dataclass(frozen=True, slots=True)
class CalendarPart:
    """One part: of a column; `needs` must be divided already, `gives` is divided then.

    `assumed` says that the zone is the server's.
    """

    column: str
    needs: str
    gives: str
    assumed: bool = False


def calendar_part(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> CalendarPart | None:
    """Return the part of a date in UTC that an expression is, or None."""
    spelled = spell(expression)
    if spelled is None or spelled.row not in PARTS:
        return None
    seen = instant(spelled.operand, columns, server_zone)
    if not isinstance(seen, Instant):
        return None
    if spelled.zone:
        seen = replace(seen, zone=spelled.zone, assumed=False)
    if not follows_utc(seen) or not seen.exact:
        return None
    return CalendarPart(seen.column, *PARTS[spelled.row], assumed=seen.assumed)


def divided(
    column: str, transform: str, parts: Iterable[CalendarPart]
) -> tuple[str, tuple[CalendarPart, ...]]:
    """Return by what a column is divided under these parts, too, and the parts that it explains.

    Args:
        column: the column.
        transform: the finest time transform of it that the key has without its parts.
        parts: of this and of other columns, in any order.
    """
    level = TIME_TRANSFORMS.index(transform)
    left = [part for part in parts if part.column == column]
    explained: list[CalendarPart] = []
    while fitting := [p for p in left if TIME_TRANSFORMS.index(p.needs) <= level]:
        level = max(level, *(TIME_TRANSFORMS.index(p.gives) for p in fitting))
        explained.extend(fitting)
        left = [p for p in left if p not in fitting]
    return TIME_TRANSFORMS[level], tuple(explained)

"""How the same function of a key is spelled: one name for all its spellings.

`dateTrunc('month', ts)`, `DATE_TRUNC('MONTH', ts, 'UTC')`, `toStartOfInterval(ts, INTERVAL 1
MONTH)`, `CAST(ts AS Date)`, `formatDateTime(ts, '%Y-%m')` and ClickHouse's own aliases (`YEAR(ts)`)
are read here; what each is in Iceberg is `partition_matrix.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tableformat.mergetree.expression import Call, Expression, Literal

__all__ = ["Spelled", "function_name", "spell"]

# Aliases that ClickHouse takes in any case; the names themselves it takes only as they are.
_ALIASES: Final = {
    "year": "toYear",
    "month": "toMonth",
    "day": "toDayOfMonth",
    "dayofmonth": "toDayOfMonth",
    "dayofyear": "toDayOfYear",
    "dayofweek": "toDayOfWeek",
    "hour": "toHour",
    "quarter": "toQuarter",
    "last_day": "toLastDayOfMonth",
    "to_days": "toDaysSinceYearZero",
    "date_trunc": "dateTrunc",
    "date_format": "formatDateTime",
    "time_bucket": "toStartOfInterval",
    "date_bin": "toStartOfInterval",
    "substring": "substring",
    "substr": "substring",
    "mid": "substring",
    "byteslice": "substring",
    "left": "left",
    "positivemodulo": "positiveModulo",
    "positive_modulo": "positiveModulo",
    "pmod": "positiveModulo",
}
_INTERVALS: Final = {f"toInterval{unit}": unit.lower() for unit in ("Year", "Month", "Day", "Hour")}
_UNITS: Final = tuple(_INTERVALS.values())
# What conversions of a format divide by; they have a fixed width, so any order tells them apart.
# Not %j: the last two days of 2299 have the same one as Date32.
_FORMATS: Final = {
    "year": ({"%Y"},),
    "month": ({"%Y", "%m"},),
    "day": ({"%Y", "%m", "%d"}, {"%F"}),
    "hour": ({"%Y", "%m", "%d", "%H"}, {"%F", "%H"}),
}
_CONVERSION: Final = re.compile(r"%.")
_BY_SIZE: Final = ["%F", "%Y", "%m", "%d", "%H"]


@dataclass(frozen=True, slots=True)
class Spelled:
    """A function of one value: its one name, what it is taken of, the explicit zone ('' for none).

    `ordered` is False for a text that does not sort as its dates do (`%d.%m.%Y`).
    """

    row: str
    operand: Expression
    zone: str = ""
    ordered: bool = True


def function_name(call: Call) -> str:
    """Return the function's own name for an alias of it."""
    return _ALIASES.get(call.function.lower(), call.function)


def spell(expression: Expression) -> Spelled | None:
    """Return the function of one value that an expression is; None: it is none that is known."""
    if not isinstance(expression, Call):
        return None
    name = function_name(expression)
    match name, expression.arguments:
        case "CAST", (operand, Literal("Date" | "Nullable(Date)")):
            return Spelled("toDate", operand)
        case "CAST", (operand, Literal("Date32" | "Nullable(Date32)")):
            return Spelled("toDate32", operand)
        case "dateTrunc", (Literal(str(unit)), operand, *rest) if unit.lower() in _UNITS:
            return _zoned(f"dateTrunc({unit.lower()})", operand, rest)
        case "toStartOfInterval", (operand, Call(interval, (Literal(1),)), *rest) if (
            interval in _INTERVALS
        ):
            return _zoned(f"toStartOfInterval({_INTERVALS[interval]})", operand, rest)
        case "formatDateTime", (operand, Literal(str(form)), *rest):
            return _formatted(form, operand, rest)
        case "intDiv", (Call("toUnixTimestamp", (operand,)), Literal(3600 | 86400 as seconds)):
            return Spelled(f"intDiv(toUnixTimestamp, {seconds})", operand)
        case _, (operand, *rest):
            return _zoned(name, operand, rest)
        case _:
            return None


def _zoned(row: str, operand: Expression, rest: list[Expression]) -> Spelled | None:
    match rest:
        case []:
            return Spelled(row, operand)
        case [Literal(str(zone))] if zone:
            return Spelled(row, operand, zone)
        case _:
            return None


def _formatted(form: str, operand: Expression, rest: list[Expression]) -> Spelled | None:
    found = _CONVERSION.findall(form)
    for unit, ways in _FORMATS.items():
        if set(found) in ways and len(set(found)) == len(found):
            spelled = _zoned(f"formatDateTime({unit})", operand, rest)
            if spelled is None:
                return None
            in_order = found == sorted(found, key=_BY_SIZE.index)
            return Spelled(spelled.row, operand, spelled.zone, in_order)
    return None

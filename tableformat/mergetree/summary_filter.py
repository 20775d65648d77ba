"""Parses and evaluates a condition over partition summaries (`--where`).

The condition is SQL over `partition_id`, `partition`, `parts`, `rows`, `bytes`, `min_time` and
`max_time` with = != < <= > >=, LIKE, IN, BETWEEN, AND, OR, NOT. Text compares with text and numbers
with numbers, which is checked when the condition is parsed. Times are text: a date, or a date with
a time of day (default: midnight). A partition whose times are all NULL is neither before nor after
any time. A partition with unknown times raises an error.

A time can also be computed from `now()`, `today()` or `yesterday()`, plus or minus an INTERVAL, and
rounded by `toStartOfDay`, `toStartOfMonth`, `toStartOfQuarter` or `toStartOfYear`. These are
ClickHouse's functions in UTC, at the moment when the condition is parsed.
"""

from __future__ import annotations

import operator
import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tableformat.errors import UsageError
from tableformat.mergetree.expression import (
    Call,
    ColumnName,
    Expression,
    Literal,
    columns_of,
    render_expression,
)
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.mergetree.table import NoTimes, PartitionSummary

__all__ = ["SummaryFilter", "parse_filter"]

_Value = Callable[[PartitionSummary], Any]
_Test = Callable[[PartitionSummary], bool]

_TEXT: Final[dict[str, _Value]] = {
    "partition_id": lambda summary: summary.partition_id.value,
    "partition": lambda summary: summary.partition,
}
_TIMES: Final[dict[str, _Value]] = {
    "min_time": lambda summary: _known(summary, "min_time"),
    "max_time": lambda summary: _known(summary, "max_time"),
}
_NUMBERS: Final[dict[str, _Value]] = {
    "parts": lambda summary: summary.parts,
    "rows": lambda summary: summary.rows,
    "bytes": lambda summary: summary.bytes_on_disk,
}
_NAMES: Final = (*_TEXT, *_NUMBERS, *_TIMES)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "equals": operator.eq,
    "notEquals": operator.ne,
    "less": operator.lt,
    "lessOrEquals": operator.le,
    "greater": operator.gt,
    "greaterOrEquals": operator.ge,
}
_ORDERED: Final = ("less", "lessOrEquals", "greater", "greaterOrEquals")
_MIDNIGHT: Final = "0000-00-00 00:00:00"


def _day(time: datetime) -> datetime:
    return time.replace(hour=0, minute=0, second=0)


_CLOCK: Final[dict[str, Callable[[datetime], datetime]]] = {
    "now": lambda now: now,
    "today": _day,
    "yesterday": lambda now: _day(now) - timedelta(days=1),
}
_START: Final[dict[str, Callable[[datetime], datetime]]] = {
    "toStartOfDay": _day,
    "toStartOfMonth": lambda time: _day(time).replace(day=1),
    "toStartOfQuarter": lambda time: _day(time).replace(
        month=time.month - (time.month - 1) % 3, day=1
    ),
    "toStartOfYear": lambda time: _day(time).replace(month=1, day=1),
}
_SECONDS: Final = {
    "toIntervalSecond": 1,
    "toIntervalMinute": 60,
    "toIntervalHour": 3_600,
    "toIntervalDay": 86_400,
    "toIntervalWeek": 604_800,
}
_MONTHS: Final = {"toIntervalMonth": 1, "toIntervalQuarter": 3, "toIntervalYear": 12}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?)?\Z")


@dataclass(frozen=True, slots=True)
class SummaryFilter:
    """A parsed and checked condition."""

    expression: Expression
    _test: _Test = field(repr=False, compare=False)

    @property
    def reads_times(self) -> bool:
        """Whether the condition uses the times of partitions."""
        return not columns_of(self.expression).isdisjoint(_TIMES)

    def matches(self, summary: PartitionSummary) -> bool:
        """Whether the condition holds for a partition.

        Raises:
            UsageError: the result depends on the partition's times, which are unknown.
        """
        return self._test(summary)


def parse_filter(text: str, now: datetime | None = None) -> SummaryFilter:
    """Parse a condition.

    Args:
        text: the condition.
        now: the time of `now()`; the clock of this host when None.

    Raises:
        UsageError: it is malformed, names something that a partition summary does not have,
            compares a number with text, or is no condition.
    """
    written = parse_expression(text, what="filter")
    expression = _with_times(written, (now or datetime.now(UTC)).replace(microsecond=0))
    return SummaryFilter(expression, _test(expression))


def _with_times(expression: Expression, now: datetime) -> Expression:
    """Replace each time that is computed from the clock by its text."""
    if not isinstance(expression, Call):
        return expression
    try:
        time = _computed(expression, now)
    except (OverflowError, ValueError) as error:
        raise _refusal(
            f"{render_expression(expression)} is before the year 1 or after 9999",
            "Choose a shorter interval.",
        ) from error
    if time is not None:
        return Literal(time.replace(tzinfo=None).isoformat(sep=" "))
    inner = (_with_times(argument, now) for argument in expression.arguments)
    return Call(expression.function, tuple(inner))


def _computed(expression: Expression, now: datetime) -> datetime | None:
    """Return the time that an expression computes from the clock, None for any other one."""
    match expression:
        case Call(function, ()) if function.lower() in _CLOCK:
            return _CLOCK[function.lower()](now)
        case Call(function, (of,)) if function in _START:
            time = _computed(of, now)
            return None if time is None else _START[function](time)
        case Call("plus" | "minus" as sign, (of, Call(unit, (Literal(int() as amount),)))):
            time = _computed(of, now)
            return (
                None if time is None else _moved(time, unit, -amount if sign == "minus" else amount)
            )
        case _:
            return None


def _moved(time: datetime, unit: str, amount: int) -> datetime | None:
    """Add an interval as ClickHouse does: a month later is at most that month's last day."""
    if unit in _SECONDS:
        return time + timedelta(seconds=amount * _SECONDS[unit])
    if unit not in _MONTHS:
        return None
    year, month = divmod(time.year * 12 + time.month - 1 + amount * _MONTHS[unit], 12)
    return time.replace(
        year=year, month=month + 1, day=min(time.day, monthrange(year, month + 1)[1])
    )


@dataclass(frozen=True, slots=True)
class _Operand:
    """One side of a comparison: `kind` is "number", "text" or "time"."""

    kind: str
    value: _Value


def _test(expression: Expression) -> _Test:
    """Return the condition as a function; every error is raised here."""
    match expression:
        case Call("and" | "or" as function, arguments):
            tests = [_test(argument) for argument in arguments]
            join = all if function == "and" else any
            return lambda summary: join(test(summary) for test in tests)
        case Call("not", (of,)):
            negated = _test(of)
            return lambda summary: not negated(summary)
        case Call(function, (left, right)) if function in _COMPARISONS:
            return _comparison(function, left, right)
        case Call("in" | "notIn" as function, (left, right)):
            listed = right.arguments if isinstance(right, Call) else (right,)
            tests = [_comparison("equals", left, element) for element in listed]
            wanted = function == "in"
            return lambda summary: any(test(summary) for test in tests) is wanted
        case Call("like" | "notLike" as function, (left, Literal(str() as pattern))):
            return _like(left, pattern, wanted=function == "like")
        case Literal(bool() as truth):
            return lambda _: truth
        case _:
            raise _refusal(
                f"{render_expression(expression)} is no condition",
                "Compare a name with a constant, as in rows > 1000.",
            )


def _comparison(function: str, left: Expression, right: Expression) -> _Test:
    first, second = _operand(left), _operand(right)
    kinds = {first.kind, second.kind}
    if "number" in kinds and len(kinds) > 1:
        number, text = (left, right) if first.kind == "number" else (right, left)
        raise _refusal(
            f"{render_expression(number)} is a number and {render_expression(text)} is text",
            "Put text in single quotes, and numbers in none.",
        )
    if "time" in kinds:
        first, second = _as_time(left, first), _as_time(right, second)
    compare = _COMPARISONS[function]
    if "time" in kinds and function in _ORDERED:
        return lambda summary: (
            (a := first.value(summary)) != ""
            and (b := second.value(summary)) != ""
            and compare(a, b)
        )
    return lambda summary: compare(first.value(summary), second.value(summary))


def _operand(expression: Expression) -> _Operand:
    match expression:
        case ColumnName(name) if name in _TEXT:
            return _Operand("text", _TEXT[name])
        case ColumnName(name) if name in _TIMES:
            return _Operand("time", _TIMES[name])
        case ColumnName(name) if name in _NUMBERS:
            return _Operand("number", _NUMBERS[name])
        case ColumnName(name):
            raise _refusal(f"a partition has no {name!r}", f"The names are {', '.join(_NAMES)}.")
        case Literal(str() as text):
            return _Operand("text", lambda _: text)
        case Literal(int() | float() as number) if not isinstance(number, bool):
            return _Operand("number", lambda _: number)
        case _:
            raise _refusal(
                f"{render_expression(expression)} is neither a name nor a constant",
                f"Compare one of {', '.join(_NAMES)} with a number or a text in quotes.",
            )


def _as_time(expression: Expression, operand: _Operand) -> _Operand:
    """Return a constant that is compared with a time in the text form of times."""
    match expression:
        case Literal(str() as text) if text == "" or _TIME.match(text):
            time = _time(text)
            return _Operand("time", lambda _: time)
        case Literal():
            raise _refusal(
                f"{render_expression(expression)} is no time",
                "Write '2024-01-31' or '2024-01-31 12:00:00'.",
            )
        case _:
            return operand


def _known(summary: PartitionSummary, name: str) -> str:
    """Return a time of a partition.

    Raises:
        UsageError: it is unknown.
    """
    if isinstance(summary.times, NoTimes):
        raise _refusal(
            f"{name} of partition {summary.partition_id} is not known: {summary.times.why}",
            "Choose by partition_id or partition.",
        )
    return _time(getattr(summary, name))


def _time(text: str) -> str:
    """Normalise the text of a time so that texts compare as times."""
    if not text:
        return text
    whole = text.replace("T", " ") + _MIDNIGHT[len(text) :]
    # Equal times may have different numbers of fractional digits.
    return whole.rstrip("0").removesuffix(".") if "." in whole else whole


def _like(left: Expression, pattern: str, *, wanted: bool) -> _Test:
    operand = _operand(left)
    if operand.kind == "number":
        raise _refusal(
            f"{render_expression(left)} is a number, and LIKE compares text",
            "Use =, <, > or BETWEEN.",
        )
    regex = re.compile(_regex(pattern), re.DOTALL)
    return lambda summary: (regex.fullmatch(operand.value(summary)) is not None) is wanted


def _regex(pattern: str) -> str:
    r"""Return a LIKE pattern as a regular expression: `%` is any text, `_` any character."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return "".join(wild.get(part) or re.escape(part[-1]) for part in parts)


def _refusal(why: str, advice: str) -> UsageError:
    return UsageError(f"Cannot filter partitions: {why}. {advice}")

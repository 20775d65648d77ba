"""Limits expressions of a lake table to functions that compute with their row alone.

A lake table's properties and the statements on it are evaluated in our own ClickHouse, on the host
and with the rights of the user who runs the statement. Functions that read files, call other
hosts or describe that host are refused by name before ClickHouse sees the expression.
`function_names.py` lists the functions of one ClickHouse release; unlisted functions are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_FUNCTION
from tableformat.errors import UnsupportedError
from tableformat.mergetree.expression import Call, ColumnName, Expression
from tableformat.mergetree.function_names import (
    ALLOWED,
    ALSO_TABLE_FUNCTIONS,
    LISTED_FROM,
    REFUSED,
)

__all__ = ["OutsideCall", "calls_outside", "reads_outside", "refuse_outside"]

_SETS: Final = frozenset(("in", "notin", "nullin", "notnullin"))
"""The right side of these may be a table's name; ClickHouse's parser turns IN into them."""
_SIDES: Final = 2
# A name from our parser, which ClickHouse does not list as a function.
_SYNTAX: Final = frozenset(("lambda",))


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A refused call: the function, the reason, and ClickHouse's error code."""

    function: str
    why: str
    code: int = NOT_IMPLEMENTED


def calls_outside(expression: Expression) -> Iterator[OutsideCall]:
    """Yield the calls in an expression that may read anything but its row."""
    for call in _calls(expression):
        name = call.function.lower()
        if name not in ALLOWED and name not in _SYNTAX:
            why = REFUSED.get(name)
            yield OutsideCall(call.function, why or _NOT_LISTED, *(() if why else _UNKNOWN))
        elif name in _SETS and (table := _table_in(call)) is not None:
            yield OutsideCall(call.function, f"reads {table} as a table")


def reads_outside(expression: Expression) -> bool:
    """Whether an expression may read other tables of its ClickHouse."""
    return any(True for _ in calls_outside(expression))


def refuse_outside(what: str, expression: Expression, advice: str) -> None:
    """Refuse an expression that may read anything but its row.

    Args:
        what: the action as it follows "Cannot " in the message.
        expression: the expression that ClickHouse is to evaluate.
        advice: the advice for the user, a sentence.

    Raises:
        UnsupportedError: there is such a call (its function and ClickHouse's code).
    """
    for call in calls_outside(expression):
        message = (
            f"Cannot {what}: the function {call.function} {call.why}, and what belongs to a lake "
            f"table is computed from its row alone. {advice}"
        )
        raise UnsupportedError(message, code=call.code)


_NOT_LISTED: Final = f"is not listed among those of ClickHouse {LISTED_FROM} that read nothing else"
_UNKNOWN: Final = (UNKNOWN_FUNCTION,)


def _table_in(call: Call) -> str | None:
    """Return the right side of IN if ClickHouse would read it as a table, else None."""
    if len(call.arguments) != _SIDES:
        return None
    match call.arguments[1]:
        case ColumnName(name):
            return name
        case Call(function) if function.lower() in ALSO_TABLE_FUNCTIONS:
            return f"{function}(…)"
        case _:
            return None


def _calls(expression: Expression) -> Iterator[Call]:
    if isinstance(expression, Call):
        yield expression
        for one in expression.arguments:
            yield from _calls(one)

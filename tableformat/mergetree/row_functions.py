"""What an expression of a lake table may call: the functions that compute with its row alone.

A lake table's properties and the statements on it are evaluated in a ClickHouse of our own, on the
host and with the rights of whoever runs the statement. Its functions that read files, call other
hosts or tell of that host are refused here, by name, before ClickHouse sees the expression.
`function_names.py` lists what one release of ClickHouse has; what it does not list is refused.
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
"""What is behind these may be the name of a table; ClickHouse's parser writes IN as them."""
_SIDES: Final = 2
# What the parser of expressions writes, and ClickHouse lists among no functions.
_SYNTAX: Final = frozenset(("lambda",))


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A call that is not evaluated: the function, why, and ClickHouse's code of the refusal."""

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
    """Whether a ClickHouse that has other tables may read them for an expression."""
    return any(True for _ in calls_outside(expression))


def refuse_outside(what: str, expression: Expression, advice: str) -> None:
    """Refuse an expression that may read anything but its row.

    Args:
        what: cannot be done with it, as the message has it: "Cannot " stands before it.
        expression: that ClickHouse is to evaluate.
        advice: what to do, a sentence.

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
    """Return what ClickHouse takes for a table on the right of IN; None: there is no table."""
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

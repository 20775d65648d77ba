"""What of an expression is read elsewhere than in the row: other tables, dictionaries, files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tableformat.mergetree.expression import Call, ColumnName, Expression

__all__ = ["functions_outside", "reads_outside"]

_FUNCTIONS: Final = ("file", "dict", "joinget", "catboostevaluate")
"""How their names begin."""
_SETS: Final = ("in", "notin", "globalin", "globalnotin", "nullin", "notnullin")
"""A name behind these is that of a table; ClickHouse's parser writes IN as them."""
_SIDES: Final = 2


def functions_outside(expression: Expression) -> Iterator[str]:
    """Yield the functions in an expression that read anything but the row."""
    for call in _calls(expression):
        if call.function.lower().startswith(_FUNCTIONS):
            yield call.function


def reads_outside(expression: Expression) -> bool:
    """Whether a ClickHouse that has other tables may read them for an expression."""
    return any(functions_outside(expression)) or any(
        call.function.lower().removesuffix("ignoreset") in _SETS
        and len(call.arguments) == _SIDES
        and isinstance(call.arguments[1], ColumnName)
        for call in _calls(expression)
    )


def _calls(expression: Expression) -> Iterator[Call]:
    if isinstance(expression, Call):
        yield expression
        for one in expression.arguments:
            yield from _calls(one)

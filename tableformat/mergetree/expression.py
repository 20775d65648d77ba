"""Defines ClickHouse expressions as values, and renders them as ClickHouse SQL.

They cover PARTITION BY and ORDER BY: columns, literals, function calls, tuples, operators (as their
functions: `a % 3` is `modulo(a, 3)`, `a - 1` is `minus(a, 1)`), and lambdas, which are calls in
ClickHouse, too: `x -> a` is `lambda(tuple(x), a)`.

`expression_parser` parses them: `parse_expression(render_expression(e))` is `e`, and ClickHouse
parses rendered text to the same tree. A dotted name is one column name: a member of Nested, or a
subcolumn of a tuple, which only the table can distinguish.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string

__all__ = [
    "Call",
    "ColumnName",
    "Expression",
    "Literal",
    "SortKey",
    "columns_of",
    "has_operator",
    "qualify",
    "render_expression",
]


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column; Nested members keep their dotted name (`n.a`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, string, boolean or NULL."""

    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to arguments; the function's name keeps its case.

    A tuple is `tuple(...)`.
    """

    function: str
    arguments: tuple[Expression, ...]


Expression = ColumnName | Literal | Call


@dataclass(frozen=True, slots=True)
class SortKey:
    """One element of ORDER BY; ClickHouse puts NULLs last ascending and first descending."""

    expression: Expression
    descending: bool = False


_BINARY: Final = {
    "plus": "+",
    "minus": "-",
    "multiply": "*",
    "divide": "/",
    "modulo": "%",
    "equals": "=",
    "notEquals": "!=",
    "less": "<",
    "greater": ">",
    "lessOrEquals": "<=",
    "greaterOrEquals": ">=",
}
_CHAINS: Final = {"and": " AND ", "or": " OR "}
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*\Z")
_PLAIN_FUNCTION: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Words that have, or may have, another meaning inside an expression.
_RESERVED: Final = frozenset(
    (
        *("ALL", "AND", "AS", "ASC", "BETWEEN", "CASE", "CAST", "DATE", "DESC", "DISTINCT", "DIV"),
        *("EXISTS", "FALSE", "FROM", "ILIKE", "IN", "INF", "INFINITY", "INTERVAL", "IS", "LIKE"),
        *("MOD", "NAN", "NOT", "NULL", "OR", "SELECT", "TABLE", "TIMESTAMP", "TRUE", "TUPLE"),
    )
)


def render_expression(expression: Expression) -> str:
    """Return the expression as ClickHouse SQL, with brackets around nested operators."""
    return _render(expression, _column)


def qualify(expression: Expression, prefix: str = SOURCE_ALIAS) -> str:
    """Return the expression as ClickHouse SQL with every column as `prefix`.`column`.

    If a SELECT list gives new values the names of columns, a bare name means the new value; the
    qualified name always means the table's column.
    """
    return _render(expression, lambda name: f"{quote_identifier(prefix)}.{quote_identifier(name)}")


def columns_of(expression: Expression) -> frozenset[str]:
    """Return the columns that an expression reads, without the arguments of lambdas."""
    match expression:
        case ColumnName(name):
            return frozenset((name,))
        case Literal():
            return frozenset()
        case Call("lambda", (Call("tuple", names), body)) if (bound := _bound(names)) is not None:
            return frozenset(n for n in columns_of(body) if n.partition(".")[0] not in bound)
        case Call(_, arguments):
            return frozenset().union(*(columns_of(argument) for argument in arguments))
        case _:
            assert_never(expression)


def _bound(names: tuple[Expression, ...]) -> frozenset[str] | None:
    """Return the names of a lambda's arguments, None if these are none."""
    found = [one.name for one in names if isinstance(one, ColumnName) and "." not in one.name]
    return frozenset(found) if len(found) == len(names) else None


def _column(name: str) -> str:
    if _PLAIN.match(name) and not _RESERVED.intersection(name.upper().split(".")):
        return name
    return quote_identifier(name)


def _render(expression: Expression, column: Callable[[str], str]) -> str:
    match expression:
        case ColumnName(name):
            return column(name)
        case Literal():
            return _literal(expression)
        case Call(function, arguments):
            return _operator(function, arguments, column) or _call(function, arguments, column)
        case _:
            assert_never(expression)


def _literal(literal: Literal) -> str:
    match literal.value:
        case None:
            return "NULL"
        case bool() as truth:
            return "true" if truth else "false"
        case str() as text:
            return quote_string(text)
        case number:
            return repr(number)


def _operator(
    function: str, arguments: tuple[Expression, ...], column: Callable[[str], str]
) -> str | None:
    """Return the call with an operator or brackets, as ClickHouse shows it, or None."""

    def operand(of: Expression) -> str:
        text = _render(of, column)
        return f"({text})" if isinstance(of, Call) and has_operator(of) else text

    match function, arguments:
        case _, (left, right) if function in _BINARY:
            return f"{operand(left)} {_BINARY[function]} {operand(right)}"
        case _, (_, _, *_) if function in _CHAINS:
            return _CHAINS[function].join(operand(argument) for argument in arguments)
        case "not", (of,):
            return f"NOT {operand(of)}"
        case "negate", (of,):
            # `-5` would be the number, `- -5` a comment.
            return f"-({_render(of, column)})" if isinstance(of, Literal) else f"-{operand(of)}"
        case "tuple", (_, _, *_):
            return f"({', '.join(_render(argument, column) for argument in arguments)})"
        case "lambda", (Call("tuple", names), body) if (bound := _bound(names)) is not None:
            listed = ", ".join(render_expression(name) for name in names)
            return f"({listed}) -> {_render(body, _within(bound, column))}"
        case "array", _:
            return f"[{', '.join(_render(argument, column) for argument in arguments)}]"
        case _:
            return None


def _within(bound: frozenset[str], column: Callable[[str], str]) -> Callable[[str], str]:
    """Return how to render columns in a lambda, whose arguments are never qualified."""
    return lambda name: _column(name) if name.partition(".")[0] in bound else column(name)


def has_operator(call: Call) -> bool:
    """Whether the call is rendered with an operator, as `a + b`, `NOT a` or `x -> a`."""
    match call.function, len(call.arguments):
        case "lambda", 2:
            of = call.arguments[0]
            named = isinstance(of, Call) and of.function == "tuple"
            return named and isinstance(of, Call) and _bound(of.arguments) is not None
        case function, 2 if function in _BINARY:
            return True
        case function, count if function in _CHAINS:
            return count > 1
        case function, count:
            return count == 1 and function in ("not", "negate")


def _call(function: str, arguments: tuple[Expression, ...], column: Callable[[str], str]) -> str:
    plain = _PLAIN_FUNCTION.match(function) and function.upper() not in ("NOT", "CASE")
    name = function if plain else quote_identifier(function)
    return f"{name}({', '.join(_render(argument, column) for argument in arguments)})"

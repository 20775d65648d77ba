"""Defines ClickHouse key expressions as values; `expression_text` parses and renders them.

They cover PARTITION BY and ORDER BY: columns, literals, function calls, tuples, operators (as their
functions: `a % 3` is `modulo(a, 3)`, `a - 1` is `minus(a, 1)`), and lambdas, which are calls in
ClickHouse, too: `x -> a` is `lambda(tuple(x), a)`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Call", "ColumnName", "Expression", "Literal", "SortKey"]


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

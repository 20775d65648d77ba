"""Filters as JSON values, so that every reader gets the same one in its own language.

    ["=", column, value]   ["<", column, value]   [">", column, value]
    ["null", column]   ["in", column, [value, ...]]   ["and", filter, filter]

Values are canonical (`canonical.py`). The programs of the readers use this in environments of their
own: only the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.readers.canonical import Cell, IcebergTypeJson

__all__ = ["Dialect", "Filter", "where"]

Filter = list[Any]
"""One of the forms above."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one reader writes SQL.

    `literals` gives the form of a value by the name of its type: `{text}` is the canonical value,
    `{hex}` its hexadecimal digits alone, `{precision}` and `{scale}` are the type's own. A type
    that is not there is written as JSON writes it.
    """

    quote: str
    escapes: Mapping[str, str]
    literals: Mapping[str, str]

    def name(self, column: str) -> str:
        """Return a column's name, quoted."""
        return f"{self.quote}{column.replace(self.quote, 2 * self.quote)}{self.quote}"

    def text(self, value: str) -> str:
        """Return a text, quoted."""
        return "'" + "".join(self.escapes.get(c, c) for c in value) + "'"

    def literal(self, cell: Cell, of: IcebergTypeJson) -> str:
        """Return a canonical value as this reader's SQL."""
        assert isinstance(of, str), "filters are on primitive columns"
        name, _, parameters = of.replace("[", "(").partition("(")
        if name not in self.literals:
            return self.text(cell) if isinstance(cell, str) else str(cell).lower()
        precision, _, scale = parameters.rstrip(")]").partition(",")
        return self.literals[name].format(
            text=cell,
            hex=str(cell).removeprefix("0x").replace("-", ""),
            precision=precision.strip(),
            scale=scale.strip(),
        )


def where(of: Filter, types: Mapping[str, IcebergTypeJson], dialect: Dialect) -> str:
    """Return a filter as SQL after WHERE."""
    literal: Callable[[Cell], str] = lambda cell: dialect.literal(cell, types[of[1]])  # noqa: E731
    match of:
        case ["and", left, right]:
            return f"({where(left, types, dialect)}) AND ({where(right, types, dialect)})"
        case ["null", column]:
            return f"{dialect.name(column)} IS NULL"
        case ["in", column, cells]:
            return f"{dialect.name(column)} IN ({', '.join(map(literal, cells))})"
        case [("=" | "<" | ">") as sign, column, cell]:
            return f"{dialect.name(column)} {sign} {literal(cell)}"
        case _:
            message = f"{of} is no filter"
            raise ValueError(message)

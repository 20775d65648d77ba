"""PyIceberg's results."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    Reference,
)
from pyiceberg.table import StaticTable

from tests.readers.canonical import python_value
from tests.readers.filters import Filter
from tests.readers.programs.loop import STORE, Found, Question, of_arrow, serve_questions

__all__: list[str] = []


def _expression(of: Filter, question: Question) -> BooleanExpression:
    def value(cell: Any) -> Any:
        return python_value(cell, question.types[of[1]])

    match of:
        case ["and", left, right]:
            return And(_expression(left, question), _expression(right, question))
        case ["null", column]:
            return IsNull(term=Reference(column))
        case ["in", column, cells]:
            return In(term=Reference(column), values={value(cell) for cell in cells})
        case ["=", column, cell]:
            return EqualTo(term=Reference(column), value=value(cell))
        case [">", column, cell]:
            return GreaterThan(term=Reference(column), value=value(cell))
        case _:
            return LessThan(term=Reference(of[1]), value=value(of[2]))


def _read(question: Question) -> Found:
    table = StaticTable.from_metadata(question.metadata, STORE.properties if STORE else {})
    kept = AlwaysTrue() if question.filter is None else _expression(question.filter, question)
    return of_arrow(
        table.scan(kept, selected_fields=question.columns).to_arrow().select(question.columns)
    )


if __name__ == "__main__":
    serve_questions(version("pyiceberg"), _read)

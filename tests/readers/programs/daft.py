"""Daft's results."""

from __future__ import annotations

from typing import Any

import daft
from pyiceberg.table import StaticTable

from tests.readers.canonical import python_value
from tests.readers.filters import Filter
from tests.readers.programs.loop import STORE, Found, Question, of_arrow, serve_questions

__all__: list[str] = []


def _expression(of: Filter, question: Question) -> Any:
    def literal(cell: Any) -> Any:
        value = python_value(cell, question.types[of[1]])
        return daft.lit(value)

    match of:
        case ["and", left, right]:
            return _expression(left, question) & _expression(right, question)
        case ["null", column]:
            return daft.col(column).is_null()
        case ["in", column, cells]:
            return daft.col(column).is_in([literal(cell) for cell in cells])
        case ["=", column, cell]:
            return daft.col(column) == literal(cell)
        case [">", column, cell]:
            return daft.col(column) > literal(cell)
        case _:
            return daft.col(of[1]) < literal(of[2])


def _read(question: Question) -> Found:
    table = StaticTable.from_metadata(question.metadata, STORE.properties if STORE else {})
    frame = daft.read_iceberg(table)
    if question.filter is not None:
        frame = frame.where(_expression(question.filter, question))
    return of_arrow(frame.select(*(daft.col(c) for c in question.columns)).to_arrow())


if __name__ == "__main__":
    serve_questions(daft.__version__, _read)

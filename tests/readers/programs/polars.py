"""The results of Polars."""

from __future__ import annotations

import functools
import operator
from typing import Any

import polars as pl

from tests.readers.canonical import python_value
from tests.readers.filters import Filter
from tests.readers.programs.loop import STORE, Found, Question, of_arrow, serve_questions

__all__: list[str] = []


def _expression(of: Filter, question: Question) -> Any:
    match of:
        case ["and", left, right]:
            return _expression(left, question) & _expression(right, question)
        case ["null", column]:
            return pl.col(column).is_null()
        case ["in", column, cells]:
            each = [pl.col(column) == _literal(cell, column, question) for cell in cells]
            return functools.reduce(operator.or_, each)
        case ["=", column, cell]:
            return pl.col(column) == _literal(cell, column, question)
        case [">", column, cell]:
            return pl.col(column) > _literal(cell, column, question)
        case _:
            return pl.col(of[1]) < _literal(of[2], of[1], question)


def _literal(cell: Any, column: str, question: Question) -> Any:
    of = question.types[column]
    value = python_value(cell, of)
    # Polars knows no UUIDs: it shows their 16 bytes.
    return pl.lit(value.bytes if of == "uuid" else value)


def _read(question: Question) -> Found:
    options = STORE.properties if STORE else None
    frame = pl.scan_iceberg(question.metadata, reader_override="native", storage_options=options)
    if question.filter is not None:
        frame = frame.filter(_expression(question.filter, question))
    return of_arrow(frame.select([pl.col(c) for c in question.columns]).collect().to_arrow())


if __name__ == "__main__":
    serve_questions(pl.__version__, _read)

"""What is asked of every reader: all values of a table, and filters on each column of one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.readers.canonical import Cell
from tests.readers.filters import Filter
from tests.readers.lake import Exported

__all__ = ["filter_text", "filters_of"]

_DIVIDED: Final = ("texts", "numbers", "times")


def filters_of(table: Exported, rows: Sequence[Sequence[Cell]]) -> tuple[Filter, ...]:
    """Return the filters that are asked of a table; their values are those of its rows.

    Equality is asked for every value where the column is divided by a transform, or is a number
    with a point, where zero has two signs. NaN is never asked for:
    what equals it, each language decides for itself.
    """
    return tuple(
        of
        for place, column in enumerate(table.columns)
        if isinstance(table.types[column.name], str)
        for of in _of_column(
            table, column.name, [row[place] for row in rows], ordered=column.ordered
        )
    )


def filter_text(of: Filter) -> str:
    """Return a filter as people read it, which is also its name in the recorded results."""
    match of:
        case ["and", left, right]:
            return f"{filter_text(left)} and {filter_text(right)}"
        case ["null", column]:
            return f"{column} is null"
        case ["in", column, cells]:
            return f"{column} in {cells}"
        case _:
            return f"{of[1]} {of[0]} {of[2]!r}"


def _of_column(
    table: Exported, name: str, cells: Sequence[Cell], *, ordered: bool
) -> Iterator[Filter]:
    yield ["null", name]
    values = [cell for cell in dict.fromkeys(cells) if cell not in (None, "nan")]
    if not values:
        return
    every = table.name in _DIVIDED or table.types[name] in ("float", "double")
    for value in values if every else values[-1:]:
        yield ["=", name, value]
    middle = values[len(values) // 2]
    if ordered:
        yield ["<", name, middle]
        yield [">", name, middle]
    yield ["in", name, [values[0], values[-1]]]
    yield ["and", ["<", "id", len(cells) // 2], ["=", name, values[0]]]

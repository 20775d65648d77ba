"""Compares every reader's results with ClickHouse's own; what differs becomes a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.readers.canonical import Cell
from tests.readers.engines import Matches, Reader
from tests.readers.filters import Filter
from tests.readers.lake import Exported, ReadersLake
from tests.readers.questions import filter_text, filters_of

__all__ = ["Truth", "Wrong", "shown_types", "truth_of", "wrong_filters", "wrong_values"]

_MESSAGE: Final = 100
_PLACE: Final = re.compile(r"(file:)?/\S+")


@dataclass(frozen=True, slots=True)
class Truth:
    """A table, its rows as ClickHouse has them, and which rows ClickHouse finds for each filter."""

    table: Exported
    rows: tuple[tuple[Cell, ...], ...]
    filters: tuple[tuple[Filter, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Wrong:
    """One result that is not ClickHouse's.

    Attributes:
        table: of which it was asked.
        asked: a column, for its values, or a filter as `questions.filter_text` writes it.
        result: `{"error": …}`; for values those that differ, by row; for filters `missing` and
            `extra` rows.
    """

    table: str
    asked: str
    result: dict[str, Any]


def truth_of(lake: ReadersLake, table: Exported, *, every: int = 1) -> Truth:
    """Ask ClickHouse for all rows, and of the filters for every second, third and so on."""
    rows = lake.rows(table)
    filters = filters_of(table, rows)[::every]
    found = tuple((of, tuple(lake.ids(table, of, rows))) for of in filters)
    return Truth(table, tuple(map(tuple, rows)), found)


def wrong_values(reader: Reader, truth: Truth) -> Iterator[Wrong]:
    """Read a whole table; yield for each column what differs. Errors are given column by column."""
    table = truth.table
    names = [column.name for column in table.columns]
    result = reader.read(table.metadata, names)
    if not result.error:
        for place, name in enumerate(names):
            yield from _compared(truth, name, place, [(r[0], r[place]) for r in result.rows])
        return
    for place, name in enumerate(names[1:], 1):
        alone = reader.read(table.metadata, ["id", name])
        if alone.error:
            yield Wrong(table.name, name, {"error": _beginning(alone.error)})
        else:
            yield from _compared(truth, name, place, [(r[0], r[1]) for r in alone.rows])


def wrong_filters(reader: Reader, truth: Truth) -> Iterator[Wrong]:
    """Ask every filter of a table; yield those that find other rows than ClickHouse does."""
    filters = [of for of, _ in truth.filters]
    results = reader.matching(truth.table.metadata, filters)
    for (of, wanted), found in zip(truth.filters, results, strict=True):
        if found != Matches(wanted):
            yield Wrong(truth.table.name, filter_text(of), _difference(wanted, found))


def shown_types(reader: Reader, table: Exported) -> dict[str, str]:
    """Return as what a reader shows each Iceberg type of a table; the first column that has it."""
    shown: dict[str, str] = {}
    for column in table.columns:
        of = table.types[column.name]
        name = of if isinstance(of, str) else of["type"]
        if name not in shown:
            result = reader.read(table.metadata, [column.name])
            shown[name] = result.shown[0][1] if result.shown else "error"
    return shown


def _compared(
    truth: Truth, name: str, place: int, found: Sequence[tuple[int, Cell]]
) -> Iterator[Wrong]:
    wanted = {row[0]: row[place] for row in truth.rows}
    given = dict(found)
    # Two rows of one number, or none, would hide in the dictionary.
    if len(found) != len(wanted) or given.keys() != wanted.keys():
        yield Wrong(truth.table.name, name, {"rows": sorted(i for i, _ in found)})
    elif given != wanted:
        differ = {str(i): cell for i, cell in sorted(given.items()) if cell != wanted[i]}
        yield Wrong(truth.table.name, name, differ)


def _difference(wanted: tuple[int, ...], found: Matches) -> dict[str, Any]:
    if found.error:
        return {"error": _beginning(found.error)}
    twice = sorted(i for i in set(found.ids) if found.ids.count(i) > 1)
    differ = {
        "missing": sorted(set(wanted) - set(found.ids)),
        "extra": sorted(set(found.ids) - set(wanted)),
        "twice": twice,
    }
    return {key: ids for key, ids in differ.items() if ids}


def _beginning(error: str) -> str:
    """Return the beginning of a message, without places of this run."""
    return _PLACE.sub("…", error.partition("\n")[0])[:_MESSAGE]

"""Pruning, proved: garbage over every byte that a query has no need of; the right result is proof.

The table has two days, two files for each, four row groups in a file, and four pages for a column
in a row group. A copy of it is poisoned for each case; files have new names, because readers
remember what they have read of a file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tableformat.export.slices import FileFormat
from tableformat.names import TableName
from tests.readers.columns import Column
from tests.readers.engines import Reader
from tests.readers.filters import Filter
from tests.readers.lake import ReadersLake
from tests.readers.parquet_pages import Span, chunks, data_pages
from tests.readers.tables import SourceTable

__all__ = ["CASES", "Case", "Poisoned", "make_poisoned", "prunes"]

_FILE_ROWS: Final = 800
_FORMAT: Final = FileFormat(row_group_rows=200, page_rows=50)
_DAYS: Final = ("2024-01-01", "2024-01-02")
_WANTED: Final = 1234
_FILE, _GROUP = _WANTED // _FILE_ROWS, _WANTED % _FILE_ROWS // _FORMAT.row_group_rows
_ROW: Final = _WANTED % _FORMAT.row_group_rows

# The place of a file's path among the fields of a manifest entry's file, version 2.
_FILE_PATH: Final = 1

Poison = Callable[[int, Path], Iterator[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of pruning.

    Attributes:
        name: in the tables of the results.
        reads: what is left of the table, in words.
        columns: that are asked for.
        where: the filter.
        rows: that it finds, by `id`.
        poison: the bytes that it has no need of, of a file by its number.
    """

    name: str
    reads: str
    columns: tuple[str, ...]
    where: Filter
    rows: tuple[int, ...]
    poison: Poison


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A case, the metadata file of its poisoned copy, and the rows of a result that is right."""

    case: Case
    metadata: str
    rows: frozenset[tuple[object, ...]]


def _whole(path: Path) -> Iterator[tuple[int, int]]:
    yield 0, path.stat().st_size


def _of(spans: Iterator[Span], keep: Callable[[Span], bool]) -> Iterator[tuple[int, int]]:
    return ((span.start, span.end) for span in spans if not keep(span))


def _other_days(number: int, path: Path) -> Iterator[tuple[int, int]]:
    return iter(()) if number // 2 == 1 else _whole(path)


def _other_files(number: int, path: Path) -> Iterator[tuple[int, int]]:
    return iter(()) if number == _FILE else _whole(path)


def _other_groups(number: int, path: Path) -> Iterator[tuple[int, int]]:
    if number != _FILE:
        return _whole(path)
    return _of(chunks(path), lambda span: span.group == _GROUP)


def _other_pages(number: int, path: Path) -> Iterator[tuple[int, int]]:
    if number != _FILE:
        return _whole(path)
    return _of(
        data_pages(path),
        lambda span: span.group == _GROUP and span.first_row <= _ROW < span.first_row + span.rows,
    )


def _other_columns(_: int, path: Path) -> Iterator[tuple[int, int]]:
    return _of(chunks(path), lambda span: span.column == "id")


_ALL: Final = ("id", "day", "payload")
_ONE: Final[Filter] = ["=", "id", _WANTED]
CASES: Final = (
    Case("partition", "the files of one day", _ALL, ["=", "day", _DAYS[1]],
         tuple(range(2 * _FILE_ROWS, 4 * _FILE_ROWS)), _other_days),
    Case("file", "one file of four, by least and greatest value", _ALL, _ONE, (_WANTED,),
         _other_files),
    Case("row group", "one row group of four in that file", _ALL, _ONE, (_WANTED,), _other_groups),
    Case("page", "one page of four of each column in that row group", _ALL, _ONE, (_WANTED,),
         _other_pages),
    Case("column", "the column that is asked for", ("id",), ["<", "id", 10], tuple(range(10)),
         _other_columns),
)  # fmt: skip


def make_poisoned(lake: ReadersLake) -> tuple[Poisoned, ...]:
    """Export the table and make a poisoned copy of it for each case."""
    columns = (
        Column("day", "Date32", ()),
        Column("payload", "String", ()),
    )
    count = _FILE_ROWS * 4
    rows = tuple(
        f"({i}, '{_DAYS[i // (2 * _FILE_ROWS)]}', hex(MD5('{i}')) || hex(MD5('-{i}')))"
        for i in range(count)
    )
    source = SourceTable("pruned", columns, rows, f"intDiv(id, {_FILE_ROWS})", "day(day)")
    truth = lake.rows(exported := lake.make(source, _FORMAT))
    table = lake.exports.lake(TableName("db", exported.name))
    files = sorted((task.file for task in table.scan().plan_files()), key=_least_id)
    assert [f.record_count for f in files] == [_FILE_ROWS] * 4
    return tuple(
        Poisoned(
            case,
            _poisoned_copy(lake, table, files, case),
            frozenset(tuple(truth[i][: len(case.columns)]) for i in case.rows),
        )
        for case in CASES
    )


def prunes(reader: Reader, poisoned: Poisoned) -> bool:
    """Whether a reader's result is right although all the rest is garbage."""
    result = reader.read(poisoned.metadata, poisoned.case.columns, poisoned.case.where)
    rows = frozenset(result.rows)
    return not result.error and (len(result.rows), rows) == (len(poisoned.rows), poisoned.rows)


def _least_id(file: DataFile) -> bytes:
    return bytes(reversed(file.lower_bounds[1]))


def _poisoned_copy(lake: ReadersLake, table: Table, files: list[DataFile], case: Case) -> str:
    catalog = lake.exports.catalog("lake").catalog
    name = f"n.pruned_{case.name.replace(' ', '_')}"
    made = catalog.create_table(name, table.schema(), partition_spec=table.spec())
    with made.transaction() as change, change.update_snapshot().fast_append() as append:
        for number, file in enumerate(files):
            poisoned = f"{made.location()}/data/{number}.parquet"
            with table.io.new_input(file.file_path).open() as read:
                content = bytearray(read.read())
            origin = lake.directory / "whole.parquet"
            origin.write_bytes(content)
            for start, end in case.poison(number, origin):
                content[start:end] = b"\xdb" * (end - start)
            with made.io.new_output(poisoned).create() as written:
                written.write(bytes(content))
            entry = copy.deepcopy(file)
            entry[_FILE_PATH] = poisoned
            append.append_data_file(entry)
    return made.metadata_location

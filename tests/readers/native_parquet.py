"""ClickHouse's own Parquet file against ours, column by column: types, and the values of both.

Ours holds what ClickHouse itself says of its rows, as the tests of the readers prove; ClickHouse's
file is read with pyarrow. What differs is recorded (`native_parquet.json`) and described in
docs/reference/clickhouse-parquet.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.clickhouse.connection import ClickHouseError
from tableformat.names import TableName, quote_identifier, quote_string
from tests.readers.canonical import Cell, IcebergTypeJson, canonical
from tests.readers.columns import Column
from tests.readers.lake import ID, Exported, ReadersLake

__all__ = ["CANNOT", "FILE", "Compared", "compare", "load", "save"]

FILE: Final = Path(__file__).with_name("native_parquet.json")
_NOISE: Final = re.compile(r", (is_from_converted_type|force_set_converted_type)=\w+")
_SHOWN: Final = 60
CANNOT: Final = "cannot be written"


@dataclass(frozen=True, slots=True)
class Compared:
    """One ClickHouse type in both files.

    Attributes:
        type: ClickHouse's text.
        ours: Parquet's types in our file, of every leaf.
        theirs: the same in ClickHouse's file, or why it wrote none.
        values: empty when both files hold the same values, else the first that differs.
    """

    type: str
    ours: str
    theirs: str
    values: str


def compare(lake: ReadersLake, table: Exported) -> list[Compared]:
    """Let ClickHouse write each column of a table into a file of its own; compare with ours."""
    files = lake.exports.lake(TableName("db", table.name)).scan().plan_files()
    paths = [Path(unquote(urlparse(task.file.file_path).path)) for task in files]
    own_types = _leaves(paths[0])
    rows = lake.rows(table)
    return [
        _compare(lake, table, column, [row[place] for row in rows], own_types[place])
        for place, column in enumerate(table.columns)
        if column is not ID
    ]


def load() -> list[Compared]:
    """Return what is recorded."""
    return [Compared(**each) for each in json.loads(FILE.read_text(encoding="utf-8"))]


def save(found: Sequence[Compared]) -> None:
    """Record it."""
    text = json.dumps([asdict(each) for each in found], indent=1, ensure_ascii=False)
    FILE.write_text(f"{text}\n", encoding="utf-8")


def _compare(
    lake: ReadersLake, table: Exported, column: Column, cells: list[Cell], own_types: str
) -> Compared:
    path = lake.directory / f"native-{table.columns.index(column)}.parquet"
    select = f"SELECT {quote_identifier(column.name)} FROM db.{table.name} ORDER BY id"
    try:
        lake.exports.clickhouse.command(
            f"INSERT INTO FUNCTION file({quote_string(str(path))}, 'Parquet') {select}"
        )
    except ClickHouseError as error:
        return Compared(column.type, own_types, f"{CANNOT}: {error.reason[:_SHOWN]}", "")
    (types,) = _leaves(path)
    try:
        native = pq.read_table(path).column(0)
        different = _first_difference(cells, native.to_pylist(), table.types[column.name])
    except (pa.ArrowException, UnicodeDecodeError) as error:
        different = f"pyarrow cannot read it: {str(error)[:_SHOWN]}"
    return Compared(column.type, own_types, types, different)


def _leaves(path: Path) -> list[str]:
    """Return the Parquet types of the leaves of every top-level column."""
    file = pq.ParquetFile(path)
    found: dict[str, list[str]] = {}
    for place in range(len(file.schema)):
        leaf = file.schema.column(place)
        logical = _NOISE.sub("", str(leaf.logical_type))
        length = f"({leaf.length})" if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else ""
        type_text = f"{leaf.physical_type}{length}" + ("" if logical == "None" else f" {logical}")
        found.setdefault(_top(leaf.path, file.schema_arrow.names), []).append(type_text)
    file.close()
    return [" · ".join(leaves) for leaves in found.values()]


def _top(path: str, names: Sequence[str]) -> str:
    """Return the column that a leaf belongs to; names may hold dots themselves."""
    return max((n for n in names if path == n or path.startswith(f"{n}.")), key=len)


def _first_difference(cells: Sequence[Cell], native: Sequence[Any], of: IcebergTypeJson) -> str:
    for wanted, theirs in zip(cells, native, strict=True):
        given = _seen(_by_position(theirs), of)
        if wanted != given:
            return f"{_short(wanted)} is {_short(given)}"
    return ""


def _seen(value: Any, of: IcebergTypeJson) -> Cell:
    try:
        return canonical(value, of)
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"0x{value.hex()}" if isinstance(value, bytes) else f"{value!r}"


def _by_position(value: Any) -> Any:
    """Forget the names of a struct's members: unnamed ones are called otherwise in the lake."""
    match value:
        case dict():
            return [_by_position(member) for member in value.values()]
        case list():
            return [_by_position(item) for item in value]
        case tuple():
            return tuple(_by_position(item) for item in value)
        case _:
            return value


def _short(cell: Cell) -> str:
    text = json.dumps(cell, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"

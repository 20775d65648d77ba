"""Which of Parquet's encodings each reader reads: a table for each encoding and page version.

The files are pyarrow's, with Iceberg's field ids; a column is in a table if Parquet allows the
encoding for its type. The results are recorded (`encodings.json`), and docs/reference/readers.md
shows them. Readers of local files are asked.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from tests.readers.canonical import canonical
from tests.readers.columns import Column
from tests.readers.engines import ENGINES, Reader
from tests.readers.lake import Exported
from tests.readers.measure import Truth, wrong_values

__all__ = [
    "ENCODINGS",
    "FILE",
    "VERSIONS",
    "Encoded",
    "OfEncodings",
    "cell",
    "load",
    "make_encoded",
    "read_encodings",
    "save",
]  # fmt: skip

FILE: Final = Path(__file__).with_name("encodings.json")
VERSIONS: Final = ("1.0", "2.0")
"""Of data pages."""
_ROWS: Final = 600
_NULL: Final = 7
"""Every so many rows have NULL."""
_PAGE: Final = 64
"""Bytes, so that a column has several pages."""
_NUMBERS: Final = ("int", "long", "date", "timestamptz")
_EPOCH: Final = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_COLUMNS: Final[Mapping[str, tuple[PrimitiveType, Callable[[int], Any]]]] = {
    "int": (IntegerType(), lambda n: (-1) ** n * (n * 1_000_003 % 2_147_483_647)),
    "long": (LongType(), lambda n: (-1) ** n * n * 1_000_000_000_000_007),
    "date": (DateType(), lambda n: dt.date(1960, 1, 1) + dt.timedelta(days=n * n * 37 % 40_000)),
    "timestamptz": (TimestamptzType(), lambda n: _EPOCH + dt.timedelta(microseconds=n**4)),
    "float": (FloatType(), lambda n: (n - 300) / 4),
    "double": (DoubleType(), lambda n: (n - 300) / 7),
    "string": (StringType(), lambda n: f"https://www.example.com/{n % 50}/ä{n}" if n % 5 else ""),
    "fixed": (FixedType(4), lambda n: (n * 65_537).to_bytes(4, "big")),
}
ENCODINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "PLAIN": tuple(_COLUMNS),
    "RLE_DICTIONARY": tuple(_COLUMNS),
    "DELTA_BINARY_PACKED": _NUMBERS,
    "DELTA_LENGTH_BYTE_ARRAY": ("string",),
    "DELTA_BYTE_ARRAY": ("string", "fixed"),
    "BYTE_STREAM_SPLIT": (*_NUMBERS, "float", "double", "fixed"),
}
"""The columns that have each encoding."""
_DICTIONARY: Final = "RLE_DICTIONARY"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A lake table of one file, and the rows that a reader has to return.

    Attributes:
        name: the encoding and the page version.
        path: of the data file.
        truth: the table and its rows.
    """

    name: str
    path: Path
    truth: Truth


@dataclass(frozen=True, slots=True)
class OfEncodings:
    """What a reader of a version returned wrongly: by encoding and page version, by column."""

    version: str
    wrong: Mapping[str, Mapping[str, Any]]


def make_encoded(catalog: Catalog) -> tuple[Encoded, ...]:
    """Make the tables in a catalog of local files."""
    catalog.create_namespace_if_not_exists("n")
    return tuple(
        _encoded(catalog, encoding, version) for encoding in ENCODINGS for version in VERSIONS
    )


def read_encodings(reader: Reader, tables: Sequence[Encoded]) -> OfEncodings:
    """Ask a reader for every value of the tables."""
    found = {
        each.name: {wrong.asked: wrong.result for wrong in wrong_values(reader, each.truth)}
        for each in tables
    }
    return OfEncodings(reader.version(), {name: of for name, of in found.items() if of})


def name_of(encoding: str, version: str) -> str:
    """Return how the results name an encoding in pages of a version."""
    return f"{encoding} {version}"


def cell(result: OfEncodings, encoding: str) -> str:
    """Return what the matrix says of a reader and an encoding."""
    columns = set(ENCODINGS[encoding])
    unread = [set(result.wrong.get(name_of(encoding, version), ())) for version in VERSIONS]
    if not any(unread):
        return "yes"
    if all(columns <= found for found in unread):
        return "**no**"
    if unread[0] == unread[1]:
        return f"not {', '.join(sorted(unread[0]))}"
    parts = (
        f"v{version[0]}: not {', '.join(sorted(found))}"
        for version, found in zip(VERSIONS, unread, strict=True)
        if found
    )
    return "; ".join(parts)


def load() -> dict[str, OfEncodings]:
    """Return the recorded results by reader."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return {e.name: OfEncodings(**found[e.name]) for e in ENGINES if e.name in found}


def save(results: Mapping[str, OfEncodings]) -> None:
    """Record results."""
    text = json.dumps({name: asdict(of) for name, of in results.items()}, indent=1)
    FILE.write_text(f"{text}\n", encoding="utf-8")


def _encoded(catalog: Catalog, encoding: str, version: str) -> Encoded:
    names = ENCODINGS[encoding]
    fields = [NestedField(1, "id", IntegerType(), required=True)]
    fields += [
        NestedField(number, name, _COLUMNS[name][0], required=False)
        for number, name in enumerate(names, 2)
    ]
    schema = Schema(*fields)
    table_name = name_of(encoding, version[0]).lower().replace(" ", "_v")
    table = catalog.create_table(f"n.{table_name}", schema)
    path = Path(table.location().removeprefix("file://")) / "data" / "rows.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        [n, *(None if n % _NULL == 3 else _COLUMNS[name][1](n) for name in names)]
        for n in range(_ROWS)
    ]
    _write(path, schema, rows, encoding, version)
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/rows.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=_ROWS,
        file_size_in_bytes=path.stat().st_size,
        _table_format_version=2,
    )
    entry.spec_id = 0
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(entry)
    types = {field.name: str(field.field_type) for field in schema.fields}
    exported = Exported(
        table_name,
        table.metadata_location,
        tuple(Column(name, types[name], ()) for name in types),
        dict(types),
    )
    cells = tuple(
        tuple(canonical(value, types[name]) for name, value in zip(types, row, strict=True))
        for row in rows
    )
    return Encoded(name_of(encoding, version), path, Truth(exported, cells, ()))


def _write(
    path: Path, schema: Schema, rows: Sequence[Sequence[Any]], encoding: str, version: str
) -> None:
    arrow = schema_to_pyarrow(schema)
    columns = [
        pa.array([row[place] for row in rows], field.type) for place, field in enumerate(arrow)
    ]
    with_dictionary = encoding == _DICTIONARY
    of_columns = dict.fromkeys(arrow.names, "PLAIN")
    of_columns |= dict.fromkeys(ENCODINGS[encoding], encoding)
    pq.write_table(
        pa.table(columns, schema=arrow),
        path,
        use_dictionary=[*ENCODINGS[encoding]] if with_dictionary else False,
        column_encoding=None if with_dictionary else of_columns,
        data_page_version=version,
        data_page_size=_PAGE,
        write_batch_size=64,
        compression="zstd",
        store_schema=False,
    )

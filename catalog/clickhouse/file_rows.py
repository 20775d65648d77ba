"""Rows of data files in a table of a ClickHouse of our own, as the source's types again.

Of one data file after the other it gets the columns that somebody asks for, and the number of each
row. That they are the same values is proved by a digest of both sides: what a type of the lake
cannot give back is refused, and never guessed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.digests import READ_SETTINGS, as_read
from catalog.clickhouse.own import OwnClickHouse
from catalog.storages.opening import Opens
from tableformat.branches import BranchFile
from tableformat.errors import DestinationError
from tableformat.iceberg.field_ids import FIELD_ID_KEY
from tableformat.iceberg.file_columns import file_columns
from tableformat.iceberg.properties import RememberedSource
from tableformat.mergetree.digest_sql import (
    DigestColumn,
    digest_sql,
    read_digest,
    source_columns,
)
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import Simple
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string

__all__ = ["FILE_NUMBER", "ROW_NUMBER", "FileRows", "numbered"]

ROW_NUMBER: Final = "mergeberg_row"
"""The number of a row in its file, from 0."""
FILE_NUMBER: Final = "mergeberg_file"
"""The number of a file, as its caller counts them."""
_CHUNK: Final = 65_536
_INSERT: Final = "input_format_null_as_default = 0, insert_allow_materialized_columns = 1"


def numbered(*names: str) -> tuple[Column, ...]:
    """Return columns of numbers."""
    return tuple(Column(name, Simple("UInt64"), "UInt64") for name in names)


@dataclass(frozen=True, slots=True)
class _Read:
    """Columns of a file, in a file of their own."""

    link: Path
    wanted: tuple[DigestColumn, ...]
    read: tuple[DigestColumn, ...]
    structure: str

    @property
    def table(self) -> str:
        """The file, as it stands after FROM."""
        return f"file({quote_string(str(self.link))}, Parquet, {quote_string(self.structure)})"


@dataclass(frozen=True, slots=True)
class FileRows:
    """Puts columns of data files into a table.

    `schema` is the lake table's, `columns` are those that are wanted, all stored; `what` is done,
    as errors have it.
    """

    held: OwnClickHouse
    storages: Opens
    source: RememberedSource
    schema: Schema
    columns: tuple[Column, ...]
    what: str

    def insert(self, file: BranchFile, into: str, number: int | None = None) -> None:
        """Add the rows of a file to a table, which has the columns and `ROW_NUMBER`.

        Args:
            file: the data file.
            into: the table, which is empty where the file has no number.
            number: of the file; the table has `FILE_NUMBER` then, too.

        Raises:
            DestinationError: the file cannot be read, or its values are not the source's.
        """
        scratch = self.held.directory
        # A name of its own for each, so that nothing that was kept of another is read.
        link = scratch / f"rows-{uuid.uuid4().hex}.parquet"
        try:
            path = self.storages(file.path).fetch(file.path, scratch)
            try:
                read = self._read(path, link)
            finally:
                if path.parent == scratch:
                    path.unlink(missing_ok=True)
            self._insert(read, file, into, number)
            link.unlink()
        except (OSError, pa.ArrowException, ClickHouseError) as error:
            reason = error.reason if isinstance(error, ClickHouseError) else str(error)
            message = (
                f"Cannot run {self.what}: {file.path} cannot be read as what it was exported "
                f"from: {reason.rstrip('.')}. Use the statements of Spark for it."
            )
            raise DestinationError(message) from error

    def _read(self, path: Path, link: Path) -> _Read:
        """Copy the columns of a file, with the numbers of its rows."""
        wanted = source_columns(self.columns, self.source.conversions)
        with pq.ParquetFile(path) as parquet:
            schema = pq.read_schema(path)
            columns = file_columns(wanted, self.schema, schema)
            if lacking := ", ".join(c.name for c in columns if c.written is None):
                message = f"it lacks {lacking}, which the table got later"
                raise OSError(message)
            names = [c.written for c in columns if c.written is not None]
            number = pa.field(ROW_NUMBER, pa.int64(), metadata={FIELD_ID_KEY: b"2147483000"})
            fields = pa.schema([*(schema.field(name) for name in names), number])
            with pq.ParquetWriter(link, fields) as writer:
                for batch in _numbered(parquet, names, fields):
                    writer.write_batch(batch)
        read, structure = as_read(wanted, columns)
        of_row = DigestColumn(ROW_NUMBER, ROW_NUMBER, Simple("UInt64"), "Int64")
        return _Read(
            link,
            (*wanted, replace(of_row, sql=f"{SOURCE_ALIAS}.{ROW_NUMBER}")),
            (*read, of_row),
            ", ".join(part for part in (structure, f"{ROW_NUMBER} UInt64") if part),
        )

    def _insert(self, read: _Read, file: BranchFile, into: str, number: int | None) -> None:
        """Add a file's rows, and prove that they are the same."""
        types = {c.name: c.type_text for c in self.columns}
        sql = {c.name: c.sql for c in read.read}
        values = {
            **{quote_identifier(n): f"CAST({sql[n]}, {quote_string(t)})" for n, t in types.items()},
            **({} if number is None else {FILE_NUMBER: str(number)}),
            ROW_NUMBER: ROW_NUMBER,
        }
        self.held.command(
            f"INSERT INTO {into} ({', '.join(values)}) SETTINGS {_INSERT}, {READ_SETTINGS}"
            f" SELECT {', '.join(values.values())} FROM {read.table}"
        )
        of_file = "" if number is None else f" WHERE {FILE_NUMBER} = {number}"
        table = f"(SELECT * FROM {into}{of_file})" if of_file else into
        here = self._digest(read.wanted, f"{table} AS {SOURCE_ALIAS}")
        there = self._digest(read.read, read.table)
        if here != there or here[0] != file.rows:
            message = (
                f"its values are no values of the types {', '.join(sorted(types.values()))}, or "
                f"not all came back ({here[0]:,} of {file.rows:,} rows)"
            )
            raise OSError(message)

    def _digest(self, columns: tuple[DigestColumn, ...], table: str) -> tuple[int, int]:
        sql = digest_sql(columns, table, group="0", tallies=False)
        rows = self.held.rows(f"{sql} SETTINGS {READ_SETTINGS}, {WIRE_SETTINGS}")
        if not rows:
            return 0, 0
        digest, _ = read_digest(columns, rows[0][1:], tallies=False)
        return digest.rows, digest.checksum


def _numbered(
    parquet: pq.ParquetFile, names: list[str], fields: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file with the numbers of its rows, also where there is no column."""
    begin, rows = 0, parquet.metadata.num_rows
    if not names:
        for at in range(0, rows, _CHUNK):
            numbers = pa.array(range(at, min(at + _CHUNK, rows)), pa.int64())
            yield pa.record_batch([numbers], schema=fields)
        return
    for batch in parquet.iter_batches(_CHUNK, columns=names):
        numbers = pa.array(range(begin, begin + batch.num_rows), pa.int64())
        begin += batch.num_rows
        columns = [batch.column(name) for name in names]
        yield pa.record_batch([*columns, numbers], schema=fields)

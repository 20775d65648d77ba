"""Loads rows of data files into a table of our own ClickHouse, in the source's types.

It loads the requested columns of one data file after the other, and the number of each row. A
digest of both sides proves that the values are equal: a value that the lake's type cannot restore
is refused, never guessed. Columns that were added to the table after a file was written are NULL
there, as for every reader, regardless of ClickHouse's defaults. Types that cannot be NULL in
ClickHouse, such as arrays, are refused if the file lacks the column, or has NULLs in it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.clickhouse.connection import ClickHouseError, whole
from catalog.clickhouse.embedded import OwnClickHouse
from catalog.clickhouse.rows.digests import READ_SETTINGS, as_read
from catalog.storages.schemes import Opens
from tableformat.committer import BranchFile
from tableformat.errors import DestinationError
from tableformat.iceberg.arrow_schema import FIELD_ID_KEY
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.read_columns import FileColumn, file_columns, has_composed_null
from tableformat.mergetree.definition_sql import evaluated_columns
from tableformat.mergetree.digest_sql import (
    DigestColumn,
    rows_sql,
    source_columns,
)
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    Dynamic,
    Json,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    QBit,
    Simple,
    SimpleAggregateFunction,
    Tuple,
    Unknown,
    Variant,
    render_type,
)
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string

__all__ = ["FILE_NUMBER", "ROW_NUMBER", "FileRows", "numbered"]

ROW_NUMBER: Final = "mergeberg_row"
"""The number of a row in its file, from 0."""
FILE_NUMBER: Final = "mergeberg_file"
"""The number of a file, assigned by the caller."""
_NEVER_NULL: Final = (
    *(Array, Map, Tuple, Nested, Json, QBit, Unknown, AggregateFunction),
    SimpleAggregateFunction,
)
_CHUNK: Final = 65_536
_INSERT: Final = "input_format_null_as_default = 0, insert_allow_materialized_columns = 1"


def numbered(*names: str) -> tuple[Column, ...]:
    """Return UInt64 columns of these names."""
    return tuple(Column(name, Simple("UInt64"), "UInt64") for name in names)


@dataclass(frozen=True, slots=True)
class _Read:
    """Columns of a file, in a file of their own; `lacking` are those that are NULL in all rows."""

    link: Path
    wanted: tuple[DigestColumn, ...]
    read: tuple[DigestColumn, ...]
    structure: str
    lacking: frozenset[str]

    @property
    def table(self) -> str:
        """The file as the text after FROM."""
        return f"file({quote_string(str(self.link))}, Parquet, {quote_string(self.structure)})"


@dataclass(frozen=True, slots=True)
class FileRows:
    """Loads columns of data files into tables.

    `schema` is the lake table's; `columns` are the requested stored columns; `what` is the action
    in messages. A file may lack the columns of `optional`, which then become Nullable in the
    `tables`. Each file goes to one of these. NULLs of the columns `replaced` do not matter, because
    no row keeps its value.
    """

    held: OwnClickHouse
    storages: Opens
    source: RememberedSource
    schema: Schema
    columns: tuple[Column, ...]
    what: str
    tables: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    _widened: set[str] = field(default_factory=set, init=False, repr=False)

    def begin(self) -> None:
        """Empty the tables, and restore their original column types."""
        for table in self.tables:
            self.held.command(f"TRUNCATE TABLE {table}")
        for column in evaluated_columns(self.columns) if self._widened else ():
            if column.name in self._widened:
                # ClickHouse needs a default for NULLs, even in an empty table.
                empty = f"DEFAULT defaultValueOfTypeName({quote_string(column.type_text)})"
                default = f"{column.default_kind} {column.default_expression}"
                self._modify(column, f"{column.type_text} {default if default.strip() else empty}")
                if not default.strip():
                    self._modify(column, "REMOVE DEFAULT")
        self._widened.clear()

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns as the tables have them now."""
        return tuple(_or_null(c) if c.name in self._widened else c for c in self.columns)

    def insert(self, file: BranchFile, into: str, number: int | None = None) -> None:
        """Add the rows of a file to a table, which has the columns and `ROW_NUMBER`.

        Args:
            file: the data file.
            into: the table, which is empty if the file has no number.
            number: of the file; the table then has `FILE_NUMBER`, too.

        Raises:
            DestinationError: the file cannot be read, or its values do not fit the source's types.
        """
        scratch = self.held.directory
        # A unique name, so that nothing cached for another file is read.
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
            lacking = frozenset(c.name for c in columns if c.written is None)
            self._check_lacking(lacking)
            columns = tuple(c for c in columns if c.written is not None)
            wanted = tuple(c for c in wanted if c.name not in lacking)
            names = [c.written for c in columns if c.written is not None]
            number = pa.field(ROW_NUMBER, pa.int64(), metadata={FIELD_ID_KEY: b"2147483000"})
            fields = pa.schema([*(schema.field(name) for name in names), number])
            with pq.ParquetWriter(link, fields) as writer:
                for batch in _numbered(parquet, names, fields):
                    self._check_nulls(wanted, columns, batch)
                    writer.write_batch(batch)
        read, structure = as_read(wanted, columns)
        of_row = DigestColumn(ROW_NUMBER, ROW_NUMBER, Simple("UInt64"), "Int64")
        return _Read(
            link,
            (*wanted, replace(of_row, sql=f"{SOURCE_ALIAS}.{ROW_NUMBER}")),
            (*read, of_row),
            ", ".join(part for part in (structure, f"{ROW_NUMBER} UInt64") if part),
            lacking,
        )

    def _check_lacking(self, lacking: frozenset[str]) -> None:
        """Refuse a file without a column that cannot be NULL here.

        Raises:
            OSError: it lacks one.
        """
        for column in self.columns:
            if column.name not in lacking:
                continue
            if column.name not in self.optional:
                why = "which identifies its rows"
            elif isinstance(column.type, _NEVER_NULL):
                why = _never_null(column)
            else:
                continue
            message = f"it lacks {column.name}, which was added to the table later, {why}"
            raise OSError(message)

    def _check_nulls(
        self,
        wanted: tuple[DigestColumn, ...],
        columns: tuple[FileColumn, ...],
        batch: pa.RecordBatch,
    ) -> None:
        """Refuse NULLs that ClickHouse would read as empty values, such as `[]`.

        Raises:
            OSError: there is one.
        """
        of = {c.name: c for c in self.columns if c.name not in self.replaced}
        for one, read, values in zip(wanted, columns, batch.columns[:-1], strict=True):
            if one.name not in of or isinstance(one.type, Nullable):
                continue
            if has_composed_null(read.type, values):
                message = f"it has NULLs in {one.name}, {_never_null(of[one.name])}"
                raise OSError(message)

    def _modify(self, column: Column, to: str) -> None:
        name = quote_identifier(column.name)
        for table in self.tables:
            self.held.command(f"ALTER TABLE {table} MODIFY COLUMN {name} {to}")

    def _insert(self, read: _Read, file: BranchFile, into: str, number: int | None) -> None:
        """Add a file's rows, and prove that the values are equal."""
        for column in self.columns:
            if column.name in read.lacking - self._widened:
                (wider,) = evaluated_columns((_or_null(column),))
                self._modify(column, wider.type_text)
                self._widened.add(column.name)
        types = {c.name: c.type_text for c in self.shown}
        sql = {c.name: c.sql for c in read.read}
        values = {
            **{
                quote_identifier(n): f"CAST({sql.get(n, 'NULL')}, {quote_string(t)})"
                for n, t in types.items()
            },
            **({} if number is None else {FILE_NUMBER: str(number)}),
            ROW_NUMBER: ROW_NUMBER,
        }
        self.held.command(
            f"INSERT INTO {into} ({', '.join(values)}) SETTINGS {_INSERT}, {READ_SETTINGS}"
            f" SELECT {', '.join(values.values())} FROM {read.table}"
        )
        of_file = "" if number is None else f" WHERE {FILE_NUMBER} = {number}"
        table = f"(SELECT * FROM {into}{of_file})" if of_file else into
        stored = self._digest(read.wanted, f"{table} AS {SOURCE_ALIAS}")
        in_file = self._digest(read.read, read.table)
        if stored != in_file or stored[0] != file.rows:
            message = (
                f"its values do not have the types {', '.join(sorted(types.values()))}, or not all "
                f"of them were returned ({stored[0]:,} of {file.rows:,} rows)"
            )
            raise OSError(message)

    def _digest(self, columns: tuple[DigestColumn, ...], table: str) -> tuple[int, int]:
        """Return the rows of a table and the checksum over them, which sees every value."""
        sql = rows_sql(columns, table, group="0")
        rows = self.held.rows(f"{sql} SETTINGS {READ_SETTINGS}, {WIRE_SETTINGS}")
        if not rows:
            return 0, 0
        _, count, checksum = rows[0]
        return whole(count), whole(checksum)


def _never_null(column: Column) -> str:
    return f"and a value of {column.type_text} is never NULL in ClickHouse"


def _or_null(column: Column) -> Column:
    """Return a column as Nullable; unchanged if its type cannot be."""
    of = column.type
    match of:
        case Nullable() | LowCardinality(Nullable()) | Variant() | Dynamic():
            return column
        case LowCardinality(inner):
            of = LowCardinality(Nullable(inner))
        case _ if isinstance(of, _NEVER_NULL):
            return column
        case _:
            of = Nullable(of)
    return replace(column, type=of, type_text=render_type(of))


def _numbered(
    parquet: pq.ParquetFile, names: list[str], fields: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a file with the numbers of its rows, even without any column."""
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

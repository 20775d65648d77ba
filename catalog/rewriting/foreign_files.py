"""Writes rows of foreign Parquet files as data files of a table, through our own Parquet writer.

- The writer gives every file the table's field ids and statistics. Each new file has a receipt,
  like a file of an export, before it can be committed (docs/spec/files.md).
- `ViewRows` takes rows that another engine evaluated, such as those of a Spark temporary view.
  The engine writes all rows once, as Parquet files without field ids, to a location that both
  sides reach. ClickHouse then decides for each row whether it belongs to the wanted partition.
- Each hand-over compares the number of rows and the bytes.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.clickhouse.rows.files import ROW_NUMBER
from catalog.clickhouse.rows.partitions import RowPartitions
from catalog.processes import ScratchDirectory
from catalog.rewriting.new_files import store_receipts
from catalog.rewriting.parquet_directory import ForeignFile, ParquetDirectory, sha256_of
from catalog.storages.schemes import Access, Storages, open_storage
from tableformat.clickhouse_codes import INCOMPATIBLE_COLUMNS
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import DestinationError, InternalError, RefusedError
from tableformat.file_names import data_file_name
from tableformat.iceberg.arrow_schema import FIELD_ID_KEY, file_schema
from tableformat.iceberg.read_columns import ForeignColumns, foreign_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.names import PartitionId
from tableformat.parquet.writer import FileFormat, WrittenFile, write_file
from tableformat.receipt import Receipt

__all__ = ["ForeignFiles", "ViewRows", "WrittenRows", "write_rows"]

_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """A `tableformat.operations.statement.Copies` of files that were checked, by their paths."""

    seen: Mapping[str, ForeignFile]
    state: LakeTableState
    storages: Storages

    def __call__(self, row: Row, files: tuple[BranchFile, ...]) -> tuple[Receipt, ...]:
        """Write files for the claim of a row; return their stored receipts.

        Raises:
            DestinationError: a storage failed, or a file has changed since the check.
        """
        with ScratchDirectory("fetch") as scratch:
            receipts = tuple(
                self._written(row, number, self.seen[file.path], scratch.path)
                for number, file in enumerate(files)
            )
        store_receipts(row, receipts, self.state.location, self.storages)
        return receipts

    def _written(self, row: Row, number: int, of: ForeignFile, scratch: Path) -> Receipt:
        began, attempt = time.monotonic(), f"0-{uuid.uuid4().hex[:12]}"
        name = data_file_name(row.key.hash, row.claim.transaction_id, number, attempt)
        place = (self.state.data_location, of.directory, name)
        path = "/".join(part for part in place if part)
        file = of.file
        local = self.storages(file.path).fetch(file.path, scratch)
        try:
            written = self._copied(of, local, path)
        except (OSError, pa.ArrowException) as error:
            message = f"Cannot copy {file.path}: {error}. Run the statement again."
            raise DestinationError(message) from error
        finally:
            if local.is_relative_to(scratch):
                local.unlink()
        return Receipt(
            key=row.key.hash,
            transaction_id=row.claim.transaction_id,
            epoch=row.claim.epoch,
            slice_number=number,
            attempt=attempt,
            ranges=(),
            file_path=path,
            file_bytes=written.bytes,
            sha256=written.sha256,
            rows=written.rows,
            rows_expected=file.rows,
            partition=of.values,
            spec_id=file.spec_id,
            # The order of the rows is unknown.
            sort_order_id=None,
            split_offsets=written.split_offsets,
            columns=written.columns,
            seconds=time.monotonic() - began,
            peak_memory=0,
        )

    def _copied(self, of: ForeignFile, local: Path, path: str) -> WrittenFile:
        """Write a file, and prove that it has all rows of the checked one.

        Raises:
            OSError: it does not, or cannot be read.
            pa.ArrowException: it cannot be read.
        """
        with pq.ParquetFile(local) as parquet:
            written = write_file(
                _batches(parquet),
                self.storages(path).create(path),
                file_schema(of.columns.schema),
                FileFormat(),
                (),
                convert=of.columns.taken,
            )
        if written.rows != of.file.rows or sha256_of(local) != of.sha256:
            message = (
                f"it was changed while it was copied ({written.rows:,} rows of {of.file.rows:,} "
                "arrived)"
            )
            raise OSError(message)
        return written


def _batches(parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    yield from parquet.iter_batches(_CHUNK)


_PIECE: Final = 1 << 20
_FILE_BYTES: Final = 256 << 20
_NUMBER: Final = pa.field(ROW_NUMBER, pa.int64(), metadata={FIELD_ID_KEY: b"2147483000"})


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """A file of evaluated rows: its location, number of rows and SHA-256."""

    location: str
    rows: int
    sha256: str


def write_rows(
    batches: Iterable[pa.RecordBatch], below: str, access: Access | None
) -> WrittenRows | None:
    """Write rows as one new file below a location; return None if there are none.

    Args:
        batches: the rows; one batch at a time is in memory.
        below: a location, in which concurrent writers use other names.
        access: the settings of its storage, None if it is on this host.

    Raises:
        DestinationError: the storage failed.
        OSError: this host's temporary directory failed.
    """
    with tempfile.NamedTemporaryFile(suffix=".parquet") as local:
        rows, writer = 0, None
        try:
            for batch in batches:
                writer = writer or pq.ParquetWriter(local.name, batch.schema)
                writer.write_batch(batch)
                rows += batch.num_rows
        finally:
            if writer is not None:
                writer.close()
        if not rows:
            return None
        path = Path(local.name)
        location, sha256 = f"{below.rstrip('/')}/{uuid.uuid4().hex}.parquet", sha256_of(path)
        sink = open_storage(location, access).create(location)
        try:
            with path.open("rb") as written:
                while piece := written.read(_PIECE):
                    sink.write(piece)
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        return WrittenRows(location, rows, sha256)


@dataclass(frozen=True, slots=True)
class ViewRows:
    """Finds the rows of a table's partition among the rows of a view.

    `what` is the failed action at the beginning of messages. `rows` computes partitions.
    """

    what: str
    storages: Storages
    state: LakeTableState
    rows: RowPartitions

    def refuse_unlike(self, written: pa.Schema) -> None:
        """Refuse rows with other columns than the table's.

        Raises:
            RefusedError: the columns differ; the message has all differences (code 122). Or the
                table lacks a column that its partition key reads.
        """
        self._columns(written)
        self.rows.check(self.state)

    def of_partition(
        self, files: tuple[WrittenRows, ...], wanted: PartitionId, into: Path
    ) -> tuple[ForeignFile, ...]:
        """Write the rows of a partition as separate files, and check these.

        Args:
            files: all rows of the view.
            wanted: the partition.
            into: an empty local directory for the new files.

        Raises:
            RefusedError: a value does not fit into the table, or is NULL in a required column.
            DestinationError: a file cannot be read, or lacks rows that were written.
        """
        pieces = _Pieces(into)
        with ScratchDirectory("divide") as scratch, closing(pieces):
            for file in files:
                local = self.storages(file.location).fetch(file.location, scratch.path)
                try:
                    for table in self._divided(file, local, wanted, scratch.path):
                        pieces.add(table)
                except pa.ArrowException as error:
                    raise self._odd(error) from error
                except OSError as error:
                    message = f"{self.what}: {error}. Run the statement again."
                    raise DestinationError(message) from error
                finally:
                    if local.is_relative_to(scratch.path):
                        local.unlink()
        if not pieces.rows:
            return ()
        looked = ParquetDirectory(self.what, str(into), self.storages, self.state, self.rows)
        found = looked.files(wanted)
        if (rows := sum(one.file.rows for one in found)) != pieces.rows:
            message = f"{self.what}: {rows:,} of {pieces.rows:,} rows are in {wanted}."
            raise InternalError(f"{message} This is a bug, please report it.")
        return found

    def _columns(self, written: pa.Schema) -> ForeignColumns:
        of = foreign_columns(written, table_of(self.state).schema())
        if isinstance(of, ForeignColumns):
            return of
        message = f"{self.what}: Tables have different structure: {', '.join(of)}."
        raise RefusedError(message, code=INCOMPATIBLE_COLUMNS)

    def _divided(
        self, file: WrittenRows, local: Path, wanted: PartitionId, scratch: Path
    ) -> Iterator[pa.Table]:
        """Yield the rows of the partition in a file, in the form of the table's files.

        Raises:
            OSError: this host's disk fails.
            pa.ArrowException: a value does not fit.
            RefusedError: ClickHouse cannot compute the partition of a row.
            DestinationError: the file differs from what was written.
        """
        with pq.ParquetFile(local) as parquet:
            if parquet.metadata.num_rows != file.rows or sha256_of(local) != file.sha256:
                message = (
                    f"{self.what}: {file.location} is not what was written there "
                    f"({parquet.metadata.num_rows:,} rows of {file.rows:,}). Run the statement "
                    "again."
                )
                raise DestinationError(message)
            of = self._columns(parquet.schema_arrow)
            for batch in parquet.iter_batches(_CHUNK):
                table = pa.Table.from_batches([batch])
                found = self._in_partition(table, of, wanted, scratch)
                if found.num_rows:
                    yield of.taken(found)

    def _in_partition(
        self, table: pa.Table, of: ForeignColumns, wanted: PartitionId, scratch: Path
    ) -> pa.Table:
        if not self.rows.columns:
            return table if wanted == PartitionId("all") else table.slice(0, 0)
        names = [field.name for field in of.schema.fields]
        places = tuple(of.places[names.index(name)] for name in self.rows.columns)
        key = of.some(table.select(list(places)), places)
        key = key.append_column(_NUMBER, pa.array(range(table.num_rows), pa.int64()))
        path = scratch / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(key, path)
        try:
            numbers = self.rows.numbers_in(path, wanted, self.state)
        except OSError as error:
            raise self._odd(error) from error
        finally:
            path.unlink()
        return table.take(numbers)

    def _odd(self, error: Exception) -> RefusedError:
        message = (
            f"{self.what}: the view has rows that the table cannot hold: "
            f"{str(error).rstrip('.')}. Change the view so that it has none."
        )
        return RefusedError(message)


class _Pieces:
    """Writes rows into files of a directory, each about as large as a data file at most."""

    def __init__(self, into: Path) -> None:
        self.rows = 0
        self._into, self._number = into, 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)
        self.rows += table.num_rows
        if self._path.stat().st_size >= _FILE_BYTES:
            self.close()
            self._number += 1

    @property
    def _path(self) -> Path:
        return self._into / f"rows-{self._number}.parquet"

    def close(self) -> None:
        """Finish the current file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

"""Writes rows of foreign Parquet files as data files of a table, through our own Parquet writer.

- `ParquetDirectory` finds the files of a partition in a directory of Parquet files of other
  writers. Everything is checked before anything is copied: each file is readable, its columns match
  the table's, no value is NULL or too large for its column. ClickHouse computes the partition of
  the rows.
- The writer gives every file the table's field ids and statistics. Each new file has a receipt,
  like a file of an export, before it can be committed (docs/spec/files.md).
- `ViewRows` takes rows that another engine evaluated, such as those of a Spark temporary view.
  The engine writes all rows once, as Parquet files without field ids, to a location that both
  sides reach. ClickHouse then decides for each row whether it belongs to the wanted partition.
- Each hand-over compares the number of rows and the bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
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
from catalog.storages.schemes import Access, Storages, is_local, open_storage
from tableformat.clickhouse_codes import INCOMPATIBLE_COLUMNS, PARTITION_DOESNT_EXIST
from tableformat.committer import BranchFile, LakeTableState
from tableformat.disks import Disks
from tableformat.errors import (
    DestinationError,
    InternalError,
    MissingError,
    NotFoundError,
    RefusedError,
    TableFormatError,
)
from tableformat.file_names import data_file_name
from tableformat.iceberg.arrow_schema import FIELD_ID_KEY, file_schema
from tableformat.iceberg.file_partition import OnePartition, SeveralPartitionsError
from tableformat.iceberg.read_columns import ForeignColumns, foreign_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.names import PartitionId
from tableformat.parquet.writer import FileFormat, WrittenFile, file_format, write_file
from tableformat.receipt import Receipt

__all__ = [
    "ForeignFile",
    "ForeignFiles",
    "ParquetDirectory",
    "ViewRows",
    "WrittenRows",
    "sha256_of",
    "write_rows",
]

_SUFFIX: Final = ".parquet"
_HIDDEN: Final = (".", "_")
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A Parquet file whose rows all belong to one partition of a table.

    `columns` maps the table's columns to the file's. `values` and `directory` are those of the
    Iceberg partition; `sha256` is that of the checked bytes.
    """

    file: BranchFile
    columns: ForeignColumns
    values: tuple[str | None, ...]
    directory: str
    sha256: str

    @property
    def stem(self) -> str:
        """The file's name without its extension."""
        return Path(self.file.path).name[: -len(_SUFFIX)]


@dataclass(frozen=True, slots=True)
class ParquetDirectory:
    """The Parquet files below a directory, at any depth, or one file.

    `what` is the failed action at the beginning of messages.
    """

    what: str
    location: str
    storages: Storages
    state: LakeTableState
    rows: RowPartitions

    def files(self, partition_id: PartitionId) -> tuple[ForeignFile, ...]:
        """Return the files with the rows of a partition.

        Raises:
            NotFoundError: there is no Parquet file (code 257).
            RefusedError: a file has other columns (code 122), a value that the table does not
                accept, or rows of this partition and of another one; or it is no Parquet file. Or
                the table lacks a column that its partition key reads.
            DestinationError: the storage failed.
        """
        self.rows.check(self.state)
        with ScratchDirectory("fetch") as scratch:
            found = self._listed(scratch.path)
            columns = self._columns(found, scratch.path)
            seen = (
                self._seen(path, size, of, partition_id, scratch.path)
                for (path, size), of in zip(found, columns, strict=True)
            )
            return tuple(one for one in seen if one is not None)

    def _listed(self, scratch: Path) -> tuple[tuple[str, int], ...]:
        storage, found = self.storages(self.location), []
        if is_local(self.location) and storage.fetch(self.location, scratch).is_file():
            found = [(self.location, storage.size(self.location))]
        else:
            listed = storage.list(self.location.rstrip("/"))
            found = [(x.location, x.size) for x in listed if not self._is_hidden(x.location)]
            if is_local(self.location):
                self._refuse_unlisted(storage.fetch(self.location, scratch))
        if not found and not is_local(self.location):
            with contextlib.suppress(MissingError):
                found = [(self.location, storage.size(self.location))]
        if not found:
            message = f"{self.what}: there is no Parquet file at {self.location}."
            raise NotFoundError(message, code=PARTITION_DOESNT_EXIST)
        if odd := next((path for path, _ in found if not path.lower().endswith(_SUFFIX)), None):
            message = (
                f"{self.what}: {odd} does not have the name of a Parquet file (*{_SUFFIX}), and "
                "only names that begin with a dot or an underscore are ignored. Move it elsewhere, "
                "or name a directory with Parquet files only."
            )
            raise RefusedError(message)
        return tuple(found)

    def _refuse_unlisted(self, directory: Path) -> None:
        """Refuse entries of a local directory that a list of files leaves out.

        Raises:
            RefusedError: there is a link to a directory, a broken link, or a device.
        """
        for above, directories, names in os.walk(directory):
            links = (path for d in directories if (path := Path(above, d)).is_symlink())
            others = (path for n in names if not (path := Path(above, n)).is_file())
            for odd in (*links, *others):
                if self._is_hidden(str(odd.relative_to(directory))):
                    continue
                message = (
                    f"{self.what}: {odd} is not a file: it may be a link to a directory, or to a "
                    "missing file. Put the files themselves there, or remove it."
                )
                raise RefusedError(message)

    def _is_hidden(self, path: str) -> bool:
        below = path.removeprefix(self.location.rstrip("/"))
        return any(part.startswith(_HIDDEN) for part in below.split("/"))

    def _columns(
        self, found: tuple[tuple[str, int], ...], scratch: Path
    ) -> tuple[ForeignColumns, ...]:
        """Return the positions of the table's columns in each file.

        Raises:
            RefusedError: files have other columns; the message has all differences.
        """
        columns, odd = [], []
        schema = table_of(self.state).schema()
        for path, _ in found:
            with _local(self.storages, path, scratch) as local:
                of = foreign_columns(self._schema(path, local), schema)
            if isinstance(of, ForeignColumns):
                columns.append(of)
            else:
                odd.append(f"{path}: {', '.join(of)}")
        if odd:
            more = f"; and {len(odd) - _SHOWN:,} more files" if len(odd) > _SHOWN else ""
            message = f"{self.what}: Tables have different structure: {'; '.join(odd[:_SHOWN])}"
            raise RefusedError(f"{message}{more}.", code=INCOMPATIBLE_COLUMNS)
        return tuple(columns)

    def _schema(self, path: str, local: Path) -> pa.Schema:
        try:
            return pq.read_schema(local)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: str, error: Exception) -> RefusedError:
        message = (
            f"{self.what}: {path} is not a readable Parquet file ({error}). Copy it there again, "
            "or remove it."
        )
        return RefusedError(message)

    def _seen(
        self, path: str, size: int, of: ForeignColumns, wanted: PartitionId, scratch: Path
    ) -> ForeignFile | None:
        """Check the rows of a file; return None if none belongs to the partition."""
        with _local(self.storages, path, scratch) as local:
            sha256 = sha256_of(local)
            try:
                with pq.ParquetFile(local) as parquet:
                    check = _RowCheck(parquet, of, self.state, scratch / "key.parquet")
                    ids = check.ids(self.rows)
                    if wanted not in ids:
                        return None
                    self._refuse_mixed(path, ids, wanted)
                    one = check.one_partition()
                    file = BranchFile(
                        path, parquet.metadata.num_rows, size, self.state.layout.spec_id
                    )
            except SeveralPartitionsError as error:
                message = f"{self.what}: {path} cannot be a data file of the table: {error}."
                raise RefusedError(f"{message} Divide it by partition.") from error
            except TableFormatError:
                raise
            except (OSError, pa.ArrowException) as error:
                message = (
                    f"{self.what}: {path} has rows that the table cannot hold: "
                    f"{str(error).rstrip('.')}. Rewrite the file without them."
                )
                raise RefusedError(message) from error
            if sha256_of(local) != sha256:
                message = f"{self.what}: {path} changes while it is read. Wait until it is written."
                raise RefusedError(message)
        return ForeignFile(file, of, one.texts(), one.directory(), sha256)

    def _refuse_mixed(self, path: str, ids: frozenset[PartitionId], wanted: PartitionId) -> None:
        if len(ids) > 1:
            others = ", ".join(sorted(str(one) for one in ids if one != wanted))
            message = (
                f"{self.what}: {path} holds rows of partition {wanted} and of {others}. Divide it "
                "by partition, and run it again."
            )
            raise RefusedError(message)


@dataclass(frozen=True, slots=True)
class _RowCheck:
    """Checks whether the table accepts a file's rows, and computes their partitions."""

    parquet: pq.ParquetFile
    of: ForeignColumns
    state: LakeTableState
    scratch: Path

    def ids(self, rows: RowPartitions) -> frozenset[PartitionId]:
        """Return the partitions of the file's rows.

        Raises:
            OSError: it cannot be read.
            pa.ArrowException: a value does not fit.
        """
        if not self.parquet.metadata.num_rows:
            return frozenset()
        names = [field.name for field in self.of.schema.fields]
        key = tuple(self.of.places[names.index(name)] for name in rows.columns)
        if not key:
            return rows.ids_in(self.scratch, self.state)
        writer: pq.ParquetWriter | None = None
        try:
            for table in self._read(key):
                if writer is None:
                    writer = pq.ParquetWriter(self.scratch, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
        return rows.ids_in(self.scratch, self.state)

    def one_partition(self) -> OnePartition:
        """Check every value that may not fit; return the Iceberg partition of the rows.

        Raises:
            SeveralPartitionsError: the rows belong to several partitions, or to none that Iceberg
                has.
            OSError: the file cannot be read.
            pa.ArrowException: a value does not fit.
        """
        table = table_of(self.state)
        one = OnePartition(table.spec(), table.schema())
        spec = tuple(self.of.places[i] for i in one.columns)
        others = tuple(sorted(self.of.checked.difference(spec)))
        for found in self._read((*spec, *others)):
            one.add(found.select(range(len(spec))))
        return one

    def _read(self, places: tuple[int, ...]) -> Iterator[pa.Table]:
        """Yield columns in the table's types, by their positions in the file, in this order."""
        if not places:
            return
        written = self.parquet.schema_arrow.names
        wanted = [written[place] for place in places]
        for batch in self.parquet.iter_batches(_CHUNK, columns=wanted):
            yield self.of.some(pa.Table.from_batches([batch]).select(wanted), places)


class _Local:
    """A temporary local file with the bytes of a location."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self._path, self._scratch = path, scratch

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_: object) -> None:
        if self._path.is_relative_to(self._scratch):
            self._path.unlink()


def _local(storages: Storages, location: str, scratch: Path) -> _Local:
    return _Local(storages(location).fetch(location, scratch), scratch)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        path = Disks.of(self.state).new_path(of.directory, name)
        file = of.file
        local = self.storages(file.path).fetch(file.path, scratch)
        try:
            written = self._copied(of, local, path)
        except (OSError, pa.ArrowException) as error:
            message = f"Cannot copy {file.path}: {error}. Run it again."
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
                file_format(FileFormat(), self.state.properties, self.state.location),
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
                    message = f"{self.what}: {error}. Run it again."
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
                    f"({parquet.metadata.num_rows:,} rows of {file.rows:,}). Run "
                    "it again."
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

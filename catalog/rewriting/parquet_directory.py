"""Finds the files of a partition in a directory of Parquet files of other writers.

Everything is checked before anything is copied: each file is readable, its columns match the
table's, no value is NULL or too large for its column. ClickHouse computes the partition of the
rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.clickhouse.rows.partitions import RowPartitions
from catalog.processes import ScratchDirectory
from catalog.storages.schemes import Storages, is_local
from tableformat.clickhouse_codes import INCOMPATIBLE_COLUMNS, PARTITION_DOESNT_EXIST
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import MissingError, NotFoundError, RefusedError, TableFormatError
from tableformat.iceberg.file_partition import OnePartition, SeveralPartitionsError
from tableformat.iceberg.read_columns import ForeignColumns, foreign_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.names import PartitionId

__all__ = ["ForeignFile", "ParquetDirectory", "sha256_of"]

_CHUNK: Final = 65_536
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
                f"{self.what}: {odd} has not the name of a Parquet file (*{_SUFFIX}), and nothing "
                "of a directory is passed over but names that begin with a point or an underscore. "
                "Put it elsewhere, or name the directory that holds Parquet files alone."
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
                    f"{self.what}: {odd} is no file: it may be a link to a directory, or to what "
                    "is not there. Put the files themselves there, or take it away."
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
            f"{self.what}: {path} is no Parquet file that can be read ({error}). Copy it there "
            "again, or take it away."
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
                    f"{str(error).rstrip('.')}. Write the file anew without them."
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
                "by partition, and run the statement again."
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

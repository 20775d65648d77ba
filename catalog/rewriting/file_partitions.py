"""Computes the Iceberg partition of data files, in another table or spec, from their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.processes import ScratchDirectory
from catalog.storages.schemes import Storages
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import DestinationError
from tableformat.iceberg.arrow_schema import FIELD_ID_KEY
from tableformat.iceberg.file_partition import (
    FilePartition,
    file_partition,
    partition_columns,
    partition_texts,
)

__all__ = ["EarlierFiles", "FilePartitions", "OwnPartitions"]


_REWRITE: Final = (
    "It is of an earlier partition spec: let Iceberg rewrite it first, CALL "
    "<catalog>.system.rewrite_data_files(table => '…', options => map('rewrite-all', 'true'))"
)


@dataclass(frozen=True, slots=True)
class FilePartitions:
    """Finds the partition in the table of `destination` of files of the snapshot `source`.

    `way` is the remedy for a file whose rows belong to several partitions.
    """

    source: LakeTableState
    storages: Storages
    destination: LakeTableState
    way: str = "INSERT SELECT copies them"

    def __call__(self, file: BranchFile) -> FilePartition:
        """Return the partition of a file in the other table.

        Raises:
            RefusedError: its rows belong to several partitions (code 36).
            DestinationError: it cannot be read.
        """
        columns = partition_columns(self.source, self.destination)
        if not columns.fields:
            return FilePartition((), "")
        with ScratchDirectory("divide") as scratch:
            local = self.storages(file.path).fetch(file.path, scratch.path)
            try:
                with pq.ParquetFile(local) as parquet:
                    rows = _rows(parquet, columns)
                    return file_partition(file.path, rows, columns, self.destination, way=self.way)
            except (OSError, pa.ArrowException) as error:
                message = f"Cannot read {file.path}: {error}. Run it again."
                raise DestinationError(message) from error


@dataclass(frozen=True, slots=True)
class EarlierFiles:
    """Finds the partition in another table of files of `source` with an earlier partition spec.

    A file of the current spec has the same partition there as in `source`.
    """

    source: LakeTableState
    storages: Storages
    destination: LakeTableState

    def __call__(self, file: BranchFile) -> FilePartition | None:
        """Return the partition of a file in the other table, None if it is that in `source`.

        Raises:
            RefusedError: its rows belong to several partitions (code 36).
            DestinationError: it cannot be read.
        """
        if file.spec_id == self.source.layout.spec_id:
            return None
        return FilePartitions(self.source, self.storages, self.destination, _REWRITE)(file)


@dataclass(frozen=True, slots=True)
class OwnPartitions:
    """Finds the partitions of files by the current partition spec of their table."""

    storages: Storages
    _found: dict[tuple[str, int], tuple[str | None, ...]] = field(default_factory=dict, init=False)

    def __call__(self, file: BranchFile, state: LakeTableState) -> tuple[str | None, ...]:
        """Return the partition values of a file; a file of an earlier spec is read once for them.

        Raises:
            RefusedError: its rows belong to several partitions (code 36).
            DestinationError: it cannot be read.
        """
        if file.spec_id == state.layout.spec_id:
            return partition_texts(file.partition, state)
        key = file.path, state.layout.spec_id
        if key not in self._found:
            self._found[key] = FilePartitions(state, self.storages, state, _REWRITE)(file).values
        return self._found[key]

    def of_earlier_specs(
        self, files: Iterable[BranchFile], state: LakeTableState
    ) -> dict[str, tuple[str | None, ...]]:
        """Return the partition values, by path, of the files with an earlier spec.

        Raises:
            RefusedError: the rows of a file belong to several partitions (code 36).
            DestinationError: a file cannot be read.
        """
        return {f.path: self(f, state) for f in files if f.spec_id != state.layout.spec_id}


def _rows(parquet: pq.ParquetFile, columns: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with those of the columns, found by field id, that it has.

    Columns that were added to the table after the file was written are NULL in it.

    Raises:
        OSError: the file has no field ids.
    """
    names_by_id = {_id_of(field): field.name for field in parquet.schema_arrow}
    names = [
        names_by_id[field.field_id] for field in columns.fields if field.field_id in names_by_id
    ]
    if not any(names_by_id):
        message = "it has no field ids, by which its columns are known"
        raise OSError(message)
    # Without a column, the number of rows would be lost.
    yield from parquet.iter_batches(columns=names or [next(n for i, n in names_by_id.items() if i)])


def _id_of(field: pa.Field) -> int:
    return int((field.metadata or {}).get(FIELD_ID_KEY, 0))

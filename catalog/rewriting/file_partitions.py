"""In which Iceberg partition of another table data files lie: their own columns tell it."""

from __future__ import annotations

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
from tableformat.iceberg.file_partition import FilePartition, file_partition, partition_columns

__all__ = ["FilePartitions", "OwnPartitions"]


_REWRITE: Final = (
    "It is of an earlier partition spec: let Iceberg write it anew first, CALL <catalog>.system."
    "rewrite_data_files(table => '…', options => map('rewrite-all', 'true'))"
)


@dataclass(frozen=True, slots=True)
class FilePartitions:
    """Looks at files of the snapshot `source` for the table of `destination`.

    `way` is what is to be done with a file that lies in several partitions.
    """

    source: LakeTableState
    storages: Storages
    destination: LakeTableState
    way: str = "INSERT SELECT brings them"

    def __call__(self, file: BranchFile) -> FilePartition:
        """Return where a file lies in the other table.

        Raises:
            RefusedError: its rows lie in several partitions (code 36).
            DestinationError: it cannot be read.
        """
        columns = partition_columns(self.source, self.destination)
        if not columns.fields:
            return FilePartition((), "")
        with ScratchDirectory("divide") as scratch:
            local = self.storages(file.path).fetch(file.path, scratch.path)
            try:
                with pq.ParquetFile(local) as parquet:
                    rows = parquet.iter_batches(columns=_names(parquet, columns))
                    return file_partition(file.path, rows, columns, self.destination, way=self.way)
            except (OSError, pa.ArrowException) as error:
                message = f"Cannot read {file.path}: {error}. Run the statement again."
                raise DestinationError(message) from error


@dataclass(frozen=True, slots=True)
class OwnPartitions:
    """Tells where files of earlier partition specs lie by the one that their table has now."""

    storages: Storages
    _found: dict[tuple[str, int], tuple[str | None, ...]] = field(default_factory=dict, init=False)

    def __call__(self, file: BranchFile, state: LakeTableState) -> tuple[str | None, ...]:
        """Return the partition values of a file; the file is read once.

        Raises:
            RefusedError: its rows lie in several partitions (code 36).
            DestinationError: it cannot be read.
        """
        key = file.path, state.layout.spec_id
        if key not in self._found:
            self._found[key] = FilePartitions(state, self.storages, state, _REWRITE)(file).values
        return self._found[key]


def _names(parquet: pq.ParquetFile, columns: Schema) -> list[str]:
    """Return the names of columns in a file, which are found by field id.

    Raises:
        OSError: it lacks one.
    """
    there = {_id_of(field): field.name for field in parquet.schema_arrow}
    if lacking := [field.name for field in columns.fields if field.field_id not in there]:
        message = f"it lacks {', '.join(lacking)}, by which the other table is divided"
        raise OSError(message)
    return [there[field.field_id] for field in columns.fields]


def _id_of(field: pa.Field) -> int:
    return int((field.metadata or {}).get(FIELD_ID_KEY, 0))

"""In which Iceberg partition of another table data files lie: their own columns tell it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Storages
from tableformat.branches import BranchFile
from tableformat.committer import LakeTableState
from tableformat.errors import DestinationError
from tableformat.iceberg.field_ids import FIELD_ID_KEY
from tableformat.iceberg.file_partition import FilePartition, divided_columns, file_partition

__all__ = ["FilePartitions"]


@dataclass(frozen=True, slots=True)
class FilePartitions:
    """Looks at files of the snapshot `source` for the table of `destination`."""

    source: LakeTableState
    storages: Storages
    destination: LakeTableState

    def __call__(self, file: BranchFile) -> FilePartition:
        """Return where a file lies in the other table.

        Raises:
            RefusedError: its rows lie in several partitions (code 36).
            DestinationError: it cannot be read.
        """
        columns = divided_columns(self.source, self.destination)
        if not columns.fields:
            return FilePartition((), "")
        with ScratchDirectory("divide") as scratch:
            local = self.storages(file.path).fetch(file.path, scratch.path)
            try:
                with pq.ParquetFile(local) as parquet:
                    rows = parquet.iter_batches(columns=_names(parquet, columns))
                    return file_partition(file.path, rows, columns, self.destination)
            except (OSError, pa.ArrowException) as error:
                message = f"Cannot read {file.path}: {error}. Run the statement again."
                raise DestinationError(message) from error


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

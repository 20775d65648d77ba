"""The partition of a data file in a table whose spec it was not written for, told by its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, NestedField

from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.committer import LakeTableState
from tableformat.errors import RefusedError
from tableformat.hive_names import partition_directory
from tableformat.iceberg.arrow_schema import columns_of_file
from tableformat.iceberg.one_partition import internal_values
from tableformat.iceberg.partition_proof import short_name
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.values import Value, to_text

__all__ = ["FilePartition", "divided_columns", "file_partition"]


@dataclass(frozen=True, slots=True)
class FilePartition:
    """Where a file lies: its partition values, as in `Receipt`, and the directory for people."""

    values: tuple[str | None, ...]
    directory: str


def divided_columns(source: LakeTableState, destination: LakeTableState) -> Schema:
    """Return the columns of `source` by which `destination` is divided: names tell which they are.

    Raises:
        RefusedError: one is within another column.
    """
    there, here = table_of(source), table_of(destination)
    return Schema(*dict.fromkeys(_column(f, here, there.schema()) for f in here.spec().fields))


def file_partition(
    path: str,
    batches: Iterable[pa.RecordBatch],
    columns: Schema,
    destination: LakeTableState,
    *,
    way: str = "INSERT SELECT brings them",
) -> FilePartition:
    """Return in which one partition all rows of a file lie.

    Args:
        path: of the file.
        batches: its rows, with the columns at least.
        columns: as `divided_columns` returned them.
        destination: the table that gets the file.
        way: what is to be done where they lie in several.

    Raises:
        RefusedError: they lie in several, or the file has no rows (code 36).
        UnsupportedError: a value has no text, or another engine wrote a column in an odd form.
    """
    table = table_of(destination)
    fields = [_Values(f, _column(f, table, columns), table) for f in table.spec().fields]
    for batch in batches:
        held = columns_of_file(pa.Table.from_batches([batch]), columns)
        for field in fields:
            field.see(held.column(field.of.name))
    for field in fields:
        if len(field.found) != 1:
            told = ", ".join(sorted(map(field.shown, field.found)))
            message = (
                f"Cannot put {path} into one partition of {'.'.join(table.name())}: its rows have "
                f"these values of {field.name}: {told or 'none'}. {way}."
            )
            raise RefusedError(message, code=BAD_ARGUMENTS)
    values = [(field, next(iter(field.found))) for field in fields]
    shown = [None if value is None else short_name(field.shown(value)) for field, value in values]
    return FilePartition(
        tuple(to_text(value, field.result) for field, value in values),
        partition_directory([field.name for field in fields], shown),
    )


class _Values:
    """The values of one partition field that rows have."""

    def __init__(self, field: PartitionField, of: NestedField, table: Table) -> None:
        """Start with none."""
        self.of, self.name, self.found = of, field.name, set[Value | None]()
        self._field, self._type = field, of.field_type
        self._transform = field.transform.transform(of.field_type)
        types = table.spec().partition_type(table.schema()).fields
        self.result: IcebergType = next(t.field_type for t in types if t.field_id == field.field_id)

    def see(self, column: pa.ChunkedArray) -> None:
        """Look at rows."""
        if isinstance(self._field.transform, VoidTransform):
            self.found.add(None)
            return
        if column.null_count:
            self.found.add(None)
        known = internal_values(column.drop_null())
        if self._field.transform.preserves_order:
            # Where the first and the last have one value, all between them have it.
            ends = pc.min_max(known)
            known = pa.chunked_array([pa.array([ends["min"], ends["max"]], known.type)])
        self.found |= {self._transform(v) for v in known.unique().to_pylist() if v is not None}

    def shown(self, value: Value | None) -> str:
        """Return a value as people read it."""
        return str(self._field.transform.to_human_string(self._type, value))


def _column(field: PartitionField, table: Table, columns: Schema) -> NestedField:
    """Return the column of a partition field of a table, found by name in other columns.

    Raises:
        RefusedError: it is within another column.
    """
    name = table.schema().find_column_name(field.source_id) or ""
    found = next((one for one in columns.fields if one.name == name), None)
    if found is None:
        message = (
            f"Cannot put files into partitions of {'.'.join(table.name())}: its partition field "
            f"{field.name} is of {name or 'no column'}, which is no column of its own."
        )
        raise RefusedError(message, code=BAD_ARGUMENTS)
    return found

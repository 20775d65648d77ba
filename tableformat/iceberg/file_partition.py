"""Computes the partition of a data file from its rows, under a spec the file was not written for.

`OnePartition` finds the one Iceberg partition that all rows of a file belong to. It is for rows
that no export has proved (`tableformat/iceberg/partition_proof.py`). It applies PyIceberg's own
transforms. Every transform except bucket keeps the order of its column, so the least and the
greatest value are enough for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, VoidTransform
from pyiceberg.types import IcebergType, NestedField

from tableformat.clickhouse_codes import BAD_ARGUMENTS, NOT_IMPLEMENTED
from tableformat.committer import LakeTableState
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.file_names import escape, partition_directory
from tableformat.iceberg.arrow_schema import columns_of_file
from tableformat.iceberg.partition_proof import short_name
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.values import Value, to_text

__all__ = [
    "FilePartition",
    "OnePartition",
    "SeveralPartitionsError",
    "file_partition",
    "internal_values",
    "partition_columns",
    "partition_texts",
]

# File systems take 255 bytes per name.
_LONGEST_NAME: Final = 200


class SeveralPartitionsError(ValueError):
    """The rows belong to several Iceberg partitions, or to none that Iceberg can name."""


def internal_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return Iceberg's internal values: days and microseconds since 1970, a UUID's bytes."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    # Arrow has no min_max and no unique for extension types.
    return column.cast(pa.binary(16)) if column.type == pa.uuid() else column


@dataclass(slots=True)
class OnePartition:
    """Collects the values of a spec's fields, batch by batch."""

    spec: PartitionSpec
    schema: Schema
    _seen: dict[int, set[Value | None]] = dataclasses.field(default_factory=dict)

    @property
    def columns(self) -> tuple[int, ...]:
        """The indexes of the table's columns that the spec uses.

        Raises:
            UnsupportedError: a field uses a nested column.
        """
        ids = [one.field_id for one in self.schema.fields]
        if odd := next((f.name for f in self.spec.fields if f.source_id not in ids), None):
            message = (
                f"Cannot tell the partition of rows: the partition field {odd} is made of what is "
                "inside of a column. Write the rows with an engine that knows such fields."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
        return tuple(sorted({ids.index(one.source_id) for one in self.spec.fields}))

    def add(self, table: pa.Table) -> None:
        """Add rows in the form of the table's data files; only the columns of `columns` are needed.

        Raises:
            SeveralPartitionsError: the rows belong to several partitions, or to none.
        """
        for one in self.spec.fields:
            of = self.schema.find_field(one.source_id)
            numbers = [f.field_id for f in self.schema.fields]
            at = self.columns.index(numbers.index(one.source_id))
            found = self._values(one, table.column(at), of.field_type)
            seen = self._seen.setdefault(one.field_id, set())
            seen |= found
            if len(seen) > 1:
                several = " and ".join(sorted(repr(value) for value in seen)[:2])
                message = f"its rows have several values of {one.name}, among them {several}"
                raise SeveralPartitionsError(message)

    def texts(self) -> tuple[str | None, ...]:
        """Return the values as receipts carry them.

        Raises:
            UnsupportedError: a date is outside the years 1 to 9999.
        """
        types = [f.field_type for f in self.spec.partition_type(self.schema).fields]
        return tuple(
            to_text(value, of) for value, of in zip(self._single_values(), types, strict=True)
        )

    def directory(self) -> str:
        """Return the partition's directory below the data location, '' for none.

        The directory is only for people: Iceberg reads the values from its metadata.
        """
        pairs = zip(self.spec.fields, self._single_values(), strict=True)
        try:
            shown = [None if value is None else self._shown(one, value) for one, value in pairs]
        except OverflowError:
            # A time beyond Python's calendar.
            return ""
        if any(len(escape(text or "").encode()) > _LONGEST_NAME for text in shown):
            return ""
        return partition_directory([one.name for one in self.spec.fields], shown)

    def _shown(self, one: PartitionField, value: Value) -> str:
        of = self.schema.find_field(one.source_id).field_type
        return str(one.transform.to_human_string(of, value))

    def _single_values(self) -> list[Value | None]:
        return [next(iter(self._seen[one.field_id])) for one in self.spec.fields]

    def _values(self, one: PartitionField, column: pa.ChunkedArray, of: Any) -> set[Value | None]:
        inner = internal_values(column)
        found: set[Value | None] = {None} if column.null_count else set()
        if isinstance(one.transform, BucketTransform):
            ends = pc.unique(inner).drop_null().to_pylist()
        else:
            ends = [v for v in pc.min_max(inner).as_py().values() if v is not None]
        transform = one.transform.transform(of)
        try:
            return found | {transform(value) for value in ends}
        except (OverflowError, ValueError) as error:
            message = f"Iceberg has no {one.name} for a value of it: {error}"
            raise SeveralPartitionsError(message) from error


@dataclass(frozen=True, slots=True)
class FilePartition:
    """The partition of a file: its values, as in `Receipt`, and its directory."""

    values: tuple[str | None, ...]
    directory: str


def partition_texts(values: tuple[object, ...], state: LakeTableState) -> tuple[str | None, ...]:
    """Return partition values by the current spec of a table as receipts carry them.

    Raises:
        UnsupportedError: a date is outside the years 1 to 9999.
    """
    table = table_of(state)
    fields = table.spec().partition_type(table.schema()).fields
    pairs = zip(cast("tuple[Value | None, ...]", values), fields, strict=True)
    return tuple(to_text(value, field.field_type) for value, field in pairs)


def partition_columns(source: LakeTableState, destination: LakeTableState) -> Schema:
    """Return the columns of `source` that `destination` is partitioned by, matched by name.

    Raises:
        RefusedError: one of them is nested.
    """
    there, here = table_of(source), table_of(destination)
    return Schema(*dict.fromkeys(_column(f, here, there.schema()) for f in here.spec().fields))


def file_partition(
    path: str,
    batches: Iterable[pa.RecordBatch],
    columns: Schema,
    destination: LakeTableState,
    *,
    way: str = "INSERT SELECT copies them",
) -> FilePartition:
    """Return the one partition that all rows of a file belong to.

    Args:
        path: of the file.
        batches: its rows, with at least these columns.
        columns: as `partition_columns` returned them.
        destination: the table that gets the file.
        way: the advice for the user if there are several.

    Raises:
        RefusedError: the rows belong to several partitions, or the file has no rows (code 36).
        UnsupportedError: a value has no text, or another engine wrote a column in another form.
    """
    table = table_of(destination)
    fields = [_Values(f, _column(f, table, columns), table) for f in table.spec().fields]
    for batch in batches:
        held = columns_of_file(pa.Table.from_batches([batch]), columns)
        for field in fields:
            field.add(held.column(field.of.name))
    for field in fields:
        if len(field.found) != 1:
            listed = ", ".join(sorted(map(field.shown, field.found)))
            message = (
                f"Cannot put {path} into one partition of {'.'.join(table.name())}: its rows have "
                f"these values of {field.name}: {listed or 'none'}. {way}."
            )
            raise RefusedError(message, code=BAD_ARGUMENTS)
    values = [(field, next(iter(field.found))) for field in fields]
    shown = [None if value is None else short_name(field.shown(value)) for field, value in values]
    return FilePartition(
        tuple(to_text(value, field.result) for field, value in values),
        partition_directory([field.name for field in fields], shown),
    )


class _Values:
    """The values of one partition field in a file's rows."""

    def __init__(self, field: PartitionField, of: NestedField, table: Table) -> None:
        """Start empty."""
        self.of, self.name, self.found = of, field.name, set[Value | None]()
        self._field, self._type = field, of.field_type
        self._transform = field.transform.transform(of.field_type)
        types = table.spec().partition_type(table.schema()).fields
        self.result: IcebergType = next(t.field_type for t in types if t.field_id == field.field_id)

    def add(self, column: pa.ChunkedArray) -> None:
        """Add rows."""
        if isinstance(self._field.transform, VoidTransform):
            self.found.add(None)
            return
        if column.null_count:
            self.found.add(None)
        known = internal_values(column.drop_null())
        if self._field.transform.preserves_order:
            # If the least and the greatest value have the same result, so has every other.
            ends = pc.min_max(known)
            known = pa.chunked_array([pa.array([ends["min"], ends["max"]], known.type)])
        self.found |= {self._transform(v) for v in known.unique().to_pylist() if v is not None}

    def shown(self, value: Value | None) -> str:
        """Return a value as text for people."""
        return str(self._field.transform.to_human_string(self._type, value))


def _column(field: PartitionField, table: Table, columns: Schema) -> NestedField:
    """Return the column of a partition field, matched by name in another schema.

    Raises:
        RefusedError: the column is nested.
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

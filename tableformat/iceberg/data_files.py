"""Turns receipts into Iceberg data files: what a manifest says of a file (destination.md 1.1)."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from tableformat.errors import InternalError
from tableformat.iceberg.values import from_text
from tableformat.quantities import counted
from tableformat.receipt import ColumnStatistics, Receipt

__all__ = ["data_file"]


def data_file(receipt: Receipt, schema: Schema, spec: PartitionSpec) -> DataFile:
    """Return the manifest entry of the file that a receipt speaks of.

    Args:
        receipt: of a finished file.
        schema: of the table; gives the types of the partition values.
        spec: the partition spec that the receipt's values belong to.

    Raises:
        InternalError: the receipt was written for another spec.
        UsageError: a partition value is not of its field's type.
    """
    if receipt.spec_id != spec.spec_id or len(receipt.partition) != len(spec.fields):
        message = (
            f"Cannot commit {receipt.file_path}: it was written for partition spec "
            f"{receipt.spec_id} with {counted(len(receipt.partition), 'value')}, the table has "
            f"{spec.spec_id} with {len(spec.fields)}. This is a bug, please report it."
        )
        raise InternalError(message)
    fields = spec.partition_type(schema).fields
    values = [
        from_text(text, field.field_type)
        for text, field in zip(receipt.partition, fields, strict=True)
    ]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=receipt.file_path,
        file_format=FileFormat.PARQUET,
        # The internal values, not dates and times: a manifest is written from exactly these.
        partition=Record(*values),
        record_count=receipt.rows,
        file_size_in_bytes=receipt.file_bytes,
        column_sizes=_by_field(receipt, lambda c: c.size),
        value_counts=_by_field(receipt, lambda c: c.values),
        null_value_counts=_by_field(receipt, lambda c: c.nulls),
        nan_value_counts=_by_field(receipt, lambda c: c.nans),
        lower_bounds=_bounds(receipt, lambda c: c.lower),
        upper_bounds=_bounds(receipt, lambda c: c.upper),
        key_metadata=None,
        split_offsets=list(receipt.split_offsets),
        equality_ids=None,
        sort_order_id=receipt.sort_order_id,
    )
    file.spec_id = spec.spec_id
    return file


def _by_field(receipt: Receipt, figure: Callable[[ColumnStatistics], int | None]) -> dict[int, int]:
    found = ((column.field_id, figure(column)) for column in receipt.columns)
    return {field_id: value for field_id, value in found if value is not None}


def _bounds(receipt: Receipt, bound: Callable[[ColumnStatistics], str | None]) -> dict[int, bytes]:
    found = ((column.field_id, bound(column)) for column in receipt.columns)
    return {field_id: bytes.fromhex(value) for field_id, value in found if value is not None}

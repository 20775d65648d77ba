"""Converts single Iceberg values to text and to bytes (Iceberg spec, appendix D).

A value has Iceberg's internal form: days and microseconds since 1970 as integers, `Decimal`, `str`,
`bytes`, `bool`. The text is the JSON single-value form without JSON's quotes; receipts carry it.
Bounds of columns are the binary single-value form, in hex. `data_file` converts a receipt to an
Iceberg data file: a manifest's entry for the file. `other_form` names the form of a file that is
not opened here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import InternalError, UnsupportedError, UsageError
from tableformat.quantities import counted
from tableformat.receipt import ColumnStatistics, Receipt

__all__ = ["Value", "data_file", "from_hex", "from_text", "other_form", "to_hex", "to_text"]

Value = bool | int | str | bytes | Decimal

_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# Python's default context rounds to 28 digits; decimal(38, s) needs more.
_WIDE: Final = Context(prec=60)


def to_text(value: Value | None, of: IcebergType) -> str | None:
    """Return the text of a value; None is NULL in both forms.

    Raises:
        UnsupportedError: the type has no text form, or a date is outside the years 1 to 9999.
    """
    match of, value:
        case _, None:
            return None
        case BooleanType(), bool():
            return "true" if value else "false"
        case ((IntegerType() | LongType()), int()):
            return str(value)
        case DecimalType(), Decimal():
            return format(value, "f")
        case DateType(), int():
            return _dated(value, timedelta(days=1)).date().isoformat()
        case TimestamptzType(), int():
            return _dated(value, _MICROSECOND).isoformat()
        case StringType(), str():
            return value
        case ((BinaryType() | FixedType()), bytes()):
            return value.hex()
        case _:
            message = (
                f"Cannot write {value!r} as text of an Iceberg {of}: it has no such form here."
            )
            raise UnsupportedError(
                f"{message} Choose another partition spec.", code=NOT_IMPLEMENTED
            )


def from_text(text: str | None, of: IcebergType) -> Value | None:
    """Parse a text that `to_text` wrote.

    Raises:
        UsageError: the text does not fit the type.
        UnsupportedError: the type has no text form.
    """
    if text is None:
        return None
    try:
        match of:
            case BooleanType() if text in ("true", "false"):
                return text == "true"
            case IntegerType() | LongType():
                return int(text)
            case DecimalType():
                return decimal_of(text, of.scale)
            case DateType():
                return (date.fromisoformat(text) - _EPOCH_DAY).days
            case TimestamptzType():
                return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
            case StringType():
                return text
            case BinaryType() | FixedType():
                return bytes.fromhex(text)
            case _:
                pass
    except (ValueError, TypeError, InvalidOperation) as error:
        message = (
            f"Cannot read {text!r} as an Iceberg {of}: {error}. It was not written by mergeberg."
        )
        raise UsageError(message) from error
    message = f"Cannot read {text!r} as an Iceberg {of}: there is no such text form."
    raise UnsupportedError(f"{message} It was not written by mergeberg.", code=NOT_IMPLEMENTED)


def decimal_of(text: str, scale: int) -> Decimal:
    """Parse a decimal and give it exactly `scale` digits after the point.

    Raises:
        InvalidOperation: it is not a number, or has more digits than any Iceberg decimal.
    """
    return Decimal(text).quantize(Decimal((0, (1,), -scale)), context=_WIDE)


def to_hex(value: Value, of: PrimitiveType) -> str:
    """Return the binary single-value form in hex, as receipts carry bounds."""
    return to_bytes(of, value).hex()


def from_hex(text: str, of: PrimitiveType) -> Any:
    """Parse a bound in hex.

    Raises:
        ValueError: the text is not hex.
    """
    return from_bytes(of, bytes.fromhex(text))


def _dated(count: int, unit: timedelta) -> datetime:
    try:
        return _EPOCH + count * unit
    except OverflowError as error:
        message = (
            f"Cannot write {count} * {unit} since 1970 as a date: it lies outside the years 1 to "
            "9999. Choose a partition spec that does not use the column."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED) from error


def data_file(receipt: Receipt, schema: Schema, spec: PartitionSpec) -> DataFile:
    """Return the manifest entry of a receipt's file.

    Args:
        receipt: of a finished file.
        schema: of the table, for the types of the partition values.
        spec: the partition spec of the receipt's values.

    Raises:
        InternalError: the receipt was written for another spec.
        UsageError: a partition value does not fit its field's type.
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
        # Internal values, not dates and times: PyIceberg writes them as they are.
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
        # An empty list would say that no reader can split the file.
        split_offsets=list(receipt.split_offsets) or None,
        equality_ids=None,
        sort_order_id=receipt.sort_order_id,
    )
    file.spec_id = spec.spec_id
    return file


_OTHER_FORMS: Final = {
    FileFormat.AVRO: "an Avro file",
    FileFormat.ORC: "an ORC file",
}


def other_form(file: DataFile) -> str:
    """Return what a data file is unless it is a plain Parquet file, '' if it is one.

    Iceberg allows three formats in a table, and files whose manifest entries have the metadata of
    encryption keys (Iceberg spec, `data_file`). The text is for messages: "an ORC file".
    """
    if file.key_metadata:
        return "an encrypted file"
    if file.file_format == FileFormat.PARQUET:
        return ""
    return _OTHER_FORMS.get(file.file_format, f"a file of the format {file.file_format}")


def _by_field(receipt: Receipt, figure: Callable[[ColumnStatistics], int | None]) -> dict[int, int]:
    found = ((column.field_id, figure(column)) for column in receipt.columns)
    return {field_id: value for field_id, value in found if value is not None}


def _bounds(receipt: Receipt, bound: Callable[[ColumnStatistics], str | None]) -> dict[int, bytes]:
    found = ((column.field_id, bound(column)) for column in receipt.columns)
    return {field_id: bytes.fromhex(value) for field_id, value in found if value is not None}

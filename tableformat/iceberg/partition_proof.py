"""Proves that an exported partition belongs to one Iceberg partition, and returns its value there.

A partition key is not a function of the data: the zone of a DateTime column may change, and a
DateTime64 wraps. So the export computes each Iceberg transform in ClickHouse over the rows of the
partition (`Probe`) and requires that the least and the greatest value are equal. The SQL was
compared with PyIceberg's transforms. ClickHouse's calendar ends with the years 1 and 9999 and
maps later times to the last second. Such rows get no value, so that no reader looks for them in
another partition (docs/reference/partition-keys.md).

`why_not_one_to_one` checks the other direction, from the plan alone: a lake partition can hold
rows of one source partition only. Each expression of the key must be a field of the spec, one to
one on all data (`=` and `*` in the matrix of `tableformat/iceberg/key_functions.py`). mergeberg
requires it before it removes everything in a lake partition (step 6 of
docs/spec/commit-protocol.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from typing import Any, Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import InternalError, RefusedError, Unable
from tableformat.file_names import escape, partition_directory
from tableformat.iceberg.key_functions import plain_type
from tableformat.iceberg.partition_spec import DerivedSpec, derive_spec
from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.iceberg.spec_fields import SpecField
from tableformat.iceberg.values import Value, decimal_of, to_text
from tableformat.mergetree.expression_parser import parse_partition_key
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import DateTime, Simple
from tableformat.mergetree.wire_types import qualified, wire_expression
from tableformat.messages import Option
from tableformat.names import PartitionId
from tableformat.source import Probe, ProbedValue

__all__ = [
    "Disproved",
    "Proved",
    "directory",
    "partition_values",
    "probe",
    "prove",
    "short_name",
    "value_texts",
    "why_not_one_to_one",
]

_HOUR: Final = 3_600_000_000
_NULL: Final = "NULL"
# ClickHouse's icebergTruncate takes decimals of 64 bits at most.
_LONGEST_TRUNCATED: Final = 18
# The years 1 to 9999, in days and in microseconds since 1970.
_DAYS: Final = (-719_162, 2_932_896)
_MICROSECONDS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_NO_YEAR: Final = 2**31
_NO_YEAR_SHOWN: Final = "a time outside the years 1 to 9999"
# File systems take 255 bytes per name.
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Proved:
    """The single value of a field in a partition; None is NULL."""

    value: Value | None


@dataclass(frozen=True, slots=True)
class Disproved:
    """The partition has several values of a field, or one that Iceberg cannot represent."""

    why: str


def probe(field: SpecField, columns: MappedColumns, *, value: str | None = None) -> Probe:
    """Return the probe of one field.

    Args:
        field: of the spec.
        columns: the mapped columns.
        value: the SQL of a column's value in the source, None for the column itself.

    Raises:
        InternalError: the column is missing, or its type does not fit.
    """
    column = _column(field, columns)
    sql = qualified(column.name) if value is None else value
    wire = wire_expression(sql, column.source.type, conversion=column.conversion)
    return Probe(_transform_sql(field, column, wire), _text_sql(_result_type(field, column)))


def prove(
    field: SpecField,
    columns: MappedColumns,
    probed: ProbedValue,
    partition_id: PartitionId,
    *,
    key: str,
) -> Proved | Disproved:
    """Return the value of a field in a partition, or why it has none.

    Args:
        field: of the spec.
        columns: the mapped columns.
        probed: the result of the field's probe.
        partition_id: of the partition, for the message.
        key: the partition key, for the message.
    """
    column = _column(field, columns)
    seen = [(text, _value(text, field, column)) for text in (probed.least, probed.greatest)]
    shown = [_shown(text, value, field, column) for text, value in seen]
    if probed.nulls and seen[0][0] is not None:
        shown = [_NULL, shown[0]]
    elif seen[0][0] == seen[1][0]:
        value = seen[0][1]
        if seen[0][0] is None or value is not None:
            return Proved(value)
        if shown[0] == _NO_YEAR_SHOWN:
            return Disproved(
                f"partition {partition_id}: {field.column} holds {shown[0]}, for which readers "
                f"have no {field}; correct the rows, or choose a spec without {field.column}"
            )
        return Disproved(
            f"partition {partition_id}: the value of {field} is {shown[0]}, which an Iceberg "
            f"{column.type} cannot hold; choose a spec without {field.column}"
        )
    return Disproved(
        f"partition {partition_id} (PARTITION BY {key or 'tuple()'}) holds rows of several values "
        f"of {field}, among them {shown[0]} and {shown[1]}; choose a coarser spec with "
        f"{Option.PARTITION_SPEC}, or 'unpartitioned'"
    )


def partition_values(
    spec: DerivedSpec,
    columns: MappedColumns,
    probed: tuple[ProbedValue, ...],
    partition_id: PartitionId,
) -> tuple[Value | None, ...]:
    """Return the Iceberg values of a partition, proved field by field.

    Raises:
        RefusedError: a field has no single value in the partition; all are listed (code 36).
        InternalError: the probes do not belong to the spec.
    """
    if len(probed) != len(spec.fields):
        message = (
            f"Cannot prove {spec}: {len(probed)} probes were returned. This is a bug, please "
            "report it."
        )
        raise InternalError(message)
    results = [
        prove(f, columns, p, partition_id, key=spec.key)
        for f, p in zip(spec.fields, probed, strict=True)
    ]
    reasons = tuple(r.why for r in results if isinstance(r, Disproved))
    if reasons:
        raise RefusedError(Unable(f"partition {partition_id}", reasons), code=BAD_ARGUMENTS)
    return tuple(r.value for r in results if isinstance(r, Proved))


def value_texts(
    spec: DerivedSpec, columns: MappedColumns, values: tuple[Value | None, ...]
) -> tuple[str | None, ...]:
    """Return partition values as receipts carry them.

    Raises:
        UnsupportedError: a date is outside the years 1 to 9999.
    """
    return tuple(
        to_text(v, _result_type(f, _column(f, columns)))
        for f, v in zip(spec.fields, values, strict=True)
    )


def directory(spec: DerivedSpec, columns: MappedColumns, values: tuple[Value | None, ...]) -> str:
    """Return a partition's directory below the data location, `ts_month=2024-01/region=eu`.

    The directory is only for people: Iceberg reads the values from its metadata. A value that is
    too long for a file name is cut and gets a digest, so that directories stay distinct.
    """
    shown = [
        None if v is None else short_name(_human(v, f, _column(f, columns)))
        for f, v in zip(spec.fields, values, strict=True)
    ]
    return partition_directory([f.name for f in spec.fields], shown)


def _column(field: SpecField, columns: MappedColumns) -> MappedColumn:
    column = columns.find(field.column)
    if column is None:
        message = f"Cannot use the partition field {field}: there is no column {field.column}."
        raise InternalError(f"{message} This is a bug, please report it.")
    return column


def _result_type(field: SpecField, column: MappedColumn) -> IcebergType:
    result: IcebergType = field.iceberg.result_type(column.type)
    return result


def _transform_sql(field: SpecField, column: MappedColumn, wire: str) -> str:
    match field.transform:
        case "identity":
            return wire
        case "year":
            return _in_calendar(f"toInt32(toYear({wire})) - 1970", column, wire)
        case "month":
            months = f"(toInt32(toYear({wire})) - 1970) * 12 + toMonth({wire}) - 1"
            return _in_calendar(months, column, wire)
        case "day":
            return _in_calendar(f"toInt32(toDate32({wire}))", column, wire)
        case "hour":
            us = f"toUnixTimestamp64Micro({wire})"
            return f"intDiv({us} - positiveModulo({us}, {_HOUR}), {_HOUR})"
        case "bucket":
            # UInt64 kept as long is hashed as long by both sides; as decimal(20,0) it must be cast.
            return f"icebergBucket({field.argument}, {wire})"
        case "truncate":
            return _truncate_sql(field, column, wire)
        case _:
            message = (
                f"Cannot compute {field}: an unknown transform. This is a bug, please report it."
            )
            raise InternalError(message)


def _in_calendar(sql: str, column: MappedColumn, wire: str) -> str:
    """Return the value of a time, or `_NO_YEAR` for a time that ClickHouse's calendar clamps."""
    match plain_type(column.source.type):
        case Simple("Date") | DateTime():
            return sql
        case Simple("Date32"):
            count, (first, last) = f"toInt32({wire})", _DAYS
        case _:
            count, (first, last) = f"toUnixTimestamp64Micro({wire})", _MICROSECONDS
    # A NULL condition selects the other branch, which is NULL, too.
    return f"if({count} < {first} OR {count} > {last}, toInt64({_NO_YEAR}), toInt64({sql}))"


def _truncate_sql(field: SpecField, column: MappedColumn, wire: str) -> str:
    width = field.argument
    match column.type:
        case StringType():
            return f"substringUTF8({wire}, 1, {width})"
        case BinaryType():
            return f"substring({wire}, 1, {width})"
        case DecimalType(precision=precision) if precision <= _LONGEST_TRUNCATED:
            return f"icebergTruncate({width}, {wire})"
        case DecimalType():
            # The unscaled number in 128 bits; `_value` applies the scale.
            value = f"reinterpretAsInt128({wire})"
            return f"{value} - positiveModulo({value}, {width})"
        case _:
            value = f"toInt64({wire})"
            return f"{value} - positiveModulo({value}, {width})"


def _text_sql(of: IcebergType) -> str:
    match of:
        case StringType() | BinaryType() | FixedType():
            return "hex(v)"
        case DateType():
            return "toString(toInt32(v))"
        case TimestamptzType():
            return "toString(toUnixTimestamp64Micro(v))"
        case _:
            return "toString(v)"


def _value(text: str | None, field: SpecField, column: MappedColumn) -> Value | None:
    """Parse a probe's text; return None for NULL and for a value that Iceberg cannot represent."""
    of = _result_type(field, column)
    if text is None:
        return None
    try:
        match of:
            case StringType():
                return bytes.fromhex(text).decode()
            case BinaryType() | FixedType():
                return bytes.fromhex(text)
            case BooleanType():
                return text in ("true", "1")
            case DecimalType(precision=digits) if (
                field.transform == "truncate" and digits > _LONGEST_TRUNCATED
            ):
                return _fitting(f"{text}E{-of.scale}", of)
            case DecimalType():
                return _fitting(text, of)
            case DateType():
                return _between(int(text), _DAYS)
            case TimestamptzType():
                return _between(int(text), _MICROSECONDS)
            case LongType():
                return _whole(int(text), field, bits=64)
            case IntegerType():
                return _whole(int(text), field, bits=32)
            case _:
                return int(text)
    except (UnicodeDecodeError, InvalidOperation):
        return None


def _whole(value: int, field: SpecField, *, bits: int) -> Value | None:
    """Return an integer if its type can hold it, else None.

    The truncation of a number near the minimum is below the minimum. ClickHouse wraps it around to
    a number that is no multiple of the width.
    """
    held = -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    wrapped = field.transform == "truncate" and value % (field.argument or 1) != 0
    return value if held and not wrapped else None


def _between(value: int, ends: tuple[int, int]) -> Value | None:
    return value if ends[0] <= value <= ends[1] else None


def _fitting(text: str, of: DecimalType) -> Value | None:
    value = decimal_of(text, of.scale)
    return value if len(value.as_tuple().digits) <= of.precision else None


def _shown(text: str | None, value: Value | None, field: SpecField, column: MappedColumn) -> str:
    if text is None:
        return _NULL
    if value is None and isinstance(column.type, DateType | TimestamptzType):
        return _NO_YEAR_SHOWN
    if value is None:
        return f"0x{text}" if isinstance(column.type, StringType) else text
    return _human(value, field, column)


def _human(value: Any, field: SpecField, column: MappedColumn) -> str:
    """Return a value as text for people; hours beyond Python's calendar stay numbers."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case _:
            pass
    try:
        return str(field.iceberg.to_human_string(column.type, value))
    except OverflowError:
        return str(value)


def short_name(text: str) -> str:
    """Return a value as part of a directory's name; a long one is cut and gets a digest."""
    if len(escape(text).encode()) <= _LONGEST_NAME:
        return text
    kept = text
    while len(escape(kept).encode()) > _LONGEST_NAME // 2:
        kept = kept[: len(kept) * 3 // 4]
    return f"{kept}~{sha256(text.encode()).hexdigest()[:16]}"


def why_not_one_to_one(table: MergeTreeTable, columns: MappedColumns, spec: DerivedSpec) -> str:
    """Return why several partitions of a table may be in one lake partition, '' if none can.

    Args:
        table: the source.
        columns: its mapped columns.
        spec: of the lake table.

    Raises:
        UsageError: the key cannot be parsed.
    """
    key = table.engine.partition_by
    if not parse_partition_key(key):
        return ""
    if not spec.fields:
        return f"the lake table is not partitioned, the source is, by {key}"
    try:
        derived = derive_spec(table, columns) if spec.chosen else spec
    except RefusedError as error:
        return f"nothing shows that '{spec}' divides rows as PARTITION BY {key} does ({error})"
    if derived.notes:
        return derived.notes[0]
    there = {f.meaning for f in spec.fields}
    missing = [str(f) for f in derived.fields if f.meaning not in there]
    if missing:
        return f"PARTITION BY {key} is '{derived}', and '{spec}' does not divide by {missing[0]}"
    return ""

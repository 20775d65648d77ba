"""A ClickHouse sorting key becomes an Iceberg sort order: its longest true prefix.

The facts are in types.md section 4. A declared order is a promise that readers use to skip rows, so
only fields whose order is equal on both sides are declared; the first other one ends the prefix:

    integers, Decimal up to 38 digits, Bool, Date, Date32, DateTime,    identity; bytes compare
    DateTime64, Time, Time64, String, FixedString                       unsigned on both sides
    NULL                      last ascending, first descending, and said so
    toYYYYMM, toDate, toStartOfX ... where the partition matrix has `=`   year, month, day or hour
    -x                        x descending, for types whose negation cannot wrap
    everything else           ends the prefix: UUID (ClickHouse compares its low half first), Enum
                              (by code, not label), Float (-NaN, -0), what became decimal text,
                              other functions
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.table.sorting import SortField as IcebergSortField

from tableformat.errors import InternalError
from tableformat.iceberg.partition_spec import DerivedField, derive_field
from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.iceberg.spec_fields import SpecField
from tableformat.mergetree.expression import Call, ColumnName, SortKey
from tableformat.mergetree.expression_text import parse_sorting_key
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    FixedString,
    LowCardinality,
    Nullable,
    Simple,
    Time64,
)

__all__ = ["SortedField", "file_order", "same_order", "sort_order", "sort_prefix"]

_ORDERED: Final = frozenset(
    {
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "UInt8",
        "UInt16",
        "UInt32",
        "UInt64",
        "Bool",
        "String",
        "Date",
        "Date32",
        "Time",
    }
)
# Negating the least signed integer gives itself again, and a large UInt64 a positive number.
_NEGATED_UNSIGNED: Final = frozenset({"UInt8", "UInt16", "UInt32"})
_GREATEST_PRECISION: Final = 38


@dataclass(frozen=True, slots=True)
class SortedField:
    """One field of the order: a column under a transform, its direction, and where NULLs stand."""

    field: SpecField
    descending: bool
    nulls_first: bool


def sort_prefix(table: MergeTreeTable, columns: MappedColumns) -> tuple[SortedField, ...]:
    """Return the longest prefix of the sorting key that is also true in Iceberg; it may be empty.

    A table without ORDER BY is sorted by its primary key.

    Raises:
        UsageError: the key's text cannot be read.
    """
    prefix: list[SortedField] = []
    for key in parse_sorting_key(table.engine.order_by or table.engine.primary_key):
        field = _field(key, columns, table.server_zone)
        if field is None:
            break
        prefix.append(field)
    return tuple(prefix)


def sort_order(prefix: tuple[SortedField, ...], schema: Schema) -> SortOrder:
    """Return the PyIceberg sort order over a schema's columns, to create a table with.

    Raises:
        InternalError: the schema lacks a column.
    """
    return SortOrder(
        *(
            IcebergSortField(
                source_id=_source_id(f, schema),
                transform=f.field.iceberg,
                direction=SortDirection.DESC if f.descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_FIRST if f.nulls_first else NullOrder.NULLS_LAST,
            )
            for f in prefix
        )
    )


def same_order(prefix: tuple[SortedField, ...], order: SortOrder, schema: Schema) -> bool:
    """Whether rows in the source's order are sorted as an existing table's sort order says.

    True when the table's order is a prefix of ours. A table without an order promises nothing.
    """
    if not order.fields or len(order.fields) > len(prefix):
        return False
    ours = sort_order(prefix[: len(order.fields)], schema) if _known(prefix, schema) else None
    return ours is not None and all(a == b for a, b in zip(ours.fields, order.fields, strict=True))


def file_order(
    prefix: tuple[SortedField, ...], schema: Schema
) -> tuple[tuple[int, bool, bool], ...]:
    """Return the order of a file's rows by column: (field id, descending, nulls first).

    Parquet knows columns only, so the first field under a transform ends it.

    Raises:
        InternalError: the schema lacks a column.
    """
    order: list[tuple[int, bool, bool]] = []
    for f in prefix:
        if f.field.transform != "identity":
            break
        order.append((_source_id(f, schema), f.descending, f.nulls_first))
    return tuple(order)


def _field(key: SortKey, columns: MappedColumns, server_zone: str) -> SortedField | None:
    # NULLs stay where ClickHouse puts them by the direction of the key, also under a negation.
    match key.expression:
        case ColumnName(name):
            column = columns.find(name)
            if column is None or not _ordered(column.source.type):
                return None
            return SortedField(SpecField(name, "identity"), key.descending, key.descending)
        case Call("negate", (ColumnName(name),)):
            column = columns.find(name)
            if column is None or not _negatable(column):
                return None
            return SortedField(SpecField(name, "identity"), not key.descending, key.descending)
        case expression:
            derived = derive_field(expression, columns, server_zone)
            if not isinstance(derived, DerivedField) or not derived.exact:
                return None
            return SortedField(derived.field, key.descending, key.descending)


def _ordered(of: DataType) -> bool:
    match of:
        case Nullable(inner) | LowCardinality(inner):
            return _ordered(inner)
        case Simple(name):
            return name in _ORDERED
        case Decimal(precision, _):
            return precision <= _GREATEST_PRECISION
        case FixedString() | DateTime() | DateTime64() | Time64():
            return True
        case _:
            return False


def _negatable(column: MappedColumn) -> bool:
    of = column.source.type
    while isinstance(of, Nullable | LowCardinality):
        of = of.of
    match of:
        case Simple(name):
            return name in _NEGATED_UNSIGNED
        case Decimal(precision, _):
            return precision <= _GREATEST_PRECISION
        case _:
            return False


def _known(prefix: tuple[SortedField, ...], schema: Schema) -> bool:
    names = {c.name for c in schema.fields}
    return all(f.field.column in names for f in prefix)


def _source_id(field: SortedField, schema: Schema) -> int:
    for c in schema.fields:
        if c.name == field.field.column:
            return c.field_id
    message = f"Cannot sort by {field.field}: the schema has no such column."
    raise InternalError(f"{message} This is a bug, please report it.")

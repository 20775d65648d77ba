"""Derives the Iceberg sort order from a ClickHouse sorting key: its longest prefix that holds.

docs/reference/partition-keys.md (Sorting keys) has the facts.

Readers skip rows by a declared order, so a field is declared only if its order is equal on both
sides. The first other field ends the prefix:

    a column that compares alike on both sides   identity (`key_functions.keeps_order`); not UUID,
                                                 Enum as its label, numbers as text, or floats
                                                 (-NaN, -0)
    -x                                           x in the other direction, where it cannot wrap
    toYYYYMM, icebergTruncate, intDiv ...        the field of the partition matrix, if it is exact
                                                 and has the same order
    toHour after toDate                          the finer field, as in a partition key
    everything else                              ends the prefix

NULLs are last in ascending and first in descending order, and the sort order declares that. A
function of a DateTime without a zone depends on the server's zone and ends the prefix: older parts
may be sorted by another zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.table.sorting import SortField as IcebergSortField

from tableformat.errors import InternalError
from tableformat.iceberg.key_functions import calendar_part, keeps_order, plain_type
from tableformat.iceberg.partition_spec import DerivedField, derive_field
from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.iceberg.spec_fields import TIME_TRANSFORMS, SpecField
from tableformat.mergetree.expression import Call, ColumnName, SortKey
from tableformat.mergetree.expression_parser import parse_sorting_key
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import Decimal, Simple

__all__ = ["SortedField", "file_order", "same_order", "sort_order", "sort_prefix"]

# Negating the least signed integer gives itself again, and a large UInt64 a positive number.
_NEGATED_UNSIGNED: Final = frozenset({"UInt8", "UInt16", "UInt32"})


@dataclass(frozen=True, slots=True)
class SortedField:
    """One field of the order: a column under a transform, its direction and the place of NULLs."""

    field: SpecField
    descending: bool
    nulls_first: bool


def sort_prefix(table: MergeTreeTable, columns: MappedColumns) -> tuple[SortedField, ...]:
    """Return the longest prefix of the sorting key that also holds in Iceberg; it may be empty.

    A table without ORDER BY is sorted by its primary key.

    Raises:
        UsageError: the key cannot be parsed.
    """
    prefix: list[SortedField] = []
    for key in parse_sorting_key(table.engine.order_by or table.engine.primary_key):
        fields = _fields(key, prefix, columns, table.server_zone)
        if fields is None:
            break
        prefix.extend(fields)
    return tuple(prefix)


def sort_order(prefix: tuple[SortedField, ...], schema: Schema) -> SortOrder:
    """Return the PyIceberg sort order for a new table with this schema.

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
    """Whether rows in the source's order satisfy an existing table's sort order.

    True if the table's order is a prefix of `prefix`. A table without an order declares nothing:
    False.
    """
    if not order.fields or len(order.fields) > len(prefix):
        return False
    ours = sort_order(prefix[: len(order.fields)], schema) if _known(prefix, schema) else None
    return ours is not None and all(a == b for a, b in zip(ours.fields, order.fields, strict=True))


def file_order(
    prefix: tuple[SortedField, ...], schema: Schema
) -> tuple[tuple[int, bool, bool], ...]:
    """Return the order of a file's rows by column: (field id, descending, nulls first).

    Parquet's order has no transforms, so the first field under a transform ends it.

    Raises:
        InternalError: the schema lacks a column.
    """
    order: list[tuple[int, bool, bool]] = []
    for f in prefix:
        if f.field.transform != "identity":
            break
        order.append((_source_id(f, schema), f.descending, f.nulls_first))
    return tuple(order)


def _fields(
    key: SortKey, before: list[SortedField], columns: MappedColumns, server_zone: str
) -> tuple[SortedField, ...] | None:
    """Return the fields of one key element (perhaps none); None: it ends the prefix."""
    # ClickHouse places NULLs by the direction of the key, also under a negation.
    match key.expression:
        case ColumnName(name):
            column = columns.find(name)
            if column is None or not keeps_order(column):
                return None
            return (SortedField(SpecField(name, "identity"), key.descending, key.descending),)
        case Call("negate", (ColumnName(name),)):
            column = columns.find(name)
            if column is None or not _negatable(column):
                return None
            return (SortedField(SpecField(name, "identity"), not key.descending, key.descending),)
        case expression:
            derived = derive_field(expression, columns, server_zone)
            if isinstance(derived, DerivedField):
                if not (derived.exact and derived.ordered):
                    return None
                return (SortedField(derived.field, key.descending, key.descending),)
            return _calendar_part_field(key, before, columns, server_zone)


def _calendar_part_field(
    key: SortKey, before: list[SortedField], columns: MappedColumns, server_zone: str
) -> tuple[SortedField, ...] | None:
    """Return the field of a calendar part: among rows of one year, toMonth sorts as month does."""
    part = calendar_part(key.expression, columns, server_zone)
    if part is None or part.assumed:
        return None
    times = [
        TIME_TRANSFORMS.index(f.field.transform)
        for f in before
        if f.field.column == part.column and f.field.transform in TIME_TRANSFORMS
    ]
    fixed = max(times, default=-1)
    if fixed >= TIME_TRANSFORMS.index(part.gives):
        return ()
    if fixed < TIME_TRANSFORMS.index(part.needs):
        return None
    field = SpecField(part.column, part.gives)
    return (SortedField(field, key.descending, key.descending),)


def _negatable(column: MappedColumn) -> bool:
    match plain_type(column.source.type):
        case Simple(name):
            return name in _NEGATED_UNSIGNED and keeps_order(column)
        case Decimal():
            return keeps_order(column)
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

"""As what the columns of a data file are read: found by field id, never by name, never inferred.

A file keeps the names that its columns had when it was written, in which Iceberg escapes what Avro
names may not hold; a column that the table got later is not in it and reads as NULL. Everything may
be NULL here, also what the table requires: a NULL that should not be there must be seen, not turned
into a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from tableformat.errors import DestinationError, InternalError
from tableformat.iceberg.field_ids import FIELD_ID_KEY
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime64,
    Decimal,
    FixedString,
    Map,
    Nullable,
    Simple,
    Tuple,
)

__all__ = ["FileColumn", "file_columns"]

_READ_AS: Final[dict[type[IcebergType], DataType]] = {
    BooleanType: Simple("Bool"),
    IntegerType: Simple("Int32"),
    LongType: Simple("Int64"),
    FloatType: Simple("Float32"),
    DoubleType: Simple("Float64"),
    DateType: Simple("Date32"),
    TimestamptzType: DateTime64(6, "UTC"),
    StringType: Simple("String"),
    BinaryType: Simple("String"),
    UUIDType: Simple("UUID"),
}


@dataclass(frozen=True, slots=True)
class FileColumn:
    """One column of a data file.

    `written` is its name in the file, None when it is not there; `type` as what it is read, members
    of tuples under their names in the file (those that are not there under a name of no member).
    """

    name: str
    written: str | None
    type: DataType


def file_columns(
    wanted: Sequence[DigestColumn], schema: Schema, written: pa.Schema
) -> tuple[FileColumn, ...]:
    """Return as what the wanted columns of a file are read, in their order.

    Args:
        wanted: the exported columns, with their wire types.
        schema: of the lake table.
        written: of the file, with field ids.

    Raises:
        DestinationError: the file has no field ids.
        InternalError: a column's Iceberg type is not what its wire type is exported to.
    """
    there = _by_id(written)
    if not there and len(written):
        message = (
            "Cannot read a data file by field ids: it has none, so that another program wrote it. "
            "Rewrite it with an Iceberg writer."
        )
        raise DestinationError(message)
    found = []
    for column in wanted:
        field = next(f for f in schema.fields if f.name == column.name)
        arrow = there.get(field.field_id)
        of = _read_type(column.type, field.field_type, arrow.type if arrow is not None else None)
        found.append(FileColumn(column.name, arrow.name if arrow is not None else None, of))
    return tuple(found)


def _read_type(wire: DataType, of: IcebergType, written: pa.DataType | None) -> DataType:
    """Return as what a value is read, members in the order of the wire type."""
    match wire, of:
        case Nullable(inner), _:
            return _read_type(inner, of, written)
        case Array(inner), ListType():
            return Array(_read_type(inner, of.element_type, _element_type(written)))
        case Map(key, value), MapType():
            # As an array of pairs, because a map's key may not be NULL in ClickHouse.
            keys, items = _entry_types(written)
            pair = (
                ("key", _read_type(key, of.key_type, keys)),
                ("value", _read_type(value, of.value_type, items)),
            )
            return Array(Tuple(pair))
        case Tuple(elements), StructType():
            return Tuple(tuple(_member(name, inner, of, written) for name, inner in elements))
        case _, DecimalType():
            return Nullable(Decimal(of.precision, of.scale))
        case _, FixedType():
            return Nullable(FixedString(len(of)))
        case _ if type(of) in _READ_AS:
            return Nullable(_READ_AS[type(of)])
        case _:
            message = (
                f"A value of the wire type {wire!r} is to be read as Iceberg {of}; this is a bug, "
                "please report it."
            )
            raise InternalError(message)


def _member(
    name: str | None, wire: DataType, of: StructType, written: pa.DataType | None
) -> tuple[str, DataType]:
    field = next(f for f in of.fields if f.name == name)
    there = _by_id(written) if written is not None and pa.types.is_struct(written) else {}
    arrow = there.get(field.field_id)
    shown = arrow.name if arrow is not None else f"mergeberg_absent_{field.field_id}"
    return shown, _read_type(wire, field.field_type, arrow.type if arrow is not None else None)


def _by_id(fields: Any) -> dict[int, pa.Field]:
    """Return the fields of a schema or struct by their id."""
    found = {}
    for field in fields:
        text = (field.metadata or {}).get(FIELD_ID_KEY)
        if text is not None:
            found[int(text)] = field
    return found


def _element_type(of: pa.DataType | None) -> pa.DataType | None:
    if of is None or not (pa.types.is_list(of) or pa.types.is_large_list(of)):
        return None
    return of.value_type


def _entry_types(of: pa.DataType | None) -> tuple[pa.DataType | None, pa.DataType | None]:
    if of is None or not pa.types.is_map(of):
        return None, None
    return of.key_type, of.item_type

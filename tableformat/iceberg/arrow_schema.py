"""Builds the Arrow schema of a data file and converts ClickHouse's Arrow data to it.

`file_schema` is exact:

* field ids at every level, under Arrow's metadata key `PARQUET:field_id`;
* `string` and `list`, never their large forms, because typed Hive readers refuse those;
* `uuid` as the extension type that becomes Parquet's UUID;
* nullability as in the Iceberg schema;
* names escaped as Iceberg's writers escape them. Names in a Hive tree are not escaped: its
  readers find a column only by the name in the file.

`to_file` loses no value. Its casts are safe, and it checks the cases that Arrow lets pass: a
struct with other names (which becomes all NULL), a NULL in a required list element. The writer's
`validate(full=True)` checks that strings are UTF-8 and decimals are within their precision.

The module defines the metadata key itself: an import of PyIceberg for it costs each Spark worker
a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema, make_compatible_name
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
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import InternalError, UnsupportedError

__all__ = [
    "FIELD_ID_KEY",
    "columns_of_file",
    "file_schema",
    "has_field_ids",
    "relabelled",
    "to_file",
]

FIELD_ID_KEY: Final = b"PARQUET:field_id"


_PRIMITIVE: Final[dict[type[IcebergType], Any]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
}


def file_schema(schema: Schema, *, escape: bool = True) -> pa.Schema:
    """Return the Arrow schema of the data files of a table with `schema`.

    Args:
        schema: of the table.
        escape: whether to escape names as Iceberg does.

    Raises:
        UnsupportedError: a column has a type that no ClickHouse column is mapped to.
    """
    return pa.schema([_field(f, escape=escape) for f in schema.fields])


def to_file(data: pa.Table, schema: Schema, *, escape: bool = True) -> pa.Table:
    """Convert `data`, as selected from ClickHouse, to the form of `file_schema(schema)`.

    Columns and struct members are matched by name. Optional ones that ClickHouse does not have are
    NULL. Data whose types agree is not copied.

    Args:
        data: rows, with the table's names.
        schema: of the table.
        escape: as in `file_schema`.

    Raises:
        pa.ArrowInvalid: a value does not fit; the message names the column.
        InternalError: names or nullability differ: the SELECT list does not belong to the schema.
    """
    fields = [_field(f, escape=False) for f in schema.fields]
    _check_members("the SELECT list", data.schema, fields)
    columns = []
    for field in fields:
        if field.name not in data.schema.names:
            columns.append(pa.chunked_array([pa.nulls(data.num_rows, field.type)]))
            continue
        column = data.column(field.name)
        try:
            columns.append(column.cast(field.type, safe=True))
        except pa.ArrowInvalid as error:
            message = f"column {field.name}: {error}"
            raise pa.ArrowInvalid(message) from error
    plain = pa.table(columns, schema=pa.schema(fields))
    return relabelled(plain, file_schema(schema)) if escape else plain


def has_field_ids(written: pa.Schema) -> bool:
    """Whether any column of a file has a field id; otherwise the table's name mapping counts."""
    return any(_id(field) is not None for field in written)


def columns_of_file(data: pa.Table, schema: Schema) -> pa.Table:
    """Convert rows of a data file to the form that `to_file` takes: columns by the table's names.

    Columns are matched by field id, and so are the members of structs; what was added to the table
    later is NULL. Types that the table has widened since are widened at every level.

    Raises:
        UnsupportedError: another engine wrote a column in a form that cannot be kept.
        pa.ArrowInvalid: a value does not fit the column's type.
    """
    there = {
        int(field.metadata[FIELD_ID_KEY]): data.column(i)
        for i, field in enumerate(data.schema)
        if field.metadata and FIELD_ID_KEY in field.metadata
    }
    if not there and len(data.schema):
        # No column would match by id, and every value would become NULL.
        raise _other_form(data.schema.names[0], "no field ids", "known by its id")
    columns = []
    for of in schema.fields:
        written = _field(of, escape=True)
        column = there.get(of.field_id)
        if column is None:
            column = pa.chunked_array([pa.nulls(data.num_rows, written.type)])
        elif column.type != written.type or _ids(column.type) != _ids(written.type):
            chunks = [_as_now(of.name, chunk, written.type) for chunk in column.chunks]
            column = pa.chunked_array(chunks, written.type)
        if column.null_count and not written.nullable:
            raise _other_form(of.name, "NULLs", "a required column")
        columns.append(column)
    held = pa.table(columns, schema=file_schema(schema))
    return relabelled(held, pa.schema([_field(f, escape=False) for f in schema.fields]))


def _as_now(name: str, values: pa.Array, now: pa.DataType) -> pa.Array:
    """Convert values of a file to the type that the table has now; members go by field id.

    Args:
        name: of the column, for errors.
        values: as the file has them.
        now: the type of the table, with field ids.

    Raises:
        UnsupportedError: another engine wrote them in a form that cannot be kept.
        pa.ArrowInvalid: a value does not fit.
    """
    of = values.type
    if pa.types.is_struct(of) and pa.types.is_struct(now):
        return _struct_as_now(name, values, now)
    if pa.types.is_map(of) and pa.types.is_map(now):
        keys = _inner_as_now(name, values.keys, of.key_field, now.key_field)
        items = _inner_as_now(name, values.items, of.item_field, now.item_field)
        entries = pa.StructArray.from_arrays([keys, items], fields=[now.key_field, now.item_field])
        return _with_children(values, now, entries)
    if pa.types.is_large_list(of) and pa.types.is_list(now):
        values = values.cast(pa.list_(of.value_field))
        of = values.type
    if pa.types.is_list(of) and pa.types.is_list(now):
        inner = _inner_as_now(name, values.values, of.value_field, now.value_field)
        return _with_children(values, now, inner)
    if pa.types.is_nested(of) or pa.types.is_nested(now):
        raise _other_form(name, of, now)
    return values if of == now else values.cast(now, safe=True)


def _struct_as_now(name: str, values: pa.Array, now: pa.DataType) -> pa.Array:
    """Convert a struct of a file, by the field ids of its members."""
    there = {_id(field): i for i, field in enumerate(values.type.fields)}
    if None in there:
        raise _other_form(name, "members without field ids", now)
    found = []
    for field in now.fields:
        at = there.get(_id(field))
        if at is None:
            # A member of its name with another id was dropped before this one was added.
            inner = pa.nulls(len(values), field.type)
        else:
            inner = _as_now(name, values.field(at), field.type)
        if not field.nullable and pc.any(pc.and_(inner.is_null(), values.is_valid())).as_py():
            raise _other_form(name, f"no value of {field.name}", now)
        found.append(inner)
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(found, fields=now.fields, mask=mask)


def _inner_as_now(name: str, values: pa.Array, of: pa.Field, now: pa.Field) -> pa.Array:
    """Convert the elements of a list, or the keys or values of a map."""
    if _id(of) != _id(now):
        raise _other_form(name, "members of other field ids", now.type)
    found = _as_now(name, values, now.type)
    if found.null_count and not now.nullable:
        raise _other_form(name, "NULLs", now)
    return found


def _with_children(values: pa.Array, now: pa.DataType, inner: pa.Array) -> pa.Array:
    """Return lists or maps, where they begin and end as before, of other elements."""
    own = values.buffers()[:2]
    return pa.Array.from_buffers(
        now, len(values), own, values.null_count, values.offset, children=[inner]
    )


def _id(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(FIELD_ID_KEY)
    return found


def _ids(of: pa.DataType) -> list[bytes | None]:
    """Return the field ids of everything nested in a type, None for a field without one."""
    inner = [of.field(i) for i in range(of.num_fields)]
    if pa.types.is_map(of):
        inner = [of.key_field, of.item_field]
    return [found for field in inner for found in (_id(field), *_ids(field.type))]


def _other_form(name: str, found: object, wanted: object) -> UnsupportedError:
    message = (
        f"Cannot rewrite the column {name}: the file has {found}, and the table's form of it is "
        f"{wanted}. Rewrite the file with the engine that wrote it, or export its partition again."
    )
    return UnsupportedError(message, code=NOT_IMPLEMENTED)


def _field(of: NestedField, *, escape: bool) -> pa.Field:
    name = make_compatible_name(of.name) if escape else of.name
    metadata = {FIELD_ID_KEY: str(of.field_id).encode()}
    arrow = _type(of.field_type, name=of.name, escape=escape)
    return pa.field(name, arrow, nullable=not of.required, metadata=metadata)


def _type(of: IcebergType, *, name: str, escape: bool) -> pa.DataType:
    match of:
        case DecimalType():
            return pa.decimal128(of.precision, of.scale)
        case FixedType():
            return pa.binary(len(of))
        case StructType():
            return pa.struct([_field(f, escape=escape) for f in of.fields])
        case ListType():
            return pa.list_(_field(of.element_field, escape=escape))
        case MapType():
            return pa.map_(
                _field(of.key_field, escape=escape), _field(of.value_field, escape=escape)
            )
        case _ if type(of) in _PRIMITIVE:
            return _PRIMITIVE[type(of)]
        case _:
            message = (
                f"Cannot write the column {name}: no ClickHouse type is mapped to Iceberg {of}. "
                "Export to a table whose columns have the mapped types."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _check_members(where: str, given: Iterable[pa.Field], wanted: Iterable[pa.Field]) -> None:
    """Check that casting `given` to `wanted` by name neither loses nor invents a value."""
    have = {f.name: f for f in given}
    want = {f.name: f for f in wanted}
    for name in have.keys() - want.keys():
        raise _mismatch(where, f"{name} is not in the schema")
    for name, target in want.items():
        if name in have:
            _check_field(f"{where}, {name}", have[name], target)
        elif not target.nullable:
            raise _mismatch(where, f"the required {name} is missing")


def _check_field(where: str, given: pa.Field, wanted: pa.Field) -> None:
    if given.nullable and not wanted.nullable:
        raise _mismatch(where, "it may be NULL, and the schema requires a value")
    if pa.types.is_struct(wanted.type) and pa.types.is_struct(given.type):
        _check_members(where, given.type.fields, wanted.type.fields)
    elif pa.types.is_map(wanted.type) and pa.types.is_map(given.type):
        _check_field(f"{where}, key", given.type.key_field, wanted.type.key_field)
        _check_field(f"{where}, value", given.type.item_field, wanted.type.item_field)
    elif pa.types.is_list(wanted.type) and pa.types.is_list(given.type):
        _check_field(f"{where}, element", given.type.value_field, wanted.type.value_field)
    elif pa.types.is_nested(wanted.type) or pa.types.is_nested(given.type):
        raise _mismatch(where, f"{given.type} cannot become {wanted.type}")


def _mismatch(where: str, why: str) -> InternalError:
    return InternalError(
        f"Cannot write what ClickHouse gave: in {where}, {why}. This is a bug, please report it."
    )


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Arrow data under another schema of the same layout, without a copy (Arrow C interface)."""

    batch: pa.RecordBatch
    schema: pa.Schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """Export the data with the other schema."""
        _, array = self.batch.__arrow_c_array__(requested_schema)
        return self.schema.__arrow_c_schema__(), array


def relabelled(plain: pa.Table, labels: pa.Schema) -> pa.Table:
    """Return `plain` with other names, nullability and metadata; the layout must be the same."""
    if plain.schema.equals(labels, check_metadata=True):
        return plain
    batches = [pa.record_batch(_Labelled(batch, labels)) for batch in plain.to_batches()]
    return pa.Table.from_batches(batches, schema=labels)

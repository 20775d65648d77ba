"""Maps the columns of a data file to the table's columns for reading: own files and foreign ones.

`file_columns` handles the files of the table. It finds columns by field id, never by name, and
never infers them. A file keeps the names it was written with, which Iceberg escapes for Avro. A
column that was added to the table later reads as NULL. Every column may be NULL, even a required
one: a wrong NULL must be visible, not a default value.

`foreign_columns` handles a Parquet file of another program. A column matches the table's column
of the same name. The field id decides only if the table has no column of that name (the column
was renamed). If name and id disagree, the file is refused. Types match if every value has an
exact equivalent: Iceberg's promotions, the narrow and unsigned numbers that ClickHouse writes,
and coarser units of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

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

from tableformat.committer import FileInMain
from tableformat.errors import InternalError, RefusedError
from tableformat.iceberg.arrow_schema import FIELD_ID_KEY, file_schema, relabelled
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
    render_type,
)

__all__ = [
    "FileColumn",
    "FilesToDigest",
    "ForeignColumns",
    "MappedField",
    "UnlikeField",
    "file_columns",
    "foreign_columns",
    "has_composed_null",
    "lacked_fields",
    "unlike_fields",
    "with_mapped_ids",
]


@dataclass(frozen=True, slots=True)
class FilesToDigest:
    """Data files of a partition in main, and the columns whose digest is wanted.

    `schema` is that of the lake table; `columns` are the exported ones, as the source is digested.
    """

    files: tuple[FileInMain, ...]
    schema: Schema
    columns: tuple[DigestColumn, ...]

    @property
    def has_columns(self) -> bool:
        """Whether the table has all columns, and with types as which they can be read."""
        lacks = lacked_fields(self.columns, self.schema)
        return not lacks and not unlike_fields(self.columns, self.schema)


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

_COMPOSED: Final = (Array, Map, Nullable, Tuple)


@dataclass(frozen=True, slots=True)
class FileColumn:
    """One column of a data file.

    `written` is its name in the file, None if the file lacks it. `type` is the type to read it as;
    members of tuples have their names in the file, and missing ones a name that no member has.
    """

    name: str
    written: str | None
    type: DataType


def file_columns(
    wanted: Sequence[DigestColumn], schema: Schema, written: pa.Schema
) -> tuple[FileColumn, ...]:
    """Return how to read the wanted columns of a file, in their order.

    A column that the table lacks is NULL.

    Args:
        wanted: the exported columns, with their wire types.
        schema: of the lake table; it has every member of the wanted columns that it has.
        written: of the file, with field ids.

    Raises:
        OSError: the file has no field ids.
        RefusedError: a column of the table has another type than the exported one.
    """
    there = _by_id(written)
    if not there and len(written):
        message = (
            "columns are found by field ids, and it has none, so that another program wrote it; "
            "the table has no name mapping for it (schema.name-mapping.default)"
        )
        raise OSError(message)
    found = []
    for column in wanted:
        field = next((f for f in schema.fields if f.name == column.name), None)
        if field is None:
            is_whole = isinstance(column.type, _COMPOSED)
            as_null = column.type if is_whole else Nullable(column.type)
            found.append(FileColumn(column.name, None, as_null))
            continue
        if unlike := unlike_fields([column], schema):
            (other,) = unlike[column.name][:1]
            message = (
                f"Cannot read column {other.path} as {other.wire}, as which it was exported: it is "
                f"{other.of} in the lake table, where it was dropped and added again. Rename that "
                "column or drop it, or use the statements of Spark."
            )
            raise RefusedError(message)
        arrow = there.get(field.field_id)
        of = _read_type(column.type, field.field_type, arrow.type if arrow is not None else None)
        found.append(FileColumn(column.name, arrow.name if arrow is not None else None, of))
    return tuple(found)


class MappedField(Protocol):
    """A field of a table's name mapping: its names in files without ids, and its members."""

    @property
    def field_id(self) -> int | None:
        """Its id; None if the mapping has none."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Its names."""
        ...

    @property
    def fields(self) -> Sequence[MappedField]:
        """Its members."""
        ...


def with_mapped_ids(written: pa.Schema, mapping: Iterable[MappedField]) -> pa.Schema:
    """Return the schema of a file with the field ids that a table maps its names to.

    Iceberg's readers use the mapping only if the file itself has no ids.
    """
    known = tuple(mapping)
    if not known or _by_id(written):
        return written
    return pa.schema([_with_mapped_id(field, known) for field in written])


def _with_mapped_id(field: pa.Field, mapping: Sequence[MappedField]) -> pa.Field:
    found = next((one for one in mapping if field.name in one.names), None)
    if found is None:
        return field
    if pa.types.is_struct(field.type):
        members = [_with_mapped_id(one, found.fields) for one in field.type]
        field = field.with_type(pa.struct(members))
    elif pa.types.is_list(field.type):
        field = field.with_type(
            pa.list_(_with_inner_id(field.type.value_field, "element", found.fields))
        )
    elif pa.types.is_map(field.type):
        key = _with_inner_id(field.type.key_field, "key", found.fields)
        field = field.with_type(
            pa.map_(key, _with_inner_id(field.type.item_field, "value", found.fields))
        )
    number = found.field_id
    return field if number is None else field.with_metadata({FIELD_ID_KEY: str(number).encode()})


def _with_inner_id(field: pa.Field, name: str, mapping: Sequence[MappedField]) -> pa.Field:
    """Return the field of list elements, map keys or map values with its id by a mapping.

    The mapping has one name for each of them, whatever a file calls it (Iceberg spec, "Column
    projection").
    """
    return _with_mapped_id(field.with_name(name), mapping).with_name(field.name)


def lacked_fields(wanted: Sequence[DigestColumn], schema: Schema) -> dict[str, tuple[str, ...]]:
    """Return the columns, or members of columns, that a table lacks: dotted names by column."""
    lacked = {
        name: tuple(one.path for one in found if one.of is None)
        for name, found in _members_of(wanted, schema)
    }
    return {name: found for name, found in lacked.items() if found}


@dataclass(frozen=True, slots=True)
class UnlikeField:
    """A column, or a member of one, of whose type in the table no exported value is."""

    path: str
    wire: str
    of: str


def unlike_fields(
    wanted: Sequence[DigestColumn], schema: Schema
) -> dict[str, tuple[UnlikeField, ...]]:
    """Return the columns, or members of columns, that have another type in a table, by column.

    The owner of the table has dropped such a column and added one of its name.
    """
    unlike = {
        name: tuple(
            UnlikeField(one.path, render_type(one.wire), str(one.of))
            for one in found
            if one.of is not None and not _can_be_read_as(one.wire, one.of)
        )
        for name, found in _members_of(wanted, schema)
    }
    return {name: found for name, found in unlike.items() if found}


@dataclass(frozen=True, slots=True)
class _MemberOf:
    """A column or the innermost member of one, and its type in a table; None if that lacks it."""

    path: str
    wire: DataType
    of: IcebergType | None


def _members_of(
    wanted: Sequence[DigestColumn], schema: Schema
) -> Iterator[tuple[str, Iterator[_MemberOf]]]:
    fields = {f.name: f.field_type for f in schema.fields}
    for c in wanted:
        yield c.name, _members(c.name, c.type, fields.get(c.name))


def _members(path: str, wire: DataType, of: IcebergType | None) -> Iterator[_MemberOf]:
    match wire, of:
        case Nullable(inner), _:
            yield from _members(path, inner, of)
        case Array(inner), ListType():
            yield from _members(path, inner, of.element_type)
        case Map(key, value), MapType():
            yield from _members(f"{path}.key", key, of.key_type)
            yield from _members(f"{path}.value", value, of.value_type)
        case Tuple(elements), StructType():
            members: dict[str | None, IcebergType] = {f.name: f.field_type for f in of.fields}
            for name, inner in elements:
                yield from _members(f"{path}.{name}", inner, members.get(name))
        case _:
            yield _MemberOf(path, wire, of)


def _can_be_read_as(wire: DataType, of: IcebergType) -> bool:
    """Whether values of an innermost type can be read as a type of the table."""
    if isinstance(wire, Array | Map | Tuple):
        return False
    return isinstance(of, DecimalType | FixedType) or type(of) in _READ_AS


def has_composed_null(of: DataType, values: pa.Array) -> bool:
    """Whether a list, map or struct is NULL or missing, at any depth; ClickHouse reads it as empty.

    Args:
        of: the type to read the values as, of a `FileColumn`.
        values: as the file has them.
    """
    if not isinstance(of, Array | Tuple) or not len(values):
        return False
    if values.null_count:
        return True
    if isinstance(of, Tuple):
        names = (member.name for member in values.type)
        there = dict(zip(names, values.flatten(), strict=True))
        missing = pa.nulls(len(values))
        return any(has_composed_null(t, there.get(str(name), missing)) for name, t in of.elements)
    if pa.types.is_map(values.type):
        values = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
    return has_composed_null(of.of, values.flatten())


def _read_type(wire: DataType, of: IcebergType, written: pa.DataType | None) -> DataType:
    """Return the type to read a value as, with members in the order of the wire type."""
    match wire, of:
        case Nullable(inner), _:
            return _read_type(inner, of, written)
        case Array(inner), ListType():
            return Array(_read_type(inner, of.element_type, _element_type(written)))
        case Map(key, value), MapType():
            # As an array of pairs: a map's key cannot be NULL in ClickHouse.
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
    """Return the fields of a schema or struct by id."""
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


_NARROW: Final = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32())
_WIDENED: Final[dict[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int32(): _NARROW,
    # A UInt64 may become a long; the safe cast refuses larger values (docs/reference/types.md).
    pa.int64(): (*_NARROW, pa.uint32(), pa.uint64()),
    pa.float64(): (pa.float32(),),
    pa.string(): (pa.large_string(), pa.string_view()),
    pa.binary(): (pa.large_binary(), pa.binary_view()),
}
_DIGITS_OF_UINT64: Final = 20
_UNITS: Final = ("s", "ms", "us")


@dataclass(frozen=True, slots=True)
class ForeignColumns:
    """The position of each column of a table in a file, and the type that it is cast to.

    `checked` are the positions of columns whose values may not fit, or may be NULL although the
    table requires a value; all others fit by their types.
    """

    schema: Schema
    places: tuple[int, ...]
    types: tuple[pa.DataType, ...]
    checked: frozenset[int]

    def taken(self, batch: pa.Table) -> pa.Table:
        """Convert rows of the file, with all its columns, to the form of the table's data files.

        Raises:
            pa.ArrowInvalid: a value does not fit, or is NULL although the table requires one; the
                message names the column.
        """
        columns = range(len(self.places))
        return self._labelled([self._column(batch.column(self.places[i]), i) for i in columns])

    def some(self, batch: pa.Table, of: tuple[int, ...]) -> pa.Table:
        """Convert some columns of the file, in rows that have only those.

        Args:
            batch: the rows, with these columns in this order.
            of: the columns' positions in the file, each that of a column of the table.

        Raises:
            pa.ArrowInvalid: as `taken`.
        """
        wanted = [self.places.index(place) for place in of]
        found = [self._column(batch.column(at), i) for at, i in enumerate(wanted)]
        return self._labelled(found, wanted)

    def _column(self, column: pa.ChunkedArray, number: int) -> pa.ChunkedArray:
        wanted = file_schema(self.schema).field(number)
        name = self.schema.fields[number].name
        try:
            found = column.cast(self.types[number], safe=True)
        except pa.ArrowInvalid as error:
            message = f"column {name}: {error}"
            raise pa.ArrowInvalid(message) from error
        if any(_has_forbidden_null(chunk, wanted) for chunk in found.chunks):
            message = f"column {name}: it has NULLs, and the table requires a value"
            raise pa.ArrowInvalid(message)
        return found

    def _labelled(self, columns: list[pa.ChunkedArray], of: list[int] | None = None) -> pa.Table:
        labels = file_schema(self.schema)
        if of is not None:
            labels = pa.schema([labels.field(i) for i in of])
        plain = pa.schema([pa.field(f.name, c.type) for f, c in zip(labels, columns, strict=True)])
        return relabelled(pa.table(columns, schema=plain), labels)


def foreign_columns(written: pa.Schema, schema: Schema) -> ForeignColumns | tuple[str, ...]:
    """Match the columns of a table with those of a file, or return all differences.

    Args:
        written: of the file, as Arrow reads it.
        schema: of the table.

    Raises:
        UnsupportedError: a column of the table has a type that no ClickHouse column is mapped to.
    """
    wanted = list(file_schema(schema))
    by_name = {name: i for i, name in enumerate(written.names)}
    shown = [field.name for field in schema.fields]
    known = {*shown, *(field.name for field in wanted)}
    differences: list[str] = []
    places: list[int] = []
    types: list[pa.DataType] = []
    checked = set()
    for name, field in zip(shown, wanted, strict=True):
        place = _place(name, field, written, by_name, known, differences)
        if place is None:
            continue
        have = written.field(place)
        places.append(place)
        types.append(_target(have.type, field, name, differences))
        if have.type != field.type or (have.nullable and not field.nullable):
            checked.add(place)
    differences.extend(
        f"it has a column {name}, and the table none"
        for name, place in by_name.items()
        if place not in places and name not in known
    )
    if len(by_name) < len(written.names):
        differences.append("it has several columns of one name")
    if differences:
        return tuple(dict.fromkeys(differences))
    return ForeignColumns(schema, tuple(places), tuple(types), frozenset(checked))


def _place(
    name: str,
    field: pa.Field,
    written: pa.Schema,
    by_name: dict[str, int],
    known: set[str],
    differences: list[str],
) -> int | None:
    """Return the position of a table's column in the file, None if it is missing or ambiguous."""
    number = _id(field)
    named = by_name.get(name, by_name.get(field.name))
    of_id = next((i for i, one in enumerate(written) if _id(one) == number), None)
    if named is None and of_id is not None and written.field(of_id).name not in known:
        return of_id
    if named is None:
        differences.append(f"it has no column {name}")
    elif of_id is not None and of_id != named:
        differences.append(
            f"its column {name} has the field id {_id(written.field(named))}, and the table's has "
            f"{number}, which is that of {written.field(of_id).name} there"
        )
        return None
    return named


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return int(text) if text is not None else None


def _target(have: pa.DataType, wanted: pa.Field, where: str, differences: list[str]) -> pa.DataType:
    """Return the type that a column is cast to: the file's names with the table's leaf types.

    Types that cannot be cast are added to `differences`.
    """
    want = wanted.type
    if pa.types.is_struct(want) and pa.types.is_struct(have):
        if len(have.fields) == len(want.fields) and all(
            _is_same(*pair) for pair in zip(have.fields, want.fields, strict=True)
        ):
            return pa.struct(
                [
                    h.with_type(_target(h.type, w, f"{where}.{w.name}", differences))
                    for h, w in zip(have.fields, want.fields, strict=True)
                ]
            )
    elif pa.types.is_map(want) and pa.types.is_map(have):
        key = _target(have.key_type, want.key_field, f"{where}.key", differences)
        value = _target(have.item_type, want.item_field, f"{where}.value", differences)
        return pa.map_(have.key_field.with_type(key), have.item_field.with_type(value))
    elif pa.types.is_list(want) and _is_list(have):
        of = have.value_field
        return pa.list_(
            of.with_type(_target(of.type, want.value_field, f"{where}.element", differences))
        )
    elif _is_exact(have, want):
        return want
    differences.append(f"its column {where} is {have}, and the table's is {want}")
    return have


def _is_list(of: pa.DataType) -> bool:
    return bool(pa.types.is_list(of) or pa.types.is_large_list(of))


def _is_same(one: pa.Field, other: pa.Field) -> bool:
    """Whether two struct members match: equal names, and ids that do not contradict."""
    return one.name == other.name and _id(one) in (None, _id(other))


def _is_exact(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether each value of a type has an exact equivalent in another, or fails a safe cast."""
    if pa.types.is_dictionary(have):
        return _is_exact(have.value_type, want)
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(want):
        return have.tz is not None and have.unit in _UNITS
    if pa.types.is_uint64(have) and pa.types.is_decimal(want):
        return bool(want.scale == 0 and want.precision >= _DIGITS_OF_UINT64)
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return bool(have.scale == want.scale and have.precision <= want.precision)
    return bool(have == want or have in _WIDENED.get(want, ()))


def _has_forbidden_null(array: pa.Array, wanted: pa.Field) -> bool:
    """Whether a required value is NULL, at any depth."""
    if array.null_count and not wanted.nullable:
        return True
    return any(_has_forbidden_null(inner, field) for inner, field in _inner(array, wanted.type))


def _inner(array: pa.Array, of: pa.DataType) -> Iterator[tuple[pa.Array, pa.Field]]:
    """Yield the nested arrays of the non-NULL values."""
    if not pa.types.is_nested(of):
        return
    there = array.drop_null()
    if pa.types.is_struct(of):
        yield from zip(there.flatten(), of.fields, strict=True)
    elif pa.types.is_map(of):
        entries = there.cast(pa.list_(pa.struct([there.type.key_field, there.type.item_field])))
        keys, values = entries.flatten().flatten()
        yield keys, of.key_field
        yield values, of.item_field
    else:
        yield there.flatten(), of.value_field

"""Adds fields to the schema of an existing Iceberg table, and widens its types.

`evolve` (`--evolve-schema`) adds the missing fields: all optional, at the end of their struct,
with ids that the table never used. It widens types by Iceberg's promotions, but not of a column
that divides the table. The key of a map keeps its members.

`evolved_mapping` adds the new fields to the table's name mapping, by which files without field ids
are read.

`as_wide_as` gives the columns of the remembered ClickHouse table the widths of the lake table's.
`named_as` gives the fields of a schema the names of an earlier one. `has_moved_names` tests
whether a name belonged to another field. `unreadable` tests whether rows of an earlier schema
can be read by a later one.

Source: docs/reference/existing-tables.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, update_mapping
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
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
    StructType,
    UUIDType,
)

from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.mergetree.compatibility import key_columns
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import (
    Array,
    DataType,
    Decimal,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    Simple,
    Tuple,
    render_type,
)

__all__ = [
    "Evolution",
    "are_all_schemas",
    "as_wide_as",
    "can_widen",
    "divided_by",
    "evolve",
    "evolved_mapping",
    "has_moved_names",
    "name_conflict",
    "named_as",
    "promoted",
    "unreadable",
]

_BYTES_OF_UUID: Final = 16


@dataclass(frozen=True, slots=True)
class Evolution:
    """The complete evolved schema, and its new fields, each as `name (type)`, nested names dotted.

    `widened` are the fields of a wider type, as `name (int to long)`; `changed` are the columns
    that are new or wider, or have members that are.
    """

    schema: Schema
    added: tuple[str, ...]
    changed: frozenset[str]
    widened: tuple[str, ...] = ()


def evolve(
    schema: Schema, spec: PartitionSpec, mapped: MappedColumns, last_column_id: int
) -> Evolution | None:
    """Return the schema with every field that can be added or widened, None if there is none.

    Args:
        schema: the table's current schema.
        spec: its default partition spec, whose field names no column may have.
        mapped: the columns to export.
        last_column_id: the highest id that the table has ever assigned.
    """
    evolution = _SchemaEvolution(schema, spec, itertools.count(last_column_id + 1))
    fields = evolution.fields((), schema.fields, mapped.schema.fields)
    if not evolution.added and not evolution.widened:
        return None
    evolved = Schema(*fields, identifier_field_ids=schema.identifier_field_ids)
    added = tuple(f"{'.'.join(path)} ({of})" for path, of in evolution.added)
    widened = tuple(f"{'.'.join(path)} ({was} to {of})" for path, was, of in evolution.widened)
    changed = {path[0] for path, _ in evolution.added} | {path[0] for path, *_ in evolution.widened}
    return Evolution(evolved, added, frozenset(changed), widened)


def name_conflict(
    path: tuple[str, ...], new: NestedField, schema: Schema, spec: PartitionSpec
) -> str:
    """Return the existing name that conflicts with a new field, '' if there is none.

    Names that differ only in case conflict, because Spark cannot distinguish them. So do a dotted
    name and a struct's member with the same full name (docs/reference/types.md, Names).
    """
    taken = {name.lower(): name for name in schema.column_names}
    if len(path) == 1:
        taken |= {f.name.lower(): f"the partition field {f.name}" for f in spec.fields}
    names = (".".join(one).lower() for one in _paths(path, new.field_type))
    return next((taken[name] for name in names if name in taken), "")


@dataclass(frozen=True, slots=True)
class _SchemaEvolution:
    schema: Schema
    spec: PartitionSpec
    ids: Iterator[int]
    added: list[tuple[tuple[str, ...], IcebergType]] = field(default_factory=list)
    widened: list[tuple[tuple[str, ...], IcebergType, IcebergType]] = field(default_factory=list)

    def fields(
        self,
        path: tuple[str, ...],
        theirs: tuple[NestedField, ...],
        ours: tuple[NestedField, ...],
    ) -> tuple[NestedField, ...]:
        by_name = {f.name: f for f in ours}
        kept = [
            self._evolved_field((*path, f.name), f, by_name[f.name]) if f.name in by_name else f
            for f in theirs
        ]
        known = {f.name for f in theirs}
        new = [
            self._new((*path, f.name), f)
            for f in ours
            if f.name not in known and not name_conflict((*path, f.name), f, self.schema, self.spec)
        ]
        return (*kept, *new)

    def _new(self, path: tuple[str, ...], ours: NestedField) -> NestedField:
        self.added.append((path, ours.field_type))
        number = next(self.ids)
        of = self._with_new_ids(ours.field_type)
        return NestedField(number, ours.name, of, required=False, doc=ours.doc)

    def _evolved_field(
        self, path: tuple[str, ...], theirs: NestedField, ours: NestedField
    ) -> NestedField:
        of = self._evolved_type(path, theirs.field_type, ours.field_type)
        if can_widen(theirs, ours.field_type, self.spec):
            self.widened.append((path, theirs.field_type, ours.field_type))
            of = ours.field_type
        return theirs if of is theirs.field_type else theirs.model_copy(update={"field_type": of})

    def _evolved_type(
        self, path: tuple[str, ...], theirs: IcebergType, ours: IcebergType
    ) -> IcebergType:
        match theirs, ours:
            case StructType(), StructType():
                fields = self.fields(path, theirs.fields, ours.fields)
                return theirs if fields == theirs.fields else StructType(*fields)
            case ListType(), ListType():
                element = self._evolved_field(
                    (*path, "element"), theirs.element_field, ours.element_field
                ).field_type
                if element is theirs.element_type:
                    return theirs
                return ListType(theirs.element_id, element, theirs.element_required)
            case MapType(), MapType():
                value = self._evolved_field(
                    (*path, "value"), theirs.value_field, ours.value_field
                ).field_type
                if value is theirs.value_type:
                    return theirs
                return MapType(
                    theirs.key_id, theirs.key_type, theirs.value_id, value, theirs.value_required
                )
            case _:
                return theirs

    def _with_new_ids(self, of: IcebergType) -> IcebergType:
        """Return a type with new ids; required members inside a new value stay required."""
        match of:
            case StructType():
                numbered = [(next(self.ids), f) for f in of.fields]
                return StructType(
                    *(
                        NestedField(
                            i, f.name, self._with_new_ids(f.field_type), required=f.required
                        )
                        for i, f in numbered
                    )
                )
            case ListType():
                number = next(self.ids)
                return ListType(number, self._with_new_ids(of.element_type), of.element_required)
            case MapType():
                key, value = next(self.ids), next(self.ids)
                return MapType(
                    key,
                    self._with_new_ids(of.key_type),
                    value,
                    self._with_new_ids(of.value_type),
                    of.value_required,
                )
            case _:
                return of


def evolved_mapping(mapping: NameMapping, before: Schema, after: Schema) -> NameMapping:
    """Return a table's name mapping with the fields that only its new schema has, at every level.

    Iceberg's own schema changes do the same (Iceberg spec, "Name Mapping Serialization").
    """
    # PyIceberg calls the parent of columns -1.
    structs = {-1: after.as_struct()}
    for id_ in before.field_ids:
        if id_ in after.field_ids and isinstance(of := after.find_type(id_), StructType):
            structs[id_] = of
    known = set(before.field_ids)
    added = {
        id_: [field for field in of.fields if field.field_id not in known]
        for id_, of in structs.items()
    }
    return update_mapping(mapping, {}, added)


def named_as(schema: Schema, before: Schema) -> Schema:
    """Return the fields that two schemas of a table share, with their names in the earlier one.

    Their types are those of `schema`. A field that was dropped and added again is another field.
    """
    names = {number: before.find_field(number).name for number in before.field_ids}
    return Schema(*_named(schema.fields, names))


def has_moved_names(schema: Schema, others: Iterable[Schema]) -> bool:
    """Whether another schema of the table gives a name of `schema` to another field."""
    here = _ids(schema)
    return any(here.get(name, of) != of for one in others for name, of in _ids(one).items())


def _ids(schema: Schema) -> dict[str, int]:
    """Return the ids of all fields, nested ones too, by their full names."""
    return {name: schema.find_field(name).field_id for name in schema.column_names}


def _named(fields: Iterable[NestedField], names: Mapping[int, str]) -> Iterator[NestedField]:
    for f in fields:
        if f.field_id in names:
            of = _named_type(f.field_type, names)
            yield NestedField(f.field_id, names[f.field_id], of, required=f.required)


def _named_type(of: IcebergType, names: Mapping[int, str]) -> IcebergType:
    match of:
        case StructType():
            return StructType(*_named(of.fields, names))
        case ListType():
            element = _named_type(of.element_type, names)
            return ListType(of.element_id, element, of.element_required)
        case MapType():
            key, value = _named_type(of.key_type, names), _named_type(of.value_type, names)
            return MapType(of.key_id, key, of.value_id, value, of.value_required)
        case _:
            return of


def can_widen(theirs: NestedField, ours: IcebergType, spec: PartitionSpec) -> bool:
    """Whether a field of a table can be widened to a type of the source by an Iceberg promotion.

    A field that the table is partitioned by cannot: its partition values would have two types.
    """
    divides = any(f.source_id == theirs.field_id for f in divided_by(spec))
    return not divides and theirs.field_type != ours and promoted(theirs.field_type, ours)


def as_wide_as(source: RememberedSource, schema: Schema) -> RememberedSource:
    """Return the remembered ClickHouse table with types that hold what the lake table's hold.

    The owner of a lake table may widen its columns without an export. Columns of the partition key
    keep their types, which decide in which partition a row lies.

    Args:
        source: the ClickHouse table, as the lake table stores it.
        schema: of the lake table.
    """
    keys = {column.name for column in key_columns(source.table)}
    now = {f.name: f.field_type for f in schema.fields if f.name not in keys}
    mapped = {c.name: c.type for c in map_columns(source.table, source.conversions).columns}
    columns = tuple(
        _as_wide(column, mapped[column.name], now[column.name])
        if column.name in mapped and column.name in now
        else column
        for column in source.table.columns
    )
    return replace(source, table=replace(source.table, columns=columns))


def _as_wide(column: Column, mapped: IcebergType, now: IcebergType) -> Column:
    of = _wide_type(column.type, mapped, now)
    return column if of == column.type else replace(column, type=of, type_text=render_type(of))


_WIDENED_NUMBERS: Final = {
    **dict.fromkeys(("Int8", "Int16", "Int32", "UInt8", "UInt16"), Simple("Int64")),
    "Float32": Simple("Float64"),
}


def _wide_type(of: DataType, mapped: IcebergType, now: IcebergType) -> DataType:
    """Return a type of ClickHouse, which is mapped to one of Iceberg's, as wide as another."""
    match of, mapped, now:
        case Nullable(inner), _, _:
            return Nullable(_wide_type(inner, mapped, now))
        case LowCardinality(inner), _, _:
            return LowCardinality(_wide_type(inner, mapped, now))
        case Array(inner), ListType(), ListType():
            return Array(_wide_type(inner, mapped.element_type, now.element_type))
        case Map(key, value), MapType(), MapType():
            return Map(key, _wide_type(value, mapped.value_type, now.value_type))
        case Tuple(elements), StructType(), StructType():
            return Tuple(tuple(_wide_members(elements, mapped, now)))
        case Nested(elements), ListType(element_type=StructType() as one), ListType(
            element_type=StructType() as other
        ):
            found = _wide_members(elements, one, other)
            return Nested(tuple((str(name), inner) for name, inner in found))
        case Decimal(_, scale), DecimalType(), DecimalType() if promoted(mapped, now):
            return Decimal(now.precision, scale)
        case Simple(name), _, _ if name in _WIDENED_NUMBERS and promoted(mapped, now):
            return _WIDENED_NUMBERS[name]
        case _:
            return of


def _wide_members(
    elements: Iterable[tuple[str | None, DataType]], mapped: StructType, now: StructType
) -> Iterator[tuple[str | None, DataType]]:
    """Yield the members of a tuple; those that the lake table has no more are as they were."""
    there = {f.name: f.field_type for f in now.fields}
    for (name, inner), member in zip(elements, mapped.fields, strict=True):
        of = there.get(member.name, member.field_type)
        yield name, _wide_type(inner, member.field_type, of)


def _paths(path: tuple[str, ...], of: IcebergType) -> Iterator[tuple[str, ...]]:
    yield path
    members: tuple[NestedField, ...] = ()
    match of:
        case StructType():
            members = of.fields
        case ListType():
            members = (of.element_field,)
        case MapType():
            members = (of.key_field, of.value_field)
        case _:
            pass
    for f in members:
        yield from _paths((*path, f.name), f.field_type)


def divided_by(spec: PartitionSpec) -> tuple[PartitionField, ...]:
    """Return the fields of a spec except `void`.

    Removing a field from a version 1 table's spec leaves a `void` field.
    """
    return tuple(f for f in spec.fields if not isinstance(f.transform, VoidTransform))


def promoted(ours: IcebergType, theirs: IcebergType) -> bool:
    """Whether Iceberg promotes the first type to the second, or they are equal decimals."""
    match ours, theirs:
        case IntegerType(), LongType():
            return True
        case FloatType(), DoubleType():
            return True
        case DecimalType(), DecimalType():
            return ours.scale == theirs.scale and ours.precision <= theirs.precision
        case _:
            return False


def unreadable(now: Schema, written: Schema) -> str:
    """Return why rows of an earlier schema cannot be read by a later one, '' if they can.

    Readers find columns by their ids. What has other types, or lacks what is required, was not
    written for a schema that Iceberg's rules of evolution lead to: somebody replaced the table.
    """
    return "; ".join(_unreadable("", now.fields, written.fields))


def _unreadable(
    path: str, now: Iterable[NestedField], written: Iterable[NestedField]
) -> Iterator[str]:
    before = {f.field_id: f for f in written}
    for f in now:
        name, was = f"{path}{f.name}", before.get(f.field_id)
        if was is None and f.required:
            yield f"column {name} is required, and was not written"
        elif was is not None and f.required and was.optional:
            yield f"column {name} is required, and may have been written as NULL"
        elif was is not None:
            yield from _unreadable_type(name, f.field_type, was.field_type)


def _unreadable_type(name: str, now: IcebergType, written: IcebergType) -> Iterator[str]:
    match now, written:
        case StructType(), StructType():
            yield from _unreadable(f"{name}.", now.fields, written.fields)
        case ListType(), ListType():
            yield from _unreadable(f"{name}.", [now.element_field], [written.element_field])
        case MapType(), MapType():
            pairs = [now.key_field, now.value_field], [written.key_field, written.value_field]
            yield from _unreadable(f"{name}.", *pairs)
        case UUIDType(), FixedType() if len(written) == _BYTES_OF_UUID:
            # In Parquet a UUID may be plain bytes.
            return
        case _ if now != written and not promoted(written, now):
            yield f"column {name} is {now}, and was written as {written}"
        case _:
            return


def are_all_schemas(schemas: Sequence[Schema], last_column_id: int) -> bool:
    """Whether these are all schemas that a table ever had, with its highest id of a column.

    Owners may remove schemas to which no snapshot refers. Their numbers, or the ids of their
    columns, are missing then.
    """
    numbers = {s.schema_id for s in schemas}
    ids = max((i for s in schemas for i in s.field_ids), default=0)
    return numbers == {*range(max(numbers) + 1)} and ids == last_column_id

"""`--evolve-schema`: the schema that a table gets so that every field of ours has a place.

Only fields are added, all of them optional, at the end of their struct and with ids that the table
has never used; everything else of the table stays as it is (types.md, "Type evolution": files that
are already there have no values for a new field). The key of a map keeps its members.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tableformat.iceberg.schema import MappedColumns

__all__ = ["Evolution", "evolve", "stands_in_the_way"]


@dataclass(frozen=True, slots=True)
class Evolution:
    """The whole new schema, and what is new in it, each as `name (type)`, nested names dotted.

    `changed` are the columns that are new or hold something new.
    """

    schema: Schema
    added: tuple[str, ...]
    changed: frozenset[str]


def evolve(
    schema: Schema, spec: PartitionSpec, mapped: MappedColumns, last_column_id: int
) -> Evolution | None:
    """Return the schema with every field of ours that can be added, None when there is none.

    Args:
        schema: the table's current schema.
        spec: its default partition spec, whose field names no column may take.
        mapped: the columns to export.
        last_column_id: the highest id that the table has ever given.
    """
    growth = _Growth(schema, spec, itertools.count(last_column_id + 1))
    fields = growth.fields((), schema.fields, mapped.schema.fields)
    if not growth.added:
        return None
    grown = Schema(*fields, identifier_field_ids=schema.identifier_field_ids)
    added = tuple(f"{'.'.join(path)} ({of})" for path, of in growth.added)
    return Evolution(grown, added, frozenset(path[0] for path, _ in growth.added))


def stands_in_the_way(
    path: tuple[str, ...], new: NestedField, schema: Schema, spec: PartitionSpec
) -> str:
    """Return what has the name of a field that is to be added, '' when it is free.

    Taken is also what differs only in case, which Spark cannot tell apart, and what a dotted name
    and a member of a struct would share (types.md, trap 17).
    """
    taken = {name.lower(): name for name in schema.column_names}
    if len(path) == 1:
        taken |= {f.name.lower(): f"the partition field {f.name}" for f in spec.fields}
    names = (".".join(one).lower() for one in _paths(path, new.field_type))
    return next((taken[name] for name in names if name in taken), "")


@dataclass(frozen=True, slots=True)
class _Growth:
    schema: Schema
    spec: PartitionSpec
    ids: Iterator[int]
    added: list[tuple[tuple[str, ...], IcebergType]] = field(default_factory=list)

    def fields(
        self,
        path: tuple[str, ...],
        theirs: tuple[NestedField, ...],
        ours: tuple[NestedField, ...],
    ) -> tuple[NestedField, ...]:
        by_name = {f.name: f for f in ours}
        kept = [
            self._grown((*path, f.name), f, by_name[f.name]) if f.name in by_name else f
            for f in theirs
        ]
        known = {f.name for f in theirs}
        new = [
            self._new((*path, f.name), f)
            for f in ours
            if f.name not in known
            and not stands_in_the_way((*path, f.name), f, self.schema, self.spec)
        ]
        return (*kept, *new)

    def _new(self, path: tuple[str, ...], ours: NestedField) -> NestedField:
        self.added.append((path, ours.field_type))
        number = next(self.ids)
        of = self._fresh(ours.field_type)
        return NestedField(number, ours.name, of, required=False, doc=ours.doc)

    def _grown(self, path: tuple[str, ...], theirs: NestedField, ours: NestedField) -> NestedField:
        of = self._grown_type(path, theirs.field_type, ours.field_type)
        return theirs if of is theirs.field_type else theirs.model_copy(update={"field_type": of})

    def _grown_type(
        self, path: tuple[str, ...], theirs: IcebergType, ours: IcebergType
    ) -> IcebergType:
        match theirs, ours:
            case StructType(), StructType():
                fields = self.fields(path, theirs.fields, ours.fields)
                return theirs if fields == theirs.fields else StructType(*fields)
            case ListType(), ListType():
                element = self._grown(
                    (*path, "element"), theirs.element_field, ours.element_field
                ).field_type
                if element is theirs.element_type:
                    return theirs
                return ListType(theirs.element_id, element, theirs.element_required)
            case MapType(), MapType():
                value = self._grown(
                    (*path, "value"), theirs.value_field, ours.value_field
                ).field_type
                if value is theirs.value_type:
                    return theirs
                return MapType(
                    theirs.key_id, theirs.key_type, theirs.value_id, value, theirs.value_required
                )
            case _:
                return theirs

    def _fresh(self, of: IcebergType) -> IcebergType:
        """Return a type with ids of its own; what is required inside a new value stays required."""
        match of:
            case StructType():
                numbered = [(next(self.ids), f) for f in of.fields]
                return StructType(
                    *(
                        NestedField(i, f.name, self._fresh(f.field_type), required=f.required)
                        for i, f in numbered
                    )
                )
            case ListType():
                number = next(self.ids)
                return ListType(number, self._fresh(of.element_type), of.element_required)
            case MapType():
                key, value = next(self.ids), next(self.ids)
                return MapType(
                    key,
                    self._fresh(of.key_type),
                    value,
                    self._fresh(of.value_type),
                    of.value_required,
                )
            case _:
                return of


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

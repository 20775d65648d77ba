"""Checks whether an existing Iceberg table accepts the columns, and computes its evolved schema.

The check collects all differences in one message. It changes nothing.

* Fields are matched by name, also inside structs. They keep the table's ids and order.
* Types must be equal, or the table's type must hold each value by an Iceberg promotion (int to
  long, float to double, decimal of more digits).
* A field that only the table has stays NULL, so it must be optional. A nullable field of the
  source must be optional in the table.
* Values of the same type must have the meaning that the table holds (ticks of one unit, text of
  one form), as far as it stores the types of its source.
* The message names the remedy: a conversion, `--evolve-schema`, or SQL for the table's owner.

A missing field may be one that was renamed: the message names the statement for the table.

`conversions_in_force`: all files of a table use the same conversions, or one column would mix two
meanings. The table's stored conversions apply if `--convert` is omitted; a different one is
refused. Only `truncate` may be added later: existing values, whole microseconds, stay the same.
A conversion of a type (`--convert UInt64=long`) is one of every column with such values that has
no conversion of its own.

Source: docs/reference/existing-tables.md, docs/reference/types.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from tableformat.clickhouse_codes import BAD_ARGUMENTS, INCOMPATIBLE_COLUMNS, NOT_IMPLEMENTED
from tableformat.errors import Advice, RefusedError, Unable
from tableformat.iceberg.partition_spec import DerivedSpec, spec_matches
from tableformat.iceberg.properties import FORMAT_VERSION, RememberedSource
from tableformat.iceberg.schema import (
    MappedColumn,
    MappedColumns,
    TypeMapping,
    conversions_in,
    converted_types,
    meanings,
)
from tableformat.iceberg.schema_evolution import can_widen, divided_by, name_conflict, promoted
from tableformat.mergetree.conversions import DEFAULT_WORD, parse_conversion
from tableformat.mergetree.expression_parser import parse_partition_key
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.types import DataType, contains, render_type, type_matcher
from tableformat.messages import Option, convert
from tableformat.names import option_name, quote_identifier

__all__ = [
    "ExistingTable",
    "check_existing",
    "conversions_in_force",
    "existing_refusal",
    "written_schema",
]


_OTHER_TABLE: Final = "export to another table"
_OTHER_TREE: Final = "export to another tree, or to an Iceberg table"
_STRICT: Final = f", which {Option.STRICT} refuses; leave {Option.STRICT} out to allow it"
_OTHER_VERSIONS: Final = {
    1: (
        "version 1 has no sequence numbers, which concurrent exports need. Upgrade the table, "
        "which rewrites no file: ALTER TABLE {name} SET TBLPROPERTIES ('format-version'='2')"
    ),
    3: (
        "the library that writes manifests does not support version 3 yet, and a table cannot "
        "return to an older version. Export into a new table: one that does not exist is created"
    ),
}


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """An existing table: its `name` in SQL, current schema and default spec.

    `key` is the partition key that its properties store, None if they store none. `remembered` is
    their source. `new_fields` are the ids of fields of the schema that this export adds. `tree`: it
    is a tree of Hive directories, whose columns never change.
    """

    name: str
    schema: Schema
    spec: PartitionSpec
    format_version: int
    key: str | None = None
    remembered: RememberedSource | None = None
    new_fields: frozenset[int] = frozenset()
    tree: bool = False


@dataclass(frozen=True, slots=True)
class _Difference:
    """A difference that forbids an export: ClickHouse's code, a sentence, and its advice."""

    code: int
    text: str
    advice: Advice | None = None


def check_existing(
    existing: ExistingTable, mapped: MappedColumns, derived: DerivedSpec, *, strict: bool = False
) -> tuple[str, ...]:
    """Return every difference that forbids the export, one sentence each.

    Args:
        existing: the table.
        mapped: the columns to export.
        derived: the spec to export with.
        strict: also forbid another order of columns, and columns that only the table has.
    """
    return tuple(one.text for one in _differences(existing, mapped, derived, strict=strict))


def existing_refusal(
    subject: str,
    existing: ExistingTable,
    mapped: MappedColumns,
    derived: DerivedSpec,
    *,
    strict: bool = False,
) -> RefusedError | None:
    """Return the refusal to export to an existing table, None if it fits.

    Its code is ClickHouse's for the first difference: 48 for the format, 122 for the structure, 36
    for the partition key.

    Args:
        subject: what cannot be exported, as it follows the verb in the message.
        existing: the table.
        mapped: the columns to export.
        derived: the spec to export with.
        strict: as in `check_existing`.
    """
    found = tuple(_differences(existing, mapped, derived, strict=strict))
    if not found:
        return None
    advice = frozenset(one.advice for one in found if one.advice is not None)
    message = Unable(subject, tuple(one.text for one in found))
    return RefusedError(message, code=found[0].code, advice=advice)


def written_schema(schema: Schema, mapped: MappedColumns) -> Schema:
    """Return the part of a table's schema that an export's files have, in the table's order.

    Readers find no field for columns that only the table has, and return NULL.
    """
    return Schema(*_written(mapped.schema.fields, schema.fields))


def _differences(
    existing: ExistingTable, mapped: MappedColumns, derived: DerivedSpec, *, strict: bool
) -> Iterator[_Difference]:
    version = existing.format_version
    if version != FORMAT_VERSION:
        why = _OTHER_VERSIONS.get(version, "this release does not know it. Export into a new table")
        yield _Difference(
            NOT_IMPLEMENTED,
            f"Destination storage Iceberg of format version {version} does not support "
            "MergeTree parts or uses unsupported partitioning: only tables of format version "
            f"{FORMAT_VERSION} are written; {why.format(name=existing.name)}",
        )
    for one in _Comparison(existing, mapped).differences():
        text = f"Tables have different structure: column {one}"
        yield _Difference(INCOMPATIBLE_COLUMNS, text, one.advice)
    for text in _other_meanings(existing, mapped):
        difference = f"Tables have different structure: column {text}"
        yield _Difference(INCOMPATIBLE_COLUMNS, difference)
    if strict:
        ours, theirs = mapped.schema.as_struct(), existing.schema.as_struct()
        for text in _strict_differences((), ours, theirs):
            difference = f"Tables have different structure: {text}{_STRICT}"
            yield _Difference(INCOMPATIBLE_COLUMNS, difference)
    for f in existing.spec.fields:
        if f.source_id not in existing.schema.field_ids:
            yield _Difference(NOT_IMPLEMENTED, _dropped_column(f))
    spec = PartitionSpec(*divided_by(existing.spec))
    if different_key := spec_matches(derived, spec, existing.schema):
        yield _Difference(BAD_ARGUMENTS, different_key)
    elif other := _key_difference(existing, derived):
        yield _Difference(BAD_ARGUMENTS, other)


def _other_meanings(existing: ExistingTable, mapped: MappedColumns) -> Iterator[str]:
    """Yield a sentence for each value whose meaning differs from that of the values in the table.

    A stored conversion is in force if the column's type takes it, so no conversion helps.
    """
    if existing.remembered is None:
        return
    conversions = existing.remembered.conversions
    stored = {column.name: column for column in existing.remembered.table.stored_columns}
    names = existing.schema.column_names
    for column in mapped.columns:
        if column.name not in stored:
            continue
        before = parse_conversion(conversions.get(column.name, ""))
        held = meanings(stored[column.name].type, before)
        for place, now in meanings(column.source.type, parse_conversion(column.conversion)).items():
            name = ".".join((column.name, *place))
            if place not in held or not now.contradicts(held[place]) or name not in names:
                continue
            if existing.schema.find_field(name).field_id not in existing.new_fields:
                another = f"{_OTHER_TABLE}, or add a column of another name in ClickHouse"
                yield (
                    f"{name} holds {held[place]} in the destination, and the export would add "
                    f"{now}; {_OTHER_TREE if existing.tree else another}"
                )


def _key_difference(existing: ExistingTable, derived: DerivedSpec) -> str:
    """Return a sentence if the spec comes from another key and the user did not name it, else ''.

    Partitions are named by the key that the table stores, so with another key one name would mean
    rows of two partitions.
    """
    if derived.chosen or existing.key is None:
        return ""
    if parse_partition_key(existing.key) == parse_partition_key(derived.key):
        return ""
    return (
        f"Tables have different partition key: PARTITION BY {derived.key or 'tuple()'}, and the "
        f"destination remembers PARTITION BY {existing.key or 'tuple()'}, by which its partitions "
        f"are named; both are the spec '{derived}', which {Option.PARTITION_SPEC} '{derived}' "
        "chooses"
    )


def _strict_differences(
    path: tuple[str, ...], ours: IcebergType, theirs: IcebergType
) -> Iterator[str]:
    """Yield the further differences of two types that `--strict` refuses.

    Members that the table lacks or requires are differences anyway and not repeated here.
    """
    match ours, theirs:
        case StructType(), StructType():
            pass
        case ListType(), ListType():
            yield from _strict_differences(
                (*path, "element"), ours.element_type, theirs.element_type
            )
            return
        case MapType(), MapType():
            yield from _strict_differences((*path, "key"), ours.key_type, theirs.key_type)
            yield from _strict_differences((*path, "value"), ours.value_type, theirs.value_type)
            return
        case _:
            return
    here, there = [f.name for f in ours.fields], [f.name for f in theirs.fields]
    for f in theirs.fields:
        if f.name not in here and not f.required:
            yield f"column {'.'.join((*path, f.name))} is in the destination alone"
    both = [name for name in here if name in there]
    if both != (as_there := [name for name in there if name in here]):
        of = f"the members of {'.'.join(path)}" if path else "the columns"
        yield (
            f"{of} are {', '.join(both)} in the source, and {', '.join(as_there)} in the "
            "destination, in this order"
        )
    by_name = {f.name: f for f in theirs.fields}
    for f in ours.fields:
        if f.name in by_name:
            yield from _strict_differences(
                (*path, f.name), f.field_type, by_name[f.name].field_type
            )


def _dropped_column(of: PartitionField) -> str:
    return (
        "Destination storage Iceberg does not support MergeTree parts or uses unsupported "
        f"partitioning: the column of its partition field {of.name} was dropped, so an export has "
        "no values for it. Export into a new table: one that does not exist is created"
    )


@dataclass(frozen=True, slots=True)
class _FieldPath:
    """The names of a field from its column down."""

    path: tuple[str, ...]
    in_map_key: bool = False

    def within(self, name: str, *, in_map_key: bool = False) -> _FieldPath:
        return _FieldPath((*self.path, name), self.in_map_key or in_map_key)

    @property
    def sql(self) -> str:
        """The field in the syntax of ALTER COLUMN."""
        return ".".join(n if n.isidentifier() else quote_identifier(n) for n in self.path)

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class _Column:
    """The difference of a column, and the remedies."""

    what: str
    ways: tuple[str, ...] = ()
    advice: Advice | None = None

    def __str__(self) -> str:
        return "; ".join((self.what, *self.ways))


class _Comparison:
    """Compares the columns of an export with an existing table's."""

    def __init__(self, existing: ExistingTable, mapped: MappedColumns) -> None:
        self._existing = existing
        self._mapped = mapped

    def differences(self) -> Iterator[_Column]:
        for one in self._differences():
            # Neither a statement nor an option changes the columns of a tree.
            yield _Column(one.what, (_OTHER_TREE,)) if self._existing.tree else one

    def _differences(self) -> Iterator[_Column]:
        theirs = {f.name: f for f in self._existing.schema.fields}
        renamed = self._renamed((), self._mapped.schema.fields, self._existing.schema.fields)
        for column, ours in zip(self._mapped.columns, self._mapped.schema.fields, strict=True):
            place = _FieldPath((ours.name,))
            if ours.name not in theirs:
                yield self._missing(place, ours, renamed.get(ours.name))
                continue
            found = tuple(self._field(place, ours, theirs[ours.name]))
            way = self._conversion(column, theirs[ours.name]) if found else ""
            for one in found:
                if way:
                    option = f"{convert(option_name(column.name), way)} makes them equal"
                    yield replace(one, ways=(*one.ways, option))
                else:
                    yield replace(one, ways=one.ways or (self._no_conversion(column),))
        known = {f.name for f in (*self._mapped.schema.fields, *renamed.values())}
        for f in self._existing.schema.fields:
            if f.name not in known and f.required:
                yield self._unknown(_FieldPath((f.name,)))

    def _conversion(self, column: MappedColumn, theirs: NestedField) -> str:
        """Return a conversion that removes all differences of a column, '' if there is none."""
        if self._has_conversion(column):
            return ""
        offered = conversions_in(column.source.type).values()
        ways = dict.fromkeys(way for words in offered for way in words)
        if isinstance(theirs.field_type, DecimalType):
            # The offer is generic (any decimal); try the table's own type.
            ways[str(theirs.field_type).replace(" ", "")] = None
        for way in ways:
            mapping = TypeMapping(way)
            of, required = mapping.map(column.source.type)
            ours = NestedField(1, column.name, of, required=required)
            fits = mapping.converted and not mapping.refused and way != column.conversion
            if fits and not any(self._field(_FieldPath((column.name,)), ours, theirs)):
                return way
        return ""

    def _no_conversion(self, column: MappedColumn) -> str:
        """Return the advice for a column that no conversion can make equal."""
        return _OTHER_TABLE if self._has_conversion(column) else "no conversion makes them equal"

    def _has_conversion(self, column: MappedColumn) -> bool:
        """Whether the table stores the conversion of a column, so that it takes no other one."""
        of = self._existing.remembered
        return of is not None and column.name in {c.name for c in of.table.stored_columns}

    def _field(
        self, place: _FieldPath, ours: NestedField, theirs: NestedField
    ) -> Iterator[_Column]:
        if theirs.required and not ours.required:
            what = f"{place} may be NULL in the source and is required in the destination"
            yield _Column(what, (self._allow_null(place),))
        yield from self._type(place, ours.field_type, theirs.field_type)

    def _type(self, place: _FieldPath, ours: IcebergType, theirs: IcebergType) -> Iterator[_Column]:
        match ours, theirs:
            case StructType(), StructType():
                yield from self._members(place, ours, theirs)
            case ListType(), ListType():
                element = place.within("element")
                yield from self._field(element, ours.element_field, theirs.element_field)
            case MapType(), MapType():
                key = place.within("key", in_map_key=True)
                yield from self._field(key, ours.key_field, theirs.key_field)
                value = place.within("value")
                yield from self._field(value, ours.value_field, theirs.value_field)
            case _ if ours == theirs or promoted(ours, theirs):
                return
            case _:
                yield self._other_type(place, ours, theirs)

    def _other_type(self, place: _FieldPath, ours: IcebergType, theirs: IcebergType) -> _Column:
        """Return the difference of a type, with the statement that widens it if there is one."""
        what = f"{place} is {ours} for ClickHouse and {theirs} in the destination"
        if not promoted(theirs, ours) or place.in_map_key:
            return _Column(what)
        by_hand = f"{self._alter(place)} TYPE {_spark_type(ours)}"
        schema = self._existing.schema
        if can_widen(schema.find_field(str(place)), ours, self._existing.spec):
            way = f"{Option.EVOLVE_SCHEMA} widens it, or {by_hand}"
            return _Column(what, (way,), Advice.EVOLVE_SCHEMA)
        return _Column(what, (f"widen it there: {by_hand}",))

    def _members(
        self, place: _FieldPath, ours: StructType, theirs: StructType
    ) -> Iterator[_Column]:
        have = {f.name: f for f in theirs.fields}
        renamed = {} if place.in_map_key else self._renamed(place.path, ours.fields, theirs.fields)
        for f in ours.fields:
            if f.name in have:
                yield from self._field(place.within(f.name), f, have[f.name])
            else:
                yield self._missing(place.within(f.name), f, renamed.get(f.name))
        known = {f.name for f in (*ours.fields, *renamed.values())}
        for f in theirs.fields:
            if f.name not in known and f.required:
                yield self._unknown(place.within(f.name))

    def _renamed(
        self, path: tuple[str, ...], ours: tuple[NestedField, ...], theirs: tuple[NestedField, ...]
    ) -> dict[str, NestedField]:
        """Return the fields of the table that the source may have renamed, by the new name.

        Such a field has the same position, a type that fits, and a name that the source lacks. The
        table has no field of the new name.
        """
        here, there = {f.name for f in ours}, {f.name for f in theirs}
        return {
            f.name: other
            for f, other in zip(ours, theirs, strict=False)
            if f.name not in there
            and other.name not in here
            and not self._taken((*path, f.name), f)
            and not any(self._field(_FieldPath((*path, f.name)), f, other))
        }

    def _taken(self, path: tuple[str, ...], ours: NestedField) -> str:
        return name_conflict(path, ours, self._existing.schema, self._existing.spec)

    def _missing(
        self, place: _FieldPath, ours: NestedField, renamed: NestedField | None
    ) -> _Column:
        what = f"{place} ({ours.field_type}) is missing in the destination"
        if renamed is not None:
            return self._renaming(place, what, renamed)
        if place.in_map_key:
            what += ", and the key of a map keeps its members"
            return _Column(what, ("choose another destination",))
        if other := self._taken(place.path, ours):
            what += f", and cannot be added next to {other}"
            return _Column(what, ("rename one of them",))
        return _Column(what, (f"{Option.EVOLVE_SCHEMA} adds it",), Advice.EVOLVE_SCHEMA)

    def _renaming(self, place: _FieldPath, what: str, theirs: NestedField) -> _Column:
        """Return the statement that renames a field in the table, and the alternatives."""
        old = _FieldPath((*place.path[:-1], theirs.name))
        new = _FieldPath(place.path[-1:])
        renames = f"ALTER TABLE {self._existing.name} RENAME COLUMN {old.sql} TO {new.sql}"
        null = f"{self._allow_null(old)}, and " if theirs.required else ""
        return _Column(
            f"{what}, which has {old} ({theirs.field_type}) in its place",
            (
                f"if it was renamed, rename it there: {renames}",
                f"otherwise {null}{Option.EVOLVE_SCHEMA} adds it",
            ),
        )

    def _unknown(self, place: _FieldPath) -> _Column:
        what = f"{place} is required in the destination, and the source has no such column"
        return _Column(what, (self._allow_null(place),))

    def _allow_null(self, place: _FieldPath) -> str:
        if place.in_map_key:
            return "choose another destination"
        return f"allow NULL there: {self._alter(place)} DROP NOT NULL"

    def _alter(self, place: _FieldPath) -> str:
        return f"ALTER TABLE {self._existing.name} ALTER COLUMN {place.sql}"


def _spark_type(of: IcebergType) -> str:
    return "bigint" if isinstance(of, LongType) else str(of).replace(" ", "")


def _written(
    ours: tuple[NestedField, ...], theirs: tuple[NestedField, ...]
) -> tuple[NestedField, ...]:
    ours_by_name = {f.name: f for f in ours}
    return tuple(_field_of(ours_by_name[f.name], f) for f in theirs if f.name in ours_by_name)


def _field_of(ours: NestedField, theirs: NestedField) -> NestedField:
    of = _type_of(ours.field_type, theirs.field_type)
    return NestedField(theirs.field_id, theirs.name, of, required=theirs.required)


def _type_of(ours: IcebergType, theirs: IcebergType) -> IcebergType:
    match ours, theirs:
        case StructType(), StructType():
            return StructType(*_written(ours.fields, theirs.fields))
        case ListType(), ListType():
            element = _field_of(ours.element_field, theirs.element_field)
            return ListType(element.field_id, element.field_type, element_required=element.required)
        case MapType(), MapType():
            key = _field_of(ours.key_field, theirs.key_field)
            value = _field_of(ours.value_field, theirs.value_field)
            return MapType(
                key.field_id,
                key.field_type,
                value.field_id,
                value.field_type,
                value_required=value.required,
            )
        case _:
            return theirs


def conversions_in_force(
    subject: str,
    table: MergeTreeTable,
    given: Mapping[str, str],
    remembered: RememberedSource | None,
) -> Mapping[str, str]:
    """Return the conversions to export with, by column.

    A conversion of a type is applied to its columns. A stored conversion is dropped if the column's
    type has changed and it no longer applies; the column is then compared with the table like every
    other.

    Args:
        subject: what cannot be exported, as it follows the verb in the message.
        table: the source.
        given: the user's conversions, by column or by type.
        remembered: the source that the destination stores, None for a new or foreign table.

    Raises:
        RefusedError: the user's conversions differ from those of the table, or the conversion of a
            type cannot be applied to a column (code 36).
    """
    used, of_types = _of_columns(subject, table, given)
    if remembered is None:
        return used
    made_with = remembered.conversions
    known = {column.name for column in remembered.table.stored_columns}
    reasons = []
    for column in table.stored_columns:
        before = made_with.get(column.name, "")
        name = option_name(column.name)
        chosen = used.get(column.name)
        if chosen is None and before and _applies(column, before):
            used[column.name] = before
        elif chosen is not None and column.name in known and not _same(column, chosen, before):
            of_type = of_types.get(column.name)
            keep = f" keep it with {convert(name, before or DEFAULT_WORD)}," if of_type else ""
            was = f"with {convert(name, before)}" if before else "without a conversion"
            reasons.append(
                f"{of_type or convert(name, chosen)} was given, but the destination's column "
                f"{column.name} was created {was}; leave it out,{keep} or export to another "
                "destination"
            )
    if reasons:
        raise RefusedError(Unable(subject, tuple(reasons)), code=BAD_ARGUMENTS)
    return used


def _of_columns(
    subject: str, table: MergeTreeTable, given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return conversions by column, and the option of each that the conversion of a type gave.

    A name that is both a column and a type is the column. A name that is neither stays in the
    result, where the mapping refuses it.

    Raises:
        RefusedError: the conversion of a type does not apply to it, or applies to other types in a
            column, too.
    """
    columns = {column.name for column in table.stored_columns}
    types = {
        name: is_named
        for name in given
        if name not in columns and (is_named := type_matcher(name)) is not None
    }
    used = {name: how for name, how in given.items() if name not in types}
    of_types: dict[str, str] = {}
    reasons: list[str] = []
    for column in table.stored_columns:
        named = [name for name, is_named in types.items() if contains(column.type, is_named)]
        if column.name in given or not named:
            continue
        options = " and ".join(convert(option_name(name), given[name]) for name in named)
        way, *others = dict.fromkeys(str(parse_conversion(given[name])) for name in named)
        why = _why_not_of_type(column, way, [types[name] for name in named])
        if others:
            why = "are different, and a column has one conversion"
        if why:
            name = option_name(column.name)
            reasons.append(
                f"column {column.name}: {options} {why}; choose {convert(name, 'HOW')}, or "
                f"{convert(name, DEFAULT_WORD)} for none"
            )
        elif way:
            used[column.name] = way
            of_types[column.name] = options
    if reasons:
        raise RefusedError(Unable(subject, tuple(reasons)), code=BAD_ARGUMENTS)
    return used, of_types


def _why_not_of_type(
    column: Column, conversion: str, named: Sequence[Callable[[DataType], bool]]
) -> str:
    """Return why a conversion of types cannot be that of a column, '' if it can."""
    if not conversion:
        return ""

    def is_named(of: DataType) -> bool:
        return any(matches(of) for matches in named)

    meant, others = converted_types(column.type, conversion, is_named)
    if others:
        more = ", ".join(dict.fromkeys(render_type(of) for of in others))
        return f"would also convert {more} inside it"
    if not meant:
        offered = conversions_in(column.type)
        takes = "; ".join(f"{of}: {', '.join(ways)}" for of, ways in offered.items())
        more = f", which takes, by ClickHouse type, {takes}" if takes else ""
        return f"does not apply to the ClickHouse type {column.type_text}{more}"
    return ""


def _applies(column: Column, conversion: str) -> bool:
    mapping = TypeMapping(conversion)
    mapping.map(column.type)
    return mapping.converted


def _same(column: Column, one: str, other: str) -> bool:
    """Whether two conversions give the same values; '' and the name of the default are equal."""
    if one == other or (one, other) == ("truncate", ""):
        return True
    mappings = [TypeMapping(way) for way in (one, other)]
    types = [str(mapping.map(column.type)) for mapping in mappings]
    return types[0] == types[1] and mappings[0].notes == mappings[1].notes

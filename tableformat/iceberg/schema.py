"""Maps a MergeTree table's columns to an Iceberg schema (docs/reference/types.md).

`map_columns` decides which columns are exported, with which names and types, and collects all
refusals. `TypeMapping` maps the type of one column to an Iceberg type, with notes and refusals.
`meanings` lists what the stored values stand for: ticks of a unit, text of a form.
`mergetree/wire_types.py` maps a single value to its wire type, which decides the Iceberg type here,
and has the column's SELECT expression. A type that is not listed is refused, never guessed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pyiceberg.schema import Schema, assign_fresh_schema_ids, make_compatible_name
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
from tableformat.errors import InternalError, RefusedError, Unable
from tableformat.mergetree.conversions import (
    DEFAULT,
    Conversion,
    Faithfulness,
    Handling,
    Meaning,
    WireValue,
    parse_conversion,
)
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.types import (
    AggregateFunction,
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    FixedString,
    LowCardinality,
    Map,
    Nested,
    Nullable,
    Simple,
    SimpleAggregateFunction,
    Tuple,
    render_type,
)
from tableformat.mergetree.wire_types import (
    alternatives_of,
    conversions_of,
    element_name,
    find_value,
    takes,
)
from tableformat.messages import Option, convert
from tableformat.names import SOURCE_ALIAS, option_name

__all__ = [
    "MappedColumn",
    "MappedColumns",
    "Refusal",
    "TypeMapping",
    "conversions_in",
    "converted_types",
    "map_columns",
    "meanings",
]

_NO_CONVERSIONS: Final[Mapping[str, str]] = MappingProxyType({})
# Iceberg's metadata columns, which readers resolve to the file or position, and our own alias.
_RESERVED: Final = frozenset(
    (
        "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id",
        "_last_updated_sequence_number", "_change_type", "_change_ordinal", "_commit_snapshot_id",
        SOURCE_ALIAS,
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """One exported column. `doc` has the comment, and facts that the Iceberg type does not show.

    `conversion` is the user's choice, '' for the default. Nested ids in `type` are those of the
    unassigned schema; a created table has its own.
    """

    source: Column
    conversion: str
    type: IcebergType
    required: bool
    doc: str
    faithfulness: Faithfulness

    @property
    def name(self) -> str:
        """The column's name, equal on both sides."""
        return self.source.name


@dataclass(frozen=True, slots=True)
class MappedColumns:
    """The exported columns in declared order, and the schema of a new table."""

    columns: tuple[MappedColumn, ...]
    schema: Schema

    def find(self, name: str) -> MappedColumn | None:
        """Return the column of that name, or None."""
        return next((c for c in self.columns if c.name == name), None)

    @property
    def conversions(self) -> dict[str, str]:
        """The conversions in force, by column."""
        return {c.name: c.conversion for c in self.columns if c.conversion}


def map_columns(
    table: MergeTreeTable,
    conversions: Mapping[str, str] = _NO_CONVERSIONS,
    *,
    strict: bool = False,
) -> MappedColumns:
    """Map every stored column of `table`.

    Args:
        table: as the source describes it.
        conversions: `--convert` by column name; a conversion applies to every value of a fitting
            type inside the column, also in arrays, tuples and maps.
        strict: refuse columns whose values would change kind (class B) without a conversion.

    Raises:
        RefusedError: one or more columns cannot be exported; every reason is listed (code 48).
    """
    known = {c.name for c in table.stored_columns}
    reasons = [
        f"{Option.CONVERT} names the column {name}, which {table.name} does not store; its columns "
        f"are {', '.join(c.name for c in table.stored_columns)}"
        for name in conversions
        if name not in known
    ]
    drafts = [
        _draft(column, conversions.get(column.name, ""), table.server_zone, reasons, strict=strict)
        for column in table.stored_columns
    ]
    reasons.extend(_text_refusals(table))
    if not drafts:
        reasons.append(f"{table.name} has no stored columns")
    fields = [
        NestedField(i, d.name, d.type, doc=d.doc or None, required=d.required)
        for i, d in enumerate(drafts, start=1)
    ]
    reasons.extend(_name_refusals(fields))
    if reasons:
        raise RefusedError(Unable(str(table.name), tuple(reasons)), code=NOT_IMPLEMENTED)
    schema = assign_fresh_schema_ids(Schema(*fields))
    return MappedColumns(
        tuple(
            MappedColumn(d.source, d.conversion, f.field_type, d.required, d.doc, d.faithfulness)
            for d, f in zip(drafts, schema.fields, strict=True)
        ),
        schema,
    )


def _draft(
    column: Column, conversion: str, server_zone: str, reasons: list[str], *, strict: bool
) -> MappedColumn:
    conversion = str(parse_conversion(conversion))
    mapping = TypeMapping(conversion, server_zone)
    mapped, required = mapping.map(column.type)
    where = f"column {column.name}: "
    reasons.extend(
        f"{where}{refusal.why} (its type is {column.type_text}); "
        f"{refusal.way_round.replace('{column}', option_name(column.name))}"
        for refusal in mapping.refused
    )
    if conversion and not mapping.converted:
        reasons.append(f"{where}{_wrong_conversion(column, conversion)}")
    if strict and mapping.changed and not mapping.refused:
        reasons.append(
            f"{where}ClickHouse type {column.type_text} would change kind to {mapped} "
            f"({'; '.join(mapping.notes)}), which {Option.STRICT} refuses; leave {Option.STRICT} "
            "out to allow it"
        )
    doc = " ".join(
        part
        for part in (column.comment, f"({'; '.join(mapping.notes)})" if mapping.notes else "")
        if part
    )
    return MappedColumn(column, conversion, mapped, required, doc, mapping.faithfulness)


def _wrong_conversion(column: Column, conversion: str) -> str:
    offered = conversions_in(column.type)
    takes = "; ".join(f"{of}: {', '.join(ways)}" for of, ways in offered.items())
    return (
        f"{convert(option_name(column.name), conversion)} does not apply to the ClickHouse type "
        f"{column.type_text}; "
        + (f"available are, by ClickHouse type, {takes}" if takes else "it takes no conversion")
    )


def _text_refusals(table: MergeTreeTable) -> Iterator[str]:
    """Yield a reason for each definition that is not UTF-8; lake tables cannot store it."""
    keys = (table.engine.partition_by, table.engine.order_by, table.engine.primary_key)
    texts = {"the table's keys": "".join(keys)}
    for column in table.columns:
        words = (column.name, column.type_text, column.default_expression, column.comment)
        texts[f"column {column.name}"] = "".join(words)
    for what, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            shown = what.encode(errors="surrogateescape").decode(errors="backslashreplace")
            yield (
                f"{shown}: the definition (name, type, default, comment) holds bytes that "
                "are not UTF-8; write it in UTF-8 with ALTER TABLE"
            )


def _name_refusals(fields: list[NestedField]) -> Iterator[str]:
    """Yield why names cannot be in one table (docs/reference/types.md, Names)."""
    for column in fields:
        if column.name in _RESERVED:
            yield (
                f"column {column.name}: that name is taken by Iceberg or by mergeberg itself; "
                "rename the column with ALTER TABLE … RENAME COLUMN"
            )
    paths = list(_paths(fields, ""))
    for path in paths:
        if "\0" in path:
            yield (
                f"column {path!r}: the name holds a NUL character, which Arrow ends names with; "
                "rename the column or the member"
            )
    for path, count in Counter(paths).items():
        if count > 1:
            yield (
                f"column {path}: two fields have this name, a column and a member of a column; "
                "rename one of them"
            )
    folded: dict[str, set[str]] = {}
    for path in paths:
        folded.setdefault(path.lower(), set()).add(path)
    for same in folded.values():
        if len(same) > 1:
            names = " and ".join(sorted(same))
            yield (
                f"columns {names}: the names differ only in case, which Spark cannot distinguish; "
                "rename one of them"
            )
    yield from _written_clashes(fields)


def _written_clashes(fields: tuple[NestedField, ...] | list[NestedField]) -> Iterator[str]:
    """Yield names that Iceberg's escaping makes equal inside a Parquet file."""
    written: dict[str, str] = {}
    for f in fields:
        other = written.setdefault(make_compatible_name(f.name), f.name)
        if other != f.name:
            yield (
                f"columns {other} and {f.name}: both are written as "
                f"{make_compatible_name(f.name)}; rename one of them"
            )
        yield from _written_clashes(_members(f.field_type))


def _paths(fields: tuple[NestedField, ...] | list[NestedField], prefix: str) -> Iterator[str]:
    for f in fields:
        yield f"{prefix}{f.name}"
        yield from _paths(_members(f.field_type), f"{prefix}{f.name}.")


def _members(of: IcebergType) -> tuple[NestedField, ...]:
    match of:
        case StructType():
            return of.fields
        case ListType():
            return (of.element_field,)
        case MapType():
            return (of.key_field, of.value_field)
        case _:
            return ()


_A, _B, _C = Faithfulness.LOSSLESS, Faithfulness.OTHER_KIND, Faithfulness.CHECKED
_PRIMITIVE: Final[dict[str, IcebergType]] = {
    "Int8": IntegerType(),
    "Int16": IntegerType(),
    "Int32": IntegerType(),
    "Int64": LongType(),
    "UInt8": IntegerType(),
    "UInt16": IntegerType(),
    "UInt32": LongType(),
    "UInt64": LongType(),
    "Float32": FloatType(),
    "Float64": DoubleType(),
    "Bool": BooleanType(),
    "Date32": DateType(),
    "UUID": UUIDType(),
}


_LEAVE: Final = "drop the column or keep the value in a column of another type"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a type has no mapping, and the remedy; `{column}` in it stands for the column's name."""

    why: str
    way_round: str


@dataclass(slots=True)
class TypeMapping:
    """Maps the type of one column and collects notes and refusals.

    `notes` name changes of kind and facts that the Iceberg type does not show. `refused` lists
    types without a mapping. `converted`: `conversion` applied to some value. `changed`: a value
    changes kind without a conversion by the user. Field ids are taken from `ids`.
    """

    conversion: str = ""
    server_zone: str = ""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    faithfulness: Faithfulness = Faithfulness.LOSSLESS
    notes: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    converted: bool = False
    changed: bool = False

    def map(self, of: DataType) -> tuple[IcebergType, bool]:
        """Return the Iceberg type and whether a value is required; check `refused` afterwards."""
        return self._map(of, parse_conversion(self.conversion))

    def _map(self, of: DataType, conversion: Conversion) -> tuple[IcebergType, bool]:
        chosen = takes(of, conversion)
        self.converted = self.converted or chosen
        found = find_value(of, conversion)
        if found is Handling.REFUSED:
            return self._refuse(of), True
        if isinstance(found, WireValue):
            return self._value(of, found, chosen=chosen)
        match of:
            case Nullable(inner):
                mapped, _ = self._map(inner, conversion)
                if isinstance(mapped, ListType | MapType):
                    self._refuse_null(inner)
                return mapped, False
            case LowCardinality(inner):
                return self._map(inner, conversion)
            case SimpleAggregateFunction(function, inner):
                self.notes.append(f"{function}, of rows that may not be merged yet")
                return self._map(inner, conversion)
            case AggregateFunction(_, value) if value is not None:
                self._record(_B, chosen=chosen)
                self.notes.append(f"value of {render_type(of)}")
                return self._map(value, DEFAULT)
            case Array(inner):
                element, required = self._map(inner, conversion)
                return ListType(next(self.ids), element, element_required=required), True
            case Nested(elements):
                struct = self._struct(elements, conversion)
                return ListType(next(self.ids), struct, element_required=True), True
            case Map(key, value):
                self._record(_C)
                key_type, _ = self._map(key, conversion)
                value_type, required = self._map(value, conversion)
                ids = next(self.ids), next(self.ids)
                mapped = MapType(ids[0], key_type, ids[1], value_type, value_required=required)
                return mapped, True
            case Tuple(elements):
                return self._struct(elements, conversion), True
            case _:
                return self._alternatives(of, conversion, chosen=chosen), False

    def _value(self, of: DataType, value: WireValue, *, chosen: bool) -> tuple[IcebergType, bool]:
        self._record(value.faithfulness, chosen=chosen)
        if value.note:
            self._note(value.note)
        if isinstance(of, DateTime | DateTime64):
            self._note(f"zone {of.zone or self.server_zone}")
        return self._of_wire(value.type, is_text=value.is_text)

    def _of_wire(self, wire: DataType, *, is_text: bool) -> tuple[IcebergType, bool]:
        match wire:
            case Nullable(inner):
                return self._of_wire(inner, is_text=is_text)[0], False
            case Simple("String"):
                return StringType() if is_text else BinaryType(), True
            case Simple(name) if name in _PRIMITIVE:
                return _PRIMITIVE[name], True
            case Decimal(precision, scale):
                return DecimalType(precision, scale), True
            case FixedString(length):
                return FixedType(length), True
            case DateTime64():
                return TimestamptzType(), True
            case Array(inner):
                element, required = self._of_wire(inner, is_text=is_text)
                return ListType(next(self.ids), element, element_required=required), True
            case Tuple(elements):
                fields = (
                    (str(name), *self._of_wire(inner, is_text=is_text)) for name, inner in elements
                )
                return self._fields(fields), True
            case _:
                message = (
                    f"Cannot map {wire!r}: it is no wire type. This is a bug, please report it."
                )
                raise InternalError(message)

    def _struct(
        self, elements: tuple[tuple[str | None, DataType], ...], conversion: Conversion
    ) -> IcebergType:
        if any(name is None for name, _ in elements):
            self._record(_B)
            self._note("unnamed Tuple")
        return self._fields(
            (element_name(name, position), *self._map(inner, conversion))
            for position, (name, inner) in enumerate(elements)
        )

    def _alternatives(self, of: DataType, conversion: Conversion, *, chosen: bool) -> IcebergType:
        """Return the struct of a Variant: the name of the active type, and each alternative."""
        self._record(_B, chosen=chosen)
        members = alternatives_of(of)
        self._note(f"{'Geometry' if isinstance(of, Simple) else 'Variant'} as a struct")
        for member, inner in members:
            if member != render_type(inner):
                self._note(f"{member} is {render_type(inner)}")
        fields = ((member, self._map(inner, conversion)[0], False) for member, inner in members)
        return self._fields(itertools.chain([("type", StringType(), True)], fields))

    def _fields(self, members: Iterator[tuple[str, IcebergType, bool]]) -> StructType:
        return StructType(
            *(
                NestedField(next(self.ids), name, mapped, required=required)
                for name, mapped, required in members
            )
        )

    def _refuse(self, of: DataType) -> IcebergType:
        ways = conversions_of(of)
        if isinstance(of, Tuple):
            refusal = Refusal("an empty Tuple() has no Iceberg type", _LEAVE)
        elif ways:
            offered = " or ".join(convert("{column}", way) for way in ways)
            refusal = Refusal(
                f"ClickHouse type {render_type(of)} is exported only by a conversion",
                f"choose {offered}",
            )
        else:
            refusal = Refusal(
                f"ClickHouse type {render_type(of)} has no mapping in this release", _LEAVE
            )
        self.refused.append(refusal)
        return BinaryType()

    def _refuse_null(self, of: DataType) -> None:
        ways = " or ".join(convert("{column}", way) for way in conversions_of(of))
        why = f"ClickHouse has no list that may be NULL, as a Nullable({render_type(of)})"
        self.refused.append(Refusal(f"{why} would become", f"choose {ways}"))

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _record(self, faithfulness: Faithfulness, *, chosen: bool = False) -> None:
        # B outranks C: `strict` must see a change of kind; the checks use the types themselves.
        order = (_A, _C, _B)
        self.faithfulness = max(self.faithfulness, faithfulness, key=order.index)
        self.changed = self.changed or (faithfulness is _B and not chosen)


def meanings(of: DataType, conversion: Conversion = DEFAULT) -> dict[tuple[str, ...], Meaning]:
    """Return what each single value in a column means, by its place in the lake column.

    Args:
        of: the type of the column.
        conversion: the conversion in force.
    """
    found = find_value(of, conversion)
    if isinstance(found, WireValue):
        return _stored(found.type, found)
    if found is Handling.REFUSED:
        return {}
    match of:
        case Nullable(inner) | LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            return meanings(inner, conversion)
        case AggregateFunction(_, value):
            return {} if value is None else meanings(value)
        case Nested(elements):
            return _below("element", meanings(Tuple(elements), conversion))
        case _:
            places: dict[tuple[str, ...], Meaning] = {}
            for name, inner in _places_in(of):
                places |= _below(name, meanings(inner, conversion))
            return places


def _places_in(of: DataType) -> Iterable[tuple[str, DataType]]:
    match of:
        case Array(inner):
            return (("element", inner),)
        case Map(key, value):
            return (("key", key), ("value", value))
        case Tuple(elements):
            return ((element_name(name, n), inner) for n, (name, inner) in enumerate(elements))
        case _:
            return alternatives_of(of)


def _below(name: str, places: dict[tuple[str, ...], Meaning]) -> dict[tuple[str, ...], Meaning]:
    return {(name, *place): meaning for place, meaning in places.items()}


def _stored(wire: DataType, value: WireValue) -> dict[tuple[str, ...], Meaning]:
    match wire:
        case Nullable(inner):
            return _stored(inner, value)
        case Array() | Tuple():
            places: dict[tuple[str, ...], Meaning] = {}
            for name, inner in _places_in(wire):
                places |= _below(name, _stored(inner, value))
            return places
        case Simple("String"):
            kind = "string" if value.is_text else "binary"
        case Simple(name) if "Int" in name:
            kind = "integer"
        case Simple("Float32" | "Float64"):
            kind = "float"
        case Decimal(_, scale):
            kind = f"decimal of scale {scale}"
        case _:
            kind = render_type(wire)
    return {(): Meaning(kind, value.meaning)}


def conversions_in(of: DataType) -> dict[str, tuple[str, ...]]:
    """Return the possible values of `--convert` for a column, by each inner type that has any."""
    found: dict[str, tuple[str, ...]] = {}
    waiting = [of]
    while waiting:
        inner = waiting.pop()
        if ways := conversions_of(inner):
            found[render_type(inner)] = ways
        waiting.extend(reversed(_inside(inner)))
    return found


def converted_types(
    of: DataType, conversion: str, is_wanted: Callable[[DataType], bool]
) -> tuple[tuple[DataType, ...], tuple[DataType, ...]]:
    """Return the wanted types in a column that a conversion applies to, and others that it changes.

    Args:
        of: the type of the column.
        conversion: the text of the conversion.
        is_wanted: whether a type is meant; types inside it are meant, too.
    """
    chosen = parse_conversion(conversion)
    found: tuple[list[DataType], list[DataType]] = ([], [])
    waiting = [(of, False)]
    while waiting:
        inner, is_inside = waiting.pop()
        is_meant = is_inside or is_wanted(inner)
        if is_meant and takes(inner, chosen):
            found[0].append(inner)
        elif not is_meant and find_value(inner, chosen) != find_value(inner):
            found[1].append(inner)
        waiting.extend((one, is_meant) for one in reversed(_inside(inner)))
    return tuple(found[0]), tuple(found[1])


def _inside(of: DataType) -> tuple[DataType, ...]:
    match of:
        case Nullable(inner) | LowCardinality(inner) | Array(inner):
            return (inner,)
        case SimpleAggregateFunction(_, inner):
            return (inner,)
        case Tuple(elements) | Nested(elements):
            return tuple(inner for _, inner in elements)
        case Map(key, value):
            return (key, value)
        case _:
            return tuple(inner for _, inner in alternatives_of(of))

"""Maps the type of one ClickHouse column to an Iceberg type, with notes and refusals.

`mergetree/wire_types.py` maps a single value to its wire type, which decides the Iceberg type
here. `schema.py` applies this to the columns of a table. A type that is not listed is refused,
never guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

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

from tableformat.errors import InternalError
from tableformat.mergetree.conversions import (
    DEFAULT,
    Conversion,
    Faithfulness,
    Handling,
    WireValue,
    parse_conversion,
)
from tableformat.mergetree.type_text import render_type
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
)
from tableformat.mergetree.wire_types import (
    alternatives_of,
    conversions_of,
    element_name,
    find_value,
    takes,
)

__all__ = ["Refusal", "TypeMapping", "conversions_in"]

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
            offered = " or ".join(f"--convert {{column}}={way}" for way in ways)
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
        ways = " or ".join(f"--convert {{column}}={way}" for way in conversions_of(of))
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

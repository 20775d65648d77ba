"""Lake tables that differ from a mapped schema: each with the differences that forbid an export."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

__all__ = ["Mutated", "mutated_schemas"]

Path = tuple[str, ...]


@dataclass
class Mutated:
    """A schema, and what of it is in the way of an export: (path, kind of difference).

    A kind is `missing` (`fixed` in the key of a map), `extra`, `null` or `type`.
    """

    schema: Schema
    forbidden: list[tuple[str, str]] = field(default_factory=list)


@st.composite
def mutated_schemas(
    draw: st.DrawFn, of: Schema, *, forbidden: bool = True, first_id: int = 1
) -> Mutated:
    """A lake table's schema with other ids, made of `of` by any number of changes.

    Allowed are another order, wider types, optional fields and more optional fields; with
    `forbidden` also missing fields, more required ones, ones made required and other types.
    """
    change = _Change(draw, forbidden=forbidden, ids=itertools.count(first_id))
    fields = change.fields((), of.fields, fixed=False)
    return Mutated(Schema(*fields), sorted(change.found))


@dataclass
class _Change:
    draw: st.DrawFn
    forbidden: bool
    ids: Iterator[int]
    found: list[tuple[str, str]] = field(default_factory=list)
    extras: Iterator[int] = field(default_factory=itertools.count)

    def fields(
        self, path: Path, given: tuple[NestedField, ...], *, fixed: bool
    ) -> tuple[NestedField, ...]:
        kept: list[NestedField] = []
        for f in given:
            missing = "fixed" if fixed else "missing"
            if kept and self._forbids(missing, (*path, f.name)):
                continue
            kept.append(self.field((*path, f.name), f, fixed=fixed))
        if self._chance():
            kept.append(NestedField(next(self.ids), f"extra{next(self.extras)}", DateType()))
        extra = f"extra{next(self.extras)}"
        if self._forbids("extra", (*path, extra)):
            kept.append(NestedField(next(self.ids), extra, DateType(), required=True))
        return tuple(self.draw(st.permutations(kept)))

    def field(self, path: Path, f: NestedField, *, fixed: bool) -> NestedField:
        number = next(self.ids)
        required = f.required
        if required:
            required = not self._chance()
        elif self._forbids("null", path):
            required = True
        of = self.type(path, f.field_type, fixed=fixed)
        return NestedField(number, f.name, of, required=required)

    def type(self, path: Path, of: IcebergType, *, fixed: bool) -> IcebergType:
        if self._forbids("type", path):
            narrow = isinstance(of, LongType) and self._chance()
            return IntegerType() if narrow else _other(of)
        match of:
            case StructType():
                return StructType(*self.fields(path, of.fields, fixed=fixed))
            case ListType():
                element = self.field((*path, "element"), of.element_field, fixed=fixed)
                return ListType(
                    element.field_id, element.field_type, element_required=element.required
                )
            case MapType():
                key = next(self.ids)
                key_type = self.type((*path, "key"), of.key_type, fixed=True)
                value = self.field((*path, "value"), of.value_field, fixed=fixed)
                return MapType(
                    key, key_type, value.field_id, value.field_type, value_required=value.required
                )
            case _:
                return _wider(of) if self._chance() else of

    def _chance(self) -> bool:
        return self.draw(st.integers(0, 3)) == 0

    def _forbids(self, kind: str, path: Path) -> bool:
        if not self.forbidden or self.draw(st.integers(0, 7)) != 0:
            return False
        self.found.append((".".join(path), kind))
        return True


def _wider(of: IcebergType) -> IcebergType:
    match of:
        case IntegerType():
            return LongType()
        case FloatType():
            return DoubleType()
        case DecimalType():
            return DecimalType(min(38, of.precision + 3), of.scale)
        case _:
            return of


def _other(of: IcebergType) -> IcebergType:
    return StringType() if isinstance(of, BooleanType) else BooleanType()

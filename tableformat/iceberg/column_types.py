"""One ClickHouse type becomes one Iceberg type: the table of types.md section 3, row by row.

    A  lossless by type
    B  lossless, but another kind of value (an Enum becomes its label); `--strict` refuses it
    C  depends on the data, which is checked before the commit (`export/data_checks.py`)
    D  refused: no mapping, or none that the user did not ask for

`schema.py` applies this to the columns of a table. A type that is not listed is refused, never
guessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
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

from tableformat.mergetree.type_text import render_type
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    LowCardinality,
    Map,
    Nullable,
    Simple,
    Time64,
    Tuple,
)
from tableformat.mergetree.wire_types import element_name

__all__ = ["CONVERSIONS", "Faithfulness", "TypeMapping"]


class Faithfulness(StrEnum):
    """How a value stands in Iceberg. A column is B if anything inside is B, else C, else A."""

    LOSSLESS = "A"
    OTHER_KIND = "B"
    CHECKED = "C"


# What `--convert column=…` may say, by the ClickHouse type that it changes.
CONVERSIONS: Final[dict[str, tuple[str, ...]]] = {
    "String": ("string", "binary"),
    "UInt64": ("long",),
}

_A, _B, _C = Faithfulness.LOSSLESS, Faithfulness.OTHER_KIND, Faithfulness.CHECKED
_SIMPLE: Final[dict[str, tuple[IcebergType, Faithfulness, str]]] = {
    "Int8": (IntegerType(), _A, ""),
    "Int16": (IntegerType(), _A, ""),
    "Int32": (IntegerType(), _A, ""),
    "Int64": (LongType(), _A, ""),
    "UInt8": (IntegerType(), _A, ""),
    "UInt16": (IntegerType(), _A, ""),
    "UInt32": (LongType(), _A, ""),
    "UInt64": (DecimalType(20, 0), _A, ""),
    "Int128": (StringType(), _B, "decimal text"),
    "UInt128": (StringType(), _B, "decimal text"),
    "Int256": (StringType(), _B, "decimal text"),
    "UInt256": (StringType(), _B, "decimal text"),
    "Float32": (FloatType(), _A, ""),
    "Float64": (DoubleType(), _A, ""),
    "BFloat16": (FloatType(), _A, ""),
    "Bool": (BooleanType(), _A, ""),
    "String": (StringType(), _C, ""),
    "Date": (DateType(), _A, ""),
    "Date32": (DateType(), _A, ""),
    "Time": (LongType(), _B, "seconds"),
    "UUID": (UUIDType(), _A, ""),
}
_CONVERTED: Final[dict[tuple[str, str], tuple[IcebergType, Faithfulness, str]]] = {
    ("String", "string"): (StringType(), _C, ""),
    ("String", "binary"): (BinaryType(), _A, "bytes"),
    ("UInt64", "long"): (LongType(), _C, ""),
}
_GREATEST_PRECISION: Final = 38
_MICROSECONDS: Final = 6


@dataclass(slots=True)
class TypeMapping:
    """Maps the type of one column and gathers on the way what there is to say about it.

    `notes` say what changed kind or cannot be seen in the Iceberg type, `refused` what has no
    mapping, `converted` whether `conversion` applied anywhere. Field ids are taken from `ids`.
    """

    conversion: str = ""
    server_zone: str = ""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    faithfulness: Faithfulness = Faithfulness.LOSSLESS
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    converted: bool = False

    def map(self, of: DataType) -> tuple[IcebergType, bool]:
        """Return the Iceberg type and whether a value is required; see `refused` afterwards."""
        match of:
            case Nullable(inner):
                return self.map(inner)[0], False
            case LowCardinality(inner):
                return self.map(inner)
            case _:
                return self._present(of), True

    def _present(self, of: DataType) -> IcebergType:
        match of:
            case Simple(name) if name in _SIMPLE:
                return self._simple(name)
            case Decimal(precision, scale) if precision <= _GREATEST_PRECISION:
                self._is(_C)
                return DecimalType(precision, scale)
            case Decimal():
                return self._noted(StringType(), f"{render_type(of)} as decimal text")
            case FixedString(length):
                return FixedType(length)
            case DateTime(zone):
                self.notes.append(f"zone {zone or self.server_zone}")
                return TimestamptzType()
            case DateTime64(precision, zone):
                # Coarser than microseconds holds instants that Iceberg cannot; finer holds digits.
                self._is(_A if precision == _MICROSECONDS else _C)
                self.notes.append(f"zone {zone or self.server_zone}")
                return TimestamptzType()
            case Time64(precision):
                return self._noted(DecimalType(18, precision), f"{render_type(of)} as seconds")
            case Enum(bits, _):
                return self._noted(StringType(), f"label of Enum{bits}")
            case Array(inner):
                element, required = self.map(inner)
                return ListType(next(self.ids), element, element_required=required)
            case Map(key, value):
                self._is(_C)
                key_type, _ = self.map(key)
                value_type, required = self.map(value)
                return MapType(
                    next(self.ids), key_type, next(self.ids), value_type, value_required=required
                )
            case Tuple(elements) if elements:
                return self._struct(elements)
            case _:
                return self._refuse(of)

    def _simple(self, name: str) -> IcebergType:
        default = _SIMPLE[name]
        chosen = _CONVERTED.get((name, self.conversion))
        self.converted = self.converted or chosen is not None
        mapped, faithfulness, note = chosen or default
        self._is(faithfulness)
        if note:
            self.notes.append(f"{name} as {note}")
        return mapped

    def _struct(self, elements: tuple[tuple[str | None, DataType], ...]) -> IcebergType:
        if any(name is None for name, _ in elements):
            self._noted(StringType(), "unnamed Tuple")
        fields = []
        for position, (name, inner) in enumerate(elements):
            mapped, required = self.map(inner)
            fields.append(
                NestedField(next(self.ids), element_name(name, position), mapped, required=required)
            )
        return StructType(*fields)

    def _noted(self, mapped: IcebergType, note: str) -> IcebergType:
        self._is(_B)
        self.notes.append(note)
        return mapped

    def _refuse(self, of: DataType) -> IcebergType:
        self.refused.append(
            "an empty Tuple() has no Iceberg type"
            if isinstance(of, Tuple)
            else f"ClickHouse type {render_type(of)} has no mapping in this release"
        )
        return BinaryType()

    def _is(self, faithfulness: Faithfulness) -> None:
        # B is kept over C: `strict` must see that the kind changed, the checks look at the types.
        order = (_A, _C, _B)
        self.faithfulness = max(self.faithfulness, faithfulness, key=order.index)

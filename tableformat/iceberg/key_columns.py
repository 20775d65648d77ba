"""Decides whether a column's values stay distinct and keep their order in the lake.

The lake may hold another kind of value (`schema.py`): an Enum as its label, an IPv6 as text.
A partition for each value needs distinct values (`identifies`). A sort order needs values that
compare alike on both sides (`keeps_order`). Both use the ClickHouse type and the Iceberg type, so
they judge the result of a conversion.

    ClickHouse                        Iceberg                    distinct  in order
    Int*, UInt*                       int, long, decimal            yes    yes
    Int*, UInt* (128 bits and more)   string, fixed                 yes    no
    Bool                              boolean                       yes    yes
    String, FixedString               string, binary, fixed         yes    yes: unsigned bytes
    Date, Date32                      date                          yes    yes
    DateTime, DateTime64              timestamptz, long             yes    yes
    Decimal                           decimal of the same scale     yes    yes
    Decimal                           string                        yes    no
    Time, Time64, Interval            long, decimal                 yes    yes
    Enum                              int: the code                 yes    yes
    Enum                              string: the label             yes    no: sorted by code
    IPv4, IPv6                        long; fixed                   yes    yes
    IPv4, IPv6                        string                        yes    no
    UUID                              uuid, fixed, string           yes    no: low half first
    Float32, Float64, BFloat16        float, double                 no     no: NaN, -NaN, -0
    conversions that may change a value                             no     no

Floats have no sort order: Iceberg's order of -0 and -NaN differs from ClickHouse's. Only a scan of
every exported part could exclude both, and readers gain little from a sort order.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from tableformat.iceberg.schema import MappedColumn
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    Decimal,
    Enum,
    FixedString,
    LowCardinality,
    Nullable,
    Simple,
    SimpleAggregateFunction,
    Time64,
)

__all__ = ["INTEGERS", "UNSIGNED", "identifies", "keeps_order", "plain_type"]

UNSIGNED: Final = frozenset({"UInt8", "UInt16", "UInt32", "UInt64", "UInt128", "UInt256"})
INTEGERS: Final = UNSIGNED | {"Int8", "Int16", "Int32", "Int64", "Int128", "Int256"}


def plain_type(of: DataType) -> DataType:
    """Return the type of a single value, without wrappers such as Nullable and LowCardinality."""
    match of:
        case Nullable(inner) | LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            return plain_type(inner)
        case _:
            return of


def identifies(column: MappedColumn) -> bool:
    """Whether different values of the column are always different in the lake."""
    if keeps_order(column):
        return True
    match plain_type(column.source.type), column.type:
        case Simple(name), StringType() | FixedType() if name in INTEGERS:
            return True
        case Simple(name="IPv4" | "IPv6" | "UUID"), StringType() | FixedType() | UUIDType():
            return True
        case Decimal() | Enum() | Time64() | DateTime64() | Simple("Time"), StringType():
            return True
        case _:
            return False


def keeps_order(column: MappedColumn) -> bool:
    """Whether any two values of the column compare in the lake as in ClickHouse."""
    match plain_type(column.source.type), column.type:
        case Simple(name), IntegerType() | LongType() | DecimalType(scale=0):
            return name in INTEGERS or name in ("Time", "IPv4") or name.startswith("Interval")
        case Simple("Bool"), BooleanType():
            return True
        case Simple("String"), StringType() | BinaryType():
            # Any other conversion may have replaced bytes that are not UTF-8.
            return column.conversion in ("", "string", "binary")
        case FixedString(), FixedType() | StringType():
            return True
        case Simple("Date" | "Date32"), DateType():
            return True
        case DateTime(), TimestamptzType() | LongType():
            return True
        case DateTime64(), TimestamptzType():
            # A conversion to the same type can only have rounded.
            return not column.conversion
        case DateTime64(), LongType():
            return True
        case Decimal(_, scale), DecimalType(scale=kept):
            return scale == kept
        case Enum(), IntegerType():
            return True
        case Simple("IPv6"), FixedType():
            return True
        case Time64(precision), DecimalType(scale=kept):
            return precision == kept
        case Time64(), LongType():
            return not column.conversion
        case _:
            return False

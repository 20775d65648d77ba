"""Maps key expressions over numbers, texts and ids to the Iceberg transforms bucket and truncate.

By expression, source type and the lake's type:

    intDiv(x, N), x DIV N, intDiv(x, N) * N   unsigned integers        truncate[N]
    x - x % N                                 unsigned integers        truncate[N]
    icebergTruncate(N, x), x - positiveModulo(x, N)   all integers     truncate[N]
    bitShiftRight(x, k)                       all integers             truncate[2^k]
    icebergTruncate(N, d)                     Decimal, 18 digits       truncate[N]
    icebergTruncate(N, s), substringUTF8(s, 1, N), leftUTF8(s, N)      truncate[N] of a string
    substring(s, 1, N), left(s, N)            String as binary         truncate[N]
    icebergBucket(N, x)                       if both sides hash the same bytes: bucket[N]

`intDiv` and `%` round signed numbers towards zero and Iceberg's truncate rounds down, so -1 and 1
would share a partition. `substring` counts bytes and may cut a character. A UInt64 is hashed as a
long, which the lake has only by `--convert x=long`. `murmurHash3_32(x) % N` equals a bucket only
by accident (for some N and types) and is not recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from tableformat.errors import UsageError
from tableformat.iceberg.key_columns import INTEGERS, UNSIGNED, plain_type
from tableformat.iceberg.key_functions import DerivedField, function_name
from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.iceberg.spec_fields import GREATEST_ARGUMENT, SpecField
from tableformat.mergetree.conversions import WireValue, parse_conversion
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.type_text import parse_type
from tableformat.mergetree.types import DataType, DateTime64, Decimal, FixedString, Simple
from tableformat.mergetree.wire_types import find_value
from tableformat.names import option_name

__all__ = ["Width", "bucket_field", "kept_column", "truncate_field", "width"]

# ClickHouse's icebergTruncate takes no longer decimals.
_LONGEST_DECIMAL: Final = 18
_BITS: Final = 64
_SIGNED: Final = "rounds negative numbers towards zero, and Iceberg's truncate rounds them down"
_BYTES: Final = "counts bytes, and Iceberg's truncate of a string counts characters"
_MICROSECONDS: Final = 6
_OF_NUMBERS: Final = ("zero", "down", "shift", "iceberg")


@dataclass(frozen=True, slots=True)
class Width:
    """A truncation of a column to `number`.

    `rounds` is `down`, `zero` (towards it), `shift`, `iceberg`, `characters` or `bytes`.
    `wraps`: the result is a signed number of 64 bits, so the ends of the range are out of order.
    """

    column: str
    number: int
    rounds: str
    wraps: bool = False


def width(expression: Expression) -> Width | None:
    """Return the truncation that an expression computes, or None."""
    found = _width(expression)
    if found is None or isinstance(found.number, bool):
        return None
    return found if 0 < found.number <= GREATEST_ARGUMENT else None


def truncate_field(expression: Expression, columns: MappedColumns) -> DerivedField | str | None:
    """Return the truncate field of an expression, or why it has none.

    None: the expression is no truncation.
    """
    found = width(expression)
    if found is None:
        return None
    column = columns.find(found.column)
    if column is None:
        return f"cannot be used: the table stores no column {found.column}"
    why = _why_not_truncated(found, column)
    if why:
        return why
    of = plain_type(column.source.type)
    wraps = found.wraps and of in (Simple("Int64"), Simple("UInt64"))
    field = SpecField(found.column, "truncate", found.number)
    return DerivedField(field, exact=True, ordered=not wraps)


def bucket_field(expression: Expression, columns: MappedColumns) -> DerivedField | str | None:
    """Return the bucket field of an expression, or why it has none.

    None: the expression is no bucket.
    """
    match expression:
        case Call("icebergBucket", (Literal(int(n)), operand)) if 0 < n <= GREATEST_ARGUMENT:
            pass
        case _:
            return None
    column = kept_column(operand, columns)
    if column is None:
        return "is a bucket of something else than a column as the lake keeps it"
    of = _wire(column) if isinstance(operand, Call) else plain_type(column.source.type)
    if of is None or not _hashed_alike(of, column):
        long = plain_type(column.source.type) == Simple("UInt64")
        return (
            f"hashes {column.name} as ClickHouse keeps it, a {column.source.type_text}, and the "
            f"lake keeps it as {column.type}, which has another hash"
            f"{f'; --convert {option_name(column.name)}=long keeps the hash' if long else ''}"
        )
    return DerivedField(SpecField(column.name, "bucket", n), exact=True)


def kept_column(expression: Expression, columns: MappedColumns) -> MappedColumn | None:
    """Return the column whose lake value an expression computes, by itself or by a cast."""
    match expression:
        case ColumnName(name):
            return columns.find(name)
        case Call("CAST", (ColumnName(name), Literal(str(text)))):
            try:
                target = parse_type(text)
            except UsageError:
                return None
        case Call("toString", (ColumnName(name),)):
            target = Simple("String")
        case Call("toDateTime64", (ColumnName(name), Literal(6), *_)):
            target = DateTime64(_MICROSECONDS)
        case _:
            return None
    column = columns.find(name)
    if column is None:
        return None
    kept = _wire(column)
    if kept is None:
        return None
    given = plain_type(target)
    if isinstance(given, DateTime64) and isinstance(kept, DateTime64):
        return column if given.precision == kept.precision else None
    return column if given == kept else None


def _wire(column: MappedColumn) -> DataType | None:
    """Return the type to which a CAST yields the lake's value; None if no CAST does."""
    found = find_value(plain_type(column.source.type), parse_conversion(column.conversion))
    return plain_type(found.type) if isinstance(found, WireValue) and not found.sql else None


def _width(expression: Expression) -> Width | None:
    if not isinstance(expression, Call):
        return None
    match function_name(expression), expression.arguments:
        case "intDiv", (ColumnName(name), Literal(int(n))):
            return Width(name, n, "zero")
        case "multiply", (Call("intDiv", (ColumnName(name), Literal(int(n)))), Literal(int(m))) if (
            n == m
        ):
            return Width(name, n, "zero")
        case "minus", (ColumnName(name), Call() as rest):
            match function_name(rest), rest.arguments:
                case "modulo", (ColumnName(other), Literal(int(n))) if other == name:
                    return Width(name, n, "zero", wraps=True)
                case "positiveModulo", (ColumnName(other), Literal(int(n))) if other == name:
                    return Width(name, n, "down", wraps=True)
                case _:
                    return None
        case "bitShiftRight", (ColumnName(name), Literal(int(k))) if 0 <= k < _BITS:
            return Width(name, 2**k, "shift")
        case "icebergTruncate", (Literal(int(n)), ColumnName(name)):
            return Width(name, n, "iceberg", wraps=True)
        case "substringUTF8", (ColumnName(name), Literal(1), Literal(int(n))):
            return Width(name, n, "characters")
        case "leftUTF8", (ColumnName(name), Literal(int(n))):
            return Width(name, n, "characters")
        case "substring", (ColumnName(name), Literal(1), Literal(int(n))):
            return Width(name, n, "bytes")
        case "left", (ColumnName(name), Literal(int(n))):
            return Width(name, n, "bytes")
        case _:
            return None


def _why_not_truncated(found: Width, column: MappedColumn) -> str:
    of = plain_type(column.source.type)
    other = f"has no Iceberg transform when {column.name} is a {column.source.type_text}"
    match of, column.type:
        case Simple(name), IntegerType() | LongType() | DecimalType(scale=0) if name in INTEGERS:
            return _why_not_number(found, name) if found.rounds in _OF_NUMBERS else other
        case Decimal(precision, scale), DecimalType(scale=kept) if scale == kept:
            short = precision <= _LONGEST_DECIMAL
            return "" if found.rounds == "iceberg" and short else other
        case Simple("String"), StringType() if found.rounds in ("characters", "iceberg"):
            return ""
        case Simple("String"), StringType() if found.rounds == "bytes":
            return _BYTES
        case Simple("String"), BinaryType() if found.rounds == "bytes":
            return ""
        case _:
            return f"{other}, which the lake keeps as {column.type}"


def _why_not_number(found: Width, name: str) -> str:
    bits = int(name.lstrip("UInt"))
    if bits > _BITS:
        return "is of more than 64 bits, for which ClickHouse's functions were not compared"
    if found.rounds == "zero" and name not in UNSIGNED:
        return _SIGNED
    if found.rounds == "shift" and found.number >= 2**bits:
        return f"shifts every bit out of a {name}"
    return ""


def _hashed_alike(of: DataType, column: MappedColumn) -> bool:
    """Whether ClickHouse hashes a value of this type as Iceberg hashes the column's value."""
    match of, column.type:
        case Simple(name), IntegerType() | LongType():
            return name in INTEGERS and int(name.lstrip("UInt")) <= _BITS
        case Simple("String"), StringType() | BinaryType():
            return True
        case FixedString(), FixedType() | StringType():
            return True
        case Simple("UUID"), UUIDType():
            return True
        case Simple("Date" | "Date32"), DateType():
            return True
        case Decimal(_, scale), DecimalType(scale=kept):
            return scale == kept
        case DateTime64(precision), TimestamptzType():
            return precision == _MICROSECONDS
        case _:
            return False

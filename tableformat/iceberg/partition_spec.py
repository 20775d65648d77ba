"""Derives the Iceberg partition spec from a ClickHouse partition key.

A key is a tuple of expressions (none for `tuple()`: unpartitioned). Each expression becomes one
field of the spec, or the key is refused with all reasons at once:

    the column itself                       identity                `key_functions.py`
    a function of a time                    year, month, day, hour  `key_functions.py`
    a part of a date with a coarser field   the finer field         `key_functions.py`
    a width of a number or a text           truncate                `kept_column`
    icebergBucket                           bucket                  `bucket_field`
    a function of columns that are themselves in the key            no field

The rules use the Iceberg type and the source type, because a conversion changes the transform's
input. Of several time fields of a column only the finest is kept. `void` is never created.

A DateTime without a zone uses the server's, which may have changed since a part was written, and
some functions wrap. So an expression alone is no proof: for each exported partition
`partition_proof.py` proves that it belongs to one Iceberg partition. For an expression that is
exact only from 1970 to 2105 the user gets a note.

Widths of numbers, texts and ids, by expression, source type and the lake's type:

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

`suggestions` proposes a spec for a key without an exact one: fields that the data may prove. A
suggested field holds one or several whole partitions of the key. A field that would split a
partition of the key is never suggested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
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

from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import UsageError, refuse_all
from tableformat.iceberg.key_functions import (
    INEXACT,
    INTEGERS,
    UNSIGNED,
    CalendarPart,
    CanonicalFunction,
    DerivedField,
    Instant,
    calendar_part,
    canonical_function,
    divided,
    follows_utc,
    function_name,
    identifies,
    instant,
    keeps_order,
    plain_type,
    time_field,
)
from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.iceberg.spec_fields import (
    GREATEST_ARGUMENT,
    TIME_TRANSFORMS,
    SpecField,
    name_fields,
    render_spec,
    unwritable,
    why_not,
)
from tableformat.mergetree.conversions import WireValue, parse_conversion
from tableformat.mergetree.expression import (
    Call,
    ColumnName,
    Expression,
    Literal,
    columns_of,
    render_expression,
)
from tableformat.mergetree.expression_parser import parse_partition_key
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import (
    DataType,
    DateTime64,
    Decimal,
    FixedString,
    Simple,
    parse_type,
)
from tableformat.mergetree.wire_types import find_value
from tableformat.messages import Option, convert
from tableformat.names import option_name

__all__ = [
    "DerivedField",
    "DerivedSpec",
    "Width",
    "bucket_field",
    "chosen_spec",
    "derive_field",
    "derive_spec",
    "kept_column",
    "spec_matches",
    "suggestions",
    "truncate_field",
    "width",
]


@dataclass(frozen=True, slots=True)
class DerivedSpec:
    """The fields of a spec, the key that they come from, and notes for the user.

    `chosen`: the user named the spec, so only the proof on the data says anything about it.
    """

    fields: tuple[SpecField, ...]
    key: str
    notes: tuple[str, ...] = ()
    chosen: bool = False

    def __str__(self) -> str:
        """Return the text form of the spec."""
        return render_spec(self.fields)


def derive_spec(table: MergeTreeTable, columns: MappedColumns) -> DerivedSpec:
    """Derive the spec of a table's partition key.

    Raises:
        RefusedError: an expression has no exact transform; all are listed, with a spec that the
            user could choose instead (code 36).
        UsageError: the key cannot be parsed.
    """
    key = table.engine.partition_by
    read = [
        _Member(e, derive_field(e, columns, table.server_zone)) for e in parse_partition_key(key)
    ]
    found = _explained(read, columns, table.server_zone)
    refused = [m for m in found if isinstance(m.derived, str)]
    if not refused:
        fields = [m.derived.field for m in found if isinstance(m.derived, DerivedField)]
        kept = _finest(fields)
        if unwritten := unwritable(kept, columns):
            what = f"partition the lake table of {table.name} by {render_spec(kept)}"
            raise refuse_all(what, unwritten, code=BAD_ARGUMENTS)
        notes = tuple(_note(m) for m in found if _is_inexact(m))
        return DerivedSpec(name_fields(kept, columns), key, notes)
    possible = [
        f
        for m in found
        for f in (
            (m.derived.field,)
            if isinstance(m.derived, DerivedField)
            else suggestions(m.expression, columns, table.server_zone)
        )
    ]
    offer = render_spec(name_fields(_finest(possible), columns))
    what = (
        f"derive a partition spec for {table.name}, PARTITION BY {key}; choose one with "
        f"{Option.PARTITION_SPEC}, for example '{offer}', which is then proved on the data"
    )
    reasons = tuple(
        f"{render_expression(m.expression)} of the partition key {m.derived}" for m in refused
    )
    raise refuse_all(what, reasons, code=BAD_ARGUMENTS)


def chosen_spec(table: MergeTreeTable, fields: tuple[SpecField, ...]) -> DerivedSpec:
    """Return the spec that the user chose (`parse_spec`) instead of the derived one."""
    return DerivedSpec(fields, table.engine.partition_by, chosen=True)


def derive_field(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> DerivedField | str:
    """Return the field of one key expression, or why it has none ("has no ...")."""
    if isinstance(expression, ColumnName):
        return _column(expression.name, columns)
    for read in (truncate_field(expression, columns), bucket_field(expression, columns)):
        if read is not None:
            return read
    timed = time_field(expression, columns, server_zone)
    if isinstance(timed, DerivedField):
        return timed
    column = kept_column(expression, columns)
    if column is not None and identifies(column):
        # Not `ordered`: the cast value may sort otherwise than the lake's value.
        return DerivedField(SpecField(column.name, "identity"), exact=True, ordered=False)
    return timed or INEXACT


def spec_matches(derived: DerivedSpec, spec: PartitionSpec, schema: Schema) -> str:
    """Return '' if an existing table has the derived spec, else a sentence with both specs.

    It compares columns and transforms in order; names of partition fields do not count.
    """
    theirs = tuple(
        (schema.find_column_name(f.source_id) or f"field {f.source_id}", str(f.transform))
        for f in spec.fields
    )
    if theirs == tuple(f.meaning for f in derived.fields):
        return ""
    shown = ", ".join(c if t == "identity" else f"{t}({c})" for c, t in theirs) or "unpartitioned"
    return (
        f"Tables have different partition key: PARTITION BY {derived.key or 'tuple()'} is the spec "
        f"'{derived}', the destination has '{shown}'"
    )


@dataclass(frozen=True, slots=True)
class _Member:
    """One expression of a key with its field or the reason against it; None: it needs no field."""

    expression: Expression
    derived: DerivedField | str | None


def _column(name: str, columns: MappedColumns) -> DerivedField | str:
    field = SpecField(name, "identity")
    why = why_not(field, columns)
    column = columns.find(name)
    if not why and column is not None and not identifies(column):
        why = f"different values of {name} may be one value of the lake's {column.type}"
    if why or column is None:
        return f"cannot be used: {why}"
    return DerivedField(field, exact=True, ordered=keeps_order(column))


def _explained(members: list[_Member], columns: MappedColumns, server_zone: str) -> list[_Member]:
    """Resolve expressions without their own transform by the other members of the key."""
    whole = {
        m.derived.field.column
        for m in members
        if isinstance(m.derived, DerivedField) and m.derived.field.transform == "identity"
    }
    parts: dict[int, CalendarPart] = {}
    for i, m in enumerate(members):
        of = columns_of(m.expression)
        if isinstance(m.derived, str) and of and of <= whole:
            members[i] = _Member(m.expression, None)
        elif isinstance(m.derived, str):
            part = calendar_part(m.expression, columns, server_zone)
            if part is not None:
                parts[i] = part
    for m in list(members):
        if (
            not isinstance(m.derived, DerivedField)
            or m.derived.field.transform not in TIME_TRANSFORMS
        ):
            continue
        column, coarse = m.derived.field.column, m.derived.field.transform
        _, explained = divided(column, coarse, parts.values())
        for i, part in parts.items():
            if part in explained and isinstance(members[i].derived, str):
                field = SpecField(column, part.gives)
                members[i] = _Member(
                    members[i].expression, DerivedField(field, exact=m.derived.exact)
                )
    return members


def _is_inexact(member: _Member) -> bool:
    return isinstance(member.derived, DerivedField) and not member.derived.exact


def _note(member: _Member) -> str:
    field = member.derived.field if isinstance(member.derived, DerivedField) else ""
    return (
        f"{render_expression(member.expression)} is {field} from 1970 to 2105 only; partitions "
        "that mix other dates are refused"
    )


def _finest(fields: list[SpecField]) -> tuple[SpecField, ...]:
    """Keep only the finest time field of each column, and equal fields once."""
    kept: dict[tuple[str, str], SpecField] = {}
    for f in fields:
        key = (f.column, "time" if f.transform in TIME_TRANSFORMS else str(f.iceberg))
        if key in kept and key[1] == "time":
            kept[key] = max(f, kept[key], key=lambda x: TIME_TRANSFORMS.index(x.transform))
        else:
            kept[key] = f
    return tuple(kept.values())


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
        keeps = convert(option_name(column.name), "long")
        return (
            f"hashes {column.name} as ClickHouse keeps it, a {column.source.type_text}, and the "
            f"lake keeps it as {column.type}, which has another hash"
            f"{f'; {keeps} keeps the hash' if long else ''}"
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


_BUCKETS: Final = 16
# In any zone whose offset is whole hours; the proof on the data decides.
_WITHIN_HOURS: Final = frozenset(
    {
        "toStartOfHour",
        "toStartOfMinute",
        "toStartOfFiveMinutes",
        "toStartOfTenMinutes",
        "toStartOfFifteenMinutes",
        "toStartOfSecond",
        "timeSlot",
        "toRelativeHourNum",
        "toRelativeMinuteNum",
        "toRelativeSecondNum",
        "toYYYYMMDDhhmmss",
        "toUnixTimestamp",
        "toStartOfInterval(hour)",
        "dateTrunc(hour)",
        "formatDateTime(hour)",
    }
)
# In UTC only.
_WITHIN_YEARS: Final = frozenset({"toStartOfQuarter", "toRelativeQuarterNum"})
# By interval unit: how many make a field, the field, and whether that holds in UTC only.
_INTERVALS: Final = {
    "toIntervalSecond": (3600, "hour", False),
    "toIntervalMinute": (60, "hour", False),
    "toIntervalHour": (24, "day", True),
    "toIntervalMonth": (12, "year", True),
    "toIntervalQuarter": (4, "year", True),
}
_TRUNCATED: Final = {
    "second": ("hour", False),
    "minute": ("hour", False),
    "hour": ("hour", False),
    "quarter": ("year", True),
}


def suggestions(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> tuple[SpecField, ...]:
    """Return the field that may hold an expression's partitions, if there is one."""
    found = _suggested(expression, columns, server_zone)
    return (found,) if found is not None and not why_not(found, columns) else ()


def _suggested(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> SpecField | None:
    match expression:
        case ColumnName(name):
            column = columns.find(name)
            hashed = column is not None and isinstance(column.type, UUIDType)
            return SpecField(name, "bucket", _BUCKETS) if hashed else None
        case Call("intDiv", (Call("toUnixTimestamp", (operand,)), Literal(int(seconds)))) if (
            seconds > 0
        ):
            unit = "hour" if 3600 % seconds == 0 else "day" if 86_400 % seconds == 0 else ""
            return _timed(operand, unit, columns) if unit else None
        case Call("dateTrunc", (Literal(str(unit)), operand, *rest)) if unit.lower() in _TRUNCATED:
            field, needs_utc = _TRUNCATED[unit.lower()]
            allowed = not needs_utc or _in_utc(operand, rest, columns, server_zone)
            return _timed(operand, field, columns) if allowed else None
        case Call("toStartOfInterval", (operand, Call(unit, (Literal(int(n)),)), *rest)) if (
            unit in _INTERVALS and n > 0
        ):
            count, field, needs_utc = _INTERVALS[unit]
            allowed = count % n == 0 and (
                not needs_utc or _in_utc(operand, rest, columns, server_zone)
            )
            if unit == "toIntervalHour" and n == 1:
                field, allowed = "hour", True
            return _timed(operand, field, columns) if allowed else None
    if (found := width(expression)) is not None:
        return SpecField(found.column, "truncate", found.number)
    return _of_function(canonical_function(expression), columns, server_zone)


def _of_function(
    spelled: CanonicalFunction | None, columns: MappedColumns, server_zone: str
) -> SpecField | None:
    if spelled is None:
        return None
    if spelled.row in _WITHIN_HOURS:
        return _timed(spelled.operand, "hour", columns)
    zone: list[Expression] = [Literal(spelled.zone)] if spelled.zone else []
    if spelled.row in _WITHIN_YEARS and _in_utc(spelled.operand, zone, columns, server_zone):
        return _timed(spelled.operand, "year", columns)
    return None


def _timed(operand: Expression, transform: str, columns: MappedColumns) -> SpecField | None:
    seen = instant(operand, columns, "UTC")
    if not isinstance(seen, Instant):
        return None
    return SpecField(seen.column, transform)


def _in_utc(
    operand: Expression, rest: list[Expression], columns: MappedColumns, server_zone: str
) -> bool:
    seen = instant(operand, columns, server_zone)
    if not isinstance(seen, Instant):
        return False
    match rest:
        case [Literal(str(zone))]:
            seen = replace(seen, zone=zone)
        case []:
            pass
        case _:
            return False
    return follows_utc(seen)

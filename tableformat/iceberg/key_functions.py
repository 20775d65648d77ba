"""Maps columns and time functions in a partition or sorting key to Iceberg transforms.

A column is a transform of its own, `identity`, if its values stay distinct and keep their order in
the lake, which may hold another kind of value (`schema.py`): an Enum as its label, an IPv6 as text.
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

`MATRIX` is the table of time functions. It was observed: partitions of ClickHouse's value and of
the Iceberg transform were compared at the edges of years, months, days and hours (around 1970, and
from the year 1 to 9999), and for Date32 on every single day (`tests/properties/partition_sweep.py`
repeats it). Its marks:

    =t  one to one with the transform t on all data, and in its order
    *t  one to one, but values wrap: sorted by the expression is not sorted by t
    ~t  one to one with t from 1970-01-01 to 2105-12-31; outside, ClickHouse's result wraps or
        clamps, and one partition holds several t (toDate('1950-06-15') is 2129-11-19)
    -   neither

Iceberg transforms use UTC. An expression in another zone has no transform: a month of Tokyo
begins nine hours before an Iceberg month. An explicit 'UTC' (`toYYYYMM(ts, 'UTC')`) makes it a
UTC expression; functions of the instant alone do not depend on the zone. `icebergYear` and its
relatives come in releases after 26.9 and are recognised by name.

`calendar_part`: `toMonth(ts)` alone has no transform. With the year it has: `(toYear(ts),
toMonth(ts))` is month(ts), and `(toDate(ts), toHour(ts))` is hour(ts). A part that is coarser than
an existing field adds nothing. `canonical_function` gives one name to all spellings of a function
(`dateTrunc('month', ts)`, `CAST(ts AS Date)`, `YEAR(ts)`).

Source: docs/reference/partition-keys.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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

from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.iceberg.spec_fields import TIME_TRANSFORMS, SpecField
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
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

__all__ = [
    "INEXACT",
    "INTEGERS",
    "MATRIX",
    "PARTS",
    "UNSIGNED",
    "CalendarPart",
    "CanonicalFunction",
    "DerivedField",
    "Instant",
    "calendar_part",
    "canonical_function",
    "divided",
    "follows_utc",
    "function_name",
    "identifies",
    "instant",
    "keeps_order",
    "plain_type",
    "time_field",
]

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


# Aliases, which are case-insensitive in ClickHouse; the functions' own names are not.
_ALIASES: Final = {
    "year": "toYear",
    "month": "toMonth",
    "day": "toDayOfMonth",
    "dayofmonth": "toDayOfMonth",
    "dayofyear": "toDayOfYear",
    "dayofweek": "toDayOfWeek",
    "hour": "toHour",
    "quarter": "toQuarter",
    "last_day": "toLastDayOfMonth",
    "to_days": "toDaysSinceYearZero",
    "date_trunc": "dateTrunc",
    "date_format": "formatDateTime",
    "time_bucket": "toStartOfInterval",
    "date_bin": "toStartOfInterval",
    "substring": "substring",
    "substr": "substring",
    "mid": "substring",
    "byteslice": "substring",
    "left": "left",
    "positivemodulo": "positiveModulo",
    "positive_modulo": "positiveModulo",
    "pmod": "positiveModulo",
}
_INTERVALS: Final = {f"toInterval{unit}": unit.lower() for unit in ("Year", "Month", "Day", "Hour")}
_UNITS: Final = tuple(_INTERVALS.values())
# The unit of a set of format specifiers, which have a fixed width: any order is one to one.
# Not %j: of a Date32 the last two days of 2299 have the same one.
_FORMATS: Final = {
    "year": ({"%Y"},),
    "month": ({"%Y", "%m"},),
    "day": ({"%Y", "%m", "%d"}, {"%F"}),
    "hour": ({"%Y", "%m", "%d", "%H"}, {"%F", "%H"}),
}
_CONVERSION: Final = re.compile(r"%.")
_BY_SIZE: Final = ["%F", "%Y", "%m", "%d", "%H"]


@dataclass(frozen=True, slots=True)
class CanonicalFunction:
    """A function of one value: its name in `MATRIX`, its argument, and the explicit zone or ''.

    `ordered` is False for a text that does not sort as its dates do (`%d.%m.%Y`).
    """

    row: str
    operand: Expression
    zone: str = ""
    ordered: bool = True


def function_name(call: Call) -> str:
    """Return the function's own name if the call uses an alias."""
    return _ALIASES.get(call.function.lower(), call.function)


def canonical_function(expression: Expression) -> CanonicalFunction | None:
    """Return the known function of one value that an expression calls, else None."""
    if not isinstance(expression, Call):
        return None
    name = function_name(expression)
    match name, expression.arguments:
        case "CAST", (operand, Literal("Date" | "Nullable(Date)")):
            return CanonicalFunction("toDate", operand)
        case "CAST", (operand, Literal("Date32" | "Nullable(Date32)")):
            return CanonicalFunction("toDate32", operand)
        case "dateTrunc", (Literal(str(unit)), operand, *rest) if unit.lower() in _UNITS:
            return _zoned(f"dateTrunc({unit.lower()})", operand, rest)
        case "toStartOfInterval", (operand, Call(interval, (Literal(1),)), *rest) if (
            interval in _INTERVALS
        ):
            return _zoned(f"toStartOfInterval({_INTERVALS[interval]})", operand, rest)
        case "formatDateTime", (operand, Literal(str(form)), *rest):
            return _formatted(form, operand, rest)
        case "intDiv", (Call("toUnixTimestamp", (operand,)), Literal(3600 | 86400 as seconds)):
            return CanonicalFunction(f"intDiv(toUnixTimestamp, {seconds})", operand)
        case _, (operand, *rest):
            return _zoned(name, operand, rest)
        case _:
            return None


def _zoned(row: str, operand: Expression, rest: list[Expression]) -> CanonicalFunction | None:
    match rest:
        case []:
            return CanonicalFunction(row, operand)
        case [Literal(str(zone))] if zone:
            return CanonicalFunction(row, operand, zone)
        case _:
            return None


def _formatted(form: str, operand: Expression, rest: list[Expression]) -> CanonicalFunction | None:
    found = _CONVERSION.findall(form)
    for unit, ways in _FORMATS.items():
        if set(found) in ways and len(set(found)) == len(found):
            spelled = _zoned(f"formatDateTime({unit})", operand, rest)
            if spelled is None:
                return None
            in_order = found == sorted(found, key=_BY_SIZE.index)
            return CanonicalFunction(spelled.row, operand, spelled.zone, in_order)
    return None


INEXACT: Final = "has no Iceberg transform that is exact on all data"
_KINDS: Final = ("Date", "Date32", "DateTime", "DateTime64")
# By function, for a Date, a Date32, a DateTime and a DateTime64 in UTC.
MATRIX: Final[Mapping[str, str]] = {
    "toYear": "=year =year =year =year",
    "toRelativeYearNum": "=year =year =year =year",
    "toYearNumSinceEpoch": "=year ~year =year ~year",
    "toStartOfYear": "=year ~year =year ~year",
    "toStartOfInterval(year)": "=year *year =year ~year",
    "dateTrunc(year)": "=year =year =year ~year",
    "formatDateTime(year)": "=year *year =year *year",
    "icebergYear": "=year =year =year =year",
    "toYYYYMM": "=month =month =month =month",
    "toRelativeMonthNum": "=month ~month =month ~month",
    "toMonthNumSinceEpoch": "=month ~month =month ~month",
    "toStartOfMonth": "=month ~month =month ~month",
    "toLastDayOfMonth": "=month ~month =month ~month",
    "toStartOfInterval(month)": "=month ~month =month ~month",
    "dateTrunc(month)": "=month =month =month ~month",
    "formatDateTime(month)": "=month *month =month *month",
    "icebergMonth": "=month =month =month =month",
    "toYYYYMMDD": "=day =day =day =day",
    "toDate32": "=day =day =day =day",
    "toDate": "=day ~day =day ~day",
    "toDaysSinceYearZero": "=day =day =day =day",
    "toRelativeDayNum": "=day ~day =day ~day",
    "toStartOfDay": "~day ~day =day ~day",
    "toStartOfInterval(day)": "~day *day =day ~day",
    "dateTrunc(day)": "~day =day =day ~day",
    "formatDateTime(day)": "=day *day =day *day",
    "intDiv(toUnixTimestamp, 86400)": "- - =day ~day",
    "icebergDay": "=day =day =day =day",
    "toStartOfHour": "- - =hour ~hour",
    "toRelativeHourNum": "- - =hour ~hour",
    "toStartOfInterval(hour)": "- - =hour ~hour",
    "dateTrunc(hour)": "- - =hour ~hour",
    "formatDateTime(hour)": "- - =hour *hour",
    "intDiv(toUnixTimestamp, 3600)": "- - =hour ~hour",
    "icebergHour": "- - =hour =hour",
    "toUnixTimestamp": "- - =identity -",
    "toYYYYMMDDhhmmss": "=day =day =identity -",
    "toString": "=day *day =identity *identity",
}
# Functions of the instant, which do not depend on the column's zone. toDaysSinceYearZero of a
# DateTime64 depends on it.
_ZONE_FREE: Final = {
    "toUnixTimestamp": ("DateTime",),
    "intDiv(toUnixTimestamp, 3600)": ("DateTime", "DateTime64"),
    "intDiv(toUnixTimestamp, 86400)": ("DateTime", "DateTime64"),
    "toDaysSinceYearZero": ("DateTime",),
    **{f"iceberg{unit}": ("DateTime", "DateTime64") for unit in ("Year", "Month", "Day", "Hour")},
}
_UTC: Final = frozenset(
    {
        "UTC",
        "UCT",
        "Zulu",
        "Universal",
        "GMT",
        "GMT0",
        "GMT+0",
        "GMT-0",
        "Greenwich",
        "Etc/UTC",
        "Etc/UCT",
        "Etc/Zulu",
        "Etc/Universal",
        "Etc/GMT",
        "Etc/GMT0",
        "Etc/GMT+0",
        "Etc/GMT-0",
        "Etc/Greenwich",
    }
)


@dataclass(frozen=True, slots=True)
class DerivedField:
    """The Iceberg field of one key expression.

    `exact`: one to one on all data, else `~` in the matrix. `ordered`: rows sorted by the
    expression are also sorted by the field.
    """

    field: SpecField
    exact: bool
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Instant:
    """The argument of a key's time function: a column, under functions that keep its days.

    `zone` is the column's or an explicit one. It is `assumed` when it is the server's, which may
    have been another one when a part was written.
    """

    column: str
    kind: str
    zone: str
    assumed: bool = False
    exact: bool = True
    ordered: bool = True


def follows_utc(of: Instant, row: str = "") -> bool:
    """Whether a function of the instant uses UTC; dates have no zone."""
    return (
        not of.kind.startswith("DateTime") or of.zone in _UTC or of.kind in _ZONE_FREE.get(row, ())
    )


def time_field(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> DerivedField | str | None:
    """Return the time field of a key expression, or why it has none; None if it is not a time."""
    spelled = canonical_function(expression)
    if spelled is None or spelled.row not in MATRIX:
        seen = instant(expression, columns, server_zone)
        if isinstance(seen, Instant) and not isinstance(expression, ColumnName):
            return _identity(seen, columns)
        return None
    seen = instant(spelled.operand, columns, server_zone)
    if not isinstance(seen, Instant):
        # Some of the functions take numbers and texts, too.
        return seen
    if spelled.zone:
        seen = replace(seen, zone=spelled.zone, assumed=False)
    return _matrix_field(spelled, seen, columns)


def instant(expression: Expression, columns: MappedColumns, server_zone: str) -> Instant | str:
    """Return the instant of an expression, or the reason why the lake table does not have it."""
    match expression:
        case ColumnName(name):
            column = columns.find(name)
            if column is None:
                return f"cannot be used: the table stores no column {name}"
            return _of_column(column, server_zone)
        case Call("toTimezone" | "toTimeZone", (inner, Literal(str(zone)))):
            seen = instant(inner, columns, server_zone)
            kinds: tuple[str, ...] = ("DateTime", "DateTime64")
        case Call("toDateTime", (inner, Literal(str(zone)))):
            seen = instant(inner, columns, server_zone)
            kinds = ("DateTime",)
        case _:
            return _as_date(expression, columns, server_zone)
    if isinstance(seen, Instant):
        return replace(seen, zone=zone, assumed=False) if seen.kind in kinds else INEXACT
    return seen


def _of_column(column: MappedColumn, server_zone: str) -> Instant | str:
    lake: type[DateType | TimestamptzType] = DateType
    match plain_type(column.source.type):
        case Simple(name="Date" | "Date32" as name):
            seen = Instant(column.name, name, "")
        case DateTime(zone):
            lake = TimestamptzType
            seen = Instant(column.name, "DateTime", zone or server_zone, assumed=not zone)
        case DateTime64(_, zone):
            lake = TimestamptzType
            seen = Instant(column.name, "DateTime64", zone or server_zone, assumed=not zone)
        case _:
            return f"has no Iceberg transform when {column.name} is a {column.source.type_text}"
    if not isinstance(column.type, lake):
        return f"has no Iceberg transform when the lake keeps {column.name} as {column.type}"
    return seen


def _as_date(expression: Expression, columns: MappedColumns, server_zone: str) -> Instant | str:
    """Return the instant of toDate(x) and toDate32(x), which other functions may take."""
    spelled = canonical_function(expression)
    if spelled is None or spelled.row not in ("toDate", "toDate32"):
        return INEXACT
    seen = instant(spelled.operand, columns, server_zone)
    if not isinstance(seen, Instant):
        return seen
    if spelled.zone:
        seen = replace(seen, zone=spelled.zone, assumed=False)
    if not follows_utc(seen):
        return _other_zone(seen, "day")
    relation = MATRIX[spelled.row].split()[_KINDS.index(seen.kind)]
    return Instant(
        seen.column,
        spelled.row.removeprefix("to"),
        "",
        assumed=seen.assumed,
        exact=seen.exact and relation[0] != "~",
        ordered=seen.ordered and relation[0] == "=",
    )


def _matrix_field(
    spelled: CanonicalFunction, seen: Instant, columns: MappedColumns
) -> DerivedField | str:
    relation = MATRIX[spelled.row].split()[_KINDS.index(seen.kind)]
    if relation == "-":
        column = columns.find(seen.column)
        text = column.source.type_text if column else seen.kind
        return f"has no Iceberg transform when {seen.column} is a {text}"
    if not follows_utc(seen, spelled.row):
        return _other_zone(seen, relation[1:])
    if relation[1:] == "identity":
        found = _identity(seen, columns)
        if isinstance(found, str):
            return found
    certain = not seen.assumed or seen.kind in _ZONE_FREE.get(spelled.row, ())
    return DerivedField(
        SpecField(seen.column, relation[1:]),
        exact=seen.exact and relation[0] != "~",
        ordered=seen.ordered and relation[0] == "=" and spelled.ordered and certain,
    )


def _identity(seen: Instant, columns: MappedColumns) -> DerivedField | str:
    """Return the identity field of an expression that is the instant, also in another zone."""
    column = columns.find(seen.column)
    if column is None or not identifies(column):
        return INEXACT
    field = SpecField(seen.column, "identity")
    return DerivedField(field, exact=seen.exact, ordered=seen.ordered and not seen.assumed)


def _other_zone(seen: Instant, transform: str) -> str:
    return f"follows the time zone {seen.zone}, and Iceberg's {transform} follows UTC"


# By function: the field that the key must have already, and the field that both make.
PARTS: Final = {
    "toMonth": ("year", "month"),
    # Not with the year alone: of a Date32 the last two days of 2299 have the same one.
    "toDayOfYear": ("day", "day"),
    "toDayOfMonth": ("month", "day"),
    "toHour": ("day", "hour"),
    "toQuarter": ("month", "month"),
    "toStartOfQuarter": ("month", "month"),
    "toDayOfWeek": ("day", "day"),
    "toMonday": ("day", "day"),
    "toWeek": ("day", "day"),
    "toISOWeek": ("day", "day"),
    "toISOYear": ("day", "day"),
    "toYearWeek": ("day", "day"),
    "toStartOfWeek": ("day", "day"),
}


@dataclass(frozen=True, slots=True)
class CalendarPart:
    """A part of a date: with a field `needs` of the column it makes the field `gives`.

    `assumed`: the zone is the server's.
    """

    column: str
    needs: str
    gives: str
    assumed: bool = False


def calendar_part(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> CalendarPart | None:
    """Return the part of a date in UTC that an expression computes, or None."""
    spelled = canonical_function(expression)
    if spelled is None or spelled.row not in PARTS:
        return None
    seen = instant(spelled.operand, columns, server_zone)
    if not isinstance(seen, Instant):
        return None
    if spelled.zone:
        seen = replace(seen, zone=spelled.zone, assumed=False)
    if not follows_utc(seen) or not seen.exact:
        return None
    return CalendarPart(seen.column, *PARTS[spelled.row], assumed=seen.assumed)


def divided(
    column: str, transform: str, parts: Iterable[CalendarPart]
) -> tuple[str, tuple[CalendarPart, ...]]:
    """Return the finest transform of a column under calendar parts, and the parts that it covers.

    Args:
        column: the column.
        transform: the finest time transform of it that the key has without its parts.
        parts: of this and other columns, in any order.
    """
    level = TIME_TRANSFORMS.index(transform)
    left = [part for part in parts if part.column == column]
    explained: list[CalendarPart] = []
    while fitting := [p for p in left if TIME_TRANSFORMS.index(p.needs) <= level]:
        level = max(level, *(TIME_TRANSFORMS.index(p.gives) for p in fitting))
        explained.extend(fitting)
        left = [p for p in left if p not in fitting]
    return TIME_TRANSFORMS[level], tuple(explained)

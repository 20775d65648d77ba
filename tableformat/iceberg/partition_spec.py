"""A ClickHouse partition key becomes an Iceberg partition spec, here and nowhere else.

A key is a tuple of expressions, each becomes one field of the spec, or the key is refused. What
each expression does was observed on 4,600 instants (edges of years, months, days and hours, changes
of summer time, one tick around 1970, the years 1900 to 2299) by comparing ClickHouse's value with
the Iceberg transform's (types.md 5.1):

    =t  one to one with the transform t on all data
    ~t  one to one with t from 1970-01-01 to 2105-12-31; outside, ClickHouse's result wraps or
        clamps, and one partition holds several t (toDate('1950-06-15') is 2129-11-19)
    -   neither

     row  expression           Date       Date32     DateTime, UTC  DateTime64, UTC  other zone
      1   the column itself    =identity  =identity  =identity      =identity        =identity
      2   toYYYYMM             =month     =month     =month         =month           -
      3   toYYYYMMDD           =day       =day       =day           =day             -
      4   toYear               =year      =year      =year          =year            -
      5   toDate32             =day       =day       =day           =day             -
      6   toDate               =day       ~day       =day           ~day             -
      7   toStartOfMonth       =month     ~month     =month         ~month           -
      8   toStartOfYear        =year      ~year      =year          ~year            -
      9   toStartOfDay         ~day       -          =day           ~day             -
     10   toStartOfHour        -          -          =hour          ~hour            - (a)
     11   (month, day) of one  the finer field alone: a day lies in one month
     12   tuple()              unpartitioned

    (a) hour(ts) in zones of whole hours, but not at +5:30, and only the data can tell: it is
        refused with that suggestion

An explicit 'UTC' argument (`toYYYYMM(ts, 'UTC')`) makes every zone a UTC one. A DateTime without a
zone takes the server's, which may differ from the one in force when a part was written (types.md,
trap 1). So no row of this table is trusted alone: every exported partition is proved to lie in one
Iceberg partition (`partition_proof.py`), and `~` says so to the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from tableformat.errors import refuse_all
from tableformat.iceberg.schema import MappedColumns
from tableformat.iceberg.spec_fields import (
    TIME_TRANSFORMS,
    SpecField,
    name_fields,
    render_spec,
    why_not,
)
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_text import parse_partition_key, render_expression
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    LowCardinality,
    Nullable,
    Simple,
)

__all__ = [
    "DerivedField",
    "DerivedSpec",
    "chosen_spec",
    "derive_field",
    "derive_spec",
    "spec_matches",
]

# Rows 2 to 10. The words are the columns of the table above: what the source column is.
_MATRIX: Final[Mapping[str, Mapping[str, str]]] = {
    "toYYYYMM": {
        "Date": "=month", "Date32": "=month", "DateTime": "=month", "DateTime64": "=month",
    },
    "toYYYYMMDD": {"Date": "=day", "Date32": "=day", "DateTime": "=day", "DateTime64": "=day"},
    "toYear": {"Date": "=year", "Date32": "=year", "DateTime": "=year", "DateTime64": "=year"},
    "toDate32": {"Date": "=day", "Date32": "=day", "DateTime": "=day", "DateTime64": "=day"},
    "toDate": {"Date": "=day", "Date32": "~day", "DateTime": "=day", "DateTime64": "~day"},
    "toStartOfMonth": {
        "Date": "=month", "Date32": "~month", "DateTime": "=month", "DateTime64": "~month",
    },
    "toStartOfYear": {
        "Date": "=year", "Date32": "~year", "DateTime": "=year", "DateTime64": "~year",
    },
    "toStartOfDay": {"Date": "~day", "DateTime": "=day", "DateTime64": "~day"},
    "toStartOfHour": {"DateTime": "=hour", "DateTime64": "~hour"},
}  # fmt: skip
# Expressions that are no row of the table, with the field that holds several of their values, or as
# many: what a user may choose, and the data must then prove.
_FINER: Final = {
    "toStartOfSecond": "hour",
    "toStartOfMinute": "hour",
    "toStartOfFiveMinutes": "hour",
    "toStartOfTenMinutes": "hour",
    "toStartOfFifteenMinutes": "hour",
    "timeSlot": "hour",
    "toStartOfHour": "hour",
    "toStartOfQuarter": "year",
}
_ARGUED: Final = {"icebergBucket": "bucket", "icebergTruncate": "truncate", "intDiv": "truncate"}
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
    """What one key expression is in Iceberg; `exact` is `=` of the table, otherwise `~`."""

    field: SpecField
    exact: bool


@dataclass(frozen=True, slots=True)
class DerivedSpec:
    """A table's spec: its fields, the key it stands for, and what the user must be told about it.

    `chosen` says that the user named the spec; then nothing is known but what the data proves.
    """

    fields: tuple[SpecField, ...]
    key: str
    notes: tuple[str, ...] = ()
    chosen: bool = False

    def __str__(self) -> str:
        """Return the text form of the spec."""
        return render_spec(self.fields)


def derive_spec(table: MergeTreeTable, columns: MappedColumns) -> DerivedSpec:
    """Derive the spec that a table's partition key stands for.

    Raises:
        RefusedError: an expression has no exact transform; all are listed, with the spec that the
            user could choose instead (code 36).
        UsageError: the key's text cannot be read.
    """
    key = table.engine.partition_by
    found: list[SpecField] = []
    notes: list[str] = []
    reasons: list[str] = []
    possible: list[SpecField] = []
    for expression in parse_partition_key(key):
        derived = derive_field(expression, columns, table.server_zone)
        if isinstance(derived, DerivedField):
            found.append(derived.field)
            possible.append(derived.field)
            if not derived.exact:
                notes.append(
                    f"{render_expression(expression)} is {derived.field} from 1970 to 2105 only; "
                    "partitions with other dates are refused"
                )
        else:
            reasons.append(f"{render_expression(expression)} of the partition key {derived}")
            possible.extend(_suggestions(expression, columns))
    if reasons:
        offer = render_spec(name_fields(_finest(possible), columns))
        what = (
            f"derive a partition spec for {table.name}, PARTITION BY {key}; choose one with "
            f"--partition-spec, for example '{offer}', which is then proved on the data"
        )
        raise refuse_all(what, tuple(reasons), code=36)
    return DerivedSpec(name_fields(_finest(found), columns), key, tuple(notes))


def chosen_spec(table: MergeTreeTable, fields: tuple[SpecField, ...]) -> DerivedSpec:
    """Return the spec that the user chose (`parse_spec`) in place of the derived one."""
    return DerivedSpec(fields, table.engine.partition_by, chosen=True)


def derive_field(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> DerivedField | str:
    """Return the field that one key expression is, or why it is none ("has no ...")."""
    match expression:
        case ColumnName(name):
            field = SpecField(name, "identity")
            why = why_not(field, columns)
            return f"cannot be used: {why}" if why else DerivedField(field, exact=True)
        case Call(function, (ColumnName(name), *rest)) if function in _MATRIX:
            column = columns.find(name)
            if column is None:
                return f"cannot be used: the table stores no column {name}"
            kind, zone = _kind(column.source.type)
            relation = _MATRIX[function].get(kind)
            if relation is None:
                return f"has no Iceberg transform when {name} is a {column.source.type_text}"
            if rest:
                match rest:
                    case [Literal(str(given))]:
                        zone = given
                    case _:
                        return "has arguments without an Iceberg meaning"
            if kind.startswith("DateTime") and (zone or server_zone) not in _UTC:
                return (
                    f"follows the time zone {zone or server_zone}, and Iceberg's {relation[1:]} "
                    "follows UTC"
                )
            return DerivedField(SpecField(name, relation[1:]), exact=relation[0] == "=")
        case _:
            return "has no Iceberg transform that is exact on all data"


def spec_matches(derived: DerivedSpec, spec: PartitionSpec, schema: Schema) -> str:
    """Return '' when an existing table is partitioned as derived, else both specs in words.

    Compared are columns and transforms in their order; the names of partition fields are free.
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


def _kind(of: DataType) -> tuple[str, str]:
    """Return which column of the table above a type belongs to ('' for none), and its own zone."""
    match of:
        case Nullable(inner) | LowCardinality(inner):
            return _kind(inner)
        case Simple(name="Date" | "Date32" as name):
            return name, ""
        case DateTime(zone):
            return "DateTime", zone or ""
        case DateTime64(_, zone):
            return "DateTime64", zone or ""
        case _:
            return "", ""


def _finest(fields: list[SpecField]) -> tuple[SpecField, ...]:
    """Row 11: of a column's time fields only the finest divides anything; equal fields are one."""
    kept: dict[tuple[str, str], SpecField] = {}
    for f in fields:
        key = (f.column, "time" if f.transform in TIME_TRANSFORMS else str(f.iceberg))
        if key in kept and key[1] == "time":
            kept[key] = max(f, kept[key], key=lambda x: TIME_TRANSFORMS.index(x.transform))
        else:
            kept[key] = f
    return tuple(kept.values())


def _suggestions(expression: Expression, columns: MappedColumns) -> list[SpecField]:
    """Return a field that may hold the expression's partitions: what the user could choose."""
    match expression:
        case Call(function, (ColumnName(name), *_)) if function in _FINER:
            field = SpecField(name, _FINER[function])
        case Call(function, (Literal(int(n)), ColumnName(name))) | Call(
            function, (ColumnName(name), Literal(int(n)))
        ) if function in _ARGUED and n > 0:
            field = SpecField(name, _ARGUED[function], n)
        case _:
            return []
    return [] if why_not(field, columns) else [field]

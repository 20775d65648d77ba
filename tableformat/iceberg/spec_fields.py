"""Defines the fields of a partition spec, and their text: `month(ts), bucket(16, id), region`.

`--partition-spec` takes the text, and messages show it; `unpartitioned` is the empty spec.
`partition_spec.py` derives the fields from a ClickHouse partition key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    PrimitiveType,
    UUIDType,
)

from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import InternalError, UsageError, refuse_all
from tableformat.iceberg.schema import MappedColumns
from tableformat.mergetree.expression import (
    Call,
    ColumnName,
    Expression,
    Literal,
    render_expression,
)
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.messages import Option
from tableformat.names import quote_identifier

__all__ = [
    "GREATEST_ARGUMENT",
    "TIME_TRANSFORMS",
    "UNPARTITIONED",
    "SpecField",
    "name_fields",
    "parse_spec",
    "partition_spec",
    "render_spec",
    "unwritable",
    "why_not",
]

UNPARTITIONED: Final = "unpartitioned"
TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
"""From coarse to fine."""
_WORDS: Final = {f"{t}s": t for t in TIME_TRANSFORMS} | {t: t for t in TIME_TRANSFORMS}
_SUFFIX: Final = {"bucket": "bucket", "truncate": "trunc", **{t: t for t in TIME_TRANSFORMS}}
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FIRST_FIELD_ID: Final = 1000
GREATEST_ARGUMENT: Final = 2**31 - 1
"""Iceberg's limit for the number of buckets and for a width."""


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field: `transform` (identity, year, month, day, hour, bucket, truncate) of a column.

    `argument` is the number of buckets or the width. `name` is the field's name in the table, ''
    until `name_fields` assigns it; it does not belong to the field's meaning.
    """

    column: str
    transform: str
    argument: int | None = None
    name: str = ""

    @property
    def iceberg(self) -> Any:
        """The PyIceberg transform."""
        tail = "" if self.argument is None else f"[{self.argument}]"
        return parse_transform(f"{self.transform}{tail}")

    @property
    def meaning(self) -> tuple[str, str]:
        """Column name and transform, which identify a field across tables."""
        return (self.column, str(self.iceberg))

    def __str__(self) -> str:
        """Return the text form."""
        column = self.column if _PLAIN.match(self.column) else quote_identifier(self.column)
        if self.transform == "identity":
            # A column named `unpartitioned` must not read as the empty spec.
            return quote_identifier(self.column) if self.column == UNPARTITIONED else column
        return f"{self.transform}({'' if self.argument is None else f'{self.argument}, '}{column})"


def render_spec(fields: tuple[SpecField, ...]) -> str:
    """Return the text form of a spec."""
    return ", ".join(str(f) for f in fields) or UNPARTITIONED


def parse_spec(text: str, columns: MappedColumns) -> tuple[SpecField, ...]:
    """Parse a user's partition spec, e.g. `month(ts), bucket(16, id), region`.

    Transforms are Iceberg's. Spark's plurals (`months(ts)`) and both argument orders of bucket and
    truncate are accepted. The empty spec is `unpartitioned`.

    Raises:
        UsageError: the text is not of that form.
        RefusedError: a column or its type does not fit its transform, or a field is repeated; all
            reasons are listed (code 36).
    """
    if text.strip().lower() == UNPARTITIONED:
        return ()
    try:
        whole = parse_expression(f"tuple({text})")
    except UsageError as error:
        raise _unreadable(text, text) from error
    if not isinstance(whole, Call) or whole.function != "tuple" or not whole.arguments:
        raise _unreadable(text, text)
    fields = tuple(_read(text, e) for e in whole.arguments)
    reasons = [f"{f}: {why}" for f in fields if (why := why_not(f, columns))]
    for i, f in enumerate(fields):
        if any(_redundant(f, earlier) for earlier in fields[:i]):
            reasons.append(
                f"{f}: another field already divides {f.column} in that way; leave one out"
            )
    if not reasons:
        reasons.extend(unwritable(fields, columns))
    if reasons:
        raise refuse_all(f"partition the lake table by {text}", tuple(reasons), code=BAD_ARGUMENTS)
    return name_fields(fields, columns)


def why_not(field: SpecField, columns: MappedColumns) -> str:
    """Return why a field cannot use these columns, or ''."""
    column = columns.find(field.column)
    if column is None:
        known = ", ".join(c.name for c in columns.columns)
        return f"the table has no column {field.column}; it has {known}"
    return _why_not_type(field, column.type)


def unwritable(fields: tuple[SpecField, ...], columns: MappedColumns) -> tuple[str, ...]:
    """Return why PyIceberg cannot write manifests of a spec, one sentence for each field.

    PyIceberg defines the Avro type of a decimal or fixed for every partition field that has it.
    Avro forbids a second definition of a name, and DuckDB terminates when it reads one.
    """
    seen: dict[str, SpecField] = {}
    reasons = []
    for f in fields:
        column = columns.find(f.column)
        result = f.iceberg.result_type(column.type) if column is not None else None
        if not isinstance(result, DecimalType | FixedType):
            continue
        other = seen.setdefault(str(result), f)
        if other is not f:
            reasons.append(
                f"{f}: {other} has the same type {result}, and manifests hold the definition of a "
                "decimal or fixed type only once; leave one of them out, take bucket(n, …) of it, "
                f"or export one column as another type with {Option.CONVERT}"
            )
    return tuple(reasons)


def name_fields(fields: tuple[SpecField, ...], columns: MappedColumns) -> tuple[SpecField, ...]:
    """Give each field Iceberg's default name (`ts_month`), with a number if it is taken.

    Iceberg refuses a partition field with the name of another column of the table.
    """
    taken = {c.name for c in columns.columns}
    named = []
    for f in fields:
        if f.transform == "identity":
            name = f.column
        else:
            base = name = f"{f.column}_{_SUFFIX[f.transform]}"
            number = 2
            while name in taken:
                name, number = f"{base}_{number}", number + 1
        taken.add(name)
        named.append(SpecField(f.column, f.transform, f.argument, name))
    return tuple(named)


def partition_spec(fields: tuple[SpecField, ...], schema: Schema) -> PartitionSpec:
    """Return the PyIceberg spec for a new table with this schema.

    Raises:
        InternalError: the schema lacks a column.
    """
    made = []
    for i, f in enumerate(fields):
        source = next((c for c in schema.fields if c.name == f.column), None)
        if source is None:
            message = f"Cannot partition by {f}: the schema has no column {f.column}."
            raise InternalError(f"{message} This is a bug, please report it.")
        made.append(
            PartitionField(
                source_id=source.field_id,
                field_id=_FIRST_FIELD_ID + i,
                transform=f.iceberg,
                name=f.name,
            )
        )
    return PartitionSpec(*made)


def _why_not_type(field: SpecField, of: IcebergType) -> str:
    if not isinstance(of, PrimitiveType):
        return f"{field.column} is a {of}, and only single values can partition a table"
    if field.transform == "identity" and isinstance(of, UUIDType):
        return "two reading engines prune identity of a uuid wrongly; choose bucket(16, …) of it"
    if field.transform == "identity" and isinstance(of, FloatType | DoubleType):
        return "floating point values do not identify a partition (NaN, -0.0)"
    if not field.iceberg.can_transform(of):
        return f"{field.transform} cannot be taken of an Iceberg {of}"
    return ""


def _redundant(one: SpecField, other: SpecField) -> bool:
    """Whether Iceberg treats two fields of one column as duplicates."""
    if one.column != other.column:
        return False
    both_time = one.transform in TIME_TRANSFORMS and other.transform in TIME_TRANSFORMS
    return both_time or one.meaning == other.meaning


def _read(text: str, element: Expression) -> SpecField:
    match element:
        case ColumnName(name):
            return SpecField(name, "identity")
        case Call("identity", (ColumnName(name),)):
            return SpecField(name, "identity")
        case Call(function, (ColumnName(name),)) if function.lower() in _WORDS:
            return SpecField(name, _WORDS[function.lower()])
        case Call(function, (Literal(int(n)), ColumnName(name))) | Call(
            function, (ColumnName(name), Literal(int(n)))
        ) if (
            function.lower() in ("bucket", "truncate")
            and not isinstance(n, bool)
            and 0 < n <= GREATEST_ARGUMENT
        ):
            return SpecField(name, function.lower(), n)
        case _:
            raise _unreadable(text, render_expression(element))


def _unreadable(text: str, element: str) -> UsageError:
    return UsageError(
        f"Cannot read the partition spec {text!r}: {element} is no column and none of year(c), "
        "month(c), day(c), hour(c), bucket(n, c), truncate(n, c). Write for example "
        f"'month(ts), bucket(16, id)', or '{UNPARTITIONED}'."
    )

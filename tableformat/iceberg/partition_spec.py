"""A ClickHouse partition key becomes an Iceberg partition spec, here and nowhere else.

A key is a tuple of expressions (none for `tuple()`: unpartitioned), each becomes one field of the
spec, or the key is refused with all reasons at once. An expression is read as

    the column itself                  identity               `key_columns.py`
    a function of a time               year, month, day, hour `key_functions.py`
    a part of a date beside another    the finer field        `key_functions.py`
    a width of a number or a text      truncate               `partition_widths.py`
    icebergBucket                      bucket                 `partition_widths.py`
    a function of columns that are in the key themselves      nothing: it divides nothing more

The Iceberg type decides together with the source type, because a conversion changes what a
transform is taken of. Of several time fields of a column only the finest divides anything. `void`
is never made.

A DateTime without a zone takes the server's, which may differ from the one in force when a part was
written, and some functions wrap. So no expression is trusted alone: every
exported partition is proved to lie in one Iceberg partition (`partition_proof.py`), and what is
exact from 1970 to 2105 only says so to the user.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import refuse_all
from tableformat.iceberg.key_columns import identifies, keeps_order
from tableformat.iceberg.key_functions import (
    INEXACT,
    CalendarPart,
    DerivedField,
    calendar_part,
    divided,
    time_field,
)
from tableformat.iceberg.partition_suggestions import suggestions
from tableformat.iceberg.partition_widths import bucket_field, kept_column, truncate_field
from tableformat.iceberg.schema import MappedColumns
from tableformat.iceberg.spec_fields import (
    TIME_TRANSFORMS,
    SpecField,
    name_fields,
    render_spec,
    unwritable,
    why_not,
)
from tableformat.mergetree.expression import ColumnName, Expression
from tableformat.mergetree.expression_text import (
    columns_of,
    parse_partition_key,
    render_expression,
)
from tableformat.mergetree.table import MergeTreeTable

__all__ = [
    "DerivedField",
    "DerivedSpec",
    "chosen_spec",
    "derive_field",
    "derive_spec",
    "spec_matches",
]


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
        f"--partition-spec, for example '{offer}', which is then proved on the data"
    )
    reasons = tuple(
        f"{render_expression(m.expression)} of the partition key {m.derived}" for m in refused
    )
    raise refuse_all(what, reasons, code=BAD_ARGUMENTS)


def chosen_spec(table: MergeTreeTable, fields: tuple[SpecField, ...]) -> DerivedSpec:
    """Return the spec that the user chose (`parse_spec`) in place of the derived one."""
    return DerivedSpec(fields, table.engine.partition_by, chosen=True)


def derive_field(
    expression: Expression, columns: MappedColumns, server_zone: str
) -> DerivedField | str:
    """Return the field that one key expression is, or why it is none ("has no ...")."""
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
        # The cast compares as the lake does only where it is the value itself.
        return DerivedField(SpecField(column.name, "identity"), exact=True, ordered=False)
    return timed or INEXACT


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


@dataclass(frozen=True, slots=True)
class _Member:
    """One expression of a key and what became of it; None: it divides nothing more."""

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
    """Read what has no transform of its own beside the other members of the key."""
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
    """Of a column's time fields only the finest divides anything; equal fields are one."""
    kept: dict[tuple[str, str], SpecField] = {}
    for f in fields:
        key = (f.column, "time" if f.transform in TIME_TRANSFORMS else str(f.iceberg))
        if key in kept and key[1] == "time":
            kept[key] = max(f, kept[key], key=lambda x: TIME_TRANSFORMS.index(x.transform))
        else:
            kept[key] = f
    return tuple(kept.values())

"""Derives the Iceberg partition spec from a ClickHouse partition key.

A key is a tuple of expressions (none for `tuple()`: unpartitioned). Each expression becomes one
field of the spec, or the key is refused with all reasons at once:

    the column itself                       identity                `key_columns.py`
    a function of a time                    year, month, day, hour  `key_functions.py`
    a part of a date with a coarser field   the finer field         `key_functions.py`
    a width of a number or a text           truncate                `partition_widths.py`
    icebergBucket                           bucket                  `partition_widths.py`
    a function of columns that are themselves in the key            no field

The rules use the Iceberg type and the source type, because a conversion changes the transform's
input. Of several time fields of a column only the finest is kept. `void` is never created.

A DateTime without a zone uses the server's, which may have changed since a part was written, and
some functions wrap. So an expression alone is no proof: for each exported partition
`partition_proof.py` proves that it belongs to one Iceberg partition. For an expression that is
exact only from 1970 to 2105 the user gets a note.
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
        f"--partition-spec, for example '{offer}', which is then proved on the data"
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

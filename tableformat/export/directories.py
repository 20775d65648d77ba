"""The directories of a tree whose names the user gave: columns that only the tree has.

Such a column is in no file. A tree's schema has it, optional, behind the columns of the files, and
its partition spec divides by it as by any other; its value in a partition is the one that
ClickHouse keeps of that member of the key (`_partition_value`), not computed again: a key over a
DateTime without a zone may come to something else by now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import FixedType, NestedField, TimestamptzType

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import UnsupportedError
from tableformat.hive.layout import check_directories
from tableformat.hive.levels import (
    TEXT_OR_HEX,
    Level,
    remembering_spellings,
    spelled_in_utc,
    why_no_directory,
)
from tableformat.hive.named import NamedDirectory, check_names, remembering
from tableformat.hive.rules import rules_of
from tableformat.iceberg.column_types import TypeMapping
from tableformat.iceberg.key_columns import plain_type
from tableformat.iceberg.partition_spec import DerivedSpec, derive_spec
from tableformat.iceberg.schema import MappedColumn, MappedColumns
from tableformat.mergetree.expression import ColumnName, Expression
from tableformat.mergetree.expression_text import (
    parse_partition_key,
    render_expression,
)
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.type_text import render_type
from tableformat.mergetree.types import DataType, DateTime, DateTime64, FixedString
from tableformat.mergetree.wire_types import qualified
from tableformat.names import PartitionId, quote_identifier

__all__ = [
    "NO_NAMES",
    "KeyNames",
    "TreeKey",
    "check_values",
    "tree_key",
]


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The names of directories, and the types of the members of the key in their order.

    Types are there where there are names.
    """

    named: tuple[NamedDirectory, ...] = ()
    types: tuple[DataType, ...] = ()


NO_NAMES = KeyNames()
"""Every directory is that of a plain column."""


@dataclass(frozen=True, slots=True)
class TreeKey:
    """How the partition key of a table divides a tree.

    `columns` are those of the files and, behind them, those of the named directories; `values` are
    the SQL of the latter in the source, by name; `properties` are what a tree remembers of them.
    """

    columns: MappedColumns
    spec: DerivedSpec
    values: Mapping[str, str]
    properties: Mapping[str, str]


def tree_key(table: MergeTreeTable, columns: MappedColumns, names: KeyNames) -> TreeKey:
    """Decide the directories of a tree.

    Args:
        table: the source.
        columns: of the files.
        names: what the user, or the tree that is there, calls its directories.

    Raises:
        RefusedError: a name cannot be used (code 36).
        UnsupportedError: a member of the key has no directories that every reader takes apart
            alike (code 48).
    """
    named = names.named
    check_names(f"export {table.name} to Hive directories", table, named)
    members = parse_partition_key(table.engine.partition_by)
    of_named = dict(zip(members, names.types, strict=True)) if named else {}
    made = tuple(_column(one, of_named[one.expression], table.server_zone) for one in named)
    every = _with(columns, made)
    called: dict[Expression, str] = {one.expression: one.name for one in named}
    types = {c.name: c.type for c in every.columns}
    spelled = {c.name: how for c in every.columns if (how := _spelling(c))}
    check_directories(table, types, called, spelled)
    # Every member is a column by now: of the files, or of the directories alone.
    key = ", ".join(quote_identifier(_name(m, called)) for m in members)
    engine = replace(table.engine, partition_by=f"tuple({key})") if named else table.engine
    spec = derive_spec(replace(table, engine=engine), every)
    names_of_levels = {_name(m, called) for m in members}
    used = {name: how for name, how in spelled.items() if name in names_of_levels}
    return TreeKey(
        every,
        replace(spec, key=table.engine.partition_by),
        {
            one.name: (
                f"tupleElement({qualified('_partition_value')},"
                f" {members.index(one.expression) + 1})"
            )
            for one in named
        },
        {**rules_of(used), **remembering(named), **remembering_spellings(used)},
    )


def check_values(
    table: MergeTreeTable,
    partition_id: PartitionId,
    levels: Sequence[Level],
    values: Sequence[str | None],
) -> None:
    """Refuse values that readers of directories would take for others.

    Args:
        table: the source.
        partition_id: of the partition.
        levels: of the tree, from the root.
        values: of its directories.

    Raises:
        UnsupportedError: a value has no directory of its own; all of them are named (code 48).
    """
    reasons = [
        f"its {level.name} {why}"
        for level, value in zip(levels, values, strict=True)
        if (why := why_no_directory(level, value))
    ]
    if reasons:
        message = (
            f"Cannot export partition {partition_id} of {table.name} to a Hive directory: "
            f"{'; '.join(reasons)}. Export it to an Iceberg table."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


def _spelling(column: MappedColumn) -> str:
    """Return how a time or a fixed text is spelled, '' for what needs no rule, or has none."""
    match plain_type(column.source.type), column.type:
        case DateTime(), TimestamptzType():
            return spelled_in_utc(0)
        case DateTime64(precision), TimestamptzType():
            return spelled_in_utc(precision)
        case FixedString(), FixedType():
            return TEXT_OR_HEX
        case _:
            return ""


def _name(member: Expression, called: Mapping[Expression, str]) -> str:
    if isinstance(member, ColumnName):
        return member.name
    return called[member]


def _column(one: NamedDirectory, of: DataType, zone: str) -> MappedColumn:
    """Return the column of a directory; what cannot be mapped is refused with its type."""
    mapping = TypeMapping("", zone)
    mapped, _ = mapping.map(of)
    expression = render_expression(one.expression)
    source = Column(one.name, of, render_type(of), "ALIAS", expression)
    doc = f"{expression} of the partition key, in the names of directories only"
    return MappedColumn(
        source, "", mapped, required=False, doc=doc, faithfulness=mapping.faithfulness
    )


def _with(columns: MappedColumns, made: Sequence[MappedColumn]) -> MappedColumns:
    if not made:
        return columns
    last = columns.schema.highest_field_id
    added = (
        NestedField(last + n, one.name, one.type, doc=one.doc, required=False)
        for n, one in enumerate(made, start=1)
    )
    schema = assign_fresh_schema_ids(Schema(*columns.schema.fields, *added))
    return MappedColumns((*columns.columns, *made), schema)

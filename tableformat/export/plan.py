"""Plans the lake table of a source table (job step 1 of 3: plan -> write -> commit).

`plan_table` computes the plan from the source's description and the user's options alone, and
opens nothing. `tableformat/export/destination.py` matches the plan with the existing table.

`tree_key` adds the columns of a Hive tree whose directories the user names:

* no data file contains such a column. The tree's schema has it, optional, after the file's
  columns;
* the partition spec uses it like any other column;
* its value in a partition is the one that ClickHouse stores for that member of the key. It is not
  computed again: a key over a DateTime without a time zone may give another value now.

Source: docs/spec/hive.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import FixedType, NestedField, TimestamptzType

from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.committer import LakeTableState
from tableformat.errors import RefusedError, Unable, UnsupportedError, UsageError
from tableformat.export.content import Content, content_of
from tableformat.export.ports import SliceFailure
from tableformat.export.slices import Slice
from tableformat.hive.layout import (
    NamedDirectory,
    check_directories,
    check_names,
    remembering,
    rules_of,
)
from tableformat.hive.levels import (
    TEXT_OR_HEX,
    Level,
    remembering_spellings,
    spelled_in_utc,
    why_no_directory,
)
from tableformat.iceberg.existing_table import conversions_in_force
from tableformat.iceberg.key_functions import plain_type
from tableformat.iceberg.partition_proof import probe, why_not_one_to_one
from tableformat.iceberg.partition_spec import DerivedSpec, chosen_spec, derive_spec
from tableformat.iceberg.properties import remembered_source, table_properties
from tableformat.iceberg.schema import MappedColumn, MappedColumns, TypeMapping, map_columns
from tableformat.iceberg.sort_order import SortedField, sort_order, sort_prefix
from tableformat.iceberg.spec_fields import parse_spec, partition_spec
from tableformat.ledger import ExportedPart
from tableformat.mergetree.digest_sql import DigestColumn, source_columns
from tableformat.mergetree.expression import ColumnName, Expression, render_expression
from tableformat.mergetree.expression_parser import parse_partition_key
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.table_settings import check_readable
from tableformat.mergetree.types import DataType, DateTime, DateTime64, FixedString, render_type
from tableformat.mergetree.wire_types import qualified
from tableformat.messages import Option
from tableformat.names import HiveName, LakeName, PartitionId, PartName, quote_identifier
from tableformat.receipt import Receipt
from tableformat.source import FrozenPartition, Probe

__all__ = [
    "NO_NAMES",
    "KeyNames",
    "SizeRatio",
    "TablePlan",
    "TreeKey",
    "check_one_to_one",
    "check_values",
    "frozen_content",
    "plan_table",
    "remembered_conversions",
    "tree_key",
]


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The named directories of a tree, and the types of the partition key's members in order.

    Without names there are no types.
    """

    named: tuple[NamedDirectory, ...] = ()
    types: tuple[DataType, ...] = ()


NO_NAMES = KeyNames()
"""For a tree whose directories are all plain columns, and for a table of a catalog."""


@dataclass(frozen=True, slots=True)
class TreeKey:
    """The partitioning of a Hive tree by the source's partition key.

    `columns` are those of the files, followed by those of the named directories. `values` has the
    SQL of the named directories in the source, by name. `properties` are stored in the tree.
    """

    columns: MappedColumns
    spec: DerivedSpec
    values: Mapping[str, str]
    properties: Mapping[str, str]


def tree_key(table: MergeTreeTable, columns: MappedColumns, names: KeyNames) -> TreeKey:
    """Return the partitioning of a tree.

    Args:
        table: the source table.
        columns: the columns of the files.
        names: the names of directories, from the user or from the existing tree.

    Raises:
        RefusedError: a name cannot be used (code 36).
        UnsupportedError: readers would parse the directories of a member of the key differently
            (code 48).
    """
    named = names.named
    check_names(f"{table.name} to Hive directories", table, named)
    members = parse_partition_key(table.engine.partition_by)
    of_named = dict(zip(members, names.types, strict=True)) if named else {}
    made = tuple(_column(one, of_named[one.expression], table.server_zone) for one in named)
    every = _with(columns, made)
    called: dict[Expression, str] = {one.expression: one.name for one in named}
    types = {c.name: c.type for c in every.columns}
    spelled = {c.name: how for c in every.columns if (how := _spelling(c))}
    check_directories(table, types, called, spelled)
    # Now every member of the key is a column, of the files or of the directories only.
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
    """Refuse partition values that readers of directories would parse as other values.

    Args:
        table: the source table.
        partition_id: the id of the partition.
        levels: the levels of the tree, from the root.
        values: the value at each level.

    Raises:
        UnsupportedError: values have no directory of their own; the message lists all (code 48).
    """
    reasons = [
        f"its {level.name} {why}"
        for level, value in zip(levels, values, strict=True)
        if (why := why_no_directory(level, value))
    ]
    if reasons:
        subject = f"partition {partition_id} of {table.name} to a Hive directory"
        why = f"{'; '.join(reasons)}. Export it to an Iceberg table."
        raise UnsupportedError(Unable.of(subject, why), code=NOT_IMPLEMENTED)


def _spelling(column: MappedColumn) -> str:
    """Return the rule for spelling a time or a FixedString, '' for types without a rule."""
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
    """Return the column of a named directory."""
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


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The plan of the lake table, from the source and the user's options alone.

    `columns` are those of the files. `tree` is the partitioning of a Hive tree, which may have
    columns that no file has; None for a table of a catalog. `strict`: an existing table must have
    the same columns in the same order.
    """

    table: MergeTreeTable
    columns: MappedColumns
    spec: DerivedSpec
    order: tuple[SortedField, ...]
    tree: TreeKey | None = None
    strict: bool = False

    @property
    def all_columns(self) -> MappedColumns:
        """The columns of the destination: those of the files and of named directories."""
        return self.columns if self.tree is None else self.tree.columns

    @property
    def named(self) -> Mapping[str, str]:
        """The columns that only directories have, each with its SQL in the source."""
        return {} if self.tree is None else self.tree.values

    @property
    def schema(self) -> Schema:
        """The schema to create a table with; the catalog assigns its own field ids."""
        return self.all_columns.schema

    @property
    def partition_spec(self) -> PartitionSpec:
        """The partition spec to create a table with."""
        return partition_spec(self.spec.fields, self.schema)

    @property
    def sort_order(self) -> SortOrder:
        """The sort order to create a table with."""
        return sort_order(self.order, self.schema)

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties to create a table with."""
        of_tree = {} if self.tree is None else self.tree.properties
        return {**table_properties(self.table, self.columns), **of_tree}

    @property
    def probes(self) -> tuple[Probe, ...]:
        """The probes to evaluate on every partition, one for each partition field."""
        named = self.named
        return tuple(
            probe(f, self.all_columns, value=named.get(f.column)) for f in self.spec.fields
        )

    @property
    def digest_columns(self) -> tuple[DigestColumn, ...]:
        """The columns of a partition's digest."""
        return source_columns([c.source for c in self.columns.columns], self.columns.conversions)


@dataclass(slots=True)
class SizeRatio:
    """The measured ratio of file bytes to bytes on the source's disks; 1 before the first file."""

    source_bytes: int = field(default=0)
    file_bytes: int = field(default=0)

    @property
    def value(self) -> float:
        """The ratio for planning, at least 0.01."""
        return max(0.01, self.file_bytes / self.source_bytes) if self.source_bytes else 1.0

    def measured(self, planned: Iterable[Slice], results: Iterable[Receipt | SliceFailure]) -> None:
        """Update the ratio from finished files and the slices that were planned for them."""
        ratio = self.value
        estimates = {s.number: s.estimated_bytes / ratio for s in planned}
        for result in results:
            size = getattr(result, "file_bytes", None)
            if size is not None:
                self.source_bytes += int(estimates[result.slice_number])
                self.file_bytes += size


def remembered_conversions(
    name: LakeName | None,
    table: MergeTreeTable,
    given: Mapping[str, str],
    state: LakeTableState | None,
    preposition: str = "to",
) -> Mapping[str, str]:
    """Return the conversions of the plan: the user's, and those stored in an existing table.

    Args:
        name: the destination, None if it is not known.
        table: the source table.
        given: the conversions of the user, by column or by type.
        state: the destination's state, None if it does not exist.
        preposition: the word before the destination's name in messages.

    Raises:
        RefusedError: a conversion differs from the one with which the table was created, or that of
            a type cannot be applied to a column (code 36).
        DestinationError: the stored conversions cannot be read.
    """
    remembered = remembered_source(state.properties) if state is not None else None
    subject = f"{table.name}" if name is None else f"{table.name} {preposition} {name}"
    return conversions_in_force(subject, table, given, remembered)


def plan_table(
    table: MergeTreeTable,
    *,
    conversions: Mapping[str, str],
    strict: bool,
    partition_spec: str | None,
    to: LakeName | None = None,
    names: KeyNames = NO_NAMES,
) -> TablePlan:
    """Plan the lake table of a source table.

    Args:
        table: the source table.
        conversions: the conversion of each column, as the user gave it.
        strict: refuse types that change their kind, and tables with other columns or another order.
        partition_spec: the spec that the user chose instead of the derived one.
        to: the destination, if it is known; a tree of Hive directories has its own rules.
        names: the names of the directories of a tree.

    Raises:
        RefusedError: the table cannot be read, or a column or the partition key cannot be mapped;
            the message lists all reasons of a kind.
        UsageError: the text of the spec cannot be parsed.
    """
    check_readable(table)
    columns = map_columns(table, conversions, strict=strict)
    if isinstance(to, HiveName):
        if partition_spec is not None:
            message = (
                f"Cannot use {Option.PARTITION_SPEC} for {to}: the directories of a tree are the "
                "columns of the partition key. Leave it out."
            )
            raise UsageError(message)
        tree = tree_key(table, columns, names)
        return TablePlan(
            table, columns, tree.spec, sort_prefix(table, columns), tree, strict=strict
        )
    spec = (
        derive_spec(table, columns)
        if partition_spec is None
        else chosen_spec(table, parse_spec(partition_spec, columns))
    )
    return TablePlan(table, columns, spec, sort_prefix(table, columns), strict=strict)


def check_one_to_one(plan: TablePlan, to: LakeName) -> None:
    """Refuse to replace whole lake partitions that may hold several source partitions.

    Raises:
        RefusedError: the partition spec is not one to one with the source's partition key.
    """
    why = why_not_one_to_one(plan.table, plan.columns, plan.spec)
    if why:
        message = (
            f"Cannot replace whole lake partitions of {to}: several partitions of "
            f"{plan.table.name} may be in one: {why}. Use {Option.FORCE} without "
            f"{Option.REPLACE_PARTITION}, which removes files of the partition's own exports only."
        )
        raise RefusedError(message)


def frozen_content(table: MergeTreeTable, frozen: FrozenPartition) -> Content:
    """Return the content identity of a partition snapshot, with the parts' names in the source."""
    content = content_of(table, tuple(p.part for p in frozen.parts))
    parts = []
    for frozen_part in frozen.parts:
        name, part = PartName.parse(frozen_part.source_name), frozen_part.part
        parts.append(
            ExportedPart(
                frozen_part.source_name,
                part.hash_of_all_files,
                part.rows,
                name.low,
                name.high,
                name.mutation or name.low,
                part.bytes_on_disk,
            )
        )
    return replace(content, parts=tuple(parts))

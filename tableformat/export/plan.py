"""Step 1 of 3 of the job (plan -> write -> commit): what the lake table must be.

`plan_table` decides it from the source and the user's words alone; `destination.py` meets it with
the table that is really there. Nothing here opens anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from tableformat.committer import (
    LakeTableState,
)
from tableformat.errors import RefusedError, UsageError
from tableformat.export.content import Content, content_of
from tableformat.export.directories import NO_NAMES, KeyNames, TreeKey, tree_key
from tableformat.export.ports import SliceFailure
from tableformat.export.slices import Slice
from tableformat.iceberg.one_to_one import why_not_one_to_one
from tableformat.iceberg.partition_proof import probe
from tableformat.iceberg.partition_spec import DerivedSpec, chosen_spec, derive_spec
from tableformat.iceberg.properties import (
    remembered_source,
    table_properties,
)
from tableformat.iceberg.remembered_conversions import conversions_in_force
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.iceberg.sort_order import (
    SortedField,
    sort_order,
    sort_prefix,
)
from tableformat.iceberg.spec_fields import parse_spec, partition_spec
from tableformat.ledger import ExportedPart
from tableformat.mergetree.digest_sql import DigestColumn, source_columns
from tableformat.mergetree.readability import check_readable
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import HiveName, LakeName, PartName
from tableformat.receipt import Receipt
from tableformat.source import FrozenPartition, Probe

__all__ = [
    "SizeRatio",
    "TablePlan",
    "check_one_to_one",
    "frozen_content",
    "plan_table",
    "remembered_conversions",
]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What the lake table must be: it follows from the source and the user's words alone.

    `columns` are those of the files. `tree` says how a tree of Hive directories is divided, which
    may have columns that no file has. `strict`: a table that is there has to have the same columns
    in the same order.
    """

    table: MergeTreeTable
    columns: MappedColumns
    spec: DerivedSpec
    order: tuple[SortedField, ...]
    tree: TreeKey | None = None
    strict: bool = False

    @property
    def all_columns(self) -> MappedColumns:
        """The columns of the destination: those of the files, and of directories alone."""
        return self.columns if self.tree is None else self.tree.columns

    @property
    def named(self) -> Mapping[str, str]:
        """The columns that are in directories alone, each with its SQL in the source."""
        return {} if self.tree is None else self.tree.values

    @property
    def schema(self) -> Schema:
        """The schema to create a table with; the catalog gives it its own ids."""
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
        """What every partition is asked, one probe for each partition field."""
        named = self.named
        return tuple(
            probe(f, self.all_columns, value=named.get(f.column)) for f in self.spec.fields
        )

    @property
    def digest_columns(self) -> tuple[DigestColumn, ...]:
        """What is digested of every partition, where a digest is asked for."""
        return source_columns([c.source for c in self.columns.columns], self.columns.conversions)


@dataclass(slots=True)
class SizeRatio:
    """File bytes per byte on the source's disks, as measured so far; 1 before the first file."""

    source_bytes: int = field(default=0)
    file_bytes: int = field(default=0)

    @property
    def value(self) -> float:
        """The ratio to plan with."""
        return max(0.01, self.file_bytes / self.source_bytes) if self.source_bytes else 1.0

    def measured(self, planned: Iterable[Slice], results: Iterable[Receipt | SliceFailure]) -> None:
        """Learn from finished files; what was planned at ratio r is bytes / r at the source."""
        ratio = self.value
        estimates = {s.number: s.estimated_bytes / ratio for s in planned}
        for result in results:
            size = getattr(result, "file_bytes", None)
            if size is not None:
                self.source_bytes += int(estimates[result.slice_number])
                self.file_bytes += size


def remembered_conversions(
    name: LakeName,
    table: MergeTreeTable,
    given: Mapping[str, str],
    state: LakeTableState | None,
) -> Mapping[str, str]:
    """Return the conversions to plan with: the user's, and what an existing table remembers.

    Args:
        name: the destination.
        table: the source.
        given: what the user said.
        state: of the destination, None when it is not there yet.

    Raises:
        RefusedError: the user said something else than the table was made with (code 36).
        DestinationError: what the table remembers cannot be read.
    """
    remembered = remembered_source(state.properties) if state is not None else None
    return conversions_in_force(f"export {table.name} to {name}", table, given, remembered)


def plan_table(
    table: MergeTreeTable,
    *,
    conversions: Mapping[str, str],
    strict: bool,
    partition_spec: str | None,
    to: LakeName | None = None,
    names: KeyNames = NO_NAMES,
) -> TablePlan:
    """Decide what the lake table must be.

    Args:
        table: the source.
        conversions: column to conversion, as the user said.
        strict: refuse what changes kind, and tables that have other columns, or another order.
        partition_spec: the spec that the user named instead of the derived one.
        to: the destination, where it is known; a tree of Hive directories has its own rules.
        names: of the directories of a tree.

    Raises:
        RefusedError: the table cannot be read, or a column or the partition key cannot be mapped;
            all reasons of the kind at once.
        UsageError: the spec's text cannot be read.
    """
    check_readable(table)
    columns = map_columns(table, conversions, strict=strict)
    if isinstance(to, HiveName):
        if partition_spec is not None:
            message = (
                f"Cannot use --partition-spec for {to}: the directories of a tree are the columns "
                "of the partition key. Leave it out."
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
    """Refuse to replace whole lake partitions of a table in which they are not the source's.

    Raises:
        RefusedError: several source partitions may lie in one lake partition.
    """
    why = why_not_one_to_one(plan.table, plan.columns, plan.spec)
    if why:
        message = (
            f"Cannot replace whole lake partitions of {to}: several partitions of "
            f"{plan.table.name} may lie in one: {why}. Use --force without --replace-partition, "
            "which removes files of the partition's own exports only."
        )
        raise RefusedError(message)


def frozen_content(table: MergeTreeTable, frozen: FrozenPartition) -> Content:
    """Return the content identity of what was frozen, under the parts' names in the source."""
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

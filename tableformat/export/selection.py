"""Which partitions an export is about: one by id, one by expression, or all that a filter keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tableformat.errors import NotFoundError
from tableformat.mergetree.division import time_column
from tableformat.mergetree.expression_text import render_expression
from tableformat.mergetree.parts import NoTimes, PartitionSummary
from tableformat.mergetree.summary_filter import SummaryFilter
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId
from tableformat.quantities import counted
from tableformat.source import Source

__all__ = ["AllPartitions", "ByExpression", "ById", "Selection", "no_partition", "select"]

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class ById:
    """The partition with this id."""

    partition_id: PartitionId


@dataclass(frozen=True, slots=True)
class ByExpression:
    """The partition that ClickHouse finds for an expression, e.g. `202401` or `tuple('x', 3)`."""

    text: str


@dataclass(frozen=True, slots=True)
class AllPartitions:
    """Every partition with active parts that the filter keeps; never one whose source is gone."""

    where: SummaryFilter | None = None


Selection = ById | ByExpression | AllPartitions


def select(
    selection: Selection,
    table: MergeTreeTable,
    source: Source,
    *,
    was_exported: Callable[[PartitionId], bool],
    none: Callable[[str], None],
) -> tuple[PartitionId, ...]:
    """Return the ids that a selection is about, in the order of the source.

    Args:
        selection: what the user said.
        table: the source table.
        source: where its partitions are listed.
        was_exported: whether the ledger has a landed export of an id; such an id is known even when
            its source partition was dropped since (coverage.md, reading 1).
        none: hears why it is about no partition at all, with what there is.

    Raises:
        UsageError: the filter needs times that are not known.
        NotFoundError: the id has neither active parts nor a landed export.
    """
    match selection:
        case ByExpression(text):
            return (source.find_partition(table, text),)
        case AllPartitions(where):
            found = source.partitions(table.name)
            if where is not None and where.reads_times:
                found = source.with_times(table, found)
            chosen = tuple(p.partition_id for p in found if where is None or where.matches(p))
            if not chosen:
                none(no_partition(table, found, where))
            return chosen
        case ById(partition_id):
            known = [p.partition_id for p in source.partitions(table.name)]
            if partition_id in known or was_exported(partition_id):
                return (partition_id,)
            raise _unknown(partition_id, table, known)


def no_partition(
    table: MergeTreeTable, found: tuple[PartitionSummary, ...], where: SummaryFilter | None
) -> str:
    """Say that a selection holds no partition, and what there is."""
    if not found or where is None:
        return f"no partition is selected: {table.name} has no partition with active parts"
    ids = [str(one.partition_id) for one in found]
    there = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
    times = [t for one in found for t in (one.min_time, one.max_time) if t]
    column = time_column(table)
    of_time = (
        f", {column.name} from {min(times)} to {max(times)}"
        if where.reads_times and times and not isinstance(column, NoTimes)
        else ""
    )
    return (
        f"no partition is selected: of {counted(len(ids), 'partition')} of {table.name} "
        f"({there}{of_time}) "
        f"none fulfils {render_expression(where.expression)}"
    )


def _unknown(
    partition_id: PartitionId, table: MergeTreeTable, known: list[PartitionId]
) -> NotFoundError:
    shown = ", ".join(str(p) for p in known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    has = (
        f"It has {counted(len(known), 'partition')}: {shown}."
        if known
        else "It has no partition with active parts."
    )
    return NotFoundError(
        f"Cannot export partition {partition_id} of {table.name}: it has no active parts and was "
        f"never exported. {has} List them with `mergeberg partitions {table.name}`."
    )

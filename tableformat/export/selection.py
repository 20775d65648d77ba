"""Which partitions an export is about: one by id, one by expression, or all that a filter keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tableformat.errors import NotFoundError
from tableformat.mergetree.summary_filter import SummaryFilter
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId
from tableformat.source import Source

__all__ = ["AllPartitions", "ByExpression", "ById", "Selection", "select"]

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
) -> tuple[PartitionId, ...]:
    """Return the ids that a selection is about, in the order of the source.

    Args:
        selection: what the user said.
        table: the source table.
        source: where its partitions are listed.
        was_exported: whether the ledger has a landed export of an id; such an id is known even when
            its source partition was dropped since (coverage.md, reading 1).

    Raises:
        NotFoundError: the id has neither active parts nor a landed export.
    """
    match selection:
        case ByExpression(text):
            return (source.find_partition(table, text),)
        case AllPartitions(where):
            found = source.partitions(table.name)
            return tuple(p.partition_id for p in found if where is None or where.matches(p))
        case ById(partition_id):
            known = [p.partition_id for p in source.partitions(table.name)]
            if partition_id in known or was_exported(partition_id):
                return (partition_id,)
            raise _unknown(partition_id, table, known)


def _unknown(
    partition_id: PartitionId, table: MergeTreeTable, known: list[PartitionId]
) -> NotFoundError:
    shown = ", ".join(str(p) for p in known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    has = (
        f"It has {len(known)} partition(s): {shown}."
        if known
        else "It has no partition with active parts."
    )
    return NotFoundError(
        f"Cannot export partition {partition_id} of {table.name}: it has no active parts and was "
        f"never exported. {has} List them with `mergeberg partitions {table.name}`."
    )

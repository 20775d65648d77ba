"""The partitions and active parts of a source's table, for every front door."""

from __future__ import annotations

from catalog.clickhouse.source import ClickHouseSource
from tableformat.mergetree.parts import Part, PartitionSummary
from tableformat.names import PartitionId, TableName

__all__ = ["partitions_of", "parts_of"]


def partitions_of(source: ClickHouseSource, table: TableName) -> tuple[PartitionSummary, ...]:
    """Return the partitions of a table with active parts, with their times.

    Raises:
        NotFoundError: there is no such table.
        SourceError: the source cannot be read.
    """
    return source.with_times(source.describe(table), source.partitions(table))


def parts_of(
    source: ClickHouseSource, table: TableName, partition_id: PartitionId | None
) -> tuple[Part, ...]:
    """Return the active parts of a table.

    Args:
        source: where the table is.
        table: the table.
        partition_id: of which partition, None for all.

    Raises:
        NotFoundError: there is no such table.
        SourceError: the source cannot be read.
    """
    source.describe(table)
    there = (p.partition_id for p in source.partitions(table))
    wanted = there if partition_id is None else (partition_id,)
    return tuple(part for one in wanted for part in source.parts(table, one))

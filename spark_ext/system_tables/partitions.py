"""`mergeberg.system.partitions`: the partitions of the lake tables that exports go to, in main."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from spark_ext.procedures.declared import Call, Column, Rows, SystemTable, Value
from spark_ext.system_tables.lake_parts import LakePart, lake_parts

__all__ = ["PARTITIONS", "partition_rows"]


def _run(call: Call) -> Rows:
    return tuple(partition_rows(lake_parts(call.conf)))


def partition_rows(parts: Iterable[LakePart]) -> Iterator[tuple[Value, ...]]:
    """Yield a row for each partition that parts are of, in the order of the first of each."""
    sums: dict[tuple[str, str | None, str], list[int]] = {}
    for part in parts:
        of_this = sums.setdefault((part.table, part.partition_id, part.file.partition), [0, 0, 0])
        for at, value in enumerate((1, part.file.rows, part.file.bytes)):
            of_this[at] += value
    return ((*partition, *of_this) for partition, of_this in sums.items())


PARTITIONS: Final = SystemTable(
    name="partitions",
    description="The partitions of the lake tables that exports go to, in main.",
    columns=(
        Column("table", "STRING", "the lake table"),
        Column("partition_id", "STRING", "of the ClickHouse partition; NULL when nobody can tell"),
        Column("partition", "STRING", "the lake's partition: ts_month=2024-01"),
        Column("parts", "BIGINT", "data files"),
        Column("rows", "BIGINT", "rows of the files, rows that were deleted since included"),
        Column("bytes", "BIGINT", "bytes of the files"),
    ),
    run=_run,
)

"""`mergeberg.system.parts` and `detached_parts`: the data files of the lake tables (reading 35)."""

from __future__ import annotations

from functools import partial
from typing import Final

from spark_ext.procedures.declared import Call, Column, Rows, SystemTable, Value
from spark_ext.system_tables.lake_parts import LakePart, lake_parts
from tableformat.branches import DETACHED_BRANCH, MAIN_BRANCH

__all__ = ["DETACHED_PARTS", "PARTS"]


def _run(branch: str, call: Call) -> Rows:
    return tuple(_row(part) for part in lake_parts(call.conf, branch))


def _row(part: LakePart) -> tuple[Value, ...]:
    file = part.file
    return (
        part.table,
        part.partition_id,
        file.partition,
        part.name,
        part.source_parts,
        file.rows,
        file.bytes,
        file.path,
        part.disk,
        file.snapshot_id,
    )


_COLUMNS: Final = (
    Column("table", "STRING", "the lake table"),
    Column("partition_id", "STRING", "of the ClickHouse partition; NULL when nobody can tell"),
    Column("partition", "STRING", "the lake's partition: ts_month=2024-01"),
    Column("name", "STRING", "the part: <partition_id>_<n>_<n>_0; NULL without a partition id"),
    Column("source_parts", "ARRAY<STRING>", "the ClickHouse parts of which it holds rows"),
    Column("rows", "BIGINT", "rows of the file, rows that were deleted since included"),
    Column("bytes", "BIGINT", "bytes of the file"),
    Column("file_path", "STRING", "the file"),
    Column("disk_name", "STRING", "the disk that it is on; NULL on none that the table names"),
    Column("snapshot_id", "BIGINT", "the snapshot that added it"),
)

PARTS: Final = SystemTable(
    name="parts",
    description="The parts of the lake tables that exports go to: a part is a data file of main.",
    columns=_COLUMNS,
    run=partial(_run, MAIN_BRANCH),
)

DETACHED_PARTS: Final = SystemTable(
    name="detached_parts",
    description="What DETACH took out of lake tables, until ATTACH or DROP DETACHED.",
    columns=_COLUMNS,
    run=partial(_run, DETACHED_BRANCH),
)

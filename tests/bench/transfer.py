"""The process that is measured: it transfers one prepared slice and says what that took.

python -m tests.bench.transfer SIDE PREPARED DIRECTORY

Both sides open the same hard-linked parts in the same way, and both are measured from there to the
finished file. `mergeberg` writes as a task does, durably and with its digest; `clickhouse` is
`INSERT INTO FUNCTION file(..., Parquet)` with its own types. Sides that end in -1 have one
processor and read in the order of the key; `clickhouse-2` reads all partitions with two threads in
no order, because a merge of partitions is more than an export does. `mergeberg-in-turn` is
`mergeberg` with output_format_parallel_formatting = 0.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import adbc_driver_chdb

from catalog.clickhouse.parts import open_slice
from spark_ext.engine.tasks import write_slice
from tableformat.export.slices import Share, Slice, WritePlan
from tableformat.names import SOURCE_ALIAS, quote_string
from tests.bench.figures import Figures, measured
from tests.bench.prepare import Prepared
from tests.support.processes import own_peak

IN_TURN: Final = "mergeberg-in-turn"


def main(side: str, prepared: Path, directory: Path) -> None:
    """Transfer, and print the figures as one line."""
    job = Prepared.load(prepared).into(directory)
    # Only Linux lets a process have one processor, and only there the benchmark is run.
    if side.endswith("-1") and sys.platform == "linux":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    chosen = job.together if side == "clickhouse-2" else job.slices[0]
    plan = replace(job.plan, share=Share(1, in_turn=side == IN_TURN))
    written: list[tuple[int, int]] = []

    def ours() -> None:
        receipt = write_slice(plan, chosen, "0", lambda _: None)
        written.append((receipt.file_bytes, receipt.rows))

    def theirs() -> None:
        path = directory / "clickhouse.parquet"
        insert(job.plan, chosen, path, in_order=side.endswith("-1"))
        written.append((path.stat().st_size, chosen.rows or 0))

    wall, cpu = measured(ours if side.startswith("mergeberg") else theirs)
    ((size, rows),) = written
    sys.stdout.write(Figures(wall, cpu, own_peak(), size, rows).to_json() + "\n")
    sys.stdout.flush()
    # Past the ending of chdb's threads.
    os._exit(0)


def insert(plan: WritePlan, slice_: Slice, path: Path, *, in_order: bool) -> None:
    """Let ClickHouse write a slice with its own Parquet writer, in the codec of the plan.

    Raises:
        SourceError: the parts cannot be read.
    """
    fmt = plan.format
    settings = {
        "max_threads": 1 if in_order else 2,
        "max_insert_threads": 1,
        "optimize_read_in_order": 1,
        "output_format_parquet_compression_method": quote_string(fmt.codec),
        "output_format_compression_level": fmt.level,
        "output_format_parquet_row_group_size": fmt.row_group_rows,
        "output_format_parquet_write_bloom_filter": 0,
        "output_format_parquet_parallel_encoding": 1,
    }
    with (
        open_slice(plan, slice_) as opened,
        adbc_driver_chdb.connect("chdb://") as connection,
        connection.cursor() as cursor,
    ):
        order = f" ORDER BY {plan.order_by}" if in_order else ""
        cursor.execute(
            f"INSERT INTO FUNCTION file({quote_string(str(path))}, 'Parquet') SELECT * FROM"
            f" {opened.table} AS {SOURCE_ALIAS}{order}"
            f" SETTINGS {', '.join(f'{name} = {value}' for name, value in settings.items())}"
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))

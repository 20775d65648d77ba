"""The Spark application that is measured: a warm session on two cores that repeats one job.

python -m tests.bench.spark_job PREPARED DIRECTORY

It runs the whole job, all slices as tasks, for every line that it reads, and prints what that took.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark_ext.engine.runner import run
from spark_ext.engine.session import SparkSettings, open_session
from tableformat.export.slices import tasks
from tableformat.receipt import Receipt
from tests.bench.figures import Figures, measured
from tests.bench.prepare import Prepared

_SLOTS = 2


def main(prepared: Path, directory: Path) -> None:
    """Write the figures of one job for every line of the input."""
    job = Prepared.load(prepared).into(directory)
    spark = open_session(SparkSettings(f"local[{_SLOTS}]"))
    for _ in sys.stdin:
        sys.stdout.write(once(spark, job).to_json() + "\n")
        sys.stdout.flush()
        shutil.rmtree(directory / "data")
    os._exit(0)


def once(spark: SparkSession, job: Prepared) -> Figures:
    """Run the job and return its figures; the peak is that of the largest task."""
    receipts: list[Receipt] = []

    def write() -> None:
        receipts.extend(run(spark, job.plan, tasks(job.slices, _SLOTS), on_progress=lambda _: None))

    wall, cpu = measured(write)
    return Figures(
        wall,
        cpu,
        max(r.peak_memory for r in receipts),
        sum(r.file_bytes for r in receipts),
        sum(r.rows for r in receipts),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

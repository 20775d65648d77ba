"""A Spark worker that dies while it writes costs only the files that were not finished."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_ext.engine.runner import SparkWriter, write_all
from spark_ext.engine.tasks import installed_versions
from tableformat.export.ports import Writing
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.export.writers import Retrying
from tests.support.fakes import FakeSource
from tests.support.frozen_parts import PLAN, insert, make_source
from tests.support.local_spark import SPARK_MARKS, local_spark
from tests.support.processes import command_line, descendants, parent
from tests.support.scenarios import TO, ports_of

pytestmark = SPARK_MARKS


def workers(pid: int) -> Iterator[int]:
    """Yield the Python workers of the Spark that a process has started."""
    for one in descendants(pid):
        if all("pyspark.daemon" in command_line(of) for of in (one, parent(one))):
            yield one


class _Counting(SparkWriter):
    """Counts how often each slice is tried."""

    tries: Counter[int]

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        self.tries.update(s.number for task in tasks for s in task.slices)
        return super().write(plan, tasks, on_rows=on_rows, should_stop=should_stop)


@pytest.mark.soak
def test_the_files_that_a_dead_worker_had_not_finished_are_written_again(tmp_path: Path) -> None:
    """Harm prevented: a worker that ran out of memory fails hours of work of all partitions."""
    source = make_source(
        tmp_path / "disk",
        insert(0, 1000, 2),
        insert(5000, 600_000, 1, name="repeat(toString(cityHash64(number)), 10)"),
    )
    found = [source.slices(part=part)[0] for part in range(2)]
    small, large = (dataclasses.replace(s, number=n) for n, s in enumerate(found))
    plan = dataclasses.replace(
        PLAN,
        data_location=str(tmp_path / "data"),
        receipts_location=str(tmp_path / "metadata/mergeberg"),
        versions=installed_versions(),
        format=dataclasses.replace(PLAN.format, row_group_rows=20_000),
    )
    killed: list[int] = []

    def kill_once(rows: int) -> None:
        if rows > small.ranges[0].rows and not killed:
            killed.extend(workers(os.getpid()))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with local_spark() as spark:
        writer = _Counting(spark)
        writer.tries = Counter()
        ports = ports_of(tmp_path, FakeSource())
        ports = dataclasses.replace(ports, pause=lambda _: None)
        retrying = Retrying(writer, ports, TO, 3)
        written = write_all(
            retrying.write(
                plan,
                (SliceTask((small, large)),),
                on_rows=kill_once,
                should_stop=lambda: False,
            )
        )

    assert killed != []
    assert [r.slice_number for r in written.receipts] == [0, 1]
    assert [r.rows for r in written.receipts] == [1000, 600_000]
    assert written.failures == ()
    assert writer.tries == {0: 1, 1: 2}

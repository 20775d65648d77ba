"""What limits do to a real Spark job: files open at a time, and bytes per second."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from catalog.rate_limit import RatePool
from spark_ext.engine.runner import SparkWriter, write_all
from spark_ext.engine.tasks import installed_versions
from tableformat.export.ports import Written
from tableformat.export.request import Limits
from tableformat.export.slices import Slice, SliceTask
from tableformat.export.writers import with_limits
from tests.catalog.test_shared_rate import is_awaited
from tests.support.frozen_parts import PLAN, Source, insert, make_source
from tests.support.local_spark import SPARK_MARKS
from tests.support.scenarios import Partitions, ports_of
from tests.support.spark_application import SparkApplication

pytestmark = SPARK_MARKS

FILES = 3


@pytest.fixture(scope="module")
def spark(spark_application: SparkApplication) -> Iterator[SparkSession]:
    with spark_application.session() as session:
        yield session


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory) -> tuple[Slice, ...]:
    """Return slices of parts of about 100,000 rows each."""
    source: Source = make_source(
        tmp_path_factory.mktemp("source") / "disk",
        *(insert(100_000 * n, 100_000, 1) for n in range(FILES)),
    )
    found = [source.slices(part=part)[0] for part in range(FILES)]
    return tuple(dataclasses.replace(slice_, number=n) for n, slice_ in enumerate(found))


def written(
    spark: SparkSession,
    slices: tuple[Slice, ...],
    lake: Path,
    limits: Limits,
    seen: Callable[[int], None] = lambda _: None,
) -> tuple[Written, list[int]]:
    """Write each slice in a task of its own; return also how many files were open, look by look.

    `seen` is called with each number.
    """
    plan = dataclasses.replace(
        PLAN,
        data_location=str(lake / "data"),
        receipts_location=str(lake / "metadata/mergeberg"),
        versions=installed_versions(),
        format=dataclasses.replace(PLAN.format, row_group_rows=1_000_000),
    )
    ports = dataclasses.replace(
        ports_of(lake / "ports", Partitions()), writer=lambda: SparkWriter(spark)
    )
    open_files: list[int] = []

    def look(_rows: int) -> None:
        open_files.append(sum(1 for _ in lake.rglob("*.parquet.inprogress")))
        seen(open_files[-1])

    writer = with_limits(ports, limits).writer()
    tasks = tuple(SliceTask((slice_,)) for slice_ in slices)
    found = write_all(writer.write(plan, tasks, on_rows=look, should_stop=lambda: False))
    assert len(found.receipts) == FILES
    assert sum(r.rows for r in found.receipts) == 100_000 * FILES
    return found, open_files


@pytest.fixture(scope="module")
def size(
    spark: SparkSession, slices: tuple[Slice, ...], tmp_path_factory: pytest.TempPathFactory
) -> int:
    """Return the bytes of the smallest file."""
    found, _ = written(spark, slices, tmp_path_factory.mktemp("size"), Limits())
    return min(receipt.file_bytes for receipt in found.receipts)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(slices=1),
        pytest.param(Limits(slices=2), marks=pytest.mark.nightly),
        pytest.param(Limits(in_turn=True), marks=pytest.mark.nightly),
    ],
)
def test_no_more_files_are_open_at_a_time_than_the_limit(
    spark: SparkSession, slices: tuple[Slice, ...], size: int, tmp_path: Path, limits: Limits
) -> None:
    """Each takes two seconds at its pace; Spark itself would write two at a time."""
    most = limits.at_once(2)
    paced = dataclasses.replace(limits, bandwidth=size // 2 * most)

    _, open_files = written(spark, slices, tmp_path, paced)

    assert max(open_files) == most


def test_all_tasks_together_write_no_faster_than_the_bandwidth(
    spark: SparkSession, slices: tuple[Slice, ...], size: int, tmp_path: Path
) -> None:
    """Each has the half of it, also what came in while it was opened: one second's at most."""
    bandwidth = size * 2 // 3

    began = time.monotonic()
    found, _ = written(spark, slices, tmp_path, Limits(bandwidth=bandwidth))
    seconds = time.monotonic() - began

    total = sum(receipt.file_bytes for receipt in found.receipts)
    assert total / seconds <= bandwidth
    assert all(one.file_bytes <= bandwidth // 2 * (one.seconds + 1) for one in found.receipts)


def test_no_file_is_begun_while_another_command_has_the_whole_bandwidth(
    spark: SparkSession, slices: tuple[Slice, ...], size: int, tmp_path: Path
) -> None:
    """Harm prevented: two commands with a limit read twice as much from the server's disks."""
    limit = size * 10 + 7
    pool = RatePool(limit)
    other = pool.take(limit)
    before: list[int] = []

    def seen(open_files: int) -> None:
        if other.descriptor is not None:
            before.append(open_files)
            if is_awaited(pool):
                other.close()

    written(spark, slices, tmp_path, Limits(bandwidth=limit), seen)

    assert other.descriptor is None, "a task waited"
    assert set(before) == {0}
    assert not pool.directory.exists()

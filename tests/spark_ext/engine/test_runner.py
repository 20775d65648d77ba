"""The tasks of a plan on a real Spark: receipts, failures one by one, progress, cancel."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from catalog.storages.local import LocalStorage
from spark_ext.engine.runner import Progress, run, write, write_all
from spark_ext.engine.tasks import installed_versions
from tableformat.errors import Action, DeniedError, NotBegunError, SourceError
from tableformat.export.slices import Slice, SliceTask, WritePlan, tasks
from tableformat.file_names import stop_mark
from tests.support.frozen_parts import PLAN, Source, insert, make_source
from tests.support.local_spark import SPARK_MARKS
from tests.support.spark_application import SparkApplication

pytestmark = SPARK_MARKS


@pytest.fixture(scope="module")
def spark(spark_application: SparkApplication) -> Iterator[SparkSession]:
    with spark_application.session() as session:
        yield session


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return make_source(
        tmp_path_factory.mktemp("source") / "disk",
        insert(0, 1000, 2),
        insert(1, 1000, 2),
        insert(5000, 1_500_000, 1, name="repeat(toString(cityHash64(number)), 10)"),
    )


def plan_in(lake: Path) -> WritePlan:
    return dataclasses.replace(
        PLAN,
        data_location=str(lake / "data"),
        receipts_location=str(lake / "metadata/mergeberg"),
        versions=installed_versions(),
        format=dataclasses.replace(PLAN.format, row_group_rows=20_000),
    )


def small_slices(source: Source) -> list[Slice]:
    """Return one slice for each of the two small parts."""
    found = [source.slices(part=part)[0] for part in range(2)]
    return [dataclasses.replace(slice_, number=n) for n, slice_ in enumerate(found)]


def test_every_slice_comes_back_as_a_receipt(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    seen: list[Progress] = []
    work = tasks(small_slices(source), 2)

    receipts = run(spark, plan_in(tmp_path), work, on_progress=seen.append)

    assert [r.slice_number for r in receipts] == [0, 1]
    ids = [v for r in receipts for v in pq.read_table(r.file_path).column("id").to_pylist()]
    assert sorted(ids) == list(range(2000))
    assert (seen[-1].tasks_done, seen[-1].tasks) == (2, 2)
    assert run(spark, plan_in(tmp_path), (), on_progress=seen.append) == ()


def test_slices_are_written_without_a_query_of_spark_sql(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """The first query costs a new JVM several seconds of CPU time, a plain job one."""
    queries = spark._jsparkSession.sharedState().statusStore()
    before = queries.executionsCount()

    assert run(spark, plan_in(tmp_path), tasks(small_slices(source), 2), on_progress=lambda _: None)

    assert queries.executionsCount() == before


def test_one_bad_slice_does_not_take_the_others_with_it(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """Of a hundred partitions, ninety-nine must land when one is damaged."""
    good, bad = small_slices(source)
    span = dataclasses.replace(bad.ranges[0], hash_of_all_files="0" * 32)
    work = tasks([good, dataclasses.replace(bad, ranges=(span,))], 1)

    written = write_all(write(spark, plan_in(tmp_path), work, on_progress=lambda _: None))

    assert [r.slice_number for r in written.receipts] == [0]
    assert [f.slice_number for f in written.failures] == [1]
    with pytest.raises(SourceError, match=f"Cannot read part {span.name} of d.t: it holds 1000"):
        run(spark, plan_in(tmp_path), work, on_progress=lambda _: None)


def test_a_bug_in_a_task_is_one_line_without_the_page_of_java(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    work = tasks(small_slices(source), 2)
    plan = dataclasses.replace(plan_in(tmp_path), schema_json="no schema", action=Action.FETCH)

    with pytest.raises(SourceError, match=r"Cannot fetch d\.t: a Spark task failed: ") as caught:
        run(spark, plan, work, on_progress=lambda _: None)

    assert "ValidationError" in str(caught.value)
    assert "org.apache.spark" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


class StopHereError(Exception):
    """What Ctrl-C is to a person."""


@pytest.mark.representative
def test_cancelling_does_not_wait_for_the_slice_and_the_session_goes_on(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    (long,) = source.slices(part=2)

    def stop(progress: Progress) -> None:
        if progress.rows > 0:
            raise StopHereError

    with pytest.raises(StopHereError):
        run(spark, plan_in(tmp_path), tasks([long], 2), on_progress=stop)

    assert list(tmp_path.rglob("*.json")) == [], "a receipt would say that the slice was finished"
    receipts = run(
        spark, plan_in(tmp_path), tasks(small_slices(source), 2), on_progress=lambda _: None
    )
    assert sum(r.rows for r in receipts) == 2000


def test_a_stop_finishes_the_running_slice_and_begins_no_other(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """Harm prevented: a host that is shut down loses what it wrote, or never comes to an end."""
    (long,) = source.slices(part=2)
    first = dataclasses.replace(long, number=0)
    others = [dataclasses.replace(s, number=s.number + 1) for s in small_slices(source)]
    plan, begun = plan_in(tmp_path), []

    def look(progress: Progress) -> None:
        begun.append(progress.rows > 0)

    written = write_all(
        write(
            spark,
            plan,
            (SliceTask((first, *others)),),
            on_progress=look,
            should_stop=lambda: any(begun),
        )
    )

    assert [r.slice_number for r in written.receipts] == [0]
    assert [type(f.error) for f in written.failures] == [NotBegunError, NotBegunError]
    assert not Path(stop_mark(plan.receipts_location, plan.job)).exists(), (
        "the next export would stop as well"
    )
    work = (SliceTask(tuple(others)),)
    assert len(run(spark, plan, work, on_progress=lambda _: None)) == 2


def test_a_stop_ends_well_where_its_mark_cannot_be_removed(
    spark: SparkSession, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: the finished files of a stopped export are forgotten."""

    def denied(_: LocalStorage, location: str) -> NoReturn:
        message = f"Cannot delete {location}: AccessDenied."
        raise DeniedError(message)

    monkeypatch.setattr(LocalStorage, "delete", denied)
    plan = plan_in(tmp_path)

    written = write_all(
        write(
            spark,
            plan,
            (SliceTask(tuple(source.slices(part=2))),),
            on_progress=lambda _: None,
            should_stop=lambda: True,
        )
    )

    assert Path(stop_mark(plan.receipts_location, plan.job)).exists()
    assert len(written.receipts) + len(written.failures) == 1

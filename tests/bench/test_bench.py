"""The benchmark measures what it says, on a small table; its figures are not looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.data import DATASETS
from tests.bench.figures import Figures, measured
from tests.bench.in_turn import measure_in_turn
from tests.bench.many import MANY_ROWS, measure_many
from tests.bench.prepare import Prepared, prepare
from tests.bench.report import Goals, Section, report
from tests.bench.series import Side, Taken, spark_side, take_pairs, transfer_side
from tests.bench.served import measure_served

ROWS = 3_000


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bench")
    prepare(directory, DATASETS[0], ROWS).save(directory / "prepared")
    return directory / "prepared"


@pytest.mark.soak
def test_both_sides_write_the_same_rows_of_a_slice(prepared: Path, tmp_path: Path) -> None:
    """A side that left rows out would win."""
    job = Prepared.load(prepared)
    assert [s.rows for s in job.slices] == [ROWS, ROWS]
    assert (job.together.rows, len(job.together.ranges)) == (2 * ROWS, 2)

    for name, rows in (("mergeberg-1", ROWS), ("clickhouse-1", ROWS), ("clickhouse-2", 2 * ROWS)):
        figures = transfer_side(name, prepared, tmp_path / "out")()
        assert figures.rows == rows
        assert min(figures.wall, figures.cpu, figures.peak, figures.bytes) > 0
        assert not (tmp_path / "out").exists()


def test_a_slice_that_is_read_first_has_the_same_rows(tmp_path: Path) -> None:
    section = measure_in_turn(tmp_path, DATASETS[0], rows=ROWS, pairs=1)

    (ours,), (theirs,) = section.taken.ours, section.taken.theirs
    assert ours.rows == theirs.rows == ROWS
    assert ours.bytes == theirs.bytes
    assert "meanwhile" in report([section])


@pytest.mark.soak
@pytest.mark.spark
def test_the_spark_side_runs_the_whole_job_again_and_again(prepared: Path, tmp_path: Path) -> None:
    with spark_side(prepared, tmp_path / "out") as side:
        found = [side(), side()]

    assert [f.rows for f in found] == [2 * ROWS, 2 * ROWS]
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
@pytest.mark.soak
def test_a_server_and_a_directory_give_the_same_rows(tmp_path: Path) -> None:
    """A ratio of two sides that export different things would mean nothing."""
    section = measure_served(tmp_path, DATASETS[0], rows=2_000, pairs=1)

    (ours,), (theirs,) = section.taken.ours, section.taken.theirs
    assert ours.rows == theirs.rows == 4_000
    assert "embedded" in report([section])


@pytest.mark.spark
@pytest.mark.soak
def test_many_partitions_are_exported_and_inserted_whole(tmp_path: Path) -> None:
    """A side that left partitions out would win."""
    section = measure_many(tmp_path, partitions=3, pairs=1)

    (ours,), (theirs,) = section.taken.ours, section.taken.theirs
    assert ours.rows == theirs.rows == 3 * MANY_ROWS
    assert min(ours.wall, ours.bytes, ours.peak, theirs.wall, theirs.bytes, theirs.peak) > 0
    assert (section.goals.time, section.gated) == (1.0, True)
    assert not (tmp_path / "scratch").exists()


def test_a_side_that_loses_rows_ends_the_benchmark() -> None:
    def of(rows: int) -> Side:
        return lambda: Figures(1.0, 1.0, 1, 1, rows)

    with pytest.raises(AssertionError, match="a side wrote 4 rows of 5"):
        take_pairs(1, of(5), of(4), 5)


def test_the_sides_take_turns_and_the_order_changes() -> None:
    """Otherwise one side would always run in the warmer machine."""
    order: list[str] = []

    def side(name: str) -> Side:
        def once() -> Figures:
            order.append(name)
            return Figures(1.0, 1.0, 1, 1, 5)

        return once

    take_pairs(3, side("ours"), side("theirs"), 5)

    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]


def test_processor_time_of_children_counts() -> None:
    """A Spark job's time is spent in other processes."""

    def burn() -> None:
        child = os.fork()
        if child == 0:
            sum(range(20_000_000))
            os._exit(0)
        os.waitpid(child, 0)

    wall, cpu = measured(burn)

    assert cpu > 0.1
    assert wall > 0


@pytest.mark.parametrize("gated", [True, False])
def test_the_table_shows_minima_ratios_and_goals(*, gated: bool) -> None:
    ours = (Figures(3.0, 2.0, 600_000_000, 10_000_000, 100),
            Figures(2.0, 2.5, 700_000_000, 10_000_000, 100))  # fmt: skip
    theirs = (Figures(2.0, 2.0, 900_000_000, 8_000_000, 100),)
    section = Section("t", Taken(ours, theirs), Goals.of(gated=gated), gated)

    lines = report([section]).splitlines()

    verdict = "not reached" if gated else "not reached (told, not demanded)"
    assert lines[0] == "t: 100 rows, 2 pairs, 50 rows/s"
    assert [line.split(None, 6) for line in lines[2:]] == [
        ["wall", "s", "2.00", "2.00", "1.00", f"{1.0 if gated else 1.1:.2f}"],
        ["CPU", "s", "2.00", "2.00", "1.00", f"{1.0 if gated else 1.1:.2f}"],
        ["file", "MB", "10.0", "8.0", "1.25", "1.05", verdict],
        ["peak", "MB", "700", "900", "0.78", "650", verdict],
    ]


def test_the_tables_are_mixed_and_narrow(prepared: Path) -> None:
    mixed, narrow = DATASETS

    assert (len(mixed.columns), mixed.gated) == (21, True)
    assert (len(narrow.columns), narrow.gated) == (5, False)
    order = Prepared.load(prepared).plan.order_by
    assert [name in order for name in mixed.key] == [True, True, True]


def test_our_file_of_the_benchmark_is_the_product_s(prepared: Path, tmp_path: Path) -> None:
    """Sorting columns and page index cost time; a benchmark without them would flatter."""
    job = Prepared.load(prepared)
    moved = job.into(tmp_path)
    assert moved.slices == job.slices
    assert moved.plan.data_location.startswith(str(tmp_path))
    assert job.plan.sort_fields
    assert (job.plan.format.codec, job.plan.format.level) == ("zstd", 3)

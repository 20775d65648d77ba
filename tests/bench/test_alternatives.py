"""The ways into a lake are compared on the same rows, and none is left out without a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.alternatives import Alternatives, measure_alternatives, table, take_rounds
from tests.bench.data import DATASETS
from tests.bench.figures import CannotMeasureError, Figures, cannot
from tests.bench.series import Side
from tests.bench.ways import WAYS

ROWS = 1_000
WITHOUT_SPARK = ("clickhouse-iceberg", "pyiceberg-append", "clickhouse-parquet")


@pytest.mark.timeout(1200)
@pytest.mark.spark
@pytest.mark.nightly
def test_every_way_commits_all_rows_of_a_mixed_table(tmp_path: Path) -> None:
    """Harm prevented: a way that wrote no row wins, or one that failed is left out."""
    found = measure_alternatives(tmp_path, DATASETS[0], ROWS, rounds=1)

    assert found.reasons == {}
    assert set(found.taken) == set(WAYS)
    for (figures,) in found.taken.values():
        assert figures.rows == 2 * ROWS
        assert min(figures.wall, figures.cpu, figures.peak, figures.bytes) > 0
    assert len(table(found).splitlines()) == 4 + len(WAYS)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_ways_without_spark_write_all_rows_of_a_narrow_table(tmp_path: Path) -> None:
    found = measure_alternatives(tmp_path, DATASETS[1], ROWS, rounds=1, names=WITHOUT_SPARK)

    rows = {way: [f.rows for f in figures] for way, figures in found.taken.items()}
    assert rows == {way: [2 * ROWS] for way in WITHOUT_SPARK}


def test_each_round_begins_with_another_way() -> None:
    """Otherwise one way would always run in the warmer machine."""
    order: list[str] = []

    def side(name: str) -> Side:
        def once() -> Figures:
            order.append(name)
            return Figures(1.0, 1.0, 1, 1, 5)

        return once

    take_rounds(3, {name: side(name) for name in "abc"}, 5)

    assert "".join(order) == "abcbcacab"


def test_a_way_that_writes_no_row_ends_the_benchmark() -> None:
    sides: dict[str, Side] = {"empty": lambda: Figures(1.0, 1.0, 1, 1, 0)}

    with pytest.raises(AssertionError, match="empty wrote 0 rows of 5"):
        take_rounds(1, sides, 5)


def test_a_process_that_cannot_transfer_prints_the_reason() -> None:
    line = cannot(ValueError("no such engine\nat line 3"))

    with pytest.raises(CannotMeasureError, match=r"^ValueError: no such engine$"):
        Figures.from_json(line)


def test_the_table_shows_every_way_or_its_reason() -> None:
    taken = {
        "mergeberg": (Figures(2.0, 4.0, 2_000_000_000, 10_000_000, 1_000),
                      Figures(3.0, 3.0, 1_000_000_000, 10_000_000, 1_000)),
        "clickhouse-parquet": (Figures(1.0, 1.5, 500_000_000, 9_000_000, 1_000),),
    }  # fmt: skip
    found = Alternatives("hits", taken, {"clickhouse-iceberg": "ChdbError: no such setting"})

    lines = table(found).splitlines()

    assert lines[0] == "hits: 1,000 rows, 2 rounds"
    assert lines[4].endswith("| snapshots | 1,000 | 2.00 | 3.00 | 1.00 | 10.0 | 2,000 |")
    assert lines[5].endswith("| file | 1,000 | 1.00 | 1.50 | 0.50 | 9.0 | 500 |")
    assert "cannot run here: ChdbError: no such setting" in lines[6]

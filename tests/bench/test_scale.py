"""The program that measures growth finds what grows faster than linear, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from tests.bench.scale import (
    AXES,
    LAKE_TABLE,
    Point,
    Shape,
    add_snapshots,
    create,
    exponent,
    fill,
    steep,
    table,
)

ROOT = Path(__file__).parents[2]
_MB = 1_000_000


def point(size: int, cpu: float, driver: float = 200.0, task: float = 300.0) -> Point:
    return Point(size, cpu, cpu, int(driver * _MB), int(task * _MB))


def test_an_exponent_is_the_slope_of_a_power() -> None:
    assert exponent((10, 3.0), (1_000, 300.0)) == pytest.approx(1.0)
    assert exponent((10, 3.0), (20, 12.0)) == pytest.approx(2.0)
    assert exponent((10, 3.0), (1_000, 3.0)) == pytest.approx(0.0)


def test_time_that_grows_as_a_square_is_named() -> None:
    points = [point(1, 1.0), point(10, 5.0), point(100, 500.0)]

    assert steep(points) == ["CPU s from 10 to 100: exponent 2.00"]


def test_memory_that_grows_faster_than_linear_is_named() -> None:
    points = [point(10, 1.0, driver=50, task=100), point(100, 1.0, driver=5_000, task=1_000)]

    assert steep(points) == ["driver MB from 10 to 100: exponent 2.00"]


def test_linear_growth_and_noise_of_small_figures_are_not_named() -> None:
    assert steep([point(10, 1.0), point(100, 13.0)]) == []
    assert steep([point(10, 0.001), point(100, 0.4)]) == []


def test_the_table_shows_exponents_and_the_verdict() -> None:
    lines = table("parts", [point(10, 1.0), point(100, 100.0)]).splitlines()

    assert lines[2] == "| 10 | 1.00 | 1.00 | 200 | 300 |  |  |  |"
    assert lines[3] == "| 100 | 100.00 | 100.00 | 200 | 300 | 2.00 | 0.00 | 0.00 |"
    assert lines[5:] == ["Faster than linear with parts: CPU s from 10 to 100: exponent 2.00"]
    lines = table("parts", [point(10, 1.0)]).splitlines()
    assert lines[-1] == "Nothing grows faster than linear with parts."


def test_the_sizes_of_every_axis_rise() -> None:
    for axis in AXES.values():
        assert list(axis.points) == sorted(set(axis.points))
        assert list(axis.quick) == sorted(set(axis.quick))
        assert axis.quick[-1] < axis.points[-1]


@pytest.mark.nightly
def test_a_table_has_the_parts_partitions_and_columns_of_its_shape(tmp_path: Path) -> None:
    """Harm prevented: parts that were merged, and a figure for a size that was never there."""
    shape = Shape(rows=10, parts=4, partitions=3, columns=2)
    with EmbeddedConnection(tmp_path / "clickhouse", create=True) as connection:
        create(connection, shape)
        fill(connection, shape)
        counts = "SELECT count(), uniqExact(partition), sum(rows) FROM system.parts WHERE active"
        (found,) = connection.rows(f"{counts} AND table = 'scale'")
        ((columns,),) = connection.rows("SELECT count() FROM system.columns WHERE table = 'scale'")

    assert [int(str(value)) for value in found] == [12, 3, 120]
    assert int(str(columns)) == 5


def test_the_lake_table_has_the_snapshots_of_its_size(tmp_path: Path) -> None:
    """Harm prevented: a figure for 2,000 snapshots that were never there."""
    lake = open_catalog("lake", warehouse=tmp_path)
    lake.create(
        LAKE_TABLE,
        schema=Schema(NestedField(1, "n", LongType(), required=True)),
        spec=UNPARTITIONED_PARTITION_SPEC,
        order=UNSORTED_SORT_ORDER,
        properties={"format-version": "2"},
    )

    add_snapshots(tmp_path, 5)

    changed = lake.table(LAKE_TABLE)
    assert changed is not None
    assert len(changed.loaded.metadata.snapshots) == 5


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_exports_of_more_parts_snapshots_and_workers_are_measured() -> None:
    """The lake table really has the snapshots, and each export is checked for its rows."""
    axes = ("--axis", "parts", "--axis", "snapshots", "--axis", "workers")
    program = [sys.executable, "-m", "tests.bench.scale", "--quick", *axes]

    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    sizes = [line.split(" | ")[0] for line in done.stdout.splitlines() if line.startswith("| ")]
    asked = ["| parts", "| 1", "| 4", "| snapshots", "| 1", "| 5", "| workers", "| 1", "| 2"]
    assert sizes == asked

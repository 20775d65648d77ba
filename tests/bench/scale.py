"""How an export's time and memory grow with the size of a table, one measure of size at a time.

python -m tests.bench.scale [--axis AXIS]... [--most N] [--quick] [--directory DIR]

Each point is the whole export of a new table of that size, by a warm Spark of two cores, or of as
many as `workers` says, with a check that all rows are committed. The exponent between two points is
the slope on logarithmic scales: 1 where twice the size takes twice as much, 2 where it takes four
times as much. What grows faster than linear is listed below the table. Linux only, because of the
peaks of memory.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from spark_ext.actions.export_ports import SparkWhenNeeded
from spark_ext.engine.session import SparkSettings
from tableformat.names import LakeName
from tests.bench.committed import committed_files, rows_of
from tests.bench.figures import measured
from tests.bench.whole_export import export
from tests.support.processes import own_peak, reset_peaks

__all__ = [
    "AXES", "LAKE_TABLE", "Axis", "Point", "Shape", "add_snapshots", "create", "exponent", "fill",
    "measure_axis", "steep", "table",
]  # fmt: skip

_TABLE: Final = "bench.scale"
LAKE_TABLE: Final = LakeName.parse("lake.bench.exported")
_STEEP: Final = 1.15
"""The exponent above which a measure grows faster than linear, and not by chance."""
_LEAST: Final = {"CPU s": 0.5, "driver MB": 100.0, "task MB": 100.0}
"""The growth between two points below which an exponent says nothing."""
_MB: Final = 1_000_000
_UNMERGED: Final = (
    "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1,"
    " parts_to_throw_insert = 1000000, parts_to_delay_insert = 1000000,"
    " max_parts_in_total = 1000000"
)
_SHORT: Final = "concat('n', toString(number % 977))"
_LONG: Final = "max_query_size = 100000000, max_ast_elements = 10000000"


@dataclass(frozen=True, slots=True)
class Shape:
    """A table of numbered rows: rows a part, parts a partition, partitions, and more columns.

    `bytes` are those of each text; they cannot be compressed. 0 for short texts that repeat.
    """

    rows: int = 1_000
    parts: int = 1
    partitions: int = 1
    columns: int = 0
    bytes: int = 0

    @property
    def total(self) -> int:
        """The rows of the table."""
        return self.rows * self.parts * self.partitions


@dataclass(frozen=True, slots=True)
class Axis:
    """One measure of size.

    Attributes:
        points: the sizes that are measured.
        quick: those of `--quick`.
        shape: the table of a size.
        snapshots: returns how many snapshots the lake table has before the export.
        master: returns the Spark master of a size.
    """

    points: tuple[int, ...]
    quick: tuple[int, ...]
    shape: Callable[[int], Shape]
    snapshots: Callable[[int], int] = lambda _: 0
    master: Callable[[int], str] = lambda _: "local[2]"


AXES: Final[Mapping[str, Axis]] = {
    "rows": Axis((100_000, 1_000_000, 10_000_000), (100, 1_000), lambda n: Shape(rows=n)),
    "parts": Axis((1, 10, 100, 1_000, 10_000), (1, 4), lambda n: Shape(rows=10, parts=n)),
    "partitions": Axis((1, 10, 100, 1_000), (1, 3), lambda n: Shape(rows=100, partitions=n)),
    "snapshots": Axis((1, 20, 200, 2_000), (1, 5), lambda _: Shape(), lambda n: n),
    "columns": Axis((5, 50, 500, 2_000), (5, 20), lambda n: Shape(rows=10_000, columns=n - 3)),
    "value bytes": Axis(
        (10, 1_000, 100_000, 1_000_000), (10, 100), lambda n: Shape(rows=300, bytes=n)
    ),
    "workers": Axis(
        (1, 2, 4, 8),
        (1, 2),
        lambda _: Shape(rows=500_000, partitions=32),
        master=lambda n: f"local[{n}]",
    ),
}
"""Each measure of size; `--most` adds a point to its axis."""


@dataclass(frozen=True, slots=True)
class Point:
    """What an export of one size took: seconds, and the peaks of the driver and of a task."""

    size: int
    wall: float
    cpu: float
    driver: int
    task: int


_MEASURES: Final[Mapping[str, Callable[[Point], float]]] = {
    "wall s": lambda p: p.wall,
    "CPU s": lambda p: p.cpu,
    "driver MB": lambda p: p.driver / _MB,
    "task MB": lambda p: p.task / _MB,
}


class Sessions:
    """A Spark session, of the master that was asked for last."""

    def __init__(self) -> None:
        """Start none yet."""
        self._running: tuple[str, SparkWhenNeeded] | None = None

    def of(self, master: str) -> tuple[SparkWhenNeeded, bool]:
        """Return the session of a master, and whether it is new; another one is stopped."""
        if self._running is not None:
            running, spark = self._running
            if running == master:
                return spark, False
            spark.result().stop()
        spark = SparkWhenNeeded(SparkSettings(master))
        self._running = master, spark
        return spark, True


def measure_axis(
    axis: Axis, sizes: Sequence[int], sessions: Sessions, directory: Path
) -> list[Point]:
    """Measure the export of a table of each size, by a session that has exported before.

    Args:
        axis: the measure of size.
        sizes: in rising order.
        sessions: return the session of a size.
        directory: empty; everything is made there.

    Raises:
        AssertionError: rows are missing in the lake table.
        TableFormatError: a step of the product failed.
    """
    found = []
    for size in sizes:
        spark, is_new = sessions.of(axis.master(size))
        if is_new:
            _point(axis, size, spark, directory / "warm")
        found.append(_point(axis, size, spark, directory / "own"))
    return found


def _point(axis: Axis, size: int, spark: SparkWhenNeeded, directory: Path) -> Point:
    clickhouse, warehouse = directory / "clickhouse", directory / "lake"
    warehouse.mkdir(parents=True)
    shape, snapshots = axis.shape(size), axis.snapshots(size)
    source, master = f"chdb:{clickhouse}", axis.master(size)
    transfer = partial(export, source, _TABLE, spark, warehouse, master)
    rows = shape.total
    with EmbeddedConnection(clickhouse, create=True) as connection:
        create(connection, shape)
        fill(connection, shape)
    if snapshots:
        transfer()
        add_snapshots(warehouse, snapshots)
        with EmbeddedConnection(clickhouse) as connection:
            fill(connection, shape, first=shape.partitions)
        rows *= 2
    tasks: list[int] = []
    reset_peaks()
    wall, cpu = measured(lambda: tasks.append(transfer()[2]))
    written = rows_of(committed_files(warehouse) or [])
    if written != rows:
        message = f"the lake table has {written} rows of {rows}"
        raise AssertionError(message)
    shutil.rmtree(directory)
    return Point(size, wall, cpu, own_peak(), tasks[0])


def create(clickhouse: Connection, shape: Shape) -> None:
    """Make a table that is never merged.

    Raises:
        SourceError: ClickHouse refused the statement.
    """
    more = "".join(f", c{n} UInt32" for n in range(shape.columns))
    clickhouse.command("CREATE DATABASE bench")
    clickhouse.command(
        f"CREATE TABLE {_TABLE} (p UInt32, id UInt64, name String{more}) ENGINE = MergeTree"
        f" PARTITION BY p ORDER BY id SETTINGS {_UNMERGED}"
    )


def fill(clickhouse: Connection, shape: Shape, first: int = 0) -> None:
    """Insert the rows of a shape, the partitions from `first` on, a block for each part.

    Raises:
        SourceError: ClickHouse refused the statement.
    """
    more = "".join(f", number + {n}" for n in range(shape.columns))
    text = f"randomPrintableASCII({shape.bytes})" if shape.bytes else _SHORT
    a_partition = shape.rows * shape.parts
    clickhouse.command(
        f"INSERT INTO {_TABLE} SELECT {first} + intDiv(number, {a_partition}), number,"
        f" {text}{more} FROM numbers({shape.total}) SETTINGS"
        f" max_threads = 1, max_insert_threads = 1, max_block_size = {shape.rows},"
        f" max_insert_block_size = {shape.rows}, min_insert_block_size_rows = {shape.rows},"
        f" min_insert_block_size_bytes = 0, {_LONG}"
    )


def add_snapshots(warehouse: Path, snapshots: int) -> None:
    """Let another writer commit snapshots that add no file.

    All but the first are copies of it, in one request: PyIceberg copies the whole metadata for each
    snapshot of a transaction, so that 2,000 of them take longer than all that is measured.

    Raises:
        AssertionError: the table does not have them.
    """
    lake = open_catalog("lake", warehouse=warehouse).table(LAKE_TABLE)
    assert lake is not None
    with lake.loaded.transaction() as transaction:
        transaction.update_snapshot().fast_append().commit()
    table = lake.loaded.refresh()
    last = table.current_snapshot()
    assert last is not None
    updates: list[TableUpdate] = []
    for _ in range(snapshots - 1):
        last = last.model_copy(
            update={
                "snapshot_id": last.snapshot_id + 1,
                "parent_snapshot_id": last.snapshot_id,
                "sequence_number": (last.sequence_number or 0) + 1,
            }
        )
        moved = {"ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": last.snapshot_id}
        updates += (
            AddSnapshotUpdate(snapshot=last),
            SetSnapshotRefUpdate.model_validate(moved),
        )
    table.catalog.commit_table(table, (), tuple(updates))
    found = len(table.refresh().metadata.snapshots)
    assert found >= snapshots, f"the lake table has {found} snapshots"


def exponent(one: tuple[int, float], other: tuple[int, float]) -> float:
    """Return the slope between two points (size, figure) on logarithmic scales."""
    return math.log(other[1] / one[1]) / math.log(other[0] / one[0])


def steep(points: Sequence[Point]) -> list[str]:
    """Return what grows faster than linear, and between which sizes."""
    return [
        f"{name} from {one.size:,} to {other.size:,}: exponent {slope:.2f}"
        for name, least in _LEAST.items()
        for one, other in pairwise(points)
        if _MEASURES[name](other) - _MEASURES[name](one) > least
        if (slope := _slope(name, one, other)) > _STEEP
    ]


def table(name: str, points: Sequence[Point]) -> str:
    """Return the points as Markdown, with the exponents since the one before, and what is steep."""
    heads = (name, *_MEASURES, *(f"{of}, exponent" for of in _LEAST))
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one, other in zip((None, *points), points, strict=False):
        slopes = [f"{_slope(of, one, other):.2f}" if one else "" for of in _LEAST]
        cells = (
            f"{other.size:,}",
            f"{other.wall:.2f}",
            f"{other.cpu:.2f}",
            f"{other.driver / _MB:,.0f}",
            f"{other.task / _MB:,.0f}",
            *slopes,
        )
        lines.append(f"| {' | '.join(cells)} |")
    found = steep(points)
    lines += ["", *(f"Faster than linear with {name}: {each}" for each in found)]
    return "\n".join(lines if found else [*lines, f"Nothing grows faster than linear with {name}."])


def _slope(measure: str, one: Point, other: Point) -> float:
    figure = _MEASURES[measure]
    return exponent((one.size, figure(one)), (other.size, figure(other)))


def main() -> None:
    """Measure the axes that are asked for, and print a table for each."""
    arguments = argparse.ArgumentParser(prog="python -m tests.bench.scale")
    arguments.add_argument("--axis", choices=AXES, action="append", help="default: all")
    arguments.add_argument("--most", type=int, help="one more point on every axis measured")
    arguments.add_argument("--quick", action="store_true", help="small sizes, to try it")
    arguments.add_argument("--directory", type=Path, help="where everything is made for a while")
    given = arguments.parse_args()
    sessions = Sessions()
    with tempfile.TemporaryDirectory(prefix="mergeberg-bench-", dir=given.directory) as made:
        for name in given.axis or AXES:
            axis = AXES[name]
            sizes = axis.quick if given.quick else axis.points
            sizes = tuple(sorted({*sizes, *([given.most] if given.most else [])}))
            directory = Path(made).absolute() / name
            directory.mkdir()
            sys.stdout.write(f"{table(name, measure_axis(axis, sizes, sessions, directory))}\n\n")
            sys.stdout.flush()
    # Past the ending of Spark's threads.
    os._exit(0)


if __name__ == "__main__":
    main()

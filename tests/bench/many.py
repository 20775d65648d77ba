"""Many small partitions: the table, and both sides as processes that transfer all of it.

Ours is the whole command on a warm session of two cores, from describing the table to the last
committed snapshot. ClickHouse's is a native `INSERT INTO FUNCTION file(..., Parquet)` for each
partition, one after the other in one open ClickHouse, without a commit.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.embedded import EmbeddedConnection
from tests.bench.figures import Figures, measured
from tests.bench.report import Goals, Section
from tests.bench.series import process_side, take_pairs

__all__ = ["MANY_ROWS", "MANY_TABLE", "Transferred", "measure_many", "serve_lines"]

MANY_TABLE: Final = "bench.many"
MANY_ROWS: Final = 10_000
"""Rows of each partition."""
_AT_A_TIME: Final = 100

Transferred = tuple[int, int, int]
"""Bytes and rows that were written, and the greatest memory that this took."""


def measure_many(directory: Path, partitions: int, pairs: int) -> Section:
    """Measure the export of a table of many partitions against as many native INSERTs.

    Args:
        directory: empty; everything is made there.
        partitions: of `MANY_ROWS` rows each.
        pairs: measurements of each side.

    Raises:
        TableFormatError: the table could not be made.
    """
    clickhouse, scratch = directory / "clickhouse", directory / "scratch"
    with EmbeddedConnection(clickhouse, create=True) as connection:
        _fill(connection, partitions)
    ours = ("tests.bench.whole_export", f"chdb:{clickhouse}", MANY_TABLE, str(scratch / "ours"))
    theirs = ("tests.bench.many_native", str(clickhouse), str(scratch / "native"), str(partitions))
    with process_side(*ours, scratch=scratch) as warm:
        # Of a directory that only one process may have open at a time.
        def native() -> Figures:
            with process_side(*theirs, scratch=scratch / "once", warm=False) as once:
                return once()

        taken = take_pairs(pairs, warm, native, partitions * MANY_ROWS)
    title = f"{partitions:,} partitions of {MANY_ROWS:,} rows, Spark local[2], warm, with commits"
    return Section(title, taken, Goals(time=1.0), gated=True)


def serve_lines(transfer: Callable[[Path], Transferred], directory: Path) -> None:
    """Transfer once for every line of the input, into a new directory; print what that took."""
    for number, _ in enumerate(sys.stdin):
        found: list[Transferred] = []
        into = directory / str(number)
        into.mkdir(parents=True)
        wall, cpu = measured(partial(_keep, found, transfer, into))
        ((size, rows, peak),) = found
        sys.stdout.write(Figures(wall, cpu, peak, size, rows).to_json() + "\n")
        sys.stdout.flush()
        shutil.rmtree(into)


def _keep(found: list[Transferred], transfer: Callable[[Path], Transferred], into: Path) -> None:
    found.append(transfer(into))


def _fill(clickhouse: Connection, partitions: int) -> None:
    clickhouse.command("CREATE DATABASE IF NOT EXISTS bench")
    clickhouse.command(
        f"CREATE TABLE {MANY_TABLE}"
        " (p UInt32, id UInt64, ts DateTime('UTC'), name String, v Float64)"
        " ENGINE = MergeTree PARTITION BY p ORDER BY id"
    )
    for first in range(0, partitions, _AT_A_TIME):
        rows = min(_AT_A_TIME, partitions - first) * MANY_ROWS
        clickhouse.command(
            f"INSERT INTO {MANY_TABLE} SELECT intDiv(number, {MANY_ROWS}), number,"
            " toDateTime('2024-01-01', 'UTC') + number, concat('n', toString(number % 977)),"
            f" number / 7 FROM numbers({first * MANY_ROWS}, {rows}) SETTINGS max_threads = 1,"
            " max_partitions_per_insert_block = 0, max_insert_block_size = 1000000"
        )

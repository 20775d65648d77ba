"""The same rows into a lake by every way that a user has instead: one table.

Each way has a process of its own, and the ways take turns in an order that rotates. A way that
cannot run here is reported with its reason. A way that lost rows ends the benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.bench.data import PARTITIONS, Dataset, fill
from tests.bench.figures import CannotMeasureError, Figures
from tests.bench.series import Side, process_side

__all__ = ["Alternatives", "measure_alternatives", "table", "take_rounds"]

_PROGRAM: Final = "tests.bench.ways"
_OURS: Final = "mergeberg"
_MB: Final = 1_000_000
_SHOWN: Final = {
    _OURS: ("mergeberg, warm Spark `local[2]`", "snapshots"),
    "clickhouse-iceberg": ("ClickHouse INSERT into IcebergLocal", "snapshot"),
    "pyiceberg-append": ("Arrow table from chdb, PyIceberg `append`", "snapshot"),
    "spark-iceberg": ("ClickHouse Parquet, then Spark `writeTo().append()`", "snapshot"),
    "spark-parquet": ("ClickHouse Parquet, then Spark `write.parquet`", "files"),
    "clickhouse-parquet": ("ClickHouse INSERT into a Parquet file", "file"),
}
"""How the table names each way, and what there is afterwards."""
_WARM: Final = frozenset((_OURS, "spark-iceberg", "spark-parquet"))
"""The ways whose process starts Spark once; the others open ClickHouse in a new one each time."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The figures of each way, and why the others have none.

    Attributes:
        name: of the table.
        taken: by way, in the order in which they were taken.
        reasons: by way, of those that cannot run here.
    """

    name: str
    taken: Mapping[str, tuple[Figures, ...]]
    reasons: Mapping[str, str]


def measure_alternatives(
    directory: Path, dataset: Dataset, rows: int, rounds: int, *, names: tuple[str, ...] = ()
) -> Alternatives:
    """Measure every way in turns.

    Args:
        directory: empty; everything is made there.
        dataset: the table.
        rows: of each of its two partitions.
        rounds: measurements of each way.
        names: the ways; none for all.

    Raises:
        AssertionError: a way did not write all rows.
        TableFormatError: the table could not be made.
        CannotMeasureError: mergeberg itself cannot run.
    """
    clickhouse = directory / "clickhouse"
    with EmbeddedConnection(clickhouse, create=True) as connection:
        fill(connection, dataset, rows)
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for way in names or _SHOWN:
            words = (way, str(clickhouse), dataset.name)
            sides[way] = stack.enter_context(_side(way, words, directory / way))
        reasons = _warmed(sides)
        taken = take_rounds(rounds, sides, rows * len(PARTITIONS))
    return Alternatives(dataset.name, taken, reasons)


@contextmanager
def _side(way: str, words: tuple[str, ...], scratch: Path) -> Iterator[Side]:
    if way in _WARM:
        with process_side(_PROGRAM, *words, str(scratch), scratch=scratch, warm=False) as side:
            yield side
        return

    # The data directory is free for the next way when the process is gone.
    def fresh() -> Figures:
        with process_side(_PROGRAM, *words, str(scratch), scratch=scratch, warm=False) as once:
            return once()

    yield fresh


def _warmed(sides: dict[str, Side]) -> dict[str, str]:
    """Measure each once in vain; remove those that cannot run, and return why."""
    reasons: dict[str, str] = {}
    for way in list(sides):
        try:
            sides[way]()
        except CannotMeasureError as error:
            if way == _OURS:
                raise
            reasons[way] = str(error)
            del sides[way]
    return reasons


def take_rounds(
    rounds: int, sides: Mapping[str, Side], rows: int
) -> dict[str, tuple[Figures, ...]]:
    """Measure every side once in each round; each round begins with another one.

    Raises:
        AssertionError: a side did not write all rows.
    """
    names = list(sides)
    found: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            figures = sides[name]()
            if figures.rows != rows:
                message = f"{name} wrote {figures.rows} rows of {rows}"
                raise AssertionError(message)
            found[name].append(figures)
    return {name: tuple(figures) for name, figures in found.items()}


def table(found: Alternatives) -> str:
    """Return the figures as Markdown: least seconds and bytes, greatest memory, CPU as a ratio."""
    ours = found.taken[_OURS]
    least = min(f.cpu for f in ours)
    lines = [
        f"{found.name}: {ours[0].rows:,} rows, {len(ours)} rounds",
        "",
        "| way | result | rows | wall s | CPU s | CPU, mergeberg = 1 | MB | peak MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for way, figures in found.taken.items():
        cpu = min(f.cpu for f in figures)
        cells = (
            *_SHOWN[way],
            f"{figures[0].rows:,}",
            f"{min(f.wall for f in figures):.2f}",
            f"{cpu:.2f}",
            f"{cpu / least:.2f}",
            f"{min(f.bytes for f in figures) / _MB:.1f}",
            f"{max(f.peak for f in figures) / _MB:,.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    for way, reason in found.reasons.items():
        lines.append(f"| {_SHOWN[way][0]} | cannot run here: {reason} | | | | | | |")
    return "\n".join(lines)

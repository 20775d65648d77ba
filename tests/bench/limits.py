"""What the limits do to a Spark job of eight slots: files at a time, bytes per second, tries.

python -m tests.bench.limits

Prints the tables of docs/operating/limits.md. The files are real, and so is Spark; bytes per second
are those of all files from the first to the last one's end, the start of the tasks included.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from spark_ext.engine.runner import SparkWriter, write_all
from spark_ext.engine.tasks import installed_versions
from tableformat.export.ports import JobPorts, Written
from tableformat.export.request import Limits
from tableformat.export.slices import Slice, SliceTask, WritePlan
from tableformat.export.writers import Retrying, with_limits
from tests.support.frozen_parts import PLAN, insert, make_source
from tests.support.local_spark import local_spark
from tests.support.scenarios import TO, Partitions, ports_of

__all__ = ["LimitBench", "main", "opened"]

_FILES: Final = 12
_ROWS: Final = 100_000
_SLOTS: Final = 8
# Of a file that takes ten seconds: else eight are never open together on two processors.
_PACE: Final = 80_000


@dataclass(frozen=True)
class LimitBench:
    """A session, slices of one file each, and a directory for what they become."""

    spark: SparkSession
    slices: tuple[Slice, ...]
    directory: Path
    made: list[Path] = field(default_factory=list)

    def at_a_time(self, slices: int) -> int:
        """Return the most files that were open together under a pool of so many."""
        open_files = [0]
        lake = self._lake()
        limits = Limits(slices=slices, bandwidth=_PACE * slices)

        def look(_rows: int) -> None:
            open_files.append(sum(1 for _ in lake.rglob("*.parquet.inprogress")))

        self._write(lake, limits, look, files=slices + 1)
        return max(open_files)

    def bytes_per_second(self, bandwidth: int) -> float:
        """Return the bytes per second of a job with a limit, 0 for none."""
        began = time.monotonic()
        written = self._write(self._lake(), Limits(bandwidth=bandwidth), lambda _: None)
        return sum(r.file_bytes for r in written.receipts) / (time.monotonic() - began)

    def tries(self, retries: int) -> int:
        """Return how often Spark is given a file whose directory cannot be made."""
        lake = self._lake()
        (lake / "data").touch()
        ports = replace(self._ports(lake), pause=lambda _: None)
        notes: list[str] = []
        ports.observer.note = notes.append  # type: ignore[method-assign,assignment]
        retrying = Retrying(SparkWriter(self.spark), ports, TO, retries)
        plan, tasks = self._plan(lake), (SliceTask(self.slices[:1]),)
        writing = retrying.write(plan, tasks, on_rows=lambda _: None, should_stop=lambda: False)
        assert len(write_all(writing).failures) == 1
        ports.ledger.close()
        return 1 + sum("written again" in note for note in notes)

    def _write(
        self, lake: Path, limits: Limits, look: Callable[[int], None], files: int = _FILES
    ) -> Written:
        ports = replace(self._ports(lake), writer=lambda: SparkWriter(self.spark))
        writer = with_limits(ports, limits).writer()
        tasks = tuple(SliceTask((slice_,)) for slice_ in self.slices[:files])
        writing = writer.write(self._plan(lake), tasks, on_rows=look, should_stop=lambda: False)
        written = write_all(writing)
        assert sum(r.rows for r in written.receipts) == len(tasks) * _ROWS
        ports.ledger.close()
        return written

    def _lake(self) -> Path:
        self.made.append(self.directory / str(len(self.made)))
        self.made[-1].mkdir()
        return self.made[-1]

    def _ports(self, lake: Path) -> JobPorts:
        return ports_of(lake / "ports", Partitions())

    def _plan(self, lake: Path) -> WritePlan:
        return replace(
            PLAN,
            data_location=str(lake / "data"),
            receipts_location=str(lake / "metadata/mergeberg"),
            versions=installed_versions(),
            format=replace(PLAN.format, row_group_rows=1_000_000),
        )


@contextmanager
def opened(directory: Path, files: int = _FILES, slots: int = _SLOTS) -> Iterator[LimitBench]:
    """Make the slices, and start Spark."""
    texts = "toString(cityHash64(number))"
    inserts = (insert(_ROWS * n, _ROWS, 1, name=texts) for n in range(files))
    source = make_source(directory / "source", *inserts)
    cut = (source.slices(part=part)[0] for part in range(files))
    slices = tuple(replace(slice_, number=n) for n, slice_ in enumerate(cut))
    with local_spark(slots) as session:
        yield LimitBench(session, slices, directory)


def main() -> None:
    """Measure, and print the tables."""
    with (
        tempfile.TemporaryDirectory(prefix="mergeberg-bench-") as made,
        opened(Path(made)) as bench,
    ):
        bench.bytes_per_second(0)
        _say("| `background_move_pool_size` | files at a time, at most |", "|---|---|")
        for slices in (1, 2, 8):
            _say(f"| {slices} | {bench.at_a_time(slices)} |")
        _say("", "| bytes per second: limit | measured |", "|---|---|")
        for given in (1_000_000, 2_000_000, 4_000_000, 0):
            shown = f"{given:,}" if given else "no limit"
            _say(f"| {shown} | {bench.bytes_per_second(given):,.0f} |")
        _say("", "| `--max-retries` | attempts for a file that cannot be written |", "|---|---|")
        for retries in (0, 1, 3):
            _say(f"| {retries} | {bench.tries(retries)} |")


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""One big export from end to end: rows are made, exported by the command, and compared."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from catalog.clickhouse.embedded import EmbeddedConnection
from tests.big.check import Check
from tests.big.files import file_checks
from tests.big.kills import finished_files, kill_again_and_again
from tests.big.lake import Lake, load_lake
from tests.big.table import COLUMNS, TABLE, Column, Partition, fill
from tests.big.values import lake_sums, source_sums, value_checks

__all__ = ["Big", "run_export"]

_ROOT: Final = Path(__file__).parents[2]
_TO: Final = "lake.shop.orders"
_COMMAND: Final = "from spark_ext.cli.main import run; run()"
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Big:
    """What is exported: its partitions, where everything is made, and the size of files.

    The export is killed `kills` times, at moments that `seed` makes, before it is left alone.
    """

    directory: Path
    partitions: tuple[Partition, ...]
    target_mib: int
    master: str = "local[2]"
    kills: int = 0
    seed: int = 0
    columns: tuple[Column, ...] = COLUMNS

    @property
    def rows(self) -> int:
        """The rows of all partitions."""
        return sum(p.rows for p in self.partitions)

    def run(self, say: Callable[[str], None]) -> tuple[list[Check], list[tuple[str, str]]]:
        """Make, export and check; return the checks, and figures for the reader.

        Args:
            say: called with the progress.

        Raises:
            SourceError: ClickHouse failed where the export was not concerned.
        """
        source = self.directory / "clickhouse"
        parts = sum(p.parts for p in self.partitions)
        say(f"making {self.rows:,} rows in {parts} parts")
        with EmbeddedConnection(source, create=True) as clickhouse:
            fill(clickhouse, self.partitions, self.columns)
            checks = list(_parts_checks(clickhouse, self.partitions))
        say("exporting")
        warehouse = self.directory / "warehouse"
        words = (
            TABLE, "--all", "--to", _TO, "--source", f"chdb:{source}", "--warehouse",
            str(warehouse), "--target-file-size", str(self.target_mib), "--master", self.master,
        )  # fmt: skip
        killed = kill_again_and_again(
            lambda: _begin_export(*words), warehouse, self.kills, self.seed
        )
        finished = finished_files(warehouse)
        began = time.monotonic()
        done = run_export(*words)
        seconds = time.monotonic() - began
        checks += _outcome_checks(done, self.partitions, killed=killed > 0)
        if not all(check.passed for check in checks):
            return checks, [("said", done.stderr[-2000:])]
        lake = load_lake(warehouse, _TO)
        say("comparing every value")
        with EmbeddedConnection(source) as clickhouse:
            here = source_sums(clickhouse, self.partitions, self.columns)
        with EmbeddedConnection(self.directory / "reader", create=True) as reader:
            there = lake_sums(reader, lake, self.partitions, self.columns)
        checks += value_checks(here, there, self.columns)
        say(f"checking {len(lake.files)} files")
        checks += file_checks(lake, target_bytes=self.target_mib * _MIB)
        notes = _figures(lake, self.rows, seconds)
        if self.kills:
            checks.append(_written_once(lake, warehouse))
            notes += _kill_figures(lake, finished, f"{killed} of {self.kills} times")
        return checks, notes


def run_export(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `mergeberg export` as a user does, in a process of its own."""
    process = _begin_export(*arguments, "--json")
    out, err = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def _begin_export(*arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(p for p in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if p)
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "export", *arguments],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _parts_checks(clickhouse: EmbeddedConnection, wanted: tuple[Partition, ...]) -> Iterator[Check]:
    """Check that the source is what the run is about: nothing was merged, nothing is missing."""
    found: dict[Any, Any] = {
        row[0]: row[1:]
        for row in clickhouse.rows(
            "SELECT partition_id, count(), sum(rows) FROM system.parts WHERE active AND"
            f" concat(database, '.', table) = '{TABLE}' GROUP BY partition_id"
        )
    }
    for p in wanted:
        parts, rows = found.get(p.id, (0, 0))
        right = (parts, rows) == (p.parts, p.rows)
        yield Check("parts in ClickHouse", p.id, right, f"{p.id}: {parts}")


def _outcome_checks(
    done: subprocess.CompletedProcess[str], wanted: tuple[Partition, ...], *, killed: bool
) -> Iterator[Check]:
    words = ("committed", "already_exported") if killed else ("committed",)
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = [one for one in objects if "summary" not in one]
    yield Check("exit code", "mergeberg export", done.returncode == 0, str(done.returncode))
    found = {o["partition_id"]: (o["status"], o["rows"]) for o in outcomes}
    for p in wanted:
        outcome = found.get(p.id)
        right = outcome in [(word, p.rows) for word in words]
        yield Check("outcome", p.id, right, words[0] if right else str(outcome))


def _written_once(lake: Lake, warehouse: Path) -> Check:
    of_main = {Path(f.path).name for f in lake.files}
    again = finished_files(warehouse) - of_main
    return Check("files written again", "lake", not again, f"{len(again)}")


def _kill_figures(lake: Lake, finished: set[str], killed: str) -> list[tuple[str, str]]:
    reused = sum(Path(f.path).name in finished for f in lake.files)
    return [("killed", killed), ("files of killed runs", f"{reused} of {len(lake.files)}")]


def _figures(lake: Lake, rows: int, seconds: float) -> list[tuple[str, str]]:
    sizes = sorted(f.entry.file_size_in_bytes / _MIB for f in lake.files)
    receipts = [f.receipt for f in lake.files if f.receipt is not None]
    peaks = sorted(r.peak_memory / _MIB for r in receipts)
    writing = sum(r.seconds for r in receipts)
    middle = statistics.median(sizes)
    by_partition = ", ".join(
        f"{p}: {len(lake.of(p))}" for p in sorted({f.partition_id for f in lake.files})
    )
    return [
        ("files of a partition", by_partition),
        ("MiB of a file", f"{sizes[0]:.1f} to {sizes[-1]:.1f}, median {middle:.1f}"),
        ("MiB in all", f"{sum(sizes):.1f}"),
        ("MiB of memory of a task", f"{peaks[0]:.0f} to {peaks[-1]:.0f}"),
        ("seconds of all tasks", f"{writing:.1f}, {rows / writing:,.0f} rows/s of one task"),
        ("seconds of the command", f"{seconds:.1f}, {rows / seconds:,.0f} rows/s"),
    ]

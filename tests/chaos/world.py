"""What the processes of a chaos run share: a directory, the content of the source, a log each."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tableformat.export.outcome import Outcome
from tests.chaos.removed import Removed, removed_in
from tests.places.found import place_at
from tests.support.scenarios import Partitions, parts_of

__all__ = ["Report", "World", "clock", "quiet"]


def clock() -> int:
    """Return milliseconds since 1970, the clock of everybody."""
    return time.time_ns() // 1_000_000


def quiet() -> None:
    """Let this process say nothing of outages, which are what a run is about."""
    logging.getLogger("catalog").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a partition for a worker, in a run from `begun` to `ended` (milliseconds)."""

    partition_id: str
    status: str
    rows: int
    snapshot_id: int | None
    message: str
    begun: int
    ended: int
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class World:
    """The directory of a run."""

    directory: Path

    @property
    def front(self) -> Path:
        """Stands for the place as the processes of the run see it."""
        return self.directory / "front"

    @property
    def removed(self) -> Removed:
        """What was cleaned up, which the judge can still read."""
        return removed_in(self.directory, self.front)

    def locations(self) -> frozenset[str]:
        """Return where something is in the warehouse now."""
        place = place_at(self.directory)
        storage = place.storage(place.warehouse)
        return frozenset(one.location for one in storage.list(place.warehouse))

    @property
    def _content(self) -> Path:
        return self.directory / "source.json"

    def write(self, content: dict[str, list[int]]) -> None:
        """Change the source, at once: partition id to the rows of its parts."""
        new = self._content.with_suffix(".new")
        new.write_text(json.dumps(content), encoding="utf-8")
        os.replace(new, self._content)  # noqa: PTH105  the one call that is atomic

    def content(self) -> dict[str, list[int]]:
        """Return the source as it is now."""
        found: dict[str, list[int]] = json.loads(self._content.read_text(encoding="utf-8"))
        return found

    def source(self) -> Partitions:
        """Return a source with what it holds now."""
        return Partitions(
            by_id={name: parts_of(name, *rows) for name, rows in self.content().items()}
        )

    def command(self, seed: int, *more: str, program: str = "worker") -> list[str]:
        """Return what starts a process of the run: one that exports, or the `cleaner`."""
        of = f"tests.chaos.{program}"
        return [sys.executable, "-m", of, str(self.directory), str(seed), *more]

    def log(self, worker: str, outcome: Outcome, begun: int) -> None:
        """Add a report to a worker's log; a line is written whole or not at all."""
        report = Report(
            outcome.partition_id, outcome.status.value, outcome.rows, outcome.snapshot_id,
            outcome.message, begun, clock(), outcome.transaction_id,
        )  # fmt: skip
        with (self.directory / f"{worker}.log").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(report)) + "\n")

    def log_wait(self, worker: str, begun: int) -> None:
        """Add to a worker's log for how long it ran until it got every outcome, or was refused."""
        with (self.directory / f"{worker}.waits").open("a", encoding="utf-8") as file:
            file.write(f"{clock() - begun}\n")

    def log_error(self, worker: str, error: Exception) -> None:
        """Add to a worker's log why a run ended before every outcome."""
        with (self.directory / f"{worker}.errors").open("a", encoding="utf-8") as file:
            file.write(f"{clock()} {str(error).splitlines()[0]}\n")

    def errors(self, worker: str = "*") -> list[str]:
        """Return why runs ended early: of a worker, or of all."""
        return self._lines(f"{worker}.errors")

    def waits(self, worker: str = "*") -> list[str]:
        """Return how long each run took that ended: of a worker, or of all; in milliseconds."""
        return self._lines(f"{worker}.waits")

    def _lines(self, pattern: str) -> list[str]:
        files = sorted(self.directory.glob(pattern))
        return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    def longest_wait(self) -> float:
        """Return the longest of all workers, in seconds."""
        return max(int(line) for line in self.waits()) / 1000

    def reports(self, worker: str = "*") -> list[Report]:
        """Return all reports of a worker, or of all; a line that a kill cut off is left out."""
        found = []
        for line in self._lines(f"{worker}.log"):
            try:
                found.append(Report(**json.loads(line)))
            except ValueError:
                continue
        return found

"""Counts the work of this process, and renders it for Prometheus (docs/reference/metrics.md).

`Figures` holds the counters of one process. `CountingObserver` and `CountingWriter` update them,
and pass every call to another observer or writer. `render` adds the counters of the ledger, which
cover all processes, and reads them at each request.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tableformat import history
from tableformat.errors import LedgerError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import ObserverAround, WriterAround, Writing
from tableformat.export.slices import SliceTask, WritePlan

__all__ = ["METRICS", "CountingObserver", "CountingWriter", "Figures", "Metric", "render"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; `kind` is counter or gauge, and `label` is the label of its samples, or ''."""

    name: str
    kind: str
    meaning: str
    label: str = ""


_PLANNED: Final = Metric(
    "mergeberg_rows_planned_total", "counter", "Rows of the partitions that began to be written."
)
_ROWS: Final = Metric(
    "mergeberg_rows_written_total", "counter", "Rows written, while files are being written too."
)
_FILES: Final = Metric(
    "mergeberg_files_written_total",
    "counter",
    "Data files that Spark jobs of this process finished.",
)
_BYTES: Final = Metric("mergeberg_bytes_written_total", "counter", "Bytes of these files.")
_FAILURES: Final = Metric(
    "mergeberg_slice_failures_total",
    "counter",
    "Attempts to write a slice that ended without a file.",
)
_SLICES: Final = Metric(
    "mergeberg_slices", "gauge", "Slices that Spark may be writing now for this process."
)
_PARTITIONS: Final = Metric(
    "mergeberg_partitions_total", "counter", "Partitions that have an outcome.", "status"
)
_LEDGER: Final = Metric("mergeberg_ledger_up", "gauge", "1 if the ledger responded, else 0.")
_RUNNING: Final = Metric(
    "mergeberg_exports_running",
    "gauge",
    "Partitions that are being exported now, by any process of the ledger.",
)
_EVENTS: Final = Metric(
    "mergeberg_events_total",
    "counter",
    "What all exports of the ledger counted, in source parts.",
    "event",
)
METRICS: Final = (
    _PLANNED, _ROWS, _FILES, _BYTES, _FAILURES, _SLICES, _PARTITIONS, _LEDGER, _RUNNING, _EVENTS,
)  # fmt: skip
"""All metrics, in the order of the output."""


@dataclass(slots=True)
class Figures:
    """The counters of one process; thread-safe.

    `slices` returns the number of slices that may be in progress now. `counters` returns the
    counters of the ledger, as `History.counters`; it is None while no ledger is known.
    """

    slices: Callable[[], int]
    counters: Callable[[], Mapping[str, int]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: Counter[Metric] = field(default_factory=Counter)
    _ended: Counter[Status] = field(default_factory=Counter)
    _rows_of_job: int = 0

    def begin(self, rows: int) -> None:
        """Add the rows that a job will write."""
        with self._lock:
            self._counts[_PLANNED] += rows
            self._rows_of_job = 0

    def rows(self, written: int) -> None:
        """Set the rows that the job has written so far; the counter never decreases."""
        with self._lock:
            self._counts[_ROWS] += max(0, written - self._rows_of_job)
            self._rows_of_job = max(written, self._rows_of_job)

    def wrote(self, sizes: Iterable[int], failures: int) -> None:
        """Add finished files with their bytes, and failed slices."""
        with self._lock:
            for size in sizes:
                self._counts[_FILES] += 1
                self._counts[_BYTES] += size
            self._counts[_FAILURES] += failures

    def ended(self, status: Status) -> None:
        """Count a partition by its final status."""
        with self._lock:
            self._ended[status] += 1

    def samples(self) -> dict[Metric, dict[str, int]]:
        """Return the values of all metrics of this process, by metric and label value."""
        with self._lock:
            of_one = (_PLANNED, _ROWS, _FILES, _BYTES, _FAILURES)
            found = {metric: {"": self._counts[metric]} for metric in of_one}
            found[_PARTITIONS] = {status.value: self._ended[status] for status in Status}
        found[_SLICES] = {"": self.slices()}
        return found


@dataclass(frozen=True, slots=True)
class CountingObserver(ObserverAround):
    """An observer that counts rows and outcomes, and passes every call to another observer."""

    figures: Figures

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Count the rows that the job will write."""
        self.figures.begin(rows)
        self.observer.begin(partitions, rows, size)

    def rows(self, written: int) -> None:
        """Count the rows that are written so far."""
        self.figures.rows(written)
        self.observer.rows(written)

    def finished(self, outcome: Outcome) -> None:
        """Count the outcome of one partition."""
        self.figures.ended(outcome.status)
        self.observer.finished(outcome)


@dataclass(frozen=True, slots=True)
class CountingWriter(WriterAround):
    """A writer that delegates to another writer, and counts its files."""

    figures: Figures

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every slice; return one receipt or one failure for each.

        Raises:
            SourceError: the tasks could not be run.
            StoppedError: their job was cancelled.
        """
        written = yield from self.writer.write(
            plan, tasks, on_rows=on_rows, should_stop=should_stop
        )
        self.figures.wrote((r.file_bytes for r in written.receipts), len(written.failures))
        return written


def render(figures: Figures) -> str:
    """Return the metrics in Prometheus's text format, version 0.0.4.

    If the ledger cannot be read, only its own metrics are missing.
    """
    found = {**figures.samples(), **_of_ledger(figures.counters)}
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, found))


def _of_ledger(
    counters: Callable[[], Mapping[str, int]] | None,
) -> dict[Metric, dict[str, int]]:
    try:
        counts = None if counters is None else counters()
    except LedgerError:
        counts = None
    if counts is None:
        return {_LEDGER: {"": 0}}
    return {
        _LEDGER: {"": 1},
        _RUNNING: {"": counts[history.RUNNING_EXPORTS]},
        _EVENTS: {event.value: counts[event] for event in history.Counter},
    }


def _lines(metric: Metric, found: Mapping[Metric, Mapping[str, int]]) -> Iterator[str]:
    if metric not in found:
        return
    yield f"# HELP {metric.name} {metric.meaning}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for value, count in found[metric].items():
        label = f'{{{metric.label}="{value}"}}' if metric.label else ""
        yield f"{metric.name}{label} {count}"

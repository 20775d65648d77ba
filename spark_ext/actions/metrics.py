"""What a running export counts, and the text that Prometheus reads (docs/reference/metrics.md).

`Figures` are of one process. They are told by an observer and by a writer around the one that
writes; both pass everything on. What the ledger counts, for all processes, is asked for when the
text is.
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
    """A metric: `kind` is counter or gauge; `label` tells its samples apart, '' for one sample."""

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
    "mergeberg_files_written_total", "counter", "Data files that Spark jobs of this process ended."
)
_BYTES: Final = Metric("mergeberg_bytes_written_total", "counter", "Bytes of these files.")
_FAILURES: Final = Metric(
    "mergeberg_slice_failures_total", "counter", "Tries of a slice that ended without a file."
)
_SLICES: Final = Metric(
    "mergeberg_slices", "gauge", "Slices that Spark may be writing now for this process."
)
_PARTITIONS: Final = Metric(
    "mergeberg_partitions_total", "counter", "Partitions that have their answer.", "status"
)
_LEDGER: Final = Metric("mergeberg_ledger_up", "gauge", "1 when the ledger answered, else 0.")
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
"""Every metric, as it is shown."""


@dataclass(slots=True)
class Figures:
    """The counts of one process; told and asked from any thread.

    `slices` says how many slices may be being written now, `counters` asks the ledger as
    `History.counters` does, None as long as no ledger is known.
    """

    slices: Callable[[], int]
    counters: Callable[[], Mapping[str, int]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: Counter[Metric] = field(default_factory=Counter)
    _ended: Counter[Status] = field(default_factory=Counter)
    _rows_of_job: int = 0

    def begin(self, rows: int) -> None:
        """Count what a job is to write."""
        with self._lock:
            self._counts[_PLANNED] += rows
            self._rows_of_job = 0

    def rows(self, written: int) -> None:
        """Count the rows that the job has written by now; a try that failed takes none back."""
        with self._lock:
            self._counts[_ROWS] += max(0, written - self._rows_of_job)
            self._rows_of_job = max(written, self._rows_of_job)

    def wrote(self, sizes: Iterable[int], failures: int) -> None:
        """Count finished files by their bytes, and slices without one."""
        with self._lock:
            for size in sizes:
                self._counts[_FILES] += 1
                self._counts[_BYTES] += size
            self._counts[_FAILURES] += failures

    def ended(self, status: Status) -> None:
        """Count a partition that has its answer."""
        with self._lock:
            self._ended[status] += 1

    def samples(self) -> dict[Metric, dict[str, int]]:
        """Return what is counted, by metric and the value of its label."""
        with self._lock:
            of_one = (_PLANNED, _ROWS, _FILES, _BYTES, _FAILURES)
            found = {metric: {"": self._counts[metric]} for metric in of_one}
            found[_PARTITIONS] = {status.value: self._ended[status] for status in Status}
        found[_SLICES] = {"": self.slices()}
        return found


@dataclass(frozen=True, slots=True)
class CountingObserver(ObserverAround):
    """An observer that counts, and passes everything on."""

    figures: Figures

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Count the rows that are to be written."""
        self.figures.begin(rows)
        self.observer.begin(partitions, rows, size)

    def rows(self, written: int) -> None:
        """Count the rows that are written."""
        self.figures.rows(written)
        self.observer.rows(written)

    def finished(self, outcome: Outcome) -> None:
        """Count what became of one partition."""
        self.figures.ended(outcome.status)
        self.observer.finished(outcome)


@dataclass(frozen=True, slots=True)
class CountingWriter(WriterAround):
    """Lets another writer write, and counts its files."""

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
            SourceError: the tasks could not be run at all.
            StoppedError: their job was cancelled.
        """
        written = yield from self.writer.write(
            plan, tasks, on_rows=on_rows, should_stop=should_stop
        )
        self.figures.wrote((r.file_bytes for r in written.receipts), len(written.failures))
        return written


def render(figures: Figures) -> str:
    """Return the text, in the format of Prometheus, version 0.0.4.

    A ledger that does not answer hides only what it counts.
    """
    found = {**figures.samples(), **_of_ledger(figures.counters)}
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, found))


def _of_ledger(
    counters: Callable[[], Mapping[str, int]] | None,
) -> dict[Metric, dict[str, int]]:
    try:
        told = None if counters is None else counters()
    except LedgerError:
        told = None
    if told is None:
        return {_LEDGER: {"": 0}}
    return {
        _LEDGER: {"": 1},
        _RUNNING: {"": told[history.RUNNING_EXPORTS]},
        _EVENTS: {event.value: told[event] for event in history.Counter},
    }


def _lines(metric: Metric, found: Mapping[Metric, Mapping[str, int]]) -> Iterator[str]:
    if metric not in found:
        return
    yield f"# HELP {metric.name} {metric.meaning}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for value, count in found[metric].items():
        label = f'{{{metric.label}="{value}"}}' if metric.label else ""
        yield f"{metric.name}{label} {count}"

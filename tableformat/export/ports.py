"""Defines the ports of an export job: the lake, the writer of slices, and the observer.

`spark_ext` implements the writer; `catalog` opens sources, tables and ledgers. The job knows only
these contracts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from tableformat.committer import Commit, CommitOutcome, LakeTable
from tableformat.effects import Effects
from tableformat.errors import TableFormatError
from tableformat.export.commit import Pause, Ports
from tableformat.export.outcome import Outcome
from tableformat.export.request import Allotment, ReplaceLimit
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.export.verification import LakeDigests
from tableformat.ledger import Ledger, Owner
from tableformat.names import LakeName, TransactionId
from tableformat.receipt import Receipt
from tableformat.source import Source
from tableformat.storage import Storage

__all__ = [
    "JobPorts",
    "Lake",
    "Lands",
    "Observer",
    "ObserverAround",
    "Silent",
    "SliceFailure",
    "SliceWriter",
    "WriterAround",
    "Writing",
    "Written",
]


class Lake(Protocol):
    """A catalog that opens and creates destinations."""

    def table(self, name: LakeName) -> LakeTable | None:
        """Return an existing table, None if there is none.

        Raises:
            DestinationError: the catalog cannot be read.
        """
        ...

    def create(
        self,
        name: LakeName,
        *,
        schema: Schema,
        spec: PartitionSpec,
        order: SortOrder,
        properties: Mapping[str, str],
    ) -> LakeTable:
        """Create a table, or return the table that another process created meanwhile.

        Raises:
            DestinationError: the catalog failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class SliceFailure:
    """A slice that has no file, and the error of its task."""

    slice_number: int
    error: TableFormatError


@dataclass(frozen=True, slots=True)
class Written:
    """The result of writing: each slice, by number, has either a receipt or a failure."""

    receipts: tuple[Receipt, ...]
    failures: tuple[SliceFailure, ...]


Writing = Generator[None, None, Written]
"""A running write. It yields from time to time, and returns the result of every slice.

Closing it early stops the work; finished files stay.
"""


class SliceWriter(Protocol):
    """Writes slices into files, in tasks that may run anywhere."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        ...

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the versions that every host must have."""
        ...

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        """Write every slice; return one receipt or one failure for each.

        Whenever it yields, the stored receipts show which files are finished.

        Args:
            plan: the values that all slices share.
            tasks: the slices by task.
            on_rows: called with the number of rows written so far.
            should_stop: once it returns true, no slice is started; the others fail with a
                StoppedError.

        Raises:
            SourceError: the tasks could not be run at all.
        """
        ...


@dataclass(frozen=True, slots=True)
class WriterAround:
    """The base of a `SliceWriter` that wraps another one: everything except `write`."""

    writer: SliceWriter

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return self.writer.slots

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the versions that every host must have."""
        return self.writer.versions()


class Observer(Protocol):
    """Receives the progress of a job, which it cannot change."""

    def note(self, text: str) -> None:
        """Receive a note for the user, one sentence."""
        ...

    def none_selected(self, text: str) -> None:
        """Receive the message that no partition is selected."""
        ...

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Receive the start of writing: partitions, rows to write, bytes on the source's disks."""
        ...

    def rows(self, written: int) -> None:
        """Receive the number of rows written since `begin`."""
        ...

    def finished(self, outcome: Outcome) -> None:
        """Receive the outcome of one partition."""
        ...


@dataclass(frozen=True, slots=True)
class ObserverAround:
    """The base of an `Observer` that wraps another one: it passes on every call."""

    observer: Observer

    def note(self, text: str) -> None:
        """Pass on a sentence."""
        self.observer.note(text)

    def none_selected(self, text: str) -> None:
        """Pass on that no partition is selected."""
        self.observer.none_selected(text)

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Pass on that files begin to be written."""
        self.observer.begin(partitions, rows, size)

    def rows(self, written: int) -> None:
        """Pass on how many rows are written."""
        self.observer.rows(written)

    def finished(self, outcome: Outcome) -> None:
        """Pass on the outcome of one partition."""
        self.observer.finished(outcome)


class Silent:
    """An observer that ignores every call."""

    def note(self, text: str) -> None:
        """Ignore it."""

    def none_selected(self, text: str) -> None:
        """Ignore it."""

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Ignore it."""

    def rows(self, written: int) -> None:
        """Ignore it."""

    def finished(self, outcome: Outcome) -> None:
        """Ignore it."""


Lands = Callable[[Ports, Commit], dict[str, CommitOutcome]]
"""Makes a commit of a job visible; returns the outcomes as `commit.commit` does."""


def _nothing() -> None:
    """Do nothing."""


def _never() -> bool:
    """Return false."""
    return False


def _no_note(_limit: int) -> str:
    """Return nothing to note."""
    return ""


@dataclass(frozen=True, slots=True)
class JobPorts:
    """The ports of an export job: everything outside that it reads or changes.

    * `clock` returns milliseconds since 1970.
    * `job` is the prefix of all names that the job creates in the source.
    * `new_transaction` returns the id for an epoch; each epoch of the ledger has another id.
    * `storage` opens the storage of a location.
    * `check_writer` raises if no writer can be started. It is called before anything is changed.
      `begin_writer` starts the writer once there are files to write; `writer` waits for it.
    * `digests`: every export is verified after its commit. `compares`: before anything is written,
      the rows of a partition whose parts changed are compared with the exported rows.
    * `should_stop`: once it returns true, no slice and no group of partitions is started.
    * `query_id` is the name of the job's statement, '' for none.
    * `allotment` divides the limits of the application among its exports. `sharing_note` returns
      a note on a bandwidth that other processes share, '' for none.
    * `replacements` counts the partitions that the command replaces, None for no limit.
    * `landing` replaces `commit.commit` for a statement that changes more in the same snapshot.
    """

    effects: Effects
    source: Source
    lake: Lake
    ledger: Ledger
    writer: Callable[[], SliceWriter]
    owner: Owner
    is_alive: Callable[[Owner], bool]
    clock: Callable[[], int]
    pause: Pause
    new_transaction: Callable[[int], TransactionId]
    storage: Callable[[str], Storage]
    job: str
    job_is_alive: Callable[[str], bool]
    observer: Observer
    check_writer: Callable[[], None] = _nothing
    begin_writer: Callable[[], None] = _nothing
    digests: LakeDigests | None = None
    compares: LakeDigests | None = None
    should_stop: Callable[[], bool] = _never
    query_id: str = ""
    allotment: Allotment = field(default_factory=Allotment)
    replacements: ReplaceLimit | None = None
    sharing_note: Callable[[int], str] = _no_note
    landing: Lands | None = None

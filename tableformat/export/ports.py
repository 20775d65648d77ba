"""What the job is given: its ports to the outside, and who wants to hear how it goes.

`spark_ext` writes files, `catalog` opens sources, tables and ledgers; the job only knows these
contracts.
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
from tableformat.export.request import Allotment
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
    """A catalog in which destinations are found and made."""

    def table(self, name: LakeName) -> LakeTable | None:
        """Return an existing table, None when there is none."""
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
        """Create a table; return the one that somebody else created meanwhile, if so."""
        ...


@dataclass(frozen=True, slots=True)
class SliceFailure:
    """A slice without a file, and the error that its task met."""

    slice_number: int
    error: TableFormatError


@dataclass(frozen=True, slots=True)
class Written:
    """What a job left behind: every slice is in exactly one of the two, by number."""

    receipts: tuple[Receipt, ...]
    failures: tuple[SliceFailure, ...]


Writing = Generator[None, None, Written]
"""Files that are being written: it yields now and then, and returns what became of every slice.

Closed early it stops the work, and what is finished stays.
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

        Whenever it yields, the caller may take from the stored receipts what is finished by then.

        Args:
            plan: what all slices share.
            tasks: the slices by task.
            on_rows: called with the rows written so far.
            should_stop: once it is true no slice is begun any more; those have a StoppedError.

        Raises:
            SourceError: the tasks could not be run at all.
        """
        ...


@dataclass(frozen=True, slots=True)
class WriterAround:
    """What a `SliceWriter` that lets another one write takes over from it: all but `write`."""

    writer: SliceWriter

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return self.writer.slots

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the versions that every host must have."""
        return self.writer.versions()


class Observer(Protocol):
    """Hears how a job goes. Nothing that it does changes the job."""

    def note(self, text: str) -> None:
        """Hear one sentence about what is going on."""
        ...

    def none_selected(self, text: str) -> None:
        """Hear that the selection holds no partition, and what there is."""
        ...

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Hear that files begin to be written, of so many rows and bytes on the source's disks."""
        ...

    def rows(self, written: int) -> None:
        """Hear how many rows of what was begun are written by now."""
        ...

    def finished(self, outcome: Outcome) -> None:
        """Hear what became of one partition."""
        ...


@dataclass(frozen=True, slots=True)
class ObserverAround:
    """An `Observer` that passes everything on; one that is made of it adds what it does itself."""

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
        """Pass on what became of one partition."""
        self.observer.finished(outcome)


class Silent:
    """An observer that says nothing."""

    def note(self, text: str) -> None:
        """Hear one sentence."""

    def none_selected(self, text: str) -> None:
        """Hear that no partition is selected."""

    def begin(self, partitions: int, rows: int, size: int) -> None:
        """Hear that files begin to be written."""

    def rows(self, written: int) -> None:
        """Hear how many rows are written."""

    def finished(self, outcome: Outcome) -> None:
        """Hear what became of one partition."""


Lands = Callable[[Ports, Commit], dict[str, CommitOutcome]]
"""Makes a commit of a job visible, and answers as `commit.commit` does."""


def _nothing() -> None:
    """Do nothing."""


def _never() -> bool:
    """Return that nobody has asked for it."""
    return False


@dataclass(frozen=True, slots=True)
class JobPorts:
    """Everything a job acts on.

    `clock` is milliseconds since 1970; `job` names what it makes in the source. `new_transaction`
    gives an id for an epoch, another one for every epoch of the ledger; `storage` opens what a
    location belongs to. `check_writer` raises when there can be no writer; it is called before
    anything is changed. `begin_writer` begins to make it, once there is something to write;
    `writer` waits for it. With `digests` every export is verified after its commit; with `compares`
    the rows of a partition whose parts changed are compared with those exported before anything is
    written. Once `should_stop`, no slice and no group of partitions is begun any more. `query_id`
    names the statement that the job is for, '' where it has no name. `allotment` is what the
    exports of this application share. `landing` commits in place of `commit.commit`: a statement
    that lets more change in the same snapshot.
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
    landing: Lands | None = None

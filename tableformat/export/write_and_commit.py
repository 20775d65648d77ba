"""Writes the files of claimed partitions, commits complete partitions, and handles takeovers.

* `FileWriting`: a partition is complete if each of its slices has a stored receipt. During a long
  job it hands complete partitions to the commit at intervals, so their rows become visible early.
  A run that resumes another one reads the same receipts.
* `Committing` checks the files, notes them in the ledger, commits and verifies. All partitions of
  a call become visible in one snapshot. A failure of one partition does not stop the others.
* `Cancelled` detects that another owner has taken partitions over. One Spark job writes a whole
  group; it stops only if no partition of the group is ours any more. The commit protocol prevents
  the commit of a partition that was taken over (step 4 of docs/spec/commit-protocol.md).
* `FinalFailure` writes FAILED and removes the files (step 9): after a certain conflict the table
  is not the one for which the files were written, and no request can still land. Every other
  failure leaves the export resumable (RQ…PartialProgress).
* `OutcomeBuilder` produces the outcome for the user and the error for the ledger row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, assert_never

from tableformat.committer import (
    CommitOutcome,
    Committed,
    Conflicted,
    Figures,
    NotSent,
    Superseded,
    Unknown,
)
from tableformat.effects import Step
from tableformat.errors import (
    Action,
    DestinationError,
    InternalError,
    LedgerError,
    MissingError,
    NotBegunError,
    RefusedError,
    SourceError,
    SourceGoneError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.cleanup import Cleaning
from tableformat.export.commit import Ports, commit
from tableformat.export.commit_lists import store_list
from tableformat.export.destination import Destination, Group, WrittenClaim
from tableformat.export.foreign_rows import RowsOfOthersError
from tableformat.export.freeze_and_claim import Claimed, Claiming, Frozen
from tableformat.export.give_up import BY_CANCEL, GivenUp, kill
from tableformat.export.leases import Leases
from tableformat.export.outcome import Cause, Outcome, Status, undo_statement
from tableformat.export.ports import JobPorts, SliceWriter, Writing, Written
from tableformat.export.request import ExportOptions
from tableformat.export.slices import (
    files_of_parts,
    just_written,
    kept_parts,
    spread,
    stored_receipts,
    tasks,
    with_files,
)
from tableformat.export.verification import Verification
from tableformat.file_names import key_in
from tableformat.ledger import Row, Stale, State, Stop
from tableformat.messages import Command
from tableformat.quantities import counted
from tableformat.receipt import Receipt

__all__ = [
    "Cancelled",
    "Committing",
    "FileWriting",
    "Files",
    "FinalFailure",
    "NoneLeftError",
    "OutcomeBuilder",
]

_CHECKS_IN_FLIGHT: Final = 16


@dataclass(frozen=True, slots=True)
class OutcomeBuilder:
    """Builds the outcomes of a command's `action` in one destination, named `table`."""

    ports: JobPorts
    table: str
    action: Action = Action.EXPORT

    def outcome(
        self, partition_id: str, status: Status, message: str, row: Row | None, begun: int
    ) -> Outcome:
        """Return an outcome with the figures of the row's completed export, or of its claim.

        If the status says that main holds an export, the figures are those of that export,
        regardless of later claims.
        """
        done = row.done if row is not None else None
        in_main = done is not None and status in (Status.ALREADY_EXPORTED, Status.UNCHANGED)
        last = done.landed if done and in_main else row.last if row is not None else None
        return Outcome(
            partition_id=partition_id,
            status=status,
            table=self.table,
            message=message,
            transaction_id=last.transaction_id if last else None,
            snapshot_id=done.landed.snapshot_id if done else None,
            rows=last.rows if last else 0,
            data_files=last.data_files if last else 0,
            bytes=done.bytes if done and in_main else row.bytes if row is not None else 0,
            seconds=(self.ports.clock() - begun) / 1000,
        )

    def failed(
        self,
        partition_id: str,
        error: TableFormatError,
        row: Row | None,
        begun: int,
        *,
        parts: int = 0,
    ) -> Outcome:
        """Return the outcome of a partition after an error; `parts` if no claim has them."""
        text = error.during(self.action).message
        failed = self.outcome(partition_id, _status(error), text, row, begun)
        gone = isinstance(error, SourceGoneError)
        theirs = isinstance(error, RowsOfOthersError)
        cause = Cause.ROWS_OF_OTHERS if theirs else Cause.ERROR
        return replace(failed, code=error.code, parts=parts, source_gone=gone, cause=cause)

    def note_error(self, row: Row, error: str | Stop, finished: tuple[Receipt, ...] = ()) -> str:
        """Store the last error on the row, unless another process has changed the row.

        Args:
            row: as it was claimed.
            error: why the export ends without a commit.
            finished: the receipts of its files, from which the row lists the finished parts.

        Returns:
            The ledger's error, as the end of a sentence; '' if the error was stored.
        """
        try:
            now = self.ports.ledger.read(row.key.hash)
            if now is not None and now.claim.epoch == row.claim.epoch and _runs(now):
                claim = now.claim
                if finished:
                    claim = replace(claim, parts=with_files(claim.parts, finished, row))
                noted = replace(now, claim=claim).noted(error, self.ports.clock())
                self.ports.effects(Step.NOTE_ERROR, partial(self.ports.ledger.write, noted))
        except LedgerError as refused:
            return f" (and the ledger could not record it: {refused})"
        return ""


def _status(error: TableFormatError) -> Status:
    match error:
        case RefusedError():
            return Status.REFUSED
        case StoppedError():
            return Status.STOPPED
        case _:
            return Status.FAILED


def _runs(row: Row) -> bool:
    return row.state is State.RUNNING


_BY_ANOTHER = "another run claimed it while its files were written"


class NoneLeftError(TableFormatError):
    """Every partition that is being written was taken over by others."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Handles the partitions of one run that other processes take over."""

    ports: JobPorts
    leases: Leases
    outcomes: OutcomeBuilder

    def watch(self, claimed: tuple[Claimed, ...]) -> None:
        """Start to check whether other processes take the partitions over."""
        for one in claimed:
            self.leases.watch(one.row.key.hash, one.row.claim.epoch)

    def while_any_is_ours(
        self, claimed: Collection[Claimed], on_rows: Callable[[int], None]
    ) -> Callable[[int], None]:
        """Return a callback that raises once this run owns none of the partitions any more.

        Args:
            claimed: the partitions that are being written when the callback is called.
            on_rows: called as long as this run owns one of them.

        Raises:
            NoneLeftError: from the callback.
        """

        def check_and_report(written: int) -> None:
            if all(self.leases.taken_over(c.row.key.hash) for c in claimed):
                message = (
                    "Cannot continue: other runs took over all partitions of this run. List the "
                    "exports to see them."
                )
                raise NoneLeftError(message)
            on_rows(written)

        return check_and_report

    def outcome(self, one: Claimed) -> Outcome:
        """Return the outcome of a partition that this run no longer owns."""
        return self._look(one)[0]

    def _look(self, one: Claimed) -> tuple[Outcome, bool]:
        """Return the outcome, and whether the ledger row has a claim of another run."""
        status, text, is_anothers = Status.IN_PROGRESS, _BY_ANOTHER, False
        try:
            key = one.row.key.hash
            row = self.ports.effects(Step.READ_LEDGER, partial(self.ports.ledger.read, key))
            if row is not None and _is_given_up(row, one.row.claim.transaction_id):
                status, text = Status.KILLED, BY_CANCEL
            is_anothers = row is not None and row.claim.epoch != one.row.claim.epoch
        except LedgerError as error:
            text = f"{text} (and the ledger could not be read to find that run: {error})"
        outcome = self.outcomes.outcome(one.row.key.partition_id, status, text, one.row, one.begun)
        return outcome, is_anothers

    def stopped(self, one: Claimed, error: TableFormatError) -> Outcome:
        """Return the outcome of a partition after an error.

        A process that cancels the export removes its files during the run. So does another run that
        landed the export.
        """
        ended, is_anothers = self._look(one)
        if ended.status is Status.KILLED or (is_anothers and isinstance(error, MissingError)):
            return ended
        stopped = isinstance(error, StoppedError)
        why = Stop.INTERRUPTED if stopped else error.during(self.outcomes.action).message
        text = self.outcomes.note_error(one.row, why, tuple(one.finished.values()))
        failed = self.outcomes.failed(one.row.key.partition_id, error, one.row, one.begun)
        message = _not_begun(one) if isinstance(error, NotBegunError) else failed.message
        return replace(failed, message=message + text)


def _not_begun(one: Claimed) -> str:
    """Return the message on the files that were finished before the run was stopped."""
    done, planned = len(one.finished), len(one.slices)
    if not done:
        return "stopped before it began"
    return f"stopped when {done:,} of {planned:,} files were finished, which the next run keeps"


def _is_given_up(row: Row, transaction_id: str) -> bool:
    """Whether this export was given up, or is being given up."""
    ours = row.claim.transaction_id == transaction_id
    stops = row.state is State.RUNNING and row.stop in (Stop.CANCELLED, Stop.QUERY_KILLED)
    return ours and (row.state is State.KILLED or stops)


Files = tuple[Claimed, tuple[Receipt, ...] | TableFormatError]
"""A partition with the receipts of all its files, or with the error of a missing one."""


@dataclass(frozen=True, slots=True)
class FileWriting:
    """Writes the files of a run; yields complete partitions every `commit_after` milliseconds.

    `action` is the command that runs.
    """

    ports: JobPorts
    to: Destination
    claiming: Claiming
    cancelled: Cancelled
    commit_after: int
    action: Action

    def run(
        self, claimed: tuple[Claimed, ...], frozen: Frozen, writer: SliceWriter
    ) -> Generator[tuple[Files, ...], None, None]:
        """Write the files; yield every partition once, in batches to commit.

        Args:
            claimed: the partitions to write; finished files are kept.
            frozen: the snapshot to read.
            writer: writes the files.
        """
        left = {c.row.key.hash: c for c in claimed}
        with contextlib.closing(self._writing(left, frozen, writer)) as writing:
            try:
                while (written := self._write_on(writing)) is None:
                    complete = self._complete(left.values())
                    for one, _ in complete:
                        del left[one.row.key.hash]
                    if complete:
                        yield complete
            except TableFormatError as error:
                yield tuple((one, error) for one in left.values())
                return
        todo = tuple(s for c in claimed for s in c.unfinished)
        self.claiming.ratio.measured(todo, written.receipts)
        yield tuple((_with_finished(one, written), _files(one, written)) for one in left.values())

    def _writing(self, left: Mapping[str, Claimed], frozen: Frozen, writer: SliceWriter) -> Writing:
        """Start to write the files that are not finished yet."""
        plan = self.to.write_plan(frozen.snapshot, self.ports.job, writer.versions(), self.action)
        claimed = tuple(left.values())
        kept = sum(r.rows for c in claimed for r in c.finished.values())
        self.ports.observer.begin(
            len(claimed),
            sum(c.frozen.visible_rows for c in claimed) - kept,
            sum(p.part.bytes_on_disk for c in claimed for p in c.frozen.parts),
        )
        self.cancelled.watch(claimed)
        copies = {c.row.key.partition_id: c.frozen.copies for c in claimed if c.frozen.copies}
        todo = spread((s for c in claimed for s in c.unfinished), copies)
        return (
            yield from writer.write(
                plan,
                tasks(todo, writer.slots),
                on_rows=self.cancelled.while_any_is_ours(left.values(), self.ports.observer.rows),
                should_stop=self.ports.should_stop,
            )
        )

    def _write_on(self, writing: Writing) -> Written | None:
        """Write files until all are written; return None when it is time for a commit before."""
        until = self.ports.clock() + self.commit_after

        def write_on() -> Written | None:
            while True:
                try:
                    next(writing)
                except StopIteration as end:
                    written: Written = end.value
                    return written
                if self.ports.clock() >= until:
                    return None

        return self.ports.effects(Step.WRITE_FILES, write_on)

    def _complete(self, left: Collection[Claimed]) -> tuple[Files, ...]:
        """Return the partitions all of whose files are finished, while others are being written."""
        found: list[Files] = []
        for one in left:
            below = self.to.receipts_of(one.row)
            look = partial(stored_receipts, self.ports.storage(below), below)
            try:
                receipts = just_written(one.unfinished, self.ports.effects(Step.FIND_FILES, look))
            except DestinationError as error:
                # At the end the writer reports its files itself, so these partitions are not lost.
                self.ports.observer.note(f"nothing is committed while files are written: {error}")
                break
            if len(receipts) == len(one.unfinished):
                found.append((one, _files(one, Written(receipts, ()))))
        return tuple(found)


def _with_finished(one: Claimed, written: Written) -> Claimed:
    """Return a partition with the files that were finished by this run."""
    todo = {s.number for s in one.unfinished}
    made = {r.slice_number: r for r in written.receipts if r.slice_number in todo}
    return replace(one, finished={**one.finished, **made})


def _files(one: Claimed, written: Written) -> tuple[Receipt, ...] | TableFormatError:
    try:
        return _receipts_of(one, written)
    except TableFormatError as error:
        return error


def _receipts_of(one: Claimed, written: Written) -> tuple[Receipt, ...]:
    """Return the receipts of a partition: one for each slice, with all its rows in total.

    Raises:
        TableFormatError: a slice has no file; the error of its task.
        SourceError: the files do not hold the visible rows of the partition.
    """
    todo = {s.number for s in one.unfinished}
    for failure in written.failures:
        if failure.slice_number in todo:
            raise failure.error
    receipts = (*one.finished.values(), *(r for r in written.receipts if r.slice_number in todo))
    receipts = tuple(sorted(receipts, key=lambda r: r.slice_number))
    if [r.slice_number for r in receipts] != [s.number for s in one.slices]:
        message = (
            f"Cannot commit partition {one.row.key.partition_id}: {len(one.slices)} files were "
            f"planned, but {len(receipts)} were written. Run it again."
        )
        raise SourceError(message)
    rows = sum(r.rows for r in receipts)
    if rows != one.frozen.visible_rows:
        message = (
            f"Cannot commit partition {one.row.key.partition_id}: it shows "
            f"{one.frozen.visible_rows:,} rows, its files hold {rows:,}. Nothing became visible; "
            "please report it with the table's definition."
        )
        raise SourceError(message)
    return receipts


@dataclass(frozen=True, slots=True)
class FinalFailure:
    """Writes FAILED for exports into one destination that can never land."""

    ports: JobPorts
    commit_ports: Ports
    to: Destination
    outcomes: OutcomeBuilder

    def end(self, row: Row, why: str) -> str:
        """Give up an export for good, under the lease of its key, and remove its files.

        Returns:
            The result, as the end of a sentence. The export stays resumable unless it is proved
            that nothing of it can land.
        """
        key = row.key.hash
        try:
            ended = kill(self.commit_ports, key, state=State.FAILED, why=why)
            if not isinstance(ended, GivenUp):
                return self.outcomes.note_error(row, why)
            cleaning = Cleaning(self.commit_ports, self.ports.storage, self.to.location)
            cleaned = cleaning.clean(key)
        except TableFormatError as error:
            noted = self.outcomes.note_error(row, why)
            return f"{noted} (its files were not removed: {error} {Command.GC} removes them)"
        return f" ({counted(cleaned.files, 'file')} of it removed)" if cleaned.files else ""


@dataclass(frozen=True, slots=True)
class Committing:
    """Commits the written partitions of one destination, and verifies them."""

    ports: JobPorts
    commit_ports: Ports
    to: Destination
    options: ExportOptions
    verification: Verification
    outcomes: OutcomeBuilder
    cancelled: Cancelled

    def commit(
        self, finished: tuple[tuple[Claimed, tuple[Receipt, ...]], ...]
    ) -> Iterator[tuple[Outcome, ...]]:
        """Make partitions visible in one snapshot; yield the outcomes that are known together.

        Args:
            finished: each with the receipts of all its files.
        """
        ready: dict[str, tuple[Claimed, WrittenClaim]] = {}
        checked = []
        for one, receipts, broken in self._checked(finished):
            if broken is None:
                checked.append((one, receipts))
            else:
                yield (self.cancelled.stopped(one, broken),)
        for one, written in self._noted(tuple(checked)):
            try:
                if isinstance(written, WrittenClaim):
                    self.verification.keep(written.row, one.frozen)
            except TableFormatError as error:
                yield (self.cancelled.stopped(one, error),)
                continue
            match written:
                case None:
                    yield (self.cancelled.outcome(one),)
                case TableFormatError():
                    yield (self.cancelled.stopped(one, written),)
                case noted:
                    ready[one.row.key.hash] = (one, noted)
        if not ready:
            return
        all_of_them = tuple(written for _, written in ready.values())
        try:
            wanted = self.to.commit(all_of_them, self.ports.ledger, self._list(all_of_them))
        except TableFormatError as error:
            yield tuple(self.cancelled.stopped(one, error) for one, _ in ready.values())
            return
        landed = (self.ports.landing or commit)(self.commit_ports, wanted)
        outcomes = (
            self._outcome(one, written.row, landed[key]) for key, (one, written) in ready.items()
        )
        # A verification reads all rows of a partition, so its outcome does not wait for the others.
        yield from ((one,) for one in outcomes) if self.verification.digests else (tuple(outcomes),)

    def _noted(
        self, finished: tuple[tuple[Claimed, tuple[Receipt, ...]], ...]
    ) -> Iterator[tuple[Claimed, WrittenClaim | TableFormatError | None]]:
        """Store the sizes of the files before the commit, for the process that settles it later.

        Yields:
            Each partition, with None if another run has claimed it, or with the ledger's error.
        """
        if not finished:
            return
        rows = tuple(self._with_files(one.row, receipts) for one, receipts in finished)
        try:
            noted = self.ports.effects(
                Step.NOTE_WRITTEN, partial(self.ports.ledger.write_all, rows)
            )
            current = tuple(
                self._noted_again(one.row, receipts) if isinstance(row, Stale) else row
                for (one, receipts), row in zip(finished, noted, strict=True)
            )
        except TableFormatError as error:
            for one, _ in finished:
                yield one, error
            return
        for (one, receipts), row in zip(finished, current, strict=True):
            if isinstance(row, Stale):
                yield one, None
            else:
                yield one, WrittenClaim(row, receipts, self.options.change)

    def _noted_again(self, row: Row, receipts: tuple[Receipt, ...]) -> Row | Stale:
        """Store the sizes again if the row has changed but its claim has not.

        A process that cleans up after abandoned exports of the key changes the row without a claim.
        """
        now = self.ports.effects(Step.READ_LEDGER, partial(self.ports.ledger.read, row.key.hash))
        if now is None or not _runs(now) or now.claim.epoch != row.claim.epoch:
            return Stale(None if now is None else now.version)
        after = self._with_files(now, receipts)
        return self.ports.effects(Step.NOTE_WRITTEN, partial(self.ports.ledger.write, after))

    def _with_files(self, row: Row, receipts: tuple[Receipt, ...]) -> Row:
        """Return the row of a partition with its files on the claim."""
        claim, stays = row.claim, row.claim.stays
        kept = {p.name: p.remote_paths for p in kept_parts(row)}
        paths = kept | files_of_parts(receipts)
        return replace(
            row,
            updated=self.ports.clock(),
            claim=replace(
                claim,
                rows=sum(r.rows for r in receipts) + sum(one.rows for one in stays),
                data_files=len(receipts) + sum(one.data_files for one in stays),
                bytes=sum(r.file_bytes for r in receipts),
                parts=tuple(replace(p, remote_paths=paths.get(p.name, ())) for p in claim.parts),
            ),
        )

    def _checked(
        self, finished: tuple[tuple[Claimed, tuple[Receipt, ...]], ...]
    ) -> Iterator[tuple[Claimed, tuple[Receipt, ...], TableFormatError | None]]:
        """Yield each partition with the error of the first file that must not be committed."""
        files = [(one.row, receipt) for one, receipts in finished for receipt in receipts]
        broken: dict[str, TableFormatError] = {}
        try:
            errors = self.ports.effects(Step.CHECK_FILES, partial(self._errors_of, files))
            for (row, _), error in zip(files, errors, strict=True):
                if error is not None:
                    broken.setdefault(row.key.hash, error)
        except TableFormatError as error:
            broken = {row.key.hash: error for row, _ in files}
        for one, receipts in finished:
            yield one, receipts, broken.get(one.row.key.hash)

    def _errors_of(self, files: Sequence[tuple[Row, Receipt]]) -> list[TableFormatError | None]:
        """Check the name and size of each file; an object store gets several requests at once."""
        checks = ThreadPoolExecutor(_CHECKS_IN_FLIGHT, thread_name_prefix="check-file")
        try:
            return list(checks.map(self._error_of, *zip(*files, strict=True)))
        finally:
            # An interrupt does not wait for a store that does not respond.
            checks.shutdown(wait=False, cancel_futures=True)

    def _error_of(self, row: Row, receipt: Receipt) -> TableFormatError | None:
        """Return why a file must not be committed, None if it may be."""
        if key_in(receipt.file_path) != row.key.hash:
            return InternalError(
                f"Cannot commit {receipt.file_path}: it is not a file of key {row.key.hash}. "
                "This is a bug, please report it."
            )
        try:
            found = self.ports.storage(receipt.file_path).size(receipt.file_path)
        except TableFormatError as error:
            return error
        if found == receipt.file_bytes:
            return None
        return DestinationError(
            f"Cannot commit {receipt.file_path}: it has {found:,} bytes, "
            f"{receipt.file_bytes:,} were written. Run it again, which writes it again."
        )

    def _list(self, written: tuple[WrittenClaim, ...]) -> Group:
        """Store the list of the snapshot's exports, where the snapshot summary finds it."""
        name = self.ports.new_transaction(self.ports.ledger.next_epoch()).value
        storage = self.ports.storage(self.to.location)
        return self.ports.effects(
            Step.NOTE_GROUP, partial(store_list, storage, self.to.location, name, written)
        )

    def _outcome(self, one: Claimed, row: Row, outcome: CommitOutcome) -> Outcome:
        match outcome:
            case Committed():
                made = self._committed(row, outcome, one)
                return self.verification.verified(made, row, one.frozen, outcome)
            case Conflicted(by):
                ending = FinalFailure(self.ports, self.commit_ports, self.to, self.outcomes)
                text = f"not committed: {by}{ending.end(row, by)}"
                return self._report(one, Status.FAILED, text, row)
            case Superseded(by):
                ended = self.cancelled.outcome(one)
                killed = ended.status is Status.KILLED
                return ended if killed else self._report(one, Status.IN_PROGRESS, by)
            case NotSent(error):
                return self.cancelled.stopped(one, error)
            case Unknown(evidence):
                text = (
                    f"it may have landed: {evidence}. The next run finds out; nothing was deleted"
                    f"{self.outcomes.note_error(row, evidence)}"
                )
                return self._report(one, Status.UNKNOWN, text, row)
            case _ as never:
                assert_never(never)

    def _committed(self, row: Row, landed: Committed, one: Claimed) -> Outcome:
        partition_id, begun = row.key.partition_id, one.begun
        if not landed.in_main:
            text = (
                f"it landed in snapshot {landed.snapshot_id}, and main was moved away from it since"
            )
            return self.outcomes.outcome(partition_id, Status.REFUSED, text, row, begun)
        status = Status.REPLACED if landed.leaves.paths else Status.COMMITTED
        undo = _note_of_undo(landed) if self.options.is_of_statement else ""
        notes = (one.note, _note_of_others(landed), undo)
        message = "; ".join(filter(None, notes))
        made = self.outcomes.outcome(partition_id, status, message, row, begun)
        if landed.epoch != row.claim.epoch:
            # An earlier run's files are in main: the row has their figures since it was settled.
            settled = self.ports.ledger.read(row.key.hash) or row
            made = _of_earlier(made, settled, landed.snapshot_id)
        made = replace(made, snapshot_id=landed.snapshot_id)
        came = Figures(made.data_files, made.rows, made.bytes)
        which = f"PARTITION ID '{partition_id}'"
        before = landed.leaves.before if landed.leaves.copied_back else None
        undo = undo_statement(self.to.name, Status.REPLACED, which, partition_id, before)
        return made.of_main(landed.leaves.figures, came, undo)

    def _report(
        self, one: Claimed, status: Status, message: str, row: Row | None = None
    ) -> Outcome:
        return self.outcomes.outcome(
            one.row.key.partition_id, status, message, row or one.row, one.begun
        )


def _of_earlier(made: Outcome, row: Row, snapshot_id: int) -> Outcome:
    """Return an outcome with the figures of the export in a snapshot, regardless of later claims.

    The bytes are known only of the last export that landed.
    """
    found = next((x for x in row.landed if x.snapshot_id == snapshot_id), None)
    if found is None:
        return made
    is_last = row.done is not None and row.done.landed == found
    return replace(
        made,
        transaction_id=found.transaction_id,
        rows=found.rows,
        data_files=found.data_files,
        bytes=row.done.bytes if row.done and is_last else 0,
    )


def _note_of_others(landed: Committed) -> str:
    """Return the note on files of other writers that left main with the commit, '' for none."""
    leaves = landed.leaves
    if not leaves.foreign_files:
        return ""
    return (
        f"with what it replaced {counted(leaves.foreign_files, 'file')} with "
        f"{counted(leaves.foreign_rows, 'row')} "
        "that others wrote left main"
    )


def _note_of_undo(landed: Committed) -> str:
    """Return the note that no single statement undoes REPLACE FROM, '' if one does."""
    leaves = landed.leaves
    if not leaves.paths or leaves.copied_back:
        return ""
    return (
        "no single statement undoes it: not all files of the partition can be copied; snapshot "
        f"{leaves.before} has the rows as they were"
    )

"""From finished files to an answer: files checked, noted in the ledger, committed, verified.

All partitions of a call become visible in one snapshot; what stops one of them lets the others go
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from tableformat.committer import (
    CommitOutcome,
    Committed,
    Conflicted,
    NotSent,
    Superseded,
    Unknown,
)
from tableformat.effects import Step
from tableformat.errors import DestinationError, TableFormatError
from tableformat.export.cancelled import Cancelled
from tableformat.export.claim import Wish
from tableformat.export.commit import Ports, commit
from tableformat.export.commit_lists import store_list
from tableformat.export.destination import Destination, Group, WrittenClaim
from tableformat.export.final_failure import FinalFailure
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.progress import files_of_parts
from tableformat.export.telling import Telling
from tableformat.export.undoing import undo_statement
from tableformat.export.verification import Verification
from tableformat.export.work import Claimed
from tableformat.ledger import Row, Stale
from tableformat.main_change import Figures
from tableformat.quantities import counted
from tableformat.receipt import Receipt

__all__ = ["Committing"]


@dataclass(frozen=True, slots=True)
class Committing:
    """Commits partitions into one destination."""

    ports: JobPorts
    commit_ports: Ports
    to: Destination
    wish: Wish
    verification: Verification
    telling: Telling
    cancelled: Cancelled

    def commit(
        self, finished: tuple[tuple[Claimed, tuple[Receipt, ...]], ...]
    ) -> Iterator[Outcome]:
        """Make partitions visible in one snapshot; yield what became of each.

        Args:
            finished: each with the receipts of all its files.
        """
        ready: dict[str, tuple[Claimed, WrittenClaim]] = {}
        checked = []
        for one, receipts in finished:
            try:
                self.ports.effects(Step.CHECK_FILES, partial(self._check_files, receipts))
                checked.append((one, receipts))
            except TableFormatError as error:
                yield self.cancelled.stopped(one, error)
        for one, written in self._noted(tuple(checked)):
            try:
                if isinstance(written, WrittenClaim):
                    self.verification.keep(written.row, one.frozen)
            except TableFormatError as error:
                yield self.cancelled.stopped(one, error)
                continue
            match written:
                case None:
                    yield self.cancelled.outcome(one)
                case TableFormatError():
                    yield self.cancelled.stopped(one, written)
                case noted:
                    ready[one.row.key.hash] = (one, noted)
        if not ready:
            return
        all_of_them = tuple(written for _, written in ready.values())
        try:
            wanted = self.to.commit(all_of_them, self.ports.ledger, self._list(all_of_them))
        except TableFormatError as error:
            for one, _ in ready.values():
                yield self.cancelled.stopped(one, error)
            return
        outcomes = (self.ports.landing or commit)(self.commit_ports, wanted)
        for key, (one, written) in ready.items():
            yield self._outcome(one, written.row, outcomes[key])

    def _noted(
        self, finished: tuple[tuple[Claimed, tuple[Receipt, ...]], ...]
    ) -> Iterator[tuple[Claimed, WrittenClaim | TableFormatError | None]]:
        """Note the files before the commit, so that whoever settles it later knows what it was.

        Yields:
            Each with None when another run has claimed it, or with what the ledger failed with.
        """
        if not finished:
            return
        rows = tuple(self._with_files(one, receipts) for one, receipts in finished)
        try:
            noted = self.ports.effects(
                Step.NOTE_WRITTEN, partial(self.ports.ledger.write_all, rows)
            )
        except TableFormatError as error:
            for one, _ in finished:
                yield one, error
            return
        wish = self.wish
        for (one, receipts), row in zip(finished, noted, strict=True):
            if isinstance(row, Stale):
                yield one, None
            else:
                own = WrittenClaim(row, receipts, wish.force, wish.beside, whole=wish.whole)
                yield one, replace(own, attaches=wish.attaches)

    def _with_files(self, one: Claimed, receipts: tuple[Receipt, ...]) -> Row:
        """Return the row of a partition with its files on the claim."""
        claim, paths = one.row.claim, files_of_parts(receipts)
        return replace(
            one.row,
            updated=self.ports.clock(),
            claim=replace(
                claim,
                rows=sum(r.rows for r in receipts),
                data_files=len(receipts),
                bytes=sum(r.file_bytes for r in receipts),
                parts=tuple(replace(p, remote_paths=paths.get(p.name, ())) for p in claim.parts),
            ),
        )

    def _check_files(self, receipts: tuple[Receipt, ...]) -> None:
        """Look at every file once more.

        Raises:
            DestinationError: one is not there any more, or is not as long as it was.
        """
        for receipt in receipts:
            found = self.ports.storage(receipt.file_path).size(receipt.file_path)
            if found != receipt.file_bytes:
                message = (
                    f"Cannot commit {receipt.file_path}: it has {found:,} bytes, "
                    f"{receipt.file_bytes:,} were written. Run the command again: it is written "
                    "anew."
                )
                raise DestinationError(message)

    def _list(self, written: tuple[WrittenClaim, ...]) -> Group:
        """Store the list of what the snapshot will hold, where its summary finds it."""
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
                ending = FinalFailure(self.ports, self.commit_ports, self.to, self.telling)
                text = f"not committed: {by}{ending.end(row, by)}"
                return self._told(one, Status.FAILED, text, row)
            case Superseded(by):
                ended = self.cancelled.outcome(one)
                killed = ended.status is Status.KILLED
                return ended if killed else self._told(one, Status.IN_PROGRESS, by)
            case NotSent(error):
                return self.cancelled.stopped(one, error)
            case Unknown(evidence):
                text = (
                    f"it may have landed: {evidence}. The next run finds out; nothing was deleted"
                    f"{self.telling.note_error(row, evidence)}"
                )
                return self._told(one, Status.UNKNOWN, text, row)
            case _ as never:
                assert_never(never)

    def _committed(self, row: Row, landed: Committed, one: Claimed) -> Outcome:
        partition_id, begun = row.key.partition_id, one.begun
        if not landed.in_main:
            text = (
                f"it landed in snapshot {landed.snapshot_id}, and main was moved away from it since"
            )
            return self.telling.outcome(partition_id, Status.REFUSED, text, row, begun)
        status = Status.REPLACED if landed.leaves.paths else Status.COMMITTED
        said = "; ".join(filter(None, (one.note, _told_of_others(landed))))
        made = self.telling.outcome(partition_id, status, said, row, begun)
        if landed.epoch != row.claim.epoch:
            # An earlier run's files are in main: the row has their figures since it was settled.
            settled = self.ports.ledger.read(row.key.hash) or row
            made = _of_earlier(made, settled, landed.snapshot_id)
        made = replace(made, snapshot_id=landed.snapshot_id)
        came = Figures(made.data_files, made.rows, made.bytes)
        which = f"PARTITION ID '{partition_id}'"
        before = landed.leaves.before
        undo = undo_statement(self.to.name, Status.REPLACED, which, partition_id, before)
        return made.of_main(landed.leaves.figures, came, undo)

    def _told(self, one: Claimed, status: Status, message: str, row: Row | None = None) -> Outcome:
        return self.telling.outcome(
            one.row.key.partition_id, status, message, row or one.row, one.begun
        )


def _of_earlier(made: Outcome, row: Row, snapshot_id: int) -> Outcome:
    """Return an outcome with the figures of what landed in a snapshot, whatever was claimed since.

    Bytes are known of the last export that landed.
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


def _told_of_others(landed: Committed) -> str:
    """Say what of others left main with it, '' for nothing."""
    leaves = landed.leaves
    if not leaves.foreign_files:
        return ""
    return (
        f"with what it replaced {counted(leaves.foreign_files, 'file')} with "
        f"{counted(leaves.foreign_rows, 'row')} "
        "that others wrote left main"
    )

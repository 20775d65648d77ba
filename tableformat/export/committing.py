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
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.telling import Telling
from tableformat.export.verification import Verification
from tableformat.export.work import Claimed
from tableformat.ledger import Row, Stale
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
        for one, receipts in finished:
            try:
                written = self._noted(one, receipts)
                if written is not None:
                    self.verification.keep(written.row, one.frozen)
            except TableFormatError as error:
                yield self._stopped(one, error)
                continue
            if written is None:
                yield self.cancelled.outcome(one)
            else:
                ready[one.row.key.hash] = (one, written)
        if not ready:
            return
        all_of_them = tuple(written for _, written in ready.values())
        try:
            wanted = self.to.commit(all_of_them, self.ports.ledger, self._list(all_of_them))
        except TableFormatError as error:
            for one, _ in ready.values():
                yield self._stopped(one, error)
            return
        outcomes = commit(self.commit_ports, wanted)
        for key, (one, written) in ready.items():
            yield self._outcome(one, written.row, outcomes[key])

    def _noted(self, one: Claimed, receipts: tuple[Receipt, ...]) -> WrittenClaim | None:
        """Note the files before the commit, so that whoever settles it later knows what it was.

        Returns:
            None when another run has claimed the partition.

        Raises:
            DestinationError: a file is not there any more, or is not as long as it was.
        """
        self.ports.effects(Step.CHECK_FILES, partial(self._check_files, receipts))
        paths: dict[str, list[str]] = {}
        for receipt in receipts:
            for part in receipt.ranges:
                paths.setdefault(part.source_name, []).append(receipt.file_path)
        claim = one.row.claim
        noted = replace(
            one.row,
            updated=self.ports.clock(),
            claim=replace(
                claim,
                rows=sum(r.rows for r in receipts),
                data_files=len(receipts),
                bytes=sum(r.file_bytes for r in receipts),
                parts=tuple(
                    replace(p, remote_paths=tuple(paths.get(p.name, ()))) for p in claim.parts
                ),
            ),
        )
        row = self.ports.effects(Step.NOTE_WRITTEN, partial(self.ports.ledger.write, noted))
        if isinstance(row, Stale):
            return None
        return WrittenClaim(row, receipts, may_shrink=self.wish.force, beside=self.wish.beside)

    def _check_files(self, receipts: tuple[Receipt, ...]) -> None:
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
                text = f"not committed: {by}{self.telling.note_error(row, by)}"
                return self._told(one, Status.FAILED, text, row)
            case Superseded(by):
                ended = self.cancelled.outcome(one)
                killed = ended.status is Status.KILLED
                return ended if killed else self._told(one, Status.IN_PROGRESS, by)
            case NotSent(error):
                return self._stopped(one, error)
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
        if landed.epoch != row.claim.epoch:
            # An earlier run's files are in main: the row has their figures since it was settled.
            row = self.ports.ledger.read(row.key.hash) or row
        status = Status.REPLACED if landed.replaced else Status.COMMITTED
        made = self.telling.outcome(partition_id, status, one.note, row, begun)
        return replace(made, snapshot_id=landed.snapshot_id)

    def _stopped(self, one: Claimed, error: TableFormatError) -> Outcome:
        text = self.telling.note_error(one.row, str(error))
        failed = self.telling.failed(one.row.key.partition_id, error, one.row, one.begun)
        return replace(failed, message=failed.message + text)

    def _told(self, one: Claimed, status: Status, message: str, row: Row | None = None) -> Outcome:
        return self.telling.outcome(
            one.row.key.partition_id, status, message, row or one.row, one.begun
        )

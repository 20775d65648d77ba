"""A run whose partitions are taken over from it: it stops writing, and says by whom.

All partitions of a group are written by one job, which is stopped only when none of them is ours
any more. What is decided here is when to stop and what to say; that nothing of a partition that was
taken over becomes visible, the commit protocol sees to (step 4).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from tableformat.effects import Step
from tableformat.errors import (
    LedgerError,
    MissingError,
    NotBegunError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.giving_up import BEING_CANCELLED, QUERY_KILLED
from tableformat.export.leases import Leases
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.standing import INTERRUPTED_ERROR
from tableformat.export.telling import Telling
from tableformat.export.work import Claimed
from tableformat.ledger import Row, State

__all__ = ["Cancelled", "NoneLeftError"]

_BY_ANOTHER = "another run claimed it while its files were written"
_BY_CANCEL = "it was cancelled. Nothing of this run becomes visible; exporting it again begins anew"


class NoneLeftError(TableFormatError):
    """Every partition that is being written was taken over by others."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Sees to partitions of one run that others take over."""

    ports: JobPorts
    leases: Leases
    telling: Telling

    def watch(self, claimed: tuple[Claimed, ...]) -> None:
        """Begin to look whether they are taken over."""
        for one in claimed:
            self.leases.watch(one.row.key.hash, one.row.claim.epoch)

    def while_any_is_ours(
        self, claimed: Collection[Claimed], on_rows: Callable[[int], None]
    ) -> Callable[[int], None]:
        """Return `on_rows`, which raises once none of the partitions is ours any more.

        Args:
            claimed: those that are being written when the returned function is called.
            on_rows: what to tell while one of them is ours.

        Raises:
            NoneLeftError: when the returned function is called then.
        """

        def told(written: int) -> None:
            if all(self.leases.taken_over(c.row.key.hash) for c in claimed):
                message = "Cannot go on: all partitions of this run were taken over. Look who did."
                raise NoneLeftError(message)
            on_rows(written)

        return told

    def outcome(self, one: Claimed) -> Outcome:
        """Say what became of a partition that is not ours any more."""
        return self._look(one)[0]

    def _look(self, one: Claimed) -> tuple[Outcome, bool]:
        """Return that, and whether the ledger says that another run has claimed it."""
        status, text, is_anothers = Status.IN_PROGRESS, _BY_ANOTHER, False
        try:
            key = one.row.key.hash
            row = self.ports.effects(Step.READ_LEDGER, partial(self.ports.ledger.read, key))
            if row is not None and _is_given_up(row, one.row.claim.transaction_id):
                status, text = Status.KILLED, _BY_CANCEL
            is_anothers = row is not None and row.claim.epoch != one.row.claim.epoch
        except LedgerError as error:
            text = f"{text} (and the ledger could not say by whom: {error})"
        told = self.telling.outcome(one.row.key.partition_id, status, text, one.row, one.begun)
        return told, is_anothers

    def stopped(self, one: Claimed, error: TableFormatError) -> Outcome:
        """Say what an error made of a partition.

        Whoever cancels it removes files under its run, and so does another run that has landed it.
        """
        ended, is_anothers = self._look(one)
        if ended.status is Status.KILLED or (is_anothers and isinstance(error, MissingError)):
            return ended
        stopped = isinstance(error, StoppedError)
        why = INTERRUPTED_ERROR if stopped else str(error)
        text = self.telling.note_error(one.row, why, tuple(one.finished.values()))
        failed = self.telling.failed(one.row.key.partition_id, error, one.row, one.begun)
        said = _not_begun(one) if isinstance(error, NotBegunError) else failed.message
        return replace(failed, message=said + text)


def _not_begun(one: Claimed) -> str:
    """Say how far a partition was when its run was told to stop."""
    done, planned = len(one.finished), len(one.slices)
    if not done:
        return "stopped before it began"
    return f"stopped when {done:,} of {planned:,} files were finished, which the next run keeps"


def _is_given_up(row: Row, transaction_id: str) -> bool:
    """Whether this very export was, or is being, given up."""
    ours = row.claim.transaction_id == transaction_id
    return ours and (row.state is State.KILLED or row.last_error in (BEING_CANCELLED, QUERY_KILLED))

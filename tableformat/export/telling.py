"""What became of a partition, put into an outcome for the user and an error for the ledger row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tableformat.effects import Step
from tableformat.errors import (
    LedgerError,
    RefusedError,
    SourceGoneError,
    StoppedError,
    TableFormatError,
)
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.progress import with_files
from tableformat.ledger import Row, State
from tableformat.receipt import Receipt

__all__ = ["Telling"]


@dataclass(frozen=True, slots=True)
class Telling:
    """Tells outcomes of one destination, named `table`."""

    ports: JobPorts
    table: str

    def outcome(
        self, partition_id: str, status: Status, message: str, row: Row | None, begun: int
    ) -> Outcome:
        """Return an outcome with the figures of the row's completed export, or of its claim.

        An answer about main has those of the export that is there, whatever was claimed since.
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
        """Return what an error made of a partition; `parts` when no claim has them."""
        failed = self.outcome(partition_id, _status(error), str(error), row, begun)
        gone = isinstance(error, SourceGoneError)
        return replace(failed, code=error.code, parts=parts, source_gone=gone)

    def note_error(self, row: Row, error: str, finished: tuple[Receipt, ...] = ()) -> str:
        """Leave the last error on the row, unless it has moved on: then it is somebody else's.

        Args:
            row: as it was claimed.
            error: why the export ends without a commit.
            finished: the receipts of its files, by which the row says which parts are done.

        Returns:
            What the ledger said against that, as the end of a sentence; '' when it was noted.
        """
        try:
            now = self.ports.ledger.read(row.key.hash)
            if now is not None and now.claim.epoch == row.claim.epoch and _runs(now):
                claim = now.claim
                if finished:
                    claim = replace(claim, parts=with_files(claim.parts, finished))
                noted = replace(now, last_error=error, updated=self.ports.clock(), claim=claim)
                self.ports.effects(Step.NOTE_ERROR, partial(self.ports.ledger.write, noted))
        except LedgerError as refused:
            return f" (and the ledger could not note it: {refused})"
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

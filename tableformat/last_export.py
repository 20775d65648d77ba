"""The last export of a partition, as its row tells it while statements work on the same rows.

A statement on the lake table (DROP, UPDATE, OPTIMIZE …) claims the row as an export does, so that
both never change the same files at a time. What it does is no export: when the export was begun, by
which query, how it ended and what it held stay what they were (RQ…SystemTables.Exports).
"""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.errors import UsageError
from tableformat.ledger import Claim, ExportedPart, Record, Row, State
from tableformat.names import TransactionId

__all__ = ["LastExport", "last_export"]


@dataclass(frozen=True, slots=True)
class LastExport:
    """An export of a key. `begun` is milliseconds since 1970, `record` that of a completed one.

    `claim` numbers are those of the export; `rows`, `data_files` and `bytes` are 0 before its files
    are there. `error` is why it did not end, '' when nothing went wrong.
    """

    state: State
    epoch: int
    transaction_id: str
    fingerprint: str
    begun: int
    query_id: str
    parts: tuple[ExportedPart, ...]
    rows: int
    data_files: int
    bytes: int
    record: Record | None = None
    error: str = ""


def last_export(row: Row) -> LastExport:
    """Return the last export of a row: the one that is under way, else the last one that ended.

    A row that only statements have claimed, whose rows another table's export wrote, is told from
    its claim.
    """
    if row.state is State.COMPLETED and row.done is not None:
        return _completed(row, row.done)
    if not row.claim.by_statement:
        return _claimed(row.claim, row.state, row.last_error)
    if row.done is not None:
        return _completed(row, row.done)
    earlier = [claim for claim in row.old if not claim.by_statement]
    if earlier:
        # The statement has taken its place: nobody resumes it.
        return _claimed(max(earlier, key=lambda c: c.epoch), State.FAILED, "")
    return _claimed(row.claim, row.state, row.last_error)


def _completed(row: Row, record: Record) -> LastExport:
    landed = record.landed
    return LastExport(
        state=State.COMPLETED,
        epoch=landed.epoch,
        transaction_id=landed.transaction_id,
        fingerprint=landed.fingerprint,
        begun=_begun(row, record),
        query_id=record.query_id,
        parts=record.parts,
        rows=landed.rows,
        data_files=landed.data_files,
        bytes=record.bytes,
        record=record,
    )


def _claimed(claim: Claim, state: State, error: str) -> LastExport:
    return LastExport(
        state=state,
        epoch=claim.epoch,
        transaction_id=claim.transaction_id,
        fingerprint=claim.fingerprint,
        begun=claim.begun,
        query_id=claim.query_id,
        parts=claim.parts,
        rows=claim.rows,
        data_files=claim.data_files,
        bytes=claim.bytes,
        error=error,
    )


def _begun(row: Row, record: Record) -> int:
    """Return when a completed export was begun; records of earlier releases do not say it.

    Its claim does, as long as it is the row's; else its transaction, whose id begins with the time.
    """
    if record.begun:
        return record.begun
    transaction_id = record.landed.transaction_id
    if row.claim.transaction_id == transaction_id:
        return row.claim.begun
    try:
        return TransactionId(transaction_id).milliseconds
    except UsageError:
        return row.created

"""What a mark proves, and what of it the ledger does not know yet: pure (protocol.md, steps 5, 8).

Rows and files of a landed export are never taken from main, where somebody may have deleted some
since: then the ledger would call the rest complete. They were noted on the claim before its first
request.
"""

from __future__ import annotations

from tableformat.committer import KeyCommit, LakeTableState
from tableformat.lake_marks import Mark
from tableformat.ledger import Claim, Landed, Row

__all__ = ["claim_of_mark", "landed_from", "landed_mark", "unsettled_mark"]


def landed_mark(row: Row, state: LakeTableState, key: KeyCommit) -> Mark | None:
    """Return the mark that proves that this content landed, by us or an earlier owner (step 5).

    Of a statement on the lake table only its own transaction does: files that it writes anew may be
    the same export as those of another one, and are elsewhere, or otherwise written.
    """
    mark = state.mark(key.key)
    if mark is None:
        return None
    if mark.epoch == key.epoch:
        return mark
    if key.of_statement:
        same = mark.transaction_id == key.transaction_id
    else:
        same = mark.fingerprint == key.fingerprint
    return mark if same and mark.epoch > row.done_epoch else None


def unsettled_mark(row: Row | None, state: LakeTableState) -> Mark | None:
    """Return the mark of an export that landed and is not completed in the ledger yet."""
    mark = state.mark(row.key.hash) if row is not None else None
    if row is None or mark is None or mark.epoch <= row.done_epoch:
        return None
    return mark


def claim_of_mark(row: Row, state: LakeTableState, mark: Mark) -> Claim:
    """Return the claim that a mark proves to have landed.

    A ledger that was made anew does not know it: then the snapshot's summary tells its figures,
    where the snapshot is still there and is of this key alone; no files say that nothing does.
    """
    known = row.claim_of(mark.transaction_id)
    if known is not None:
        return known
    if mark.is_of_statement:
        return Claim(
            mark.epoch,
            mark.transaction_id,
            mark.fingerprint,
            row.updated,
            statement="a statement that this ledger does not know",
        )
    seen = state.snapshots.get(mark.snapshot_id)
    told = seen is not None and seen.added_rows is not None and seen.added_files is not None
    return Claim(
        mark.epoch,
        mark.transaction_id,
        mark.fingerprint,
        row.updated,
        rows=(seen.added_rows or 0) if seen is not None and told else 0,
        data_files=(seen.added_files or 0) if seen is not None and told else 0,
    )


def landed_from(mark: Mark, state: LakeTableState, claim: Claim) -> Landed:
    """Return what a mark proves.

    Of a snapshot that was expired the table's own sequence number stands for the snapshot's: it is
    no smaller, and no later metadata is below it.
    """
    seen = state.snapshots.get(mark.snapshot_id)
    return Landed(
        mark.epoch,
        mark.transaction_id,
        mark.fingerprint,
        mark.snapshot_id,
        seen.sequence_number if seen else state.last_sequence_number,
        claim.rows,
        claim.data_files,
        claim.statement,
        claim.holds,
        claim.move.table if claim.move else "",
    )

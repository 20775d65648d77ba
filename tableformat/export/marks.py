"""What a mark proves, and what of it the ledger does not know yet: pure (protocol.md, steps 5, 8).

Rows and files of a landed export are never taken from main, where somebody may have deleted some
since: then the ledger would call the rest complete.
"""

from __future__ import annotations

from tableformat.committer import KeyCommit, LakeTableState, Mark
from tableformat.ledger import Landed, Row

__all__ = ["figures", "landed_from", "landed_mark", "unsettled_mark"]


def landed_mark(row: Row, state: LakeTableState, key: KeyCommit) -> Mark | None:
    """Return the mark that proves that this content landed, by us or an earlier owner (step 5)."""
    mark = state.mark(key.key)
    if mark is None:
        return None
    if mark.epoch == key.epoch:
        return mark
    base = row.done.epoch if row.done else 0
    return mark if mark.epoch > base and mark.fingerprint == key.fingerprint else None


def unsettled_mark(row: Row | None, state: LakeTableState) -> Mark | None:
    """Return the mark of an export that landed and is not completed in the ledger yet."""
    mark = state.mark(row.key.hash) if row is not None else None
    base = row.done.epoch if row is not None and row.done else 0
    return mark if mark is not None and mark.epoch > base else None


def landed_from(mark: Mark, state: LakeTableState) -> Landed:
    """Return what a mark proves; the sequence number is 0 when its snapshot was expired."""
    seen = state.snapshots.get(mark.snapshot_id)
    return Landed(
        mark.epoch,
        mark.transaction_id,
        mark.fingerprint,
        mark.snapshot_id,
        seen.sequence_number if seen else 0,
    )


def figures(row: Row, state: LakeTableState, mark: Mark) -> tuple[int, int]:
    """Return rows and files of the export that a mark proves; no files when that is not known."""
    if row.transaction_id == mark.transaction_id and row.data_files:
        return row.rows, row.data_files
    seen = state.snapshots.get(mark.snapshot_id)
    if seen is not None and seen.added_rows is not None and seen.added_files is not None:
        return seen.added_rows, seen.added_files
    return row.rows, 0

"""What main was before statements changed a key: which files of it there were at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tableformat.committer import LakeTableState
from tableformat.export.in_main import FilesAt
from tableformat.ledger import Row

__all__ = ["Earlier", "earlier"]

_DETACHING: Final = "DETACH "


@dataclass(frozen=True, slots=True)
class Earlier:
    """Main as it was before a statement changed the key, in the line of what it is now.

    `number` is the sequence number of the snapshot, `paths` are its files of the key, by name,
    without those that carry deletes. What the statement detached has `number_of_detached` on its
    branch, None where it detached nothing.
    """

    number: int
    paths: frozenset[str]
    number_of_detached: int | None


def earlier(row: Row, state: LakeTableState, files_at: FilesAt) -> Iterator[Earlier]:
    """Yield what main was before each statement in its line, the latest first.

    Args:
        row: the key's ledger row.
        state: the table's metadata; what is expired there is not told.
        files_at: the key's files in a snapshot of `state`.
    """
    statements = {x.snapshot_id: x for x in row.landed if x.statement}
    for one in state.ancestors():
        done = statements.get(one.snapshot_id)
        before = state.snapshots.get(one.parent_id) if one.parent_id is not None else None
        if done is None or before is None:
            continue
        paths = frozenset(f.path for f in files_at(before.snapshot_id) if not f.deletes)
        # The branch's snapshot is the second of the two in its request.
        detached = one.sequence_number + 1 if done.statement.startswith(_DETACHING) else None
        yield Earlier(before.sequence_number, paths, detached)

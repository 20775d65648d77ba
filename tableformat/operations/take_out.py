"""Plans the statements that take files out of main: DROP, DETACH, and the source side of MOVE.

* `Drop` (DROP PARTITION|PART) removes the files from main. Older snapshots keep the rows until
  they expire. As in ClickHouse, a partition without files is no error.
* `Detach` (DETACH PARTITION|PART) moves the files from main to the branch `detached` in one
  commit, so they are always on one of the two. No expiry reaches the branch's maximum age, so
  orphan removal keeps its files (Iceberg specification, snapshot retention). A file keeps the
  partition spec that it was written for.
* `Leave` is MOVE PARTITION … TO TABLE for the table that loses the rows: a DROP of the present
  files. The other table gets an ATTACH FROM (tableformat/operations/copy_from.py);
  `tableformat/operations/move.py` keeps the two together.

`taken_out` is their common plan: files leave main, and each key keeps its other files. `undecided`
are the exports whose rows others may have put into files of theirs: they end when all files leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tableformat.committer import BranchFile
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.ledger import Key, StatementKind
from tableformat.names import LakeName
from tableformat.operations.partition_files import PartitionFiles, held_of
from tableformat.operations.statement import (
    DetachedUse,
    KeyChange,
    OnePart,
    OnePartition,
    Plan,
    Which,
)

__all__ = ["Detach", "Drop", "Leave", "taken_out", "undecided"]


def taken_out(which: Which, there: PartitionFiles) -> Plan:
    """Return the plan that removes files from main; it may have no changes.

    Raises:
        NotFoundError: there is no such part.
        RefusedError: a part of the source shares files with other parts.
    """
    have = {one.key: one.files for one in there.keys}
    changes = []
    for gone in which.of(there.keys):
        leave = frozenset(f.path for f in gone.files)
        left = tuple(f for f in have[gone.key] if f.path not in leave)
        # If a whole partition leaves, nothing of it stays, even if another engine rewrote its
        # files.
        known = not isinstance(which, OnePart) or there.knows(gone.key)
        holds = held_of(left, gone.row) if known else None
        changes.append(KeyChange(gone.key, leaves=gone.files, holds=holds))
    return Plan(tuple(changes))


def undecided(there: PartitionFiles, planned: Iterable[Key]) -> tuple[KeyChange, ...]:
    """Return the changes that record that main has no row of exports that others rewrote.

    They are for a plan in which all files of the partition leave, and none comes that may have the
    rows. `planned` are the keys of its other changes. The order depends on the keys alone: claims
    change the order of the ledger's rows, and every turn compares the plan.
    """
    known = frozenset(planned)
    keys = (at.row.key for at in there.in_main.values() if not at.held.is_known)
    return tuple(KeyChange(key) for key in sorted(keys) if key.is_of_export and key not in known)


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP PARTITION or PART: the files of `which` leave main."""

    which: Which
    kind: ClassVar[StatementKind] = StatementKind.DROP
    did: ClassVar[Status] = Status.DROPPED
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"DROP {self.which}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan that the files leave main.

        Afterwards a partition can be exported again: what other writers did to its rows is known to
        have ended, because no file of it is left.
        """
        plan = taken_out(self.which, there)
        if isinstance(self.which, OnePart):
            return plan
        left = undecided(there, (one.key for one in plan.changes))
        return Plan((*plan.changes, *left))


@dataclass(frozen=True, slots=True)
class Detach:
    """DETACH PARTITION or PART: the files of `which` move from main to the branch `detached`."""

    which: Which
    kind: ClassVar[StatementKind] = StatementKind.DETACH
    did: ClassVar[Status] = Status.DETACHED
    detached_use: ClassVar[DetachedUse] = DetachedUse.FILLED

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"DETACH {self.which}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan that the files move from main to the branch.

        Raises:
            RefusedError: delete files apply to a file; they would not apply to it on the branch.
        """
        plan = taken_out(self.which, there)
        for change in plan.changes:
            for file in change.leaves:
                self._refuse(file)
        return plan

    def _refuse(self, file: BranchFile) -> None:
        if file.deletes:
            message = (
                f"Cannot run {self}: rows of {file.path} are deleted by delete files, which would "
                "not apply on the branch, so the rows would be visible again. Rewrite the file "
                "with the engine that deleted them (Spark: rewrite_data_files with "
                "delete-file-threshold 1), and run it again."
            )
            raise RefusedError(message)


@dataclass(frozen=True, slots=True)
class Leave:
    """MOVE PARTITION … TO TABLE for the table that loses the rows; `to` is the other table."""

    which: OnePartition
    to: LakeName
    kind: ClassVar[StatementKind] = StatementKind.MOVE_TO_TABLE
    did: ClassVar[Status] = Status.MOVED
    detached_use: ClassVar[DetachedUse] = DetachedUse.NONE

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"MOVE {self.which} TO TABLE {self.to}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Plan that all files of the partition leave main."""
        return taken_out(self.which, there)

"""Takes files out of main, or of the detached ones: DROP, DETACH, DROP DETACHED, a MOVE's source.

* `Drop` (DROP PARTITION|PART) removes the files from main. Older snapshots keep the rows until
  they expire. As in ClickHouse, a partition without files is no error.
* `Detach` (DETACH PARTITION|PART) moves the files from main to the branch `detached` in one
  commit, so they are always on one of the two. No expiry reaches the branch's maximum age, so
  orphan removal keeps its files (Iceberg specification, snapshot retention). A file keeps the
  partition spec that it was written for.
* `Leave` is MOVE PARTITION … TO TABLE for the table that loses the rows: a DROP of the present
  files. The other table gets an ATTACH FROM (tableformat/operations/copy_from.py);
  `tableformat/operations/move.py` keeps the two together.

* `DropDetached` (DROP DETACHED PARTITION|PART) removes files from the branch `detached`. Main and
  the keys do not change. It drops the files that were detached when it began; files that are
  detached while it repeats an unconfirmed request stay.

`taken_out` is the common plan of the others: files leave main, and each key keeps its other files.
`undecided` are the exports whose rows others may have put into files of theirs: they end when all
files leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tableformat.committer import BranchFile, Commit, DiscardDetached, LakeTableState, Staged
from tableformat.effects import Step
from tableformat.errors import DestinationError, RefusedError
from tableformat.export.commit import Ports, discard_abandoned_attempts, load_table
from tableformat.export.outcome import Outcome, Status
from tableformat.iceberg.snapshot import refuse_lost_columns, table_of
from tableformat.ledger import Key, StatementKind
from tableformat.names import LakeName
from tableformat.operations.partition_files import PartitionFiles, Partitions, held_of
from tableformat.operations.statement import (
    NOTHING_DETACHED,
    DetachedUse,
    KeyChange,
    OnePart,
    OnePartition,
    OperationPorts,
    Plan,
    Which,
    forecast,
    shown_partition,
)

__all__ = ["Detach", "Drop", "DropDetached", "Leave", "taken_out", "undecided"]


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


@dataclass(frozen=True, slots=True)
class DropDetached:
    """DROP DETACHED PARTITION or PART: the files of `which` leave the branch."""

    which: Which

    def __str__(self) -> str:
        """Return the statement."""
        return f"DROP DETACHED {self.which}"

    def plan(self, partitions: Partitions, state: LakeTableState) -> Plan:
        """Return the plan of the files that leave the branch.

        Raises:
            NotFoundError: no such part is detached.
            RefusedError: a file has rows of another partition or part, too.
            TableFormatError: the branch or the ledger cannot be read.
        """
        of, part = self.which.partition_id, isinstance(self.which, OnePart)
        there = partitions.files(state, of, detached=True, by_name=part)
        found = self.which.of(there.detached, detached=True)
        return Plan(tuple(KeyChange(one.key, leaves=one.files) for one in found))

    def run(
        self, ports: OperationPorts, partitions: Partitions, *, dry_run: bool = False
    ) -> Outcome:
        """Remove the files; return the outcome.

        Raises:
            NotFoundError: no such part is detached.
            RefusedError: a file has rows of another partition or part, too.
            TableFormatError: the table or the ledger failed; the same statement, run again,
                finishes.
        """
        commit = ports.commit
        state = load_table(commit)
        plan = self.plan(partitions, state)
        outcome = partial(Outcome, shown_partition(self.which), table=str(partitions.name))
        if not plan.changes and isinstance(self.which, OnePartition):
            partitions.refuse_named_elsewhere(str(self), state, self.which.partition_id)
        if not plan.changes:
            return outcome(status=Status.EMPTY, message=NOTHING_DETACHED)
        leaves = (file for change in plan.changes for file in change.leaves)
        refuse_lost_columns(table_of(state), (file.spec_id for file in leaves))
        if dry_run:
            return forecast(self.which, Status.DROPPED, plan, partitions.name)
        wanted = tuple(f.path for change in plan.changes for f in change.leaves)
        sent: list[Staged] = []
        error = ""
        while left := _left(partitions, state, wanted):
            if len(sent) >= commit.most_attempts:
                text = f"it may have landed: {error}. Run it again"
                return outcome(status=Status.UNKNOWN, message=text)
            attempt, error = self._send(commit, state, left)
            sent.append(attempt)
            if error:
                commit.pause(len(sent))
            state = load_table(commit)
        # The commit has landed, also if the manifests of the other attempts cannot be deleted.
        with contextlib.suppress(DestinationError):
            discard_abandoned_attempts(commit, sent)
        made = next((a.snapshot_id for a in sent if a.snapshot_id in state.snapshots), None)
        return outcome(
            status=Status.DROPPED, snapshot_id=made, rows=plan.rows, data_files=plan.files
        )

    def _send(
        self, ports: Ports, state: LakeTableState, paths: tuple[str, ...]
    ) -> tuple[Staged, str]:
        """Send one commit; return its staged files and its error, '' for success."""
        ledger = ports.ledger
        summary = (("mergeberg.statement", str(self)), ("mergeberg.ledger", ledger.identity))
        number = ledger.next_epoch()
        change = DiscardDetached(paths)
        commit = Commit((), state.layout, ledger.identity, summary, number, detached=change)
        staged = ports.effects(Step.STAGE, partial(ports.table.stage, state, commit))
        sent = ports.effects(Step.SEND, partial(ports.table.send, state, staged, commit, ()))
        return staged, "" if sent.applied else sent.error


def _left(partitions: Partitions, state: LakeTableState, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths that the branch still has."""
    there = {f.path for f in partitions.detached(state)}
    return tuple(path for path in paths if path in there)

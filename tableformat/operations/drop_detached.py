"""Runs ALTER TABLE … DROP DETACHED PARTITION|PART: removes files from the branch `detached`.

Main and the keys do not change. The statement drops the files that were detached when it began.
Files that are detached while it repeats an unconfirmed request stay.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial

from tableformat.committer import Commit, DiscardDetached, LakeTableState, Staged
from tableformat.effects import Step
from tableformat.errors import DestinationError
from tableformat.export.commit import Ports, discard_abandoned_attempts, load_table
from tableformat.export.outcome import Outcome, Status
from tableformat.iceberg.snapshot import refuse_lost_columns, table_of
from tableformat.operations.partition_files import Partitions
from tableformat.operations.statement import (
    NOTHING_DETACHED,
    KeyChange,
    OnePart,
    OnePartition,
    OperationPorts,
    Plan,
    Which,
    forecast,
    shown_partition,
)

__all__ = ["DropDetached"]


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

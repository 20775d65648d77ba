"""A statement lands as it was planned, or is planned anew: it is never applied to another table."""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.branches import DETACHED_BRANCH
from tableformat.committer import CommitOutcome, LakeTableState, NotSent
from tableformat.errors import NotFoundError, RefusedError
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.tags import refuse_tag
from tableformat.main_change import Leaving, counted_files
from tableformat.operations.partition_files import Partitions
from tableformat.operations.planned import Plan
from tableformat.operations.statement import Statement
from tableformat.operations.which import AllPartitions, OnePart

__all__ = ["AsPlanned", "PlannedForAnotherError", "is_for_another", "planned"]


class PlannedForAnotherError(RefusedError):
    """Main is not what the statement was planned for."""


@dataclass(slots=True)
class AsPlanned:
    """Step 6 of the statement's commit: on every M the plan must be the same."""

    statement: Statement
    partitions: Partitions
    plan: Plan
    seen: str = ""

    def leaving(self, state: LakeTableState, key: str) -> Leaving:
        """Return what leaves main for a key.

        Raises:
            RefusedError: the plan for this M is another one.
            TableFormatError: main or the ledger cannot be read.
        """
        if state.metadata_location != self.seen:
            if self._now(state) != self.plan:
                message = (
                    f"Cannot run {self.statement} on what it was planned for: the partition "
                    "changed meanwhile. Run the statement again."
                )
                raise PlannedForAnotherError(message)
            self.seen = state.metadata_location
        change = next(c for c in self.plan.changes if c.key.hash == key)
        figures = counted_files(change.leaves)
        paths = tuple(f.path for f in change.leaves)
        return Leaving(paths, figures.rows, bytes=figures.bytes or 0)

    def _now(self, state: LakeTableState) -> Plan | None:
        """Return the plan for M, None when there is none any more; the next turn says why."""
        try:
            return planned(self.statement, self.partitions, state)
        except (NotFoundError, RefusedError):
            return None


def planned(statement: Statement, partitions: Partitions, state: LakeTableState) -> Plan:
    """Return the plan of a statement over one state of the table.

    Raises:
        RefusedError: it cannot be done to what is there.
        TableFormatError: the table or the ledger cannot be read.
    """
    which, detached = statement.which, statement.looks_at_detached
    each = isinstance(which, AllPartitions) and which.each
    part = isinstance(which, OnePart)
    there = partitions.files(state, which.partition_id, detached=detached, each=each, by_name=part)
    plan = statement.plan(there)
    if plan.changes and (statement.detaches or any(c.aside for c in plan.changes)):
        refuse_tag(table_of(state), DETACHED_BRANCH)
    return plan


def is_for_another(ended: CommitOutcome) -> bool:
    """Whether a commit ended because main is not what it was planned for."""
    return isinstance(ended, NotSent) and isinstance(ended.error, PlannedForAnotherError)

"""Runs a statement on a lake table: plan, claim, commit, report.

    load M -> plan -> lease the keys that change -> settle what landed of them before
    -> claim -> the commit protocol, in which every turn plans again -> settle

If main changes between plan and commit, the statement is planned and claimed again, so that it is
never applied to a table for which it was not planned. As in ClickHouse, a statement has one place
in the order of all changes to the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tableformat.committer import (
    CommitOutcome,
    Committed,
    Conflicted,
    Figures,
    LakeTableState,
    NotSent,
    Superseded,
    Unknown,
)
from tableformat.errors import RefusedError, StoppedError, TableFormatError
from tableformat.export.commit import commit, load_table
from tableformat.export.leases import Leases
from tableformat.export.outcome import Outcome, Status, undo_statement
from tableformat.ledger import LeaseHeld, Row
from tableformat.names import LakeName
from tableformat.operations.partition_files import Partitions
from tableformat.operations.statement import (
    AsPlanned,
    OnePart,
    OnePartition,
    OperationPorts,
    Plan,
    Statement,
    files_of,
    forecast,
    is_for_another,
    nothing_done,
    planned_on,
    shown_partition,
)
from tableformat.operations.statement_commit import Landing, Stopping
from tableformat.operations.take_out import Leave
from tableformat.operations.undo import with_undo
from tableformat.receipt import Receipt
from tableformat.table_properties import Mark, is_same_statement

__all__ = ["Running", "in_turns", "works_on_it"]

_MOST_PLANS: Final = 20


@dataclass(frozen=True, slots=True)
class Running:
    """Runs statements on one lake table, each planned up to `most_plans` times."""

    ports: OperationPorts
    name: LakeName
    partitions: Partitions
    most_plans: int = _MOST_PLANS

    @property
    def landing(self) -> Landing:
        """The claims and commits of this table."""
        return Landing(self.ports, self.name, self.partitions)

    def run(self, statement: Statement) -> Outcome:
        """Run a statement; return the outcome of its partition.

        Raises:
            RefusedError: the statement is not possible on this table; nothing was changed.
            TableFormatError: the table or the ledger failed before anything was claimed.
        """
        what = f"{statement} on {self.name}"
        stopping = Stopping(self.ports, statement)
        turn = partial(self._cleaned_turn, stopping)
        try:
            return in_turns(self.ports, what, turn, most=self.most_plans)
        except TableFormatError as error:
            # The claims of earlier turns certainly have not landed.
            self.landing.release_claims(stopping.claimed, error.message)
            raise

    def forecast(self, statement: Statement) -> Outcome:
        """Return the outcome that the statement would have now; change nothing (`--dry-run`).

        Raises:
            RefusedError: the statement is not possible on this table.
            TableFormatError: the table or the ledger cannot be read.
        """
        state = load_table(self.ports.commit)
        self.landing.refuse_moving(statement.which, state)
        plan = self.planned(statement, state)
        if not plan.changes:
            return self._nothing(statement, plan, state)
        return forecast(statement.which, statement.did, plan, self.name)

    def _cleaned_turn(self, stopping: Stopping, leases: Leases) -> Outcome | None:
        ended = self._turn(stopping, leases)
        if ended is not None:
            stopping.clean()
        return ended

    def _turn(self, stopping: Stopping, leases: Leases) -> Outcome | None:
        """Plan on M, claim and commit; None if another process was faster: then plan again."""
        statement = stopping.statement
        landing, state = self.landing, load_table(self.ports.commit)
        if any(row.key.destination != state.layout.table_uuid for row in stopping.claimed):
            message = (
                f"Cannot run {statement}: {self.name} was created again meanwhile. Run it again."
            )
            raise RefusedError(message)
        if left := landing.settle_left(statement.which, state, leases):
            if made := self._made_before(stopping, left, state):
                return made
            state = load_table(self.ports.commit)
        landing.refuse_moving(statement.which, state)
        plan = self.planned(statement, state)
        stopping.release_claims(plan)
        if not plan.changes:
            return self._nothing(statement, plan, state)
        held = leases.take_all(tuple(c.key.hash for c in plan.changes))
        # Another statement may have stopped the last claims while this one was planned again.
        if stopped := self._taken_over(stopping, plan):
            return stopped
        if held:
            if stopping.stop(held, leases):
                return None
            return self.report(statement, Status.IN_PROGRESS, works_on_it(held))
        landing.check(tuple(file for change in plan.changes for file in change.returns))
        rows = landing.claim(statement, plan, state)
        if rows is None:
            return None
        stopping.begin(rows, leases)
        as_planned = AsPlanned(statement, self.partitions, plan)
        try:
            receipts = landing.written(rows, plan, state, partial(stopping.look, leases))
            noted = landing.noted(rows, plan, receipts)
        except StoppedError:
            return self._taken_over(stopping, plan)
        except TableFormatError as error:
            landing.note_error(rows, error.message)
            return replace(self.report(statement, Status.FAILED, error.message), code=error.code)
        if noted is None:
            return self._taken_over(stopping, plan)
        wanted = landing.commit_of(statement, plan, noted, receipts, state)
        ended = tuple(commit(self.ports.commit, wanted, as_planned).values())
        if any(isinstance(one, Superseded) and not one.may_land for one in ended):
            outcome = self._taken_over(stopping, plan)
            if outcome is not None:
                return outcome
        made = self.outcome(statement, plan, noted, ended)
        written = tuple(receipt for of_key in receipts for receipt in of_key)
        return made if made is None or not plan.rewrites else _sized(made, written)

    def planned(self, statement: Statement, state: LakeTableState) -> Plan:
        """Return the plan of a statement, and whether a single statement undoes it.

        Raises:
            RefusedError: the statement is not possible on this state.
            TableFormatError: the table or the ledger cannot be read.
        """
        there = files_of(statement, self.partitions, state)
        plan = planned_on(statement, there, state)
        return with_undo(statement, plan, there, self.partitions, state)

    def _made_before(
        self, stopping: Stopping, left: tuple[Mark, ...], state: LakeTableState
    ) -> Outcome | None:
        """Return the outcome if an earlier run performed this very statement; None otherwise."""
        asked, line = self.ports.asked, {one.snapshot_id for one in state.ancestors()}
        made = (one.snapshot_id for one in left if is_same_statement(one, asked))
        snapshot_id = next((one for one in made if one in line), None)
        if snapshot_id is None:
            return None
        text = (
            "an earlier run, which ended before its report, executed it in snapshot "
            f"{snapshot_id}; run it again to execute it once more"
        )
        self.landing.release_claims(stopping.claimed, text)
        return self.report(stopping.statement, Status.UNCHANGED, text, snapshot_id)

    def _nothing(self, statement: Statement, plan: Plan, state: LakeTableState) -> Outcome:
        """Return that there is nothing to do, unless the partition belongs to another table.

        Raises:
            RefusedError: the partition is one of a table with another partitioning.
            TableFormatError: this cannot be determined.
        """
        which = statement.which
        if isinstance(which, OnePartition) and not (plan.here or plan.kept):
            self.partitions.refuse_named_elsewhere(str(statement), state, which.partition_id)
        return nothing_done(statement, plan, self.name)

    def _taken_over(self, stopping: Stopping, plan: Plan) -> Outcome | None:
        """Return the outcome of the claims if another run has taken them over, None otherwise."""
        statement, found = stopping.statement, stopping.came_of_it()
        if isinstance(found, int):
            text = "it was done before another run took the partition over"
            made = self.report(statement, statement.did, text, found)
            return replace(made, rows=plan.rows, data_files=plan.files, bytes=plan.bytes)
        if found is None:
            return None
        self.landing.note_error(stopping.claimed, f"it was stopped by {found}")
        text = (
            f"it was stopped by {found}. Nothing of it is visible; run it again if it is still "
            "needed"
        )
        return self.report(statement, Status.KILLED, text)

    def outcome(
        self,
        statement: Statement,
        plan: Plan,
        rows: tuple[Row, ...],
        ended: tuple[CommitOutcome, ...],
    ) -> Outcome | None:
        """Return the outcome of a commit; None if a new plan is needed."""
        landed = [one for one in ended if isinstance(one, Committed)]
        if len(landed) == len(ended):
            made = self.report(statement, statement.did, "", landed[0].snapshot_id)
            if not plan.fetches and not all(one.in_main for one in landed):
                text = f"it landed in snapshot {landed[0].snapshot_id}, and main was moved since"
                return replace(made, status=Status.REFUSED, message=text)
            made = replace(made, rows=plan.rows, data_files=plan.files, bytes=plan.bytes)
            left = sum((one.leaves.figures for one in landed), Figures())
            before, undo = landed[0].leaves.before, ""
            if plan.no_undo is None:
                undo = self._undo(statement, before)
            elif left.files:
                made = replace(made, message=plan.no_undo.text(before))
            return made.of_main(left, plan.comes_to_main, undo)
        if any(is_for_another(one) or isinstance(one, Conflicted) for one in ended):
            return None
        stopped = next(one for one in ended if not isinstance(one, Committed))
        if isinstance(stopped, NotSent):
            self.landing.note_error(rows, stopped.error.message)
            return replace(
                self.report(statement, Status.FAILED, stopped.error.message),
                code=stopped.error.code,
            )
        if isinstance(stopped, Unknown):
            text = f"it may have landed: {stopped.evidence.rstrip('.')}. The next run finds out"
            self.landing.note_error(rows, stopped.evidence)
            return self.report(statement, Status.UNKNOWN, text)
        return self.report(statement, Status.IN_PROGRESS, stopped.by)

    def _undo(self, statement: Statement, before: int | None) -> str:
        """Return the statement that undoes one that has landed, '' for none."""
        which = statement.which
        if isinstance(statement, Leave):
            return f"ALTER TABLE {statement.to} MOVE {which} TO TABLE {self.name}"
        one = str(which.partition_id) if which.partition_id is not None else None
        of_part = isinstance(which, OnePart)
        return undo_statement(self.name, statement.did, str(which), one, before, of_part=of_part)

    def report(
        self, statement: Statement, status: Status, text: str, snapshot_id: int | None = None
    ) -> Outcome:
        """Return an outcome of a statement."""
        # Only CHANGED has several meanings.
        verb = getattr(statement, "verb", "") if status is Status.CHANGED else ""
        which = shown_partition(statement.which)
        name = str(self.name)
        return Outcome(which, status, name, text, snapshot_id=snapshot_id, verb=verb)


def _sized(made: Outcome, written: tuple[Receipt, ...]) -> Outcome:
    """Return an outcome with the size of the rewritten files, which are all files that came."""
    size = sum(receipt.file_bytes for receipt in written)
    sized = replace(made, bytes=size)
    return replace(sized, came_files=len(written), came_bytes=size) if made.left_files else sized


def in_turns(
    ports: OperationPorts,
    what: str,
    turn: Callable[[Leases], Outcome | None],
    *,
    most: int = _MOST_PLANS,
) -> Outcome:
    """Take turns under leases until one has an outcome: others may change the planned files.

    Args:
        ports: the ports of the statement.
        what: the statement, for the error.
        turn: runs it once; None if a new plan is needed.
        most: the number of turns.

    Raises:
        RefusedError: other processes changed it in every turn.
        TableFormatError: of a turn.
    """
    with Leases(
        ports.commit.ledger,
        ports.owner,
        effects=ports.commit.effects,
        is_alive=ports.is_alive,
        note=ports.note,
    ) as leases:
        for _ in range(most):
            ended = turn(leases)
            if ended is not None:
                return ended
    message = (
        f"Cannot run {what}: other processes changed the partition {most} times while the "
        "statement was planned. Run it again."
    )
    raise RefusedError(message)


def works_on_it(held: Mapping[str, LeaseHeld]) -> str:
    """Return a message that names the owner of the first lease that was not granted."""
    return f"{next(iter(held.values())).owner} works on it"

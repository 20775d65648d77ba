"""Runs a statement on a lake table: planned, claimed, committed, told.

    load M -> plan -> leases of the keys that change -> what landed of them before is settled
    -> claims -> the commit protocol, in which every turn plans anew -> settled

Where main changed between plan and commit, the plan is made anew, and claimed anew: a statement is
never applied to another table than it was planned for. As ClickHouse's, it has one place in the
order of all that happens to the partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tableformat.branches import BranchFile
from tableformat.committer import (
    Commit,
    CommitOutcome,
    Committed,
    KeyCommit,
    LakeTableState,
    NotSent,
    Unknown,
)
from tableformat.effects import Step
from tableformat.errors import (
    InternalError,
    LedgerError,
    NotFoundError,
    RefusedError,
    TableFormatError,
)
from tableformat.export.claim import claimed
from tableformat.export.commit import commit
from tableformat.export.leases import Leases
from tableformat.export.loading import load_table
from tableformat.export.marks import unsettled_mark
from tableformat.export.outcome import Outcome, Status
from tableformat.export.settling import settle_mark
from tableformat.export.whole_partition import Leaving
from tableformat.lake_marks import statement_fingerprint
from tableformat.ledger import MANIFEST_TTL, Claim, Held, Key, LeaseHeld, Row, Stale
from tableformat.names import LakeName
from tableformat.operations.partition_files import Partitions
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.statement import OperationPorts, Statement, forecast, nothing_done
from tableformat.operations.which import shown_partition
from tableformat.receipt import Receipt

__all__ = ["Running"]

_MOST_PLANS: Final = 20


class _PlannedForAnotherError(RefusedError):
    """Main is not what the statement was planned for."""


@dataclass(slots=True)
class _AsPlanned:
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
                raise _PlannedForAnotherError(message)
            self.seen = state.metadata_location
        change = next(c for c in self.plan.changes if c.key.hash == key)
        return Leaving(tuple(f.path for f in change.leaves), sum(f.rows for f in change.leaves))

    def _now(self, state: LakeTableState) -> Plan | None:
        """Return the plan for M, None when there is none any more; the next turn says why."""
        try:
            return planned(self.statement, self.partitions, state)
        except (NotFoundError, RefusedError):
            return None


def planned(statement: Statement, partitions: Partitions, state: LakeTableState) -> Plan:
    """Return the plan of a statement over one state of the table."""
    of, detached = statement.which.partition_id, statement.looks_at_detached
    return statement.plan(partitions.files(state, of, detached=detached))


@dataclass(frozen=True, slots=True)
class Running:
    """Runs statements on one lake table."""

    ports: OperationPorts
    name: LakeName
    partitions: Partitions

    def run(self, statement: Statement) -> Outcome:
        """Run a statement; return what became of its partition.

        Raises:
            RefusedError: it cannot be done to this table; nothing was changed.
            TableFormatError: the table or the ledger failed before anything was claimed.
        """
        ports = self.ports.commit
        with Leases(
            ports.ledger,
            self.ports.owner,
            effects=ports.effects,
            is_alive=self.ports.is_alive,
            note=self.ports.note,
        ) as leases:
            for _ in range(_MOST_PLANS):
                ended = self._turn(statement, leases)
                if ended is not None:
                    return ended
        message = (
            f"Cannot run {statement} on {self.name}: the partition was changed by others "
            f"{_MOST_PLANS} times while it was looked at. Run the statement again."
        )
        raise RefusedError(message)

    def forecast(self, statement: Statement) -> Outcome:
        """Return what a statement would do now; nothing is changed (`--dry-run`).

        Raises:
            RefusedError: it cannot be done to this table.
            TableFormatError: the table or the ledger cannot be read.
        """
        plan = planned(statement, self.partitions, load_table(self.ports.commit))
        if not plan.changes:
            return nothing_done(statement, plan, self.name)
        return forecast(statement.which, statement.did, plan, self.name)

    def _turn(self, statement: Statement, leases: Leases) -> Outcome | None:
        """Plan on M, claim and commit; None when somebody was faster: it is planned anew."""
        state = load_table(self.ports.commit)
        if self._settle_left(statement, state, leases):
            return None
        plan = planned(statement, self.partitions, state)
        if not plan.changes:
            return nothing_done(statement, plan, self.name)
        held = leases.take_all(tuple(c.key.hash for c in plan.changes))
        if held:
            return self._told(statement, Status.IN_PROGRESS, _by(next(iter(held.values()))))
        self._check(tuple(file for change in plan.changes for file in change.returns))
        rows = self._claim(statement, plan, state)
        if rows is None:
            return None
        as_planned = _AsPlanned(statement, self.partitions, plan)
        try:
            receipts = tuple(self._copied(*one) for one in zip(rows, plan.changes, strict=True))
        except TableFormatError as error:
            self._note_error(rows, error.message)
            return replace(self._told(statement, Status.FAILED, error.message), code=error.code)
        wanted = self._commit(statement, plan, rows, receipts, state)
        ended = commit(self.ports.commit, wanted, as_planned)
        return self._outcome(statement, plan, rows, tuple(ended.values()))

    def _settle_left(self, statement: Statement, state: LakeTableState, leases: Leases) -> bool:
        """Settle what landed and nobody noted: the owner is dead; return whether there was any."""
        wanted = statement.which.partition_id
        settled = False
        for key in state.marks:
            row = self._read(key)
            if row is None or unsettled_mark(row, state) is None:
                continue
            if wanted is not None and row.key.partition_id != wanted.value:
                continue
            # The living settle their own.
            if not leases.take_all((key,)):
                self._settled(row.key, state)
                settled = True
        return settled

    def _read(self, key: str) -> Row | None:
        ports = self.ports.commit
        return ports.effects(Step.READ_LEDGER, lambda: ports.ledger.read(key))

    def _check(self, files: tuple[BranchFile, ...]) -> None:
        """Refuse what comes back to main otherwise than it was written."""
        if files:
            self.ports.commit.effects(Step.CHECK_FILES, lambda: self.ports.intact(files))

    def _copied(self, row: Row, change: KeyChange) -> tuple[Receipt, ...]:
        """Return the receipts of the copies that a key gets."""
        if not change.copies:
            return ()
        copy = self.ports.copy
        if copy is None:
            message = "Files are to be copied, and nothing can. This is a bug, please report it."
            raise InternalError(message)
        return self.ports.commit.effects(Step.WRITE_FILES, lambda: copy(row, change.copies))

    def _claim(
        self, statement: Statement, plan: Plan, state: LakeTableState
    ) -> tuple[Row, ...] | None:
        """Claim every key that changes; None when another run was faster with one."""
        ports = self.ports.commit
        before = [self._settled(change.key, state) for change in plan.changes]
        epoch = ports.ledger.next_epoch(len(before))
        rows = tuple(
            self._claimed(statement, change, row, epoch + number)
            for number, (change, row) in enumerate(zip(plan.changes, before, strict=True))
        )
        written = ports.effects(Step.CLAIM, lambda: ports.ledger.write_all(rows))
        claims = tuple(row for row in written if isinstance(row, Row))
        return claims if len(claims) == len(rows) else None

    def _settled(self, key: Key, state: LakeTableState) -> Row | None:
        """Return the row of a key once what landed of it is settled."""
        ports = self.ports.commit
        row = self._read(key.hash)
        mark = unsettled_mark(row, state)
        if row is None or mark is None:
            return row
        settled = settle_mark(ports, row, state, mark)
        if isinstance(settled, Stale):
            return self._read(key.hash)
        return settled

    def _claimed(self, statement: Statement, change: KeyChange, row: Row | None, epoch: int) -> Row:
        now, of = self.ports.commit.clock(), change.source
        transaction_id = self.ports.new_transaction(epoch).value
        return claimed(
            row,
            change.key,
            names=(of.source_table if of is not None else str(self.name), str(self.name)),
            keeper_node=of.keeper_node if of is not None else None,
            claim=_claim_of(statement, change, epoch, transaction_id, now),
            ttl=row.ttl if row is not None else MANIFEST_TTL,
            now=now,
        )

    def _commit(
        self,
        statement: Statement,
        plan: Plan,
        rows: tuple[Row, ...],
        receipts: tuple[tuple[Receipt, ...], ...],
        state: LakeTableState,
    ) -> Commit:
        keys = tuple(
            KeyCommit(
                row.key.hash,
                row.claim.epoch,
                row.claim.transaction_id,
                row.claim.fingerprint,
                made,
                partition_id=row.key.partition_id,
                returns=tuple(f.path for f in change.returns),
            )
            for row, change, made in zip(rows, plan.changes, receipts, strict=True)
        )
        identity = self.ports.commit.ledger.identity
        summary = {
            "mergeberg.statement": str(statement),
            "mergeberg.partition-id": shown_partition(statement.which),
            "mergeberg.ledger": identity,
        }
        return Commit(
            keys, state.layout, identity, tuple(summary.items()), detaches=statement.detaches
        )

    def _outcome(
        self,
        statement: Statement,
        plan: Plan,
        rows: tuple[Row, ...],
        ended: tuple[CommitOutcome, ...],
    ) -> Outcome | None:
        landed = [one for one in ended if isinstance(one, Committed)]
        if len(landed) == len(ended):
            made = self._told(statement, statement.did, "", landed[0].snapshot_id)
            if not all(one.in_main for one in landed):
                text = f"it landed in snapshot {landed[0].snapshot_id}, and main was moved since"
                return replace(made, status=Status.REFUSED, message=text)
            return replace(made, rows=plan.rows, data_files=plan.files)
        if any(_is_for_another(one) for one in ended):
            return None
        stopped = next(one for one in ended if not isinstance(one, Committed))
        if isinstance(stopped, NotSent):
            self._note_error(rows, stopped.error.message)
            return replace(
                self._told(statement, Status.FAILED, stopped.error.message),
                code=stopped.error.code,
            )
        if isinstance(stopped, Unknown):
            text = f"it may have landed: {stopped.evidence}. The next run finds out"
            self._note_error(rows, stopped.evidence)
            return self._told(statement, Status.UNKNOWN, text)
        return self._told(statement, Status.IN_PROGRESS, stopped.by)

    def _note_error(self, rows: tuple[Row, ...], text: str) -> None:
        """Say on the claims why they stopped; a ledger that is away is said as well."""
        ports = self.ports.commit
        noted = tuple(replace(row, last_error=text, updated=ports.clock()) for row in rows)
        try:
            ports.effects(Step.NOTE_ERROR, lambda: ports.ledger.write_all(noted))
        except LedgerError as error:
            self.ports.note(f"the ledger could not be told why: {error}")

    def _told(
        self, statement: Statement, status: Status, text: str, snapshot_id: int | None = None
    ) -> Outcome:
        return Outcome(
            shown_partition(statement.which), status, str(self.name), text, snapshot_id=snapshot_id
        )


def _claim_of(
    statement: Statement, change: KeyChange, epoch: int, transaction_id: str, now: int
) -> Claim:
    """Return the claim of a key: that of the export that its copies are, or the statement's."""
    rows, files = sum(f.rows for f in change.copies), len(change.copies)
    if change.like is not None:
        return Claim(
            epoch,
            transaction_id,
            change.like.landed.fingerprint,
            now,
            # The files that held rows of a part are those of the other table.
            parts=tuple(replace(part, remote_paths=()) for part in change.like.parts),
            rows=rows,
            data_files=files,
            bytes=sum(f.bytes for f in change.copies),
        )
    copies = (Held(transaction_id, files, rows),) if files else ()
    return Claim(
        epoch,
        transaction_id,
        statement_fingerprint(transaction_id),
        now,
        statement=str(statement),
        holds=None if change.holds is None else (*change.holds, *copies),
    )


def _is_for_another(ended: CommitOutcome) -> bool:
    return isinstance(ended, NotSent) and isinstance(ended.error, _PlannedForAnotherError)


def _by(holder: LeaseHeld) -> str:
    return f"{holder.owner} works on it"

"""Runs a statement on a lake table: planned, claimed, committed, told.

    load M -> plan -> leases of the keys that change -> what landed of them before is settled
    -> claims -> the commit protocol, in which every turn plans anew -> settled

Where main changed between plan and commit, the plan is made anew, and claimed anew: a statement is
never applied to another table than it was planned for. As ClickHouse's, it has one place in the
order of all that happens to the partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol

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
from tableformat.errors import LedgerError, NotFoundError, RefusedError
from tableformat.export.claim import claimed
from tableformat.export.commit import commit
from tableformat.export.leases import Leases
from tableformat.export.loading import load_table
from tableformat.export.marks import unsettled_mark
from tableformat.export.outcome import Outcome, Status
from tableformat.export.settling import Ports, settle_mark
from tableformat.export.whole_partition import Leaving
from tableformat.lake_marks import statement_fingerprint
from tableformat.ledger import MANIFEST_TTL, Claim, Key, LeaseHeld, Owner, Row, Stale
from tableformat.names import LakeName, TransactionId
from tableformat.operations.partition_files import PartitionFiles, Partitions
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.which import NOTHING_DETACHED, Which, shown_partition

__all__ = ["Alone", "OperationPorts", "Running", "Statement", "forecast"]

_MOST_PLANS: Final = 20


class Statement(Protocol):
    """A statement; as text it is what the ledger keeps.

    `did` is what became of what it is about once it has landed. What leaves main for one that
    `detaches` is on the branch `detached` afterwards.
    """

    did: ClassVar[Status]
    looks_at_detached: ClassVar[bool]
    detaches: ClassVar[bool]

    @property
    def which(self) -> Which:
        """What it is about."""
        ...

    def plan(self, there: PartitionFiles) -> Plan:
        """Return what changes, of what is there.

        Raises:
            RefusedError: it cannot be done to these files.
        """
        ...


@dataclass(frozen=True, slots=True)
class OperationPorts:
    """Everything that a statement acts on, but what tells which files are in its partition.

    `intact` refuses files that are not as they were written.
    """

    commit: Ports
    owner: Owner
    is_alive: Callable[[Owner], bool]
    new_transaction: Callable[[int], TransactionId]
    note: Callable[[str], None]
    intact: Callable[[tuple[BranchFile, ...]], None]


class Alone(Protocol):
    """A statement that changes no key: it runs by itself."""

    def run(
        self, ports: OperationPorts, partitions: Partitions, *, dry_run: bool = False
    ) -> Outcome:
        """Run it, or say what it would do; return what became of what it is about.

        Raises:
            TableFormatError: it cannot be done, or the table or the ledger failed.
        """
        ...


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
            return self._told(statement, Status.EMPTY, nothing_of(statement))
        return forecast(statement.which, statement.did, plan, self.name)

    def _turn(self, statement: Statement, leases: Leases) -> Outcome | None:
        """Plan on M, claim and commit; None when somebody was faster: it is planned anew."""
        state = load_table(self.ports.commit)
        plan = planned(statement, self.partitions, state)
        if not plan.changes:
            return self._told(statement, Status.EMPTY, nothing_of(statement))
        held = leases.take_all(tuple(c.key.hash for c in plan.changes))
        if held:
            return self._told(statement, Status.IN_PROGRESS, _by(next(iter(held.values()))))
        self._check(tuple(file for change in plan.changes for file in change.returns))
        rows = self._claim(statement, plan, state)
        if rows is None:
            return None
        as_planned = _AsPlanned(statement, self.partitions, plan)
        wanted = self._commit(statement, plan, rows, state)
        ended = commit(self.ports.commit, wanted, as_planned)
        return self._outcome(statement, plan, rows, tuple(ended.values()))

    def _check(self, files: tuple[BranchFile, ...]) -> None:
        """Refuse what comes back to main otherwise than it was written."""
        if files:
            self.ports.commit.effects(Step.CHECK_FILES, lambda: self.ports.intact(files))

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
        row = ports.effects(Step.READ_LEDGER, lambda: ports.ledger.read(key.hash))
        mark = unsettled_mark(row, state)
        if row is None or mark is None:
            return row
        settled = settle_mark(ports, row, state, mark)
        if isinstance(settled, Stale):
            return ports.effects(Step.READ_LEDGER, lambda: ports.ledger.read(key.hash))
        return settled

    def _claimed(self, statement: Statement, change: KeyChange, row: Row | None, epoch: int) -> Row:
        now = self.ports.commit.clock()
        transaction_id = self.ports.new_transaction(epoch).value
        return claimed(
            row,
            change.key,
            names=(str(self.name), str(self.name)),
            claim=Claim(
                epoch,
                transaction_id,
                statement_fingerprint(transaction_id),
                now,
                statement=str(statement),
                holds=change.holds,
            ),
            ttl=row.ttl if row is not None else MANIFEST_TTL,
            now=now,
        )

    def _commit(
        self, statement: Statement, plan: Plan, rows: tuple[Row, ...], state: LakeTableState
    ) -> Commit:
        keys = tuple(
            KeyCommit(
                row.key.hash,
                row.claim.epoch,
                row.claim.transaction_id,
                row.claim.fingerprint,
                (),
                partition_id=row.key.partition_id,
                returns=tuple(f.path for f in change.returns),
            )
            for row, change in zip(rows, plan.changes, strict=True)
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


def forecast(which: Which, did: Status, plan: Plan, name: LakeName) -> Outcome:
    """Return what a plan would do (`--dry-run`)."""
    files = f"{plan.files:,} file{'' if plan.files == 1 else 's'}"
    text = f"it would be {did.value}: {plan.rows:,} rows in {files}"
    told = Outcome(shown_partition(which), did, str(name), text)
    return replace(told, rows=plan.rows, data_files=plan.files)


def nothing_of(statement: Statement) -> str:
    """Say that a statement finds no file."""
    return NOTHING_DETACHED if statement.looks_at_detached else "main has no file of it"


def _is_for_another(ended: CommitOutcome) -> bool:
    return isinstance(ended, NotSent) and isinstance(ended.error, _PlannedForAnotherError)


def _by(holder: LeaseHeld) -> str:
    return f"{holder.owner} works on it"

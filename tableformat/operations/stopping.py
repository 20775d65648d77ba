"""REPLACE, DROP and DETACH stop our own OPTIMIZE, UPDATE, DELETE and CLEAR of their partition.

As in ClickHouse, where they stop merges and mutations: what such a statement writes anew would be
gone a moment later. It is asked through the ledger: its claims get new epochs, so that nothing of
it lands from then on (protocol.md step 4), and say who stops it. It looks between files and before
its commit, and gives its leases back; it is waited for, and passed over if it does not stop. Where
it was faster and has landed, what it left is dropped. Exports and other statements are not stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tableformat.committer import LakeTableState
from tableformat.effects import Step
from tableformat.errors import StoppedError, TableFormatError
from tableformat.export.cleaning import Cleaning
from tableformat.export.leases import Leases
from tableformat.export.loading import load_table
from tableformat.giving_way import GivesWay
from tableformat.ledger import Claim, LeaseHeld, Row, State
from tableformat.operations.copying import CopyFrom
from tableformat.operations.detach import Detach
from tableformat.operations.drop import Drop
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.replacing import Replacing
from tableformat.operations.statement import OperationPorts, Statement

__all__ = ["Stopping", "gives_way", "passed_over"]

_LOOKS: Final = 20
"""With growing pauses between them: half a minute."""


def gives_way(statement: Statement, change: KeyChange, ports: OperationPorts) -> GivesWay | None:
    """Return what a claim says of a statement that may be stopped: it writes files anew."""
    return GivesWay(str(statement), str(ports.owner)) if change.rewrites else None


def passed_over(row: Row | None, statement: Statement, ports: OperationPorts) -> Row | None:
    """Return a row that is claimed over, which says so where its claim gives way.

    Its owner is dead or does not stop; or it is of this process, where all have one lease.
    """
    of = row.claim.gives_way if row is not None and row.state is State.RUNNING else None
    if row is None or of is None or of.stopped_by or not _may_stop(statement):
        return row
    of = replace(of, stopped_by=_name(statement, ports))
    return replace(row, claim=replace(row.claim, gives_way=of))


def _may_stop(one: Statement) -> bool:
    if isinstance(one, CopyFrom):
        return one.replaces
    return isinstance(one, Drop | Detach | Replacing)


def _name(statement: Statement, ports: OperationPorts) -> str:
    return f"{statement} of {ports.owner}"


@dataclass(slots=True)
class Stopping:
    """Who stops whom, of one run of a statement: what it has stopped, and whether it was itself.

    `claimed` are the rows of its own last claims, `begun` the transactions of all of them,
    `passed_over` the keys of those that it stopped.
    """

    ports: OperationPorts
    statement: Statement
    claimed: tuple[Row, ...] = ()
    begun: set[str] = field(default_factory=set)
    passed_over: dict[str, None] = field(default_factory=dict)

    def stop(self, held: Mapping[str, LeaseHeld], leases: Leases) -> bool:
        """Stop what holds the leases of keys; false when it is not to be stopped.

        Raises:
            LedgerError: the ledger failed.
        """
        if not _may_stop(self.statement):
            return False
        rows = self._rows(tuple(held))
        running = tuple(
            (row, lease.owner, row.claim.gives_way)
            for row, lease in zip(rows, held.values(), strict=True)
            if row is not None and row.state is State.RUNNING and row.claim.gives_way is not None
        )
        if len(running) < len(held) or any(str(by) != of.owner for _, by, of in running):
            return False
        self._ask(tuple((row, of) for row, _, of in running if not of.stopped_by))
        for row, by, of in running:
            key = row.key.hash
            self.passed_over[key] = None
            if not self._has_stopped(key, by):
                self.ports.note(
                    f"{of.statement} of {of.owner} has not stopped, and is passed over: nothing of "
                    "it becomes visible. What it still writes `mergeberg gc` removes"
                )
                leases.take_from(key, by)
        return True

    def _ask(self, running: tuple[tuple[Row, GivesWay], ...]) -> None:
        """Claim what runs, so that nothing of it lands; what has moved on stays as it is."""
        if not running:
            return
        commit, by = self.ports.commit, _name(self.statement, self.ports)
        first = commit.ledger.next_epoch(len(running))
        for text in dict.fromkeys(f"{of.statement} of {of.owner}" for _, of in running):
            self.ports.note(f"stopping {text}")
        asked = tuple(
            replace(
                row,
                claim=replace(
                    row.claim, epoch=first + number, gives_way=replace(of, stopped_by=by)
                ),
                updated=commit.clock(),
            )
            for number, (row, of) in enumerate(running)
        )
        commit.effects(Step.CLAIM, partial(commit.ledger.write_all, asked))

    def _has_stopped(self, key: str, owner: object) -> bool:
        """Wait until an owner has given a lease back; false when that takes too long."""
        commit = self.ports.commit
        for attempt in range(1, _LOOKS + 1):
            found = commit.effects(Step.READ_LEDGER, partial(commit.ledger.holder, key))
            if found is None or found.owner != owner:
                return True
            commit.pause(attempt)
        return False

    def begin(self, rows: tuple[Row, ...], leases: Leases) -> None:
        """Hear which claims the run has from now on, and begin to look whether they are stopped."""
        self.claimed = rows
        self.begun |= {row.claim.transaction_id for row in rows}
        for row in rows:
            leases.watch(row.key.hash, row.claim.epoch)

    def let_go(self, plan: Plan) -> None:
        """Let keys go that a turn before has claimed, and for which a new plan has nothing to do.

        Nothing was sent for them. Where a request of an older claim may be under way the row stays
        RUNNING, as that of whoever is dead.

        Raises:
            LedgerError: the ledger failed.
        """
        needed = {change.key for change in plan.changes}
        left = tuple(row for row in self.claimed if row.key not in needed)
        if not left:
            return
        commit = self.ports.commit
        pairs = zip(left, self._rows(tuple(row.key.hash for row in left)), strict=True)
        text = "the partition was changed by others meanwhile: there was nothing left to do"
        ended = tuple(
            replace(now, state=State.FAILED, last_error=text, updated=commit.clock())
            for own, now in pairs
            if now is not None and _is_ours(own, now) and self._is_dead(now.old)
        )
        commit.effects(Step.GIVE_UP, partial(commit.ledger.write_all, ended))
        self.claimed = tuple(row for row in self.claimed if row.key in needed)

    def _is_dead(self, older: tuple[Claim, ...]) -> bool:
        """Whether nothing of claims can land: a turn of this run has sent nothing for its own."""
        return all(one.given_up or one.transaction_id in self.begun for one in older)

    def look(self, leases: Leases, key: str) -> None:
        """Go on with a key, unless a claim of the run was taken over.

        Raises:
            StoppedError: one was.
            LedgerError: the ledger cannot be read.
        """
        (now,) = self._rows((key,))
        own = next(row for row in self.claimed if row.key.hash == key)
        gone = now is None or now.claim.epoch != own.claim.epoch
        if gone or any(leases.taken_over(row.key.hash) for row in self.claimed):
            message = f"Cannot go on with {self.statement}: it was taken over. Look who did."
            raise StoppedError(message)

    def came_of_it(self) -> int | str | None:
        """Return the snapshot in which the last claims landed, or who stopped them before.

        None when neither is known; only those who have no request under way ask.

        Raises:
            DestinationError: the table cannot be read.
            LedgerError: the ledger cannot be read.
        """
        if not self.claimed:
            return None
        state = load_table(self.ports.commit)
        rows = self._rows(tuple(row.key.hash for row in self.claimed))
        pairs = tuple(zip(self.claimed, rows, strict=True))
        landed = next((at for own, now in pairs if (at := _landed(own, now, state))), None)
        return landed or next((by for own, now in pairs if (by := _stopped_by(own, now))), None)

    def clean(self) -> None:
        """Remove the files of what was stopped, once nothing of it can land; the rest is gc's."""
        commit = self.ports.commit
        try:
            if self.passed_over and commit.storage is not None:
                location = load_table(commit).location
                cleaning = Cleaning(commit, commit.storage, location)
                for key in self.passed_over:
                    cleaning.clean(key)
        except TableFormatError as error:
            self.ports.note(f"files of what was stopped stay: {error} `mergeberg gc` removes them")

    def _rows(self, keys: tuple[str, ...]) -> tuple[Row | None, ...]:
        commit = self.ports.commit
        return commit.effects(Step.READ_LEDGER, partial(commit.ledger.read_all, keys))


def _is_ours(own: Row, now: Row) -> bool:
    return now.state is State.RUNNING and now.claim.epoch == own.claim.epoch


def _landed(own: Row, now: Row | None, state: LakeTableState) -> int | None:
    """Return the snapshot in which a claim landed."""
    transaction_id, mark = own.claim.transaction_id, state.mark(own.key.hash)
    if mark is not None and mark.transaction_id == transaction_id:
        return mark.snapshot_id
    known = now.landed if now is not None else ()
    return next((x.snapshot_id for x in known if x.transaction_id == transaction_id), None)


def _stopped_by(own: Row, now: Row | None) -> str:
    claim = now.claim_of(own.claim.transaction_id) if now is not None else None
    return claim.gives_way.stopped_by if claim is not None and claim.gives_way is not None else ""

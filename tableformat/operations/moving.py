"""ALTER TABLE … MOVE PARTITION … TO TABLE: added to the other table, then taken away here.

Two tables, and no catalog changes two in one request: what it does in which order is decision 0013,
what may happen between is in docs/spec/model/Move.tla.

    an unfinished MOVE of the partition is ended -> both planned -> leases -> claims, there first,
    here with where the rows go -> copies -> there, as long as here is as planned -> here

Killed at any moment the rows are in one of the tables or in both, and the same statement, run
again, ends it (`ending_moves.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tableformat.committer import LakeTableState
from tableformat.errors import InternalError, RefusedError, TableFormatError
from tableformat.export.commit import commit
from tableformat.export.empty_commits import fence
from tableformat.export.leases import Leases
from tableformat.export.loading import load_table
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import Key, Row, State
from tableformat.main_change import Leaving
from tableformat.move_intent import MoveIntent, digest_of_paths
from tableformat.operations.as_planned import AsPlanned, PlannedForAnotherError, planned
from tableformat.operations.copying import CopyFrom, other_table
from tableformat.operations.ending_moves import EndingMoves, knows, let_go
from tableformat.operations.leave import Leave
from tableformat.operations.planned import Plan
from tableformat.operations.running import Running, in_turns, works_on_it
from tableformat.operations.statement import Copies, forecast, nothing_done
from tableformat.operations.which import OnePartition

__all__ = ["Moving"]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A MOVE that is planned and claimed: what it does on both sides, and the claims of its keys.

    `added` has no change where the other table has the very export already.
    """

    leave: Leave
    copy: CopyFrom
    states: tuple[LakeTableState, LakeTableState]
    taken: Plan
    added: Plan
    rows_here: tuple[Row, ...]
    rows_there: tuple[Row, ...]


@dataclass(slots=True)
class _WhileHere:
    """Step 6 of the commit there: this table is as it was planned, and nobody else has its keys."""

    there: AsPlanned
    here: Running
    begun: _Begun
    seen: str = ""

    def leaving(self, state: LakeTableState, key: str) -> Leaving:
        """Return what leaves main there: nothing.

        Raises:
            RefusedError: one of the tables is not what was planned for, or the keys here are
                somebody else's by now.
            TableFormatError: a table or the ledger cannot be read.
        """
        for row in self.begun.rows_here:
            now = self.here.landing.row_of(row.key.hash)
            if now is None or (now.claim.epoch, now.state) != (row.claim.epoch, State.RUNNING):
                message = f"Cannot go on with {self.begun.leave}: another run has the partition."
                raise RefusedError(message)
        here = load_table(self.here.ports.commit)
        if here.metadata_location != self.seen:
            if planned(self.begun.leave, self.here.partitions, here) != self.begun.taken:
                message = f"Cannot go on with {self.begun.leave}: the partition was changed here."
                raise PlannedForAnotherError(message)
            self.seen = here.metadata_location
        return self.there.leaving(state, key)


@dataclass(frozen=True, slots=True)
class Moving:
    """Moves partitions from one lake table to another, under one ledger.

    `copies` returns what copies files of a state of the one into the other; `check` refuses states
    between which none can be put.
    """

    here: Running
    there: Running
    copies: Callable[[LakeTableState, LakeTableState], Copies]
    check: Callable[[LakeTableState, LakeTableState], None]

    def run(self, which: OnePartition) -> Outcome:
        """Move a partition; return what became of it.

        Raises:
            RefusedError: it cannot be moved between these tables; nothing was changed.
            TableFormatError: a table or the ledger failed before anything was claimed.
        """
        leave = Leave(which, self.there.name)
        what = f"{leave} on {self.here.name}"
        return in_turns(self.here.ports, what, partial(self._turn, leave))

    def forecast(self, which: OnePartition) -> Outcome:
        """Return what it would do now; nothing is changed (`--dry-run`).

        Raises:
            RefusedError: it cannot be moved, or was begun by a run that did not finish it.
            TableFormatError: a table or the ledger cannot be read.
        """
        here = load_table(self.here.ports.commit)
        there = load_table(self.there.ports.commit)
        leave = Leave(which, self.there.name)
        self.here.landing.refuse_moving(which, here)
        self.check(here, there)
        taken = planned(leave, self.here.partitions, here)
        if not taken.changes:
            return nothing_done(leave, taken, self.here.name)
        planned(self._copy(which, here), self.there.partitions, there)
        return forecast(which, leave.did, taken, self.here.name)

    def _copy(self, which: OnePartition, here: LakeTableState) -> CopyFrom:
        return CopyFrom(which, other_table(here, self.here.partitions, which), replaces=False)

    def _turn(self, leave: Leave, leases: Leases) -> Outcome | None:
        """Begin and do it; None when something was changed meanwhile: it is planned anew."""
        ended = EndingMoves(self.here, self.there, leases).end(leave)
        if ended is not None:
            return ended
        begun = self._begun(leave, leases)
        if not isinstance(begun, _Begun):
            return begun
        if begun.added.changes:
            made = self._add(begun)
            if made is None or made.status is not Status.ATTACHED:
                return made
        if not self._is_as_planned(begun):
            let_go(self.here.ports.commit, begun.rows_here, "")
            return None
        return EndingMoves(self.here, self.there, leases).take(
            leave, begun.rows_here, begun.states[0]
        )

    def _begun(self, leave: Leave, leases: Leases) -> _Begun | Outcome | None:
        """Plan both sides and claim their keys; or say why not."""
        which = leave.which
        here, there = (load_table(side.ports.commit) for side in (self.here, self.there))
        left = self.here.landing.settle_left(which, here, leases)
        if self.there.landing.settle_left(which, there, leases) or left:
            return None
        self.there.landing.refuse_moving(which, there)
        self.check(here, there)
        taken = planned(leave, self.here.partitions, here)
        if not taken.changes:
            return nothing_done(leave, taken, self.here.name)
        copy = self._copy(which, here)
        added = planned(copy, self.there.partitions, there)
        goes = {c.key.hash: _key_there(c.key, here, there) for c in taken.changes}
        held = leases.take_all(tuple(dict.fromkeys((*goes, *goes.values()))))
        if held:
            return self.here.told(leave, Status.IN_PROGRESS, works_on_it(held))
        rows_there = self.there.landing.claim(copy, added, there)
        if rows_there is None:
            return None
        moves = self._intents(taken, goes, rows_there)
        rows = replace(self.here.landing, moves=moves).claim(leave, taken, here)
        if rows is None:
            return None
        # What a run before has sent could land after the copies are there, which are older then.
        if any(not claim.given_up for row in rows for claim in row.old):
            fence(self.here.ports.commit)
        return _Begun(leave, copy, (here, there), taken, added, rows, rows_there)

    def _intents(
        self, taken: Plan, goes: Mapping[str, str], rows_there: tuple[Row, ...]
    ) -> Mapping[str, MoveIntent]:
        """Return where each key goes: to a claim there, or to what has landed there already."""
        brings = {row.key.hash: row.claim.transaction_id for row in rows_there}
        return {
            one.key.hash: MoveIntent(
                there := goes[one.key.hash],
                brings.get(there) or self._landed(there),
                str(self.there.name),
                digest_of_paths(f.path for f in one.leaves),
            )
            for one in taken.changes
        }

    def _landed(self, key: str) -> str:
        row = self.there.landing.row_of(key)
        if row is None or row.done is None:
            message = f"Nothing brings the rows of key {key}. This is a bug, please report it."
            raise InternalError(message)
        return row.done.landed.transaction_id

    def _is_as_planned(self, begun: _Begun) -> bool:
        """Whether what was planned is there, and not an export of the same content instead of it.

        Where nothing had to be added, whether this table is as it was, too.
        """
        moves = (row.claim.move for row in begun.rows_here)
        if not all(knows(self.there.landing.row_of(m.key), m) for m in moves if m is not None):
            return False
        if begun.added.changes:
            return True
        here = load_table(self.here.ports.commit)
        return planned(begun.leave, self.here.partitions, here) == begun.taken

    def _add(self, begun: _Begun) -> Outcome | None:
        """Copy, and let the copies land there; where that is certain not to be, it is given up."""
        landing = self.there.landing
        try:
            copies = self.copies(*begun.states)
            landing = replace(landing, ports=replace(landing.ports, copy=copies))
            receipts = landing.written(begun.rows_there, begun.added, begun.states[1])
            rows = landing.noted(begun.rows_there, begun.added, receipts)
        except TableFormatError as error:
            landing.note_error(begun.rows_there, error.message)
            let_go(self.here.ports.commit, begun.rows_here, error.message)
            told = self.here.told(begun.leave, Status.FAILED, error.message)
            return replace(told, code=error.code)
        if rows is None:
            let_go(self.here.ports.commit, begun.rows_here, "")
            return None
        wanted = landing.commit_of(begun.copy, begun.added, rows, receipts, begun.states[1])
        as_planned = AsPlanned(begun.copy, self.there.partitions, begun.added)
        guarded = _WhileHere(as_planned, self.here, begun)
        ended = commit(self.there.ports.commit, wanted, guarded)
        made = self.there.outcome(begun.copy, begun.added, rows, tuple(ended.values()))
        if made is None or made.status is Status.FAILED:
            why = "" if made is None else made.message
            let_go(self.here.ports.commit, begun.rows_here, why)
            landing.let_go(rows, why)
        return None if made is None else replace(made, table=str(self.here.name))


def _key_there(key: Key, here: LakeTableState, there: LakeTableState) -> str:
    """Return the key there: what no export wrote is of one key there, of this table."""
    uuid = here.layout.table_uuid
    own = key if key.stays else Key.of_lake(uuid, key.partition_id, uuid)
    return own.at(there.layout.table_uuid).hash

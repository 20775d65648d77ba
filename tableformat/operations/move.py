"""Runs ALTER TABLE … MOVE PARTITION … TO TABLE, and finishes or gives up an interrupted MOVE.

The two tables need two requests. MOVE adds the rows to the other table first, then removes them
here (decision 0013; docs/spec/model/Move.tla):

    end an unfinished MOVE of the partition -> plan both -> stage the removal here, and discard it
    -> take leases -> claim there, then here with the destination of the rows -> copy
    -> commit there, while here is as planned -> commit here

If the process dies at any moment, the rows are in one table or in both. The same statement, run
again, finishes the MOVE.

`EndingMoves` finishes an interrupted MOVE of any process: if the rows are in the other table, they
are removed here; otherwise the MOVE is given up and the rows stay here. It first settles requests
without a response: either the rows are there, or no later request can add them there (Again, Give
and Take in docs/spec/model/Move.tla).

The other table is the one with the uuid to which the rows went. Its owner may have renamed it: then
a MOVE is ended with the present name only, because with any other table nobody sees its rows. If
both tables have one uuid, they are one table, and nothing is moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tableformat.committer import (
    BranchFile,
    LakeTableState,
    Leaving,
    NotSent,
    counted_files,
)
from tableformat.effects import Step
from tableformat.errors import (
    InternalError,
    RefusedError,
    TableFormatError,
    UnsupportedError,
)
from tableformat.export.commit import Ports, commit, fence, load_table
from tableformat.export.give_up import GivenUp, KillOutcome, NotUnderWay, TooLate, kill
from tableformat.export.leases import Leases
from tableformat.export.outcome import Outcome, Status
from tableformat.file_names import is_of_transaction
from tableformat.iceberg.properties import refuse_version
from tableformat.ledger import Key, MoveIntent, Row, State
from tableformat.names import LakeName
from tableformat.operations.copy_from import CopyFrom, other_table, plan_of_itself
from tableformat.operations.partition_files import PartitionFiles
from tableformat.operations.run import Running, in_turns, works_on_it
from tableformat.operations.statement import (
    AsPlanned,
    Copies,
    FileCopier,
    KeyChange,
    NoUndo,
    OnePartition,
    Plan,
    PlannedForAnotherError,
    files_of,
    forecast,
    nothing_done,
    planned,
    planned_on,
)
from tableformat.operations.statement_commit import stage_once
from tableformat.operations.take_out import Leave
from tableformat.operations.undo import not_moved_back

__all__ = ["EndingMoves", "Moving", "give_up", "knows", "release_claims"]


def _digest_of_paths(paths: Iterable[str]) -> str:
    """Return the SHA-256 of paths, independent of their order."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.encode() + b"\0")
    return digest.hexdigest()


class _StaysHereError(RefusedError):
    """The other table has the rows, but they cannot be removed here."""


@dataclass(slots=True)
class _OnceThere:
    """Step 6 of the commit here: the files that leave were copied, and the copies are there."""

    leave: Leave
    here: Running
    there: Running
    moves: dict[str, MoveIntent]
    seen: str = ""
    changes: dict[str, KeyChange] = field(default_factory=dict)

    def leaving(self, state: LakeTableState, key: str) -> Leaving:
        """Return the files of a key that leave main.

        Raises:
            RefusedError: another writer changed the files here after the copy, or main of the other
                table was moved away from the copies.
            TableFormatError: a table or the ledger cannot be read.
        """
        if state.metadata_location != self.seen:
            now = planned(self.leave, self.here.partitions, state)
            self.changes = {c.key.hash: c for c in now.changes}
            self.seen = state.metadata_location
        change, move = self.changes.get(key), self.moves[key]
        if change is None or _digest_of_paths(f.path for f in change.leaves) != move.files:
            why = f"another process changed the partition of {self.here.name} after it was copied"
            raise self._stays(why)
        if not _line_has(self.there, move):
            raise self._stays(f"main of {self.there.name} was moved away from it since")
        figures = counted_files(change.leaves)
        paths = tuple(f.path for f in change.leaves)
        return Leaving(paths, figures.rows, bytes=figures.bytes or 0)

    def _stays(self, why: str) -> RefusedError:
        message = (
            f"Cannot remove partition {self.leave.which.partition_id} from {self.here.name}: it "
            f"was added to {self.there.name}, but {why}. It stays here; its rows may be in both. "
            "Compare the tables, and drop the partition in one of them."
        )
        return _StaysHereError(message)


def _is_marked(there: LakeTableState, move: MoveIntent) -> bool:
    """Whether the other table has the mark of the commit that added the rows."""
    mark = there.mark(move.key)
    return mark is not None and mark.transaction_id == move.transaction_id


def _line_has(there: Running, move: MoveIntent) -> bool:
    """Whether main of the other table has the moved rows, or had them in its history."""
    ports = there.ports.commit
    state = load_table(ports, writes=False)
    row = there.landing.row_of(move.key)
    if row is None or row.key.destination != state.layout.table_uuid:
        return False
    mark = state.mark(move.key)
    if mark is not None and _is_marked(state, move):
        return state.is_ancestor(mark.snapshot_id)
    landed = next((x for x in row.landed if x.transaction_id == move.transaction_id), None)
    if landed is None:
        return False
    if state.is_ancestor(landed.snapshot_id):
        return True
    if landed.snapshot_id in state.snapshots:
        return False
    # The snapshot has expired. A later commit of the key in main's history proves that it was
    # there.
    if any(x.epoch > landed.epoch and state.is_ancestor(x.snapshot_id) for x in row.landed):
        return True
    files = ports.table.files_of(state, move.key)
    return any(is_of_transaction(f.path, move.key, move.transaction_id) for f in files)


_LATER: Final = NoUndo("an earlier run began it, and the other table may have had rows of it")


@dataclass(frozen=True, slots=True)
class EndingMoves:
    """Finishes or gives up interrupted MOVEs between two tables, under leases of their keys.

    `name_of` returns the present name of the lake table with a uuid, None if there is none.
    """

    here: Running
    there: Running
    leases: Leases
    name_of: Callable[[str], LakeName | None]

    def end(self, leave: Leave) -> Outcome | None:
        """Finish an interrupted MOVE of the partition; None if there is none, or if it is given up.

        Raises:
            RefusedError: it goes to a third table, or whether it landed cannot be determined yet.
            TableFormatError: a table or the ledger failed.
        """
        state = load_table(self.here.ports.commit, writes=False)
        rows = _begun(self.here, leave, state)
        self._refuse_versions(leave, state, rows)
        if not rows:
            return None
        uuid = load_table(self.there.ports.commit, writes=False).layout.table_uuid
        for _, move in rows:
            goes_to = _destination(self.there, move)
            if goes_to == uuid:
                continue
            if move.table != str(leave.to):
                self.here.landing.refuse_moving(leave.which, state)
            if goes_to is not None:
                _refuse_renamed(leave, self.name_of(goes_to))
        keys = dict.fromkeys(k for row, move in rows for k in (row.key.hash, move.key))
        held = self.leases.take_all(tuple(keys))
        if held:
            return self.here.report(leave, Status.IN_PROGRESS, works_on_it(held))
        again = _claimed_again(self.here, rows, leave)
        if again is None:
            return None
        why = f"{leave} was given up: {leave.to} is the same table"
        if uuid != state.layout.table_uuid:
            if all(self._has_landed(row.claim.move) for row in again if row.claim.move):
                return self.take(leave, again, state)
            why = f"{leave} was given up: it had not landed in {leave.to}"
        ended = _stop(self.here, again, why)
        if not all(isinstance(one, GivenUp | NotUnderWay) for one in ended):
            message = f"Cannot give {leave} up yet: {ended}. Run it again."
            raise RefusedError(message)
        return None

    def _refuse_versions(self, leave: Leave, state: LakeTableState, rows: _BegunMoves) -> None:
        """Refuse tables in which the MOVE cannot be finished or given up, before it is claimed.

        If the rows are known to be in the other table, nothing is written there.

        Raises:
            UnsupportedError: a table has a format version that is not written (code 48).
            TableFormatError: the other table or the ledger cannot be read.
        """
        states = [state]
        unknown = [m for _, m in rows if not knows(self.there.landing.row_of(m.key), m)]
        if unknown:
            ports = self.there.ports.commit
            there = ports.effects(Step.LOAD_METADATA, ports.table.load)
            states += () if all(_is_marked(there, move) for move in unknown) else (there,)
        for one in states:
            try:
                refuse_version(one)
            except UnsupportedError as error:
                begun = (
                    f" {leave} was begun and is not finished: its rows may be in both tables. "
                    "Compare them, and drop the partition in one of them with that engine. When "
                    f"{leave.to} has been dropped, the same statement gives the MOVE up."
                )
                message = error.message + (begun if rows else "")
                raise UnsupportedError(message, code=error.code) from error

    def take(
        self,
        leave: Leave,
        rows: tuple[Row, ...],
        state: LakeTableState,
        no_undo: NoUndo | None = _LATER,
    ) -> Outcome | None:
        """Remove the files here that the other table has; None if a new plan is needed.

        `no_undo`: why a MOVE back does not undo it, None if it does.

        Raises:
            TableFormatError: this table or the ledger failed.
        """
        moves = {row.key.hash: row.claim.move for row in rows if row.claim.move is not None}
        taken = planned(leave, self.here.partitions, state)
        taken = Plan(tuple(c for c in taken.changes if c.key.hash in moves))
        missing = [row for row in rows if row.key.hash not in {c.key.hash for c in taken.changes}]
        changes = (*taken.changes, *(KeyChange(row.key) for row in missing))
        by_key = {row.key.hash: row for row in rows}
        plan, ordered = Plan(changes, no_undo=no_undo), tuple(by_key[c.key.hash] for c in changes)
        wanted = self.here.landing.commit_of(leave, plan, ordered, ((),) * len(ordered), state)
        once = _OnceThere(leave, self.here, self.there, moves)
        ended = tuple(commit(self.here.ports.commit, wanted, once).values())
        stays = next(
            (
                one.error
                for one in ended
                if isinstance(one, NotSent) and isinstance(one.error, _StaysHereError)
            ),
            None,
        )
        if stays is not None:
            return self._stays(leave, rows, stays)
        return self.here.outcome(leave, plan, ordered, ended)

    def _stays(self, leave: Leave, rows: tuple[Row, ...], why: RefusedError) -> Outcome:
        """Give up a MOVE whose rows cannot be removed here; the outcome tells where they are."""
        ended = _stop(self.here, rows, why.message)
        late = next((one for one in ended if isinstance(one, TooLate)), None)
        if late is not None:
            text = (
                f"an earlier request removed it here in snapshot {late.snapshot_id}, and main of "
                f"{leave.to} may have been changed since. Earlier snapshots have its rows"
            )
            return self.here.report(leave, Status.FAILED, text, late.snapshot_id)
        if not all(isinstance(one, GivenUp | NotUnderWay) for one in ended):
            text = f"it may still be removed here: {ended}. Run it again"
            return self.here.report(leave, Status.UNKNOWN, text)
        return self.here.report(leave, Status.REFUSED, why.message)

    def _has_landed(self, move: MoveIntent) -> bool:
        """Whether the rows are in the other table; if not, no request can add them there later.

        Raises:
            RefusedError: this cannot be determined yet.
            TableFormatError: the other table or the ledger failed.
        """
        ports = self.there.ports.commit
        row = self.there.landing.row_of(move.key)
        if knows(row, move):
            return True
        state = load_table(ports, writes=False)
        if row is not None and row.key.destination != state.layout.table_uuid:
            # The request requires the uuid of a table that was dropped, so it cannot land any more.
            return False
        ended: KillOutcome | None = None
        if (
            row is not None
            and row.state is State.RUNNING
            and row.claim.transaction_id == move.transaction_id
        ):
            why = f"its MOVE was interrupted ({move.table})"
            ended = kill(ports, move.key, state=State.FAILED, why=why)
            if not isinstance(ended, GivenUp | TooLate | NotUnderWay):
                message = (
                    f"Cannot tell yet whether the rows are in {move.table}: {ended}. Run it again."
                )
                raise RefusedError(message)
        if isinstance(ended, TooLate) and knows(ended.row, move):
            return True
        if not isinstance(ended, GivenUp):
            # A commit that `kill` found may be of another transaction, so a request may be under
            # way.
            fence(ports)
        return _is_marked(load_table(ports), move) or knows(
            self.there.landing.row_of(move.key), move
        )


def give_up(
    here: Running,
    leases: Leases,
    leave: Leave,
    why: str,
    name_of: Callable[[str], LakeName | None],
) -> None:
    """Give up a MOVE whose other table no longer exists; no file leaves this table.

    Raises:
        RefusedError: the other table has another name now.
        TableFormatError: this table, the other catalog or the ledger failed.
    """
    rows = _begun(here, leave, load_table(here.ports.commit))
    rows = tuple((row, move) for row, move in rows if move.table == str(leave.to))
    for _, move in rows:
        goes_to = _destination(here, move)
        if goes_to is not None:
            _refuse_renamed(leave, name_of(goes_to))
    if not rows or leases.take_all(tuple(row.key.hash for row, _ in rows)):
        return
    for row, move in rows:
        if knows(here.landing.row_of(move.key), move):
            why = f"{why} Its rows of partition {row.key.partition_id} had been added there"
    _stop(here, _claimed_again(here, rows, leave) or (), why)


def _destination(of: Running, move: MoveIntent) -> str | None:
    """Return the uuid of the table to which a MOVE takes rows; None if its key was forgotten."""
    row = of.landing.row_of(move.key)
    return row.key.destination if row is not None else None


def _refuse_renamed(leave: Leave, name: LakeName | None) -> None:
    """Refuse to end a MOVE with a table that does not have its rows, if another table may.

    Raises:
        RefusedError: the table to which the rows went has another name now.
    """
    if name is None or name == leave.to:
        return
    message = (
        f"Cannot run {leave}: it was begun and is not finished, and the table that its rows went "
        f"to is {name} now. Run {replace(leave, to=name)}, which finishes it or gives it up."
    )
    raise RefusedError(message)


def release_claims(ports: Ports, rows: tuple[Row, ...], why: str) -> None:
    """Release the claims of keys for which a MOVE has sent no request."""
    now = ports.clock()
    ended = tuple(replace(row, state=State.FAILED).noted(why, now) for row in rows)
    ports.effects(Step.GIVE_UP, lambda: ports.ledger.write_all(ended))


_BegunMoves = tuple[tuple[Row, MoveIntent], ...]
"""The ledger rows of keys with an unfinished MOVE, and the destination of each."""


def _begun(here: Running, leave: Leave, state: LakeTableState) -> _BegunMoves:
    membership, of = here.partitions.membership, leave.which.partition_id
    return tuple(
        (row, move)
        for row, move in here.partitions.moving(state, of)
        if membership.is_of(row, of)
        or row.claim.statement == str(replace(leave, to=LakeName.parse(move.table)))
    )


def _claimed_again(here: Running, rows: _BegunMoves, leave: Leave) -> tuple[Row, ...] | None:
    """Claim an interrupted MOVE again, under its transaction; None if another run was faster.

    The claims get the present name of the other table.
    """
    ports = here.ports.commit
    epoch = ports.ledger.next_epoch(len(rows))
    again = tuple(
        replace(
            row,
            claim=replace(
                row.claim,
                epoch=epoch + number,
                statement=str(leave),
                move=replace(move, table=str(leave.to)),
            ),
            updated=ports.clock(),
        )
        for number, (row, move) in enumerate(rows)
    )
    written = ports.effects(Step.CLAIM, lambda: ports.ledger.write_all(again))
    claims = tuple(row for row in written if isinstance(row, Row))
    return claims if len(claims) == len(again) else None


def _stop(here: Running, rows: tuple[Row, ...], why: str) -> tuple[KillOutcome, ...]:
    """Give up the claims of keys, once no request for them can land any more."""
    here.ports.note(why)
    return tuple(
        kill(here.ports.commit, row.key.hash, state=State.FAILED, why=why, ends_move=True)
        for row in rows
    )


def knows(row: Row | None, move: MoveIntent) -> bool:
    """Whether the ledger records that the rows of a MOVE have landed."""
    landed = row.landed if row is not None else ()
    return any(x.transaction_id == move.transaction_id for x in landed)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A planned MOVE with the claims of its keys, for both tables.

    `added` has no change if the other table already has the same export.
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
    """Step 6 of the commit there: this table is as planned, and this run still has its claims."""

    there: AsPlanned
    here: Running
    begun: _Begun
    seen: str = ""

    def leaving(self, state: LakeTableState, key: str) -> Leaving:
        """Return the files of a key that leave main of the other table: none.

        Raises:
            RefusedError: one of the tables differs from the plan, or another run has claimed keys
                here.
            TableFormatError: a table or the ledger cannot be read.
        """
        for row in self.begun.rows_here:
            now = self.here.landing.row_of(row.key.hash)
            if now is None or (now.claim.epoch, now.state) != (row.claim.epoch, State.RUNNING):
                message = (
                    f"Cannot continue {self.begun.leave}: another run has claimed the partition."
                )
                raise RefusedError(message)
        here = load_table(self.here.ports.commit)
        if here.metadata_location != self.seen:
            if planned(self.begun.leave, self.here.partitions, here) != self.begun.taken:
                message = f"Cannot continue {self.begun.leave}: the partition was changed here."
                raise PlannedForAnotherError(message)
            self.seen = here.metadata_location
        return self.there.leaving(state, key)


@dataclass(frozen=True, slots=True)
class Moving:
    """Moves partitions from one lake table to another, under one ledger.

    `copies` returns a function that copies files from a state of this table to a state of the
    other. `check` refuses states between which no partition can be moved, `check_back` those from
    which none can be moved back. `check_file` refuses a file of an earlier partition spec that fits
    no partition of the other table. `name_of` returns the present name of the lake table with a
    uuid, None if the other catalog has none.
    """

    here: Running
    there: Running
    copies: Callable[[LakeTableState, LakeTableState], Copies]
    check: Callable[[LakeTableState, LakeTableState], None]
    check_file: Callable[[LakeTableState, LakeTableState, BranchFile], object]
    name_of: Callable[[str], LakeName | None]
    check_back: Callable[[LakeTableState, LakeTableState], None] = lambda *_: None

    def run(self, which: OnePartition) -> Outcome:
        """Move a partition; return its outcome.

        Raises:
            RefusedError: it cannot be moved between these tables; nothing was changed.
            TableFormatError: a table or the ledger failed before anything was claimed.
        """
        leave = Leave(which, self.there.name)
        what = f"{leave} on {self.here.name}"
        return in_turns(self.here.ports, what, partial(self._turn, leave))

    def forecast(self, which: OnePartition) -> Outcome:
        """Return the outcome that the MOVE would have now; change nothing (`--dry-run`).

        Raises:
            RefusedError: it cannot be moved, or an interrupted run did not finish it.
            TableFormatError: a table or the ledger cannot be read.
        """
        here = load_table(self.here.ports.commit)
        there = load_table(self.there.ports.commit)
        leave = Leave(which, self.there.name)
        self.here.landing.refuse_moving(which, here)
        taken = self._taken(leave, here, there)
        if not taken.changes:
            return nothing_done(leave, taken, self.here.name)
        added, before = self._added(self._copy(which, here, there), there)
        no_undo = self._no_undo(leave, taken, (here, there), added, before)
        return forecast(which, leave.did, replace(taken, no_undo=no_undo), self.here.name)

    def _added(self, copy: CopyFrom, there: LakeTableState) -> tuple[Plan, PartitionFiles]:
        """Return what comes to the other table, and the files of the partition there before."""
        before = files_of(copy, self.there.partitions, there)
        return planned_on(copy, before, there), before

    def _no_undo(
        self,
        leave: Leave,
        taken: Plan,
        states: tuple[LakeTableState, LakeTableState],
        added: Plan,
        before: PartitionFiles,
    ) -> NoUndo | None:
        """Return why a MOVE back does not undo the MOVE, None if it does."""
        here, there = states
        try:
            self.check_back(there, here)
        except RefusedError:
            return NoUndo("the tables differ, and a MOVE back is refused")
        return not_moved_back(taken, files_of(leave, self.here.partitions, here), before, added)

    def _copy(self, which: OnePartition, here: LakeTableState, there: LakeTableState) -> CopyFrom:
        check = partial(self.check_file, here, there)
        other = other_table(here, self.here.partitions, which, check)
        return CopyFrom(which, other, replaces=False, moves=True)

    def _turn(self, leave: Leave, leases: Leases) -> Outcome | None:
        """Claim and move; None if the tables changed meanwhile and a new plan is needed."""
        ended = EndingMoves(self.here, self.there, leases, self.name_of).end(leave)
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
            release_claims(self.here.ports.commit, begun.rows_here, "")
            return None
        return EndingMoves(self.here, self.there, leases, self.name_of).take(
            leave, begun.rows_here, begun.states[0], begun.taken.no_undo
        )

    def _begun(self, leave: Leave, leases: Leases) -> _Begun | Outcome | None:
        """Plan both sides and claim their keys.

        Return the outcome if nothing can be moved, None if a new plan is needed.
        """
        which = leave.which
        here, there = (load_table(side.ports.commit) for side in (self.here, self.there))
        left = self.here.landing.settle_left(which, here, leases)
        if self.there.landing.settle_left(which, there, leases) or left:
            return None
        self.there.landing.refuse_moving(which, there)
        taken = self._taken(leave, here, there)
        if not taken.changes:
            return nothing_done(leave, taken, self.here.name)
        copy = self._copy(which, here, there)
        added, before = self._added(copy, there)
        no_undo = self._no_undo(leave, taken, (here, there), added, before)
        leaves = tuple(file.path for change in taken.changes for file in change.leaves)
        stage_once(self.here.ports.commit, here, leaves)
        goes = {c.key.hash: _key_there(c.key, here, there) for c in taken.changes}
        held = leases.take_all(tuple(dict.fromkeys((*goes, *goes.values()))))
        if held:
            return self.here.report(leave, Status.IN_PROGRESS, works_on_it(held))
        rows_there = self.there.landing.claim(copy, added, there)
        if rows_there is None:
            return None
        moves = self._intents(taken, goes, rows_there)
        rows = replace(self.here.landing, moves=moves).claim(leave, taken, here)
        if rows is None:
            return None
        # A request of an earlier run could land after the copy, which would then be out of date.
        if any(not claim.given_up for row in rows for claim in row.old):
            fence(self.here.ports.commit)
        taken = replace(taken, no_undo=no_undo)
        return _Begun(leave, copy, (here, there), taken, added, rows, rows_there)

    def _taken(self, leave: Leave, here: LakeTableState, there: LakeTableState) -> Plan:
        """Return what leaves this table; nothing does if it is the other table."""
        if here.layout.table_uuid == there.layout.table_uuid:
            return plan_of_itself(files_of(leave, self.here.partitions, here), leave.to)
        self.check(here, there)
        return planned(leave, self.here.partitions, here)

    def _intents(
        self, taken: Plan, goes: Mapping[str, str], rows_there: tuple[Row, ...]
    ) -> Mapping[str, MoveIntent]:
        """Return the destination of each key: a claim there, or an export that has landed there."""
        brings = {row.key.hash: row.claim.transaction_id for row in rows_there}
        return {
            one.key.hash: MoveIntent(
                there := goes[one.key.hash],
                brings.get(there) or self._landed(there),
                str(self.there.name),
                _digest_of_paths(f.path for f in one.leaves),
            )
            for one in taken.changes
        }

    def _landed(self, key: str) -> str:
        row = self.there.landing.row_of(key)
        if row is None or row.done is None:
            message = (
                f"Cannot find what brings the rows of key {key}. This is a bug, please report it."
            )
            raise InternalError(message)
        return row.done.landed.transaction_id

    def _is_as_planned(self, begun: _Begun) -> bool:
        """Whether the other table has the planned rows, and not another export of the same content.

        If nothing had to be added, this table must be as planned, too.
        """
        moves = (row.claim.move for row in begun.rows_here)
        if not all(knows(self.there.landing.row_of(m.key), m) for m in moves if m is not None):
            return False
        if begun.added.changes:
            return True
        here = load_table(self.here.ports.commit)
        return planned(begun.leave, self.here.partitions, here) == begun.taken

    def _add(self, begun: _Begun) -> Outcome | None:
        """Copy the files and commit the copies; give up if they certainly do not land.

        Return the outcome, None if a new plan is needed.
        """
        landing = self.there.landing
        try:
            copies = self.copies(*begun.states)
            landing = replace(landing, ports=replace(landing.ports, writer=FileCopier(copies)))
            receipts = landing.written(begun.rows_there, begun.added, begun.states[1])
            rows = landing.noted(begun.rows_there, begun.added, receipts)
        except TableFormatError as error:
            landing.note_error(begun.rows_there, error.message)
            release_claims(self.here.ports.commit, begun.rows_here, error.message)
            outcome = self.here.report(begun.leave, Status.FAILED, error.message)
            return replace(outcome, code=error.code)
        if rows is None:
            release_claims(self.here.ports.commit, begun.rows_here, "")
            return None
        wanted = landing.commit_of(begun.copy, begun.added, rows, receipts, begun.states[1])
        as_planned = AsPlanned(begun.copy, self.there.partitions, begun.added)
        guarded = _WhileHere(as_planned, self.here, begun)
        ended = commit(self.there.ports.commit, wanted, guarded)
        made = self.there.outcome(begun.copy, begun.added, rows, tuple(ended.values()))
        if made is None or made.status is Status.FAILED:
            why = "" if made is None else made.message
            release_claims(self.here.ports.commit, begun.rows_here, why)
            landing.release_claims(rows, why)
        return None if made is None else replace(made, table=str(self.here.name))


def _key_there(key: Key, here: LakeTableState, there: LakeTableState) -> str:
    """Return the hash of a key in the other table; foreign files have one key there."""
    uuid = here.layout.table_uuid
    own = key if key.stays else Key.of_lake(uuid, key.partition_id, uuid)
    return own.at(there.layout.table_uuid).hash

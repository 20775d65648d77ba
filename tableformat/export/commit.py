"""Runs the commit protocol for written partitions (job step 3 of 3: plan -> write -> commit).

The steps have the numbers of docs/spec/commit-protocol.md:

    2 load the metadata M -> 3 check that the table belongs to this ledger -> for each key: 4 read
    the ledger row, after M -> 5 check whether the export has landed -> 6 compute from M the
    files that leave main -> 7 stage and send one request for all keys -> 8 settle each key
    in the ledger

* M is loaded before the ledger is read; the proof depends on this order (docs/spec/model).
* Every response except a success leaves the result unknown: the protocol loads M again and checks.
* Step 6 is computed from M in every turn. For an export it removes the files of all exports of
  the key, or the whole lake partition; for an export of new parts it removes none. For a statement
  on the lake table it removes the planned files.
* The module deletes only the manifests of its own expired attempts.
* The job claims the keys (step 1) before it calls this module.

`first_snapshot`, `fence` and `send_empty` commit without files and marks: the first snapshot, the
fence, a change of the ledger. After each of them no request that was staged earlier can be applied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Final, Protocol, Self, assert_never

from tableformat.committer import (
    Append,
    AppendAlongside,
    Attach,
    ByStatement,
    Commit,
    CommitOutcome,
    Committed,
    Conflicted,
    KeyCommit,
    LakeTable,
    LakeTableState,
    Layout,
    Leaving,
    NotSent,
    ReplaceOwn,
    ReplacePartition,
    Sent,
    Staged,
    Superseded,
    Unknown,
)
from tableformat.effects import Effects, Step
from tableformat.errors import (
    DestinationError,
    InternalError,
    RefusedError,
    TableFormatError,
)
from tableformat.export.archived import later_in_main, refuse_archived
from tableformat.export.decision import check_stays, settled, shrinks, there_twice
from tableformat.export.foreign_rows import (
    OwnKeys,
    WholePartitions,
    are_copied_back,
    leaving_of,
    may_append,
    no_lake_partition,
    paths_with_rows,
    refuse_foreign,
    refuse_hidden,
)
from tableformat.export.main_state import (
    Holding,
    Kind,
    claim_of_mark,
    holding,
    landed_from,
    landed_mark,
    unsettled_mark,
)
from tableformat.iceberg.properties import refuse_version
from tableformat.ledger import Claim, Key, Landed, Ledger, Row, Stale, State
from tableformat.messages import Command, Option
from tableformat.storage import Storage
from tableformat.table_properties import LEDGER_PROPERTY, Mark

__all__ = [
    "LeavingMain",
    "Pause",
    "Planned",
    "Ports",
    "check_table_of_ledger",
    "commit",
    "discard_abandoned_attempts",
    "fence",
    "first_snapshot",
    "held_in_main",
    "later_held",
    "load_table",
    "note_overwritten_mark",
    "send_empty",
    "settle",
    "settle_again",
    "settle_all",
    "settle_mark",
    "unsettled_mark",
]


class Pause(Protocol):
    """Waits before attempt number `attempt` (from 1): back-off with jitter."""

    def __call__(self, attempt: int, /) -> None:
        """Wait."""
        ...


def _none(_state: LakeTableState, _keys: tuple[KeyCommit, ...]) -> None:
    """Return None: the watermark does not change."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The table, ledger and storage that the protocol acts on, all through `effects`.

    `clock` returns milliseconds since 1970. `storage` opens the storage of a location; without it
    `ReplacePartition` is an internal error. `watermark` computes `Commit.watermark` from M.
    """

    effects: Effects
    table: LakeTable
    ledger: Ledger
    clock: Callable[[], int]
    pause: Pause
    most_attempts: int = 20
    storage: Callable[[str], Storage] | None = None
    watermark: Callable[[LakeTableState, tuple[KeyCommit, ...]], tuple[str, str] | None] = _none


def settle(ports: Ports, row: Row, landed: Landed, claim: Claim) -> Row | Stale:
    """Write COMPLETED to the ledger, by compare-and-set on the row that was read (step 8).

    Raises:
        LedgerError: the ledger cannot be written.
    """
    after = settled(row, landed, claim, ports.clock())
    return ports.effects(Step.SETTLE, partial(ports.ledger.write, after))


def settle_all(ports: Ports, landed: tuple[tuple[Row, Landed], ...]) -> tuple[Row | Stale, ...]:
    """Write COMPLETED for all keys of one snapshot, each with the claim of its row (step 8).

    Raises:
        LedgerError: the ledger cannot be written.
    """
    now = ports.clock()
    after = tuple(settled(row, one, row.claim, now) for row, one in landed)
    return ports.effects(Step.SETTLE, partial(ports.ledger.write_all, after))


def settle_again(ports: Ports, row: Row, landed: Landed) -> Row | Stale:
    """Write COMPLETED again if the row has changed but its claim has not.

    A process that cleans up after abandoned exports of the key changes the row without a claim.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    now = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, row.key.hash))
    if now is None or now.state is not State.RUNNING or now.claim.epoch != row.claim.epoch:
        return Stale(None if now is None else now.version)
    return settle(ports, now, landed, now.claim)


def settle_mark(ports: Ports, row: Row, state: LakeTableState, mark: Mark) -> Row | Stale:
    """Settle the export that a mark proves, with its own figures (step 8).

    The row's claim may be a later one, with the figures and parts of other files. If the row is
    claimed by an unfinished MOVE, that claim stays and the landed export is only noted, so that no
    export bypasses the MOVE.

    Raises:
        LedgerError: the ledger cannot be written.
    """
    claim = claim_of_mark(row, state, mark)
    landed = landed_from(mark, state, claim)
    if row.move is not None and row.claim.transaction_id != mark.transaction_id:
        noted = replace(row.with_landed(landed), updated=ports.clock())
        return ports.effects(Step.NOTE_LANDED, partial(ports.ledger.write, noted))
    return settle(ports, row, landed, claim)


def note_overwritten_mark(
    ports: Ports, row: Row, state: LakeTableState, key: KeyCommit
) -> Row | None:
    """Note a landed export that only its mark knows, before the mark is overwritten.

    The ledger would miss it otherwise (docs/spec/model/results.md, `h-mark-overwritten`).

    Returns:
        The current row; None if another process changed the row, so that the turn starts again.

    Raises:
        LedgerError: the ledger cannot be written.
    """
    mark = state.mark(key.key)
    if mark is None or row.knows(mark.snapshot_id):
        return row
    landed = landed_from(mark, state, claim_of_mark(row, state, mark))
    noted = replace(row.with_landed(landed), updated=ports.clock())
    written = ports.effects(Step.NOTE_LANDED, partial(ports.ledger.write, noted))
    return None if isinstance(written, Stale) else written


def check_table_of_ledger(state: LakeTableState, ledger: Ledger) -> None:
    """Refuse a table of another ledger, or one that carries a later epoch than the ledger (step 3).

    Without this check a lost or restored ledger exports everything again.

    Raises:
        RefusedError: the ledger is another one, or was restored from an older copy.
    """
    found = state.properties.get(LEDGER_PROPERTY)
    if found is not None and not (ledger.is_made() and found == ledger.identity):
        this = f"this one is {ledger.identity}" if ledger.is_made() else "this one does not exist"
        message = (
            f"Cannot use the ledger {ledger.uri} here: the table was exported to with another "
            f"ledger ({found}, {this}). Give that one with {Option.LEDGER}, or, when it is lost, "
            f"rebuild it from the table with {Command.REBUILD}."
        )
        raise RefusedError(message)
    highest = ledger.highest_epoch()
    if state.highest_epoch > highest:
        message = (
            f"Cannot use the ledger {ledger.uri} here: the table carries epoch "
            f"{state.highest_epoch}, the ledger's highest epoch is {highest}, so it was restored "
            "from an older copy. Use the newer ledger."
        )
        raise RefusedError(message)


def load_table(ports: Ports, *, writes: bool = True) -> LakeTableState:
    """Load M, and check that it belongs to this ledger and is not older than it (steps 2 and 3).

    The sequence number is compared with the highest one of all keys of the table: an export onto
    metadata that was put back is lost when the newer metadata file is restored.

    Args:
        ports: what to act on.
        writes: whether the caller may stage a snapshot on M, for which its version must fit.

    Raises:
        RefusedError: the table belongs to another ledger, its sequence number has gone back, so
            that it proves nothing any more, or its format version is not written.
        DestinationError: the table cannot be loaded.
        LedgerError: the ledger cannot be read.
    """
    state = ports.effects(Step.LOAD_METADATA, ports.table.load)
    check_table_of_ledger(state, ports.ledger)
    known = ports.ledger.highest_landed(state.layout.table_uuid)
    if known > state.last_sequence_number:
        # It may have landed since M was loaded.
        state = ports.effects(Step.LOAD_METADATA, ports.table.load)
        check_table_of_ledger(state, ports.ledger)
    if known > state.last_sequence_number:
        message = (
            f"Cannot commit: the ledger knows an export that landed with sequence number {known}, "
            f"the table has {state.last_sequence_number}; the table's metadata was put back to an "
            "older file. Restore the newer metadata."
        )
        raise RefusedError(message)
    if writes:
        refuse_version(state)
    return state


def send_empty(
    ports: Ports,
    state: LakeTableState,
    why: str,
    *,
    step: Step = Step.SEND,
    remove_marks: tuple[str, ...] = (),
) -> tuple[Staged, Sent]:
    """Stage an empty append on M and send it once; like every commit it sets the ledger's identity.

    Args:
        ports: what to act on.
        state: M.
        why: a word for the snapshot's summary, `mergeberg.<why>`.
        step: the effect under which it is sent.
        remove_marks: keys whose marks the commit removes.
    """
    empty = Commit(
        (),
        state.layout,
        ports.ledger.identity,
        ((f"mergeberg.{why}", "1"),),
        ports.ledger.next_epoch(),
    )
    staged = ports.effects(Step.STAGE, partial(ports.table.stage, state, empty))
    return staged, ports.effects(
        step, partial(ports.table.send, state, staged, empty, remove_marks)
    )


def first_snapshot(ports: Ports, check_layout: Callable[[LakeTableState], None]) -> LakeTableState:
    """Give a table that has none its first, empty snapshot, without a mark (step 0).

    The fence does not protect against an export that was staged without a parent.

    Args:
        ports: what to act on.
        check_layout: checks a loaded state before anything is written; raises if the table cannot
            be used.

    Raises:
        RefusedError: the table belongs to another ledger, or the catalog confirmed no attempt.
    """
    for attempt in range(1, ports.most_attempts + 1):
        state = ports.effects(Step.LOAD_METADATA, ports.table.load)
        check_table_of_ledger(state, ports.ledger)
        check_layout(state)
        if state.main is not None:
            return state
        send_empty(ports, state, "first", step=Step.FIRST_SNAPSHOT)
        if attempt > 1:
            ports.pause(attempt)
    message = (
        "Cannot give the table its first snapshot: the catalog confirmed none of the attempts. "
        "Run it again."
    )
    raise RefusedError(message)


def fence(ports: Ports) -> LakeTableState:
    """Commit an empty snapshot, after which no request staged until now can land; return the new M.

    No process that was superseded before this call can commit any more.

    Raises:
        RefusedError: the catalog confirmed none of the attempts.
    """
    state = load_table(ports)
    first = state.last_sequence_number
    for attempt in range(1, ports.most_attempts + 1):
        send_empty(ports, state, "fence")
        state = load_table(ports)
        if state.last_sequence_number > first:
            return state
        ports.pause(attempt)
    message = (
        "Cannot make sure that no earlier request lands later: the catalog confirmed none of "
        f"{ports.most_attempts} empty commits. Run it again."
    )
    raise RefusedError(message)


def held_in_main(ports: Ports, row: Row | None, state: LakeTableState, key: str) -> Holding:
    """Return the files and exports of a key that main holds (step 6)."""
    return holding(row, state, key, ports.table)


def later_held(ports: Ports, row: Row | None, state: LakeTableState) -> str:
    """Return why a key is not exported while main has later rows of it, '' if it is."""
    return later_in_main(
        lambda key: ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, key)),
        row,
        lambda one: held_in_main(ports, one, state, one.key.hash),
    )


class Planned(Protocol):
    """Step 6 of a statement on the lake table: it planned its files before it claimed the keys.

    All its keys land, or none of them does (decision 0013).
    """

    def leaving(self, state: LakeTableState, key: str) -> Leaving:
        """Return the files that leave main for a key.

        Raises:
            RefusedError: M differs from the state for which the plan was made.
            DestinationError: main cannot be read.
            LedgerError: the ledger cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class LeavingMain:
    """Computes which files leave main for each key of one commit (step 6)."""

    ports: Ports
    own: OwnKeys
    whole: WholePartitions | None
    planned: Planned | None

    @classmethod
    def of(cls, ports: Ports, table_uuid: str, planned: Planned | None) -> Self:
        """Return it for a table; `planned` is the plan of a statement, None for an export."""
        own = OwnKeys(ports.ledger, table_uuid)
        if ports.storage is None:
            return cls(ports, own, None, planned)
        whole = WholePartitions(ports.effects, ports.table, ports.ledger, own, ports.storage)
        return cls(ports, own, whole, planned)

    def __call__(self, row: Row, state: LakeTableState, key: KeyCommit) -> Leaving:
        """Return the files that must leave main for a key, and the current snapshot of main.

        Raises:
            RefusedError: as `_leaving`.
        """
        leaves = replace(self._leaving(row, state, key), before=state.main)
        if self.planned is not None or not leaves.paths or state.tree:
            return leaves
        back = are_copied_back(self.ports.table, state, key.receipts, self.own, leaves)
        return replace(leaves, copied_back=back)

    def _leaving(self, row: Row, state: LakeTableState, key: KeyCommit) -> Leaving:
        """Return the files that must leave main for a key.

        Raises:
            RefusedError: the key is archived; the place of its rows is unknown; more rows would
                leave than enter; the lake partition has files of other writers; a whole partition
                cannot be replaced; or M differs from the state for which the plan was made.
        """
        before = self._archived_before(row.key) if row.key.increment and key.receipts else ()
        if self.planned is not None:
            return self.planned.leaving(state, key.key)
        if row.archived is not None:
            message = f"Cannot commit: {refuse_archived(row, 0, 0)}."
            raise RefusedError(message)
        if why := later_held(self.ports, row, state):
            message = f"Cannot commit: {why}. Nothing was changed."
            raise RefusedError(message)
        held = held_in_main(self.ports, row, state, key.key)
        match key.change:
            case ReplacePartition():
                return self._all(state, key, held)
            case Attach():
                _refuse_uncertain(held)
                if held.files:
                    message = f"Cannot attach: {there_twice(held)} Nothing was changed."
                    raise RefusedError(message)
                self._refuse_hidden(row, state, key, held)
                return Leaving()
            case Append() | AppendAlongside() | ReplaceOwn() as change:
                if row.claim.stays:
                    check_stays(row.claim.stays, held)
                    return Leaving()
                return self._of_key(state, key, change, held, before)
            case ByStatement():
                message = "A statement on the lake table commits without its plan."
                raise InternalError(f"{message} This is a bug, please report it.")
            case never:
                assert_never(never)

    def _refuse_hidden(
        self, row: Row, state: LakeTableState, key: KeyCommit, held: Holding
    ) -> None:
        """Refuse to attach rows that files of other writers in main may have.

        Raises:
            RefusedError: they may have them.
        """
        first = key.receipts[0] if key.receipts else None
        # Partition values of another spec have another meaning; `_turn` refuses such a table.
        if first is not None and first.spec_id == state.layout.spec_id:
            ports = self.ports
            refuse_hidden(
                ports.effects, ports.table, ports.ledger, state, first.partition, row.key, held
            )

    def _archived_before(self, key: Key) -> tuple[Row, ...]:
        """Return the archived rows of the partition before late rows with this key.

        Raises:
            RefusedError: an export may replace one of them, and may have the same rows.
        """
        hashes = tuple(replace(key, increment=number).hash for number in range(key.increment))
        found = self.ports.effects(Step.READ_LEDGER, partial(self.ports.ledger.read_all, hashes))
        # A statement that brings both marks the rows before as archived when they have landed.
        rows = tuple(row for row in found if row is not None and _stays_archived(row))
        if len(rows) < key.increment:
            message = (
                f"Cannot commit: these rows arrived in partition {key.partition_id} after it was "
                "archived, and the rows before them are not archived any more: an export of the "
                "partition may have both. Nothing was changed. Run it again."
            )
            raise RefusedError(message)
        return rows

    def _of_key(
        self,
        state: LakeTableState,
        key: KeyCommit,
        change: Append | AppendAlongside | ReplaceOwn,
        held: Holding,
        before: tuple[Row, ...],
    ) -> Leaving:
        """Return the key's own files in main, which an export replaces.

        `before` are the archived rows of the same partition.
        """
        may_shrink = isinstance(change, ReplaceOwn)
        if not (held.kind is Kind.LEFT and may_shrink):
            _refuse_uncertain(held)
        rows = sum(r.rows for r in key.receipts)
        if rows < held.rows and not may_shrink:
            message = f"Cannot commit: {shrinks(held.rows, rows)} Nothing was changed."
            raise RefusedError(message)
        if key.receipts and not may_append(held, change):
            first, older = key.receipts[0], isinstance(change, AppendAlongside)
            # Partition values of another spec have another meaning; `_turn` refuses such a table.
            if first.spec_id == state.layout.spec_id:
                of_each = (held_in_main(self.ports, one, state, one.key.hash) for one in before)
                there = self.ports.table, state, first.partition, self.own, held
                refuse_foreign(*there, paths_with_rows(of_each), allows_older=older)
        return leaving_of(held)

    def _all(self, state: LakeTableState, key: KeyCommit, held: Holding) -> Leaving:
        """Return all files of the key's lake partition; the new files may have fewer rows."""
        if self.whole is None:
            message = "A whole lake partition is to be replaced, and nothing can read its receipts."
            raise InternalError(f"{message} This is a bug, please report it.")
        if not key.receipts:
            raise no_lake_partition()
        first = key.receipts[0]
        if first.spec_id != state.layout.spec_id:
            # Partition values of another spec have another meaning; `_turn` refuses such a table.
            return leaving_of(held)
        return self.whole.leaving(state, key.key, first.partition, held)


def _stays_archived(row: Row) -> bool:
    """Whether no export may begin to replace the rows of a key."""
    if row.archived is None:
        return row.claim.archived_since > 0
    return not row.archived.is_ending


def _refuse_uncertain(held: Holding) -> None:
    """Refuse a commit if it is uncertain which rows of the key main has."""
    if not held.is_certain:
        message = f"Cannot commit: {held.text} Rows could be there twice. Nothing was changed."
        raise RefusedError(message)


_MOST_FENCES: Final = 5


@dataclass(frozen=True, slots=True)
class _Ready:
    """A key for the next attempt, with its row and the files that must leave main for it."""

    key: KeyCommit
    row: Row
    leaves: Leaving


@dataclass(slots=True)
class _Progress:
    """The progress of a commit: the keys without an outcome, and every attempt before it is sent.

    `leaves` has the files that leave main in an attempt, by snapshot and key. `refused` has the
    reasons for which keys cannot land on this M. `fences` are the empty commits that were sent so
    that no earlier attempt can land.
    """

    open: dict[str, KeyCommit]
    leaving: LeavingMain
    outcomes: dict[str, CommitOutcome] = field(default_factory=dict)
    attempts: list[Staged] = field(default_factory=list)
    leaves: dict[tuple[int, str], Leaving] = field(default_factory=dict)
    refused: dict[str, RefusedError] = field(default_factory=dict)
    fences: list[Staged] = field(default_factory=list)
    evidence: str = "no response yet"

    def end(self, key: str, outcome: CommitOutcome) -> None:
        self.outcomes[key] = outcome
        del self.open[key]

    def end_all(self, outcome: CommitOutcome) -> None:
        for key in tuple(self.open):
            self.end(key, outcome)


def commit(
    ports: Ports, wanted: Commit, planned: Planned | None = None
) -> dict[str, CommitOutcome]:
    """Make a commit visible exactly once: all its keys in one snapshot.

    A key that was superseded, has already landed or is refused leaves the commit. The other keys
    continue, except in a statement with a plan (`planned`): it lands whole or not at all.

    Returns:
        By key, Committed, Conflicted, Superseded, NotSent or Unknown. The ledger rows have the same
        outcome, or will have it after the next run. No TableFormatError is raised.
    """
    leaving = LeavingMain.of(ports, wanted.layout.table_uuid, planned)
    progress = _Progress({k.key: k for k in wanted.keys}, leaving)
    try:
        while progress.open:
            _turn(ports, wanted, progress)
    except TableFormatError as error:
        # Without a request nothing can land; after one it may have landed.
        progress.end_all(
            Unknown(f"a request was sent, and then: {error}")
            if progress.attempts
            else NotSent(error)
        )
    with contextlib.suppress(DestinationError):
        discard_abandoned_attempts(ports, progress.fences)
    return progress.outcomes


def _turn(ports: Ports, wanted: Commit, progress: _Progress) -> None:
    """Load M, check every open key, and send one request for those that remain."""
    state = load_table(ports, writes=False)
    keys = tuple(progress.open.values())
    hashes = tuple(k.key for k in keys)
    rows = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read_all, hashes))
    found = zip(keys, rows, strict=True)
    ready = [r for k, row in found if (r := _look(ports, state, k, row, progress))]
    if progress.open:
        # Only now: an export that has landed is settled on a table of every version.
        refuse_version(state)
    is_planned = progress.leaving.planned is not None
    if is_planned and not any(one.receipts for one in wanted.keys):
        # The statement wrote no file for this layout, so only the table's uuid must stay.
        wanted = replace(wanted, layout=replace(state.layout, table_uuid=wanted.layout.table_uuid))
    if is_planned and _fenced(ports, state, wanted, progress):
        return
    while progress.refused:
        key, refusal = progress.refused.popitem()
        # M has no mark of ours: an attempt whose number M has passed did not land and cannot land.
        progress.end(key, _refused(refusal, state, progress.attempts))
    if is_planned and (stopped := _stopped(progress)):
        progress.end_all(_not_without(stopped, state, progress.attempts))
        return
    if len(ready) < len(progress.open) or not ready:
        # A row changed between two reads: the next turn checks everything on a newer M.
        return
    if state.layout != wanted.layout:
        progress.end_all(_layout_changed(state, wanted, progress.attempts))
        return
    if len(progress.attempts) >= ports.most_attempts:
        text = f"{len(progress.attempts)} requests were sent, and none was confirmed"
        progress.end_all(Unknown(f"{text}; the last: {progress.evidence}"))
        return
    staged, error = _stage_and_send(ports, state, wanted, tuple(ready), progress)
    if error is None:
        for key, outcome in _settle_own(ports, ready, staged, len(progress.attempts)):
            progress.end(key, outcome)
        # The commit has landed, also if the manifests of the other attempts cannot be deleted.
        with contextlib.suppress(DestinationError):
            discard_abandoned_attempts(ports, (a for a in progress.attempts if a is not staged))
        return
    progress.evidence = error
    ports.pause(len(progress.attempts))


def _look(
    ports: Ports, state: LakeTableState, key: KeyCommit, row: Row | None, progress: _Progress
) -> _Ready | None:
    """Run steps 4 to 6 for one key; None if it now has an outcome, or needs another turn."""
    gone = _superseded(row, state, key)
    if gone or row is None:
        progress.end(key.key, Superseded(gone, may_land=_may_land(state, progress.attempts)))
        return None
    if mark := landed_mark(row, state, key):
        progress.end(key.key, _settle_landed(ports, row, state, mark, progress))
        return None
    noted = note_overwritten_mark(ports, row, state, key)
    if noted is None:
        return None
    try:
        return _Ready(key, noted, progress.leaving(noted, state, key))
    except RefusedError as error:
        progress.refused[key.key] = error
        return None


def _fenced(ports: Ports, state: LakeTableState, wanted: Commit, progress: _Progress) -> bool:
    """Send an empty commit if a plan cannot land on M and one of its requests may land later.

    The next turn checks everything again; its outcome is then certain.
    """
    is_this = state.layout.table_uuid == wanted.layout.table_uuid
    is_at_end = progress.refused or state.layout != wanted.layout
    may_land = len(progress.fences) < _MOST_FENCES and _may_land(state, progress.attempts)
    if not (is_this and is_at_end and may_land):
        return False
    progress.refused.clear()
    staged, sent = send_empty(ports, state, "fence")
    progress.fences.append(staged)
    if not sent.applied:
        ports.pause(len(progress.fences))
    return True


def _refused(
    error: RefusedError, state: LakeTableState, attempts: list[Staged]
) -> NotSent | Unknown:
    """Return the outcome of a refused key: `NotSent` only if no earlier request can land."""
    if _may_land(state, attempts):
        return Unknown(f"a request was sent, and then: {error}")
    return NotSent(error)


def _may_land(state: LakeTableState, attempts: list[Staged]) -> bool:
    """Whether a request that was sent may still be applied."""
    return any(state.last_sequence_number < a.sequence_number for a in attempts)


def _stopped(progress: _Progress) -> CommitOutcome | None:
    """Return the outcome that stops a statement: that of a key that does not land."""
    ended = (o for o in progress.outcomes.values() if not isinstance(o, Committed))
    return next(ended, None) if progress.open else None


def _not_without(
    why: CommitOutcome, state: LakeTableState, attempts: list[Staged]
) -> NotSent | Unknown:
    """Return the outcome of the other keys of a statement, all of which land or none."""
    text = why.by if isinstance(why, Superseded | Conflicted) else "it cannot be committed"
    message = f"Cannot change a part of the lake partition alone: {text}. Run it again."
    return _refused(RefusedError(message), state, attempts)


def _superseded(row: Row | None, state: LakeTableState, key: KeyCommit) -> str:
    """Return the text on the process that claimed the key since, '' if none did (step 4)."""
    mark = state.mark(key.key)
    if mark is not None and mark.epoch > key.epoch:
        return f"epoch {mark.epoch} of the same partition has landed in snapshot {mark.snapshot_id}"
    if row is None:
        return (
            "the partition was forgotten (FORGET PARTITION): the ledger has no row of it any more"
        )
    if row.claim.epoch != key.epoch or row.state is not State.RUNNING:
        return (
            f"the ledger has the partition at epoch {row.claim.epoch} ({row.state}), this run is "
            f"epoch {key.epoch}"
        )
    return ""


def _settle_own(
    ports: Ports, ready: list[_Ready], staged: Staged, attempts: int
) -> Iterator[tuple[str, CommitOutcome]]:
    """Settle all keys of a request that the catalog confirmed (step 8)."""
    landed = tuple((one.row, _landed(one, staged)) for one in ready)
    try:
        after = tuple(
            settle_again(ports, row, own) if isinstance(written, Stale) else written
            for (row, own), written in zip(landed, settle_all(ports, landed), strict=True)
        )
    except TableFormatError as error:
        text = f"it landed in snapshot {staged.snapshot_id}, and then: {error}"
        yield from ((one.key.key, Unknown(text)) for one in ready)
        return
    for one, (_, own), row in zip(ready, landed, after, strict=True):
        if isinstance(row, Stale):
            yield one.key.key, _taken_over(staged.snapshot_id)
        else:
            yield one.key.key, _committed(own, attempts, one.leaves, in_main=True)


def _landed(one: _Ready, staged: Staged) -> Landed:
    key, claim = one.key, one.row.claim
    return Landed(
        key.epoch, key.transaction_id, key.fingerprint, staged.snapshot_id, staged.sequence_number,
        claim.rows, claim.data_files, claim.statement, claim.holds,
        claim.move.table if claim.move else "", claim.kind,
    )  # fmt: skip


def _committed(landed: Landed, attempts: int, leaves: Leaving, *, in_main: bool) -> Committed:
    return Committed(landed.snapshot_id, landed.epoch, attempts, in_main, leaves)


def _settle_landed(
    ports: Ports, row: Row, state: LakeTableState, mark: Mark, progress: _Progress
) -> CommitOutcome:
    """Return the outcome of a landed key, after settling it in the ledger.

    An attempt of this run, or a statement, is in main if its snapshot is an ancestor; an export of
    another run is in main if main has all its files.
    """
    attempts = progress.attempts
    own = any(a.snapshot_id == mark.snapshot_id for a in attempts)
    after = settle_mark(ports, row, state, mark)
    if isinstance(after, Stale) or after.settled is None:
        return _taken_over(mark.snapshot_id)
    landed = after.settled
    held = held_in_main(ports, after, state, row.key.hash)
    in_history = own or landed.kind is not None
    in_main = held.has_rows_of(landed) or (in_history and state.is_ancestor(mark.snapshot_id))
    with contextlib.suppress(DestinationError):
        discard_abandoned_attempts(
            ports, (a for a in attempts if a.snapshot_id != mark.snapshot_id)
        )
    leaves = progress.leaves.get((mark.snapshot_id, row.key.hash), Leaving())
    return _committed(landed, len(attempts), leaves, in_main=in_main)


def _taken_over(snapshot_id: int) -> Superseded:
    return Superseded(
        f"the export landed in snapshot {snapshot_id}, and another run took the partition over "
        "before this was recorded"
    )


def _layout_changed(
    state: LakeTableState, wanted: Commit, attempts: list[Staged]
) -> Conflicted | Unknown:
    """Return the outcome if the table's layout changed after the plan; no request is sent again.

    It is `Conflicted` only if no earlier request can land.
    """
    changes = (
        f"{f.name.replace('_', ' ')} {was} is now {now}"
        for f in fields(Layout)
        if (was := getattr(wanted.layout, f.name)) != (now := getattr(state.layout, f.name))
    )
    text = f"the table changed between plan and commit: {', '.join(changes)}. Run it again"
    if all(state.last_sequence_number >= a.sequence_number for a in attempts):
        return Conflicted(text)
    return Unknown(f"{text}, and a request that was sent before may still be applied")


def _stage_and_send(
    ports: Ports,
    state: LakeTableState,
    wanted: Commit,
    ready: tuple[_Ready, ...],
    progress: _Progress,
) -> tuple[Staged, str | None]:
    """Write the manifests of an attempt with a new snapshot id, and send it once (step 7).

    Returns:
        The attempt, and the error text of every response except a success.
    """
    summary = (*wanted.summary, *_summary_of([r.leaves for r in ready]))
    wanted = replace(wanted, keys=tuple(r.key for r in ready), summary=summary)
    wanted = replace(wanted, watermark=ports.watermark(state, wanted.keys))
    done = _marks_to_remove(ports.ledger, state, wanted)
    # Drawn after those rows were read: a restored copy that knows this number knows them completed.
    wanted = replace(wanted, number=ports.ledger.next_epoch())
    leaves = tuple(path for r in ready for path in r.leaves.paths)
    staged = ports.effects(Step.STAGE, partial(ports.table.stage, state, wanted, leaves))
    progress.attempts.append(staged)
    progress.leaves |= {(staged.snapshot_id, r.key.key): r.leaves for r in ready}
    sent = ports.effects(Step.SEND, partial(ports.table.send, state, staged, wanted, done))
    return staged, None if sent.applied else sent.error


def _summary_of(leaves: list[Leaving]) -> tuple[tuple[str, str], ...]:
    """Return the summary entries for the files of other writers that a snapshot removes."""
    files = sum(x.foreign_files for x in leaves)
    if not files:
        return ()
    rows = sum(x.foreign_rows for x in leaves)
    return (
        ("mergeberg.foreign-files-removed", str(files)),
        ("mergeberg.foreign-rows-removed", str(rows)),
    )


def _marks_to_remove(ledger: Ledger, state: LakeTableState, wanted: Commit) -> tuple[str, ...]:
    """Return the keys whose mark is no longer needed: COMPLETED in the ledger, read after M."""
    ours = {k.key for k in wanted.keys}
    done = []
    for key, mark in state.marks.items():
        row = ledger.read(key) if key not in ours else None
        if row is not None and row.done_epoch >= mark.epoch:
            done.append(key)
    return tuple(done)


def discard_abandoned_attempts(ports: Ports, attempts: Iterable[Staged]) -> None:
    """Delete the manifests of own attempts that cannot land and that no snapshot uses (step 10).

    This is judged on a newly loaded M.

    Raises:
        DestinationError: the table cannot be loaded, or a manifest cannot be deleted.
    """
    left = tuple(attempts)
    if not left:
        return
    state = ports.effects(Step.LOAD_METADATA, ports.table.load)
    for attempt in left:
        if state.last_sequence_number >= attempt.sequence_number and not ports.table.in_use(
            state, attempt
        ):
            ports.effects(Step.CLEAN_ATTEMPT, partial(ports.table.discard, attempt))

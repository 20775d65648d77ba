"""Step 3 of 3 of the job (plan -> write -> commit): the commit protocol, numbered as protocol.md.

    2 load the metadata M -> 3 is it our ledger's table? -> 4 read the ledger row, after M
    -> 5 has it landed? -> 6 what must leave main, from M -> 7 stage and send -> 8 settle in the
    ledger

Metadata first, then the ledger: that order is what closes the gap (model: docs/spec). Any answer
but a success is unknown: load again and look. Nothing is deleted here but the manifests of own dead
attempts. Claiming (step 1) is the job's; it has happened when this begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Protocol

from tableformat.committer import (
    LEDGER_PROPERTY,
    Commit,
    CommitOutcome,
    Committed,
    Conflicted,
    KeyCommit,
    LakeTable,
    LakeTableState,
    Layout,
    Mark,
    Staged,
    Superseded,
    Unknown,
)
from tableformat.effects import Effects, Step
from tableformat.errors import DestinationError, InternalError, RefusedError, TableFormatError
from tableformat.export.claim import settled
from tableformat.export.marks import figures, landed_from, landed_mark, unsettled_mark
from tableformat.file_names import is_of_transaction
from tableformat.ledger import Landed, Ledger, Row, Stale, State

__all__ = [
    "Ports",
    "check_table_of_ledger",
    "commit",
    "first_snapshot",
    "landed_mark",
    "settle",
    "settle_mark",
    "unsettled_mark",
]


class Pause(Protocol):
    """Waits before attempt number `attempt` (from 1): back-off with jitter."""

    def __call__(self, attempt: int, /) -> None:
        """Wait."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What the protocol acts on, all of it through `effects`.

    `clock` is milliseconds since 1970.
    """

    effects: Effects
    table: LakeTable
    ledger: Ledger
    clock: Callable[[], int]
    pause: Pause
    most_attempts: int = 20


def commit(ports: Ports, wanted: Commit) -> CommitOutcome:
    """Make a commit visible exactly once.

    Returns:
        Committed, Conflicted, Superseded or Unknown; the ledger row says the same, or will after
        the next run.

    Raises:
        RefusedError: the table belongs to another ledger, or main holds files of the key (steps 3,
            6).
    """
    attempts: list[Staged] = []
    try:
        return _commit(ports, wanted, attempts)
    except TableFormatError as error:
        if not attempts:
            raise
        return Unknown(f"a request was sent, and then: {error}")


def _commit(ports: Ports, wanted: Commit, attempts: list[Staged]) -> CommitOutcome:
    """Take turns until there is an outcome; `attempts` gets every attempt before it is sent."""
    key = _only_key(wanted)
    evidence = "no answer yet"
    while True:
        state = ports.effects(Step.LOAD_METADATA, ports.table.load)
        check_table_of_ledger(state, ports.ledger)
        row = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, key.key))
        if gone := _superseded(row, state, key):
            return Superseded(gone)
        if row is None:
            message = (
                f"The ledger lost the row of key {key.key} between claim and commit; this is a "
                "bug, please report it."
            )
            raise InternalError(message)
        if mark := landed_mark(row, state, key):
            return _settle_landed(ports, row, state, mark, attempts)
        if state.layout != wanted.layout:
            return _layout_changed(state, wanted, attempts)
        if len(attempts) >= ports.most_attempts:
            return Unknown(
                f"{len(attempts)} requests were sent, none was answered with success; the last: "
                f"{evidence}"
            )
        row = _note_overwritten_mark(ports, row, state, key)
        if row is None:
            continue
        _refuse_own_files_in_main(ports, row, state, key)
        staged, sent_error = _stage_and_send(ports, state, wanted, attempts)
        if sent_error is None:
            landed = Landed(
                key.epoch,
                key.transaction_id,
                key.fingerprint,
                staged.snapshot_id,
                staged.sequence_number,
            )
            return _settled(ports, settle(ports, row, landed), landed, attempts, in_main=True)
        evidence = sent_error
        ports.pause(len(attempts))


def first_snapshot(ports: Ports, layout_of: Callable[[LakeTableState], None]) -> LakeTableState:
    """Give a table that has none its first, empty snapshot, without a mark (protocol.md step 0).

    An export staged without a parent would not be protected by the fence.

    Args:
        ports: what to act on.
        layout_of: checks a loaded state before anything is written to it; raises when it is not
            ours to use.

    Raises:
        RefusedError: the table belongs to another ledger, or does not get a snapshot.
    """
    for attempt in range(1, ports.most_attempts + 1):
        state = ports.effects(Step.LOAD_METADATA, ports.table.load)
        check_table_of_ledger(state, ports.ledger)
        layout_of(state)
        if state.main is not None:
            return state
        empty = Commit((), state.layout, ports.ledger.identity, (("mergeberg.first", "1"),))
        staged = ports.effects(Step.STAGE, partial(ports.table.stage, state, empty))
        ports.effects(Step.FIRST_SNAPSHOT, partial(ports.table.send, state, staged, empty, ()))
        if attempt > 1:
            ports.pause(attempt)
    message = (
        "Cannot give the table its first snapshot: the catalog confirmed none of the attempts. "
        "Run the command again."
    )
    raise RefusedError(message)


def check_table_of_ledger(state: LakeTableState, ledger: Ledger) -> None:
    """Refuse a table of another ledger, or one that this ledger's past contradicts (step 3).

    Without it a lost or restored ledger exports everything again (holes 15, 16).

    Raises:
        RefusedError: the ledger is another one, or was restored from an older copy.
    """
    found = state.properties.get(LEDGER_PROPERTY)
    if found is not None and not (ledger.is_made() and found == ledger.identity):
        this = f"this one is {ledger.identity}" if ledger.is_made() else "this one does not exist"
        message = (
            f"Cannot export with the ledger {ledger.uri}: the table was exported to with another "
            f"ledger ({found}, {this}). Give that one with --ledger."
        )
        raise RefusedError(message)
    highest = ledger.highest_epoch()
    if state.highest_epoch > highest:
        message = (
            f"Cannot export with the ledger {ledger.uri}: the table carries epoch "
            f"{state.highest_epoch}, the ledger has only given {highest}, so it was restored from "
            "an older copy. Use the newer ledger."
        )
        raise RefusedError(message)


def settle_mark(ports: Ports, row: Row, state: LakeTableState, mark: Mark) -> Row | Stale:
    """Settle what a mark proves, with the figures of what landed (step 8).

    The row may be a later claim's, whose own figures and parts are those of other files. Main does
    not tell either: somebody may have deleted files since, and then they are missing.
    """
    same = mark.fingerprint == row.fingerprint
    rows, data_files = figures(row, state, mark)
    shown = replace(
        row,
        parts=row.parts if same else (),
        old=tuple(t for t in (*row.old, row.transaction_id) if t != mark.transaction_id),
        fingerprint=mark.fingerprint,
        transaction_id=mark.transaction_id,
        rows=rows,
        data_files=data_files,
    )
    return settle(ports, shown, landed_from(mark, state))


def settle(ports: Ports, row: Row, landed: Landed) -> Row | Stale:
    """Write COMPLETED, by compare-and-set on the row that was read (step 8)."""
    after = settled(row, landed, ports.clock())
    return ports.effects(Step.SETTLE, partial(ports.ledger.write, after))


def _only_key(wanted: Commit) -> KeyCommit:
    if len(wanted.keys) != 1:
        message = (
            f"A commit of {len(wanted.keys)} keys was asked for; this release commits one. This "
            "is a bug, please report it."
        )
        raise InternalError(message)
    return wanted.keys[0]


def _superseded(row: Row | None, state: LakeTableState, key: KeyCommit) -> str:
    """Say who took the key over since the claim, '' when nobody did (step 4)."""
    mark = state.mark(key.key)
    if mark is not None and mark.epoch > key.epoch:
        return f"epoch {mark.epoch} of the same partition has landed in snapshot {mark.snapshot_id}"
    if row is not None and (row.epoch != key.epoch or row.state is not State.RUNNING):
        return (
            f"the ledger has the partition at epoch {row.epoch} ({row.state}), this run is epoch "
            f"{key.epoch}"
        )
    return ""


def _settle_landed(
    ports: Ports, row: Row, state: LakeTableState, mark: Mark, attempts: list[Staged]
) -> CommitOutcome:
    """It landed: an own attempt is in main as an ancestor, any other one by all its files."""
    rows, data_files = figures(row, state, mark)
    files = [
        f
        for f in ports.table.files_of(state, row.key.hash)
        if is_of_transaction(f.path, row.key.hash, mark.transaction_id)
    ]
    own = any(a.snapshot_id == mark.snapshot_id for a in attempts)
    complete = (
        bool(files)
        and (len(files), sum(f.rows for f in files)) == (data_files, rows)
        and not any(f.deletes for f in files)
    )
    in_main = complete or (own and state.is_ancestor(mark.snapshot_id))
    after = settle_mark(ports, row, state, mark)
    return _settled(ports, after, landed_from(mark, state), attempts, in_main=in_main)


def _settled(
    ports: Ports, after: Row | Stale, landed: Landed, attempts: list[Staged], *, in_main: bool
) -> CommitOutcome:
    if isinstance(after, Stale):
        return Superseded(
            f"the export landed in snapshot {landed.snapshot_id}, and another run took the "
            "partition over before it was noted"
        )
    # It has landed, whatever becomes of the manifests of the others.
    with contextlib.suppress(DestinationError):
        _discard_dead_attempts(ports, [a for a in attempts if a.snapshot_id != landed.snapshot_id])
    return Committed(landed.snapshot_id, landed.epoch, len(attempts), in_main)


def _layout_changed(state: LakeTableState, wanted: Commit, attempts: list[Staged]) -> CommitOutcome:
    """The table changed after the plan: no new request; certain only when every old one is dead."""
    changes = (
        f"{f.name.replace('_', ' ')} {was} is now {now}"
        for f in fields(Layout)
        if (was := getattr(wanted.layout, f.name)) != (now := getattr(state.layout, f.name))
    )
    text = f"the table changed between plan and commit: {', '.join(changes)}. Run the command again"
    if all(state.last_sequence_number >= a.sequence_number for a in attempts):
        return Conflicted(text)
    return Unknown(f"{text}, and a request that was sent before may still be applied")


def _note_overwritten_mark(
    ports: Ports, row: Row, state: LakeTableState, key: KeyCommit
) -> Row | None:
    """Note a landed export that only its mark knows, before the mark is overwritten (hole 14).

    Returns:
        The row to go on with; None when the row has moved and everything must be looked at anew.
    """
    mark = state.mark(key.key)
    if mark is None or row.knows(mark.snapshot_id):
        return row
    noted = replace(row.with_landed(landed_from(mark, state)), updated=ports.clock())
    written = ports.effects(Step.NOTE_LANDED, partial(ports.ledger.write, noted))
    return None if isinstance(written, Stale) else written


def _refuse_own_files_in_main(
    ports: Ports, row: Row, state: LakeTableState, key: KeyCommit
) -> None:
    """Step 6, from M in every turn: nothing is removed, so nothing of the key may be in main.

    Raises:
        RefusedError: files of the key are there, or an earlier export may be there in rewritten
            files.
    """
    if row.landed and max(x.sequence_number for x in row.landed) > state.last_sequence_number:
        message = (
            "Cannot commit: the ledger knows a landed export with a higher sequence number than "
            "the table has; the table's metadata was put back to an older file. Restore the newer "
            "metadata."
        )
        raise RefusedError(message)
    files = ports.table.files_of(state, key.key)
    gone = not row.landed or (
        state.history_is_complete and not any(state.is_ancestor(x.snapshot_id) for x in row.landed)
    )
    if files or not gone:
        message = (
            "Cannot commit: main holds, or may hold in rewritten files, rows of an earlier export "
            f"of this partition ({len(files)} file(s) by name), and this release does not replace "
            "an export yet. Nothing was changed."
        )
        raise RefusedError(message)


def _stage_and_send(
    ports: Ports, state: LakeTableState, wanted: Commit, attempts: list[Staged]
) -> tuple[Staged, str | None]:
    """Step 7: own manifests, own snapshot id, one request.

    Returns the error text of anything but success.
    """
    done = _marks_to_remove(ports.ledger, state, wanted)
    # After those rows were read: a copy of the ledger that knows the number knows them completed.
    wanted = replace(wanted, number=ports.ledger.next_epoch())
    staged = ports.effects(Step.STAGE, partial(ports.table.stage, state, wanted))
    attempts.append(staged)
    sent = ports.effects(Step.SEND, partial(ports.table.send, state, staged, wanted, done))
    return staged, None if sent.applied else sent.error


def _marks_to_remove(ledger: Ledger, state: LakeTableState, wanted: Commit) -> tuple[str, ...]:
    """Return the keys whose mark has done its duty: COMPLETED in the ledger, read after M."""
    ours = {k.key for k in wanted.keys}
    done = []
    for key, mark in state.marks.items():
        row = ledger.read(key) if key not in ours else None
        if row is not None and row.done is not None and row.done.epoch >= mark.epoch:
            done.append(key)
    return tuple(done)


def _discard_dead_attempts(ports: Ports, attempts: list[Staged]) -> None:
    """Step 10 for own attempts: on a fresh M, when dead and when no snapshot refers to them."""
    if not attempts:
        return
    state = ports.effects(Step.LOAD_METADATA, ports.table.load)
    for attempt in attempts:
        if state.last_sequence_number >= attempt.sequence_number and not ports.table.in_use(
            state, attempt
        ):
            ports.effects(Step.CLEAN_ATTEMPT, partial(ports.table.discard, attempt))

"""Step 9 of the commit protocol: an export is given up for good, and nothing of it lands later.

Kill is a claim of its own: from then on whoever worked on the key is superseded. What was sent
before may still be applied, so that KILLED or FAILED is written only when the sequence number has
passed every such request; an empty commit, the fence, brings that about where nobody else does
(holes 9 and 10). The actions of the model: Claim, Load, Look, Stage "fence", Fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

from tableformat.committer import LakeTableState, Staged, Superseded, Unknown
from tableformat.effects import Step
from tableformat.errors import DestinationError, LedgerError, RefusedError
from tableformat.export.claim import unfinished
from tableformat.export.commit import (
    Ports,
    discard_dead_attempts,
    settle_mark,
    unsettled_mark,
)
from tableformat.export.empty_commits import first_snapshot, send_empty
from tableformat.export.leaving import held_in_main
from tableformat.export.loading import check_table_of_ledger, load_table
from tableformat.ledger import Row, Stale, State

__all__ = [
    "BEING_CANCELLED",
    "QUERY_KILLED",
    "GivenUp",
    "KillOutcome",
    "NotUnderWay",
    "TooLate",
    "kill",
]

BEING_CANCELLED: Final = "it is being cancelled"
"""On a row whose export is given up: tells the owner before why it was superseded."""
QUERY_KILLED: Final = "its query was killed"
"""The same, of the whole statement: its run begins nothing else, either."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It did not land and cannot any more; the row says so. `fences` empty commits were made."""

    row: Row
    fences: int


@dataclass(frozen=True, slots=True)
class TooLate:
    """It has landed, and is settled; `in_main` is false when main was moved away from it since."""

    row: Row
    snapshot_id: int
    in_main: bool


@dataclass(frozen=True, slots=True)
class NotUnderWay:
    """There is nothing to give up: never claimed (`row` is None), completed, or given up before."""

    row: Row | None


KillOutcome = GivenUp | TooLate | NotUnderWay | Superseded | Unknown


@dataclass(slots=True)
class _GivingUp:
    """How far it is: the row of our claim, seq(M0), and every fence before it is sent."""

    row: Row
    state: State
    first: int | None = None
    fences: list[Staged] = field(default_factory=list)
    evidence: str = "no answer yet"

    def all_is_dead(self, state: LakeTableState) -> bool:
        """Whether no request of ours or of an older epoch can be applied any more."""
        seen = state.last_sequence_number
        older = self.first is not None and seen > self.first
        return older and all(seen >= a.sequence_number for a in self.fences)


def _nothing(_row: Row) -> None:
    """Do nothing."""


def kill(
    ports: Ports,
    key: str,
    *,
    state: Literal[State.KILLED, State.FAILED],
    why: str = "",
    on_claim: Callable[[Row], None] = _nothing,
    ends_move: bool = False,
) -> KillOutcome:
    """Give the export of a key up for good, unless it has landed.

    Nothing is deleted here; `Unknown` and `Superseded` leave the row as it is.

    Args:
        ports: what to act on; the caller has the key's lease.
        key: the hash of the ledger key.
        state: what the row says afterwards.
        why: the error that is the reason, '' for the one that the row has.
        on_claim: called once when the export is taken over, with the row that says so.
        ends_move: a MOVE that has the key ends with it; the caller knows what the other table has.

    Raises:
        RefusedError: the table is of another ledger, its metadata was put back, or a MOVE that is
            not finished has the key.
    """
    table = ports.effects(Step.LOAD_METADATA, ports.table.load)
    check_table_of_ledger(table, ports.ledger)
    why = why or (BEING_CANCELLED if state is State.KILLED else "")
    claimed = _claim(ports, key, why, ends_move=ends_move)
    if not isinstance(claimed, Row):
        return claimed
    on_claim(claimed)
    work = _GivingUp(claimed, state)
    try:
        return _give_up(ports, work)
    except (DestinationError, LedgerError) as error:
        return Unknown(str(error))


def _claim(ports: Ports, key: str, why: str, *, ends_move: bool) -> Row | NotUnderWay | Superseded:
    """Step 1: a new epoch; the transaction stays recorded, so that a landing of it is told."""
    for attempt in range(1, ports.most_attempts + 1):
        row = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, key))
        if row is None or row.state is not State.RUNNING:
            return NotUnderWay(row)
        if row.move is not None and not ends_move:
            message = (
                f"Cannot give up partition {row.key.partition_id}: {unfinished(row, row.move)}."
            )
            raise RefusedError(message)
        claimed = replace(
            row,
            claim=replace(row.claim, epoch=ports.ledger.next_epoch()),
            updated=ports.clock(),
            last_error=why or row.last_error,
        )
        written = ports.effects(Step.CLAIM, partial(ports.ledger.write, claimed))
        if isinstance(written, Row):
            return written
        ports.pause(attempt)
    return Superseded("its row was written by others again and again")


def _give_up(ports: Ports, work: _GivingUp) -> KillOutcome:
    for attempt in range(1, ports.most_attempts + 1):
        found = _turn(ports, work, may_send=attempt < ports.most_attempts)
        if found is not None:
            return found
        if work.evidence:
            ports.pause(attempt)
    text = (
        f"{len(work.fences)} empty commits were sent so that nothing sent before can land, and "
        f"none is known to be applied; the last: {work.evidence}"
    )
    return Unknown(text)


def _turn(ports: Ports, work: _GivingUp, *, may_send: bool) -> KillOutcome | None:
    """Load M once and look (steps 2 to 5); end, or commit a fence, and None."""
    state = load_table(ports)
    if work.first is None:
        work.first = state.last_sequence_number
    row = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, work.row.key.hash))
    if row is None or not _is_ours(row, state, work):
        return Superseded("another run has claimed the partition since")
    mark = unsettled_mark(row, state)
    if mark is not None:
        after = settle_mark(ports, row, state, mark)
        return _too_late(ports, after, state) if isinstance(after, Row) else None
    if work.all_is_dead(state):
        kept = f"{row.last_error}; " if row.last_error not in ("", BEING_CANCELLED) else ""
        told = kept + _since(state)
        after = replace(row, state=work.state, updated=ports.clock(), last_error=told)
        written = ports.effects(Step.GIVE_UP, partial(ports.ledger.write, after))
        if isinstance(written, Stale):
            return None
        _discard(ports, work)
        return GivenUp(written, len(work.fences))
    if may_send:
        _fence(ports, state, work)
    return None


def _since(state: LakeTableState) -> str:
    """Say from when on nothing of it can land: what an operator compares a late request with."""
    return (
        f"given up: nothing sent before snapshot {state.main} (sequence number "
        f"{state.last_sequence_number}) can land any more"
    )


def _is_ours(row: Row, state: LakeTableState, work: _GivingUp) -> bool:
    """Whether nobody has claimed the key since (step 4)."""
    mark = state.mark(row.key.hash)
    epoch = work.row.claim.epoch
    later = mark is not None and mark.epoch > epoch
    return row.claim.epoch == epoch and row.state is State.RUNNING and not later


def _too_late(ports: Ports, row: Row, state: LakeTableState) -> KillOutcome | None:
    landed = row.settled
    if landed is None:
        return None
    held = held_in_main(ports, row, state, row.key.hash)
    by_line = bool(landed.statement) and state.is_ancestor(landed.snapshot_id)
    return TooLate(row, landed.snapshot_id, in_main=held.holds(landed) or by_line)


def _fence(ports: Ports, state: LakeTableState, work: _GivingUp) -> None:
    """Commit nothing, without a mark: every request staged on M or earlier is dead then."""
    if state.main is None:
        first_snapshot(ports, lambda _: None)
        return
    staged, sent = send_empty(ports, state, "fence")
    work.fences.append(staged)
    work.evidence = "" if sent.applied else sent.error


def _discard(ports: Ports, work: _GivingUp) -> None:
    """Remove the manifests of fences that were not applied; what the answer says does not wait."""
    with contextlib.suppress(DestinationError):
        discard_dead_attempts(ports, work.fences)

"""Steps 6 and 8 of the commit protocol, their writes: what landed is noted in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tableformat.committer import KeyCommit, LakeTable, LakeTableState
from tableformat.effects import Effects, Step
from tableformat.export.claim import settled
from tableformat.export.marks import claim_of_mark, landed_from
from tableformat.lake_marks import Mark
from tableformat.ledger import Claim, Landed, Ledger, Row, Stale, State
from tableformat.storage import Storage

__all__ = [
    "Pause",
    "Ports",
    "note_overwritten_mark",
    "settle",
    "settle_all",
    "settle_anew",
    "settle_mark",
]


class Pause(Protocol):
    """Waits before attempt number `attempt` (from 1): back-off with jitter."""

    def __call__(self, attempt: int, /) -> None:
        """Wait."""
        ...


def _none(_state: LakeTableState, _keys: tuple[KeyCommit, ...]) -> None:
    """Leave the watermark as it is."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the protocol acts on, all of it through `effects`.

    `clock` is milliseconds since 1970. `storage` opens what a location belongs to; without it no
    whole lake partition is replaced. `watermark` says what `Commit.watermark` is on M.
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
    """Write COMPLETED, by compare-and-set on the row that was read (step 8)."""
    after = settled(row, landed, claim, ports.clock())
    return ports.effects(Step.SETTLE, partial(ports.ledger.write, after))


def settle_all(ports: Ports, landed: tuple[tuple[Row, Landed], ...]) -> tuple[Row | Stale, ...]:
    """Write COMPLETED for what landed together, each with the claim of its row (step 8)."""
    now = ports.clock()
    after = tuple(settled(row, one, row.claim, now) for row, one in landed)
    return ports.effects(Step.SETTLE, partial(ports.ledger.write_all, after))


def settle_anew(ports: Ports, row: Row, landed: Landed) -> Row | Stale:
    """Write COMPLETED once more where the row has moved and its claim has not.

    Whoever clears away what dead exports of the key left changes the row and claims nothing.
    """
    now = ports.effects(Step.READ_LEDGER, partial(ports.ledger.read, row.key.hash))
    if now is None or now.state is not State.RUNNING or now.claim.epoch != row.claim.epoch:
        return Stale(None if now is None else now.version)
    return settle(ports, now, landed, now.claim)


def settle_mark(ports: Ports, row: Row, state: LakeTableState, mark: Mark) -> Row | Stale:
    """Settle what a mark proves, with the figures of what landed (step 8).

    The row's claim may be a later one, whose figures and parts are those of other files. That of a
    MOVE which is not finished stays, and what landed is only noted: nobody passes over it.
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
    """Note a landed export that only its mark knows, before the mark is overwritten (hole 14).

    Returns:
        The row to go on with; None when the row has moved and everything must be looked at anew.
    """
    mark = state.mark(key.key)
    if mark is None or row.knows(mark.snapshot_id):
        return row
    landed = landed_from(mark, state, claim_of_mark(row, state, mark))
    noted = replace(row.with_landed(landed), updated=ports.clock())
    written = ports.effects(Step.NOTE_LANDED, partial(ports.ledger.write, noted))
    return None if isinstance(written, Stale) else written

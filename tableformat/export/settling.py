"""Steps 6 and 8 of the commit protocol, their writes: what landed is noted in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tableformat.committer import KeyCommit, LakeTable, LakeTableState, Mark
from tableformat.effects import Effects, Step
from tableformat.export.claim import settled
from tableformat.export.marks import claim_of_mark, landed_from
from tableformat.ledger import Claim, Landed, Ledger, Row, Stale

__all__ = ["Pause", "Ports", "note_overwritten_mark", "settle", "settle_mark"]


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


def settle(ports: Ports, row: Row, landed: Landed, claim: Claim) -> Row | Stale:
    """Write COMPLETED, by compare-and-set on the row that was read (step 8)."""
    after = settled(row, landed, claim, ports.clock())
    return ports.effects(Step.SETTLE, partial(ports.ledger.write, after))


def settle_mark(ports: Ports, row: Row, state: LakeTableState, mark: Mark) -> Row | Stale:
    """Settle what a mark proves, with the figures of what landed (step 8).

    The row's claim may be a later one, whose figures and parts are those of other files.
    """
    claim = claim_of_mark(row, state, mark)
    return settle(ports, row, landed_from(mark, state, claim), claim)


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

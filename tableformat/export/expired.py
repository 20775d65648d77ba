"""The end of a run: a bounded share of what is expired in its destination is cleaned up.

What dead exports left behind, of whatever partition, goes with the proof of protocol.md step 10
(`dead.py`). An export that was interrupted and not resumed for `abandoned_ttl` is first given up
for good: FAILED, by step 9 (RQ…Cleanup). Nothing that goes wrong here changes what the run says of
its partitions; the rest is the next run's, or `gc`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tableformat.committer import LakeTableState
from tableformat.effects import Step
from tableformat.errors import TableFormatError
from tableformat.export.cleaning import Cleaning
from tableformat.export.dead import verdict
from tableformat.export.giving_up import kill
from tableformat.export.leases import Leases
from tableformat.export.loading import load_table
from tableformat.export.ports import JobPorts
from tableformat.export.settling import Ports
from tableformat.ledger import Claim, Row, State

__all__ = ["ABANDONED_TTL", "MOST_EXPORTS", "Expired"]

MOST_EXPORTS: Final = 16
"""Keys that a run cleans up at its end."""
ABANDONED_TTL: Final = 7 * 86_400
"""Seconds after which an interrupted export is given up, where the user says nothing."""
_MOST_FILES: Final = 256
_MOST_MILLISECONDS: Final = 3_000
_MOST_ATTEMPTS: Final = 3
_NOBODY: Final = "interrupted, and nobody went on with it"


@dataclass(frozen=True, slots=True)
class Expired:
    """Cleans up in one destination, at `location`.

    `abandoned_ttl` is seconds since the ledger last heard of an interrupted export, after which it
    is given up; 0 is never.
    """

    ports: JobPorts
    commit_ports: Ports
    leases: Leases
    location: str
    abandoned_ttl: int = ABANDONED_TTL

    def clean(self) -> None:
        """Clean up a share; what goes wrong is only told."""
        try:
            self._clean()
        except TableFormatError as error:
            self.ports.observer.note(
                f"what earlier exports left behind stays: {error} `mergeberg gc` removes it"
            )

    def _clean(self) -> None:
        begun, ledger = self.ports.clock(), self.ports.ledger
        rows = self.ports.effects(Step.FIND_EXPIRED, lambda: tuple(ledger.rows()))
        candidates = [r for r in rows if self._is_expired(r, begun) or any(_left(r))]
        if not candidates:
            return
        state = load_table(self.commit_ports)
        done, turn = 0, begun % len(candidates)
        # Not always the same ones first: of some not everything may go yet.
        for row in (*candidates[turn:], *candidates[:turn]):
            late = self.ports.clock() - begun > _MOST_MILLISECONDS
            if done == MOST_EXPORTS or late or self.ports.should_stop():
                return
            is_expired = self._is_expired(row, begun)
            if row.key.destination == state.layout.table_uuid and (
                is_expired or _is_dead(row, state)
            ):
                self._one(row, give_up=is_expired)
                done += 1

    def _one(self, row: Row, *, give_up: bool) -> None:
        """Clean up after one key, under its lease; a key that somebody works on is left alone."""
        key = row.key.hash
        if self.leases.take(key) is not None:
            return
        try:
            if give_up:
                now = self.ports.effects(Step.READ_LEDGER, lambda: self.ports.ledger.read(key))
                if now is None or now.version != row.version:
                    return
                few = replace(self.commit_ports, most_attempts=_MOST_ATTEMPTS)
                kill(few, key, state=State.FAILED, why=row.last_error or _NOBODY)
            cleaning = Cleaning(self.commit_ports, self.ports.storage, self.location)
            cleaning.clean(key, most=_MOST_FILES)
        finally:
            self.leases.release(key)

    def _is_expired(self, row: Row, now: int) -> bool:
        """Whether an export was interrupted long ago."""
        begun = row.state is State.RUNNING and row.move is None
        ttl = self.abandoned_ttl
        return begun and ttl != 0 and row.updated + ttl * 1000 < now


def _left(row: Row) -> Iterator[Claim]:
    """Yield the claims that nothing was removed of yet; a removed one has no recipe or parts."""
    yield from (c for c in row.old if c.parts)
    if row.state in (State.KILLED, State.FAILED) and row.claim.recipe:
        yield row.claim


def _is_dead(row: Row, state: LakeTableState) -> bool:
    return any(verdict(row, state, 0, c.transaction_id).may_go for c in _left(row))

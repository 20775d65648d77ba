"""Expires the snapshots before DROPs of this ledger, after an age, to free their files' bytes.

ClickHouse deletes a dropped partition in about ten minutes. In Iceberg the snapshots from the
export to the DROP keep its files. A snapshot is expired if it is a commit of this ledger, an
ancestor of the DROP, and no branch or tag names it. Snapshots of other writers, and snapshots that
a user keeps, are never expired. Nothing in main changes, and a partition that came back keeps all
of its snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tableformat.committer import LakeTable, LakeTableState, Sent
from tableformat.effects import Step
from tableformat.errors import RefusedError
from tableformat.export.commit import Ports, load_table
from tableformat.export.gc import Garbage, Kind
from tableformat.ledger import Landed, Row, StatementKind

__all__ = ["DroppedSnapshots", "ExpiringLake"]


class ExpiringLake(LakeTable, Protocol):
    """An Iceberg table whose snapshots can be expired."""

    def references(self, state: LakeTableState) -> Mapping[str, int]:
        """Return the snapshots of all branches and tags, by name."""
        ...

    def snapshots_of(self, state: LakeTableState, ledger: str) -> frozenset[int]:
        """Return the snapshots that a ledger committed, according to their summaries."""
        ...

    def expire(self, state: LakeTableState, snapshot_ids: frozenset[int]) -> Sent:
        """Send one request to expire snapshots to the catalog; requires main as in `state`."""
        ...


@dataclass(frozen=True, slots=True)
class DroppedSnapshots:
    """Finds and expires snapshots of one table before DROPs that are `age` milliseconds old."""

    ports: Ports
    lake: ExpiringLake
    age: int
    now: int

    def find(self) -> tuple[Garbage, ...]:
        """Return the snapshots that may be expired, and those that keep dropped files.

        Raises:
            RefusedError: the table is of another ledger.
            DestinationError: the table cannot be read.
            LedgerError: the ledger cannot be read.
        """
        return tuple(item for _, item in self._found(load_table(self.ports)))

    def expire(self) -> tuple[Garbage, ...]:
        """Expire snapshots; return these, and the snapshots that keep dropped files.

        Raises:
            RefusedError: the table is of another ledger, or the catalog confirmed no request.
            DestinationError: the table cannot be read.
            LedgerError: the ledger cannot be read.
        """
        error = ""
        for attempt in range(1, self.ports.most_attempts + 1):
            state = load_table(self.ports)
            found = self._found(state)
            gone = frozenset(snapshot_id for snapshot_id, item in found if item.may_go)
            if not gone:
                return tuple(item for _, item in found)
            sent = self.ports.effects(Step.CLEAN_ATTEMPT, partial(self.lake.expire, state, gone))
            if sent.applied:
                return tuple(item for _, item in found)
            error = sent.error
            self.ports.pause(attempt)
        message = (
            "Cannot expire the snapshots before what was dropped: the catalog confirmed none of "
            f"{self.ports.most_attempts} requests; the last answer: {error}. Run the command again."
        )
        raise RefusedError(message)

    def _found(self, state: LakeTableState) -> list[tuple[int, Garbage]]:
        ports, uuid = self.ports, state.layout.table_uuid
        rows = ports.effects(Step.READ_LEDGER, lambda: tuple(ports.ledger.rows()))
        ours = self.lake.snapshots_of(state, ports.ledger.identity)
        named = {at: name for name, at in sorted(self.lake.references(state).items())}
        found: dict[int, Garbage] = {}
        for row in sorted((r for r in rows if r.key.destination == uuid), key=lambda r: r.key):
            dropped = self._dropped(row, state)
            if dropped is None:
                continue
            have = [s for s in state.snapshots if self.lake.files_of(state, row.key.hash, s)]
            before = _ancestors(state, dropped.snapshot_id)
            keeps = {s: why for s in have if (why := _kept(s, before, ours, named))}
            for one in sorted(keeps or have):
                why = f"it has files of {row.key.partition_id}, which {dropped.statement} dropped"
                if one in keeps:
                    item = Garbage(
                        Kind.SNAPSHOT, str(one), 0, may_go=False, why=f"{why}; {keeps[one]}",
                        partition_id=row.key.partition_id,
                    )  # fmt: skip
                    found[one] = item
                elif one not in found:
                    found[one] = Garbage(
                        Kind.SNAPSHOT, str(one), 0, may_go=True, why=why,
                        partition_id=row.key.partition_id,
                    )  # fmt: skip
        return list(found.items())

    def _dropped(self, row: Row, state: LakeTableState) -> Landed | None:
        """Return the DROP that removed all rows of a key from main, if it is old enough."""
        last = row.settled
        if last is None or last.kind is not StatementKind.DROP or last.holds != ():
            return None
        at = state.snapshots.get(last.snapshot_id)
        if at is None or not state.is_ancestor(last.snapshot_id):
            return None
        return last if at.made + self.age <= self.now else None


def _kept(
    snapshot_id: int, before: frozenset[int], ours: frozenset[int], named: Mapping[int, str]
) -> str:
    """Return why a snapshot is kept, '' if it is expired."""
    if snapshot_id in named:
        return f"{named[snapshot_id]} keeps it"
    if snapshot_id not in before:
        return "it is not from before that"
    return "" if snapshot_id in ours else "another writer made it"


def _ancestors(state: LakeTableState, snapshot_id: int) -> frozenset[int]:
    """Return the ancestors of a snapshot, as far as they are known."""
    found: set[int] = set()
    at = state.snapshots[snapshot_id].parent_id
    while at is not None and at in state.snapshots:
        found.add(at)
        at = state.snapshots[at].parent_id
    return frozenset(found)

"""The source snapshot of a group: what a dead run froze is found again, the rest frozen afresh.

A snapshot is given back at the end, except what an export that did not end may go on with: as long
as its parts are frozen, nothing that happens to the source makes its finished files useless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tableformat.effects import Step
from tableformat.errors import SourceError
from tableformat.export.ports import JobPorts
from tableformat.export.work import Work
from tableformat.ledger import Claim, State
from tableformat.mergetree.digest_sql import DigestColumn, empty_digest
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId
from tableformat.quantities import counted
from tableformat.source import (
    FrozenPartition,
    LeftPart,
    LeftSnapshot,
    PartsLayout,
    Probe,
    SourceSnapshot,
)

__all__ = ["Freezing", "Frozen"]

_NO_PARTS: Final = PartsLayout("", "", "", "", ())


@dataclass(frozen=True, slots=True)
class Frozen:
    """A snapshot of a group; `handles` tells for each partition the handle that holds it.

    `abandoned` are handles of begun exports of the group that are not gone on with.
    """

    snapshot: SourceSnapshot
    handles: Mapping[PartitionId, tuple[str, ...]]
    abandoned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Freezing:
    """Freezes partitions of one table; every partition is asked `probes` and digested."""

    ports: JobPorts
    table: MergeTreeTable
    probes: tuple[Probe, ...]
    digest: tuple[DigestColumn, ...]

    def freeze(self, work: Iterable[Work]) -> Frozen:
        """Return all partitions of a group, found again or frozen now, and those refused.

        Raises:
            SourceError: the source cannot be used at all, or what is to be gone on with is nowhere.
        """
        found = self._find(work)
        frozen = self._completed(work, found)
        refused = (*frozen.snapshot.refused, *self._lost(work, found))
        gone = self._gone(work)
        partitions = (*frozen.snapshot.partitions, *gone)
        snapshot = replace(frozen.snapshot, partitions=partitions, refused=refused)
        handles = {p.partition_id: () for p in gone} | dict(frozen.handles)
        begun = (w.row.claim.staging for w in work if w.row and w.row.state is State.RUNNING)
        names = dict.fromkeys(name for staging in begun for name in staging)
        return Frozen(snapshot, handles, tuple(n for n in names if n not in snapshot.handle))

    def _completed(self, work: Iterable[Work], found: SourceSnapshot | None) -> Frozen:
        """Freeze what was not found again.

        Raises:
            SourceError: there is nothing to freeze, and nothing was found.
        """
        ids = tuple(PartitionId(w.key.partition_id) for w in work if w.content.parts)
        held = {p.partition_id: found.handle for p in found.partitions} if found else {}
        rest = tuple(i for i in ids if i not in held)
        if not rest:
            if found is None and (lost := self._lost(work, found)):
                raise lost[0][1]
            return Frozen(found or SourceSnapshot(self.table, _NO_PARTS, (), (), ()), held)
        self.ports.observer.note(f"freezing {counted(len(rest), 'partition')}")
        fresh = self.ports.effects(Step.SNAPSHOT_SOURCE, lambda: self._fresh(rest))
        if found is None:
            return Frozen(fresh, {p.partition_id: fresh.handle for p in fresh.partitions})
        partitions = found.partitions + fresh.partitions
        both = replace(
            fresh,
            layout=fresh.layout.over(fresh.table, partitions),
            partitions=partitions,
            handle=(*found.handle, *fresh.handle),
        )
        return Frozen(both, held | {p.partition_id: fresh.handle for p in fresh.partitions})

    def release(self, frozen: Frozen, keep: frozenset[str]) -> None:
        """Give back what no export that may be gone on with needs.

        When that fails nothing is lost but space: it is told, and the next run gives it back.
        """
        snapshot = frozen.snapshot
        both = replace(snapshot, handle=(*snapshot.handle, *frozen.abandoned))
        try:
            self.ports.effects(Step.RELEASE_SOURCE, lambda: self.ports.source.release(both, keep))
        except SourceError as error:
            stay = ", ".join(name for name in both.handle if name not in keep)
            self.ports.observer.note(
                f"the source keeps the frozen parts in {stay}, the next export there drops them: "
                f"{error}"
            )

    def _lost(
        self, work: Iterable[Work], found: SourceSnapshot | None
    ) -> tuple[tuple[PartitionId, SourceError], ...]:
        """Return the partitions that neither the source nor a snapshot has any more."""
        held = {p.partition_id for p in found.partitions} if found else set()
        gone = (PartitionId(w.key.partition_id) for w in work if not w.content.parts and w.resume)
        return tuple((i, self._is_lost(i)) for i in gone if i not in held)

    def _gone(self, work: Iterable[Work]) -> tuple[FrozenPartition, ...]:
        """Return the partitions that are not in the source any more, and are to go in the lake."""
        digest = empty_digest(self.digest) if self.digest else None
        return tuple(
            FrozenPartition(PartitionId(w.key.partition_id), (), (), digest)
            for w in work
            if not w.content.parts and w.resume is None
        )

    def _is_lost(self, partition_id: PartitionId) -> SourceError:
        return SourceError(
            f"Cannot go on with the export of partition {partition_id} of {self.table.name}: the "
            "source has no active part of it any more, and what an interrupted run had frozen is "
            "gone, too. Attach its parts again, or restore them."
        )

    def _find(self, work: Iterable[Work]) -> SourceSnapshot | None:
        """Return what is still frozen for claims that may be gone on with, None for nothing."""
        wanted = {
            PartitionId(w.key.partition_id): _left(w.resume.claim)
            for w in work
            if w.resume is not None and w.resume.claim.staging
        }
        if not wanted:
            return None
        found = self.ports.effects(
            Step.FIND_SNAPSHOT,
            lambda: self.ports.source.find_snapshot(
                self.table, wanted, probes=self.probes, digest=self.digest
            ),
        )
        return found if found.partitions else None

    def _fresh(self, ids: tuple[PartitionId, ...]) -> SourceSnapshot:
        return self.ports.source.snapshot(
            self.table, ids, job=self.ports.job, probes=self.probes, digest=self.digest
        )


def _left(claim: Claim) -> LeftSnapshot:
    parts = tuple(LeftPart(p.name, p.hash_of_all_files, p.rows) for p in claim.parts)
    return LeftSnapshot(claim.staging, parts)

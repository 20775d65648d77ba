"""Step 1 of the commit protocol: a frozen partition is claimed, anew or where the last run ended.

The claim goes on with the transaction of an interrupted one when its files would be the same: the
same parts, read and cut in the same way (`recipe_of`). Then finished files need not be written
again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tableformat.effects import Step
from tableformat.export.claim import Answer, Wish, claimed, is_merged, shrinks
from tableformat.export.destination import Destination, plan_slices
from tableformat.export.foreign import OwnKeys, goes_on, refuse_foreign
from tableformat.export.freezing import Frozen
from tableformat.export.outcome import Status
from tableformat.export.plan import SizeRatio, frozen_content
from tableformat.export.ports import JobPorts
from tableformat.export.resuming import finished_files, recipe_of
from tableformat.export.slices import Slice
from tableformat.export.work import Claimed, Work
from tableformat.ledger import Claim, Stale
from tableformat.source import FrozenPartition, SourceSnapshot

__all__ = ["Claiming"]


@dataclass(frozen=True, slots=True)
class _Planned:
    """What a claim would be, and its slices."""

    claim: Claim
    slices: tuple[Slice, ...]
    resumed: bool


class Claiming:
    """Claims partitions of one table for one destination."""

    def __init__(
        self, ports: JobPorts, destination: Destination, wish: Wish, *, slots: int
    ) -> None:
        """Remember what all partitions share."""
        self._ports = ports
        self._to = destination
        self._wish = wish
        self._slots = slots
        self._own = OwnKeys(ports.ledger, destination.layout.table_uuid)
        self.ratio = SizeRatio()

    def claim(
        self, work: Work, one: FrozenPartition, frozen: Frozen, first_number: int
    ) -> Claimed | Answer:
        """Make one compare-and-set, with the content that was really frozen.

        Args:
            work: what is known of the partition.
            one: the partition.
            frozen: the snapshot that holds it.
            first_number: of its first slice; numbers are unique in a group.

        Raises:
            RefusedError: the partition does not lie in one Iceberg partition (code 36), or main has
                files of others there.
            DestinationError: receipts of an earlier attempt, or main, cannot be read.
        """
        if said := self._too_small(work, one):
            return said
        planned = self._resumed(work, one, frozen) or self._anew(one, frozen)
        if planned.slices and not goes_on(
            work.held, beside=self._wish.beside, force=self._wish.force
        ):
            to = planned.slices[0].partition
            refuse_foreign(self._to.lake, work.state, to, self._own, work.held)
        row = claimed(
            work.row,
            work.key,
            names=(str(self._to.table.name), str(self._to.name)),
            claim=planned.claim,
            ttl=self._wish.ttl,
            now=self._ports.clock(),
        )
        slices = tuple(
            replace(s, number=first_number + i, epoch=planned.claim.epoch)
            for i, s in enumerate(planned.slices)
        )
        receipts = work.resume.receipts if work.resume is not None and planned.resumed else ()
        storage = self._ports.storage(self._to.location)
        finished = self._ports.effects(
            Step.CHECK_FINISHED, lambda: finished_files(slices, receipts, storage)
        )
        written = self._ports.effects(Step.CLAIM, lambda: self._ports.ledger.write(row))
        if isinstance(written, Stale):
            text = "another run claimed this partition at the same moment"
            return Answer(Status.IN_PROGRESS, text)
        return Claimed(written, one, slices, finished, work.begun, _note(work, planned))

    def _too_small(self, work: Work, frozen: FrozenPartition) -> Answer | None:
        """Refuse to take rows out of main without being told to; nothing is nothing to export."""
        before, now = work.held.rows, frozen.visible_rows
        if now == 0 and before == 0:
            return Answer(Status.EMPTY, "all its rows are deleted")
        allowed = self._wish.force and (now > 0 or self._wish.allow_empty)
        if now < before and not allowed:
            return Answer(Status.REFUSED, shrinks(before, now))
        return None

    def _resumed(self, work: Work, one: FrozenPartition, frozen: Frozen) -> _Planned | None:
        """Return the last claim with a new epoch, when its files would be the same."""
        if work.resume is None:
            return None
        last = work.resume.claim
        if frozen_content(self._to.table, one).fingerprint != last.fingerprint:
            return None
        slices = self._slices(one, last)
        if self._recipe(frozen.snapshot, slices) != last.recipe:
            return None
        epoch = self._ports.ledger.next_epoch()
        staging = frozen.handles[one.partition_id]
        return _Planned(replace(last, epoch=epoch, staging=staging), slices, resumed=True)

    def _anew(self, one: FrozenPartition, frozen: Frozen) -> _Planned:
        content = frozen_content(self._to.table, one)
        epoch = self._ports.ledger.next_epoch()
        made = Claim(
            epoch=epoch,
            transaction_id=self._ports.new_transaction(epoch).value,
            fingerprint=content.fingerprint,
            begun=self._ports.clock(),
            parts=content.parts,
            staging=frozen.handles[one.partition_id],
            bytes_ratio=self.ratio.value,
            slots=self._slots,
        )
        slices = self._slices(one, made)
        recipe = self._recipe(frozen.snapshot, slices)
        return _Planned(replace(made, recipe=recipe), slices, resumed=False)

    def _slices(self, frozen: FrozenPartition, made: Claim) -> tuple[Slice, ...]:
        key = self._to.key(frozen.partition_id).hash
        return plan_slices(self._to, frozen, key, made)

    def _recipe(self, snapshot: SourceSnapshot, slices: tuple[Slice, ...]) -> str:
        return recipe_of(self._to.write_plan(snapshot, self._ports.job, ()), slices)


def _note(work: Work, planned: _Planned) -> str:
    """Say that an older content is exported, because it was frozen by a run that began files."""
    claim, now = planned.claim, work.content
    begun = work.resume is not None and work.resume.claim.fingerprint == claim.fingerprint
    if claim.fingerprint == now.fingerprint or is_merged(claim.parts, now) or not begun:
        return ""
    rows = sum(p.rows for p in claim.parts)
    told = (
        f"an interrupted run had frozen it with {rows:,} rows, and that is what was exported; the "
    )
    if not now.parts:
        return f"{told}source partition is gone since"
    return f"{told}source has {now.rows:,} now. Export it again after its manifest TTL"

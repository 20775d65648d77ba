"""Freezes the partitions of a group at the source and claims their ledger rows (protocol step 1).

A partition goes through two states: `Work` (to be exported) and `Claimed` (owned by this run).

* `Freezing` reuses the source snapshot of an interrupted run and freezes the other partitions.
* The snapshot is released at the end, except for exports that did not finish: while their parts
  are frozen, a change of the source does not invalidate their finished files.
* `Claiming` resumes the transaction of an interrupted export if its files would be the same: the
  same parts, read and cut in the same way (`recipes_of`). Then it keeps the finished files.
  Otherwise the claim gets a new transaction.
* A claim of new parts freezes the whole partition, and writes only these parts (decision 0026).

Source: docs/spec/commit-protocol.md, step 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tableformat.committer import (
    LakeTableState,
    ReplacePartition,
)
from tableformat.effects import Step
from tableformat.errors import SourceError
from tableformat.export.archived import ArchivedExports
from tableformat.export.content import Content, is_merged
from tableformat.export.decision import (
    MAY_BE_EQUAL,
    CompareRows,
    Skip,
    SourceGuards,
    added_note,
    claimed,
    has_exactly,
    may_be_equal,
    new_parts,
    parts_may_be_equal,
    shrinks,
)
from tableformat.export.destination import Destination, plan_slices
from tableformat.export.foreign_rows import (
    Alongside,
    OwnKeys,
    WholePartitions,
    no_lake_partition,
)
from tableformat.export.main_state import Holding, Kind
from tableformat.export.outcome import Status
from tableformat.export.plan import SizeRatio, frozen_content
from tableformat.export.ports import JobPorts
from tableformat.export.request import ExportOptions
from tableformat.export.slices import Slice, finished_files, recipes_of
from tableformat.export.table_identity import known_node
from tableformat.ledger import Claim, ExportedPart, Held, Key, Row, Stale, State
from tableformat.mergetree.compatibility import division_of
from tableformat.mergetree.digest_sql import DigestColumn, empty_digest
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId
from tableformat.quantities import counted
from tableformat.receipt import Receipt
from tableformat.source import (
    FrozenPartition,
    LeftPart,
    LeftSnapshot,
    PartsLayout,
    Probe,
    SourceSnapshot,
)

__all__ = ["Begun", "Claimed", "Claiming", "Freezing", "Frozen", "Planned", "Work", "late_note"]


@dataclass(frozen=True, slots=True)
class Begun:
    """An unfinished claim with finished files, which a run may resume."""

    claim: Claim
    receipts: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A partition to export: its ledger row, the state of main, and how the export starts.

    `held` is the state of the key in main of `state`, an M. `content` is the content of the source
    partition when the run read it. `start`: it resumes a claim, or its rows are only compared with
    the exported rows and nothing is written; None if it starts from the beginning. `archived` are
    the archived exports of the partition, before those late rows; None if it has none.
    """

    key: Key
    row: Row | None
    held: Holding
    state: LakeTableState
    start: Begun | CompareRows | None
    content: Content
    begun: int
    archived: ArchivedExports | None = None

    @property
    def resume(self) -> Begun | None:
        """The claim to resume, None if there is none."""
        return self.start if isinstance(self.start, Begun) else None

    @property
    def refused(self) -> Skip | None:
        """The outcome if the rows differ that are only compared; None if rows are written."""
        return self.start.refused if isinstance(self.start, CompareRows) else None

    @property
    def may_be_equal(self) -> bool:
        """Whether its rows may equal the exported rows; a resumed export is not compared."""
        return self.resume is None and parts_may_be_equal(self.row, self.held, self.content)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A partition that this run owns: its slices, and its finished files by slice number.

    `frozen` has the parts that are written, and the digest of all parts. `note` is a message for
    the user about the snapshot, '' for none.
    """

    row: Row
    frozen: FrozenPartition
    slices: tuple[Slice, ...]
    finished: Mapping[int, Receipt]
    begun: int
    note: str = ""

    @property
    def unfinished(self) -> tuple[Slice, ...]:
        """The slices that have no file yet."""
        return tuple(s for s in self.slices if s.number not in self.finished)


_NO_PARTS: Final = PartsLayout("", "", "", "", ())
_BRIEF_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Frozen:
    """A snapshot of a group; `handles` has the handle of each partition.

    `abandoned` are the handles of unfinished exports of the group that this run does not resume.
    """

    snapshot: SourceSnapshot
    handles: Mapping[PartitionId, tuple[str, ...]]
    abandoned: tuple[str, ...] = ()

    @property
    def is_brief(self) -> bool:
        """Whether its parts are files of this host, so small that they are exported in seconds."""
        if not isinstance(self.snapshot.layout, PartsLayout):
            return False
        parts = (part for one in self.snapshot.partitions for part in one.parts)
        return sum(part.part.bytes_on_disk for part in parts) <= _BRIEF_BYTES


@dataclass(frozen=True, slots=True)
class Freezing:
    """Takes snapshots of partitions of one table, and evaluates `probes` on every partition.

    It computes digests over `columns` if exports are verified. It also does so for groups in which
    a partition may have the same rows as exported, if rows are compared.
    """

    ports: JobPorts
    table: MergeTreeTable
    probes: tuple[Probe, ...]
    columns: tuple[DigestColumn, ...]

    def freeze(self, work: Iterable[Work]) -> Frozen:
        """Return the snapshot of a group, found or taken now, and the refused partitions.

        Raises:
            SourceError: the source cannot be used at all, or the snapshot to resume does not exist.
        """
        work = tuple(work)
        digest = self._digested(work)
        found = self._find(work, digest)
        frozen = self._completed(work, found, digest)
        refused = (*frozen.snapshot.refused, *self._lost(work, found))
        gone = self._gone(work, digest)
        partitions = (*frozen.snapshot.partitions, *gone)
        snapshot = replace(frozen.snapshot, partitions=partitions, refused=refused)
        handles = {p.partition_id: () for p in gone} | dict(frozen.handles)
        begun = (w.row.claim.staging for w in work if w.row and w.row.state is State.RUNNING)
        names = dict.fromkeys(name for staging in begun for name in staging)
        return Frozen(snapshot, handles, tuple(n for n in names if n not in snapshot.handle))

    def _digested(self, work: tuple[Work, ...]) -> tuple[DigestColumn, ...]:
        """Return the columns by which the partitions of a group are digested, none for not."""
        ports = self.ports
        compared = ports.compares is not None and any(one.may_be_equal for one in work)
        return self.columns if ports.digests is not None or compared else ()

    def _completed(
        self,
        work: Iterable[Work],
        found: SourceSnapshot | None,
        digest: tuple[DigestColumn, ...],
    ) -> Frozen:
        """Take a snapshot of the partitions that were not found.

        Raises:
            SourceError: there is no partition to take, and none was found.
        """
        ids = tuple(PartitionId(w.key.partition_id) for w in work if w.content.parts)
        held = {p.partition_id: found.handle for p in found.partitions} if found else {}
        rest = tuple(i for i in ids if i not in held)
        if not rest:
            if found is None and (lost := self._lost(work, found)):
                raise lost[0][1]
            return Frozen(found or SourceSnapshot(self.table, _NO_PARTS, (), (), ()), held)
        self.ports.observer.note(f"freezing {counted(len(rest), 'partition')}")
        fresh = self.ports.effects(Step.SNAPSHOT_SOURCE, lambda: self._fresh(rest, digest))
        for note in fresh.notes:
            self.ports.observer.note(note)
        if found is None:
            return Frozen(fresh, {p.partition_id: fresh.handle for p in fresh.partitions})
        partitions = found.partitions + fresh.partitions
        both = replace(
            fresh,
            layout=fresh.layout.over(fresh.table, partitions),
            partitions=partitions,
            handle=(*found.handle, *fresh.handle),
            elsewhere=(*found.elsewhere, *fresh.elsewhere),
        )
        return Frozen(both, held | {p.partition_id: fresh.handle for p in fresh.partitions})

    def release(self, frozen: Frozen, keep: frozenset[str]) -> None:
        """Release the parts of the snapshot that no resumable export needs.

        A failure only costs space: it is reported, and the next run releases them.
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
        """Return the partitions that neither the source nor a snapshot has now, with errors."""
        held = {p.partition_id for p in found.partitions} if found else set()
        gone = (PartitionId(w.key.partition_id) for w in work if not w.content.parts and w.resume)
        return tuple((i, self._is_lost(i)) for i in gone if i not in held)

    def _gone(
        self, work: Iterable[Work], columns: tuple[DigestColumn, ...]
    ) -> tuple[FrozenPartition, ...]:
        """Return the partitions without source parts, whose rows the user wants to remove."""
        digest = empty_digest(columns) if columns else None
        return tuple(
            FrozenPartition(PartitionId(w.key.partition_id), (), (), digest)
            for w in work
            if not w.content.parts and w.resume is None
        )

    def _is_lost(self, partition_id: PartitionId) -> SourceError:
        return SourceError(
            f"Cannot resume the export of partition {partition_id} of {self.table.name}: the "
            "source no longer has an active part of it, nor the snapshot of the interrupted run. "
            "Attach its parts again, or restore them."
        )

    def _find(
        self, work: Iterable[Work], digest: tuple[DigestColumn, ...]
    ) -> SourceSnapshot | None:
        """Return the existing snapshot of claims that may be resumed, None if there is none."""
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
                self.table, wanted, probes=self.probes, digest=digest
            ),
        )
        for note in found.notes:
            self.ports.observer.note(note)
        return found if found.partitions else None

    def _fresh(
        self, ids: tuple[PartitionId, ...], digest: tuple[DigestColumn, ...]
    ) -> SourceSnapshot:
        return self.ports.source.snapshot(
            self.table, ids, job=self.ports.job, probes=self.probes, digest=digest
        )


def _left(claim: Claim) -> LeftSnapshot:
    parts = tuple(LeftPart(p.name, p.hash_of_all_files, p.rows) for p in claim.parts)
    return LeftSnapshot(claim.staging, parts)


@dataclass(frozen=True, slots=True)
class Planned:
    """A partition that can be claimed: the row to write, and the contents of `Claimed`.

    `replaces`: its files replace files in main.
    """

    work: Work
    row: Row
    frozen: FrozenPartition
    slices: tuple[Slice, ...]
    finished: Mapping[int, Receipt]
    note: str
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class _Cut:
    """A planned claim and its slices; `written` is the partition without parts that stay."""

    claim: Claim
    written: FrozenPartition
    slices: tuple[Slice, ...]
    resumed: bool


_HAS_ROWS: Final = (Kind.WHOLE, Kind.REWRITTEN, Kind.MIXED, Kind.LEFT)


def late_note(key: Key, archived: Iterable[Holding]) -> str:
    """Return the note on an export of late rows, '' for one of the partition itself.

    `archived` are the states of the archived exports of the partition in main.
    """
    if not key.increment:
        return ""
    lacks = next((held for held in archived if held.kind not in _HAS_ROWS), None)
    if lacks is not None:
        why = lacks.text.rstrip(".")
        return f"late rows {key.increment}: main lacks archived rows of the partition: {why}"
    return f"late rows {key.increment}: the archived rows of the partition stay"


class Claiming:
    """Claims partitions of one table for one destination."""

    def __init__(
        self, ports: JobPorts, destination: Destination, options: ExportOptions, *, slots: int
    ) -> None:
        """Store the values of all partitions."""
        self._ports = ports
        self._to = destination
        self._options = options
        self._slots = slots
        own = OwnKeys(ports.ledger, destination.layout.table_uuid)
        self._whole = WholePartitions(
            ports.effects, destination.lake, ports.ledger, own, ports.storage
        )
        self._alongside = Alongside(ports.effects, destination.lake, ports.ledger, own)
        self._partitions = 1
        self._epochs: Iterator[int] = iter(())
        self._recipes: tuple[SourceSnapshot, Callable[[Iterable[Slice]], str]] | None = None
        self.ratio = SizeRatio()

    def begin(self, partitions: int) -> None:
        """Start a group, after all its rows were read.

        The epochs of the group are drawn together, and only after the reads: so an epoch is greater
        than that of the claim in every row which has not changed since.
        """
        self._partitions = partitions
        self._epochs = iter(())

    def plan(
        self, work: Work, one: FrozenPartition, frozen: Frozen, first_number: int
    ) -> Planned | Skip:
        """Return the claim of the partition in the snapshot, with the files that exist already.

        Args:
            work: the partition as the job read it.
            one: the partition in the snapshot.
            frozen: the snapshot.
            first_number: the number of its first slice; numbers are unique in a group.

        Raises:
            RefusedError: the rows belong to several Iceberg partitions (code 36), the lake
                partition has files of other writers, or it cannot be replaced as a whole.
            DestinationError: receipts of an earlier attempt, or main, cannot be read.
            LedgerError: the ledger returns no epoch.
        """
        if refusal := self._too_small(work, one):
            return refusal
        cut = self._resumed(work, one, frozen) or self._cut(work, one, frozen)
        replaces = bool(work.held.files) and not cut.claim.stays
        if cut.slices:
            replaces |= self._look_there(work, cut.slices[0].partition)
        table = self._to.table
        row = claimed(
            work.row,
            work.key,
            names=(str(table.name), str(self._to.name)),
            claim=cut.claim,
            ttl=self._options.manifest_ttl,
            now=self._ports.clock(),
            guards=SourceGuards(known_node(table), table.server, division_of(table)),
        )
        slices = tuple(
            replace(s, number=first_number + i, epoch=cut.claim.epoch)
            for i, s in enumerate(cut.slices)
        )
        receipts = work.resume.receipts if work.resume is not None and cut.resumed else ()
        storage = self._ports.storage(self._to.location)
        finished = self._ports.effects(
            Step.CHECK_FINISHED, lambda: finished_files(slices, receipts, storage)
        )
        note = _note(work, cut) or self._may_be_equal(work, one)
        before = work.archived.exports if work.archived is not None else ()
        late = late_note(work.key, (one.held for one in before))
        note = "; ".join(filter(None, (late, _note_of_added(cut), note)))
        return Planned(work, row, cut.written, slices, finished, note, replaces)

    def claim(self, planned: tuple[Planned, ...]) -> tuple[Claimed | Skip, ...]:
        """Make one compare-and-set for each partition, all in one request.

        Raises:
            LedgerError: the ledger failed; the next run resumes the claims that were written.
        """
        rows = tuple(p.row for p in planned)
        written = self._ports.effects(Step.CLAIM, lambda: self._ports.ledger.write_all(rows))
        text = "another process changed the ledger row of this partition at the same moment"
        return tuple(
            Skip(Status.IN_PROGRESS, text)
            if isinstance(row, Stale)
            else Claimed(row, p.frozen, p.slices, p.finished, p.work.begun, p.note)
            for p, row in zip(planned, written, strict=True)
        )

    def _epoch(self) -> int:
        """Return an epoch of the group; unused epochs do no harm."""
        drawn = next(self._epochs, None)
        if drawn is None:
            drawn = self._ports.ledger.next_epoch(self._partitions)
            self._epochs = iter(range(drawn + 1, drawn + self._partitions))
        return drawn

    def _look_there(self, work: Work, partition: tuple[str | None, ...]) -> bool:
        """Refuse now what the commit would refuse after hours of writing (step 6).

        Return whether the replacement of a whole lake partition takes files out of main.
        """
        if self._options.is_of_statement and not self._options.attaches:
            # The plan of REPLACE checks what it replaces.
            return False
        change = self._options.change
        if isinstance(change, ReplacePartition):
            whole = self._whole.leaving(work.state, work.key.hash, partition, work.held)
            return bool(whole.paths)
        archived = work.archived.exports if work.archived is not None else ()
        beside = (one.held for one in archived)
        self._alongside.refuse(work.state, partition, work.key, work.held, change, beside)
        return False

    def _may_be_equal(self, work: Work, one: FrozenPartition) -> str:
        """Report that the rows may equal those of main, if they are not compared."""
        options, compares = self._options, self._ports.compares
        if (
            options.force
            or options.is_of_statement
            or compares is not None
            or work.resume is not None
        ):
            return ""
        return MAY_BE_EQUAL if may_be_equal(work.row, work.held, one.visible_rows) else ""

    def _too_small(self, work: Work, frozen: FrozenPartition) -> Skip | None:
        """Return the outcome if there is nothing to export, or if rows would leave main unasked."""
        before, now = work.held.rows, frozen.visible_rows
        if now == 0 and self._options.replace_partition:
            raise no_lake_partition()
        if now == 0 and (before == 0 or self._options.is_of_statement):
            return Skip(Status.EMPTY, "all its rows are deleted")
        allowed = self._options.force and (now > 0 or self._options.allow_empty)
        if now < before and not allowed:
            return Skip(Status.REFUSED, shrinks(before, now))
        return None

    def _resumed(self, work: Work, one: FrozenPartition, frozen: Frozen) -> _Cut | None:
        """Return the last claim with a new epoch, if its files would be the same."""
        if work.resume is None:
            return None
        last = work.resume.claim
        content = frozen_content(self._to.table, one)
        written = self._written(work, one, last.stays, _without(content, work.row))
        if content.fingerprint != last.fingerprint or written is None:
            return None
        slices = self._slices(work.key, written, last, frozen)
        if self._recipe(frozen.snapshot, slices) != last.recipe:
            return None
        staging = frozen.handles[one.partition_id]
        query_id = self._ports.query_id
        again = replace(last, epoch=self._epoch(), staging=staging, query_id=query_id)
        return _Cut(again, written, slices, resumed=True)

    def _cut(self, work: Work, one: FrozenPartition, frozen: Frozen) -> _Cut:
        content = frozen_content(self._to.table, one)
        added = new_parts(work.row, content, work.held, self._options)
        done = work.row.done if work.row is not None and added else None
        stays = done.landed.left or () if done is not None else ()
        written = self._written(work, one, stays, added)
        stays, written = ((), one) if written is None else (stays, written)
        epoch = self._epoch()
        made = Claim(
            epoch=epoch,
            transaction_id=self._ports.new_transaction(epoch).value,
            fingerprint=content.fingerprint,
            begun=self._ports.clock(),
            parts=content.parts,
            columns=content.columns,
            staging=frozen.handles[one.partition_id],
            bytes_ratio=self.ratio.value,
            slots=self._slots,
            query_id=self._ports.query_id,
            holds=stays or None,
        )
        slices = self._slices(work.key, written, made, frozen)
        recipe = self._recipe(frozen.snapshot, slices)
        return _Cut(replace(made, recipe=recipe), written, slices, resumed=False)

    def _written(
        self,
        work: Work,
        one: FrozenPartition,
        stays: tuple[Held, ...],
        added: tuple[ExportedPart, ...],
    ) -> FrozenPartition | None:
        """Return the partition with the parts to write: all, or those that are `added` to `stays`.

        None if no export of these parts alone gives main the rows of the partition.
        """
        if not stays:
            return one
        names = {part.name for part in added}
        written = replace(one, parts=tuple(p for p in one.parts if p.source_name in names))
        rows = sum(held.rows for held in stays) + written.visible_rows
        fits = written.visible_rows > 0 and rows == one.visible_rows
        there = not self._options.force and has_exactly(work.held, stays)
        return written if fits and there else None

    def _slices(
        self, key: Key, one: FrozenPartition, made: Claim, frozen: Frozen
    ) -> tuple[Slice, ...]:
        return plan_slices(self._to, one, key.hash, made, ranges=frozen.snapshot.layout.ranges)

    def _recipe(self, snapshot: SourceSnapshot, slices: tuple[Slice, ...]) -> str:
        if self._recipes is None or self._recipes[0] is not snapshot:
            plan = self._to.write_plan(snapshot, self._ports.job, ())
            self._recipes = snapshot, recipes_of(plan)
        return self._recipes[1](slices)


def _without(content: Content, row: Row | None) -> tuple[ExportedPart, ...]:
    """Return the parts that the last export of a row does not have."""
    before = {part.name for part in row.done.parts} if row is not None and row.done else set[str]()
    return tuple(part for part in content.parts if part.name not in before)


def _note_of_added(planned: _Cut) -> str:
    """Return the note that only new parts are written, '' if all are."""
    stays, written = planned.claim.stays, planned.written
    if not stays:
        return ""
    return added_note(len(written.parts), written.visible_rows, sum(one.rows for one in stays))


def _note(work: Work, planned: _Cut) -> str:
    """Return the note that older content is exported: an interrupted run took its snapshot."""
    claim, now = planned.claim, work.content
    begun = work.resume is not None and work.resume.claim.fingerprint == claim.fingerprint
    if claim.fingerprint == now.fingerprint or is_merged(claim, now) or not begun:
        return ""
    rows = sum(p.rows for p in claim.parts)
    beginning = f"exported from the snapshot of an interrupted run, with {rows:,} rows; the "
    if not now.parts:
        return f"{beginning}source partition no longer exists"
    return f"{beginning}source has {now.rows:,} now. Export it again after its manifest TTL"

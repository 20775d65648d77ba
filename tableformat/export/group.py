"""Exports one group of partitions: lease, freeze, claim, write, commit, clean up.

A failure of one partition never fails the others. The order guarantees exactly-once export:

    lease -> settle what landed -> report an outcome or freeze -> claim -> write and count
    -> commit -> release

If the group ends early, the job releases the leases and stores the last error on the RUNNING row.
Frozen parts and finished files stay, so that the next run resumes.

* `Tidying` removes the files of earlier attempts (step 10 of docs/spec/commit-protocol.md), under
  the lease, after the export landed and was settled. It removes a bounded share; `gc` does the
  rest. A key without an earlier export is skipped.
* `Abandoning` releases the frozen parts of an interrupted replacement when main already holds the
  content of the source again; its finished files can still be found by their receipts.
* `ConcurrentExports` handles the first exports of tables with the same name at the same time: each
  looks for the others before the freeze and again after its claim, and only one continues. If
  both see each other, the older transaction waits for a bounded time for the other to give up.
* Claims of a statement that KILL QUERY stopped are given up before anything is written
  (`give_up.withdraw_killed`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

from tableformat.committer import LakeTableState
from tableformat.effects import Step
from tableformat.errors import (
    DeniedError,
    DestinationError,
    LedgerError,
    SourceError,
    TableFormatError,
    UnsupportedError,
)
from tableformat.export.archived import (
    ArchivedExport,
    ArchivedExports,
    PartitionExports,
    exports_of_partition,
)
from tableformat.export.cleanup import Cleaning, staging_in_use
from tableformat.export.commit import Ports, held_in_main, later_held, settle_mark, unsettled_mark
from tableformat.export.content import Content, content_of
from tableformat.export.decision import (
    CompareRows,
    RemoveRows,
    Resume,
    Skip,
    decide,
    decide_in_tree,
    not_late,
    one_too_many,
)
from tableformat.export.destination import Destination
from tableformat.export.freeze_and_claim import (
    Begun,
    Claimed,
    Claiming,
    Freezing,
    Frozen,
    Planned,
    Work,
)
from tableformat.export.give_up import BY_CANCEL, withdraw, withdraw_killed
from tableformat.export.leases import Leases
from tableformat.export.main_state import Holding
from tableformat.export.maintenance import note_rewritten
from tableformat.export.outcome import Outcome, Status
from tableformat.export.plan import frozen_content
from tableformat.export.ports import JobPorts, SliceWriter
from tableformat.export.request import ExportOptions
from tableformat.export.slices import stored_receipts
from tableformat.export.table_identity import (
    SameNameExports,
    SameTable,
    SourceTables,
    may_be_refused,
    same_name_exports,
)
from tableformat.export.verification import Changed, EqualRows, Verification
from tableformat.export.watermark import Listing, SettingWatermark
from tableformat.export.write_and_commit import (
    Cancelled,
    Committing,
    Files,
    FileWriting,
    NoneLeftError,
    OutcomeBuilder,
)
from tableformat.ledger import (
    Claim,
    DetachedPart,
    Key,
    LeaseHeld,
    Row,
    Stale,
    State,
    Stop,
)
from tableformat.mergetree.table import Part
from tableformat.messages import Command
from tableformat.names import PartitionId
from tableformat.source import FrozenPartition, Source

__all__ = ["Abandoning", "ConcurrentExports", "GroupJob", "Tidying"]

_MAIN_HOLDS_IT = (Status.UNCHANGED, Status.ALREADY_EXPORTED)
_MOST_MILLISECONDS_OPEN: Final = 20_000


@dataclass(frozen=True, slots=True)
class Abandoning:
    """Releases the snapshots of interrupted exports of one source."""

    ports: JobPorts

    def after(self, row: Row | None, status: Status) -> None:
        """Release the snapshot of a claim, under its lease; a failure is only reported.

        Args:
            row: of the partition, None when it has none.
            status: of the decision, from the current source and main.
        """
        begun = row is not None and row.state is State.RUNNING and bool(row.claim.staging)
        if row is None or not begun or status not in _MAIN_HOLDS_IT:
            return
        ports = self.ports
        after = replace(row, claim=replace(row.claim, staging=()))
        try:
            written = ports.effects(Step.CLEAN_CLAIM, partial(ports.ledger.write, after))
            if isinstance(written, Stale):
                return
            in_use = staging_in_use(ports.ledger)
            ports.effects(
                Step.SWEEP_SOURCE,
                partial(ports.source.sweep_leftovers, ports.job_is_alive, in_use),
            )
        except (LedgerError, SourceError) as error:
            self.ports.observer.note(
                f"partition {row.key.partition_id}: the snapshot of an interrupted run stays: "
                f"{error} The next run drops it"
            )


_MOST_LOOKS: Final = 8


class ConcurrentExports:
    """Prevents concurrent first exports of several tables with one name to one destination."""

    def __init__(
        self, ports: Ports, source: Source, destination: Destination, options: ExportOptions
    ) -> None:
        """Store the arguments; nothing is read."""
        self._ports = ports
        self._to = destination
        self._options = options
        self._tables = SourceTables(ports.effects, source)
        self._known: SameNameExports | None = None

    def before(
        self, row: Row | None, partition_id: str, content: Content, state: LakeTableState
    ) -> str:
        """Return why a partition is refused because of other tables of this name, '' if it is not.

        This reads the ledger for the first partition only; `give_up_later` reads it again.

        Args:
            row: the ledger's row of the partition, None when it was never exported.
            partition_id: its id.
            content: the content of the partition.
            state: main.

        Raises:
            TableFormatError: the ledger or main cannot be read.
        """
        if self._known is None:
            self._known = self._look()
        return self._refusal(
            self._known, row, partition_id, state, content=content, tables=self._tables
        )

    def give_up_later(self, claimed: Iterable[Claimed]) -> Mapping[str, str]:
        """Give up claims if another table's export continues; return the reasons by partition id.

        Raises:
            TableFormatError: the ledger or main cannot be read or written; then no claim continues.
        """
        given_up: dict[str, str] = {}
        waiting = [one.row for one in claimed if may_be_refused(one.row, self._options)]
        for attempt in range(1, _MOST_LOOKS + 1):
            found = self._look() if waiting else None
            if found is None or not any(found.has_any(row.key.partition_id) for row in waiting):
                break
            # Loaded after the ledger was read: this M has all exports that landed by then.
            state = self._ports.effects(Step.LOAD_METADATA, self._to.lake.load)
            still = []
            for row in waiting:
                partition_id = row.key.partition_id
                content = Content(row.claim.fingerprint, row.claim.parts, merge_explains=False)
                refusal = partial(self._refusal, found, row, partition_id, state, content=content)
                if not (why := refusal()):
                    continue
                is_later = refusal(after=row.claim)
                if is_later or attempt == _MOST_LOOKS:
                    given_up[partition_id] = why
                    withdraw(self._ports, row, state=State.FAILED, why=why)
                else:
                    still.append(row)
            waiting = still
            if waiting:
                self._ports.pause(attempt)
        return given_up

    def _look(self) -> SameNameExports:
        uuid, table, ledger = self._to.layout.table_uuid, self._to.table, self._ports.ledger
        return self._ports.effects(
            Step.READ_LEDGER,
            lambda: same_name_exports(table, uuid, lambda: ledger.rows(not_of=table.key_source)),
        )

    def _refusal(
        self,
        found: SameNameExports,
        row: Row | None,
        partition_id: str,
        state: LakeTableState,
        *,
        content: Content,
        tables: SourceTables | None = None,
        after: Claim | None = None,
    ) -> str:
        def held(other: Row) -> Holding:
            return held_in_main(self._ports, other, state, other.key.hash)

        return found.refusal(
            row, partition_id, self._options, held, content=content, tables=tables, after=after
        )


_LANDED = (Status.COMMITTED, Status.REPLACED)


@dataclass(frozen=True, slots=True)
class Tidying:
    """Removes the files of earlier attempts after exports into one destination."""

    ports: JobPorts
    commit_ports: Ports
    to: Destination

    def after(self, one: Claimed, outcome: Outcome) -> None:
        """Remove the files of earlier attempts; a failure is only reported."""
        earlier = bool(one.row.old) or one.row.claim.begun < one.begun
        if outcome.status not in _LANDED or not earlier:
            return
        try:
            cleaning = Cleaning(self.commit_ports, self.ports.storage, self.to.location)
            cleaning.clean(one.row.key.hash)
        except TableFormatError as error:
            self.ports.observer.note(
                f"partition {outcome.partition_id}: files of earlier attempts were not removed: "
                f"{error} {Command.GC} removes them"
            )


class GroupJob:
    """Exports groups of partitions of one table into one destination."""

    def __init__(
        self,
        ports: JobPorts,
        destination: Destination,
        leases: Leases,
        options: ExportOptions,
        listing: Listing,
        *,
        slots: int,
        commit_every: int,
        commit_after: int,
    ) -> None:
        """Store the values of all groups; `listing` is the source table at the start of the run.

        A commit makes at most `commit_every` partitions visible. After every `commit_after`
        milliseconds all complete partitions are committed.
        """
        self._ports = ports
        self._to = destination
        self._leases = leases
        self._options = options
        self._commit_every = commit_every
        self._claiming = Claiming(ports, destination, options, slots=slots)
        self._outcomes = OutcomeBuilder(ports, str(destination.name), options.action)
        self._commit_ports = Ports(
            ports.effects,
            destination.lake,
            ports.ledger,
            ports.clock,
            ports.pause,
            storage=ports.storage,
            watermark=SettingWatermark(listing, destination.lake, ports.ledger),
        )
        is_digested = ports.digests is not None or ports.compares is not None
        columns = destination.plan.digest_columns if is_digested else ()
        verification = Verification(
            self._commit_ports, ports.digests, destination.location, columns
        )
        self._freezing = Freezing(ports, destination.table, destination.plan.probes, columns)
        self._equal_rows = EqualRows(
            self._commit_ports, ports.compares, destination.location, columns, ports.observer.note
        )
        cancelled = Cancelled(ports, leases, self._outcomes)
        self._committing = Committing(
            ports, self._commit_ports, destination, options, verification, self._outcomes, cancelled
        )
        self._cancelled = cancelled
        self._writing = FileWriting(
            ports, destination, self._claiming, cancelled, commit_after, options.action
        )
        self._tidying = Tidying(ports, self._commit_ports, destination)
        self._abandoning = Abandoning(ports)
        self._same_table = SameTable(ports, destination.table, options)
        self._concurrent = ConcurrentExports(self._commit_ports, ports.source, destination, options)
        self._increments: list[str] = []
        self._open_since = ports.clock()

    def run(
        self, ids: tuple[PartitionId, ...], *, is_last: bool = True
    ) -> Generator[tuple[Outcome, ...], None, None]:
        """Export a group, the last one or not; yield the outcomes that are known together."""
        state = self._ports.effects(Step.LOAD_METADATA, self._to.lake.load)
        work, ended = list[Work](), list[Outcome]()
        try:
            held_by = self._leases.take_all(tuple(self._to.key(i).hash for i in ids))
            ours = tuple(i for i in ids if self._to.key(i).hash not in held_by)
            keys = tuple(self._to.key(i).hash for i in ours)
            read = self._ports.effects(Step.READ_LEDGER, partial(self._ports.ledger.read_all, keys))
            rows = dict(zip(ours, read, strict=True))
            parts = self._ports.source.parts(self._to.table.name, *ours)
            try:
                for partition_id in ids:
                    of_this = tuple(p for p in parts if p.partition_id == partition_id)
                    found = self._begin(partition_id, held_by, of_this, state, rows)
                    if isinstance(found, Outcome):
                        ended.append(found)
                    else:
                        work.append(found)
            finally:
                if ended:
                    yield tuple(ended)
            if work:
                yield from self._export(tuple(work), is_last=is_last)
        except (KeyboardInterrupt, GeneratorExit):
            self._leases.leave()
            raise
        finally:
            self._leases.release(*(self._to.key(i).hash for i in ids), *self._increments)
            self._increments.clear()

    def _begin(
        self,
        partition_id: PartitionId,
        held_by: Mapping[str, LeaseHeld],
        parts: tuple[Part, ...],
        state: LakeTableState,
        rows: Mapping[PartitionId, Row | None],
    ) -> Work | Outcome:
        """Decide about a partition under its lease; it is refused if main cannot be read for it."""
        begun = self._ports.clock()
        key = self._to.key(partition_id)
        if key.hash in held_by:
            return self._held(partition_id, held_by[key.hash], begun)
        try:
            return self._decided(partition_id, key, parts, state, rows[partition_id], begun)
        except UnsupportedError as error:
            # It concerns the rows of this partition in main; the others of the group are exported.
            return self._report(partition_id.value, Status.REFUSED, error.message, None, begun)

    def _decided(
        self,
        partition_id: PartitionId,
        key: Key,
        parts: tuple[Part, ...],
        state: LakeTableState,
        first: Row | None,
        begun: int,
    ) -> Work | Outcome:
        """Settle what landed earlier, and return what to export, or why nothing is exported.

        Raises:
            UnsupportedError: it cannot be decided which rows of the partition main has.
        """
        exports = self._settled(key, first, state)
        first = exports.archived[0] if exports.archived else exports.row
        key, row = exports.key, exports.row
        if key.increment and (holder := self._leases.take(key.hash)) is not None:
            return self._held(partition_id, holder, begun)
        self._increments += [key.hash] * (key.increment > 0)
        if row is not None and _is_newer(row, state):
            # The export landed after M was loaded, so that M does not show it.
            state = self._ports.effects(Step.LOAD_METADATA, self._to.lake.load)
        for one in dict.fromkeys((first, row)):
            same = self._same_table.confirmed(one) if one is not None else None
            if isinstance(same, Skip):
                return self._report(partition_id.value, same.status, same.message, row, begun)
            row = same if one is row else row
        is_unknown = row is None or (row.done is None and row.state is not State.RUNNING)
        if not parts and is_unknown and not exports.archived:
            return self._report(
                partition_id.value, Status.EMPTY, "its parts hold no rows", row, begun
            )
        content = content_of(self._to.table, parts)
        if other := self._concurrent.before(first, partition_id.value, content, state):
            return self._report(partition_id.value, Status.REFUSED, other, row, begun)
        held = held_in_main(self._commit_ports, row, state, key.hash)
        there = content if parts else None
        archived = self._archived(exports.archived, there, state)
        decision = decide(row, there, self._options, held, begun, archived)
        if self._to.tree:
            decision = decide_in_tree(decision, row, there, held, self._options)
        if not isinstance(decision, Skip) and (why := later_held(self._commit_ports, row, state)):
            decision = Skip(Status.REFUSED, why)
        if isinstance(decision, Skip):
            return self._ended(decision, partition_id, row, held, begun)
        resume = self._begun(decision.row) if isinstance(decision, Resume) else None
        if not parts and resume is None and not isinstance(decision, RemoveRows):
            text = (
                "the source partition no longer exists, and the export that was begun finished "
                "nothing"
            )
            return self._report(partition_id.value, Status.REFUSED, text, row, begun)
        start = decision if isinstance(decision, CompareRows) else resume
        return Work(key, row, held, state, start, content, begun, archived)

    def _read(self, key: str) -> Row | None:
        return self._ports.effects(Step.READ_LEDGER, partial(self._ports.ledger.read, key))

    def _settled(self, key: Key, first: Row | None, state: LakeTableState) -> PartitionExports:
        """Return the exports of a partition with its `first` row; settle what has landed."""
        while True:
            exports = exports_of_partition(self._read, key, first)
            row, mark = exports.row, unsettled_mark(exports.row, state)
            if row is None or mark is None:
                return exports
            settled = settle_mark(self._commit_ports, row, state, mark)
            if isinstance(settled, Row) and settled.archived is None:
                return replace(exports, row=settled)
            # Another process settled it, or the copies that landed are archived.
            first = self._read(key.hash)

    def _ended(
        self, decision: Skip, partition_id: PartitionId, row: Row | None, held: Holding, begun: int
    ) -> Outcome:
        """Return the outcome of a partition that is not exported, after noting what was found."""
        if decision.of is not None:
            row = decision.of
        elif row is not None and held.proof is not None:
            row = note_rewritten(self._ports.effects, self._ports.ledger, row, held.proof)
        self._abandoning.after(row, decision.status)
        outcome = self._report(partition_id.value, decision.status, decision.message, row, begun)
        return outcome if decision.left is None else outcome.of_files(decision.left)

    def _held(self, partition_id: PartitionId, holder: LeaseHeld, begun: int) -> Outcome:
        """Return the outcome of a partition on which another process works."""
        since = max(0, begun - holder.since) // 1000
        text = f"{holder.owner}, has worked on it for {since} s"
        return self._report(partition_id.value, Status.IN_PROGRESS, text, None, begun)

    def _archived(
        self, rows: tuple[Row, ...], content: Content | None, state: LakeTableState
    ) -> ArchivedExports | None:
        """Return the archived exports of a partition with their state in main, None if it has none.

        Raises:
            TableFormatError: main or the source cannot be read.
        """
        if not rows:
            return None
        found = tuple(
            ArchivedExport(row, held_in_main(self._commit_ports, row, state, row.key.hash))
            for row in rows
        )
        return self._compared_with(found, content)

    def _compared_with(
        self, exports: tuple[ArchivedExport, ...], content: Content | None
    ) -> ArchivedExports:
        partition_id = PartitionId(exports[0].row.key.partition_id)

        def detached() -> frozenset[DetachedPart] | None:
            return self._ports.effects(
                Step.DESCRIBE_SOURCE,
                lambda: self._ports.source.detached_parts(self._to.table.name, partition_id),
            )

        return ArchivedExports.of(exports, content, detached)

    def _begun(self, row: Row) -> Begun | None:
        """Return the finished files of an interrupted run, None if there are none.

        If the storage allows no list, it may have some: its snapshot is used, and all its files are
        written again.
        """
        below = self._to.receipts_of(row)
        storage = self._ports.storage(below)
        try:
            receipts = self._ports.effects(Step.FIND_FILES, lambda: stored_receipts(storage, below))
        except DeniedError:
            return Begun(row.claim, ())
        return Begun(row.claim, receipts) if receipts else None

    def _export(self, work: tuple[Work, ...], *, is_last: bool) -> Iterator[tuple[Outcome, ...]]:
        by_id = {w.key.partition_id: w for w in work}
        self._ports.begin_writer()
        frozen = self._freezing.freeze(work)
        try:
            if is_last or not self._stays_open(frozen):
                self._ports.source.close()
                self._open_since = self._ports.clock()
            for partition_id, error in frozen.snapshot.refused:
                begun = by_id[partition_id.value].begun
                yield (self._outcomes.failed(partition_id.value, error, None, begun),)
            if not frozen.snapshot.partitions:
                return
            # Before the claims: if the writer cannot be started, the ledger stays unchanged.
            writer = self._ports.writer()
            yield from self._claim_and_finish(by_id, frozen, writer)
        finally:
            # The release reopens the source, which the next group or the end of the job closes.
            self._freezing.release(frozen, self._still_in_use(frozen))

    def _stays_open(self, frozen: Frozen) -> bool:
        """Whether the source stays open while the files of a group are written.

        Opening an embedded ClickHouse costs as much as a dozen small partitions. But no other
        process can open its directory meanwhile, so after some seconds it is closed. A server is
        always closed, so that the next group chooses among its replicas again.
        """
        return frozen.is_brief and self._ports.clock() - self._open_since < _MOST_MILLISECONDS_OPEN

    def _still_in_use(self, frozen: Frozen) -> frozenset[str]:
        """Return the names that stay; all of them if the ledger cannot be read."""
        try:
            return staging_in_use(self._ports.ledger, self._is_unneeded)
        except (DestinationError, LedgerError):
            return frozenset((*frozen.snapshot.handle, *frozen.abandoned))

    def _is_unneeded(self, row: Row) -> bool:
        """Whether nothing of a claim is finished, so that its frozen parts save no work."""
        ours = row.key.destination == self._to.layout.table_uuid
        return ours and self._begun(row) is None

    def _claim_and_finish(
        self, by_id: Mapping[str, Work], frozen: Frozen, writer: SliceWriter
    ) -> Iterator[tuple[Outcome, ...]]:
        """Claim, write and commit; an error that ends the process is stored on the claimed rows."""
        claimed: dict[str, Claimed] = {}
        try:
            planned, number = [], 0
            self._claiming.begin(len(frozen.snapshot.partitions))
            for partition in frozen.snapshot.partitions:
                made = self._plan(by_id[partition.partition_id.value], partition, frozen, number)
                if isinstance(made, Outcome):
                    yield (made,)
                else:
                    planned.append(made)
                    number += len(made.slices)
            for work, one in self._claim(tuple(planned)):
                if isinstance(one, Outcome):
                    yield (one,)
                else:
                    claimed[work.key.partition_id] = one
            if claimed:
                for outcomes in self._write_and_commit(tuple(claimed.values()), frozen, writer):
                    exports = tuple(claimed.pop(one.partition_id) for one in outcomes)
                    yield outcomes
                    for export, outcome in zip(exports, outcomes, strict=True):
                        self._tidying.after(export, outcome)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt | GeneratorExit)
            if interrupted:
                self._leases.leave()
            text = Stop.INTERRUPTED if interrupted else repr(error)
            for one in claimed.values():
                self._outcomes.note_error(one.row, text)
            raise

    def _plan(
        self, work: Work, one: FrozenPartition, frozen: Frozen, number: int
    ) -> Planned | Outcome:
        try:
            made = (
                self._equal(work, one)
                or work.refused
                or self._may_be_archived(work, one)
                or self._claiming.plan(work, one, frozen, number)
            )
        except TableFormatError as error:
            return self._failed(work, error)
        if isinstance(made, Skip):
            return self._skipped(work, made)
        limit = self._ports.replacements
        if limit is not None and made.replaces and not limit.allows(work.key.partition_id):
            return self._skipped(work, Skip(Status.REFUSED, one_too_many(limit.most)))
        if made.finished:
            self._ports.observer.note(
                f"partition {work.key.partition_id}: {len(made.finished)} of {len(made.slices)} "
                "files finished by an earlier run, which are kept"
            )
        return made

    def _may_be_archived(self, work: Work, one: FrozenPartition) -> Skip | None:
        """Return the refusal if archived parts came back before the snapshot was taken."""
        if work.archived is None:
            return None
        content = frozen_content(self._to.table, one)
        archived = self._compared_with(work.archived.exports, content)
        return not_late(archived, content, self._options)

    def _equal(self, work: Work, one: FrozenPartition) -> Skip | None:
        """Return the outcome of a partition whose rows were compared and are equal, else None."""
        options = self._options
        if options.force or options.is_of_statement or work.row is None or not work.may_be_equal:
            return None
        content = frozen_content(self._to.table, one)
        which = Changed(work.row, work.held, work.state, content, one.digest)
        return self._equal_rows.outcome(which, reads_files=options.check_rows)

    def _claim(self, planned: tuple[Planned, ...]) -> Iterator[tuple[Work, Claimed | Outcome]]:
        try:
            claimed = self._claiming.claim(planned) if planned else ()
            ours = tuple(one for one in claimed if isinstance(one, Claimed))
            rows, query_id = (one.row for one in ours), self._ports.query_id
            killed = withdraw_killed(self._commit_ports, query_id, rows)
            given_up = {} if killed else self._concurrent.give_up_later(ours)
        except TableFormatError as error:
            for one in planned:
                yield one.work, self._failed(one.work, error)
            return
        for one, made in zip(planned, claimed, strict=True):
            why = given_up.get(one.work.key.partition_id)
            if isinstance(made, Skip):
                yield one.work, self._skipped(one.work, made)
            elif one.work.key.partition_id in killed:
                yield one.work, self._skipped(one.work, Skip(Status.KILLED, BY_CANCEL))
            elif why is not None:
                yield one.work, self._skipped(one.work, Skip(Status.REFUSED, why))
            else:
                yield one.work, made

    def _failed(self, work: Work, error: TableFormatError) -> Outcome:
        parts = len(work.content.parts)
        return self._outcomes.failed(
            work.key.partition_id, error, work.row, work.begun, parts=parts
        )

    def _skipped(self, work: Work, decision: Skip) -> Outcome:
        return self._report(
            work.key.partition_id, decision.status, decision.message, work.row, work.begun
        )

    def _write_and_commit(
        self, claimed: tuple[Claimed, ...], frozen: Frozen, writer: SliceWriter
    ) -> Iterator[tuple[Outcome, ...]]:
        with contextlib.closing(self._writing.run(claimed, frozen, writer)) as batches:
            for batch in batches:
                yield from self._commit(batch)

    def _commit(self, batch: tuple[Files, ...]) -> Iterator[tuple[Outcome, ...]]:
        finished = []
        for one, files in batch:
            match files:
                case NoneLeftError():
                    yield (self._cancelled.outcome(one),)
                case TableFormatError():
                    yield (self._cancelled.stopped(one, files),)
                case receipts:
                    finished.append((one, receipts))
        remaining = iter(finished)
        while chunk := tuple(islice(remaining, self._commit_every)):
            yield from self._committing.commit(chunk)

    def _report(
        self, partition_id: str, status: Status, message: str, row: Row | None, begun: int
    ) -> Outcome:
        return self._outcomes.outcome(partition_id, status, message, row, begun)


def _is_newer(row: Row, state: LakeTableState) -> bool:
    """Whether a row may know an export that landed after M was loaded."""
    if row.done is None or row.done.landed.snapshot_id in state.snapshots:
        return False
    return not 0 < row.done.landed.sequence_number <= state.last_sequence_number

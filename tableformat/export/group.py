"""The job for one group of partitions: freeze, claim, write, commit.

One bad partition never fails the others.

The order is what keeps the promise (DESIGN 5.4): lease -> what landed is settled -> answered or
frozen -> claimed -> written and counted -> committed -> released. Whatever ends it early, leases
and the source snapshot are given back, and the ledger row says RUNNING with its last error, to be
claimed anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from tableformat.committer import Committed, Conflicted, LakeTableState, Superseded, Unknown
from tableformat.effects import Step
from tableformat.errors import RefusedError, SourceError, TableFormatError
from tableformat.export import claim
from tableformat.export.commit import Ports, commit, settle_mark, unsettled_mark
from tableformat.export.leases import Leases
from tableformat.export.outcome import Outcome, Status
from tableformat.export.plan import Destination, SizeRatio, frozen_content, plan_slices
from tableformat.export.ports import JobPorts, SliceWriter, Written
from tableformat.export.slices import Slice
from tableformat.export.slicing import tasks
from tableformat.export.verification import Verification
from tableformat.ledger import Key, Row, Stale, State
from tableformat.names import PartitionId
from tableformat.receipt import Receipt
from tableformat.source import FrozenPartition, SourceSnapshot

__all__ = ["GroupJob"]


@dataclass(frozen=True, slots=True)
class _Work:
    """A partition that is to be exported, and what the ledger knows of it."""

    key: Key
    row: Row | None
    begun: int


@dataclass(frozen=True, slots=True)
class _Claimed:
    row: Row
    frozen: FrozenPartition
    slices: tuple[Slice, ...]
    begun: int


class GroupJob:
    """Exports groups of partitions of one table into one destination."""

    def __init__(
        self,
        ports: JobPorts,
        destination: Destination,
        leases: Leases,
        wish: claim.Wish,
        *,
        slots: int,
    ) -> None:
        """Remember what all groups share."""
        self._ports = ports
        self._to = destination
        self._leases = leases
        self._wish = wish
        self._ratio = SizeRatio()
        self._slots = slots
        self._commit_ports = Ports(
            ports.effects, destination.lake, ports.ledger, ports.clock, ports.pause
        )
        columns = destination.plan.digest_columns if ports.digests is not None else ()
        self._verification = Verification(
            self._commit_ports, ports.digests, destination.location, columns
        )

    def run(self, ids: tuple[PartitionId, ...]) -> Iterator[Outcome]:
        """Export a group; yield what became of each partition, as soon as it is known."""
        state = self._ports.effects(Step.LOAD_METADATA, self._to.lake.load)
        work: list[_Work] = []
        try:
            for partition_id in ids:
                found = self._begin(partition_id, state)
                if isinstance(found, Outcome):
                    yield found
                else:
                    work.append(found)
            if work:
                yield from self._export(tuple(work))
        finally:
            for partition_id in ids:
                self._leases.release(self._to.key(partition_id).hash)

    def _begin(self, partition_id: PartitionId, state: LakeTableState) -> _Work | Outcome:
        """Take the lease, settle what landed before, and answer what need not be exported."""
        begun = self._ports.clock()
        key = self._to.key(partition_id)
        held = self._leases.take(key.hash)
        if held is not None:
            since = max(0, begun - held.since) // 1000
            text = f"{held.owner}, has worked on it for {since} s"
            return self._outcome(partition_id.value, Status.IN_PROGRESS, text, None, begun)
        row = self._ports.effects(Step.READ_LEDGER, lambda: self._ports.ledger.read(key.hash))
        mark = unsettled_mark(row, state)
        if row is not None and mark is not None:
            settled = settle_mark(self._commit_ports, row, state, mark)
            row = settled if isinstance(settled, Row) else self._ports.ledger.read(key.hash)
        if row is not None and _is_newer(row, state):
            # It landed since M was loaded: main as it was then says nothing about it.
            state = self._ports.effects(Step.LOAD_METADATA, self._to.lake.load)
        parts = self._ports.source.parts(self._to.table.name, partition_id)
        if not parts and (row is None or row.done is None):
            return self._outcome(
                partition_id.value, Status.EMPTY, "its parts hold no rows", row, begun
            )
        content = claim.content_of(self._to.table, parts) if parts else None
        files = self._to.lake.files_of(state, key.hash)
        said = claim.answer(row, content, self._wish, state, files, begun)
        if said is not None:
            return self._outcome(partition_id.value, said.status, said.message, row, begun)
        return _Work(key, row, begun)

    def _export(self, work: tuple[_Work, ...]) -> Iterator[Outcome]:
        ids = tuple(PartitionId(w.key.partition_id) for w in work)
        by_id = {w.key.partition_id: w for w in work}
        self._ports.begin_writer()
        self._ports.observer.note(f"freezing {len(ids)} partition(s)")
        snapshot = self._ports.effects(Step.SNAPSHOT_SOURCE, lambda: self._freeze(ids))
        try:
            self._ports.source.close()
            for partition_id, error in snapshot.refused:
                yield self._failed(partition_id.value, error, None, by_id[partition_id.value].begun)
            if not snapshot.partitions:
                return
            # Before the claims, so that a writer that cannot be had leaves the ledger as it was.
            writer = self._ports.writer()
            yield from self._claim_and_finish(by_id, snapshot, writer)
        finally:
            self._ports.effects(Step.RELEASE_SOURCE, lambda: self._ports.source.release(snapshot))
            self._ports.source.close()

    def _claim_and_finish(
        self, by_id: Mapping[str, _Work], snapshot: SourceSnapshot, writer: SliceWriter
    ) -> Iterator[Outcome]:
        """Claim, write and commit; what ends the process meanwhile is left on the claimed rows."""
        claimed: dict[str, _Claimed] = {}
        try:
            for frozen in snapshot.partitions:
                made = self._claim(by_id[frozen.partition_id.value], frozen, snapshot)
                if isinstance(made, Outcome):
                    yield made
                else:
                    claimed[frozen.partition_id.value] = made
            if claimed:
                for outcome in self._write_and_commit(tuple(claimed.values()), snapshot, writer):
                    del claimed[outcome.partition_id]
                    yield outcome
        except BaseException as error:
            text = (
                "interrupted"
                if isinstance(error, KeyboardInterrupt | GeneratorExit)
                else repr(error)
            )
            for one in claimed.values():
                self._note_error(one.row, text)
            raise

    def _freeze(self, ids: tuple[PartitionId, ...]) -> SourceSnapshot:
        return self._ports.source.snapshot(
            self._to.table,
            ids,
            job=self._ports.job,
            probes=self._to.plan.probes,
            digest=self._verification.columns,
        )

    def _claim(
        self, work: _Work, frozen: FrozenPartition, snapshot: SourceSnapshot
    ) -> _Claimed | Outcome:
        """Step 1 of the protocol: one compare-and-set, with the content that was really frozen."""
        partition_id = frozen.partition_id.value
        if frozen.visible_rows == 0:
            return self._outcome(
                partition_id, Status.EMPTY, "all its rows are deleted", work.row, work.begun
            )
        row = replace(
            claim.claimed(
                work.row,
                work.key,
                names=(str(self._to.table.name), str(self._to.name)),
                content=frozen_content(self._to.table, frozen),
                epoch=self._ports.ledger.next_epoch(),
                transaction_id=self._ports.new_transaction().value,
                wish=self._wish,
                now=self._ports.clock(),
            ),
            staging=snapshot.handle,
        )
        try:
            slices = plan_slices(self._to, frozen, row, self._ratio, slots=self._slots)
        except RefusedError as error:
            return self._failed(partition_id, error, work.row, work.begun)
        written = self._ports.effects(Step.CLAIM, lambda: self._ports.ledger.write(row))
        if isinstance(written, Stale):
            text = "another run claimed this partition at the same moment"
            return self._outcome(partition_id, Status.IN_PROGRESS, text, work.row, work.begun)
        return _Claimed(written, frozen, slices, work.begun)

    def _write_and_commit(
        self, claimed: tuple[_Claimed, ...], snapshot: SourceSnapshot, writer: SliceWriter
    ) -> Iterator[Outcome]:
        numbered = _numbered(claimed)
        all_slices = tuple(s for c in numbered for s in c.slices)
        plan = self._to.write_plan(snapshot, self._ports.job, writer.versions())
        self._ports.observer.begin(
            len(numbered),
            sum(c.frozen.visible_rows for c in numbered),
            sum(p.part.bytes_on_disk for c in numbered for p in c.frozen.parts),
        )
        try:
            written = self._ports.effects(
                Step.WRITE_FILES,
                lambda: writer.write(
                    plan, tasks(all_slices, writer.slots), on_rows=self._ports.observer.rows
                ),
            )
        except TableFormatError as error:
            for one in numbered:
                self._note_error(one.row, str(error))
                yield self._failed(one.row.key.partition_id, error, one.row, one.begun)
            return
        self._ratio.measured(all_slices, written.receipts)
        for one in numbered:
            yield self._commit(one, written)

    def _commit(self, one: _Claimed, written: Written) -> Outcome:
        partition_id = one.row.key.partition_id
        try:
            receipts = _receipts_of(one, written)
            row = self._note_written(one.row, receipts)
            if isinstance(row, Stale):
                return self._superseded(one, "another run claimed it while its files were written")
            self._verification.keep(row, one.frozen)
            wanted = self._to.commit(row, receipts, self._ports.ledger)
            outcome = commit(self._commit_ports, wanted)
        except TableFormatError as error:
            self._note_error(one.row, str(error))
            return self._failed(partition_id, error, one.row, one.begun)
        match outcome:
            case Committed():
                made = self._committed(row, outcome, one.begun)
                return self._verification.verified(made, row, one.frozen, outcome)
            case Conflicted(by):
                self._note_error(row, by)
                return self._outcome(
                    partition_id, Status.FAILED, f"not committed: {by}", row, one.begun
                )
            case Superseded(by):
                return self._superseded(one, by)
            case Unknown(evidence):
                self._note_error(row, evidence)
                text = (
                    f"it may have landed: {evidence}. The next run finds out; nothing was deleted"
                )
                return self._outcome(partition_id, Status.UNKNOWN, text, row, one.begun)
            case _ as never:
                assert_never(never)

    def _committed(self, row: Row, landed: Committed, begun: int) -> Outcome:
        if not landed.in_main:
            text = (
                f"it landed in snapshot {landed.snapshot_id}, and main was moved away from it since"
            )
            return self._outcome(row.key.partition_id, Status.REFUSED, text, row, begun)
        if landed.epoch != row.epoch:
            # An earlier run's files are in main: the row has their figures since it was settled.
            row = self._ports.ledger.read(row.key.hash) or row
        made = self._outcome(row.key.partition_id, Status.COMMITTED, "", row, begun)
        return replace(made, snapshot_id=landed.snapshot_id)

    def _note_written(self, row: Row, receipts: tuple[Receipt, ...]) -> Row | Stale:
        """Note the files before the commit, so that whoever settles it later knows what it was."""
        paths: dict[str, list[str]] = {}
        for receipt in receipts:
            for part in receipt.ranges:
                paths.setdefault(part.source_name, []).append(receipt.file_path)
        noted = replace(
            row,
            updated=self._ports.clock(),
            rows=sum(r.rows for r in receipts),
            data_files=len(receipts),
            bytes=sum(r.file_bytes for r in receipts),
            parts=tuple(replace(p, remote_paths=tuple(paths.get(p.name, ()))) for p in row.parts),
        )
        return self._ports.effects(Step.NOTE_WRITTEN, lambda: self._ports.ledger.write(noted))

    def _note_error(self, row: Row, error: str) -> None:
        """Leave the last error on the row, unless it has moved on: then it is somebody else's."""
        now = self._ports.ledger.read(row.key.hash)
        if now is not None and now.epoch == row.epoch and now.state is State.RUNNING:
            noted = replace(now, last_error=error, updated=self._ports.clock())
            self._ports.effects(Step.NOTE_ERROR, lambda: self._ports.ledger.write(noted))

    def _superseded(self, one: _Claimed, by: str) -> Outcome:
        return self._outcome(one.row.key.partition_id, Status.IN_PROGRESS, by, one.row, one.begun)

    def _failed(
        self, partition_id: str, error: TableFormatError, row: Row | None, begun: int
    ) -> Outcome:
        status = Status.REFUSED if isinstance(error, RefusedError) else Status.FAILED
        failed = self._outcome(partition_id, status, str(error), row, begun)
        return replace(failed, code=error.code)

    def _outcome(
        self, partition_id: str, status: Status, message: str, row: Row | None, begun: int
    ) -> Outcome:
        done = row.done if row is not None else None
        return Outcome(
            partition_id=partition_id,
            status=status,
            table=str(self._to.name),
            message=message,
            transaction_id=row.transaction_id if row is not None else None,
            snapshot_id=done.snapshot_id if done is not None else None,
            rows=row.rows if row is not None else 0,
            data_files=row.data_files if row is not None else 0,
            bytes=row.bytes if row is not None else 0,
            seconds=(self._ports.clock() - begun) / 1000,
        )


def _is_newer(row: Row, state: LakeTableState) -> bool:
    """Whether a row may know an export that landed after M was loaded."""
    if row.done is None or row.done.snapshot_id in state.snapshots:
        return False
    return not 0 < row.done.sequence_number <= state.last_sequence_number


def _numbered(claimed: tuple[_Claimed, ...]) -> tuple[_Claimed, ...]:
    """Give every slice of the group a number of its own."""
    number, result = 0, []
    for one in claimed:
        slices = []
        for piece in one.slices:
            slices.append(replace(piece, number=number))
            number += 1
        result.append(replace(one, slices=tuple(slices)))
    return tuple(result)


def _receipts_of(one: _Claimed, written: Written) -> tuple[Receipt, ...]:
    """Return the receipts of a partition: one for each slice, and together all its rows.

    Raises:
        TableFormatError: a slice has no file; the error of its task.
        SourceError: the files do not hold what the partition shows.
    """
    numbers = {s.number for s in one.slices}
    for failure in written.failures:
        if failure.slice_number in numbers:
            raise failure.error
    receipts = tuple(r for r in written.receipts if r.slice_number in numbers)
    if sorted(r.slice_number for r in receipts) != sorted(numbers):
        message = (
            f"Cannot commit partition {one.row.key.partition_id}: {len(numbers)} files were "
            f"planned, {len(receipts)} came back. Run the command again."
        )
        raise SourceError(message)
    rows = sum(r.rows for r in receipts)
    if rows != one.frozen.visible_rows:
        message = (
            f"Cannot commit partition {one.row.key.partition_id}: it shows "
            f"{one.frozen.visible_rows:,} rows, its files hold {rows:,}. Nothing became visible; "
            "please report it with the table's definition."
        )
        raise SourceError(message)
    return receipts

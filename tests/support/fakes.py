"""A source and a writer in memory: the whole job without ClickHouse and Spark."""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from catalog.clickhouse.snapshot.comparison import paired
from catalog.storages.schemes import open_storage
from tableformat.digest import Digest, KeptDigest
from tableformat.effects import Direct, Effects
from tableformat.errors import NotBegunError, NotFoundError, RefusedError, UnsupportedError
from tableformat.export.ports import JobPorts, Silent, SliceFailure, Writing, Written
from tableformat.export.slices import Slice, SliceTask, WritePlan
from tableformat.file_names import data_file_name
from tableformat.iceberg.read_columns import FilesToDigest
from tableformat.ledger import DetachedPart, ExportedPart, Owner
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import (
    Column,
    Engine,
    MergeTreeTable,
    NoTimes,
    Part,
    PartitionSummary,
)
from tableformat.mergetree.types import DataType, Simple
from tableformat.names import PartitionId, TableName, TransactionId
from tableformat.receipt import Receipt
from tableformat.source import (
    FrozenPart,
    FrozenPartition,
    Leftover,
    LeftSnapshot,
    PartsLayout,
    Probe,
    ProbedValue,
    SourceSnapshot,
)
from tableformat.storage import Storage
from tests.places.found import place_at
from tests.support.dying import Dies

TABLE = MergeTreeTable(
    name=TableName("db", "t"),
    identity="source-identity",
    uuid="1",
    engine=Engine("MergeTree", order_by="n"),
    columns=(Column("n", Simple("Int64"), "Int64"),),
    storage_policy="default",
    server_version="26.9",
    server_zone="UTC",
)


def part(name: str, rows: int, content: str = "") -> Part:
    """Return a part of partition `all` with ten bytes for each row."""
    low, high, level = (int(x) for x in name.split("_")[1:4])
    return Part(
        name, PartitionId("all"), rows, rows * 10, rows * 40, content or f"hash of {name}",
        "/parts", f"/parts/{name}", "Compact", low, high, level, low, has_lightweight_delete=False,
    )  # fmt: skip


def frozen_snapshot(
    table: MergeTreeTable,
    held: Mapping[PartitionId, tuple[FrozenPart, ...]],
    *,
    handle: tuple[str, ...],
    digest: bool,
) -> SourceSnapshot:
    """Return a snapshot of partitions; the digest of each knows its number of rows only."""
    return SourceSnapshot(
        table,
        PartsLayout("n Int64", "", "n", "", ()),
        tuple(
            FrozenPartition(
                i, parts, (), Digest(sum(p.visible_rows for p in parts), 0, ()) if digest else None
            )
            for i, parts in held.items()
        ),
        (),
        handle,
    )


@dataclass
class FakeSource:
    """A table with one partition, `all`; its parts may be changed between runs.

    `left` is what it has frozen, by the names of the staging tables, until that is released or
    swept: it outlives every process, as in a real source. `aside` are its detached parts.
    """

    held: list[Part] = field(default_factory=lambda: [part("all_1_1_0", 7), part("all_2_2_0", 5)])
    snapshots: int = 0
    table: MergeTreeTable = TABLE
    left: dict[str, SourceSnapshot] = field(default_factory=dict)
    aside: set[DetachedPart] = field(default_factory=set)

    def describe(self, table: TableName) -> MergeTreeTable:
        if table != self.table.name:
            message = f"Cannot find {table}: there is only {self.table.name}. Name that one."
            raise NotFoundError(message, code=60)
        return self.table

    def partitions(self, _table: TableName) -> tuple[PartitionSummary, ...]:
        rows = sum(p.rows for p in self.held)
        summary = PartitionSummary(PartitionId("all"), "tuple()", len(self.held), rows, rows * 10)
        return (summary,) if self.held else ()

    def refusals(
        self, _table: TableName, _partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, RefusedError]:
        return {}

    def copied_to(self, _table: TableName) -> dict[PartitionId, str]:
        return {}

    def engine_of(self, table: TableName) -> str | None:
        return self.table.engine.name if table == self.table.name else None

    def with_times(
        self, table: MergeTreeTable, found: tuple[PartitionSummary, ...]
    ) -> tuple[PartitionSummary, ...]:
        no_times = NoTimes(f"the partition key of {table.name} reads no column of a time")
        return tuple(replace(one, times=no_times) for one in found)

    def parts(self, _table: TableName, *_partition_ids: PartitionId) -> tuple[Part, ...]:
        return tuple(self.held)

    def find_partition(self, _table: MergeTreeTable, _expression: str) -> PartitionId:
        return PartitionId("all")

    def key_types(self, _table: MergeTreeTable) -> tuple[DataType, ...]:
        message = "Cannot tell a type of the partition key: there is none. Name no directory."
        raise UnsupportedError(message)

    def probe(
        self, _table: TableName, _partition_id: PartitionId, probes: tuple[Probe, ...]
    ) -> tuple[ProbedValue, ...] | None:
        assert not probes
        return ()

    def snapshot(
        self,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        assert not probes
        self.snapshots += 1
        parts = tuple(FrozenPart(p, p.name, p.rows, p.disk) for p in self.held)
        held = dict.fromkeys(partition_ids, parts)
        name = f"{job}_{self.snapshots}"
        self.left[name] = frozen_snapshot(table, held, handle=(name,), digest=bool(digest))
        return self.left[name]

    def find_snapshot(
        self,
        table: MergeTreeTable,
        wanted: Mapping[PartitionId, LeftSnapshot],
        *,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        assert not probes
        found: dict[PartitionId, tuple[FrozenPart, ...]] = {}
        handle: dict[str, None] = {}
        for one, recorded in wanted.items():
            for name in recorded.staging:
                held = self.left[name].partitions if name in self.left else ()
                for parts in (p.parts for p in held if p.partition_id == one):
                    named = paired(tuple(f.part for f in parts), recorded.parts)
                    if named and one not in found and self.left[name].table == table:
                        found[one], handle[name] = named, None
        return frozen_snapshot(table, found, handle=tuple(handle), digest=bool(digest))

    def release(self, snapshot: SourceSnapshot, keep: Collection[str] = ()) -> None:
        for name in set(snapshot.handle) - set(keep):
            self.left.pop(name, None)

    def sweep_leftovers(
        self, is_alive: Callable[[str], bool], keep: Collection[str] = ()
    ) -> tuple[str, ...]:
        assert is_alive("job")
        dead = [one.name for one in self.leftovers() if not is_alive(one.job)]
        swept = tuple(name for name in dead if name not in keep)
        for name in swept:
            del self.left[name]
        return swept

    def leftovers(self) -> tuple[Leftover, ...]:
        found = []
        for name, snapshot in sorted(self.left.items()):
            parts = [f.part for p in snapshot.partitions for f in p.parts]
            size, rows = sum(p.bytes_on_disk for p in parts), sum(p.rows for p in parts)
            job = name.rpartition("_")[0]
            found.append(Leftover(name, job, 0, size, rows, snapshot.table.name))
        return tuple(found)

    def take_out(
        self,
        _table: TableName,
        _partition_id: PartitionId,
        exported: tuple[ExportedPart, ...],
    ) -> tuple[DetachedPart, ...]:
        assert [p.name for p in self.held] == [p.name for p in exported]
        self.held = []
        detached = tuple(DetachedPart(p.name, p.bytes_on_disk, 1) for p in exported)
        self.aside |= {*detached}
        return detached

    def detached_parts(
        self, _table: TableName, _partition_id: PartitionId
    ) -> frozenset[DetachedPart]:
        return frozenset(self.aside)

    def drop_detached(
        self,
        _table: TableName,
        _partition_id: PartitionId,
        parts: tuple[DetachedPart, ...],
        *,
        fresh: bool,
    ) -> tuple[DetachedPart, ...]:
        assert fresh in (True, False)
        return parts

    def close(self) -> None:
        pass


@dataclass
class FakeWriter:
    """Writes a file of a few bytes for every slice, with its receipt; nobody reads it.

    `written` counts them; the process dies when it is about to write one more than `most`.
    """

    slots: int = 2
    most: int | None = None
    written: int = 0
    attempts: itertools.count[int] = field(default_factory=itertools.count)
    storage: Callable[[str], Storage] = open_storage

    def versions(self) -> tuple[tuple[str, str], ...]:
        return ()

    def content(self, piece: Slice) -> bytes:
        """Return the bytes of the file of a slice."""
        return b"x" * (piece.rows or 0)

    def write(
        self,
        plan: WritePlan,
        tasks: tuple[SliceTask, ...],
        *,
        on_rows: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> Writing:
        receipts, stopped = [], []
        for piece in (s for task in tasks for s in task.slices):
            if should_stop():
                error = NotBegunError("Cannot go on. Stopped.")
                stopped.append(SliceFailure(piece.number, error))
                continue
            if self.written == self.most:
                raise Dies
            self.written += 1
            attempt = f"{next(self.attempts)}x{uuid.uuid4().hex[:8]}"
            name = data_file_name(
                piece.key,
                piece.transaction_id,
                piece.number,
                attempt,
                transaction_first=plan.tree,
            )
            content, path = self.content(piece), f"{plan.data_location}/{name}"
            self.storage(path).put(path, content)
            receipt = Receipt(
                piece.key,
                piece.transaction_id,
                piece.epoch,
                piece.number,
                attempt,
                piece.ranges,
                path,
                len(content),
                hashlib.sha256(content).hexdigest(),
                piece.rows or 0,
                piece.rows,
                piece.partition,
                plan.spec_id,
                plan.sort_order_id,
                (4,),
                (),
                0.0,
                0,
            )
            below = f"{plan.receipts_location}/{piece.key}/{piece.transaction_id}"
            stored = f"{below}/{piece.number}-{attempt}.json"
            self.storage(stored).put(stored, receipt.to_json().encode())
            receipts.append(receipt)
            on_rows(receipt.rows)
            yield
        return Written(tuple(receipts), tuple(stopped))


@dataclass
class FakeDigests:
    """Returns the given partitions of any files; keeps digests in memory."""

    rows: int = 12
    stored: dict[str, KeptDigest] = field(default_factory=dict)
    seconds: float = 0.0

    def read_ahead(self, wanted: Iterable[FilesToDigest]) -> None: ...

    def digest(self, _wanted: FilesToDigest) -> Digest:
        return Digest(self.rows, 0, ())

    def keep(self, location: str, kept: KeptDigest) -> None:
        self.stored[location] = kept

    def kept(self, location: str) -> KeptDigest | None:
        return self.stored.get(location)

    def close(self) -> None: ...


_PIDS = itertools.count(1000)


def job_ports(
    directory: Path,
    source: FakeSource,
    *,
    effects: Effects | None = None,
    clock: Callable[[], int],
    digests: FakeDigests | None = None,
) -> JobPorts:
    """Return the ports of a new process: earlier ones are dead, their leases can be taken over."""
    owner, place = Owner("host", next(_PIDS), "now"), place_at(directory)
    return JobPorts(
        effects=effects or Direct(),
        source=source,
        lake=place.lake(),
        ledger=place.ledger(clock),
        writer=partial(FakeWriter, storage=place.storage),
        owner=owner,
        is_alive=lambda other: other == owner,
        clock=clock,
        pause=lambda _: None,
        new_transaction=lambda epoch: TransactionId(str(5000 + epoch)),
        storage=place.storage,
        job="job",
        job_is_alive=lambda job: job == "job",
        observer=Silent(),
        digests=digests,
    )

"""A source and a writer in memory: the whole job without ClickHouse and Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.schema import Schema

from catalog.iceberg import open_catalog
from catalog.ledgers.embedded import SqliteLedger
from tableformat.digest import Digest, KeptDigest
from tableformat.effects import Direct, Effects
from tableformat.errors import NotFoundError
from tableformat.export.ports import JobPorts, Silent, Written
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.file_names import data_file_name
from tableformat.ledger import Owner
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.parts import Part, PartitionSummary
from tableformat.mergetree.table import Column, Engine, MergeTreeTable
from tableformat.mergetree.types import Simple
from tableformat.names import PartitionId, TableName, TransactionId
from tableformat.receipt import Receipt
from tableformat.source import FrozenPart, FrozenPartition, PartsLayout, Probe, SourceSnapshot

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


@dataclass
class FakeSource:
    """A table with one partition, `all`; its parts may be changed between runs."""

    held: list[Part] = field(default_factory=lambda: [part("all_1_1_0", 7), part("all_2_2_0", 5)])
    snapshots: int = 0
    table: MergeTreeTable = TABLE

    def describe(self, table: TableName) -> MergeTreeTable:
        if table != self.table.name:
            message = f"Cannot find {table}: there is only {self.table.name}. Name that one."
            raise NotFoundError(message, code=60)
        return self.table

    def partitions(self, _table: TableName) -> tuple[PartitionSummary, ...]:
        rows = sum(p.rows for p in self.held)
        summary = PartitionSummary(
            PartitionId("all"), "tuple()", len(self.held), rows, rows * 10, "", ""
        )
        return (summary,) if self.held else ()

    def parts(self, _table: TableName, _partition_id: PartitionId) -> tuple[Part, ...]:
        return tuple(self.held)

    def find_partition(self, _table: MergeTreeTable, _expression: str) -> PartitionId:
        return PartitionId("all")

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
        frozen = tuple(FrozenPart(p, p.name, p.rows) for p in self.held)
        held = Digest(sum(p.rows for p in self.held), 0, ()) if digest else None
        return SourceSnapshot(
            table,
            PartsLayout("n Int64", "", "n", "", ()),
            tuple(FrozenPartition(i, frozen, (), held) for i in partition_ids),
            (),
            (job,),
        )

    def release(self, snapshot: SourceSnapshot) -> None:
        pass

    def sweep_leftovers(self, is_alive: Callable[[str], bool]) -> tuple[str, ...]:
        assert is_alive("job")
        return ()

    def close(self) -> None:
        pass


@dataclass
class FakeWriter:
    """Answers with a receipt for every slice; no file is written, and nobody reads it."""

    slots: int = 2
    attempts: itertools.count[int] = field(default_factory=itertools.count)

    def versions(self) -> tuple[tuple[str, str], ...]:
        return ()

    def write(
        self, plan: WritePlan, tasks: tuple[SliceTask, ...], *, on_rows: Callable[[int], None]
    ) -> Written:
        receipts = []
        for piece in (s for task in tasks for s in task.slices):
            attempt = f"{next(self.attempts)}"
            name = data_file_name(piece.key, piece.transaction_id, piece.number, attempt)
            rows = piece.rows or 0
            receipts.append(
                Receipt(
                    piece.key,
                    piece.transaction_id,
                    piece.epoch,
                    piece.number,
                    attempt,
                    piece.ranges,
                    f"{plan.data_location}/{name}",
                    rows * 10,
                    "",
                    rows,
                    piece.rows,
                    piece.partition,
                    plan.spec_id,
                    plan.sort_order_id,
                    (4,),
                    (),
                    0.0,
                    0,
                )
            )
            on_rows(rows)
        return Written(tuple(receipts), ())


@dataclass
class FakeDigests:
    """Says of any files what it was told; keeps digests in memory."""

    rows: int = 12
    stored: dict[str, KeptDigest] = field(default_factory=dict)

    def digest(
        self, _locations: Sequence[str], _schema: Schema, _columns: Sequence[DigestColumn]
    ) -> Digest:
        return Digest(self.rows, 0, ())

    def keep(self, location: str, kept: KeptDigest) -> None:
        self.stored[location] = kept

    def kept(self, location: str) -> KeptDigest | None:
        return self.stored.get(location)

    def close(self) -> None: ...


_PIDS = itertools.count(1000)
_TRANSACTIONS = itertools.count(5000)


def job_ports(
    directory: Path,
    source: FakeSource,
    *,
    effects: Effects | None = None,
    clock: Callable[[], int],
    digests: FakeDigests | None = None,
) -> JobPorts:
    """Return the ports of a new process: earlier ones are dead, their leases can be taken over."""
    owner = Owner("host", next(_PIDS), "now")
    return JobPorts(
        effects=effects or Direct(),
        source=source,
        lake=open_catalog("lake", warehouse=directory / "warehouse"),
        ledger=SqliteLedger(directory / "ledger.db", clock=clock),
        writer=FakeWriter,
        owner=owner,
        is_alive=lambda other: other == owner,
        clock=clock,
        pause=lambda _: None,
        new_transaction=lambda: TransactionId(str(next(_TRANSACTIONS))),
        job="job",
        job_is_alive=lambda job: job == "job",
        observer=Silent(),
        digests=digests,
    )

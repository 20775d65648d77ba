"""Jobs that meet each other and an operator: scripted effects, a source of several partitions."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from catalog.iceberg.table import IcebergTable
from catalog.ledgers.memory import milliseconds
from tableformat.committer import LakeTableState
from tableformat.effects import Effects, Step
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts
from tableformat.export.request import AllPartitions, ExportOptions
from tableformat.export.slices import Slice
from tableformat.file_names import key_in
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Ledger, Row, State
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import MergeTreeTable, Part, PartitionSummary
from tableformat.names import LakeName, PartitionId, TableName
from tableformat.source import FrozenPart, LeftSnapshot, Probe, ProbedValue, SourceSnapshot
from tests.places.found import place_at
from tests.support.fakes import FakeSource, FakeWriter, frozen_snapshot, job_ports

T = TypeVar("T")
TO = LakeName("lake", ("n",), "t")
ALL = ExportRequest(TableName("db", "t"), TO, AllPartitions(), ExportOptions(), {})
FORCED = replace(ALL, options=ExportOptions(force=True))
TRUE_OF_MAIN = (Status.ALREADY_EXPORTED, Status.UNCHANGED)
"""Outcomes that say that all rows of the partition are in main now."""


def parts_of(partition: str, *rows: int) -> list[Part]:
    """Return parts of a partition, one for each number of rows."""
    return [
        Part(
            f"{partition}_{n}_{n}_0", PartitionId(partition), count, count * 10, count * 40,
            f"hash of {partition}_{n} {count}", "/parts", f"/parts/{partition}_{n}_{n}_0",
            "Compact", n, n, 0, n, has_lightweight_delete=False,
        )
        for n, count in enumerate(rows, start=1)
    ]  # fmt: skip


def in_shard(shard: str, by_id: Mapping[str, list[Part]]) -> dict[str, list[Part]]:
    """Return partitions with parts of the same names and rows, and the content of a shard."""
    return {
        one: [
            replace(part, hash_of_all_files=f"{part.hash_of_all_files} of {shard}")
            for part in parts
        ]
        for one, parts in by_id.items()
    }


@dataclass
class Partitions(FakeSource):
    """A table with several partitions, which may be changed between runs.

    `probed` is what every probe finds in every row; None if nothing may be probed.
    """

    by_id: dict[str, list[Part]] = field(
        default_factory=lambda: {"p1": parts_of("p1", 7, 5), "p2": parts_of("p2", 3)}
    )
    probed: str | None = None

    @property
    def rows(self) -> dict[str, int]:
        """The rows of each partition."""
        return {name: sum(p.rows for p in held) for name, held in self.by_id.items()}

    def partitions(self, _table: TableName) -> tuple[PartitionSummary, ...]:
        return tuple(
            PartitionSummary(PartitionId(name), name, len(held), self.rows[name], 10)
            for name, held in self.by_id.items()
        )

    def parts(self, _table: TableName, *partition_ids: PartitionId) -> tuple[Part, ...]:
        return tuple(p for i in partition_ids for p in self.by_id.get(i.value, ()))

    def snapshot(
        self,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        assert not digest
        self.snapshots += 1
        held = {
            i: tuple(FrozenPart(p, p.name, p.rows, p.disk) for p in self.by_id[i.value])
            for i in partition_ids
        }
        name = f"{job}_{self.snapshots}"
        made = frozen_snapshot(table, held, handle=(name,), digest=False)
        self.left[name] = self._with_probes(made, probes)
        return self.left[name]

    def find_snapshot(
        self,
        table: MergeTreeTable,
        wanted: Mapping[PartitionId, LeftSnapshot],
        *,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        found = super().find_snapshot(table, wanted, probes=(), digest=digest)
        return self._with_probes(found, probes)

    def _with_probes(self, made: SourceSnapshot, probes: tuple[Probe, ...]) -> SourceSnapshot:
        assert not probes or self.probed is not None
        found = (ProbedValue(self.probed, self.probed, 0),) * len(probes)
        held = tuple(replace(one, probed=found) for one in made.partitions)
        return replace(made, partitions=held)


class RealFiles(FakeWriter):
    """Writes Parquet, numbers from 0, so that engines can rewrite it."""

    filters = False
    """Whether the numbers have bloom filters."""

    def content(self, piece: Slice) -> bytes:
        column = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"}, nullable=False)
        numbers = pa.table([pa.array(range(piece.rows or 0))], pa.schema([column]))
        sink = pa.BufferOutputStream()
        pq.write_table(numbers, sink, bloom_filter_options={"n": True} if self.filters else None)
        return bytes(sink.getvalue())


class AtStep:
    """Effects with a visitor: calls `visit` before, or after, the n-th effect of one name."""

    def __init__(
        self, step: Step, visit: Callable[[], object], *, after: bool = False, nth: int = 1
    ) -> None:
        self._step, self._visit, self._after, self._left = step, visit, after, nth

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        self._left -= step is self._step
        now = step is self._step and self._left == 0
        if now and not self._after:
            self._visit()
        result = act()
        if now and self._after:
            self._visit()
        return result


CLOCK = itertools.count(1_000_000)


def ports_of(
    directory: Path,
    source: FakeSource,
    *,
    effects: Effects | None = None,
    clock: Callable[[], int] = CLOCK.__next__,
    alive: bool = False,
) -> JobPorts:
    """Return the ports of a new process; `alive`: it takes every other owner for a living one."""
    ports = job_ports(directory, source, effects=effects, clock=clock)
    ports = replace(ports, writer=partial(RealFiles, storage=ports.storage))
    return replace(ports, is_alive=lambda _: True) if alive else ports


class CountingReads:
    """A ledger of which it is counted how often all its rows are read."""

    def __init__(self, ledger: Any) -> None:
        self._ledger, self.reads = ledger, 0

    def rows(self, **selected: Any) -> Iterator[Row]:
        self.reads += not selected
        return cast("Iterator[Row]", self._ledger.rows(**selected))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def run(
    directory: Path,
    source: FakeSource,
    *,
    effects: Effects | None = None,
    request: ExportRequest = ALL,
    ports: JobPorts | None = None,
    meddled: bool = False,
    slots: int = 1,
) -> list[Outcome]:
    """Run the command as a new process, and check each outcome against main as it is then.

    `meddled`: somebody may move main between our commit and our outcome, which only says that the
    partition was committed.
    """
    ports = ports or ports_of(directory, source, effects=effects)
    true_of_main = TRUE_OF_MAIN if meddled else (*TRUE_OF_MAIN, Status.COMMITTED)
    outcomes = []
    with contextlib.closing(ports.ledger):
        for outcome in export(request, ports, slots=slots):
            if outcome.status in true_of_main:
                row = row_of(directory, outcome.partition_id, outcome.transaction_id)
                held = rows_by_key(directory)[row.key.hash]
                if row.proofs and held < outcome.rows:
                    # Its rows are in files of other writers, too, which may have more.
                    made = {path for proof in row.proofs for path in proof.files}
                    held += rows_of_files(directory, [path for path in made if not key_in(path)])
                    if row.proofs[-1].rows > outcome.rows:
                        held = min(held, outcome.rows)
                assert held == outcome.rows, f"{outcome} while main holds {held} rows of it"
            outcomes.append(outcome)
    return outcomes


def statuses(outcomes: list[Outcome]) -> list[str]:
    """Return the status words, by partition."""
    return [o.status.value for o in sorted(outcomes, key=lambda o: o.partition_id)]


def lake(directory: Path, name: LakeName = TO) -> IcebergTable:
    """Return the destination as it is, or another table."""
    table = place_at(directory).lake().table(name)
    assert table is not None
    return table


def state(directory: Path) -> LakeTableState:
    """Return M."""
    return lake(directory).load()


def pyiceberg(directory: Path) -> Table:
    """Return the destination as another engine opens it."""
    return table_of(state(directory))


def rows_by_key(directory: Path) -> Counter[str]:
    """Return the rows of main by the key in the file's name; a file of nobody counts as ''."""
    table = pyiceberg(directory)
    current = table.current_snapshot()
    found: Counter[str] = Counter()
    for task in table.scan(snapshot_id=current.snapshot_id).plan_files() if current else ():
        found[key_in(task.file.file_path)] += task.file.record_count
    return found


def rows_of_files(directory: Path, paths: Collection[str]) -> int:
    """Return the rows of main in files with these paths."""
    tasks = pyiceberg(directory).scan().plan_files()
    return sum(task.file.record_count for task in tasks if task.file.file_path in paths)


def rows_in_main(directory: Path) -> int:
    """Return all rows of main."""
    return rows_by_key(directory).total()


def ledger_of(directory: Path) -> Ledger:
    """Open the ledger."""
    return place_at(directory).ledger(milliseconds)


def ledger_rows(directory: Path) -> list[Row]:
    """Return what the ledger has."""
    with contextlib.closing(ledger_of(directory)) as ledger:
        return list(ledger.rows())


def row_of(directory: Path, partition: str, transaction_id: str | None = None) -> Row:
    """Return the row of a partition of the source in the destination as it is.

    If it has several, with late rows, it is the row in which the transaction landed.
    """
    uuid = state(directory).layout.table_uuid
    rows = [
        r
        for r in ledger_rows(directory)
        if (r.key.partition_id, r.key.destination) == (partition, uuid) and r.key.is_of_export
    ]
    if len(rows) > 1:
        rows = [r for r in rows if transaction_id in [x.transaction_id for x in r.landed]]
    (row,) = rows
    return row


def assert_exported_once(directory: Path, source: Partitions) -> None:
    """Check the promise: every partition once in main, and a ledger that says so."""
    held = rows_by_key(directory)
    for partition, rows in source.rows.items():
        row = row_of(directory, partition)
        assert held[row.key.hash] == rows, f"{partition}: {held[row.key.hash]} of {rows} rows"
        assert (row.state, row.last.rows, len(row.landed)) == (State.COMPLETED, rows, 1)
        with contextlib.closing(ledger_of(directory)) as ledger:
            assert ledger.holder(row.key.hash) is None
    table = pyiceberg(directory)
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            assert Path(urlparse(manifest.manifest_path).path).exists()

"""Statements in the small world: as a new process, on a real table without ClickHouse."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from catalog.iceberg.table import IcebergTable
from catalog.rewriting.integrity import intact, refuse_changed_files
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH, BranchFile, LakeTableState
from tableformat.effects import Direct, Effects
from tableformat.export.commit import Ports
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Outcome
from tableformat.export.slices import FileFormat
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Owner
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import LakeName, PartitionId, TransactionId
from tableformat.operations.attach import Attach
from tableformat.operations.partition_files import Partitions as LakePartitions
from tableformat.operations.run import Running
from tableformat.operations.statement import Alone, OnePart, OnePartition, OperationPorts, Which
from tableformat.operations.take_out import Detach, Drop, DropDetached
from tests.places.found import place_at
from tests.support.scenarios import (
    ALL,
    CLOCK,
    TO,
    Partitions,
    lake,
    ports_of,
    pyiceberg,
    row_of,
    run,
)

__all__ = [
    "IN_FILES",
    "LATER",
    "ForeignPartitions",
    "add_foreign",
    "alone",
    "attach",
    "detach",
    "drop",
    "drop_detached",
    "export_at",
    "in_files",
    "on",
    "part_in",
    "partition",
    "rows_of_tag",
    "running",
    "tags",
    "whereabouts",
]

_PIDS = itertools.count(70_000)
IN_FILES = replace(ALL, format=FileFormat(target_file_bytes=80))
LATER = itertools.count(90_000_000)
"""Moments of the ledger's clock after the time to live of every export."""


@dataclass
class ForeignPartitions:
    """Says of files of others, by path, in which partitions they lie; `rest` of all others."""

    of: dict[str, frozenset[str]] = field(default_factory=dict)
    rest: str = ""

    def ids(self, file: BranchFile, _state: LakeTableState) -> frozenset[PartitionId]:
        known = file.path in self.of or not self.rest
        found = self.of[file.path] if known else frozenset({self.rest})
        return frozenset(PartitionId(one) for one in found)


def running(  # noqa: PLR0913  one for each part that a test replaces
    directory: Path,
    *,
    effects: Effects | None = None,
    rows: ForeignPartitions | None = None,
    clock: Callable[[], int] = CLOCK.__next__,
    table: IcebergTable | None = None,
    name: LakeName = TO,
    alive: bool = False,
    notes: list[str] | None = None,
    source: MergeTreeTable | None = None,
) -> Running:
    """Return what runs statements, in a process to which all others are dead, or `alive`."""
    ledger = place_at(directory).ledger(clock)
    acts, found = effects or Direct(), table or lake(directory)
    owner = Owner("host", next(_PIDS), "now")
    ports = OperationPorts(
        Ports(acts, found, ledger, clock, lambda _: None, storage=found.storages),
        owner,
        lambda other: alive or other == owner,
        lambda epoch: TransactionId(str(5000 + epoch)),
        lambda text: notes.append(text) if notes is not None else None,
        intact(refuse_changed_files, found.storages, found.load, lambda _: None),
    )
    foreign = rows or ForeignPartitions()
    return Running(ports, name, LakePartitions(name, found, ledger, foreign, acts, source))


def add_foreign(directory: Path, rows: int = 4, name: LakeName = TO) -> str:
    """Append rows as another engine would; return the path of their file."""
    column = pa.field("n", pa.int64(), nullable=False)
    table = table_of(lake(directory, name).load())
    before = {t.file.file_path for t in table.scan().plan_files()}
    table.append(pa.table([pa.array(range(rows))], pa.schema([column])))
    (made,) = {t.file.file_path for t in table.scan().plan_files()} - before
    return made


def partition(name: str) -> OnePartition:
    """Return what a statement on a partition is about."""
    return OnePartition(PartitionId(name))


def drop(name: str) -> Drop:
    """Return the statement that drops a partition."""
    return Drop(partition(name))


def detach(name: str) -> Detach:
    """Return the statement that detaches a partition."""
    return Detach(partition(name))


def attach(name: str) -> Attach:
    """Return the statement that attaches a partition."""
    return Attach(partition(name))


def on(directory: Path, branch: str) -> Counter[str]:
    """Return the files of a branch, and how often it has them."""
    table = lake(directory)
    return Counter(f.path for f in table.files_on(table.load(), branch))


def whereabouts(directory: Path) -> tuple[Counter[str], Counter[str]]:
    """Return the files of main, and those that are detached."""
    return on(directory, MAIN_BRANCH), on(directory, DETACHED_BRANCH)


def drop_detached(
    directory: Path,
    which: Which,
    *,
    effects: Effects | None = None,
    table: object = None,
    rows: ForeignPartitions | None = None,
    alive: bool = False,
) -> Outcome:
    """Drop what is detached."""
    found = cast("IcebergTable | None", table)
    one = running(directory, effects=effects, table=found, rows=rows, alive=alive)
    return DropDetached(which).run(one.ports, one.partitions)


def part_in(directory: Path, name: str, number: int = 0) -> OnePart:
    """Name a file of main as a part of a partition."""
    key = row_of(directory, name).key.hash
    paths = sorted(p for p in on(directory, MAIN_BRANCH) if key in p)
    return OnePart(lake_part_name(PartitionId(name), paths[number]))


def in_files(directory: Path) -> Partitions:
    """Return a table whose two partitions are in the lake, the first in two files."""
    made = Partitions()
    run(directory, made, request=IN_FILES)
    assert on(directory, MAIN_BRANCH).total() == 3
    return made


def export_at(
    directory: Path, source: Partitions, clock: Iterator[int], request: ExportRequest = ALL
) -> dict[str, Outcome]:
    """Export at the next moment of a clock; return what became of each partition."""
    ports = ports_of(directory, source, clock=clock.__next__)
    return {o.partition_id: o for o in run(directory, source, request=request, ports=ports)}


def alone(
    directory: Path, statement: Alone, *, table: Any = None, dry_run: bool = False
) -> Outcome:
    """Run a statement that needs no other table, on the lake of a directory."""
    one = running(directory, table=table)
    return statement.run(one.ports, one.partitions, dry_run=dry_run)


def tags(directory: Path) -> dict[str, int]:
    """Return the snapshots of the table's tags, by name."""
    refs = pyiceberg(directory).metadata.refs.items()
    return {n: r.snapshot_id for n, r in refs if r.snapshot_ref_type.value == "tag"}


def rows_of_tag(directory: Path, tag: str) -> int:
    """Return the rows that a reader of a tag sees."""
    read = pyiceberg(directory).scan(snapshot_id=tags(directory)[tag]).to_arrow()
    return int(read.num_rows)

"""Two source tables with one partition, p1, that are exported to the same lake tables."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.snapshots import Operation

from catalog.iceberg.table import IcebergTable
from catalog.rewriting.copies import copies_between
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH
from tableformat.effects import Direct
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.request import AllPartitions as EveryPartition
from tableformat.export.request import ExportOptions
from tableformat.export.slices import FileFormat, Slice
from tableformat.file_names import key_in
from tableformat.iceberg.manifest_scan import lake_part_name
from tableformat.ledger import StatementKind
from tableformat.names import LakeName, TableName
from tableformat.operations.copy_from import CopyFrom, other_table
from tableformat.operations.move import Moving
from tableformat.operations.partition_files import Partitions as LakePartitions
from tableformat.operations.replace_from_clickhouse import LandingReplaced
from tableformat.operations.run import Running
from tableformat.operations.statement import (
    AllPartitions,
    Copies,
    FileCopier,
    OnePart,
    OnePartition,
    Statement,
)
from tests.places.found import place_at
from tests.support.fakes import TABLE
from tests.support.lake_statements import LATER, ForeignPartitions, running
from tests.support.other_engines import merge_files
from tests.support.scenarios import TO, Partitions, RealFiles, parts_of, ports_of
from tests.support.two_lake_tables import OTHER, P1

__all__ = ["TwoSources"]

_APART = 200


@dataclass
class _Files(RealFiles):
    """Writes numbers that no other part and no other source has."""

    base: int = 0

    def content(self, piece: Slice) -> bytes:
        column = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"}, nullable=False)
        first = self.base + piece.number * 20
        numbers = pa.array(range(first, first + (piece.rows or 0)))
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table([numbers], pa.schema([column])), sink)
        return bytes(sink.getvalue())


def _source(number: int) -> Partitions:
    rows = (7, 5) if number == 0 else (5,)
    made = Partitions(by_id={"p1": parts_of("p1", *rows)})
    made.by_id["p1"] = [
        replace(part, hash_of_all_files=f"{number} {part.hash_of_all_files}")
        for part in made.by_id["p1"]
    ]
    name = TableName("db", f"t{number}")
    made.table = replace(TABLE, identity=f"source {number}", uuid=str(number), name=name)
    return made


@dataclass
class TwoSources:
    """The lake below a directory: p1 of table 0 has 12 rows in two files, of table 1 five in one.

    `foreign` has the partitions of files of other engines, by path.
    """

    directory: Path
    foreign: ForeignPartitions = field(default_factory=lambda: ForeignPartitions(rest="p1"))
    sources: tuple[Partitions, ...] = field(default_factory=lambda: (_source(0), _source(1)))

    def export(
        self, number: int, to: LakeName = TO, ready: Running | None = None, **options: Any
    ) -> Outcome:
        """Export p1 of a table; with `ready`, its commit replaces the partition."""
        ports = ports_of(self.directory, self.sources[number], clock=LATER.__next__)
        if ready is not None:
            owned = replace(ready.ports, owner=ports.owner, is_alive=ports.is_alive)
            landing = LandingReplaced(replace(ready, ports=owned), P1, f"ch.db.t{number}")
            ports = replace(ports, landing=landing.land)
        writer = partial(_Files, storage=ports.storage, base=_APART * number)
        of = ExportOptions(manifest_ttl=1, **options)
        request = ExportRequest(
            TableName("db", f"t{number}"), to, EveryPartition(), of, {}, format=FileFormat(80)
        )
        with contextlib.closing(ports.ledger):
            (outcome,) = list(export(request, replace(ports, writer=writer), slots=1))
        return outcome

    def attach_from_source(self, number: int) -> Outcome:
        """Run ATTACH PARTITION p1 FROM the ClickHouse table."""
        return self.export(number, of_statement=StatementKind.ATTACH_FROM)

    def replace_from_source(self, number: int) -> Outcome:
        """Run REPLACE PARTITION p1 FROM the ClickHouse table."""
        of = StatementKind.REPLACE_FROM
        return self.export(number, ready=self.ready(), force=True, of_statement=of)

    def ready(self, name: LakeName = TO) -> Running:
        """Return what runs statements on a lake table, as a new process."""
        return running(self.directory, rows=self.foreign, table=self.lake(name), name=name)

    def run(self, statement: Statement, name: LakeName = TO) -> Outcome:
        """Run a statement that writes no file."""
        return self.ready(name).run(statement)

    def copies(
        self,
        source: LakeName = TO,
        to: LakeName = OTHER,
        which: OnePartition | AllPartitions = P1,
        *,
        replaces: bool = False,
        snapshot_id: int | None = None,
    ) -> tuple[Running, CopyFrom]:
        """Return ATTACH or REPLACE FROM a lake table, or a snapshot of it, and what runs it."""
        of, here = self.lake(source), self.lake(to)
        state = of.load() if snapshot_id is None else replace(of.load(), main=snapshot_id)
        ready = self.ready(to)
        ledger = ready.ports.commit.ledger
        there = LakePartitions(source, of, ledger, self.foreign, Direct())
        writer = FileCopier(copies_between(state, of.storages, here.load(), here.storages))
        ready = replace(ready, ports=replace(ready.ports, writer=writer))
        return ready, CopyFrom(which, other_table(state, there, which), replaces=replaces)

    def copy(self, source: LakeName = TO, to: LakeName = OTHER, **how: Any) -> Outcome:
        """Run ATTACH or REPLACE FROM, as a new process."""
        ready, statement = self.copies(source, to, **how)
        return ready.run(statement)

    def moving(
        self,
        source: LakeName = TO,
        to: LakeName = OTHER,
        check: Callable[..., None] = lambda *_: None,
    ) -> Moving:
        """Return what moves partitions from one lake table to another."""
        one, two = self.ready(source), self.ready(to)
        ports = replace(two.ports, owner=one.ports.owner, is_alive=one.ports.is_alive)

        def copies(before: Any, after: Any) -> Copies:
            storages = self.lake(source).storages, self.lake(to).storages
            return copies_between(before, storages[0], after, storages[1])

        return Moving(
            one, replace(two, ports=ports), copies, check, lambda *_: None, lambda _: None
        )

    def lake(self, name: LakeName = TO) -> IcebergTable:
        """Return a lake table."""
        found = place_at(self.directory).lake().table(name)
        assert found is not None
        return found

    def paths(self, branch: str = MAIN_BRANCH, name: LakeName = TO) -> list[str]:
        """Return the paths of the files of a branch."""
        found = place_at(self.directory).lake().table(name)
        return sorted(f.path for f in found.files_on(found.load(), branch)) if found else []

    def rows(self, branch: str = MAIN_BRANCH, name: LakeName = TO) -> list[int]:
        """Return the numbers that a reader of a branch sees."""
        found = place_at(self.directory).lake().catalog
        if not found.table_exists(name.identifier):
            return []
        table = found.load_table(name.identifier)
        ref = table.metadata.refs.get(branch)
        if ref is None:
            return []
        return sorted(table.scan(snapshot_id=ref.snapshot_id).to_arrow().column(0).to_pylist())

    @property
    def all_rows(self) -> tuple[list[int], ...]:
        """The rows of both tables, in main and detached."""
        branches = (MAIN_BRANCH, DETACHED_BRANCH)
        return tuple(self.rows(branch, name) for name in (TO, OTHER) for branch in branches)

    def main(self, name: LakeName = TO) -> int:
        """Return the snapshot of main."""
        found = self.lake(name).load().main
        assert found is not None
        return found

    def append(self, first: int, rows: int, *ids: str, name: LakeName = TO) -> str:
        """Append rows as another engine would, of these partitions; return the path."""
        table = place_at(self.directory).lake().catalog.load_table(name.identifier)
        before = set(self.paths(name=name))
        column = pa.field("n", pa.int64(), nullable=False)
        table.append(pa.table([pa.array(range(first, first + rows))], pa.schema([column])))
        (made,) = set(self.paths(name=name)) - before
        if ids:
            self.foreign.of[made] = frozenset(ids)
        return made

    def merge(self, operation: Operation = Operation.REPLACE, name: LakeName = TO) -> None:
        """Merge all files of main into one, as another engine would."""
        merge_files(self.directory, f"merged-{uuid.uuid4().hex}", of=name, operation=operation)

    def of_key(self, number: int, name: LakeName = TO) -> list[str]:
        """Return the files of main whose names have the key of a source's export."""
        ledger = self.ready(name).ports.commit.ledger
        uuid_of = self.lake(name).load().layout.table_uuid
        (key,) = (
            row.key.hash
            for row in ledger.rows()
            if (row.key.source, row.key.destination) == (f"source {number}", uuid_of)
        )
        return [path for path in self.paths(name=name) if key_in(path) == key]

    def part(self, path: str) -> OnePart:
        """Return a file as a part of p1."""
        return OnePart(lake_part_name(P1.partition_id, path))

"""A real local Iceberg table for tests of the commit protocol, and receipts of absent files."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.catalogs import OpenedCatalog, open_catalog
from catalog.iceberg.table import IcebergTable
from tableformat.committer import (
    AppendAlongside,
    Commit,
    CommitOutcome,
    KeyCommit,
    LakeTableState,
    Sent,
    Staged,
)
from tableformat.effects import Direct
from tableformat.export.commit import Ports, commit, first_snapshot
from tableformat.export.decision import claimed
from tableformat.file_names import data_file_name
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Claim, Key, Ledger, Row
from tableformat.names import LakeName
from tableformat.receipt import Receipt

NAME = LakeName("lake", ("n",), "t")
KEY = Key("source", "202401", "table")


def make_table(directory: Path, *, version: str = "2") -> IcebergTable:
    """Create an unpartitioned table with one long column in a new local catalog."""
    return make_table_in(open_catalog("lake", warehouse=directory), version=version)


def make_table_in(lake: OpenedCatalog, *, version: str = "2") -> IcebergTable:
    """Create the same table in a catalog that does not have it."""
    return lake.create(
        NAME,
        schema=Schema(NestedField(1, "n", LongType(), required=True)),
        spec=UNPARTITIONED_PARTITION_SPEC,
        order=UNSORTED_SORT_ORDER,
        properties={"format-version": version},
    )


def prepared(directory: Path, ledger: Ledger) -> IcebergTable:
    """Create the table, with its first, empty snapshot."""
    made = make_table(directory)
    first_snapshot(ports(made, ledger), lambda _: None)
    return made


def move_main(table: IcebergTable, snapshot_id: int | None) -> None:
    """Move main to a snapshot, as an operator's rollback does."""
    assert snapshot_id is not None
    at = table_of(table.load())
    at.manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()


def receipt(row: Row, *, number: int = 0, rows: int = 10) -> Receipt:
    """Return the receipt of a file that belongs to a row's claim."""
    name = data_file_name(row.key.hash, row.claim.transaction_id, number, "x")
    return Receipt(
        key=row.key.hash,
        transaction_id=row.claim.transaction_id,
        epoch=row.claim.epoch,
        slice_number=number,
        attempt="x",
        ranges=(),
        file_path=f"file:///nowhere/{name}",
        file_bytes=100,
        sha256="",
        rows=rows,
        rows_expected=rows,
        partition=(),
        spec_id=0,
        sort_order_id=None,
        split_offsets=(4,),
        columns=(),
        seconds=0.0,
        peak_memory=0,
    )


def claim(
    ledger: Ledger, *, epoch: int | None = None, key: Key = KEY, content: str = "content"
) -> Row:
    """Claim a key, as the job does, and note one file of ten rows."""
    known = ledger.read(key.hash)
    number = ledger.next_epoch() if epoch is None else epoch
    row = claimed(
        known,
        key,
        names=("db.t", str(NAME)),
        claim=Claim(number, str(1000 + number), content, 1, rows=10, data_files=1, bytes=100),
        ttl=180,
        now=1,
    )
    written = ledger.write(row)
    assert isinstance(written, Row)
    return written


def commit_of(row: Row, state: LakeTableState, ledger: Ledger) -> Commit:
    """Return the commit that makes a claim's file visible."""
    keys = (
        KeyCommit(
            row.key.hash,
            row.claim.epoch,
            row.claim.transaction_id,
            row.claim.fingerprint,
            (receipt(row),),
            AppendAlongside(),
        ),
    )
    return Commit(keys, state.layout, ledger.identity)


def ports(table: object, ledger: Ledger, *, most_attempts: int = 5) -> Ports:
    """Return ports without pauses."""
    return Ports(
        Direct(), table, ledger, clock=itertools.count(1).__next__, pause=lambda _: None,  # type: ignore[arg-type]
        most_attempts=most_attempts,
    )  # fmt: skip


def commit_one(ports: Ports, wanted: Commit) -> CommitOutcome:
    """Commit a single key; return what became of it."""
    (outcome,) = commit(ports, wanted).values()
    return outcome


def rows_in_main(table: IcebergTable) -> int:
    """Return how many rows main has by its manifests: two entries of one file count twice."""
    state = table.load()
    scan = table_of(state).scan(snapshot_id=state.main)
    return sum(task.file.record_count for task in scan.plan_files())


class Meddling:
    """A table whose `send` is meddled with: `before`, `after`, and `lose` hides success."""

    def __init__(
        self,
        table: IcebergTable,
        *,
        before: Callable[[int], None] = lambda _: None,
        after: Callable[[int], None] = lambda _: None,
        lose: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._table = table
        self._before, self._after, self._lose = before, after, lose
        self.sends = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    def send(
        self, state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
    ) -> Sent:
        self.sends += 1
        self._before(self.sends)
        sent = self._table.send(state, staged, commit, remove_marks)
        self._after(self.sends)
        return Sent(applied=False, error="the answer was lost") if self._lose(self.sends) else sent

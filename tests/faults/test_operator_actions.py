"""What operators and other engines do between two runs: rows once, and answers true of main."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.types import LongType

from catalog.iceberg import open_catalog
from catalog.ledgers.embedded import SqliteLedger
from tableformat.committer import EPOCH_PROPERTY, LEDGER_PROPERTY, MARK_PREFIX
from tableformat.effects import Step
from tableformat.errors import DestinationError, LedgerError, RefusedError
from tableformat.export.selection import ById
from tableformat.ledger import State
from tableformat.names import PartitionId
from tests.scenarios import (
    ALL,
    TO,
    AtStep,
    Partitions,
    assert_exported_once,
    lake,
    ledger_rows,
    parts_of,
    ports_of,
    pyiceberg,
    row_of,
    rows_by_key,
    rows_in_main,
    run,
    state,
    statuses,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tableformat.effects import Effects
    from tableformat.export.job import ExportRequest

ONE = replace(ALL, selection=ById(PartitionId("p1")))


class Dies(BaseException):
    """The process ends here."""


def die() -> None:
    """End the process."""
    raise Dies


def dies(directory: Path, source: Partitions, effects: Effects) -> None:
    """Run a command that dies."""
    with pytest.raises(Dies):
        run(directory, source, effects=effects)


def land_and_die(directory: Path, *, nth: int = 1) -> Partitions:
    """Land the n-th partition and die before the ledger hears of it."""
    source = Partitions()
    dies(directory, source, AtStep(Step.SETTLE, die, nth=nth))
    return source


def foreign_append(directory: Path, rows: int = 4) -> None:
    """Append rows as another engine does."""
    table = pyiceberg(directory)
    table.append(pa.table([pa.array(range(100, 100 + rows))], table.schema().as_arrow()))


def roll_back(directory: Path, snapshot_id: int | None) -> None:
    """Move main."""
    assert snapshot_id is not None
    pyiceberg(directory).manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()


def compact(directory: Path) -> None:
    """Write all rows of main anew under other names."""
    table = pyiceberg(directory)
    table.overwrite(table.scan().to_arrow())


def drop_file(directory: Path, rows: int) -> None:
    """Take the files with a number of rows out of main, as a whole, as another engine does."""
    table = pyiceberg(directory)
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        for task in table.scan().plan_files():
            if task.file.record_count == rows:
                update.delete_data_file(task.file)


def test_a_file_deleted_before_the_ledger_heard_of_it_is_not_exported(tmp_path: Path) -> None:
    """Harm prevented: "already exported" of a partition of which a file was deleted."""
    source = Partitions()
    source.by_id = {"p1": parts_of("p1", 7, 5)}
    ports = ports_of(tmp_path, source, effects=AtStep(Step.SETTLE, die))
    with pytest.raises(Dies):
        run(tmp_path, source, ports=ports)
    print(rows_by_key(tmp_path), ledger_rows(tmp_path)[0].data_files)
    foreign_append(tmp_path)
    drop_file(tmp_path, 12)
    drop_file(tmp_path, 7)
    print(rows_by_key(tmp_path))
    out = run(tmp_path, source)
    print(out)
    assert statuses(out) == ["refused"]


def test_source_gone_and_main_rolled_back(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source)
    first = min(state(tmp_path).snapshots.values(), key=lambda s: s.sequence_number)
    roll_back(tmp_path, first.snapshot_id)
    del source.by_id["p1"]
    (outcome,) = run(tmp_path, source, request=ONE)
    assert outcome.status.value == "refused", outcome


def test_landed_and_source_dropped(tmp_path: Path) -> None:
    source = land_and_die(tmp_path)
    del source.by_id["p1"]
    (outcome,) = run(tmp_path, source, request=ONE)
    assert outcome.status.value == "already_exported"


def test_settle_fails(tmp_path: Path) -> None:
    source = Partitions()

    def full() -> None:
        raise LedgerError("disk is full")

    out = run(tmp_path, source, effects=AtStep(Step.SETTLE, full))
    print(out)
    assert_exported_once  # noqa
    again = run(tmp_path, source)
    assert_exported_once(tmp_path, source)
    assert statuses(out)[0] == "unknown", out
    assert statuses(again) == ["already_exported"] * 2


def test_ledger_copy_mid_group(tmp_path: Path) -> None:
    source = Partitions()
    copy = tmp_path / "copy.db"

    def back_up() -> None:
        with sqlite3.connect(tmp_path / "ledger.db") as a, sqlite3.connect(copy) as b:
            a.backup(b)

    run(tmp_path, source, effects=AtStep(Step.WRITE_FILES, back_up))
    assert_exported_once(tmp_path, source)
    compact(tmp_path)
    for p in tmp_path.glob("ledger.db*"):
        p.unlink()
    shutil.copy(copy, tmp_path / "ledger.db")
    try:
        out = run(tmp_path, source)
    except RefusedError as e:
        out = e
    print(out)
    assert rows_in_main(tmp_path) == 15


def test_clean_fails(tmp_path: Path) -> None:
    source = Partitions()

    def no() -> None:
        raise DestinationError("no")

    class Two:
        def __init__(self):
            self.a = AtStep(Step.SEND, lambda: foreign_append(tmp_path))
            self.b = AtStep(Step.CLEAN_ATTEMPT, no)

        def __call__(self, step, act):
            return self.a(step, lambda: self.b(step, act))

    out = run(tmp_path, source, effects=Two())
    print(out)
    assert statuses(out) == ["committed"] * 2


def test_epoch_property_edited(tmp_path: Path) -> None:
    source = Partitions()
    run(tmp_path, source)
    with pyiceberg(tmp_path).transaction() as t:
        t.set_properties({EPOCH_PROPERTY: "x"})
    with pytest.raises(DestinationError):
        run(tmp_path, source)

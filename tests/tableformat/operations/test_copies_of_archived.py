"""Statements that bring archived rows to another lake table: they are archived there, too."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.storages.schemes import open_storage
from tableformat.effects import Direct
from tableformat.export.archived import archiving
from tableformat.export.commit import Ports
from tableformat.export.job import export
from tableformat.export.options import LateRows
from tableformat.export.outcome import Status
from tableformat.export.rebuild import rebuild
from tableformat.export.request import ExportOptions
from tableformat.ledger import Owner, Row
from tests.support.lake_statements import IN_FILES, LATER
from tests.support.scenarios import (
    Partitions,
    ledger_of,
    ledger_rows,
    parts_of,
    ports_of,
)
from tests.support.scenarios import run as run_command
from tests.support.two_lake_tables import OTHER, P1, TO_OTHER, copy, move, other, prepared, to_other

ME = Owner("here", 1, "now")


def rows_of_other(directory: Path) -> int:
    """Return all rows of p1 in the other table, of every increment."""
    table = other(directory)
    state = table.load()
    keys = [
        row.key.hash for row in rows(directory) if row.key.destination == state.layout.table_uuid
    ]
    return sum(file.rows for key in keys for file in table.files_of(state, key))


def rows(directory: Path) -> list[Row]:
    """Return the ledger's rows of p1."""
    found = (row for row in ledger_rows(directory) if row.key.partition_id == "p1")
    return sorted(found, key=lambda row: (row.destination_table, row.key.increment))


def archive(directory: Path, source: Partitions) -> None:
    """Take p1 out of the source after its export."""
    with contextlib.closing(ledger_of(directory)) as ledger:
        row = next(row for row in rows(directory) if row.archived is None)
        with archiving(ledger, row, owner=ME, is_alive=lambda _: False, now=5) as marked:
            source.by_id.pop("p1")
            marked.note_detached(())


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Archive p1, of 12 rows, in one of two tables."""
    made = prepared(tmp_path)
    archive(tmp_path, made)
    return made


def test_no_export_replaces_archived_rows_that_were_moved(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: the only copy of 12 rows leaves the lake for 40 late ones."""
    move(tmp_path)
    source.by_id["p1"] = parts_of("p1", 40)

    told = to_other(tmp_path, source)

    assert told["p1"] is Status.REFUSED
    assert rows_of_other(tmp_path) == 12
    assert all(row.archived is not None for row in rows(tmp_path))


def test_a_rebuilt_ledger_knows_that_moved_rows_are_archived(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: with a new ledger, late rows replace the only copy of archived ones."""
    move(tmp_path)
    for path in tmp_path.glob("ledger.db*"):
        path.unlink()
    with contextlib.closing(ledger_of(tmp_path)) as ledger:
        ports = Ports(Direct(), other(tmp_path), ledger, LATER.__next__, lambda _: None)
        found = rebuild(ports, open_storage, str(OTHER))

    assert {one.row.key.partition_id: one.row.archived is not None for one in found}["p1"]
    assert all(one.proved for one in found)
    source.by_id["p1"] = parts_of("p1", 40)
    assert to_other(tmp_path, source)["p1"] is Status.REFUSED
    assert rows_of_other(tmp_path) == 12


def test_late_rows_travel_with_their_partition(tmp_path: Path, source: Partitions) -> None:
    source.by_id["p1"] = [replace(parts_of("p1", 3)[0], hash_of_all_files="late")]
    late = replace(IN_FILES, options=ExportOptions(late_rows=LateRows.APPEND))
    ports = ports_of(tmp_path, source, clock=LATER.__next__)
    told = {
        o.partition_id: o.status for o in run_command(tmp_path, source, request=late, ports=ports)
    }
    assert told["p1"] is Status.COMMITTED

    assert move(tmp_path).status is Status.MOVED
    assert rows_of_other(tmp_path) == 15
    done = {
        o.partition_id: o.status
        for o in export(
            replace(TO_OTHER, options=ExportOptions()),
            ports_of(tmp_path, source, clock=LATER.__next__),
            slots=1,
        )
    }
    assert done["p1"] in (Status.UNCHANGED, Status.ALREADY_EXPORTED)
    assert rows_of_other(tmp_path) == 15

    assert copy(tmp_path, P1).status is Status.ATTACHED
    assert [row.archived is not None for row in rows(tmp_path)] == [True, False, True, False]

"""A failure of the library that writes manifests is an error of ours, and moves no row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update.snapshot import _OverwriteFiles

from tableformat.errors import DestinationError
from tableformat.export.outcome import Status
from tableformat.operations.freeze import Freeze
from tests.support.cleaning_up import left_behind
from tests.support.lake_statements import alone, drop, in_files, partition, running
from tests.support.scenarios import lake, ledger_rows, rows_in_main
from tests.support.two_lake_tables import move, other, prepared, rows_of_p1

WHY = "PyIceberg failed with ValueError: no such type"


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let each removal of a file fail."""

    def delete_data_file(*_: Any) -> None:
        message = "no such type\nand more"
        raise ValueError(message)

    monkeypatch.setattr(_OverwriteFiles, "delete_data_file", delete_data_file)
    return monkeypatch


def test_a_statement_reports_it(tmp_path: Path, fails: pytest.MonkeyPatch) -> None:
    in_files(tmp_path)

    outcome = running(tmp_path).run(drop("p1"))

    assert (outcome.status, WHY in outcome.message) == (Status.FAILED, True)
    fails.undo()
    assert running(tmp_path).run(drop("p1")).status is Status.DROPPED
    assert rows_in_main(tmp_path) == 3


@pytest.mark.usefixtures("fails")
def test_a_frozen_copy_reports_it(tmp_path: Path) -> None:
    in_files(tmp_path)

    with pytest.raises(DestinationError, match=WHY):
        alone(tmp_path, Freeze(partition("p1"), "kept"))


def test_a_move_adds_nothing_that_it_cannot_remove(
    tmp_path: Path, fails: pytest.MonkeyPatch
) -> None:
    """Harm prevented: rows in both tables, and the advised statement fails again each time."""
    prepared(tmp_path)
    rows, before = ledger_rows(tmp_path), other(tmp_path).load().metadata_location

    with pytest.raises(DestinationError, match=WHY):
        move(tmp_path)

    assert (ledger_rows(tmp_path), rows_of_p1(tmp_path)) == (rows, (12, 0))
    assert other(tmp_path).load().metadata_location == before
    fails.undo()
    assert move(tmp_path).status is Status.MOVED
    assert rows_of_p1(tmp_path) == (0, 12)
    assert left_behind(tmp_path) == []


def test_the_trial_of_a_move_leaves_no_file(tmp_path: Path) -> None:
    prepared(tmp_path)
    before = set(tmp_path.rglob("*.avro"))

    move(tmp_path)

    state = lake(tmp_path).load(), other(tmp_path).load()
    made = {f"file://{path}" for path in set(tmp_path.rglob("*.avro")) - before}
    assert made == made & {
        *lake(tmp_path).metadata_files(state[0]),
        *other(tmp_path).metadata_files(state[1]),
    }

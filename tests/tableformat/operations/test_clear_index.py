"""CLEAR INDEX: files without bloom filters, with the same rows, and what exports say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalog.rewriting.changed_rows import ChangedFiles, FilteredFiles
from tableformat.committer import MAIN_BRANCH
from tableformat.effects import Effects, Step
from tableformat.export.outcome import Outcome, Status
from tableformat.iceberg.snapshot import table_of
from tableformat.operations.rewrite import ClearIndex
from tableformat.operations.statement import FileRewriter
from tableformat.parquet.statistics import filtered_columns
from tableformat.parquet.writer import FileFormat
from tests.places.found import place_at
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    export_at,
    in_files,
    on,
    partition,
    running,
)
from tests.support.row_changes import change, numbers_in
from tests.support.row_merges import optimize
from tests.support.scenarios import CLOCK, TO, RealFiles, row_of, rows_in_main
from tests.support.tiers import share_of

P1 = partition("p1")


@pytest.fixture(autouse=True)
def _with_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exports write bloom filters."""
    monkeypatch.setattr(RealFiles, "filters", True)


def clear(directory: Path, *, effects: Effects | None = None, alive: bool = False) -> Outcome:
    """Clear the index of the numbers in the first partition, as a new process."""
    found = place_at(directory).lake().table(TO)
    assert found is not None
    state = found.load()
    table = table_of(state)
    ids = frozenset({table.schema().find_field("n").field_id})
    filtered = FilteredFiles(found.storages, ids)
    files = ChangedFiles(found.storages, filtered, FileFormat(), without=ids)
    ready = running(directory, effects=effects, table=found, alive=alive)
    ready = replace(ready, ports=replace(ready.ports, writer=FileRewriter(files)))
    return ready.run(ClearIndex(P1, f"CLEAR INDEX i IN {P1}", filtered, state.layout.schema_id))


def filtered(directory: Path) -> dict[str, int]:
    """Return how many files of each partition have bloom filters."""
    found = dict.fromkeys(("p1", "p2"), 0)
    for path in on(directory, MAIN_BRANCH):
        with pq.ParquetFile(path.removeprefix("file://")) as read:
            for name in found:
                of_it = row_of(directory, name).key.hash in path
                found[name] += of_it and bool(filtered_columns(read))
    return found


def numbers(directory: Path) -> list[int]:
    """Return all rows of main."""
    return sorted(n for path in on(directory, MAIN_BRANCH) for n in numbers_in(path))


def test_the_filters_of_the_partition_go_and_nothing_else(tmp_path: Path) -> None:
    source = in_files(tmp_path)
    before = numbers(tmp_path)
    assert filtered(tmp_path) == {"p1": 2, "p2": 1}

    done = clear(tmp_path)

    assert (done.status, done.rows, done.data_files) == (Status.CHANGED, 12, 2)
    assert filtered(tmp_path) == {"p1": 0, "p2": 1}
    assert numbers(tmp_path) == before
    assert clear(tmp_path).status is Status.UNCHANGED
    soon = export_at(tmp_path, source, CLOCK, IN_FILES)["p1"]
    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (soon.status, later.status) == (Status.ALREADY_EXPORTED, Status.UNCHANGED)
    assert left_behind(tmp_path) == []


def test_after_an_update_it_is_still_one(tmp_path: Path) -> None:
    """Harm prevented: a partition that was changed counts as exported as it is in the source."""
    source = in_files(tmp_path)
    change(tmp_path, P1)

    assert clear(tmp_path).status is Status.CHANGED

    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (later.status, "CLEAR INDEX" in later.message) == (Status.UNCHANGED, True)


@pytest.mark.parametrize("merges", [False, True], ids=["UPDATE", "OPTIMIZE"])
def test_other_statements_keep_the_filters(tmp_path: Path, *, merges: bool) -> None:
    """Harm prevented: a look-up that reads one page becomes one that reads every file."""
    in_files(tmp_path)

    done = optimize(tmp_path, P1) if merges else change(tmp_path, P1)

    assert done.status in (Status.OPTIMIZED, Status.CHANGED)
    assert filtered(tmp_path)["p1"] == (1 if merges else 2)


@pytest.mark.soak  # tests/faults/test_statement_crashes.py tries each statement so.
def test_a_death_at_any_effect_and_the_same_statement_again(tmp_path: Path) -> None:
    """Harm prevented: a file in addition to the one that it is written from, or none of them."""
    in_files(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    clear(tmp_path / "count", effects=counting)
    assert {Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE} <= set(counting.steps)
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        in_files(directory)
        with pytest.raises(Dies):
            clear(directory, effects=DiesAt(number, after=True))
        assert rows_in_main(directory) == 15, step

        assert clear(directory).status in (Status.CHANGED, Status.UNCHANGED), step

        assert filtered(directory) == {"p1": 0, "p2": 1}, step
        assert rows_in_main(directory) == 15, step
        assert left_behind(directory) == [], step

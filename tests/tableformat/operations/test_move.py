"""MOVE PARTITION … TO TABLE: what is where afterwards, and what exports say of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.errors import RefusedError
from tableformat.export.job import export
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.ledger import MoveIntent, Row, State
from tableformat.messages import plain
from tests.support.cleaning_up import left_behind
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    drop,
    export_at,
    running,
)
from tests.support.scenarios import (
    Partitions,
    lake,
    parts_of,
    ports_of,
    row_of,
    rows_in_main,
)
from tests.support.two_lake_tables import (
    OTHER,
    P1,
    TO_OTHER,
    copy,
    move,
    moving,
    other,
    prepared,
    rows_of_p1,
    to_other,
)


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    return prepared(tmp_path)


def test_the_partition_is_there_and_not_here(tmp_path: Path, source: Partitions) -> None:
    done = move(tmp_path)

    assert (done.status, done.rows, done.data_files) == (Status.MOVED, 12, 2)
    assert rows_of_p1(tmp_path) == (0, 12)
    assert rows_in_main(tmp_path) == source.rows["p2"]
    table = other(tmp_path)
    assert all("/other/" in f.path for f in table.files_on(table.load(), "main"))
    assert left_behind(tmp_path) == []
    assert (row_of(tmp_path, "p1").state, row_of(tmp_path, "p1").move) == (State.COMPLETED, None)


def test_what_was_moved_is_not_exported_here_again_unless_it_is_forced(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: the rows are in both tables."""
    move(tmp_path)

    for again in (itertools.count(2_000_000), LATER):
        outcome = export_at(tmp_path, source, again, IN_FILES)["p1"]
        assert outcome.status is Status.REFUSED
        assert f"TO TABLE {OTHER}" in outcome.message
        assert "--force" in plain(outcome.message)
    source.by_id["p1"] = parts_of("p1", 20)
    outcome = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (outcome.status, f"TO TABLE {OTHER}" in outcome.message) == (Status.REFUSED, True)
    forced = replace(IN_FILES, options=ExportOptions(force=True))
    assert export_at(tmp_path, source, LATER, forced)["p1"].status is Status.COMMITTED


def test_there_it_counts_as_exported(tmp_path: Path, source: Partitions) -> None:
    move(tmp_path)
    unforced = replace(TO_OTHER, options=ExportOptions())

    done = export(unforced, ports_of(tmp_path, source, clock=LATER.__next__), slots=1)

    assert {o.partition_id: o.status for o in done}["p1"] is Status.UNCHANGED


def test_a_partition_without_files_is_nothing_to_move(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    running(tmp_path).run(drop("p1"))

    assert move(tmp_path).status is Status.EMPTY


def test_again_there_is_nothing_to_move(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    move(tmp_path)
    before = lake(tmp_path).load().metadata_location, other(tmp_path).load().metadata_location

    assert move(tmp_path).status is Status.EMPTY
    after = lake(tmp_path).load().metadata_location, other(tmp_path).load().metadata_location
    assert after == before


def test_a_move_is_refused_alongside_other_rows_without_a_claim(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows of the partition are there twice."""
    source.by_id["p1"] = parts_of("p1", 20)
    to_other(tmp_path, source)

    with pytest.raises(RefusedError, match="could be there twice"):
        move(tmp_path)

    assert rows_of_p1(tmp_path) == (12, 20)
    assert row_of(tmp_path, "p1").state is State.COMPLETED


def test_a_move_of_a_table_to_itself_that_was_begun_is_given_up(
    tmp_path: Path, source: Partitions
) -> None:
    """An earlier release began it. Harm prevented: the rows are removed here as moved."""
    here = lake(tmp_path)
    row = row_of(tmp_path, "p1")
    assert row.done is not None
    ledger = moving(tmp_path).here.ports.commit.ledger
    begun = MoveIntent(row.key.hash, row.done.landed.transaction_id, str(OTHER), "of its files")
    claim = replace(row.claim, epoch=ledger.next_epoch(1), statement="MOVE", move=begun)
    assert all(
        isinstance(r, Row)
        for r in ledger.write_all((replace(row, state=State.RUNNING, claim=claim),))
    )

    done = moving(tmp_path, there=here).run(P1)

    assert (done.status, rows_in_main(tmp_path)) == (Status.UNCHANGED, sum(source.rows.values()))
    assert (row_of(tmp_path, "p1").state, row_of(tmp_path, "p1").move) == (State.FAILED, None)


def test_what_is_there_already_is_only_taken_away_here(tmp_path: Path, source: Partitions) -> None:
    to_other(tmp_path, source)
    before = other(tmp_path).load().metadata_location

    assert move(tmp_path).status is Status.MOVED

    assert rows_of_p1(tmp_path) == (0, 12)
    assert other(tmp_path).load().metadata_location == before


def test_rows_of_others_go_with_it(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    rows = ForeignPartitions({add_foreign(tmp_path, 6): frozenset({"p1"})})

    done = move(tmp_path, rows=rows)

    assert (done.status, done.rows) == (Status.MOVED, 18)
    assert rows_in_main(tmp_path) == 3
    table = other(tmp_path)
    assert sum(f.rows for f in table.files_on(table.load(), "main")) == 3 + 18


def test_rows_of_others_that_came_from_another_table_go_on_and_back(
    tmp_path: Path, source: Partitions
) -> None:
    """With those that others added here: whatever keys they have, all of them go."""
    foreign = ForeignPartitions(rest="p1")
    running(tmp_path).run(drop("p1"))
    running(tmp_path, table=other(tmp_path), name=OTHER).run(drop("p2"))
    add_foreign(tmp_path, 6)
    assert move(tmp_path, rows=foreign).rows == 6
    came = copy(tmp_path, P1, rows=foreign)
    add_foreign(tmp_path, 5)
    assert (came.rows, rows_in_main(tmp_path)) == (6, 3 + 6 + 5)
    there = running(tmp_path, table=other(tmp_path), name=OTHER, rows=foreign)
    assert there.run(drop("p1")).rows == 6

    done = move(tmp_path, rows=foreign)

    assert (done.status, done.rows, done.data_files) == (Status.MOVED, 11, 2)
    assert rows_in_main(tmp_path) == source.rows["p2"]
    table = other(tmp_path)
    assert sum(f.rows for f in table.files_on(table.load(), "main")) == 11
    assert copy(tmp_path, P1, rows=foreign).rows == 11


def test_a_dry_run_changes_nothing(tmp_path: Path, source: Partitions) -> None:
    assert source.rows
    before = lake(tmp_path).load().metadata_location, other(tmp_path).load().metadata_location

    outcome = moving(tmp_path).forecast(P1)

    assert (outcome.status, outcome.rows) == (Status.MOVED, 12)
    assert outcome.message.startswith("would be moved")
    after = lake(tmp_path).load().metadata_location, other(tmp_path).load().metadata_location
    assert after == before

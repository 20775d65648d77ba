"""UPDATE and DELETE: rewritten files, and what exports and other statements say of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from tableformat.effects import Step
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.ledger import State
from tableformat.messages import plain
from tableformat.operations.statement import AllPartitions
from tableformat.operations.take_out import Drop
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt, SentLate
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    attach,
    detach,
    drop,
    export_at,
    in_files,
    part_in,
    partition,
    running,
)
from tests.support.other_engines import delete_first_row, rewrite
from tests.support.row_changes import change
from tests.support.scenarios import (
    CLOCK,
    AtStep,
    lake,
    ledger_rows,
    parts_of,
    pyiceberg,
    rows_by_key,
    rows_in_main,
)
from tests.support.tiers import share_of

T = TypeVar("T")
P1 = partition("p1")
EACH = AllPartitions(each=True)


def numbers(directory: Path) -> list[int]:
    """Return all rows of main."""
    found: list[int] = pyiceberg(directory).scan().to_arrow().column("n").to_pylist()
    return sorted(found)


def test_rows_of_the_partition_change_and_no_others(tmp_path: Path) -> None:
    source = in_files(tmp_path)
    before = numbers(tmp_path)

    done = change(tmp_path, P1)

    assert (done.status, done.rows, done.data_files) == (Status.CHANGED, 6, 2)
    after = numbers(tmp_path)
    assert len(after) == len(before) == source.rows["p1"] + source.rows["p2"]
    assert sum(after) == sum(before) + 6 * 1_000
    assert left_behind(tmp_path) == []


def test_an_update_whose_response_was_lost_is_not_made_twice(tmp_path: Path) -> None:
    """Harm prevented: `n = n + 1000` counts twice where "run it again" was followed."""
    in_files(tmp_path)
    before, dead = numbers(tmp_path), SentLate()
    with pytest.raises(Dies):
        change(tmp_path, P1, between=(-1, 100_000), effects=dead)
    dead.arrive()

    again = change(tmp_path, P1, between=(-1, 100_000))

    landed = pyiceberg(tmp_path).metadata.current_snapshot_id
    assert (again.status, again.snapshot_id) == (Status.UNCHANGED, landed)
    assert "ended before its report" in again.message
    assert sum(numbers(tmp_path)) == sum(before) + 12 * 1_000
    # Asked for once more it is made once more.
    assert change(tmp_path, P1, between=(-1, 100_000)).status is Status.CHANGED
    assert sum(numbers(tmp_path)) == sum(before) + 2 * 12 * 1_000


@pytest.mark.parametrize("arrives", [Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND])
def test_an_update_that_lands_while_it_is_run_again_is_made_once(
    tmp_path: Path, arrives: Step
) -> None:
    """Harm prevented: the request of the dead run and that of the second one both count."""
    in_files(tmp_path)
    before, dead = numbers(tmp_path), SentLate()
    with pytest.raises(Dies):
        change(tmp_path, P1, between=(-1, 100_000), effects=dead)

    again = change(tmp_path, P1, between=(-1, 100_000), effects=AtStep(arrives, dead.arrive))

    assert again.status is Status.UNCHANGED
    assert sum(numbers(tmp_path)) == sum(before) + 12 * 1_000


def test_another_update_than_the_one_that_died_is_made(tmp_path: Path) -> None:
    """Harm prevented: a statement is taken for another one of the same columns and partition."""
    in_files(tmp_path)
    before, dead = numbers(tmp_path), SentLate()
    with pytest.raises(Dies):
        change(tmp_path, P1, between=(-1, 100_000), effects=dead)
    dead.arrive()

    assert change(tmp_path, P1, between=(-1, 200_000)).status is Status.CHANGED
    assert sum(numbers(tmp_path)) == sum(before) + 2 * 12 * 1_000


def test_deleted_rows_are_gone_and_a_file_without_rows_too(tmp_path: Path) -> None:
    in_files(tmp_path)

    done = change(tmp_path, P1, between=(-1, 1_000), deletes=True)

    assert (done.status, done.rows) == (Status.CHANGED, 12)
    assert rows_by_key(tmp_path)["p1"] == 0
    assert rows_in_main(tmp_path) == 3
    assert left_behind(tmp_path) == []


def test_all_partitions_change_in_one_snapshot(tmp_path: Path) -> None:
    in_files(tmp_path)
    made = add_foreign(tmp_path)
    before = len(lake(tmp_path).load().snapshots)

    done = change(tmp_path, EACH, rows=ForeignPartitions({made: frozenset({"p2"})}))

    assert (done.status, done.partition_id) == (Status.CHANGED, "*")
    assert len(lake(tmp_path).load().snapshots) == before + 1
    assert numbers(tmp_path)[0] >= 3
    # What others wrote is of the partition that it was in, also under its new name.
    running(tmp_path, rows=ForeignPartitions()).run(drop("p2"))
    assert rows_in_main(tmp_path) == 12


def test_a_statement_without_changes_says_so_and_claims_nothing(tmp_path: Path) -> None:
    in_files(tmp_path)
    change(tmp_path, P1)

    again = change(tmp_path, P1)

    assert (again.status, again.message) == (
        Status.UNCHANGED,
        "nothing to do: no row of 12 changes",
    )
    assert change(tmp_path, partition("nobody")).status is Status.EMPTY


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("below", [3, 1_000])
def test_an_export_of_the_same_source_leaves_it(
    tmp_path: Path, *, deletes: bool, below: int
) -> None:
    source = in_files(tmp_path)
    change(tmp_path, P1, between=(-1, below), deletes=deletes)
    after = numbers(tmp_path)

    soon = export_at(tmp_path, source, CLOCK, IN_FILES)["p1"]
    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]

    assert (soon.status, later.status) == (Status.ALREADY_EXPORTED, Status.UNCHANGED)
    assert ("DELETE" if deletes else "UPDATE") in later.message
    assert numbers(tmp_path) == after


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("below", [3, 1_000])
def test_a_source_that_changed_replaces_it_only_with_force(
    tmp_path: Path, *, deletes: bool, below: int
) -> None:
    """Harm prevented: an UPDATE that is undone, or its rows alongside those of the export."""
    source = in_files(tmp_path)
    change(tmp_path, P1, between=(-1, below), deletes=deletes)
    source.by_id["p1"] = parts_of("p1", 20, 30)

    outcome = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (outcome.status, "Use --force" in plain(outcome.message)) == (Status.REFUSED, True)
    forced = export_at(
        tmp_path, source, LATER, replace(IN_FILES, options=ExportOptions(force=True))
    )["p1"]

    assert forced.status in (Status.REPLACED, Status.COMMITTED)
    assert rows_in_main(tmp_path) == 53
    assert left_behind(tmp_path) == []


def test_what_was_taken_out_in_part_is_not_taken_for_an_update(tmp_path: Path) -> None:
    """Harm prevented: what lacks a part counts as exported, and its source is dropped."""
    source = in_files(tmp_path)
    running(tmp_path).run(Drop(part_in(tmp_path, "p1")))
    change(tmp_path, P1, between=(-1, 1_000))

    outcome = export_at(tmp_path, source, LATER, IN_FILES)["p1"]

    assert outcome.status is Status.REFUSED


def test_detach_and_attach_keep_what_was_changed(tmp_path: Path) -> None:
    source = in_files(tmp_path)
    change(tmp_path, P1)
    after = numbers(tmp_path)

    assert running(tmp_path).run(detach("p1")).status is Status.DETACHED
    assert change(tmp_path, P1).status is Status.EMPTY
    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED

    assert numbers(tmp_path) == after
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is not Status.COMMITTED
    assert numbers(tmp_path) == after


@pytest.mark.enumeration
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.nightly), pytest.param(True, id="after")],
)
@pytest.mark.parametrize("deletes", [False, True], ids=["update", "delete"])
def test_a_death_at_any_effect_and_the_same_statement_again(
    tmp_path: Path, *, after: bool, deletes: bool
) -> None:
    """Harm prevented: rows that change twice, or a file and the one that it is written from."""
    in_files(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    change(tmp_path / "count", P1, deletes=deletes, effects=counting)
    wanted = numbers(tmp_path / "count")
    assert {Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE} <= set(counting.steps)
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        in_files(directory)
        before = numbers(directory)
        with pytest.raises(Dies):
            change(directory, P1, deletes=deletes, effects=DiesAt(number, after=after))
        assert numbers(directory) in (before, wanted), step

        done = change(directory, P1, deletes=deletes).status

        assert done in (Status.CHANGED, Status.UNCHANGED), step
        assert numbers(directory) == wanted, step
        assert left_behind(directory) == [], step


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND])
def test_rows_that_others_append_meanwhile_are_changed_or_come_after(
    tmp_path: Path, step: Step
) -> None:
    in_files(tmp_path)
    foreign = ForeignPartitions(rest="p1")

    done = change(tmp_path, P1, rows=foreign, effects=AtStep(step, lambda: add_foreign(tmp_path)))

    assert done.status is Status.CHANGED
    assert len(numbers(tmp_path)) == 19
    assert change(tmp_path, P1, rows=foreign).status in (Status.CHANGED, Status.UNCHANGED)
    assert numbers(tmp_path)[3] >= 3


def test_files_that_others_rewrite_meanwhile_are_not_there_twice(tmp_path: Path) -> None:
    """Harm prevented: the old rows alongside the changed ones."""
    in_files(tmp_path)
    foreign = ForeignPartitions(rest="p1")

    change(tmp_path, P1, rows=foreign, effects=AtStep(Step.SEND, lambda: rewrite(tmp_path)))

    assert len(numbers(tmp_path)) == 15


def test_files_with_deletes_are_refused(tmp_path: Path) -> None:
    """Harm prevented: deleted rows that come back."""
    in_files(tmp_path)
    table = pyiceberg(tmp_path)
    delete_first_row(table, next(iter(table.scan().plan_files())).file)

    with pytest.raises(UnsupportedError, match="rewrite_data_files"):
        change(tmp_path, EACH)


def test_columns_that_change_meanwhile_stop_it(tmp_path: Path) -> None:
    """Harm prevented: files in the form of columns that the table does not have any more."""
    in_files(tmp_path)

    def changed() -> None:
        with pyiceberg(tmp_path).update_schema() as schema:
            schema.add_column("m", schema._schema.find_type("n"))

    before = numbers(tmp_path)
    with pytest.raises(RefusedError, match="the columns of the table were changed meanwhile"):
        change(tmp_path, P1, effects=AtStep(Step.SEND, changed))

    assert numbers(tmp_path) == before
    assert change(tmp_path, P1).status is Status.CHANGED
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("times", [1, 2])
def test_where_others_leave_nothing_to_change_nothing_is_left_of_it(
    tmp_path: Path, times: int
) -> None:
    """Harm prevented: files that nobody may remove, of a statement that counts as interrupted."""
    in_files(tmp_path)

    def others(number: int) -> None:
        # Some of the rows that change, and the last time all of them.
        pyiceberg(tmp_path).delete("n = 0" if number < times else "n < 3")

    claims = itertools.count(1)

    def effects(step: Step, act: Callable[[], T], /) -> T:
        done = act()
        if step is Step.CLAIM:
            others(next(claims))
        return done

    done = change(tmp_path, P1, rows=ForeignPartitions(rest="p1"), effects=effects)

    assert done.status is Status.UNCHANGED
    assert State.RUNNING not in {row.state for row in ledger_rows(tmp_path)}
    assert left_behind(tmp_path) == []

"""OPTIMIZE: fewer files with the same rows, and what exports and other statements say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.committer import MAIN_BRANCH
from tableformat.effects import Step
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.operations.statement import AllPartitions
from tableformat.operations.take_out import Detach, Drop
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    add_foreign,
    attach,
    detach,
    export_at,
    in_files,
    on,
    part_in,
    partition,
    running,
)
from tests.support.other_engines import delete_first_row, rewrite
from tests.support.row_changes import change, numbers_in
from tests.support.row_merges import optimize
from tests.support.scenarios import (
    CLOCK,
    AtStep,
    lake,
    parts_of,
    pyiceberg,
    row_of,
    rows_in_main,
)
from tests.support.tiers import share_of

P1 = partition("p1")
EACH = AllPartitions(each=True)


def numbers(directory: Path) -> list[int]:
    """Return all rows of main."""
    found: list[int] = pyiceberg(directory).scan().to_arrow().column("n").to_pylist()
    return sorted(found)


def files_of(directory: Path, name: str) -> list[str]:
    """Return the files that main has of a partition's export."""
    return [path for path in on(directory, MAIN_BRANCH) if row_of(directory, name).key.hash in path]


def test_files_become_one_that_is_sorted_and_the_rows_stay(tmp_path: Path) -> None:
    in_files(tmp_path)
    before, others = numbers(tmp_path), files_of(tmp_path, "p2")

    done = optimize(tmp_path, P1)

    assert (done.status, done.rows, done.data_files) == (Status.OPTIMIZED, 12, 2)
    assert numbers(tmp_path) == before
    (made,) = files_of(tmp_path, "p1")
    assert numbers_in(made) == sorted(numbers_in(made))
    assert files_of(tmp_path, "p2") == others
    assert left_behind(tmp_path) == []


def test_as_many_files_come_as_the_target_asks_for_each_with_a_range(tmp_path: Path) -> None:
    in_files(tmp_path)
    added = [add_foreign(tmp_path, 100) for _ in range(3)]
    size = sum(Path(path.removeprefix("file://")).stat().st_size for path in added)

    optimize(tmp_path, EACH, rows=ForeignPartitions(rest="p3"), target_bytes=size // 2 + 1)

    ours = (*files_of(tmp_path, "p1"), *files_of(tmp_path, "p2"))
    made = sorted(numbers_in(p) for p in on(tmp_path, MAIN_BRANCH) if p not in ours)
    assert [len(one) for one in made] == [150, 150]
    assert made[0] + made[1] == sorted([*range(100)] * 3)
    assert len(ours) == 2


@pytest.mark.parametrize("deduplicates", [False, True])
def test_never_do_more_files_come_than_there_were(tmp_path: Path, *, deduplicates: bool) -> None:
    """Harm prevented: a target that is too small makes a file of every row."""
    in_files(tmp_path)

    done = optimize(tmp_path, P1, deduplicates=deduplicates, target_bytes=1)

    assert done.status is (Status.OPTIMIZED if deduplicates else Status.UNCHANGED)
    assert len(files_of(tmp_path, "p1")) == 2


def test_a_second_time_there_is_nothing_to_do(tmp_path: Path) -> None:
    in_files(tmp_path)
    optimize(tmp_path, EACH)
    snapshots = len(lake(tmp_path).load().snapshots)

    again = optimize(tmp_path, EACH)

    assert again.status is Status.UNCHANGED
    assert again.message.startswith("already as few files as its size needs (")
    assert len(lake(tmp_path).load().snapshots) == snapshots
    assert optimize(tmp_path, partition("nobody")).status is Status.EMPTY


def test_it_is_the_same_export_afterwards(tmp_path: Path) -> None:
    """Harm prevented: a partition that nobody can export again, because its files are others."""
    source = in_files(tmp_path)
    before = row_of(tmp_path, "p1").bytes
    optimize(tmp_path, P1)
    (made,) = files_of(tmp_path, "p1")

    soon = export_at(tmp_path, source, CLOCK, IN_FILES)["p1"]
    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]

    assert (soon.status, later.status) == (Status.ALREADY_EXPORTED, Status.UNCHANGED)
    row = row_of(tmp_path, "p1")
    assert row.done is not None
    assert (row.done.landed.rows, row.done.landed.data_files) == (12, 1)
    assert 0 < row.bytes < before
    assert row.bytes == Path(made.removeprefix("file://")).stat().st_size
    source.by_id["p1"] = parts_of("p1", 20, 30)
    replaced = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert replaced.status is Status.REPLACED
    assert rows_in_main(tmp_path) == 53
    assert left_behind(tmp_path) == []


def test_rows_that_are_twice_are_there_once(tmp_path: Path) -> None:
    source = in_files(tmp_path)
    every = [n for path in files_of(tmp_path, "p1") for n in numbers_in(path)]

    done = optimize(tmp_path, P1, deduplicates=True)

    assert (done.status, done.rows) == (Status.OPTIMIZED, len(every) - len(set(every)))
    (made,) = files_of(tmp_path, "p1")
    assert numbers_in(made) == sorted(set(every))
    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (later.status, "OPTIMIZE" in later.message) == (Status.UNCHANGED, True)
    source.by_id["p1"] = parts_of("p1", 20, 30)
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REFUSED
    forced = export_at(
        tmp_path, source, LATER, replace(IN_FILES, options=ExportOptions(force=True))
    )["p1"]
    assert forced.status in (Status.REPLACED, Status.COMMITTED)
    assert rows_in_main(tmp_path) == 53


def test_rows_of_two_sources_are_never_taken_for_one_anothers(tmp_path: Path) -> None:
    """Harm prevented: rows that go because a table that is none of theirs has the same ones."""
    in_files(tmp_path)
    add_foreign(tmp_path)
    foreign, before = ForeignPartitions(rest="p1"), numbers(tmp_path)

    with pytest.raises(RefusedError, match="has rows of 2 sources"):
        optimize(tmp_path, P1, deduplicates=True, rows=foreign)
    assert numbers(tmp_path) == before

    add_foreign(tmp_path)
    assert optimize(tmp_path, P1, rows=foreign).status is Status.OPTIMIZED
    assert len(on(tmp_path, MAIN_BRANCH)) == 3


def test_what_was_changed_stays_changed(tmp_path: Path) -> None:
    source = in_files(tmp_path)
    change(tmp_path, P1)
    after = numbers(tmp_path)

    assert optimize(tmp_path, P1).status is Status.OPTIMIZED

    assert numbers(tmp_path) == after
    later = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert later.status is Status.UNCHANGED
    assert numbers(tmp_path) == after


def test_what_was_taken_out_in_part_is_not_whole_again(tmp_path: Path) -> None:
    """Harm prevented: what lacks a part counts as exported, and its source is dropped."""
    source = in_files(tmp_path)
    run = running(tmp_path).run
    run(Drop(part_in(tmp_path, "p1")))
    add_foreign(tmp_path)
    rewrite(tmp_path)
    optimize(tmp_path, P1, rows=ForeignPartitions(rest="p1"))

    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.REFUSED


def test_detach_and_attach_keep_it(tmp_path: Path) -> None:
    source = in_files(tmp_path)
    before = numbers(tmp_path)
    optimize(tmp_path, P1)

    assert running(tmp_path).run(detach("p1")).status is Status.DETACHED
    assert running(tmp_path).run(attach("p1")).status is Status.ATTACHED

    assert numbers(tmp_path) == before
    assert export_at(tmp_path, source, LATER, IN_FILES)["p1"].status is Status.UNCHANGED


def test_detached_rows_do_not_come_back_alongside_merged_ones(tmp_path: Path) -> None:
    """Harm prevented: rows that are in a file that was merged, and once more in a detached one."""
    in_files(tmp_path)
    run = running(tmp_path).run
    run(Detach(part_in(tmp_path, "p1")))
    add_foreign(tmp_path)
    rewrite(tmp_path)
    optimize(tmp_path, P1, rows=ForeignPartitions(rest="p1"))
    before = numbers(tmp_path)

    with pytest.raises(RefusedError):
        running(tmp_path, rows=ForeignPartitions(rest="p1")).run(attach("p1"))

    assert numbers(tmp_path) == before


@pytest.mark.soak  # tests/faults/test_statement_crashes.py tries each statement so.
@pytest.mark.parametrize("deduplicates", [False, True], ids=["merges", "deduplicates"])
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.soak), pytest.param(True, id="after")],
)
def test_a_death_at_any_effect_and_the_same_statement_again(
    tmp_path: Path, *, after: bool, deduplicates: bool
) -> None:
    """Harm prevented: a file in addition to those that it is written from, or none of them."""
    source = in_files(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    optimize(tmp_path / "count", P1, deduplicates=deduplicates, effects=counting)
    wanted = numbers(tmp_path / "count")
    assert {Step.CLAIM, Step.WRITE_FILES, Step.SEND, Step.SETTLE} <= set(counting.steps)
    assert (Step.NOTE_WRITTEN in counting.steps) is not deduplicates
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        in_files(directory)
        before = numbers(directory)
        with pytest.raises(Dies):
            optimize(directory, P1, deduplicates=deduplicates, effects=DiesAt(number, after=after))
        assert numbers(directory) in (before, wanted), step
        status = export_at(directory, source, CLOCK, IN_FILES)["p1"].status
        assert status is Status.ALREADY_EXPORTED, step

        done = optimize(directory, P1, deduplicates=deduplicates).status

        assert done in (Status.OPTIMIZED, Status.UNCHANGED), step
        assert numbers(directory) == wanted, step
        assert len(files_of(directory, "p1")) == 1, step
        assert left_behind(directory) == [], step


@pytest.mark.parametrize("step", [Step.CLAIM, Step.WRITE_FILES, Step.STAGE, Step.SEND])
def test_rows_that_others_append_meanwhile_stay(tmp_path: Path, step: Step) -> None:
    in_files(tmp_path)
    foreign = ForeignPartitions(rest="p1")

    done = optimize(tmp_path, P1, rows=foreign, effects=AtStep(step, lambda: add_foreign(tmp_path)))

    assert done.status is Status.OPTIMIZED
    assert len(numbers(tmp_path)) == 19


def test_files_that_others_rewrite_meanwhile_are_not_there_twice(tmp_path: Path) -> None:
    in_files(tmp_path)
    foreign = ForeignPartitions(rest="p1")

    optimize(tmp_path, P1, rows=foreign, effects=AtStep(Step.SEND, lambda: rewrite(tmp_path)))

    assert len(numbers(tmp_path)) == 15


def test_files_with_deletes_are_refused(tmp_path: Path) -> None:
    """Harm prevented: deleted rows that come back."""
    in_files(tmp_path)
    table = pyiceberg(tmp_path)
    delete_first_row(table, next(iter(table.scan().plan_files())).file)

    with pytest.raises(UnsupportedError, match="rewrite_data_files"):
        optimize(tmp_path, EACH)

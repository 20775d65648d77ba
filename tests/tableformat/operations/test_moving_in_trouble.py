"""MOVE PARTITION … TO TABLE: in one of the tables or in both at any moment, in one at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tableformat.committer import Commit, LakeTableState, Sent, Staged
from tableformat.effects import Direct, Step
from tableformat.errors import RefusedError
from tableformat.export.give_up import kill
from tableformat.export.leases import Leases
from tableformat.export.outcome import Outcome, Status
from tableformat.ledger import State
from tableformat.names import LakeName
from tableformat.operations.move import Moving, give_up
from tableformat.operations.take_out import Leave
from tableformat.table_properties import MARK_PREFIX, statement_fingerprint
from tests.places.found import place_at
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt
from tests.support.lake import Meddling
from tests.support.lake_statements import (
    IN_FILES,
    LATER,
    ForeignPartitions,
    drop,
    export_at,
    running,
)
from tests.support.other_engines import rewrite
from tests.support.scenarios import (
    AtStep,
    Partitions,
    lake,
    parts_of,
    row_of,
    rows_in_main,
)
from tests.support.tiers import share_of
from tests.support.two_lake_tables import (
    OTHER,
    P1,
    killed_between,
    move,
    moving,
    other,
    prepared,
    rows_of_p1,
    to_other,
)

RENAMED = LakeName("lake", ("n",), "renamed")


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    return prepared(tmp_path)


@pytest.mark.parametrize("side", ["here", "there"])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_response_is_repaired(
    tmp_path: Path, source: Partitions, side: str, lost: int
) -> None:
    assert source.rows
    of = lake(tmp_path) if side == "here" else other(tmp_path)
    deaf = Meddling(of, lose=lambda n: n <= lost)

    done = move(tmp_path, here=deaf) if side == "here" else move(tmp_path, there=deaf)

    assert done.status is Status.MOVED
    assert rows_of_p1(tmp_path) == (0, 12)


@pytest.mark.enumeration
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.nightly), pytest.param(True, id="after")],
)
def test_a_death_at_any_effect_and_the_same_statement_again(tmp_path: Path, *, after: bool) -> None:
    """Harm prevented: rows that are in neither table, or in both for good."""
    prepared(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    move(tmp_path / "count", counting)
    assert counting.steps.count(Step.SEND) == 2
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        made = prepared(directory)
        with pytest.raises(Dies):
            move(directory, DiesAt(number, after=after))
        assert rows_of_p1(directory) in ((12, 0), (12, 12), (0, 12)), step

        done = move(directory).status

        assert done in (Status.MOVED, Status.EMPTY), step
        assert rows_of_p1(directory) == (0, 12), step
        outcome = export_at(directory, made, LATER, IN_FILES)["p1"]
        assert outcome.status is Status.REFUSED, step
        assert left_behind(directory) == [], step


@pytest.mark.soak  # tests/faults/test_statement_crashes.py tries each statement so.
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before"), pytest.param(True, id="after", marks=pytest.mark.nightly)],
)
def test_a_death_at_any_effect_and_nobody_passes_over_it(tmp_path: Path, *, after: bool) -> None:
    """Harm prevented: an export or DROP here, and an addition there that lands later."""
    prepared(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    move(tmp_path / "count", counting)
    refused = 0
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        made = prepared(directory)
        with pytest.raises(Dies):
            move(directory, DiesAt(number, after=after))
        made.by_id["p1"] = parts_of("p1", 20)

        outcome = export_at(directory, made, LATER, IN_FILES)["p1"]

        if "was begun and is not finished" in outcome.message:
            refused += 1
            with pytest.raises(RefusedError, match="is not finished"):
                running(directory).run(drop("p1"))
            with pytest.raises(RefusedError, match="is not finished"):
                kill(
                    moving(directory).here.ports.commit,
                    row_of(directory, "p1").key.hash,
                    state=State.KILLED,
                )
        here, there = rows_of_p1(directory)
        assert (here, there) in ((12, 0), (12, 12), (20, 0), (0, 12)), step
        move(directory)
        assert rows_of_p1(directory) in ((0, 12), (0, 20)), step
        assert left_behind(directory) == [], step
    assert refused


def visited(directory: Path, step: Step, nth: int, visit: Callable[[], object]) -> Outcome:
    return move(directory, AtStep(step, visit, nth=nth))


STEPS = [
    (Step.CLAIM, 1), (Step.CLAIM, 2), (Step.WRITE_FILES, 1), (Step.STAGE, 1), (Step.SEND, 1),
    (Step.SETTLE, 1), (Step.STAGE, 2), (Step.SEND, 2), (Step.STAGE, 3), (Step.SETTLE, 2),
]  # fmt: skip


@pytest.mark.parametrize(("step", "nth"), STEPS)
def test_an_export_here_at_once_has_one_order_with_it(
    tmp_path: Path, source: Partitions, step: Step, nth: int
) -> None:
    """Harm prevented: newer rows are taken away, or the older ones are there in addition."""
    source.by_id["p1"] = parts_of("p1", 20)

    def visit() -> None:
        export_at(tmp_path, source, LATER, IN_FILES)

    done = visited(tmp_path, step, nth, visit).status

    assert (done, rows_of_p1(tmp_path)) in (
        (Status.MOVED, (0, 12)),
        (Status.MOVED, (0, 20)),
        (Status.IN_PROGRESS, (20, 0)),
        # The export has settled what was there already.
        (Status.IN_PROGRESS, (0, 12)),
    )
    move(tmp_path)
    assert rows_of_p1(tmp_path) in ((0, 12), (0, 20))
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(("step", "nth"), STEPS)
def test_an_export_there_at_once_has_one_order_with_it(
    tmp_path: Path, source: Partitions, step: Step, nth: int
) -> None:
    """Harm prevented: the rows are there twice, or in no table."""
    source.by_id["p1"] = parts_of("p1", 20)

    def visit() -> None:
        to_other(tmp_path, source)

    done = None
    with contextlib.suppress(RefusedError):
        done = visited(tmp_path, step, nth, visit).status

    here, there = rows_of_p1(tmp_path)
    assert there in (12, 20)
    assert here == (0 if done is Status.MOVED else 12)
    assert row_of(tmp_path, "p1").move is None or done is Status.IN_PROGRESS


@pytest.mark.parametrize(("step", "nth"), STEPS)
def test_a_second_move_at_once_changes_nothing(
    tmp_path: Path, source: Partitions, step: Step, nth: int
) -> None:
    assert source.rows

    def visit() -> None:
        move(tmp_path)

    done = visited(tmp_path, step, nth, visit).status

    assert done in (Status.MOVED, Status.IN_PROGRESS, Status.EMPTY)
    move(tmp_path)
    assert rows_of_p1(tmp_path) == (0, 12)
    assert left_behind(tmp_path) == []


def test_what_others_changed_here_since_stays_and_both_are_named(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows that were added or changed here after the copy are lost."""
    assert source.rows
    killed_between(tmp_path)
    rewrite(tmp_path, lambda _: True)
    foreign = ForeignPartitions(rest="p1")
    before = rows_in_main(tmp_path)

    outcome = move(tmp_path, rows=foreign)

    assert outcome.status is Status.REFUSED
    assert f"it was added to {OTHER}" in outcome.message
    assert "another process changed the partition" in outcome.message
    assert rows_in_main(tmp_path) == before
    assert row_of(tmp_path, "p1").move is None
    with pytest.raises(RefusedError, match="could be there twice"):
        move(tmp_path, rows=foreign)
    assert running(tmp_path, rows=foreign).run(drop("p1")).status is Status.DROPPED


def test_what_main_there_lost_since_stays_here(tmp_path: Path, source: Partitions) -> None:
    """Harm prevented: rows that are in neither table."""
    assert source.rows
    before = other(tmp_path).load().main
    assert before is not None
    killed_between(tmp_path)
    table = place_at(tmp_path).lake().catalog.load_table("n.other")
    table.manage_snapshots().rollback_to_snapshot(before).commit()

    outcome = move(tmp_path)

    assert (outcome.status, "was moved away" in outcome.message) == (Status.REFUSED, True)
    assert rows_of_p1(tmp_path) == (12, 0)
    assert move(tmp_path).status is Status.MOVED
    assert rows_of_p1(tmp_path) == (0, 12)


class Late(Meddling):
    """A table whose first request is under way when its process ends, and is applied later."""

    def send(
        self, state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
    ) -> Sent:
        self.arrive = partial(super().send, state, staged, commit, remove_marks)
        raise Dies


def test_a_late_request_that_arrives_during_the_give_up_is_reported(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: "it stays here" is reported for rows that have left."""
    before = other(tmp_path).load().main
    assert before is not None
    late = Late(lake(tmp_path))
    with pytest.raises(Dies):
        move(tmp_path, here=late)
    assert rows_of_p1(tmp_path) == (12, 12)
    table = place_at(tmp_path).lake().catalog.load_table("n.other")
    table.manage_snapshots().rollback_to_snapshot(before).commit()

    outcome = move(tmp_path, AtStep(Step.SEND, late.arrive))

    assert outcome.status is Status.FAILED
    assert (
        f"an earlier request removed it here in snapshot {outcome.snapshot_id}" in outcome.message
    )
    assert rows_of_p1(tmp_path)[0] == 0
    exported = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert (exported.status, f"TO TABLE {OTHER}" in exported.message) == (Status.REFUSED, True)


def test_a_commit_of_another_abandoned_run_is_never_passed_over(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: a MOVE that is forgotten, and rows that stay in both for good."""
    killed_between(tmp_path)
    row = row_of(tmp_path, "p1")
    epoch, main = row.done_epoch + 1, lake(tmp_path).load().main
    assert epoch < row.claim.epoch
    fetched = f"{epoch}:77:{statement_fingerprint('77')}:{main}"
    table = place_at(tmp_path).lake().catalog.load_table("n.t")
    with table.transaction() as change:
        change.set_properties({f"{MARK_PREFIX}{row.key.hash}": fetched})

    outcome = export_at(tmp_path, source, LATER, IN_FILES)["p1"]

    assert (outcome.status, "is not finished" in outcome.message) == (Status.REFUSED, True)
    with pytest.raises(RefusedError, match="is not finished"):
        running(tmp_path).run(drop("p1"))
    assert move(tmp_path).status is Status.MOVED
    assert rows_of_p1(tmp_path) == (0, 12)


def test_what_was_dropped_there_since_does_not_come_back(
    tmp_path: Path, source: Partitions
) -> None:
    """MOVE, then DROP there: the partition is in no table, as was reported."""
    assert source.rows
    killed_between(tmp_path)
    table = other(tmp_path)
    assert running(tmp_path, table=table, name=OTHER).run(drop("p1")).status is Status.DROPPED

    assert move(tmp_path).status is Status.MOVED

    assert rows_of_p1(tmp_path) == (0, 0)


def test_a_third_table_is_refused_until_the_first_move_has_ended(
    tmp_path: Path, source: Partitions
) -> None:
    assert source.rows
    killed_between(tmp_path)
    table = place_at(tmp_path).lake().catalog.load_table("n.other")
    place_at(tmp_path).lake().catalog.create_table("n.third", table.schema())
    name = LakeName("lake", ("n",), "third")
    third = moving(tmp_path, there=place_at(tmp_path).lake().table(name))
    third = replace(third, there=replace(third.there, name=name))

    with pytest.raises(RefusedError, match=r"TO TABLE lake\.n\.other was begun"):
        third.run(P1)


def test_a_move_whose_table_is_gone_is_given_up_and_the_rows_stay(
    tmp_path: Path, source: Partitions
) -> None:
    killed_between(tmp_path)
    here = moving(tmp_path).here
    ledger, owner = here.ports.commit.ledger, here.ports.owner
    with Leases(ledger, owner, effects=Direct(), is_alive=here.ports.is_alive) as leases:
        give_up(here, leases, Leave(P1, OTHER), "lake.n.other is gone", lambda _: None)

    assert rows_of_p1(tmp_path)[0] == 12
    assert row_of(tmp_path, "p1").move is None
    outcome = export_at(tmp_path, source, LATER, IN_FILES)["p1"]
    assert outcome.status is Status.UNCHANGED


def renamed(directory: Path, *, has_successor: bool = False) -> Moving:
    """Rename the other table; return what moves to it by its new name."""
    catalog = place_at(directory).lake().catalog
    catalog.rename_table("n.other", "n.renamed")
    table = place_at(directory).lake().table(RENAMED)
    assert table is not None
    found = moving(directory, there=table)
    if has_successor:
        catalog.create_table("n.other", table.loaded.schema())
    return replace(found, there=replace(found.there, name=RENAMED))


def test_a_move_is_finished_by_the_new_name_of_its_table(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows that stay in both tables, because no statement ends their MOVE."""
    assert source.rows
    killed_between(tmp_path)
    at_new_name = renamed(tmp_path)

    assert at_new_name.run(P1).status is Status.MOVED

    row = row_of(tmp_path, "p1")
    assert (row.move, row.landed[-1].moved_to) == (None, str(RENAMED))
    assert rows_in_main(tmp_path) == 3


@pytest.mark.parametrize("has_landed", [True, False], ids=["landed", "not landed"])
def test_by_the_old_name_a_move_is_not_given_up(
    tmp_path: Path, source: Partitions, *, has_landed: bool
) -> None:
    """Harm prevented: rows that stay in both tables, and nobody is told which ones."""
    assert source.rows
    if has_landed:
        killed_between(tmp_path)
    else:
        with pytest.raises(Dies):
            move(tmp_path, AtStep(Step.SEND, _die))
    renamed(tmp_path)
    here = moving(tmp_path, there=place_at(tmp_path).lake().table(RENAMED)).here
    ledger, owner = here.ports.commit.ledger, here.ports.owner

    with (
        Leases(ledger, owner, effects=Direct(), is_alive=here.ports.is_alive) as leases,
        pytest.raises(RefusedError, match=r"is lake\.n\.renamed now\. Run MOVE"),
    ):
        give_up(here, leases, Leave(P1, OTHER), "gone", place_at(tmp_path).lake().name_of)

    assert row_of(tmp_path, "p1").move is not None


def test_another_table_of_the_old_name_does_not_end_a_move(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: rows that stay in both tables: the other table has lost no such rows."""
    assert source.rows
    killed_between(tmp_path)
    at_new_name = renamed(tmp_path, has_successor=True)

    with pytest.raises(RefusedError, match=r"is lake\.n\.renamed now\. Run MOVE"):
        move(tmp_path)

    assert row_of(tmp_path, "p1").move is not None
    assert at_new_name.run(P1).status is Status.MOVED


def _die() -> None:
    raise Dies

"""DETACH, ATTACH, DROP DETACHED where processes die, responses are lost and others come between."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import cast

import pytest

from catalog.iceberg.table import IcebergTable
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH, Sent
from tableformat.effects import Step
from tableformat.export.outcome import Status
from tableformat.ledger import State
from tableformat.operations.attach import Attach
from tableformat.operations.statement import AllPartitions
from tableformat.operations.take_out import Detach, Drop
from tests.support.cleaning_up import left_behind
from tests.support.dying import Dies, DiesAt
from tests.support.lake import Meddling
from tests.support.lake_statements import (
    IN_FILES,
    attach,
    detach,
    drop,
    drop_detached,
    export_at,
    in_files,
    on,
    part_in,
    partition,
    running,
    whereabouts,
)
from tests.support.scenarios import (
    AtStep,
    Partitions,
    lake,
    row_of,
    rows_in_main,
    run,
    state,
)
from tests.support.tiers import share_of


@pytest.fixture
def source(tmp_path: Path) -> Partitions:
    """Return a table whose two partitions are in the lake, the first in two files."""
    return in_files(tmp_path)


@pytest.mark.parametrize("which", ["detach", "attach"])
def test_a_lost_response_is_repaired(tmp_path: Path, source: Partitions, which: str) -> None:
    statement: Attach | Detach = attach("p1") if which == "attach" else detach("p1")
    if which == "attach":
        running(tmp_path).run(detach("p1"))
    deaf = cast("IcebergTable", Meddling(lake(tmp_path), lose=lambda n: n == 1))

    done = running(tmp_path, table=deaf).run(statement)

    assert source.rows
    assert done.status is statement.did
    main, detached = whereabouts(tmp_path)
    assert (main + detached).total() == 3
    assert max((main + detached).values()) == 1


@pytest.mark.enumeration
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, id="before", marks=pytest.mark.soak), pytest.param(True, id="after")],
)
@pytest.mark.parametrize("which", ["detach", "attach"])
def test_a_death_at_any_effect_and_the_same_statement_again(
    tmp_path: Path, which: str, *, after: bool
) -> None:
    """Harm prevented: rows in neither place, or in both."""
    statement: Attach | Detach = attach("p1") if which == "attach" else detach("p1")

    def prepared(directory: Path) -> Partitions:
        source = Partitions()
        run(directory, source, request=IN_FILES)
        if which == "attach":
            running(directory).run(detach("p1"))
        return source

    prepared(tmp_path / "count")
    counting = DiesAt(10_000, after=False)
    running(tmp_path / "count", effects=counting).run(statement)
    assert {Step.CLAIM, Step.STAGE, Step.SEND, Step.SETTLE} <= set(counting.steps)
    for number, step in share_of(enumerate(counting.steps)):
        directory = tmp_path / str(number)
        source = prepared(directory)
        with pytest.raises(Dies):
            running(directory, effects=DiesAt(number, after=after)).run(statement)
        main, detached = whereabouts(directory)
        assert (main + detached).total() == 3, step
        assert detached.total() in (0, 2), step

        done = running(directory).run(statement)

        assert done.status in (statement.did, Status.EMPTY), step
        main, detached = whereabouts(directory)
        assert max((main + detached).values()) == 1, step
        assert detached.total() == (2 if which == "detach" else 0), step
        then = export_at(directory, source, itertools.count(90_000_000), IN_FILES)
        kept = Status.COMMITTED if which == "detach" else Status.UNCHANGED
        assert then["p1"].status is kept, step
        assert rows_in_main(directory) == 15, step
        assert left_behind(directory) == [], step


@pytest.mark.parametrize("step", [Step.CLAIM, Step.STAGE, Step.SEND])
@pytest.mark.parametrize("other", [detach("p1"), drop("p1"), detach("p2")], ids=str)
def test_two_statements_at_once_have_one_order(
    tmp_path: Path, source: Partitions, step: Step, other: Drop
) -> None:
    before = on(tmp_path, MAIN_BRANCH)

    def visit() -> None:
        running(tmp_path).run(other)

    done = running(tmp_path, effects=AtStep(step, visit)).run(detach("p1"))

    main, detached = whereabouts(tmp_path)
    assert max((main + detached).values()) == 1
    assert done.status in (Status.DETACHED, Status.EMPTY, Status.IN_PROGRESS)
    if isinstance(other, Drop):
        assert main + detached in (before, main)
    else:
        assert main + detached == before
    assert source.rows


def test_what_another_run_has_done_before_the_lease_is_not_claimed_again(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: a partition that is done with is listed as interrupted for ever."""

    def visit() -> None:
        running(tmp_path).run(detach("p1"))

    done = running(tmp_path, effects=AtStep(Step.TAKE_LEASE, visit)).run(detach("p1"))

    assert source.rows
    row = row_of(tmp_path, "p1")
    assert (done.status, row.state, len(row.landed)) == (Status.EMPTY, State.COMPLETED, 2)


def test_what_is_dropped_from_the_branch_is_gone_for_good(
    tmp_path: Path, source: Partitions
) -> None:
    running(tmp_path).run(Detach(AllPartitions()))
    main = state(tmp_path).main

    done = drop_detached(tmp_path, partition("p1"))

    assert (done.status, done.rows, done.data_files) == (Status.DROPPED, 12, 2)
    assert state(tmp_path).main == main
    assert on(tmp_path, DETACHED_BRANCH).total() == 1
    assert drop_detached(tmp_path, partition("p1")).status is Status.EMPTY
    assert running(tmp_path).run(attach("p1")).status is Status.EMPTY
    running(tmp_path).run(Attach(AllPartitions()))
    assert rows_in_main(tmp_path) == source.rows["p2"]
    assert left_behind(tmp_path) == []


def test_a_lost_response_drops_nothing_that_is_detached_meanwhile(
    tmp_path: Path, source: Partitions
) -> None:
    """Harm prevented: a retry drops what the user has detached since."""
    part = part_in(tmp_path, "p1")
    running(tmp_path).run(Detach(part))
    deaf = Meddling(lake(tmp_path), lose=lambda n: n == 1)

    def detach_the_rest() -> None:
        running(tmp_path).run(detach("p1"))

    effects = AtStep(Step.SEND, detach_the_rest, after=True)
    done = drop_detached(tmp_path, partition("p1"), effects=effects, table=deaf)

    assert source.rows
    assert (done.status, done.data_files) == (Status.DROPPED, 1)
    assert on(tmp_path, DETACHED_BRANCH).total() == 1


class Silent(Meddling):
    """A table whose catalog never responds, and does nothing."""

    def send(self, *_: object) -> Sent:
        return Sent(applied=False, error="nobody there")


def test_without_a_response_the_outcome_is_unknown(tmp_path: Path, source: Partitions) -> None:
    running(tmp_path).run(detach("p1"))

    done = drop_detached(tmp_path, partition("p1"), table=Silent(lake(tmp_path)))

    assert source.rows
    assert (done.status, done.message) == (
        Status.UNKNOWN,
        "it may have landed: nobody there. Run it again",
    )
    assert on(tmp_path, DETACHED_BRANCH).total() == 2

"""`--check-rows` and what may happen while rows are compared: no outcome that main contradicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tableformat.effects import Step
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.ledger import State
from tests.enumeration.oracle import check_values, look
from tests.enumeration.scenarios import World
from tests.enumeration.values import ValuedParts, in_one, rewritten, valued
from tests.support.dying import Dies, KilledAt
from tests.support.scenarios import ALL, AtStep

COMPARED = replace(ALL, options=ExportOptions(check_rows=True))
FORCED = replace(ALL, options=ExportOptions(force=True))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world with an exported partition, whose rows a mutation has written again."""
    made = World(tmp_path, ValuedParts(by_id={"p1": valued("p1", 7, 5)}))
    made.run(ALL)
    made.source.by_id["p1"] = rewritten(made.source.by_id["p1"])
    return made


def exported_by_others(world: World, request: ExportRequest) -> Callable[[], None]:
    """Return what another run does that takes this one for a dead one: it exports more rows."""

    def act() -> None:
        world.source.by_id["p1"] = valued("p1", 7, 5, 3)
        (other,) = world.run(request).outcomes
        assert other.status is Status.REPLACED

    return act


@pytest.mark.parametrize("step", [Step.VERIFY, Step.SETTLE])
def test_a_run_that_lost_its_claim_while_it_compared_reports_nothing_of_main(
    world: World, step: Step
) -> None:
    """Harm prevented: "already exported, 12 rows" while main holds 15 other ones."""
    effects = AtStep(step, exported_by_others(world, FORCED))

    (outcome,) = world.run(COMPARED, effects=effects).outcomes

    assert outcome.status is Status.IN_PROGRESS
    assert "another run" in outcome.message
    check_values(world, look(world))


@pytest.mark.parametrize("other_rows", [False, True])
def test_what_has_the_name_of_a_merge_is_compared(tmp_path: Path, *, other_rows: bool) -> None:
    """Harm prevented: a partition that was loaded again after a restart is "merged".

    A table without replicas that was emptied numbers its blocks from the start again.
    """
    world = World(tmp_path, ValuedParts(by_id={"p1": valued("p1", 7, 5)}))
    world.run(ALL)
    world.source.by_id["p1"] = in_one(world.source.by_id["p1"], other_rows=other_rows)

    (outcome,) = world.run(COMPARED).outcomes

    is_same = "its parts changed, its rows are the same" in outcome.message
    assert is_same is not other_rows
    assert (outcome.status is Status.REFUSED) is other_rows
    if other_rows:
        assert world.run(FORCED).outcomes[0].status is Status.REPLACED
    check_values(world, look(world))


def test_the_same_rows_after_a_dead_replacement_are_noted_once(world: World) -> None:
    """Harm prevented: what a dead run claimed lands later, or its frozen parts stay for ever."""
    same = world.source.by_id["p1"]
    world.source.by_id["p1"] = valued("p1", 7, 5, 3)
    with pytest.raises(Dies):
        world.run(FORCED, effects=KilledAt(Step.WRITE_FILES))
    world.source.by_id["p1"] = same
    before = look(world)
    assert before.of("p1").state is State.RUNNING

    first = world.run(COMPARED).outcomes
    again = world.run(COMPARED).outcomes

    assert [o.status for o in (*first, *again)] == [Status.ALREADY_EXPORTED] * 2
    now = look(world)
    assert now.state.main == before.state.main
    assert world.source.left == {}
    check_values(world, now)

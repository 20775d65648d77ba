"""A fault meets any effect of an export; the same command again makes it right.

`tests/enumeration` has the scenarios, the faults and what must be true in the end. `make test-all`
tries each fault at every effect, `make test` an eighth of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableformat.effects import Step
from tableformat.export.outcome import Status
from tests.enumeration.cases import Cases
from tests.enumeration.faults import DEATHS, FAILURES, PAUSES, Fault, seams, struck
from tests.enumeration.oracle import IN_MAIN, look, unknown_files
from tests.enumeration.scenarios import SCENARIOS, Prepared, Scenario, World
from tests.repository.source_files import ROOT
from tests.support.dying import Dies
from tests.support.scenarios import AtStep, parts_of
from tests.support.tiers import share_of

FIRST, *_ = SCENARIOS
NEVER_WITHOUT_A_FAULT = {
    Step.NOTE_LANDED: "test_operator_actions.py",
    Step.NOTE_ERROR: "test_ledger_trouble.py",
    Step.GIVE_UP: "test_give_up.py",
    Step.NOTE_REWRITTEN: "test_rewritten_files.py",
}
"""Steps that no scenario has, and the tests that have them."""
SENDS_NOTHING = ("the same rows within the TTL",)
"""Scenarios that send no request whose response could be lost."""


@pytest.fixture(scope="module", params=range(len(SCENARIOS)), ids=[s.name for s in SCENARIOS])
def turn(request: pytest.FixtureRequest) -> int:
    """Return the number of a scenario."""
    return int(request.param)


@pytest.fixture(scope="module")
def cases(turn: int) -> Iterator[Cases]:
    """Return the cases of the scenario."""
    with Cases(SCENARIOS[turn]) as made:
        yield made


@pytest.mark.enumeration
@pytest.mark.parametrize("fault", Fault, ids=[f.name.lower() for f in Fault])
def test_a_fault_and_the_same_command_again_is_exactly_once(cases: Cases, fault: Fault) -> None:
    """Harm prevented: rows lost or twice, files written twice, a false outcome, something left."""
    cases.check(fault, tuple(share_of(seams(cases.steps, fault))))


def test_every_fault_can_meet_every_effect_of_a_scenario(cases: Cases, turn: int) -> None:
    """Harm prevented: a scenario that has become empty proves nothing."""
    all_of_them = set(range(len(cases.steps)))
    assert all(set(seams(cases.steps, f)) == all_of_them for f in (*DEATHS, *FAILURES, *PAUSES))
    without = [fault for fault in Fault if not seams(cases.steps, fault)]
    assert without == ([Fault.LOST_RESPONSE] if SCENARIOS[turn].name in SENDS_NOTHING else [])


def steps_of(scenario: Scenario) -> list[Step]:
    with Cases(scenario) as cases:
        return cases.steps


def test_every_step_that_an_export_can_take_is_in_a_scenario() -> None:
    """Harm prevented: a new effect that nobody has tried to crash at."""
    found = {step for scenario in SCENARIOS for step in steps_of(scenario)}

    assert set(Step) - found == set(NEVER_WITHOUT_A_FAULT)
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(NEVER_WITHOUT_A_FAULT.values()) <= tests


def die(world: World, number: int, *, after: bool) -> None:
    """Run the command, which dies at an effect if it gets so far."""
    fault = Fault.DIES_AFTER if after else Fault.DIES_BEFORE
    try:
        world.run(FIRST.request, effects=struck(world.effects, number, fault, lambda: None))
    except Dies:
        return


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return the world of a first export."""
    return Prepared(FIRST, tmp_path_factory.mktemp("first"))


def test_what_a_run_writes_that_was_taken_for_dead_can_be_cleaned_up(first: Prepared) -> None:
    """Harm prevented: files for ever, because the row has forgotten the export they are of."""
    world = first.world()

    world.run(FIRST.request, effects=AtStep(Step.WRITE_FILES, lambda: world.run(FIRST.request)))

    assert unknown_files(world, look(world)) == []


@settings(max_examples=10, deadline=None)
@given(deaths=st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=2, max_size=4))
def test_several_crashes_in_a_row_are_exactly_once(
    first: Prepared, deaths: list[tuple[int, bool]]
) -> None:
    """Harm prevented: the recovery from one crash is itself not safe to crash in."""
    world = first.world()
    for number, after in deaths:
        die(world, number, after=after)

    ran = world.run(FIRST.request)

    assert {o.status for o in ran.outcomes} <= {*IN_MAIN}
    seen = look(world)
    assert seen.figures == {"p1": (12, 2)}
    assert len(seen.of("p1").landed) == 1
    assert set(world.written.values()) == {1}, "a finished file was written again"


@pytest.mark.enumeration
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_and_other_content_afterwards_never_mixes_the_two(
    first: Prepared, *, after: bool
) -> None:
    """Harm prevented: old and new rows of one partition side by side, or a false outcome."""
    with Cases(FIRST) as cases:
        numbers = range(len(cases.steps))
    for number in share_of(numbers):
        world = first.world()
        die(world, number, after=after)
        world.source.by_id["p1"] = parts_of("p1", 7, 5, 3)

        (outcome,) = world.run(FIRST.request).outcomes

        rows, _ = look(world).figures["p1"]
        outcome_and_rows = (outcome.status, rows)
        assert outcome_and_rows in [
            (Status.COMMITTED, 15),
            (Status.COMMITTED, 12),
            (Status.REFUSED, 12),
        ], number
        if outcome_and_rows == (Status.COMMITTED, 12):
            assert "from the snapshot of an interrupted run, with 12 rows" in outcome.message
            assert "the source has 15 now" in outcome.message

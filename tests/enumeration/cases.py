"""Runs the cases: a scenario, a fault, a seam; then the same command again, at most twice."""

from __future__ import annotations

from typing import Final

from tableformat.errors import DestinationError
from tableformat.export.outcome import Outcome, Status
from tests.enumeration.faults import Fault, Recorder, struck
from tests.enumeration.oracle import (
    IN_MAIN,
    Seen,
    check_cleaned_up,
    check_end,
    check_outcomes,
    check_values,
    check_whole,
    explained,
    look,
)
from tests.enumeration.prepared_cases import PreparedCases
from tests.enumeration.scenarios import Ran, Scenario, World
from tests.support.dying import Dies

__all__ = ["Cases"]

_HONEST: Final = (*IN_MAIN, Status.IN_PROGRESS)
_MOST_RUNS: Final = 2


class Cases(PreparedCases[Scenario]):
    """The cases of one scenario of exports."""

    def _record(self) -> None:
        scenario = self.scenario
        world = self._prepared.world()
        recorder = Recorder(world.effects, world.outside)
        self._at_first = _look(world)
        ran = world.run(scenario.request, effects=recorder)
        assert ran.error is None, ran.error
        assert {o.status for o in ran.outcomes} <= {*IN_MAIN}, ran.outcomes
        ordered = sorted(ran.outcomes, key=lambda o: o.partition_id)
        assert scenario.did in ((), tuple(o.status for o in ordered)), ordered
        self.steps = recorder.steps
        self.undisturbed = look(world)
        check_values(world, self.undisturbed)
        check_outcomes(ran.outcomes, self._at_first, self.undisturbed)

    def _check(self, fault: Fault, number: int) -> None:
        world = self._prepared.world()
        others: list[Outcome] = []

        def other() -> None:
            before = _look(world)
            ran = world.run(self.scenario.request, others_live=fault.others_live)
            assert {o.status for o in ran.outcomes} <= {*_HONEST}, ran
            check_outcomes(ran.outcomes, before, look(world))
            others.extend(ran.outcomes)

        effects = struck(world.effects, number, fault, other)
        try:
            ran = world.run(self.scenario.request, effects=effects)
        except Dies:
            ran = Ran((), None)
        assert effects.step is self.steps[number], "it was not the effect that was recorded"
        now = _look(world)
        if now is not None:
            check_outcomes(ran.outcomes, self._at_first, now)
            check_whole(now, self._at_first, self.undisturbed)
        snapshots = len(now.state.snapshots) if now is not None else 0
        end, later = self._run_again(world, now)
        allowed = explained(
            fault, self.scenario, len(self.undisturbed.state.snapshots), snapshots, later
        )
        check_end(world, end, self.undisturbed, fault, self.scenario, snapshots=allowed)
        if world.source.left:
            # Of a dead run whose row was moved on only after this run had swept.
            world.run(self.scenario.request)
            assert world.source.left == {}, "a source snapshot is left"
        check_cleaned_up(world)

    def _run_again(self, world: World, before: Seen | None) -> tuple[Seen, int]:
        """Run the command until it has nothing more to do; return the end, and how often."""
        for times in range(1, _MOST_RUNS + 1):
            ran = world.run(self.scenario.request)
            now = look(world)
            check_outcomes(ran.outcomes, before, now)
            if ran.error is None and {o.status for o in ran.outcomes} <= {*IN_MAIN}:
                return now, times
            before = now
        message = f"Run again {_MOST_RUNS} times, and it is not done: {ran}"
        raise AssertionError(message)


def _look(world: World) -> Seen | None:
    """Look at a world that may have no lake table yet."""
    try:
        return look(world)
    except (AssertionError, DestinationError):
        return None

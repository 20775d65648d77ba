"""Runs the cases: a scenario, a fault, a seam; then the same command again, at most twice."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tableformat.effects import Step
from tableformat.errors import DestinationError
from tableformat.export.outcome import Outcome, Status
from tests.dying import Dies
from tests.enumeration.faults import Fault, Recorder, struck
from tests.enumeration.oracle import (
    IN_MAIN,
    Seen,
    check_answers,
    check_cleaned_up,
    check_end,
    explained,
    look,
)
from tests.enumeration.scenarios import Prepared, Ran, Scenario, World

__all__ = ["Cases", "Settled", "check_each", "here"]

Settled = Callable[[Path], AbstractContextManager[object]]
"""Says in a directory where its world is, for the time of a context."""
_HONEST: Final = (*IN_MAIN, Status.IN_PROGRESS)
_MOST_RUNS: Final = 2


def here(_directory: Path) -> AbstractContextManager[object]:
    """Let the world be in the directory itself."""
    return contextlib.nullcontext()


class Cases(AbstractContextManager["Cases"]):
    """The cases of one scenario; `steps` are the effects of a run without a fault."""

    def __init__(self, scenario: Scenario, settled: Settled = here) -> None:
        """Prepare the world and record the run without a fault.

        Args:
            scenario: what is tried.
            settled: where.
        """
        self.scenario = scenario
        with contextlib.ExitStack() as stack:
            made = Path(stack.enter_context(tempfile.TemporaryDirectory()), "world")
            made.mkdir()
            stack.enter_context(settled(made))
            self._record(Prepared(scenario, made))
            self._until_the_end = stack.pop_all()

    def _record(self, prepared: Prepared) -> None:
        self._prepared, scenario = prepared, self.scenario
        world = self._prepared.world()
        recorder = Recorder(world.effects, world.outside)
        self._at_first = _look(world)
        ran = world.run(scenario.request, effects=recorder)
        assert ran.error is None
        assert {o.status for o in ran.outcomes} <= {*IN_MAIN}, ran.outcomes
        self.steps = recorder.steps
        self.undisturbed = look(world)
        check_answers(ran.outcomes, self._at_first, self.undisturbed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the world, and those who died in it."""
        self._prepared.world()
        self._until_the_end.close()

    def check(self, fault: Fault, numbers: Iterable[int]) -> None:
        """Let a fault meet each of some effects, each in a world of its own.

        Raises:
            ExceptionGroup: the end of some was wrong; each says which.
        """
        check_each(self.scenario.name, self.steps, fault, numbers, self._check)

    def _check(self, fault: Fault, number: int) -> None:
        world = self._prepared.world()
        others: list[Outcome] = []

        def other() -> None:
            before = _look(world)
            ran = world.run(self.scenario.request, others_live=fault.others_live)
            assert {o.status for o in ran.outcomes} <= {*_HONEST}, ran
            check_answers(ran.outcomes, before, look(world))
            others.extend(ran.outcomes)

        effects = struck(world.effects, number, fault, other)
        try:
            ran = world.run(self.scenario.request, effects=effects)
        except Dies:
            ran = Ran((), None)
        assert effects.step is self.steps[number], "it was not the effect that was recorded"
        now = _look(world)
        if now is not None:
            check_answers(ran.outcomes, self._at_first, now)
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
            check_answers(ran.outcomes, before, now)
            if ran.error is None and {o.status for o in ran.outcomes} <= {*IN_MAIN}:
                return now, times
            before = now
        message = f"Run again {_MOST_RUNS} times, and it is not done: {ran}"
        raise AssertionError(message)


def check_each(
    name: str,
    steps: list[Step],
    fault: Fault,
    numbers: Iterable[int],
    check: Callable[[Fault, int], None],
) -> None:
    """Let a fault meet each of some effects.

    Args:
        name: of the scenario.
        steps: its effects.
        fault: what happens to them.
        numbers: of the effects.
        check: lets it happen to one, in a world of its own.

    Raises:
        ExceptionGroup: the end of some was wrong; each says which.
    """
    wrong: list[Exception] = []
    for number in numbers:
        try:
            check(fault, number)
        except Exception as error:  # noqa: BLE001  all of them are told, at the end
            error.add_note(f"{name}: effect {number}, {steps[number]}: {fault.value}")
            wrong.append(error)
    if wrong:
        message = f"{name}: {fault.value}"
        raise ExceptionGroup(message, wrong)


def _look(world: World) -> Seen | None:
    """Look at a world that may have no lake table yet."""
    try:
        return look(world)
    except (AssertionError, DestinationError):
        return None

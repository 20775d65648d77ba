"""What all cases share: a prepared world, the effects of a run in it, and a fault at each."""

from __future__ import annotations

import contextlib
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from tableformat.effects import Step
from tests.enumeration.faults import Fault
from tests.enumeration.scenarios import InWorld, Prepared

__all__ = ["PreparedCases", "Settled", "here"]

S = TypeVar("S", bound=InWorld)
Settled = Callable[[Path], AbstractContextManager[object]]
"""Says in a directory where its world is, for the time of a context."""


def here(_directory: Path) -> AbstractContextManager[object]:
    """Let the world be in the directory itself."""
    return contextlib.nullcontext()


class PreparedCases(AbstractContextManager["PreparedCases[S]"], Generic[S]):
    """The cases of one scenario; `steps` are the effects of a run without a fault."""

    steps: list[Step]

    def __init__(self, scenario: S, settled: Settled = here) -> None:
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
            self._prepared = Prepared(scenario, made)
            self._record()
            self._until_the_end = stack.pop_all()

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
        wrong: list[Exception] = []
        for number in numbers:
            try:
                self._check(fault, number)
            except Exception as error:  # noqa: BLE001  all of them are reported, at the end
                step = self.steps[number]
                error.add_note(f"{self.scenario.name}: effect {number}, {step}: {fault.value}")
                wrong.append(error)
        if wrong:
            message = f"{self.scenario.name}: {fault.value}"
            raise ExceptionGroup(message, wrong)

    @abstractmethod
    def _record(self) -> None:
        """Run it without a fault, and keep the effects and how it ends."""

    @abstractmethod
    def _check(self, fault: Fault, number: int) -> None:
        """Let a fault meet one effect in a world of its own, and check all that follows."""

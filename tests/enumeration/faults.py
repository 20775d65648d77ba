"""What may happen at a seam: the effects that make it happen, and the seams at which it can."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeVar

from tableformat.committer import Sent
from tableformat.effects import Effects, Step
from tableformat.errors import DestinationError, LedgerError, SourceError, TableFormatError
from tests.support.dying import Dies

__all__ = [
    "DEATHS",
    "FAILURES",
    "PAUSES",
    "RESPONDED",
    "Fault",
    "Recorder",
    "Struck",
    "failure",
    "seams",
    "struck",
]  # fmt: skip

T = TypeVar("T")


class Fault(Enum):
    """What happens to one effect; everything else goes well."""

    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies after it"
    FAILS = "it fails"
    LIES = "it succeeds and says that it failed"
    LOST_RESPONSE = "the catalog does it and answers with a failure"
    PAUSED_BEFORE_BY_THE_DEAD = "another run does everything before it, and knows this one dead"
    PAUSED_AFTER_BY_THE_DEAD = "another run does everything after it, and knows this one dead"
    PAUSED_BEFORE_ALIVE = "another run comes before it, and knows this one alive"
    PAUSED_AFTER_ALIVE = "another run comes after it, and knows this one alive"

    @property
    def others_live(self) -> bool:
        """Whether the other run takes this process for a living one."""
        return self in (Fault.PAUSED_BEFORE_ALIVE, Fault.PAUSED_AFTER_ALIVE)


DEATHS: Final = (Fault.DIES_BEFORE, Fault.DIES_AFTER)
FAILURES: Final = (Fault.FAILS, Fault.LIES)
PAUSES: Final = (
    Fault.PAUSED_BEFORE_BY_THE_DEAD,
    Fault.PAUSED_AFTER_BY_THE_DEAD,
    Fault.PAUSED_BEFORE_ALIVE,
    Fault.PAUSED_AFTER_ALIVE,
)
RESPONDED: Final = (Step.FIRST_SNAPSHOT, Step.SEND, Step.EVOLVE_SCHEMA)
"""Requests to the catalog, whose response is a value."""
_SOURCE: Final = (
    Step.DESCRIBE_SOURCE,
    Step.SWEEP_SOURCE,
    Step.FIND_SNAPSHOT,
    Step.SNAPSHOT_SOURCE,
    Step.WRITE_FILES,
    Step.RELEASE_SOURCE,
)
_LEDGER: Final = (
    Step.TAKE_LEASE,
    Step.CLAIM,
    Step.NOTE_WRITTEN,
    Step.NOTE_ERROR,
    Step.READ_LEDGER,
    Step.NOTE_LANDED,
    Step.SETTLE,
    Step.GIVE_UP,
    Step.FIND_EXPIRED,
    Step.CLEAN_CLAIM,
    Step.NOTE_HISTORY,
    Step.RELEASE_LEASE,
)


def failure(step: Step) -> TableFormatError:
    """Return the error that the contract of a step's other side allows."""
    message = f"Cannot {step}: the disk is full. Make room."
    if step in _SOURCE:
        return SourceError(message)
    return LedgerError(message) if step in _LEDGER else DestinationError(message)


class Recorder:
    """Effects that are performed and remembered; nothing outside changes between two of them.

    So a process that dies after an effect leaves what one leaves that dies before the next. Within
    effects of `around` there are others: a rewrite reads the ledger before each file.
    """

    def __init__(
        self, inner: Effects, outside: Callable[[], object], around: tuple[Step, ...] = ()
    ) -> None:
        self._inner, self._outside, self._around = inner, outside, around
        self._seen, self._within = outside(), list[Step]()
        self.steps: list[Step] = []

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        of = self._within[-1] if self._within else None
        assert of is None or of in self._around, f"{step} is part of the effect {of}"
        now = self._outside() if of is None else self._seen
        assert now == self._seen, f"something happened between {self.steps} and {step}"
        self.steps.append(step)
        self._within.append(step)
        done = self._inner(step, act)
        self._within.pop()
        self._seen = self._outside()
        return done


class Struck:
    """Effects of which the one of a number (from 0) is performed by `strike`.

    After a death nothing is performed any more.
    """

    def __init__(
        self, inner: Effects, number: int, strike: Callable[[Step, Callable[[], Any]], Any]
    ) -> None:
        self._inner, self._left, self._strike = inner, number, strike
        self._dead = False
        self.step: Step | None = None
        """The effect of that number, once it was reached."""

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        if self._dead:
            raise Dies
        now, self._left = self._left == 0, self._left - 1
        if not now:
            return self._inner(step, act)
        self.step = step
        try:
            found: T = self._strike(step, lambda: self._inner(step, act))
        except Dies:
            self._dead = True
            raise
        return found


def struck(inner: Effects, number: int, fault: Fault, other: Callable[[], object]) -> Struck:
    """Return effects in which a fault meets the effect of a number.

    Args:
        inner: how effects are performed otherwise.
        number: of the effect, from 0.
        fault: what happens to it.
        other: the run of another process, for a pause.
    """

    def strike(step: Step, act: Callable[[], Any]) -> Any:
        if fault is Fault.DIES_BEFORE:
            raise Dies
        if fault is Fault.FAILS:
            raise failure(step)
        if fault in (Fault.PAUSED_BEFORE_BY_THE_DEAD, Fault.PAUSED_BEFORE_ALIVE):
            other()
            return act()
        done = act()
        if fault is Fault.DIES_AFTER:
            raise Dies
        if fault is Fault.LIES:
            raise failure(step)
        if fault is Fault.LOST_RESPONSE:
            return Sent(applied=False, error="the answer was lost")
        other()
        return done

    return Struck(inner, number, strike)


def seams(steps: list[Step], fault: Fault) -> tuple[int, ...]:
    """Return the numbers of all effects that a fault can meet."""
    asked = RESPONDED if fault is Fault.LOST_RESPONSE else tuple(Step)
    return tuple(n for n, step in enumerate(steps) if step in asked)

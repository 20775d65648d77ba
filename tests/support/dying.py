"""Effects that end the process, before or after one of them and then for good, or call others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tableformat.effects import Step

__all__ = ["BeforeFile", "Dies", "DiesAt", "KilledAt", "SentLate"]

T = TypeVar("T")


class Dies(BaseException):
    """The process ends here: nothing after this happens any more."""


class DiesAt:
    """Dies before or after the effect of a number; whatever is tried afterwards dies as well."""

    def __init__(self, number: int, *, after: bool) -> None:
        self._left, self._after, self._dead = number, after, False
        self.steps: list[Step] = []

    def __call__(self, step: Step, act: Callable[[], T]) -> T:
        if self._dead:
            raise Dies
        self.steps.append(step)
        now, self._left = self._left == 0, self._left - 1
        if now and not self._after:
            self._dead = True
            raise Dies
        result = act()
        if now:
            self._dead = True
            raise Dies
        return result


class KilledAt:
    """Dies before or after the n-th effect of one name, or in it; afterwards everything dies."""

    def __init__(self, step: Step, *, after: bool = False, nth: int = 1) -> None:
        self._step, self._after, self._left, self._dead = step, after, nth, False

    def __call__(self, step: Step, act: Callable[[], T]) -> T:
        self._left -= step is self._step
        now = step is self._step and self._left == 0
        if self._dead or (now and not self._after):
            self._dead = True
            raise Dies
        try:
            result = act()
        except Dies:
            self._dead = True
            raise
        if now:
            self._dead = True
            raise Dies
        return result


class BeforeFile:
    """Effects of a statement that rewrites files: calls `visit` before one of them is begun."""

    def __init__(self, visit: Callable[[], object], number: int) -> None:
        self._visit, self._left, self._writes = visit, number, False

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:
        if step is Step.WRITE_FILES:
            self._writes = True
        if self._writes and step is Step.READ_LEDGER:
            self._left -= 1
            if self._left == 0:
                self._visit()
        return act()


class SentLate:
    """Dies when it sends; what was sent gets to the catalog when `arrive` is called."""

    def __init__(self) -> None:
        self._sent: list[Callable[[], object]] = []

    def __call__(self, step: Step, act: Callable[[], T]) -> T:
        if self._sent or step is Step.SEND:
            self._sent.append(act)
            raise Dies
        return act()

    def arrive(self) -> None:
        """Let the catalog have it now."""
        self._sent[0]()

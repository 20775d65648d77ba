"""What one transfer took on the wall, of processors and of memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Final

from tests.support.measured import cpu_seconds

__all__ = ["CannotMeasureError", "Figures", "cannot", "measured"]

_REASON: Final = "cannot"


@dataclass(frozen=True, slots=True)
class Figures:
    """One transfer: seconds on the wall and of processors, peak memory, bytes and rows written."""

    wall: float
    cpu: float
    peak: int
    bytes: int
    rows: int

    def to_json(self) -> str:
        """Return the line that a measured process prints."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> Figures:
        """Read such a line.

        Raises:
            CannotMeasureError: the process printed a reason instead (`cannot`).
        """
        found = json.loads(line)
        if _REASON in found:
            raise CannotMeasureError(found[_REASON])
        return Figures(**found)


class CannotMeasureError(Exception):
    """What should be compared cannot run here; the message is the reason."""


def cannot(error: Exception) -> str:
    """Return the line that a process prints when it cannot transfer: the error's first line."""
    first, _, _ = str(error).partition("\n")
    return json.dumps({_REASON: f"{type(error).__name__}: {first}"})


def measured(act: Callable[[], None]) -> tuple[float, float]:
    """Run `act`; return its seconds on the wall and those of processors, of all descendants too."""
    cpu, wall = cpu_seconds(), perf_counter()
    act()
    return perf_counter() - wall, cpu_seconds() - cpu

"""What one transfer took, and the processor time and memory of processes (Linux' /proc)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

__all__ = ["Figures", "measured", "own_peak", "tree_seconds"]

_TICKS = os.sysconf("SC_CLK_TCK")


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
        """Read such a line."""
        return Figures(**json.loads(line))


def measured(act: Callable[[], None]) -> tuple[float, float]:
    """Run `act`; return its seconds on the wall and those of processors, of all descendants too."""
    cpu, wall = tree_seconds(), perf_counter()
    act()
    return perf_counter() - wall, tree_seconds() - cpu


def tree_seconds() -> float:
    """Return the processor seconds of this process and all its descendants, ended ones included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything, also blanks.
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile, and its parent has its time
        process = int(path.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(map(int, fields[11:15]))
    return sum(t for process, t in ticks.items() if _is_ours(process, parents)) / _TICKS


def _is_ours(process: int, parents: dict[int, int]) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        process = parents.get(process, 0)
    return False


def own_peak() -> int:
    """Return the greatest resident memory that this process ever had, in bytes."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024

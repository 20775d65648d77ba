"""The table of `make bench`, with the goal next to each ratio (docs/operating/benchmarks.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.figures import Figures
from tests.bench.series import Taken

__all__ = ["Goals", "Section", "report"]

_MIXED, _NARROW, _SIZE = 1.0, 1.1, 1.05
_PEAK_MB = 650
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Goals:
    """What is aimed at: ratios of time and file size to ClickHouse, and the peak of a task."""

    time: float
    size: float = _SIZE
    peak_mb: int = _PEAK_MB

    @classmethod
    def of(cls, *, gated: bool) -> Goals:
        """Return the goals of mixed tables, or of narrow ones, which are shown, not required."""
        return cls(_MIXED if gated else _NARROW)


@dataclass(frozen=True, slots=True)
class Section:
    """One comparison: what was transferred, how, and what both sides took.

    `against` names the other side.
    """

    title: str
    taken: Taken
    goals: Goals
    gated: bool
    against: str = "ClickHouse"


_FIGURES: tuple[tuple[str, Callable[[Figures], float], str], ...] = (
    ("wall s", lambda f: f.wall, ".2f"),
    ("CPU s", lambda f: f.cpu, ".2f"),
    ("file MB", lambda f: f.bytes / _MB, ".1f"),
    ("peak MB", lambda f: f.peak / _MB, ".0f"),
)


def report(sections: list[Section]) -> str:
    """Return all sections as text: minima of both sides, their ratio, and the goal."""
    lines: list[str] = []
    for section in sections:
        taken = section.taken
        rows = taken.ours[0].rows
        best = min(f.wall for f in taken.ours)
        lines += [
            f"{section.title}: {rows:,} rows, {len(taken.ours)} pairs, {rows / best:,.0f} rows/s",
            f"  {'least':<8} {'mergeberg':>10} {section.against:>11} {'ratio':>6} {'goal':>6}",
        ]
        lines += [_line(section, *figure) for figure in _FIGURES]
    return "\n".join(lines)


def _line(section: Section, name: str, figure: Callable[[Figures], float], form: str) -> str:
    taken, goals = section.taken, section.goals
    # A peak is what has to be there: the greatest, and no ratio, because ClickHouse's is larger.
    best = max if name.startswith("peak") else min
    ours, theirs = best(map(figure, taken.ours)), best(map(figure, taken.theirs))
    ratio = ours / theirs
    goal, reached = (
        (f"{goals.peak_mb}", ours <= goals.peak_mb)
        if name.startswith("peak")
        else (f"{goals.size:.2f}", ratio <= goals.size)
        if name.startswith("file")
        else (f"{goals.time:.2f}", ratio <= goals.time)
    )
    verdict = (
        "" if reached else "not reached" if section.gated else "not reached (told, not demanded)"
    )
    return (
        f"  {name:<8} {ours:>10{form}} {theirs:>11{form}} {ratio:>6.2f} {goal:>6}  {verdict}"
    ).rstrip()

"""The result of a check, and the one table that shows all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Check", "report"]


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: what was compared, where, whether it held, and what was seen."""

    subject: str
    where: str
    passed: bool
    seen: str


def report(checks: Iterable[Check], notes: Iterable[tuple[str, str]]) -> tuple[str, int]:
    """Return the table, one line for each subject, its last line, and how many checks failed.

    Args:
        checks: in the order in which their subjects are shown.
        notes: figures that nothing is checked against: (name, figure).
    """
    every = list(checks)
    failed = [check for check in every if not check.passed]
    subjects = list(dict.fromkeys(check.subject for check in every))
    rows = [_line(s, [c for c in every if c.subject == s]) for s in subjects]
    rows += [(name, "", "", figure) for name, figure in notes]
    header = ("what", "checks", "failed", "seen")
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(3)]
    lines = [
        f"{what:<{widths[0]}}  {number:>{widths[1]}}  {bad:>{widths[2]}}  {seen}"
        for what, number, bad, seen in (header, *rows)
    ]
    lines += [f"FAILED {check.subject} of {check.where}: {check.seen}" for check in failed]
    lines.append(f"big: {len(every)} checks, {len(failed)} failed")
    return "\n".join(lines), len(failed)


def _line(subject: str, checks: list[Check]) -> tuple[str, str, str, str]:
    seen = list(dict.fromkeys(check.seen for check in checks))
    shown = "; ".join(seen[:3]) + (f"; and {len(seen) - 3} more" if len(seen) > 3 else "")
    return subject, str(len(checks)), str(sum(not check.passed for check in checks)), shown

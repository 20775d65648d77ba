"""Runs an export for a front door: every outcome to the observer, and one exit code for all.

The exit codes are documented in `spark_ext/cli/main.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Final

from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts

__all__ = ["WORST_FIRST", "exit_code", "export_all", "slots", "worst"]

WORST_FIRST: Final = (1, 5, 4, 6, 3)


def export_all(request: ExportRequest, ports: JobPorts, *, master: str) -> tuple[Outcome, ...]:
    """Export what was asked for, tell the observer of each outcome at once, and return them all.

    Args:
        request: what the user asked for.
        ports: what the job acts on; its observer hears the outcomes.
        master: Spark's master, which tells how many tasks can run at a time.

    Raises:
        TableFormatError: the request was refused as a whole, or failed before any partition.
    """
    outcomes = []
    # Closed at once when interrupted: only then leases and staging tables are given back.
    with contextlib.closing(export(request, ports, slots=slots(master))) as running:
        for outcome in running:
            ports.observer.finished(outcome)
            outcomes.append(outcome)
    return tuple(outcomes)


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return the first of 1, 5, 4, 6, 3 that any outcome has, else 0."""
    return worst(outcome.status.exit_code for outcome in outcomes)


def worst(codes: Iterable[int]) -> int:
    """Return the first of 1, 5, 4, 6, 3 that is among the codes, else 0."""
    there = set(codes)
    return next((code for code in WORST_FIRST if code in there), 0)


def slots(master: str) -> int:
    """Return the tasks that run at a time, as far as the master's name tells."""
    inside = master.partition("[")[2].rstrip("]").split(",")[0]
    if inside.isdecimal():
        return int(inside)
    return _processors() if master.startswith("local[*") else 1


def _processors() -> int:
    """Return the processors that this process may use; macOS does not tell more than it has."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

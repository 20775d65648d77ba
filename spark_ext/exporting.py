"""Runs an export for a front door: every outcome to the observer, and one exit code for all.

The exit codes are documented in `spark_ext/cli/main.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable

from tableformat.errors import UsageError
from tableformat.export.claim import Wish
from tableformat.export.exit_codes import worst
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts

__all__ = ["check_wish", "exit_code", "export_all", "slots"]


def export_all(request: ExportRequest, ports: JobPorts, *, slots: int) -> tuple[Outcome, ...]:
    """Export what was asked for, tell the observer of each outcome at once, and return them all.

    Args:
        request: what the user asked for.
        ports: what the job acts on; its observer hears the outcomes.
        slots: how many tasks can run at a time.

    Raises:
        TableFormatError: the request was refused as a whole, or failed before any partition.
    """
    outcomes = []
    # Closed at once when interrupted: only then leases and staging tables are given back.
    with contextlib.closing(export(request, ports, slots=slots)) as running:
        for outcome in running:
            ports.observer.finished(outcome)
            outcomes.append(outcome)
    return tuple(outcomes)


def check_wish(wish: Wish) -> Wish:
    """Return a wish whose parts mean something together.

    Raises:
        UsageError: they do not.
    """
    if wish.allow_empty and not wish.force:
        message = "Cannot use --allow-empty alone: it only adds to --force. Give both."
        raise UsageError(message)
    if wish.whole and not wish.force:
        message = (
            "Cannot use --replace-partition alone: it says what --force replaces. Give both, or "
            "neither for an export that leaves files of others where they are."
        )
        raise UsageError(message)
    if wish.whole and wish.beside:
        message = (
            "Cannot use --replace-partition with --overwrite-file-if-exists: the one removes files "
            "of others, the other keeps them. Give one of them."
        )
        raise UsageError(message)
    return wish


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return the first of 1, 5, 4, 6, 3 that any outcome has, else 0."""
    return worst(outcome.status.exit_code for outcome in outcomes)


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

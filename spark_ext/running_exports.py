"""Runs an export for a front door: every outcome to the observer, and one exit code for all.

The exit codes are documented in `spark_ext/cli/main.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tableformat.export.exit_codes import worst
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts

__all__ = ["exit_code", "export_all"]


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


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return the first of 1, 5, 4, 6, 3 that any outcome has, else 0."""
    return worst(outcome.status.exit_code for outcome in outcomes)

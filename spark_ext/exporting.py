"""Runs an export for a front door: every outcome to the observer, and one exit code for all.

The exit codes are documented in `spark_ext/cli/main.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from catalog.shards import LocalTable
from tableformat.errors import SourceError
from tableformat.export.job import ExportRequest, export
from tableformat.export.outcome import Outcome
from tableformat.export.ports import JobPorts

__all__ = ["WORST_FIRST", "exit_code", "export_all", "export_tables", "slots", "worst"]

WORST_FIRST: Final = (1, 5, 4, 6, 3)
_WORSE_THAN_FAILED: Final = (1, 5)


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


def export_tables(
    tables: Sequence[LocalTable],
    export_one: Callable[[LocalTable], Iterable[Outcome]],
    note: Callable[[str], None],
) -> int:
    """Export every table that a name stands for; return the exit code of all.

    A shard that cannot be read costs its own partitions and no others.

    Args:
        tables: one, or one of each shard.
        export_one: exports one of them, and has told of each outcome.
        note: says which shard it is.

    Raises:
        SourceError: shards could not be read; the others were exported.
        TableFormatError: what `export_one` raises otherwise.
    """
    outcomes: list[Outcome] = []
    failed: list[str] = []
    for one in tables:
        if one.shard is not None:
            note(f"shard {one.shard}: {one.table} at {', '.join(h.place for h in one.place.hosts)}")
        try:
            outcomes += export_one(one)
        except SourceError as error:
            if one.shard is None:
                raise
            failed.append(f"shard {one.shard}: {error.message}")
    code = exit_code(outcomes)
    if not failed:
        return code
    message = f"Cannot export from {len(failed)} of {len(tables)} shards: {' '.join(failed)}"
    if code in _WORSE_THAN_FAILED:
        note(message)
        return code
    raise SourceError(message)


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

"""What a task checks: its host before it reads, the data of its slice before or after.

Every executor must have the plan's versions and, where parts are files, the source's disk
(DESIGN 5.3); the checks of the data are the plan's (notes/types.md, class C).
"""

from __future__ import annotations

import os
import socket
from typing import Final

from catalog.clickhouse.opened_slice import OpenedSlice
from tableformat.errors import RefusedError, SourceError
from tableformat.export.data_checks import broken, checks_sql
from tableformat.export.slices import DataCheck, Slice, WritePlan
from tableformat.source import ServedLayout

__all__ = ["check_host", "run_checks"]

_OF_A_PASS: Final = 250
"""Checks that one query asks: of thousands it would be larger than a server takes."""


def check_host(plan: WritePlan, installed: tuple[tuple[str, str], ...], slice_: Slice) -> None:
    """Refuse to work where results could differ or the source is not there.

    Args:
        plan: of the job.
        installed: the versions that this host has.
        slice_: what is to be read here.

    Raises:
        SourceError: a version is not the planned one, or a part cannot be read on this host.
    """
    host = socket.gethostname()
    here = dict(installed)
    for name, planned in plan.versions:
        if here.get(name) != planned:
            message = (
                f"Cannot read {plan.table} on executor host {host}: it has {name} "
                f"{here.get(name, 'not installed')}, the export was planned with {planned}. "
                "Install the same versions on every executor."
            )
            raise SourceError(message)
    if isinstance(plan.layout, ServedLayout):
        return
    for part in slice_.ranges:
        if not os.access(part.path, os.R_OK | os.X_OK):
            reason = "no permission" if os.path.exists(part.path) else "no such directory"  # noqa: PTH110
            message = (
                f"Cannot read {part.path} on executor host {host}: {reason}. "
                "Run the executors where the source's disk is mounted, as a user who may read it."
            )
            raise SourceError(message)


def run_checks(plan: WritePlan, opened: OpenedSlice, checks: list[DataCheck]) -> None:
    """Run checks over the slice: in one pass, or several where there are very many columns.

    Raises:
        RefusedError: values have no place in the lake table; every column with such is named.
        SourceError: the slice cannot be read.
    """
    passes = [checks[i : i + _OF_A_PASS] for i in range(0, len(checks), _OF_A_PASS)]
    found = [broken(some, opened.row(checks_sql(some))) for some in passes]
    reasons = " ".join(text for text in found if text)
    if reasons:
        raise RefusedError(
            f"Cannot export partition {opened.slice.partition_id} of {plan.table}: {reasons}"
        )

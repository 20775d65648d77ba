"""Where an export stands, in one word for people: what `exports list` and `exports show` say.

The row's state alone does not tell: RUNNING is every export that was claimed and neither landed nor
was given up, and every statement on the lake table that works on its rows. Whether somebody works
on it, the lease and its owner tell; why nobody does, the last error. FAILED of a RUNNING row is the
everyday failure: the next run goes on with what is finished (coverage.md reading 9;
RQ…PartialProgress).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tableformat.export.giving_up import BEING_CANCELLED, QUERY_KILLED
from tableformat.last_export import last_export
from tableformat.ledger import Row, State

__all__ = ["INTERRUPTED_ERROR", "Standing", "is_resumable", "standing"]

INTERRUPTED_ERROR: Final = "interrupted"
"""The last error of an export that its user ended; one that is killed leaves none."""
_NO_ERRORS: Final = ("", INTERRUPTED_ERROR, BEING_CANCELLED, QUERY_KILLED)


class Standing(StrEnum):
    """Where the export of a partition stands."""

    IN_PROGRESS = "IN_PROGRESS"
    INTERRUPTED = "INTERRUPTED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    COMPLETED = "COMPLETED"
    ARCHIVED = "ARCHIVED"


def standing(row: Row, *, worked_on: bool) -> Standing:
    """Return where an export stands; `worked_on`: an owner that may be alive has its lease."""
    of = last_export(row)
    if of.state is State.COMPLETED and row.archived is not None:
        return Standing.ARCHIVED
    if of.state is not State.RUNNING:
        return Standing(of.state.value)
    if worked_on:
        return Standing.IN_PROGRESS
    return Standing.INTERRUPTED if of.error in _NO_ERRORS else Standing.FAILED


def is_resumable(row: Row, *, worked_on: bool) -> bool:
    """Whether the next run may go on with what is finished."""
    return last_export(row).state is State.RUNNING and not worked_on

"""Which source parts of an export are in finished files, while it runs and when it failed, too.

The ledger knows when all are; before, the receipts in the lake do (RQ…PartialProgress, RQ…
SystemTables.Exports; coverage.md reading 17).
"""

from __future__ import annotations

from typing import Protocol

from spark_ext.listing_exports import ListedExport
from tableformat.committer import LakeTableState
from tableformat.export.progress import receipts_below, with_files, without_files
from tableformat.export.standing import Standing
from tableformat.ledger import ExportedPart, Row, State
from tableformat.receipt import Receipt

__all__ = ["DestinationsOfRows", "failed_parts", "in_ledger", "parts_with_files", "processed"]

_FAILED = (Standing.FAILED, Standing.KILLED)


class DestinationsOfRows(Protocol):
    """The tables that exports go to, as they are now."""

    def destination(self, row: Row) -> LakeTableState | None:
        """Return the table that a row's export goes to, None when it is not there any more."""
        ...

    def receipts(self, row: Row, below: str) -> tuple[Receipt, ...]:
        """Return the receipts below a location of the table that a row's export goes to."""
        ...


def in_ledger(one: ListedExport) -> frozenset[str]:
    """Return the parts that are processed as far as the ledger knows: all at once, or none."""
    match one.export.state:
        case State.COMPLETED:
            return frozenset(part.name for part in one.parts)
        case State.RUNNING:
            return frozenset(part.name for part in one.parts if part.remote_paths)
        case _:
            return frozenset()


def processed(one: ListedExport, lake: DestinationsOfRows) -> frozenset[str]:
    """Return the names of the parts that are wholly in finished files.

    Raises:
        TableFormatError: the lake does not say.
    """
    parts = parts_with_files(one, lake)
    if one.export.state is State.COMPLETED:
        return in_ledger(one)
    return frozenset(part.name for part in parts if part.remote_paths)


def parts_with_files(one: ListedExport, lake: DestinationsOfRows) -> tuple[ExportedPart, ...]:
    """Return the parts of the last export, each with its files as soon as all of them are finished.

    Raises:
        TableFormatError: the lake does not say.
    """
    of = one.export
    if of.state is not State.RUNNING or all(part.remote_paths for part in of.parts):
        return of.parts if of.state in (State.COMPLETED, State.RUNNING) else without_files(of.parts)
    state = lake.destination(one.row)
    if state is None:
        return of.parts
    receipts = lake.receipts(one.row, receipts_below(state.location, one.row))
    return with_files(of.parts, receipts)


def failed_parts(one: ListedExport, processed_number: int) -> int:
    """Return how many parts of an export that failed or was killed are not processed."""
    return len(one.parts) - processed_number if one.status in _FAILED else 0

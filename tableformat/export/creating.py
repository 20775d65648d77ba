"""Makes the lake table of a ClickHouse table as an export would, and puts no rows into it."""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.export.destination import fit
from tableformat.export.job import ExportRequest, look_at_table, open_destination
from tableformat.export.loading import check_table_of_ledger
from tableformat.export.plan import TablePlan
from tableformat.export.ports import JobPorts

__all__ = ["Created", "create_table"]


@dataclass(frozen=True, slots=True)
class Created:
    """What the table is made by, and whether it was not there before."""

    plan: TablePlan
    is_new: bool


def create_table(request: ExportRequest, ports: JobPorts, *, dry_run: bool) -> Created:
    """Make a lake table; one that is there and fits stays as it is.

    Args:
        request: what the user asked for; its selection and wish are not looked at.
        ports: what a job acts on; nothing is written by them.
        dry_run: whether nothing is to be made, only refused what would be.

    Raises:
        RefusedError: a column or the partition key cannot be mapped, or the table that is there
            does not fit, or is another ledger's.
        TableFormatError: a side or the ledger cannot be read or written.
    """
    looked_at = look_at_table(
        request, ports.source, ports.lake, ports.ledger,
        effects=ports.effects, note=ports.observer.note,
    )  # fmt: skip
    existing, state = looked_at.existing, looked_at.state
    if not dry_run:
        open_destination(request, ports, looked_at)
    elif existing is not None and state is not None:
        check_table_of_ledger(state, ports.ledger)
        fit(looked_at.plan, request.to, existing, state, request.format)
    return Created(looked_at.plan, existing is None)

"""What a ledger says about exports, for every front door: which there are, and how each stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from catalog.processes import may_be_alive
from tableformat.export.standing import Standing, is_resumable, standing
from tableformat.ledger import ExportedPart, Ledger, Row, State
from tableformat.names import LakeName, TableName

__all__ = ["ListedExport", "list_exports", "rows_of_name"]

_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class ListedExport:
    """The exports of one partition into one table, and how the last one stands."""

    row: Row
    status: Standing

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot in which the last one landed, None when none did."""
        return self.row.done.landed.snapshot_id if self.row.done else None

    @property
    def changed_by(self) -> str:
        """The last statement on the lake table that changed it since, '' for none."""
        changed = self.row.changed
        return f"{changed.statement} (snapshot {changed.snapshot_id})" if changed else ""

    @property
    def last_error(self) -> str:
        """The beginning of the last error, '' when there is none."""
        return self.row.last_error.splitlines()[0][:_SHOWN] if self.row.last_error else ""

    @property
    def resumable(self) -> bool:
        """Whether the next run may go on with what is finished."""
        return is_resumable(self.row, worked_on=self.status is Standing.IN_PROGRESS)

    @property
    def parts(self) -> tuple[ExportedPart, ...]:
        """The source's parts of the last one."""
        row = self.row
        return row.done.parts if row.done and row.state is State.COMPLETED else row.claim.parts


def list_exports(ledger: Ledger) -> Iterator[ListedExport]:
    """Yield every export of a ledger, latest first.

    What the ledger notes of rows that others wrote, when a statement on the lake table changes
    them, is none: they came from no ClickHouse table.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    for row in ledger.rows():
        if not row.key.is_of_export:
            continue
        worked_on = row.state is State.RUNNING and _worked_on(row, ledger)
        yield ListedExport(row, standing(row, worked_on=worked_on))


def rows_of_name(
    ledger: Ledger, partition_id: str, table: TableName, to: LakeName | None
) -> tuple[Row, ...]:
    """Return what a ledger has of a partition; a table that was made anew has several rows.

    Args:
        ledger: what was exported.
        partition_id: as the source has it.
        table: the source table.
        to: the destination, None for every one.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return tuple(
        row
        for row in ledger.rows()
        if (row.key.partition_id, row.source_table) == (partition_id, str(table))
        and to in (None, LakeName.parse(row.destination_table))
    )


def _worked_on(row: Row, ledger: Ledger) -> bool:
    """Whether somebody who may be alive works on it: a lease outlives its owner."""
    held = ledger.holder(row.key.hash)
    return held is not None and may_be_alive(held.owner)

"""What a ledger says about exports, for every front door: which there are, and how each stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from catalog.ledgers.memory import milliseconds
from catalog.processes import may_be_alive
from tableformat.errors import reason_first
from tableformat.export.standing import Standing, is_resumable, standing
from tableformat.last_export import LastExport, last_export
from tableformat.ledger import ExportedPart, Ledger, Row, State
from tableformat.names import LakeName, TableName

__all__ = ["ListedExport", "list_exports", "rows_of_name"]

_SHOWN: Final = 100
"""How much of an error stands behind a statement."""


@dataclass(frozen=True, slots=True)
class ListedExport:
    """The exports of one partition into one table, and how the last one stands.

    `expired`: it completed, and the time to live of its manifest is over or was ended: exporting it
    again is not refused.
    """

    row: Row
    status: Standing
    expired: bool = False

    @property
    def export(self) -> LastExport:
        """The last export, whatever statements did with its rows since."""
        return last_export(self.row)

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot in which the last one landed, None when none did."""
        return self.row.done.landed.snapshot_id if self.row.done else None

    @property
    def statement(self) -> str:
        """The statement on the lake table that has claimed its rows and has not ended, '' for none.

        With the reason why nobody works on it any more, where there is one.
        """
        claim = self.row.claim
        if self.row.state is not State.RUNNING or not claim.by_statement:
            return ""
        text = claim.gives_way.statement if claim.gives_way is not None else claim.statement
        why = self._last_error.partition("\n")[0][:_SHOWN]
        return f"{text} ({why})" if why else text

    @property
    def rows_in_main(self) -> int | None:
        """The rows of the partition that main has, None where the ledger does not know.

        DROP and DETACH take them out, ATTACH brings them back, UPDATE and DELETE change them.
        """
        settled = self.row.settled
        if settled is None:
            return 0
        held = settled.left
        return None if held is None else sum(one.rows for one in held)

    @property
    def changed_by(self) -> str:
        """The last statement on the lake table that changed it since, '' for none."""
        changed = self.row.changed
        return f"{changed.statement} (snapshot {changed.snapshot_id})" if changed else ""

    @property
    def last_error(self) -> str:
        """The export's last error, beginning with the reason; '' when there is none."""
        return self._last_error if self.export.error else ""

    @property
    def _last_error(self) -> str:
        """The last error of what claimed the row."""
        return reason_first(self.row.last_error)

    @property
    def resumable(self) -> bool:
        """Whether the next run may go on with what is finished."""
        return is_resumable(self.row, worked_on=self.status is Standing.IN_PROGRESS)

    @property
    def parts(self) -> tuple[ExportedPart, ...]:
        """The source's parts of the last one."""
        return self.export.parts


def list_exports(
    ledger: Ledger, *, clock: Callable[[], int] = milliseconds
) -> Iterator[ListedExport]:
    """Yield every export of a ledger, latest first.

    What the ledger notes of rows that others wrote, when a statement on the lake table changes
    them, is none: they came from no ClickHouse table.

    Args:
        ledger: what was exported.
        clock: milliseconds since 1970, by which times to live are over.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    for row in ledger.rows():
        if not row.key.is_of_export:
            continue
        worked_on = row.state is State.RUNNING and _worked_on(row, ledger)
        record = last_export(row).record
        expired = record is not None and not record.refuses(clock())
        yield ListedExport(row, standing(row, worked_on=worked_on), expired)


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

"""Lets exports replace the rows of archived partitions again, by name, for every interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from catalog.hive import OpenedTree
from catalog.iceberg import OpenedCatalog
from catalog.ledgers.memory import milliseconds
from catalog.processes import may_be_alive, this_process
from spark_ext.listing_exports import rows_of_name
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.archived import unarchive
from tableformat.export.in_main import holding
from tableformat.ledger import Ledger, Row
from tableformat.names import LakeName, TableName
from tableformat.quantities import counted

__all__ = ["Unarchivable", "unarchivable", "unarchive_each"]


@dataclass(frozen=True, slots=True)
class Unarchivable:
    """An archived partition, and how many rows of it main has: the next export may replace them."""

    row: Row
    rows: int
    files: int

    @property
    def text(self) -> str:
        """What unarchiving it allows, in a sentence."""
        row = self.row
        return (
            f"partition {row.key.partition_id} of {row.source_table}: {counted(self.rows, 'row')} "
            "in "
            f"{counted(self.files, 'file')} of {row.destination_table} may be replaced by the "
            "next export "
            "of it. The source may have none of them any more"
        )


def unarchivable(
    ledger: Ledger,
    partition_id: str,
    table: TableName,
    to: LakeName,
    open_lake: Callable[[LakeName], OpenedCatalog | OpenedTree],
) -> tuple[Unarchivable, ...]:
    """Return the archived rows of a partition; a table that was made anew has several.

    Args:
        ledger: what was exported.
        partition_id: as the source has it.
        table: the source table.
        to: the destination.
        open_lake: opens the catalog that has it, or its tree.

    Raises:
        NotFoundError: the ledger knows no export of it.
        RefusedError: none of them is archived.
        TableFormatError: the ledger or the lake cannot be read.
    """
    what = f"Cannot unarchive partition {partition_id} of {table} in {to}"
    known = rows_of_name(ledger, partition_id, table, to)
    if not known:
        message = (
            f"{what}: the ledger {ledger.uri} has no export of it. List what it has with "
            "`mergeberg exports list`."
        )
        raise NotFoundError(message)
    archived = tuple(row for row in known if row.archived is not None)
    if not archived:
        message = f"{what}: it is not archived, and exports of it are as free as ever."
        raise RefusedError(message)
    lake = open_lake(to).table(to)
    state = lake.load() if lake is not None else None
    found = []
    for row in archived:
        if lake is None or state is None or state.layout.table_uuid != row.key.destination:
            found.append(Unarchivable(row, 0, 0))
            continue
        held = holding(row, state, row.key.hash, partial(lake.files_of, state, row.key.hash))
        found.append(Unarchivable(row, held.rows, len(held.files)))
    return tuple(found)


def unarchive_each(ledger: Ledger, found: tuple[Unarchivable, ...]) -> None:
    """Let exports replace what was found.

    Raises:
        RefusedError: an export of it runs, or the row moved meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    for one in found:
        unarchive(ledger, one.row, owner=this_process(), is_alive=may_be_alive, now=milliseconds())

"""Lets partitions be exported again before their TTL is over, by name, for every front door."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.ledgers.memory import milliseconds
from catalog.processes import may_be_alive, this_process
from spark_ext.listing_exports import rows_of_name
from tableformat.errors import NotFoundError, UsageError
from tableformat.export.forgetting import forget
from tableformat.ledger import Ledger, Row
from tableformat.names import LakeName, TableName

__all__ = ["forget_exports"]


def forget_exports(
    ledger: Ledger, partition_id: str, table: TableName, to: LakeName | None
) -> Iterator[tuple[Row, str]]:
    """End the refusal of the exports of a partition; yield each row, and what was done with it.

    Args:
        ledger: what was exported.
        partition_id: as the source has it.
        table: the source table; one that was made anew has several rows.
        to: the destination, None for the only one.

    Raises:
        NotFoundError: there is none.
        UsageError: they are of several destinations, and none was named.
        RefusedError: an export of it runs, or none has completed.
        LedgerError: the ledger cannot be read or written.
    """
    for row in _rows(ledger, partition_id, table, to):
        said = forget(ledger, row, owner=this_process(), is_alive=may_be_alive, now=milliseconds())
        yield row, said


def _rows(
    ledger: Ledger, partition_id: str, table: TableName, to: LakeName | None
) -> tuple[Row, ...]:
    found = rows_of_name(ledger, partition_id, table, to)
    what = f"Cannot forget the export of partition {partition_id} of {table}"
    if not found:
        where = f" in {to}" if to is not None else ""
        message = (
            f"{what}{where}: the ledger {ledger.uri} has none. List what it has with `mergeberg "
            "exports list`."
        )
        raise NotFoundError(message)
    destinations = sorted({row.destination_table for row in found})
    if len(destinations) > 1:
        message = (
            f"{what}: it was exported to {', '.join(destinations)}. Name one of them with --to."
        )
        raise UsageError(message)
    return found

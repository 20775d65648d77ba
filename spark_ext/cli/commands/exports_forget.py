"""`mergeberg exports forget`: a completed export no longer refuses another one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import click

from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.processes import may_be_alive, this_process
from spark_ext.cli.options import ledger_options, output_for, output_options
from tableformat.errors import NotFoundError, UsageError
from tableformat.export.forgetting import forget
from tableformat.ledger import Ledger, Row
from tableformat.names import LakeName, TableName

__all__ = ["forget_export"]


@click.command("forget")
@click.argument("partition_id")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@click.option("--to", help="The destination, when the partition was exported to several.")
@ledger_options
@output_options
def forget_export(
    partition_id: str,
    source_table: str,
    to: str | None,
    warehouse: Path,
    ledger: str | None,
    *,
    as_json: bool,
) -> int:
    """Let the partition PARTITION_ID be exported again before its manifest TTL is over.

    Ends the refusal, and only that: what landed stays known, so that rows are never exported
    twice. Nothing changes in the lake.

    \b
    Example:
      mergeberg exports forget 202401 --table db.events --to lake.analytics.events
    """  # noqa: D301  \b is Click's mark for lines to keep
    table = str(TableName.parse(source_table))
    destination = str(LakeName.parse(to)) if to is not None else None
    output = output_for(as_json=as_json)
    with contextlib.closing(open_ledger(ledger, local_warehouse=warehouse)) as opened:
        for row in _rows(opened, partition_id, table, destination):
            output.say(
                forget(opened, row, owner=this_process(), is_alive=may_be_alive, now=milliseconds())
            )
    return 0


def _rows(ledger: Ledger, partition_id: str, table: str, to: str | None) -> Sequence[Row]:
    """Return the rows of a name; a table that was made anew has several.

    Raises:
        NotFoundError: there is none.
        UsageError: they are of several destinations, and none was named.
    """
    found = [
        row
        for row in ledger.rows()
        if (row.key.partition_id, row.source_table) == (partition_id, table)
        and to in (None, row.destination_table)
    ]
    if not found:
        where = f" in {to}" if to is not None else ""
        message = (
            f"Cannot forget the export of partition {partition_id} of {table}{where}: the ledger "
            f"{ledger.uri} has none. List what it has with `mergeberg exports list`."
        )
        raise NotFoundError(message)
    destinations = sorted({row.destination_table for row in found})
    if len(destinations) > 1:
        message = (
            f"Cannot forget the export of partition {partition_id} of {table}: it was exported to "
            f"{', '.join(destinations)}. Name one of them with --to."
        )
        raise UsageError(message)
    return found

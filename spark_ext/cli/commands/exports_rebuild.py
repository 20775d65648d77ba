"""`mergeberg exports rebuild`: a new ledger for a table whose ledger was lost."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import click

from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.network import TimeOuts
from spark_ext.actions.exports import existing_table
from spark_ext.cli.destination import destination_name, open_destination
from spark_ext.cli.options import catalog_options, ledger_options, output_for, output_options
from tableformat.effects import Direct
from tableformat.export.commit import Ports
from tableformat.export.rebuild import rebuild

__all__ = ["rebuild_exports"]


@click.command("rebuild")
@click.option("--to", required=True, help="The lake table: catalog.namespace.table, or hive:URI.")
@ledger_options
@catalog_options
@output_options
def rebuild_exports(
    to: str,
    warehouse: Path,
    ledger: str | None,
    time_outs: TimeOuts,
    *,
    as_json: bool,
) -> int:
    """Make a new ledger for a lake table whose ledger was lost, from the table itself.

    What is whole in main is known as exported again. What cannot be proved is kept from being
    exported twice, and is named. Afterwards the table belongs to the new ledger: an export that is
    under way with the lost one lands nothing any more.

    \b
    Example:
      mergeberg exports rebuild --to lake.analytics.events --ledger sqlite:/var/lib/new-ledger.db
    """  # noqa: D301  \b is Click's mark for lines to keep
    name = destination_name(to)
    what = f"rebuild the ledger of {name}"
    catalog = open_destination(name, warehouse=warehouse, time_outs=time_outs, looks_only=False)
    table = existing_table(catalog, name, what)
    known = open_ledger(ledger, local_warehouse=catalog.ledger_directory)
    output = output_for(as_json=as_json)
    with contextlib.closing(known):
        ports = Ports(Direct(), table, known, milliseconds, lambda n: time.sleep(0.1 * n))
        found = rebuild(ports, table.storages(table.load().location), str(name))
    columns = ("source_table", "partition_id", "status", "rows", "data_files", "last_error")
    records = [
        {
            "source_table": one.row.source_table,
            "partition_id": one.row.key.partition_id,
            "status": _status(one.row.done is not None, proved=one.proved),
            "rows": one.row.last.rows,
            "data_files": one.row.last.data_files,
            "last_error": one.row.last_error,
        }
        for one in found
    ]
    output.table(columns, records)
    return 0 if all(one.proved for one in found) else 3


def _status(exported: bool, *, proved: bool) -> str:  # noqa: FBT001  two facts, one word
    if not proved:
        return "NOT PROVED"
    return "COMPLETED" if exported else "NOT EXPORTED"

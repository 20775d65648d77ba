"""The command `mergeberg exports rebuild`: creates a new ledger for a table that lost its own."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from catalog.ledgers.memory import milliseconds
from catalog.ledgers.uris import open_ledger
from catalog.network import TimeOuts
from spark_ext.actions.exports import existing_table
from spark_ext.cli.destination import destination_name, open_destination
from spark_ext.cli.output import output_for
from tableformat.effects import Direct
from tableformat.export.commit import Ports
from tableformat.export.rebuild import rebuild

__all__ = ["rebuild_exports"]


def rebuild_exports(
    to: str,
    warehouse: Path,
    ledger: str | None,
    time_outs: TimeOuts,
    *,
    as_json: bool,
) -> int:
    """Run `mergeberg exports rebuild`; return the exit code."""
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

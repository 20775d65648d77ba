"""`mergeberg exports forget`: a completed export no longer refuses another one."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from spark_ext.cli.destination import destination_name, open_ledger_of
from spark_ext.cli.options import ledger_options, output_for, output_options
from spark_ext.forgetting import forget_exports
from tableformat.names import TableName

__all__ = ["forget_export"]


@click.command("forget")
@click.argument("partition_id")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@click.option(
    "--to", help="The destination, where there are several: catalog.namespace.table, or hive:URI."
)
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
    destination = destination_name(to) if to is not None else None
    table = TableName.parse(source_table)
    output = output_for(as_json=as_json)
    what = f"forget the export of partition {partition_id} of {source_table}"
    ledger_of = open_ledger_of(destination, ledger, what, warehouse=warehouse)
    with contextlib.closing(ledger_of) as opened:
        for _, said in forget_exports(opened, partition_id, table, destination):
            output.say(said)
    return 0

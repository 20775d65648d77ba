"""`mergeberg exports watermark`: up to which partition is everything in the lake?"""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from catalog.ledgers.memory import milliseconds
from catalog.sources import SourcePlace, open_source
from catalog.time_outs import TimeOuts
from spark_ext.cli.destination import open_iceberg, parse_destination
from spark_ext.cli.options import (
    catalog_options,
    ledger_options,
    output_for,
    output_options,
    source_options,
)
from spark_ext.existing_table import open_existing
from tableformat.export.watermark import Watermark, find_watermark
from tableformat.names import LakeName, TableName

__all__ = ["show_watermark"]


@click.command("watermark")
@click.option("--table", "source_table", required=True, help="The source table (database.table).")
@click.option("--to", required=True, help="The lake table: catalog.namespace.table.")
@source_options()
@ledger_options
@catalog_options
@output_options
def show_watermark(
    source_table: str, to: str, source: SourcePlace, warehouse: Path,
    ledger: str | None, time_outs: TimeOuts, *, as_json: bool
) -> int:  # fmt: skip
    """Say up to which partition everything is exported, and unchanged since.

    The greatest partition id, in ClickHouse's order, up to which every source partition is whole in
    the lake; and what stops it there. Never inside a partition. Changes nothing.

    \b
    Example:
      mergeberg exports watermark --table db.events --source chdb:./clickhouse \\
          --to lake.analytics.events
    """  # noqa: D301  \b is Click's mark for lines to keep
    table = TableName.parse(source_table)
    name = parse_destination(to, table, source)
    what = f"tell the watermark of {table} in {name}"
    catalog = open_iceberg(name, what, warehouse=warehouse, time_outs=time_outs)
    lake, known = open_existing(catalog, name, what, ledger=ledger)
    with contextlib.closing(known), open_source(source) as opened:
        found = find_watermark(opened.describe(table), opened, lake, known, now=milliseconds())
    output = output_for(as_json=as_json)
    if as_json:
        output.record(_record(table, name, found))
    else:
        output.say(_sentence(table, name, found))
    return 0


def _record(table: TableName, to: LakeName, found: Watermark) -> dict[str, object]:
    return {
        "source_table": str(table),
        "destination_table": str(to),
        "watermark": str(found.partition_id) if found.partition_id is not None else None,
        "reached": found.reached,
        "partitions": found.partitions,
        "stopped_by": str(found.stopped_by) if found.stopped_by is not None else None,
        "message": found.why,
    }


def _sentence(table: TableName, to: LakeName, found: Watermark) -> str:
    if found.partition_id is None:
        text = f"{table} has no watermark in {to}"
    else:
        text = (
            f"{table} is in {to} up to partition {found.partition_id} ({found.reached:,} of "
            f"{found.partitions:,})"
        )
    if found.stopped_by is not None:
        return f"{text}; partition {found.stopped_by} stops it: {found.why}"
    return text

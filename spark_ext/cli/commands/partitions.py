"""`mergeberg partitions`: what a table has to export."""

from __future__ import annotations

from dataclasses import asdict

import click

from catalog.sources import SourcePlace, open_source
from spark_ext.cli.options import output_for, output_options, source_options
from tableformat.names import TableName

__all__ = ["partitions"]


@click.command()
@click.argument("table")
@source_options()
@output_options
def partitions(table: str, source: SourcePlace, *, as_json: bool) -> int:
    """List the partitions of TABLE (database.table) with active parts.

    \b
    Example:
      mergeberg partitions db.events --source chdb:./clickhouse
    """  # noqa: D301  \b is Click's mark for lines to keep
    output = output_for(as_json=as_json)
    name = TableName.parse(table)
    opened = open_source(source)
    try:
        opened.describe(name)
        found = opened.partitions(name)
    finally:
        opened.close()
    columns = (
        "partition_id",
        "partition",
        "parts",
        "rows",
        "bytes_on_disk",
        "min_time",
        "max_time",
    )
    output.table(columns, [{**asdict(p), "partition_id": p.partition_id.value} for p in found])
    return 0

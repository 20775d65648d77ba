"""`mergeberg parts`: the active parts of a partition."""

from __future__ import annotations

from dataclasses import asdict

import click

from catalog.sources import SourcePlace, open_source
from spark_ext.cli.options import output_for, output_options, source_options
from tableformat.names import PartitionId, TableName

__all__ = ["parts"]


@click.command()
@click.argument("table")
@click.option("--partition-id", help="Only this partition.")
@source_options()
@output_options
def parts(table: str, partition_id: str | None, source: SourcePlace, *, as_json: bool) -> int:
    """List the active parts of TABLE (database.table).

    \b
    Example:
      mergeberg parts db.events --partition-id 202401 --source chdb:./clickhouse
    """  # noqa: D301  \b is Click's mark for lines to keep
    output = output_for(as_json=as_json)
    name = TableName.parse(table)
    opened = open_source(source)
    try:
        opened.describe(name)
        ids = (
            [PartitionId(partition_id)]
            if partition_id
            else [p.partition_id for p in opened.partitions(name)]
        )
        found = [part for i in ids for part in opened.parts(name, i)]
    finally:
        opened.close()
    columns = (
        "name",
        "partition_id",
        "part_type",
        "rows",
        "bytes_on_disk",
        "disk",
        "hash_of_all_files",
    )
    output.table(columns, [{**asdict(p), "partition_id": p.partition_id.value} for p in found])
    return 0

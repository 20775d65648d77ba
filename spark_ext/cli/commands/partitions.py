"""`mergeberg partitions`: what a table has to export."""

from __future__ import annotations

from typing import Final

import click

from catalog.shards import LocalTable, local_tables
from catalog.sources import SourcePlace, open_source
from spark_ext.cli.options import (
    cluster_options,
    output_for,
    output_options,
    pairs,
    source_options,
)
from spark_ext.sharding import each_table
from spark_ext.source_parts import partitions_of
from tableformat.names import TableName

__all__ = ["partitions"]

_COLUMNS: Final = (
    "partition_id",
    "partition",
    "parts",
    "rows",
    "bytes_on_disk",
    "min_time",
    "max_time",
)


@click.command()
@click.argument("table")
@cluster_options
@source_options()
@output_options
def partitions(
    table: str, source: SourcePlace, cluster: str | None, cluster_host: tuple[str, ...],
    *, as_json: bool
) -> int:  # fmt: skip
    """List the partitions of TABLE (database.table) with active parts, of every shard.

    \b
    Example:
      mergeberg partitions db.events --source chdb:./clickhouse
    """  # noqa: D301  \b is Click's mark for lines to keep
    output = output_for(as_json=as_json)
    tables = local_tables(
        source,
        TableName.parse(table),
        cluster=cluster,
        cluster_hosts=pairs("--cluster-host", cluster_host),
    )

    def list_one(one: LocalTable) -> int:
        with open_source(one.place) as opened:
            found = partitions_of(opened, one.table)
        output.table(
            (*one.columns, *_COLUMNS),
            [
                {
                    **one.fields,
                    **{c: getattr(p, c) for c in _COLUMNS},
                    "partition_id": p.partition_id.value,
                }
                for p in found
            ],
        )
        return 0

    return each_table(tables, list_one, output.note)

"""`mergeberg parts`: the active parts of a partition."""

from __future__ import annotations

from dataclasses import asdict
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
from spark_ext.source_parts import parts_of
from tableformat.names import PartitionId, TableName

__all__ = ["parts"]

_COLUMNS: Final = (
    "name",
    "partition_id",
    "part_type",
    "rows",
    "bytes_on_disk",
    "disk",
    "hash_of_all_files",
)


@click.command()
@click.argument("table")
@click.option("--partition-id", help="Only this partition.")
@cluster_options
@source_options()
@output_options
def parts(
    table: str, partition_id: str | None, source: SourcePlace,
    cluster: str | None, cluster_host: tuple[str, ...], *, as_json: bool
) -> int:  # fmt: skip
    """List the active parts of TABLE (database.table), of every shard.

    \b
    Example:
      mergeberg parts db.events --source chdb:./clickhouse
    """  # noqa: D301  \b is Click's mark for lines to keep
    output = output_for(as_json=as_json)
    tables = local_tables(
        source,
        TableName.parse(table),
        cluster=cluster,
        cluster_hosts=pairs("--cluster-host", cluster_host),
    )
    wanted = PartitionId(partition_id) if partition_id else None

    def list_one(one: LocalTable) -> int:
        with open_source(one.place) as opened:
            found = parts_of(opened, one.table, wanted)
        output.table(
            (*one.columns, *_COLUMNS),
            [{**one.fields, **asdict(p), "partition_id": p.partition_id.value} for p in found],
        )
        return 0

    return each_table(tables, list_one, output.note)

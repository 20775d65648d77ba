"""`mergeberg export`: partitions into an Iceberg table."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from catalog.bounded_rest import TimeOuts
from spark_ext.cli.destination import parse_destination
from spark_ext.cli.options import (
    catalog_options,
    conversions,
    ledger_options,
    mapping_options,
    output_for,
    output_options,
    pairs,
    source_options,
)
from spark_ext.cli.rehearsal import show_rehearsal
from spark_ext.exporting import exit_code, export_all, slots
from spark_ext.session import SparkSettings
from spark_ext.stopping import Stopping
from spark_ext.wiring import Places, SparkWhenNeeded, open_ports
from tableformat.errors import UsageError
from tableformat.export.claim import Wish
from tableformat.export.job import MOST_PARTITIONS, ExportRequest
from tableformat.export.selection import AllPartitions, ByExpression, ById, Selection
from tableformat.export.slices import FileFormat
from tableformat.mergetree.summary_filter import parse_filter
from tableformat.names import PartitionId, TableName

__all__ = ["export", "selection"]

_MIB: Final = 1024 * 1024


@click.command()
@click.argument("table")
@click.option("--partition-id", help="Export the partition with this id.")
@click.option(
    "--partition",
    "expression",
    help="Export the partition of this value, e.g. 202401 or \"tuple('x', 3)\".",
)
@click.option("--all", "everything", is_flag=True, help="Export every partition of the table.")
@click.option(
    "--where",
    help="With --all: only partitions for which this holds, over partition_id, rows, bytes, "
    "min_time, max_time.",
)
@click.option("--to", required=True, help="The destination: catalog.namespace.table.")
@mapping_options
@click.option(
    "--force",
    is_flag=True,
    help="Export again although it was exported: in one snapshot the new files replace the old, "
    "also when they hold fewer rows.",
)
@click.option(
    "--allow-empty",
    is_flag=True,
    help="With --force: also when the source partition has no rows left.",
)
@click.option(
    "--overwrite-file-if-exists",
    "beside",
    is_flag=True,
    help="Goes on beside files of others that are in the partition already; never removes them "
    "(ClickHouse's export_merge_tree_part_overwrite_file_if_exists).",
)
@click.option(
    "--commit-every",
    type=click.IntRange(1, MOST_PARTITIONS),
    default=MOST_PARTITIONS,
    show_default=True,
    help="With --all: at most so many partitions become visible in one snapshot.",
)
@click.option(
    "--manifest-ttl",
    type=click.IntRange(0),
    default=180,
    show_default=True,
    help="Seconds during which exporting again is refused; 0 is for ever.",
)
@click.option(
    "--target-file-size",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Expected size of a data file, in MiB.",
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    envvar="MERGEBERG_MASTER",
    help="Spark's master.",
)
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting. Repeatable.")
@click.option(
    "--verify",
    is_flag=True,
    help="Compare every exported partition with its source after the commit, and keep the digest.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds that what runs may take to finish after a SIGTERM.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@source_options
@ledger_options
@catalog_options
@output_options
def export(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, partition_id: str | None, expression: str | None, where: str | None, to: str,
    partition_spec: str | None, convert: tuple[str, ...], manifest_ttl: int, target_file_size: int,
    master: str, conf: tuple[str, ...], source: str, source_wait: float, warehouse: Path,
    ledger: str | None, connect_timeout: float, read_timeout: float,
    commit_every: int, grace: float,
    *, everything: bool, evolve_schema: bool, strict: bool, force: bool, allow_empty: bool,
    beside: bool, verify: bool, dry_run: bool, as_json: bool
) -> int:  # fmt: skip
    """Export partitions of the ClickHouse TABLE (database.table) into an Iceberg table.

    Each partition becomes visible whole, or not at all. Running the command again is always safe:
    finished files are kept, and nothing is exported twice.

    \b
    Examples:
      mergeberg export db.events --partition-id 202401 --source chdb:./clickhouse \\
          --to lake.analytics.events
      mergeberg export db.events --all --where "partition_id < '202401'" --to lake.analytics.events
      mergeberg export db.events --all --to lake.analytics.events --dry-run
    """  # noqa: D301  \b is Click's mark for lines to keep
    if allow_empty and not force:
        message = "Cannot use --allow-empty alone: it only adds to --force. Give both."
        raise UsageError(message)
    output = output_for(as_json=as_json)
    request = ExportRequest(
        table=TableName.parse(table),
        to=parse_destination(to, TableName.parse(table), source, source_wait),
        selection=selection(partition_id, expression, where, everything=everything),
        wish=Wish(force=force, ttl=manifest_ttl, allow_empty=allow_empty, beside=beside),
        conversions=conversions(convert),
        strict=strict,
        partition_spec=partition_spec,
        evolve_schema=evolve_schema,
        commit_every=commit_every,
        format=FileFormat(target_file_bytes=target_file_size * _MIB),
    )
    time_outs = TimeOuts(connect_timeout, read_timeout)
    places = Places(source, request.to.catalog, warehouse, ledger, source_wait, time_outs)
    if dry_run:
        return show_rehearsal(request, places, output, slots=slots(master), as_json=as_json)
    spark = SparkWhenNeeded(SparkSettings(master, tuple(pairs("--conf", conf).items())))
    ports = open_ports(places, spark, output, verify=verify)
    with contextlib.closing(ports.ledger), Stopping(grace, output.note) as stopping:
        ports = replace(ports, should_stop=stopping.is_told)
        return exit_code(export_all(request, ports, master=master))


def selection(
    partition_id: str | None, expression: str | None, where: str | None, *, everything: bool
) -> Selection:
    """Return the partitions that the options choose.

    Raises:
        UsageError: none or several of the options choose, or --where is not with --all.
    """
    given = [partition_id is not None, expression is not None, everything]
    if sum(given) != 1 or (where is not None and not everything):
        message = (
            "Cannot choose partitions: give exactly one of --partition-id ID, --partition "
            "EXPRESSION and --all, and --where only with --all."
        )
        raise UsageError(message)
    if partition_id is not None:
        return ById(PartitionId(partition_id))
    if expression is not None:
        return ByExpression(expression)
    return AllPartitions(parse_filter(where) if where is not None else None)

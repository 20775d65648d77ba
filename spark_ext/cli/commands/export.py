"""`mergeberg export`: partitions into an Iceberg table."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from catalog.bounded_rest import TimeOuts
from catalog.shards import LocalTable, local_tables
from catalog.sources import SourcePlace
from spark_ext.cli.destination import parse_destination
from spark_ext.cli.options import (
    catalog_options,
    cluster_options,
    conversions,
    ledger_options,
    mapping_options,
    output_for,
    output_options,
    pairs,
    partition_options,
    selection,
    source_options,
    spark_options,
    where_option,
)
from spark_ext.cli.rehearsal import show_rehearsal
from spark_ext.exporting import exit_code, export_all, slots, worst
from spark_ext.session import SparkSettings
from spark_ext.sharding import each_table
from spark_ext.stopping import Stopping
from spark_ext.wiring import Places, SparkWhenNeeded, open_ports
from tableformat.errors import UsageError
from tableformat.export.claim import Wish
from tableformat.export.job import MOST_PARTITIONS, ExportRequest
from tableformat.export.retrying import MAX_RETRIES
from tableformat.export.slices import FileFormat
from tableformat.names import TableName

__all__ = ["export"]

_MIB: Final = 1024 * 1024


@click.command()
@click.argument("table")
@partition_options("Export")
@where_option
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
    "--replace-partition",
    "whole",
    is_flag=True,
    help="With --force: everything in the lake partition goes, also files that other engines "
    "rewrote and rows of others. Only where a lake partition holds one source partition.",
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
    help="With --all: at most so many partitions become visible in one snapshot; what is complete "
    "does so after a minute in any case.",
)
@click.option(
    "--max-retries",
    type=click.IntRange(0),
    default=MAX_RETRIES,
    show_default=True,
    help="How often a file is written again after an error that may pass (ClickHouse's "
    "export_merge_tree_partition_max_retries).",
)
@click.option(
    "--manifest-ttl",
    type=click.IntRange(0),
    default=180,
    show_default=True,
    help="Seconds during which exporting again is refused; 0 is for ever.",
)
@spark_options
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
@cluster_options
@source_options()
@ledger_options
@catalog_options
@output_options
def export(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, partition_id: str | None, expression: str | None, where: str | None, to: str,
    partition_spec: str | None, convert: tuple[str, ...], manifest_ttl: int, target_file_size: int,
    master: str, conf: tuple[str, ...], source: SourcePlace, warehouse: Path,
    ledger: str | None, connect_timeout: float, read_timeout: float,
    commit_every: int, max_retries: int, grace: float, cluster: str | None,
    cluster_host: tuple[str, ...],
    *, everything: bool, evolve_schema: bool, strict: bool, force: bool, allow_empty: bool,
    whole: bool, beside: bool, verify: bool, dry_run: bool, as_json: bool
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
    output = output_for(as_json=as_json)
    request = ExportRequest(
        table=TableName.parse(table),
        to=parse_destination(to, TableName.parse(table), source),
        selection=selection(partition_id, expression, where, everything=everything),
        wish=_wish(Wish(force, manifest_ttl, allow_empty, beside, whole)),
        conversions=conversions(convert),
        strict=strict,
        partition_spec=partition_spec,
        evolve_schema=evolve_schema,
        commit_every=commit_every,
        max_retries=max_retries,
        format=FileFormat(target_file_bytes=target_file_size * _MIB),
    )
    time_outs = TimeOuts(connect_timeout, read_timeout)
    places = Places(source, request.to.catalog, warehouse, ledger, time_outs)
    tables = local_tables(
        source, request.table, cluster=cluster, cluster_hosts=pairs("--cluster-host", cluster_host)
    )
    if dry_run:
        each = (
            (replace(request, table=one.table), replace(places, source=one.place)) for one in tables
        )
        free = slots(master)
        return worst(show_rehearsal(*one, output, slots=free, as_json=as_json) for one in each)
    spark = SparkWhenNeeded(SparkSettings(master, tuple(pairs("--conf", conf).items())))
    with Stopping(grace, output.note) as stopping:

        def export_one(one: LocalTable) -> int:
            ports = open_ports(replace(places, source=one.place), spark, output, verify=verify)
            with contextlib.closing(ports.ledger):
                wanted = replace(request, table=one.table)
                told = replace(ports, should_stop=stopping.is_told)
                return exit_code(export_all(wanted, told, master=master))

        return each_table(tables, export_one, output.note, doing="export from")


def _wish(wish: Wish) -> Wish:
    """Return the wish that the options say together.

    Raises:
        UsageError: they say nothing together.
    """
    if wish.allow_empty and not wish.force:
        message = "Cannot use --allow-empty alone: it only adds to --force. Give both."
        raise UsageError(message)
    if wish.whole and not wish.force:
        message = (
            "Cannot use --replace-partition alone: it says what --force replaces. Give both, or "
            "neither for an export that leaves files of others where they are."
        )
        raise UsageError(message)
    if wish.whole and wish.beside:
        message = (
            "Cannot use --replace-partition with --overwrite-file-if-exists: the one removes files "
            "of others, the other keeps them. Give one of them."
        )
        raise UsageError(message)
    return wish

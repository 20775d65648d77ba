"""`mergeberg export`: partitions into an Iceberg table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from catalog.network import TimeOuts
from catalog.shards import LocalTable, local_tables
from catalog.sources import SourcePlace
from spark_ext.actions.export import Stopping
from spark_ext.actions.export_ports import Places
from spark_ext.actions.metrics import Figures
from spark_ext.cli.background import NO_WAIT, begin
from spark_ext.cli.destination import open_destination, parse_destination
from spark_ext.cli.export_run import Exporting
from spark_ext.cli.metrics_server import metrics_option
from spark_ext.cli.next_command import following_command
from spark_ext.cli.options import (
    catalog_options,
    cluster_options,
    conversions,
    grace_option,
    hive_column_option,
    is_asked,
    ledger_options,
    limit_options,
    mapping_options,
    output_options,
    pairs,
    partition_options,
    selection,
    source_options,
    spark_options,
    where_option,
    yes_option,
)
from spark_ext.cli.sections import Invocation, SectionedCommand
from spark_ext.cli.summary import SummarizedObserver, Summary, summary_options
from spark_ext.engine.session import SparkSettings
from tableformat.errors import UsageError
from tableformat.export.cleanup import ABANDONED_TTL
from tableformat.export.decision import ExportOptions, check_options
from tableformat.export.job import MOST_PARTITIONS, ExportRequest
from tableformat.export.request import Limits
from tableformat.export.slices import FileFormat
from tableformat.export.writers import MAX_RETRIES
from tableformat.ledger import MANIFEST_TTL
from tableformat.names import TableName

__all__ = ["export"]


@click.command(cls=SectionedCommand)
@click.argument("table")
@partition_options("Export")
@where_option
@click.option(
    "--to",
    required=True,
    help="The destination: catalog.namespace.table, or hive:URI for a tree of Hive directories.",
)
@mapping_options
@hive_column_option
@click.option(
    "--force",
    is_flag=True,
    help="Export again: in one snapshot the new files replace the old ones, also if they have "
    "fewer rows.",
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
    help="With --force: remove everything in the lake partition, also files that other engines "
    "rewrote and rows of others. Only if a lake partition holds one source partition. In a tree "
    "of Hive directories: remove the exported files of the partition; a reader that lists "
    "directories sees old and new files until gc removes the old ones.",
)
@click.option(
    "--overwrite-file-if-exists",
    "beside",
    is_flag=True,
    help="Continue although the partition has files of other writers, or rows of other tables of "
    "this name. They are never removed (ClickHouse's "
    "export_merge_tree_part_overwrite_file_if_exists).",
)
@click.option(
    "--same-table",
    is_flag=True,
    help="The replicated TABLE is the exported one, although its node in Keeper has changed, "
    "because Keeper was restored. The new node is remembered.",
)
@click.option(
    "--same-as",
    metavar="IDENTITY",
    default="",
    help="TABLE was restored, moved or created again: continue with its exports under this "
    "identity, as the refusal names it.",
)
@click.option(
    "--commit-every",
    type=click.IntRange(1, MOST_PARTITIONS),
    default=MOST_PARTITIONS,
    show_default=True,
    help="With --all: at most this many partitions become visible in one snapshot. Finished "
    "partitions become visible after a minute in any case.",
)
@click.option(
    "--max-retries",
    type=click.IntRange(0),
    default=MAX_RETRIES,
    show_default=True,
    help="How often a file is written again after a temporary error (ClickHouse's "
    "export_merge_tree_partition_max_retries).",
)
@click.option(
    "--manifest-ttl",
    type=click.IntRange(0),
    default=MANIFEST_TTL,
    show_default=True,
    help="Seconds during which another export of the partition is refused; 0 is for ever.",
)
@click.option(
    "--abandoned-ttl",
    type=click.IntRange(0),
    default=ABANDONED_TTL,
    show_default=True,
    help="Seconds after which an interrupted export into the same table is given up at the end of "
    "this one, and its files are removed; 0 is never.",
)
@limit_options
@metrics_option
@spark_options
@click.option(
    "--verify",
    is_flag=True,
    help="Compare every exported partition with its source after the commit, and keep the digest.",
)
@click.option(
    "--check-rows",
    is_flag=True,
    help="Where the parts of an exported partition changed (a merge, a mutation), compare its rows "
    "with those exported first; when they are equal, nothing is written.",
)
@grace_option
@yes_option
@click.option(
    "--backfill",
    is_flag=True,
    help="Also export partitions that lack values of columns that the source got later.",
)
@click.option("--dry-run", is_flag=True, help="Only report what would be done.")
@click.option(
    NO_WAIT,
    is_flag=True,
    help="Return when the first files are being written, with the transactions. The export goes on "
    "in a process of its own, whose output is in a file; `mergeberg exports list` follows it.",
)
@cluster_options
@source_options()
@ledger_options
@catalog_options
@output_options
@summary_options
def export(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, partition_id: str | None, expression: str | None, where: str | None, to: str,
    partition_spec: str | None, convert: tuple[str, ...], manifest_ttl: int, abandoned_ttl: int,
    target_file_size: int, master: str, conf: tuple[str, ...], source: SourcePlace, warehouse: Path,
    ledger: str | None, time_outs: TimeOuts, commit_every: int, max_retries: int, grace: float,
    cluster: str | None, cluster_host: tuple[str, ...], hive_column: tuple[str, ...], same_as: str,
    limits: Limits, figures: Figures | None, summary: Summary, *, everything: bool, strict: bool,
    evolve_schema: bool, force: bool, allow_empty: bool, whole: bool, beside: bool, no_wait: bool,
    same_table: bool, verify: bool, check_rows: bool, yes: bool, backfill: bool, dry_run: bool
) -> int:  # fmt: skip
    """Export partitions of the ClickHouse TABLE (database.table) into an Iceberg table.

    Or, with --to hive:URI, into Parquet files in Hive directories, each partition with a commit
    file. A member of the partition key that is an expression has a directory when --hive-column
    names it.

    Each partition becomes visible whole, or not at all. Running the command again is always safe:
    finished files are kept, and nothing is exported twice.

    \b
    Examples:
      mergeberg export db.events --partition-id 202401 --to lake.analytics.events
      mergeberg export db.events --all --where "partition_id < '202401'" --to lake.analytics.events
      mergeberg export db.events --all --to lake.analytics.events --dry-run
      mergeberg export db.events --all --to hive:/data/events --hive-column 'month=toYYYYMM(ts)'
    """  # noqa: D301  \b is Click's mark for lines to keep
    _check_together(dry_run=dry_run, no_wait=no_wait)
    directories = pairs("--hive-column", hive_column)
    options = ExportOptions(force, manifest_ttl, allow_empty, beside, whole, same_table, same_as)
    request = ExportRequest(
        table=TableName.parse(table),
        to=parse_destination(to, TableName.parse(table), source, directories),
        selection=selection(partition_id, expression, where, everything=everything),
        options=check_options(replace(options, check_rows=check_rows)),
        conversions=conversions(convert),
        strict=strict,
        partition_spec=partition_spec,
        directories=directories,
        evolve_schema=evolve_schema,
        backfill=backfill,
        commit_every=commit_every,
        max_retries=max_retries,
        abandoned_ttl=abandoned_ttl,
        limits=limits,
        format=FileFormat(target_file_bytes=target_file_size),
    )
    lake = open_destination(
        request.to, warehouse=warehouse, time_outs=time_outs, looks_only=dry_run
    )
    tables = _tables(source, request.table, cluster, cluster_host)
    exporting = _exporting(master, conf, summary, figures)
    places = Places(source, lake, ledger)
    if dry_run:
        return exporting.rehearse(request, places, tables)
    if is_asked(yes=yes, as_json=summary.as_json):
        exporting.ask(request, places, tables)
    if no_wait:
        return _in_background(summary)
    with summary, Stopping(grace, summary.output.note) as stopping:
        return exporting.run(request, places, tables, stopping, verify=verify)


def _tables(
    source: SourcePlace, table: TableName, cluster: str | None, cluster_host: tuple[str, ...]
) -> tuple[LocalTable, ...]:
    """Return the tables that have the rows: one, or one of each shard."""
    hosts = pairs("--cluster-host", cluster_host)
    return local_tables(source, table, cluster=cluster, cluster_hosts=hosts)


def _exporting(
    master: str, conf: tuple[str, ...], summary: Summary, figures: Figures | None
) -> Exporting:
    """Return what runs the exports, whose outcomes a summary hears."""
    settings = SparkSettings(master, tuple(pairs("--conf", conf).items()))
    output, as_json = summary.output, summary.as_json
    observer = SummarizedObserver(output, summary)
    return Exporting(settings, output, as_json=as_json, observer=observer, figures=figures)


def _check_together(*, dry_run: bool, no_wait: bool) -> None:
    """Check that the options have a meaning together.

    Raises:
        UsageError: they have none.
    """
    if dry_run and no_wait:
        message = f"Cannot give --dry-run with {NO_WAIT}: a dry run begins nothing. Leave one out."
        raise UsageError(message)


def _in_background(summary: Summary) -> int:
    """Start the same command in a process of its own; return the exit code."""
    context = click.get_current_context()
    words = context.ensure_object(Invocation).words
    follow = following_command(words, context.find_root())
    return begin(words, summary.output, follow, as_json=summary.as_json)

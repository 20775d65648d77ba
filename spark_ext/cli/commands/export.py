"""The command `mergeberg export`: exports partitions into an Iceberg table or a Hive tree."""

from __future__ import annotations

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
from spark_ext.cli.next_command import following_command
from spark_ext.cli.option_values import conversions, is_asked, pairs, selection, spark_settings
from spark_ext.cli.sections import Invocation
from spark_ext.cli.summary import SummarizedObserver, Summary
from spark_ext.engine.session import SparkSettings
from tableformat.errors import UsageError
from tableformat.export.job import ExportRequest
from tableformat.export.request import ExportOptions, Limits, check_options
from tableformat.export.slices import FileFormat
from tableformat.names import TableName

__all__ = ["export"]


def export(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, partition_id: str | None, expression: str | None, where: str | None, to: str,
    partition_spec: str | None, convert: tuple[str, ...], hive_columns: tuple[str, ...],
    options: ExportOptions, limits: Limits, file_format: FileFormat, commit_every: int,
    max_retries: int, abandoned_ttl: int, grace: float, master: str, conf: tuple[str, ...],
    source: SourcePlace, cluster: str | None, cluster_host: tuple[str, ...], warehouse: Path,
    ledger: str | None, time_outs: TimeOuts, figures: Figures | None, summary: Summary, *,
    everything: bool, strict: bool, evolve_schema: bool, verify: bool, yes: bool, backfill: bool,
    dry_run: bool, no_wait: bool
) -> int:  # fmt: skip
    """Run `mergeberg export`; return the exit code."""
    _check_together(dry_run=dry_run, no_wait=no_wait)
    spark = spark_settings(master, conf)
    directories = pairs("--hive-column", hive_columns)
    request = ExportRequest(
        table=TableName.parse(table),
        to=parse_destination(to, TableName.parse(table), source, directories),
        selection=selection(partition_id, expression, where, everything=everything),
        options=check_options(options),
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
        format=file_format,
    )
    lake = open_destination(
        request.to, warehouse=warehouse, time_outs=time_outs, looks_only=dry_run
    )
    tables = _tables(source, request.table, cluster, cluster_host)
    exporting = _exporting(spark, summary, figures)
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
    """Return the tables to export: one table, or one for each shard."""
    hosts = pairs("--cluster-host", cluster_host)
    return local_tables(source, table, cluster=cluster, cluster_hosts=hosts)


def _exporting(settings: SparkSettings, summary: Summary, figures: Figures | None) -> Exporting:
    """Return the runner of the exports, which adds outcomes to the summary."""
    output, as_json = summary.output, summary.as_json
    observer = SummarizedObserver(output, summary)
    return Exporting(settings, output, as_json=as_json, observer=observer, figures=figures)


def _check_together(*, dry_run: bool, no_wait: bool) -> None:
    """Check that the options can be combined.

    Raises:
        UsageError: they cannot.
    """
    if dry_run and no_wait:
        message = f"Cannot give --dry-run with {NO_WAIT}: a dry run begins nothing. Leave one out."
        raise UsageError(message)


def _in_background(summary: Summary) -> int:
    """Start the same command in a background process; return the exit code."""
    context = click.get_current_context()
    words = context.ensure_object(Invocation).words
    follow = following_command(words, context)
    return begin(words, summary.output, follow, as_json=summary.as_json)

"""The command `mergeberg archive`: exports partitions and removes them from the source.

`--dry-run` reports which partitions would leave the source. It opens both sides for reading only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from pathlib import Path

from catalog.network import TimeOuts
from catalog.shards import LocalTable, local_tables
from catalog.sources import SourcePlace, check_alter_allowed, check_alter_rights
from spark_ext.actions.archive import Archived, archive, rehearse_archive
from spark_ext.actions.export import each_table, limited
from spark_ext.actions.export_ports import Places, SparkWhenNeeded, open_ports
from spark_ext.cli.destination import open_destination, parse_destination
from spark_ext.cli.export_run import ask_before_replacing
from spark_ext.cli.option_values import conversions, is_asked, pairs, selection, spark_settings
from spark_ext.cli.output import JsonOutput, Output, error_printer
from spark_ext.cli.summary import Effect, Line, Summary
from spark_ext.engine.session import slots
from tableformat.errors import Action
from tableformat.export.dry_run import Replaced, check_replacements
from tableformat.export.job import ExportRequest
from tableformat.export.options import LateRows
from tableformat.export.outcome import Outcome, Status, worst
from tableformat.export.ports import JobPorts, Observer, ObserverAround
from tableformat.export.request import ExportOptions, Limits
from tableformat.export.slices import FileFormat
from tableformat.names import TableName
from tableformat.quantities import counted, human_bytes

__all__ = ["archive_command", "show_archive_rehearsal"]


def show_archive_rehearsal(
    request: ExportRequest,
    places: Places,
    output: Output,
    of: LocalTable,
    slots: int,
    *,
    drop: bool,
) -> tuple[int, Replaced]:
    """Print the forecast of archiving each partition; return the exit code, and what it replaces.

    Args:
        request: selects the partitions to archive.
        places: the addresses of source, lake and ledger.
        output: the output of the command.
        of: the table, or that of one shard.
        slots: how many tasks could run at a time.
        drop: whether parts would be dropped instead of detached.

    Raises:
        TableFormatError: the request would be refused as a whole, or a side cannot be read.
    """
    forecasts, replaced = rehearse_archive(
        request, places, slots=slots, drop=drop, note=output.note, none=output.none_selected
    )
    for one in forecasts:
        if isinstance(output, JsonOutput):
            fields = asdict(one)
            del fields["exit_code"], fields["export"]
            output.record({**of.fields, **fields})
        else:
            output.say(f"partition {one.partition_id}: {one.message}")
    output.note("nothing was done: this was a dry run")
    return worst(one.exit_code for one in forecasts), replaced


def archive_command(  # noqa: PLR0913, PLR0917  one parameter per option
    table: str, partition_id: str | None, expression: str | None, where: str | None, to: str,
    partition_spec: str | None, convert: tuple[str, ...], file_format: FileFormat,
    master: str, conf: tuple[str, ...], source: SourcePlace, warehouse: Path,
    ledger: str | None, time_outs: TimeOuts, cluster: str | None, cluster_host: tuple[str, ...],
    hive_columns: tuple[str, ...], late_rows: str, same_as: str, max_replace: int | None,
    limits: Limits, summary: Summary, *, everything: bool, yes: bool,
    drop: bool, allow_alter: bool, evolve_schema: bool, strict: bool, dry_run: bool
) -> int:  # fmt: skip
    """Run `mergeberg archive`; return the exit code."""
    settings = spark_settings(master, conf)
    name, directories = TableName.parse(table), pairs("--hive-column", hive_columns)
    source = replace(source, allow_alter=allow_alter)
    check_alter_allowed(source, name, drop=drop)
    request = ExportRequest(
        table=name,
        to=parse_destination(to, name, source, directories, Action.ARCHIVE),
        selection=selection(partition_id, expression, where, everything=everything),
        # With the default TTL, a partition that changed since its export would be refused.
        options=ExportOptions(
            manifest_ttl=1,
            late_rows=LateRows(late_rows),
            same_as=same_as,
            max_replace=max_replace,
            action=Action.ARCHIVE,
        ),
        conversions=conversions(convert),
        strict=strict,
        partition_spec=partition_spec,
        directories=directories,
        evolve_schema=evolve_schema,
        limits=limits,
        format=file_format,
    )
    lake = open_destination(
        request.to, warehouse=warehouse, time_outs=time_outs, looks_only=dry_run
    )
    spark = SparkWhenNeeded(settings)
    hosts = pairs("--cluster-host", cluster_host)
    tables = local_tables(source, name, cluster=cluster, cluster_hosts=hosts)

    places, at_once = Places(source, lake, ledger), slots(master)
    if dry_run:
        return _rehearse(request, places, summary.output, tables, at_once, drop=drop)
    if is_asked(yes=yes, as_json=summary.as_json):
        ask_before_replacing(request, places, tables, slots=at_once)
    return _archive(request, places, spark, summary, tables, at_once, drop=drop)


def _archive(
    request: ExportRequest,
    places: Places,
    spark: SparkWhenNeeded,
    summary: Summary,
    tables: Sequence[LocalTable],
    slots: int,
    *,
    drop: bool,
) -> int:
    """Archive the partitions of all tables; return the exit code.

    Raises:
        TableFormatError: as for `archive`, or more partitions would be replaced than the request
            allows.
    """

    def opened(place: SourcePlace) -> JobPorts:
        return open_ports(replace(places, source=place), spark, _observer(summary), verify=True)

    opens = limited(request, tables, opened, slots=slots)

    def archive_one(one: LocalTable) -> int:
        at, wanted = replace(places, source=one.place), request.of_table(one.table, len(tables))
        check_alter_rights(one.place, one.table)
        ports = opens(one.place)
        with contextlib.closing(ports.ledger):
            found = archive(wanted, ports, at, slots=slots, drop=drop)
            return worst(_added(summary, each, one) for each in found)

    report = error_printer(summary.output)
    with summary:
        return each_table(tables, archive_one, summary.output.note, report, doing="archive from")


def _rehearse(
    request: ExportRequest,
    places: Places,
    output: Output,
    tables: Sequence[LocalTable],
    slots: int,
    *,
    drop: bool,
) -> int:
    """Print the forecasts of all tables; return the exit code.

    Raises:
        TableFormatError: as for `show_archive_rehearsal`, or more partitions would be replaced
            than the request allows.
    """
    found: list[Replaced] = []

    def rehearse_one(one: LocalTable) -> int:
        at, wanted = replace(places, source=one.place), request.of_table(one.table, len(tables))
        code, replaced = show_archive_rehearsal(wanted, at, output, one, slots, drop=drop)
        found.append(replaced)
        return code

    code = each_table(
        tables, rehearse_one, output.note, error_printer(output), doing="archive from"
    )
    check_replacements(request, sum(found, Replaced()))
    return code


@dataclass(frozen=True, slots=True)
class _ArchiveObserver(ObserverAround):
    """An observer that passes on only outcomes of exports that wrote files, if `is_shown`.

    The results of the archive have the other outcomes.
    """

    _: KW_ONLY
    is_shown: bool

    def finished(self, outcome: Outcome) -> None:
        """Pass on the outcome of an export that wrote files."""
        if self.is_shown and outcome.status in (Status.COMMITTED, Status.REPLACED):
            self.observer.finished(outcome)


def _observer(summary: Summary) -> Observer:
    """Return the observer of the exports."""
    return _ArchiveObserver(summary.output, is_shown=not summary.is_terse)


def _added(summary: Summary, one: Archived, of: LocalTable) -> int:
    """Add the result of a partition to a summary; return its exit code."""
    line = Line(
        one.outcome.partition_id,
        one.status,
        one.status,
        Effect.WRONG if one.exit_code else Effect.DONE,
        partial(_show, summary.output, one, of, as_json=summary.as_json),
        0 if one.exit_code else one.outcome.rows,
        one.freed_bytes,
    )
    summary.add(line)
    return one.exit_code


def _show(output: Output, one: Archived, of: LocalTable, *, as_json: bool) -> None:
    """Print the result of a partition."""
    if as_json:
        output.record(
            {
                **of.fields,
                "partition_id": one.outcome.partition_id,
                "source": one.status,
                "message": one.message,
                "detached_bytes": one.detached_bytes,
                "freed_bytes": one.freed_bytes,
                "export": asdict(one.outcome),
            }
        )
        return
    text = f"partition {one.outcome.partition_id}: {one.status}"
    if one.status == "kept":
        output.say(f"{text} in the source: {one.message}")
        return
    output.say(
        f"{text}{' before' if one.ended and not one.freed_bytes else ''} · "
        f"{counted(one.outcome.rows, 'row')} in {one.outcome.table}, snapshot "
        f"{one.outcome.snapshot_id}{', equal to the source' if one.outcome.verified else ''}"
        f"{f' · {human_bytes(one.freed_bytes)} freed' if one.freed_bytes else ''}"
    )
    if one.detached_bytes:
        size = human_bytes(one.detached_bytes)
        output.say(f"  {size} stay among its detached parts: --drop frees them")
    if one.message:
        output.say(f"  {one.message}")

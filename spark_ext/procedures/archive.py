"""The procedure `archive_partition`: exports partitions and removes them from their source."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

from catalog.shards import LocalTable
from catalog.sources import SourcePlace, check_alter_allowed, check_alter_rights
from spark_ext.actions.archive import Archived, archive, rehearse_archive
from spark_ext.actions.export import each_table, limited
from spark_ext.actions.export_ports import Places, RunningSpark, open_ports
from spark_ext.actions.logs import log_note
from spark_ext.procedures.declarations import Call, Column, Parameter, Procedure, Rows, Value
from spark_ext.procedures.export import (
    ALL_PARTITIONS,
    CLUSTER,
    CONVERT,
    DESTINATION,
    EVOLVE_SCHEMA,
    HIVE_COLUMNS,
    LATE_ROWS,
    LIMITS,
    MAX_BYTES_PER_FILE,
    MAX_REPLACE,
    PARTITION,
    PARTITION_ID,
    PARTITION_SPEC,
    SAME_AS,
    SHARD,
    SOURCE,
    STRICT,
    file_format,
    late_rows,
    limits,
    number_or_none,
    selection,
)
from spark_ext.procedures.names import CallNames
from spark_ext.sql.catalogs import refresh_errors, session_ledger
from spark_ext.sql.export import joined
from spark_ext.sql.session_settings import SourceTable
from tableformat.errors import Action, DestinationError, RefusedError, TableFormatError
from tableformat.export.dry_run import Replaced, check_replacements
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Status
from tableformat.export.ports import JobPorts, Silent
from tableformat.export.request import ExportOptions
from tableformat.messages import Option
from tableformat.names import LakeName

__all__ = ["ARCHIVE_PARTITION"]

_KEPT: Final = "kept"


def _archive(call: Call) -> Rows:
    names = CallNames.of(call)
    named, to = names.source("source"), names.destination("table")
    drop, dry_run = call.flag("drop"), call.flag("dry_run")
    _check_allowed(named, drop=drop)
    request = _request(call, named, to)
    lake = names.open_destination(to, looks_only=dry_run)
    places = Places(named.place, lake, session_ledger(names.names.settings, lake))
    tables = named.tables(cluster=call.text_or_none("cluster"))
    if dry_run:
        return _rehearsed(call, request, places, tables, drop=drop)
    slots = call.spark.sparkContext.defaultParallelism
    found: list[tuple[Archived, int | None]] = []
    errors: list[TableFormatError] = []

    def opened(place: SourcePlace) -> JobPorts:
        at = replace(places, source=place)
        return open_ports(at, RunningSpark(call.spark), Silent(), verify=True)

    opens = limited(request, tables, opened, slots=slots)

    def archive_one(one: LocalTable) -> int:
        check_alter_rights(one.place, one.table)
        at = replace(places, source=one.place)
        ports = opens(one.place)
        with contextlib.closing(ports.ledger):
            wanted = request.of_table(one.table, len(tables))
            found.extend((a, one.shard) for a in archive(wanted, ports, at, slots=slots, drop=drop))
        return 0

    try:
        each_table(tables, archive_one, log_note, doing="archive from")
    except TableFormatError as error:
        errors.append(error)
    finally:
        errors.extend(refresh_errors(call.spark, to))
    _check_gone(request, found, errors)
    return tuple(
        (
            one.outcome.partition_id, one.status, one.outcome.status.value, one.outcome.rows,
            one.outcome.data_files, one.outcome.snapshot_id, one.message or None, shard,
        )
        for one, shard in found
    )  # fmt: skip


def _request(call: Call, named: SourceTable, to: LakeName) -> ExportRequest:
    """Return the export request of a call.

    Raises:
        UsageError: an argument is malformed.
    """
    return ExportRequest(
        table=named.table,
        to=to,
        selection=selection(call, with_where=True),
        # With the default TTL, a partition that changed since its export would be refused.
        options=ExportOptions(
            manifest_ttl=1,
            max_replace=number_or_none(call, MAX_REPLACE.name),
            late_rows=late_rows(call),
            same_as=call.text_or_none("same_as") or "",
            action=Action.ARCHIVE,
        ),
        conversions=call.pairs("convert"),
        strict=call.flag("strict"),
        partition_spec=call.text_or_none("partition_spec"),
        directories=call.pairs("hive_columns"),
        evolve_schema=call.flag("evolve_schema"),
        limits=limits(call),
        format=file_format(call),
    )


def _rehearsed(
    call: Call,
    request: ExportRequest,
    places: Places,
    tables: tuple[LocalTable, ...],
    *,
    drop: bool,
) -> Rows:
    """Return the rows of a dry run: the forecast of every selected partition."""
    slots = call.spark.sparkContext.defaultParallelism
    found: list[tuple[Value, ...]] = []
    replaced: list[Replaced] = []

    def rehearse_one(one: LocalTable) -> int:
        forecasts, of_table = rehearse_archive(
            request.of_table(one.table, len(tables)),
            replace(places, source=one.place),
            slots=slots,
            drop=drop,
            note=log_note,
            none=log_note,
        )
        found.extend(
            (
                f.partition_id, f.source, f.export, f.rows, None, None, f.message,
                one.shard,
            )
            for f in forecasts
        )  # fmt: skip
        replaced.append(of_table)
        return 0

    each_table(tables, rehearse_one, log_note, doing="archive from")
    check_replacements(request, sum(replaced, Replaced()))
    return tuple(found)


def _check_allowed(named: SourceTable, *, drop: bool) -> None:
    """Check that the source allows changes; an embedded source needs allow-alter, too.

    Raises:
        UnsupportedError: the source is frozen parts.
        RefusedError: the source does not allow changes.
    """
    check_alter_allowed(named.place, named.table, drop=drop)
    if not named.place.allow_alter:
        message = (
            f"Cannot archive partitions of {named.table}: that detaches parts of the table, and "
            f"statements may change a source only if that is allowed. Set {Option.ALLOW_ALTER} to "
            "true."
        )
        raise RefusedError(message)


def _check_gone(
    request: ExportRequest,
    found: list[tuple[Archived, int | None]],
    errors: list[TableFormatError],
) -> None:
    """Check that all selected partitions have left the source.

    Raises:
        RefusedError: a partition stays in the source; the message also lists those that left.
        DestinationError: a partition stays because its export failed or has an unknown outcome, or
            because another process works on it.
        TableFormatError: one of `errors`, joined with the others.
    """
    kept = [(one, shard) for one, shard in found if one.status == _KEPT]
    wrong = [_stays(request, kept), *errors] if kept else errors
    if wrong:
        gone = [
            f"partition {one.outcome.partition_id}{_of(shard)} ({one.status})"
            for one, shard in found
            if one.status != _KEPT
        ]
        more = f"In the lake, and removed from the source: {', '.join(gone)}." if gone else ""
        raise joined(wrong, more)


def _stays(request: ExportRequest, kept: list[tuple[Archived, int | None]]) -> TableFormatError:
    """Return the error for the partitions that stay in the source."""
    reasons = " ".join(
        f"partition {one.outcome.partition_id}{_of(shard)}: {one.message.rstrip('.')}."
        for one, shard in kept
    )
    # A refused export, or a comparison that found a difference, ends alike when it is run again.
    is_outside = any(
        one.outcome.status is not Status.REFUSED and one.outcome.status.exit_code for one, _ in kept
    )
    kind = DestinationError if is_outside else RefusedError
    message = (
        f"Cannot archive partitions of {request.table} into {request.to}, they stay in the source: "
        f"{reasons} The same statement again is safe: it continues with the rest."
    )
    return kind(message, code=kept[0][0].outcome.code)


def _of(shard: int | None) -> str:
    return "" if shard is None else f" of shard {shard}"


ARCHIVE_PARTITION: Final = Procedure(
    name="archive_partition",
    description="Exports partitions, compares every column, and only then removes them from their "
    "ClickHouse. The source needs allow-alter.",
    parameters=(
        DESTINATION,
        SOURCE,
        PARTITION_ID,
        Parameter("drop", "BOOLEAN", "drop the parts; otherwise they stay detached", "false"),
        CONVERT,
        PARTITION_SPEC,
        HIVE_COLUMNS,
        CLUSTER,
        PARTITION,
        ALL_PARTITIONS,
        Parameter(
            "where",
            "STRING",
            "with all_partitions: only those that this filter over partition_id, rows, ... keeps",
            "NULL",
        ),
        STRICT,
        EVOLVE_SCHEMA,
        MAX_BYTES_PER_FILE,
        *LIMITS,
        LATE_ROWS,
        SAME_AS,
        Parameter("dry_run", "BOOLEAN", "only report what would leave the source", "false"),
        MAX_REPLACE,
    ),
    columns=(
        Column("partition_id", "STRING", "the partition"),
        Column("status", "STRING", "detached or dropped; with dry_run detach, drop or keep"),
        Column(
            "export_status",
            "STRING",
            "committed, replaced, unchanged, already_exported; with dry_run export, replace, ...",
        ),
        Column("rows", "BIGINT", "rows of the partition in the lake"),
        Column("data_files", "BIGINT", "its data files there"),
        Column("snapshot_id", "BIGINT", "the snapshot that made them visible"),
        Column("message", "STRING", "what remains to be done by hand"),
        SHARD,
    ),
    run=_archive,
)

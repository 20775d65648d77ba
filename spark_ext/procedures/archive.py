"""The procedure that moves a partition into the lake, and out of its ClickHouse."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Final

from catalog.shards import LocalTable
from catalog.sources import check_alter_allowed, check_alter_rights
from spark_ext.actions.archive import Archived, archive
from spark_ext.actions.export import each_table
from spark_ext.actions.wiring import Places, RunningSpark, open_ports
from spark_ext.procedures.declared import Call, Column, Parameter, Procedure, Rows
from spark_ext.procedures.export import (
    CLUSTER,
    CONVERT,
    DESTINATION,
    HIVE_COLUMNS,
    PARTITION_ID,
    PARTITION_SPEC,
    SHARD,
    SOURCE,
)
from spark_ext.procedures.names import CallNames
from spark_ext.sql.catalogs import session_ledger, unseen
from spark_ext.sql.export import joined
from spark_ext.sql.session_settings import SourceTable
from spark_ext.sql.statement_settings import limits_of_session
from spark_ext.sql.wording import in_call
from tableformat.errors import DestinationError, RefusedError, TableFormatError
from tableformat.export.decision import Wish
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Status
from tableformat.export.ports import Silent
from tableformat.export.request import ById
from tableformat.names import PartitionId

__all__ = ["ARCHIVE_PARTITION"]

_LOGGER: Final = logging.getLogger("mergeberg")
_KEPT: Final = "kept"


def _archive(call: Call) -> Rows:
    names = CallNames.of(call)
    named, to = names.source("source"), names.destination("table")
    drop = call.flag("drop")
    _check_allowed(named, drop=drop)
    request = ExportRequest(
        table=named.table,
        to=to,
        selection=ById(PartitionId(call.text("partition_id"))),
        # What changed since its export is to be exported anew, not to be refused for a while.
        wish=Wish(ttl=1),
        conversions=call.pairs("convert"),
        partition_spec=call.text_or_none("partition_spec"),
        directories=call.pairs("hive_columns"),
        limits=limits_of_session(call.conf),
    )
    lake = names.open_destination(to)
    places = Places(named.place, lake, session_ledger(names.names.settings, lake))
    slots = call.spark.sparkContext.defaultParallelism
    found: list[tuple[Archived, int | None]] = []
    errors: list[TableFormatError] = []
    tables = named.tables(cluster=call.text_or_none("cluster"))

    def archive_one(one: LocalTable) -> int:
        check_alter_rights(one.place, one.table)
        at = replace(places, source=one.place)
        ports = open_ports(at, RunningSpark(call.spark), Silent(), verify=True)
        with contextlib.closing(ports.ledger):
            wanted = request.of_table(one.table, len(tables))
            found.extend((a, one.shard) for a in archive(wanted, ports, at, slots=slots, drop=drop))
        return 0

    try:
        each_table(tables, archive_one, _LOGGER.info, doing="archive from")
    except TableFormatError as error:
        errors.append(error)
    finally:
        errors.extend(unseen(call.spark, to))
    _check_gone(request, found, errors)
    return tuple(
        (
            one.outcome.partition_id, one.status, one.outcome.status.value, one.outcome.rows,
            one.outcome.data_files, one.outcome.snapshot_id, in_call(one.message) or None, shard,
        )
        for one, shard in found
    )  # fmt: skip


def _check_allowed(named: SourceTable, *, drop: bool) -> None:
    """Check that the source has allow-alter; an embedded source needs it, too.

    Raises:
        UnsupportedError: it is frozen parts.
        RefusedError: they may not.
    """
    check_alter_allowed(named.place, named.table, drop=drop)
    if not named.place.allow_alter:
        message = (
            f"Cannot archive partitions of {named.table}: that takes parts out of the table, and "
            "statements may change a source only where that is allowed. Set --allow-alter to true."
        )
        raise RefusedError(message)


def _check_gone(
    request: ExportRequest,
    found: list[tuple[Archived, int | None]],
    errors: list[TableFormatError],
) -> None:
    """Check that what was named has left the source; say what has, when not everything did.

    Raises:
        RefusedError: something was kept there.
        DestinationError: something was kept, and how its export stands is not known.
        TableFormatError: one of `errors`, with what else there is to say.
    """
    kept = [(one, shard) for one, shard in found if one.status == _KEPT]
    wrong = [_stays(request, kept), *errors] if kept else errors
    if wrong:
        gone = [
            f"partition {one.outcome.partition_id}{_of(shard)} ({one.status})"
            for one, shard in found
            if one.status != _KEPT
        ]
        said = f"In the lake, and taken out of the source: {', '.join(gone)}." if gone else ""
        raise joined(wrong, said)


def _stays(request: ExportRequest, kept: list[tuple[Archived, int | None]]) -> TableFormatError:
    """Return the error about what was kept in the source."""
    said = " ".join(
        f"partition {one.outcome.partition_id}{_of(shard)}: {one.message.rstrip('.')}."
        for one, shard in kept
    )
    unknown = (Status.UNKNOWN, Status.DIFFERS, Status.UNVERIFIED, Status.FAILED, Status.STOPPED)
    is_outside = any(one.outcome.status in unknown for one, _ in kept)
    kind = DestinationError if is_outside else RefusedError
    message = (
        f"Cannot archive partitions of {request.table} into {request.to}, they stay in the source: "
        f"{said} The same statement again is safe: it goes on with what is left."
    )
    return kind(message, code=kept[0][0].outcome.code)


def _of(shard: int | None) -> str:
    return "" if shard is None else f" of shard {shard}"


ARCHIVE_PARTITION: Final = Procedure(
    name="archive_partition",
    description="Exports a partition, compares every column, and only then removes it from its "
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
    ),
    columns=(
        Column("partition_id", "STRING", "the partition"),
        Column("status", "STRING", "detached or dropped"),
        Column("export_status", "STRING", "committed, replaced, unchanged, already_exported"),
        Column("rows", "BIGINT", "rows of the partition in the lake"),
        Column("data_files", "BIGINT", "its data files there"),
        Column("snapshot_id", "BIGINT", "the snapshot that made them visible"),
        Column("message", "STRING", "what remains to be done by hand"),
        SHARD,
    ),
    run=_archive,
)

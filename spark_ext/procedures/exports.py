"""The procedures `exports`, `cancel_export` and `forget_export`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from spark_ext.actions.cancel import (
    Cancelled,
    by_destination,
    cancel_each,
    forget_exports,
    rows_to_cancel,
    rows_under_way,
)
from spark_ext.actions.exports import (
    ListedExport,
    NamedTable,
    list_exports,
    named_table,
    named_to_list,
)
from spark_ext.actions.logs import log_note
from spark_ext.procedures.declarations import Call, Column, Parameter, Procedure, Rows, Value
from spark_ext.procedures.export import DESTINATION, PARTITION_ID, SOURCE
from spark_ext.procedures.names import CallNames
from spark_ext.sql.catalogs import refresh_errors
from spark_ext.sql.export import joined
from spark_ext.system_tables import timestamp
from tableformat.errors import DestinationError, RefusedError, TableFormatError, UsageError
from tableformat.export.options import PROOF_SECONDS
from tableformat.ledger import Row, Standing
from tableformat.names import LakeName, PartitionId, TableName

__all__ = ["CANCEL_EXPORT", "EXPORTS", "FORGET_EXPORT", "export_row"]


def _exports(call: Call) -> Rows:
    names, status = CallNames.of(call), _status(call)
    limit = _limit(call)
    wanted = names.end("table") if call.text_or_none("table") is not None else None
    name = wanted if isinstance(wanted, LakeName) else None
    source = "table" if wanted is not None and name is None else "source"
    if source == "table" and call.text_or_none("source") is not None:
        message = (
            f"Cannot list exports of two sources: `table` is {call.text('table')!r}, a ClickHouse "
            "table. Give one by `source`, and the lake table by `table`."
        )
        raise UsageError(message)
    is_named = call.text_or_none(source) is not None
    of_source = str(names.source(source).table) if is_named else None
    into = None
    if name is not None:
        into = named_to_list(name, partial(names.open_destination, looks_only=True), log_note)
    with contextlib.closing(names.open_ledger(name)) as ledger:
        found = tuple(
            export_row(one if into is None else replace(one, row=into.named(one.row)))
            for one in list_exports(ledger)
            if (into is None or into.has(one.row))
            and of_source in (None, one.row.source_table)
            and status in (None, one.status)
        )
    return found if limit is None else found[:limit]


def _limit(call: Call) -> int | None:
    """Return the maximum number of exports to list; None for all.

    Raises:
        UsageError: the number is less than 1.
    """
    if call.arguments["limit"] is None:
        return None
    limit = call.number("limit")
    if limit < 1:
        message = f"Cannot list {limit} exports. Give `limit` a number from 1, or leave it out."
        raise UsageError(message)
    return limit


def _status(call: Call) -> Standing | None:
    text = call.text_or_none("status")
    if text is None:
        return None
    if text.upper() not in [*Standing]:
        known = ", ".join(Standing)
        message = f"Cannot list exports: {text!r} is no status. Write one of {known}."
        raise UsageError(message)
    return Standing(text.upper())


def export_row(one: ListedExport) -> tuple[Value, ...]:
    """Return a row of the procedure `exports`."""
    row, of = one.row, one.export
    return (
        row.source_table,
        row.destination_table,
        row.key.partition_id,
        one.status.value,
        of.rows,
        of.data_files,
        of.bytes,
        one.snapshot_id,
        of.transaction_id,
        timestamp(of.begun),
        timestamp(row.updated),
        one.last_error or None,
        one.changed_by or None,
    )


def _cancel_export(call: Call) -> Rows:
    names = CallNames.of(call)
    of = _named(names)
    wait = call.arguments["wait"]
    if not isinstance(wait, int | float) or wait < 0:
        message = f"Cannot wait {wait} seconds. Give `wait` a number of seconds from 0."
        raise UsageError(message)
    found: list[tuple[Row, Cancelled | TableFormatError]] = []
    with contextlib.closing(names.open_ledger(of.to)) as ledger:
        into = _present(names, of.to) if of.to is not None else None
        if of.partition_id is None or of.table is None:
            rows = rows_under_way(ledger, of.table, into)
        else:
            rows = rows_to_cancel(ledger, of.partition_id, of.table, into)
        ended = cancel_each(rows, names.open_destination, ledger, wait=wait, note=log_note)
        found.extend((row, _or_error(row, result)) for row, result in ended)
    errors = [result for _, result in found if isinstance(result, TableFormatError)]
    for to, _ in by_destination(row for row, _ in found):
        errors.extend(refresh_errors(call.spark, to))
    given_up = [(row, result) for row, result in found if isinstance(result, Cancelled)]
    if errors:
        ids = ", ".join(row.last.transaction_id for row, _ in given_up)
        raise joined(errors, f"Given up: the transactions {ids}." if given_up else "")
    return tuple(
        (
            row.key.partition_id,
            row.destination_table,
            result.status,
            result.cleaned.files,
            result.cleaned.bytes,
            row.last.transaction_id,
        )
        for row, result in given_up
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """The exports that a call selects; None for all partitions, source tables or destinations."""

    partition_id: PartitionId | None
    table: TableName | None
    to: LakeName | None


def _named(names: CallNames) -> _Named:
    """Return the exports to cancel.

    Raises:
        UsageError: the arguments select no exports, or a name cannot be resolved.
    """
    call = names.call
    one, everything = call.text_or_none("partition_id"), call.flag("all_exports")
    has_source = call.text_or_none("source") is not None
    if everything == (one is not None) or (one is not None and not has_source):
        message = (
            "Cannot cancel exports: give `partition_id` and `source`, or `all_exports => true`."
        )
        raise UsageError(message)
    return _Named(
        PartitionId(one) if one is not None else None,
        names.source("source").table if has_source else None,
        names.destination("table") if call.text_or_none("table") is not None else None,
    )


def _or_error(row: Row, result: Cancelled | TableFormatError) -> Cancelled | TableFormatError:
    """Return the result if the export was cancelled, else an error."""
    if isinstance(result, TableFormatError):
        return result
    what = (
        f"Cannot cancel the export of partition {row.key.partition_id} of {row.source_table} to "
        f"{row.destination_table}"
    )
    if result.status in ("committed", "in_progress"):
        return RefusedError(f"{what}: {result.text}.")
    if result.status == "unknown":
        again = "Give the statement again, or a longer `wait`."
        return DestinationError(f"{what}: {result.text}. {again}")
    return result


def _forget_export(call: Call) -> Rows:
    names = CallNames.of(call)
    table, to = names.source("source").table, names.destination("table")
    partition_id = PartitionId(call.text("partition_id"))
    with contextlib.closing(names.open_ledger(to)) as ledger:
        return tuple(
            (partition_id.value, row.destination_table, report)
            for row, report in forget_exports(
                ledger, partition_id.value, table, _present(names, to)
            )
        )


def _present(names: CallNames, to: LakeName) -> NamedTable:
    return named_table(to, partial(names.open_destination, looks_only=True))


EXPORTS: Final = Procedure(
    name="exports",
    description="Lists the exports in the ledger, latest first.",
    parameters=(
        Parameter(
            "table", "STRING", "only of this source.database.table, or into this lake table", "NULL"
        ),
        Parameter(
            "status",
            "STRING",
            "IN_PROGRESS, INTERRUPTED, FAILED, KILLED, COMPLETED or ARCHIVED",
            "NULL",
        ),
        Parameter("source", "STRING", "only of this source.database.table", "NULL"),
        Parameter("limit", "INT", "at most this many, the latest; NULL for all", "NULL"),
    ),
    columns=(
        Column("source_table", "STRING", "database.table in ClickHouse"),
        Column("destination_table", "STRING", "the lake table"),
        Column("partition_id", "STRING", "the partition"),
        Column("status", "STRING", "the state of its last export"),
        Column("rows", "BIGINT", "its rows, so far"),
        Column("data_files", "BIGINT", "its data files, so far"),
        Column("bytes", "BIGINT", "their size, so far"),
        Column("snapshot_id", "BIGINT", "the snapshot that has it; NULL if none has"),
        Column("transaction_id", "STRING", "the last export"),
        Column("create_time", "TIMESTAMP", "when the export began"),
        Column("update_time", "TIMESTAMP", "when the ledger was last updated"),
        Column("last_error", "STRING", "why the last export failed"),
        Column(
            "changed_by", "STRING", "the last statement on the lake table that changed its rows"
        ),
    ),
    run=_exports,
)
CANCEL_EXPORT: Final = Procedure(
    name="cancel_export",
    description="Cancels running exports: nothing of them becomes visible.",
    parameters=(
        replace(DESTINATION, comment=f"{DESTINATION.comment}; NULL for any", default="NULL"),
        replace(SOURCE, comment=f"{SOURCE.comment}; NULL for any", default="NULL"),
        PARTITION_ID,
        Parameter(
            "wait",
            "DOUBLE",
            "seconds to wait for the proof that nothing can land any more",
            f"{PROOF_SECONDS}D",
        ),
        Parameter("all_exports", "BOOLEAN", "or all running exports", "false"),
    ),
    columns=(
        Column("partition_id", "STRING", "the partition"),
        Column("destination_table", "STRING", "the lake table"),
        Column("status", "STRING", "killed; failed if it was given up earlier"),
        Column("removed_files", "BIGINT", "data files that were removed"),
        Column("removed_bytes", "BIGINT", "their bytes"),
        Column("transaction_id", "STRING", "the export"),
    ),
    run=_cancel_export,
)
FORGET_EXPORT: Final = Procedure(
    name="forget_export",
    description="Lets a partition be exported again before its manifest TTL is over.",
    parameters=(DESTINATION, SOURCE, replace(PARTITION_ID, default=None)),
    columns=(
        Column("partition_id", "STRING", "the partition"),
        Column("destination_table", "STRING", "the lake table"),
        Column("message", "STRING", "the change, and what the ledger keeps"),
    ),
    run=_forget_export,
)

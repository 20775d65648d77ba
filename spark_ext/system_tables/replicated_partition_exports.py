"""`mergeberg.system.replicated_partition_exports`: the exports, one row for each partition.

The columns of RQ…SystemTables.Exports by their names, then ours (readings 11, 17). A row says what
the last export of a partition into a table is, or became, whatever statements on the lake table do
with its rows; `statement`, `changed_by` and `rows_in_main` are of these. Rows stay when the TTL of
the manifest is over, and `expired` says so.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from spark_ext.known_destinations import LOOKING, KnownDestinations
from spark_ext.listing_exports import ListedExport, list_exports
from spark_ext.part_progress import failed_parts, in_ledger, processed
from spark_ext.procedures.declared import Call, Column, Rows, SystemTable, Value
from spark_ext.sql.catalogs import open_destination_in
from spark_ext.system_tables.known_ledger import known_ledger
from spark_ext.system_tables.times import timestamp
from tableformat.errors import TableFormatError
from tableformat.ledger import State

__all__ = ["REPLICATED_PARTITION_EXPORTS", "export_row"]

_LOGGER: Final = logging.getLogger("mergeberg")


def _run(call: Call) -> Rows:
    with known_ledger(call.conf) as ledger:
        found = () if ledger is None else tuple(list_exports(ledger))
    lake = KnownDestinations(
        partial(open_destination_in, call.conf, looks_only=True, time_outs=LOOKING)
    )
    return tuple(export_row(one, _processed(one, lake)) for one in found)


def export_row(one: ListedExport, processed_number: int) -> tuple[Value, ...]:
    """Return a row of the table.

    Args:
        one: the export.
        processed_number: how many of its parts are wholly in finished files.
    """
    row, of = one.row, one.export
    is_done = of.state is State.COMPLETED
    return (
        row.source_table,
        row.destination_table,
        row.key.partition_id,
        one.status.value,
        len(one.parts),
        processed_number,
        failed_parts(one, processed_number),
        timestamp(of.begun),
        timestamp(row.updated),
        of.query_id,
        of.transaction_id,
        one.snapshot_id if is_done else None,
        of.error,
        one.changed_by,
        one.statement,
        one.rows_in_main,
        one.expired,
        of.rows,
        of.data_files,
        of.bytes,
    )


def _processed(one: ListedExport, lake: KnownDestinations) -> int:
    try:
        return len(processed(one, lake))
    except TableFormatError as error:
        # A lake that does not answer must not hide the exports that fail for it.
        _LOGGER.warning("%s: %s", one.row.destination_table, error)
        return len(in_ledger(one))


REPLICATED_PARTITION_EXPORTS: Final = SystemTable(
    name="replicated_partition_exports",
    description="The exports of partitions: those under way, and what became of the others.",
    columns=(
        Column("source_table", "STRING", "the ClickHouse table"),
        Column("destination_table", "STRING", "the lake table"),
        Column("partition_id", "STRING", "the partition's id, as in system.parts"),
        Column(
            "status", "STRING", "IN_PROGRESS, INTERRUPTED, FAILED, KILLED, COMPLETED or ARCHIVED"
        ),
        Column("parts_total", "BIGINT", "source parts of the partition, as it was frozen"),
        Column("parts_processed", "BIGINT", "those that are wholly in finished files"),
        Column("parts_failed", "BIGINT", "of FAILED and KILLED, those that are not"),
        Column("create_time", "TIMESTAMP", "when the export was begun"),
        Column("update_time", "TIMESTAMP", "when the ledger last heard of it"),
        Column("query_id", "STRING", "the statement that works on it, or did; for KILL QUERY"),
        Column("transaction_id", "STRING", "the export, also in the names of its files"),
        Column("snapshot_id", "BIGINT", "of COMPLETED, the snapshot that made it visible"),
        Column("last_error", "STRING", "why it did not end, '' when nothing went wrong"),
        Column(
            "changed_by",
            "STRING",
            "the last statement on the lake table that changed it since, '' for none",
        ),
        Column(
            "statement",
            "STRING",
            "the statement on the lake table that has claimed its rows and not ended, '' for none",
        ),
        Column(
            "rows_in_main",
            "BIGINT",
            "rows of the partition in main, 0 after DROP; NULL where the ledger does not know",
        ),
        Column(
            "expired",
            "BOOLEAN",
            "of COMPLETED, whether the TTL of its manifest is over: it may be exported again",
        ),
        Column("rows", "BIGINT", "rows of the export, 0 before its files are there"),
        Column("data_files", "BIGINT", "its data files"),
        Column("bytes", "BIGINT", "the size of its data files"),
    ),
    run=_run,
)

"""System tables of exports: `replicated_partition_exports`, `events`, `metrics` and `part_log`.

`mergeberg.system.replicated_partition_exports` has one row for each partition and lake table: the
columns of RQ…SystemTables.Exports by their names, then ours. A row describes the last export.
Statements on the lake table change only `statement`, `changed_by` and `rows_in_main`. Rows stay
after the TTL of the manifest; `expired` marks them.

`events` and `metrics` have ClickHouse's names. PartsExports, PartsExportFailures and
PartsExportDuplicated count source parts since the ledger was created. Export is the number of
partitions that are being exported now (RQ…Logging, RQ…Metrics.Export).

`part_log` has one row per source part and attempt (RQ…Logging). If an export was refused or
failed before its parts were known, one row with an empty `part_name` is about the partition.
So sums over rows count nothing twice.

Times are Spark TIMESTAMPs, as ISO text in JSON. The ledger is the one that records the session's
exports. The page for users is docs/reference/system-tables.md.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from spark_ext.actions.exports import (
    LOOKING,
    KnownDestinations,
    ListedExport,
    failed_parts,
    in_ledger,
    list_exports,
    processed,
)
from spark_ext.procedures.declarations import Call, Column, Rows, SystemTable, Value
from spark_ext.sql.catalogs import has_ledger, open_destination_in, open_session_ledger
from tableformat.errors import TableFormatError
from tableformat.history import MEANINGS, MOST_EVENTS, RUNNING_EXPORTS, Counter, Event
from tableformat.ledger import Ledger, State

__all__ = [
    "EVENTS",
    "METRICS",
    "PART_LOG",
    "REPLICATED_PARTITION_EXPORTS",
    "event_row",
    "export_row",
    "known_ledger",
    "of_parts",
    "timestamp",
]


@contextlib.contextmanager
def known_ledger(conf: Mapping[str, str]) -> Iterator[Ledger | None]:
    """Open the ledger of a session while the context is open; None if it does not exist yet.

    The ledger is the one that `spark.mergeberg.ledger` names. Without this setting, it is the one
    in the warehouse of the built-in catalog, if the session has that catalog.

    Args:
        conf: the settings of the session.

    Raises:
        UsageError: a setting is malformed.
        UnsupportedError: this kind of ledger is not supported.
        LedgerError: the ledger cannot be opened.
    """
    if not has_ledger(conf):
        yield None
        return
    with contextlib.closing(open_session_ledger(conf)) as ledger:
        yield ledger if ledger.is_made() else None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(milliseconds: int) -> str:
    """Return milliseconds since 1970 as ISO text in UTC, with milliseconds and offset."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


_LOGGER: Final = logging.getLogger("mergeberg")


def _run(call: Call) -> Rows:
    with known_ledger(call.conf) as ledger:
        found = () if ledger is None else tuple(list_exports(ledger))
    lake = KnownDestinations(
        partial(open_destination_in, call.conf, looks_only=True, time_outs=LOOKING)
    )
    return tuple(export_row(one, _processed(one, lake)) for one in found)


def export_row(one: ListedExport, processed_number: int) -> tuple[Value, ...]:
    """Return a row of `replicated_partition_exports`.

    Args:
        one: the export.
        processed_number: the number of its parts whose rows are all in finished files.
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
        # Exports that fail because the lake cannot be reached must be listed nevertheless.
        _LOGGER.warning("%s: %s", one.row.destination_table, error)
        return len(in_ledger(one))


REPLICATED_PARTITION_EXPORTS: Final = SystemTable(
    name="replicated_partition_exports",
    description="The exports of partitions, running and ended.",
    columns=(
        Column("source_table", "STRING", "the ClickHouse table"),
        Column("destination_table", "STRING", "the lake table"),
        Column("partition_id", "STRING", "the partition's id, as in system.parts"),
        Column(
            "status", "STRING", "IN_PROGRESS, INTERRUPTED, FAILED, KILLED, COMPLETED or ARCHIVED"
        ),
        Column("parts_total", "BIGINT", "source parts in the snapshot of the partition"),
        Column("parts_processed", "BIGINT", "parts whose rows are all in finished files"),
        Column("parts_failed", "BIGINT", "for FAILED and KILLED, the other parts"),
        Column("create_time", "TIMESTAMP", "when the export began"),
        Column("update_time", "TIMESTAMP", "when the ledger was last updated"),
        Column("query_id", "STRING", "the query id of the statement, for KILL QUERY"),
        Column("transaction_id", "STRING", "the export, also in the names of its files"),
        Column("snapshot_id", "BIGINT", "for COMPLETED, the snapshot that made it visible"),
        Column("last_error", "STRING", "why the export failed, '' if it did not"),
        Column(
            "changed_by",
            "STRING",
            "the last statement on the lake table that changed its rows, '' if none did",
        ),
        Column(
            "statement",
            "STRING",
            "the unfinished statement on the lake table that has claimed its rows, '' if none has",
        ),
        Column(
            "rows_in_main",
            "BIGINT",
            "rows of the partition in main, 0 after DROP; NULL if the ledger does not know them",
        ),
        Column(
            "expired",
            "BOOLEAN",
            "for COMPLETED, whether its manifest TTL is over, so that it may be exported again",
        ),
        Column("rows", "BIGINT", "rows of the export, 0 before its files are finished"),
        Column("data_files", "BIGINT", "its data files"),
        Column("bytes", "BIGINT", "the size of its data files"),
    ),
    run=_run,
)


_VALUE: Final = Column("value", "BIGINT", "the count")
_DESCRIPTION: Final = Column("description", "STRING", "what is counted")


def _counted(call: Call, names: Collection[str]) -> Rows:
    with known_ledger(call.conf) as ledger:
        found = {} if ledger is None else ledger.counters()
    return tuple((name, value, MEANINGS[name]) for name, value in found.items() if name in names)


EVENTS: Final = SystemTable(
    name="events",
    description="Counters of all exports since the ledger was created, in source parts.",
    columns=(Column("event", "STRING", "the counter's name"), _VALUE, _DESCRIPTION),
    run=lambda call: _counted(call, frozenset(Counter)),
)
METRICS: Final = SystemTable(
    name="metrics",
    description="Exports that are running now.",
    columns=(Column("metric", "STRING", "the metric's name"), _VALUE, _DESCRIPTION),
    run=lambda call: _counted(call, {RUNNING_EXPORTS}),
)


def _part_log_rows(call: Call) -> Rows:
    with known_ledger(call.conf) as ledger:
        found = () if ledger is None else ledger.events(None, MOST_EVENTS)
    return tuple(event_row(event) for event in of_parts(found))


def of_parts(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events, without those of partitions whose parts have events of their own.

    Args:
        events: events in any order.
    """
    noted = tuple(events)
    with_parts = {_attempt(event) for event in noted if event.part_name}
    return (e for e in noted if e.part_name or _attempt(e) not in with_parts)


def _attempt(event: Event) -> tuple[int, str, str, str, str]:
    """Return the fields that are equal in all events of one attempt at a partition."""
    return event.time, event.table, event.destination, event.partition_id, event.transaction_id


def event_row(event: Event) -> tuple[Value, ...]:
    """Return a row of `part_log`."""
    return (
        timestamp(event.time),
        event.kind.value,
        event.table,
        event.destination,
        event.partition_id,
        event.part_name,
        event.status,
        event.rows,
        event.bytes_read,
        event.bytes_written,
        event.duration,
        event.query_id,
        event.transaction_id,
        event.error,
    )


PART_LOG: Final = SystemTable(
    name="part_log",
    description="The latest outcomes of exports, by source part.",
    columns=(
        Column("event_time", "TIMESTAMP", "when it ended"),
        Column("event_type", "STRING", "EXPORT_PARTITION"),
        Column("table", "STRING", "the ClickHouse table"),
        Column("destination_table", "STRING", "the lake table"),
        Column("partition", "STRING", "the partition's id"),
        Column("part_name", "STRING", "the source part; '' if no part is known"),
        Column("status", "STRING", "committed, replaced, already_exported, refused, failed, ..."),
        Column("rows", "BIGINT", "the part's rows, including rows deleted by DELETE FROM"),
        Column("bytes_read", "BIGINT", "its compressed bytes in ClickHouse"),
        Column("bytes_written", "BIGINT", "its share of the bytes of the files"),
        Column("duration_ms", "BIGINT", "duration of the whole partition"),
        Column("query_id", "STRING", "the statement"),
        Column("transaction_id", "STRING", "the export"),
        Column("error", "STRING", "why it failed or was refused, '' otherwise"),
    ),
    run=_part_log_rows,
)

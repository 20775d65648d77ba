"""`mergeberg.system.part_log`: what was tried of each source part, as ClickHouse logs merges.

RQ…Logging, reading 17. A row is about one source part; where no part is known, because the export
was refused or failed before, one row with an empty `part_name` is about the partition. So sums over
rows count nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from spark_ext.procedures.declared import Call, Column, Rows, SystemTable, Value
from spark_ext.system_tables.known_ledger import known_ledger
from spark_ext.system_tables.times import timestamp
from tableformat.history import MOST_EVENTS, Event

__all__ = ["PART_LOG", "event_row", "of_parts"]


def _run(call: Call) -> Rows:
    with known_ledger(call.conf) as ledger:
        found = () if ledger is None else ledger.events(None, MOST_EVENTS)
    return tuple(event_row(event) for event in of_parts(found))


def of_parts(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events without those of partitions whose parts have their own.

    Args:
        events: as a ledger gives them, or in any other order.
    """
    noted = tuple(events)
    with_parts = {_attempt(event) for event in noted if event.part_name}
    return (e for e in noted if e.part_name or _attempt(e) not in with_parts)


def _attempt(event: Event) -> tuple[int, str, str, str, str]:
    """Return what the events of one attempt at a partition share."""
    return event.time, event.table, event.destination, event.partition_id, event.transaction_id


def event_row(event: Event) -> tuple[Value, ...]:
    """Return a row of the table."""
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
    description="What was exported, refused and failed, part by part; the latest of it.",
    columns=(
        Column("event_time", "TIMESTAMP", "when it had ended"),
        Column("event_type", "STRING", "EXPORT_PARTITION"),
        Column("table", "STRING", "the ClickHouse table"),
        Column("destination_table", "STRING", "the lake table"),
        Column("partition", "STRING", "the partition's id"),
        Column("part_name", "STRING", "the source part; '' where no part is known"),
        Column("status", "STRING", "committed, replaced, already_exported, refused, failed, ..."),
        Column("rows", "BIGINT", "the part's rows, rows deleted by DELETE FROM included"),
        Column("bytes_read", "BIGINT", "its compressed bytes in ClickHouse"),
        Column("bytes_written", "BIGINT", "its share of the bytes of the files"),
        Column("duration_ms", "BIGINT", "of the whole partition"),
        Column("query_id", "STRING", "the statement"),
        Column("transaction_id", "STRING", "the export"),
        Column("error", "STRING", "why it failed or was refused, '' otherwise"),
    ),
    run=_run,
)

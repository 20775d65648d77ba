"""The tables of `mergeberg.system`: exports, their counters and log, and parts of lake tables.

`replicated_partition_exports` has one row for each partition and lake table: the columns of
RQ…SystemTables.Exports by their names, then ours. A row describes the last export. Statements on
the lake table change only `statement`, `changed_by` and `rows_in_main`. Rows stay after the TTL of
the manifest; `expired` marks them.

`events` and `metrics` have ClickHouse's names. PartsExports, PartsExportFailures and
PartsExportDuplicated count source parts since the ledger was created. Export is the number of
partitions that are being exported now (RQ…Logging, RQ…Metrics.Export).

`part_log` has one row per source part and attempt (RQ…Logging). If an export was refused or
failed before its parts were known, one row with an empty `part_name` is about the partition.
So sums over rows count nothing twice.

A part is a data file of a lake table that exports go to, with the rows it holds. `parts` lists
main, `detached_parts` the branch `detached`. `partitions` sums up main. The ledger gives the
ClickHouse partition of a file by the key in the file's name. A file that another writer wrote gets
the partition of its neighbours in the same lake partition, if they all belong to one; otherwise it
is NULL.

Times are Spark TIMESTAMPs, as ISO text in JSON. The ledger is the one that records the session's
exports. The page for users is docs/reference/system-tables.md.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
    present_names,
    processed,
)
from spark_ext.procedures.declarations import Call, Column, Rows, SystemTable, Value
from spark_ext.sql.catalogs import has_ledger, open_destination_in, open_session_ledger
from tableformat.committer import DETACHED_BRANCH, MAIN_BRANCH, LakeTableState
from tableformat.disks import Disks
from tableformat.errors import NotFoundError, TableFormatError
from tableformat.history import MEANINGS, MOST_EVENTS, RUNNING_EXPORTS, Counter, Event
from tableformat.iceberg.manifest_scan import LiveFile, lake_part_name, live_files
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Ledger, Row, State
from tableformat.names import HiveName, LakeName, PartitionId

__all__ = [
    "DETACHED_PARTS",
    "EVENTS",
    "METRICS",
    "PARTITIONS",
    "PARTS",
    "PART_LOG",
    "REPLICATED_PARTITION_EXPORTS",
    "LakePart",
    "event_row",
    "export_row",
    "known_ledger",
    "lake_parts",
    "of_parts",
    "partition_rows",
    "parts_of_files",
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


def _export_rows(call: Call) -> Rows:
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
    run=_export_rows,
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


@dataclass(frozen=True, slots=True)
class LakePart:
    """A data file of a lake table, as a part.

    `partition_id` is the ClickHouse partition; None if it is unknown. `source_parts` are the names
    of the ClickHouse parts whose rows are in the file, as far as the ledger has them. `disk` is
    None if the file is on no disk that the table names.
    """

    table: str
    partition_id: str | None
    file: LiveFile
    source_parts: tuple[str, ...]
    disk: str | None = None

    @property
    def name(self) -> str | None:
        """The name of the part; None without a partition id."""
        if self.partition_id is None:
            return None
        return str(lake_part_name(PartitionId(self.partition_id), self.file.path))


def lake_parts(conf: Mapping[str, str], branch: str = MAIN_BRANCH) -> Iterator[LakePart]:
    """Yield the parts of every lake table in the session's ledger.

    Args:
        conf: the settings of the session.
        branch: the branch of the parts.

    Raises:
        TableFormatError: ledger, catalog or storage cannot be read.
    """
    with known_ledger(conf) as ledger:
        rows = () if ledger is None else present_names(ledger.rows())
    lake = KnownDestinations(partial(open_destination_in, conf, looks_only=True))
    for name, (state, of_table) in sorted(_tables(rows, lake).items()):
        files, disks = live_files(table_of(state), branch), Disks.of(state)
        for part in parts_of_files(name, files, of_table):
            yield replace(part, disk=disks.disk_of(part.file.path))


def _tables(
    rows: Iterable[Row], lake: KnownDestinations
) -> dict[LakeName, tuple[LakeTableState, list[Row]]]:
    """Return the Iceberg tables of the ledger's rows, with their state and rows.

    Tables of catalogs that the session does not have are left out.
    """
    found: dict[LakeName, tuple[LakeTableState, list[Row]]] = {}
    for row in rows:
        name = LakeName.parse(row.destination_table)
        if isinstance(name, HiveName):
            continue
        try:
            state = lake.destination(row)
        except NotFoundError:
            # The session does not have the catalog of the table.
            continue
        if state is not None:
            found.setdefault(name, (state, []))[1].append(row)
    return found


def parts_of_files(
    name: LakeName, files: Iterable[LiveFile], rows: Iterable[Row]
) -> Iterator[LakePart]:
    """Yield a part for each data file.

    Args:
        name: the lake table.
        files: data files of the table, in any order.
        rows: the ledger's rows of exports into the table.
    """
    known, held = tuple(files), tuple(rows)
    by_key = {row.key.hash: row.key.partition_id for row in held}
    sources = _source_parts(held)
    neighbours = defaultdict[tuple[int, str], set[str]](set)
    for file in known:
        if file.key in by_key:
            neighbours[file.spec_id, file.partition].add(by_key[file.key])
    for file in known:
        there = neighbours.get((file.spec_id, file.partition), set())
        only = next(iter(there)) if len(there) == 1 else None
        yield LakePart(str(name), by_key.get(file.key, only), file, sources.get(file.path, ()))


def _source_parts(rows: Iterable[Row]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the source parts whose rows are in a file, by path of the file."""
    found = defaultdict[str, dict[str, None]](dict)
    for row in rows:
        for part in (*(row.done.parts if row.done else ()), *row.claim.parts):
            for path in part.remote_paths:
                found[path][part.name] = None
    return {path: tuple(names) for path, names in found.items()}


def _part_rows(branch: str, call: Call) -> Rows:
    return tuple(_part_row(part) for part in lake_parts(call.conf, branch))


def _part_row(part: LakePart) -> tuple[Value, ...]:
    file = part.file
    return (
        part.table,
        part.partition_id,
        file.partition,
        part.name,
        part.source_parts,
        file.rows,
        file.bytes,
        file.path,
        part.disk,
        file.snapshot_id,
    )


_PART_COLUMNS: Final = (
    Column("table", "STRING", "the lake table"),
    Column("partition_id", "STRING", "the ClickHouse partition's id; NULL if it is unknown"),
    Column("partition", "STRING", "the lake's partition: ts_month=2024-01"),
    Column("name", "STRING", "the part: <partition_id>_<n>_<n>_0; NULL without a partition id"),
    Column("source_parts", "ARRAY<STRING>", "the ClickHouse parts whose rows are in the file"),
    Column("rows", "BIGINT", "rows of the file, including rows that were deleted later"),
    Column("bytes", "BIGINT", "bytes of the file"),
    Column("file_path", "STRING", "the file"),
    Column("disk_name", "STRING", "the disk of the file; NULL if the table names none for it"),
    Column("snapshot_id", "BIGINT", "the snapshot that added it"),
)

PARTS: Final = SystemTable(
    name="parts",
    description="The parts of the lake tables that exports go to: a part is a data file of main.",
    columns=_PART_COLUMNS,
    run=partial(_part_rows, MAIN_BRANCH),
)

DETACHED_PARTS: Final = SystemTable(
    name="detached_parts",
    description="The parts that DETACH removed from main, until ATTACH or DROP DETACHED.",
    columns=_PART_COLUMNS,
    run=partial(_part_rows, DETACHED_BRANCH),
)


def _partition_rows(call: Call) -> Rows:
    return tuple(partition_rows(lake_parts(call.conf)))


def partition_rows(parts: Iterable[LakePart]) -> Iterator[tuple[Value, ...]]:
    """Yield a row of sums for each partition, in the order of its first part."""
    sums: dict[tuple[str, str | None, str], list[int]] = {}
    for part in parts:
        of_this = sums.setdefault((part.table, part.partition_id, part.file.partition), [0, 0, 0])
        for at, value in enumerate((1, part.file.rows, part.file.bytes)):
            of_this[at] += value
    return ((*partition, *of_this) for partition, of_this in sums.items())


PARTITIONS: Final = SystemTable(
    name="partitions",
    description="The partitions of the lake tables that exports go to, in main.",
    columns=(
        Column("table", "STRING", "the lake table"),
        Column("partition_id", "STRING", "the ClickHouse partition's id; NULL if it is unknown"),
        Column("partition", "STRING", "the lake's partition: ts_month=2024-01"),
        Column("parts", "BIGINT", "data files"),
        Column("rows", "BIGINT", "rows of the files, including rows that were deleted later"),
        Column("bytes", "BIGINT", "bytes of the files"),
    ),
    run=_partition_rows,
)

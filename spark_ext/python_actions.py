"""The Python functions to list, verify, archive and cancel exports, and to clean up.

    spark_ext.verify(spark, "lake.analytics.events", "ch.db.events", partition_id="202401")

| function | is |
|---|---|
| `archive` | the procedure `archive_partition`, `mergeberg archive` |
| `cancel` | the procedure `cancel_export`, `mergeberg exports cancel` |
| `check` | `mergeberg check` |
| `create_table_like` | the procedure of this name |
| `exports` | the procedure `exports`, `mergeberg exports list` |
| `forget_export` | the procedure of this name, `mergeberg exports forget` |
| `gc` | the procedure `gc`, `mergeberg gc` |
| `log` | `mergeberg exports log`, the system table `part_log` |
| `partitions`, `parts` | the procedures and commands of these names |
| `show_export` | `mergeberg exports show` |
| `verify` | the procedure `verify_partition`, `mergeberg verify` |

A function for a procedure has the procedure's parameters and defaults, and returns values with the
columns of its result. The page for users is docs/reference/python-api.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from catalog.clickhouse.server.grants import statements
from catalog.ledgers.memory import milliseconds
from catalog.shards import LocalTable
from catalog.sources import open_source
from catalog.storages.local import local_directory
from spark_ext.actions.check import (
    Check,
    CheckRequest,
    Space,
    check_export,
    checked_spaces,
)
from spark_ext.actions.export import each_table
from spark_ext.actions.exports import (
    LOOKING,
    KnownDestinations,
    ListedExport,
    exports_of,
    logged_events,
    named_to_list,
    parts_with_files,
)
from spark_ext.actions.logs import log_note
from spark_ext.procedures.archive import ARCHIVE_PARTITION
from spark_ext.procedures.declarations import Procedure, Value
from spark_ext.procedures.exports import CANCEL_EXPORT, EXPORTS, FORGET_EXPORT, export_row
from spark_ext.procedures.lake_tables import (
    CREATE_TABLE_LIKE,
    GC,
    PARTITIONS,
    PARTS,
    VERIFY_PARTITION,
)
from spark_ext.procedures.names import CallNames
from spark_ext.python_api import Given, called_rows, in_words, session_call
from spark_ext.python_values import (
    ArchivedPartition,
    CancelledExport,
    CheckedTable,
    CreatedTable,
    ExportRecord,
    ForgottenExport,
    Leftover,
    ListedPart,
    ListedPartition,
    LoggedOutcome,
    ShownExport,
    SourcePart,
    VerifiedPartition,
)
from spark_ext.sql.catalogs import open_destination_in
from spark_ext.sql.messages import in_python
from spark_ext.system_tables import known_ledger
from tableformat.errors import TableFormatError, UsageError
from tableformat.export.options import PROOF_SECONDS
from tableformat.export.slices import without_files
from tableformat.history import Event

__all__ = [
    "archive",
    "cancel",
    "check",
    "create_table_like",
    "exports",
    "forget_export",
    "gc",
    "log",
    "partitions",
    "parts",
    "show_export",
    "verify",
]

T = TypeVar("T")
_NOTHING: Final[Mapping[str, str]] = {}
_SENTENCES: Final = frozenset(("message", "why", "last_error"))
"""The columns with messages, which are reworded for Python."""


def archive(  # noqa: PLR0913  one parameter for each of the procedure
    spark: SparkSession,
    table: str,
    source: str,
    *,
    partition_id: str | None = None, drop: bool = False,
    convert: Mapping[str, str] = _NOTHING,
    partition_spec: str | None = None,
    hive_columns: Mapping[str, str] = _NOTHING,
    cluster: str | None = None,
    partition: str | None = None, all_partitions: bool = False, where: str | None = None,
    strict: bool = False, evolve_schema: bool = False,
    max_bytes_per_file: int | None = None,
    max_bandwidth: int | None = None, max_slices: int | None = None,
    parallel_formatting: bool | None = None,
    late_rows: str | None = None,
    same_as: str | None = None,
    dry_run: bool = False,
    max_replace: int | None = None,
) -> tuple[ArchivedPartition, ...]:  # fmt: skip
    """Export partitions, compare every column, and only then remove them from their ClickHouse.

    Args:
        spark: the session whose tasks write.
        table: the lake table, or hive.`uri` for a Hive tree.
        source: the ClickHouse table, `source.database.table`. Its source must have allow-alter.
        partition_id: the partition's id.
        drop: drop the parts; otherwise they stay detached.
        convert: conversions by column.
        partition_spec: the partition spec of a new lake table; None to derive it.
        hive_columns: for a Hive tree: the expression of the partition key by directory column.
        cluster: export the table of every shard of this cluster.
        partition: or a value of its key.
        all_partitions: or every partition.
        where: with `all_partitions`: a filter over partition_id, rows, bytes, min_time, max_time.
        strict: refuse columns whose values change kind, and a lake table with other columns or
            another order of columns.
        evolve_schema: add columns that the lake table lacks, and widen its types.
        max_bytes_per_file: bytes of a data file; None for the lake table's size, or 512 MiB.
        max_bandwidth: bytes per second of all tasks, 0 for no limit; None for the session's.
        max_slices: number of files written in parallel; None for the session's.
        parallel_formatting: False for one file at a time; None for the session's.
        late_rows: "append" adds rows that arrived after the partition was archived; "append-all"
            also if some of them may be archived; "refuse" adds none. None does what the lake
            table's property mergeberg.late-rows says, and refuses them without it.
        same_as: the identity under which the table was exported before; None for its own.
        dry_run: only report which partitions would leave the source.
        max_replace: refuse if more exported partitions would be replaced; None for no limit.

    Raises:
        TableFormatError: a partition stays in the source; the message has the reason.
    """
    return _called(ArchivedPartition, ARCHIVE_PARTITION, locals())


def verify(  # noqa: PLR0913  one parameter for each of the procedure
    spark: SparkSession,
    table: str,
    source: str,
    *,
    partition_id: str | None = None,
    convert: Mapping[str, str] = _NOTHING,
    cluster: str | None = None,
    partition: str | None = None, all_partitions: bool = False,
    same_as: str | None = None,
) -> tuple[VerifiedPartition, ...]:  # fmt: skip
    """Compare exported partitions with their source: rows, and NULLs, bounds and checksums.

    Args:
        spark: the session.
        table: the lake table, or hive.`uri` for a Hive tree.
        source: the ClickHouse table, `source.database.table`.
        partition_id: the partition's id.
        convert: conversions by column, if the lake table has lost its record of them.
        cluster: compare the table of every shard of this cluster.
        partition: or a value of its key.
        all_partitions: or every partition, including those that are not exported.
        same_as: the identity under which the table was exported before; None for its own.

    Raises:
        TableFormatError: a partition differs or cannot be compared; the message has the reasons.
    """
    return _called(VerifiedPartition, VERIFY_PARTITION, locals())


def exports(
    spark: SparkSession,
    table: str | None = None,
    *,
    status: str | None = None,
    source: str | None = None,
    limit: int | None = None,
) -> tuple[ExportRecord, ...]:
    """Return the exports in the ledger, latest first.

    Args:
        spark: the session.
        table: only exports into this lake table, or from this ClickHouse table.
        status: IN_PROGRESS, INTERRUPTED, FAILED, KILLED, COMPLETED or ARCHIVED.
        source: only exports from this ClickHouse table, `source.database.table`.
        limit: the maximum number of exports; None for all.

    Raises:
        TableFormatError: a name cannot be resolved, or the ledger cannot be read.
    """
    return _called(ExportRecord, EXPORTS, locals())


def cancel(
    spark: SparkSession,
    table: str | None = None,
    source: str | None = None,
    *,
    partition_id: str | None = None,
    wait: float = PROOF_SECONDS,
    all_exports: bool = False,
) -> tuple[CancelledExport, ...]:
    """Cancel running exports, so that none of their rows become visible.

    Args:
        spark: the session.
        table: the destination; None for any.
        source: the ClickHouse table, `source.database.table`; None for any, with `all_exports`.
        partition_id: the partition's id.
        wait: seconds to wait for the proof that the exports cannot land any more.
        all_exports: or all running exports.

    Raises:
        TableFormatError: an export has landed, or its outcome is not known yet. The message lists
            the exports that were cancelled.
    """
    return _called(CancelledExport, CANCEL_EXPORT, locals())


def forget_export(
    spark: SparkSession, table: str, source: str, *, partition_id: str
) -> tuple[ForgottenExport, ...]:
    """Allow a partition to be exported again before its manifest TTL is over.

    Args:
        spark: the session.
        table: the lake table, or hive.`uri` for a Hive tree.
        source: the ClickHouse table, `source.database.table`.
        partition_id: the partition's id.

    Raises:
        TableFormatError: the ledger has no such export, or it is running.
    """
    return _called(ForgottenExport, FORGET_EXPORT, locals())


def partitions(
    spark: SparkSession, table: str, *, cluster: str | None = None
) -> tuple[ListedPartition, ...]:
    """Return the partitions of a ClickHouse table or of a lake table.

    Args:
        spark: the session.
        table: `source.database.table`, or the lake table.
        cluster: list the table of every shard of this cluster.

    Raises:
        TableFormatError: the table does not exist or cannot be read.
    """
    return _called(ListedPartition, PARTITIONS, locals())


def parts(
    spark: SparkSession, table: str, *, partition_id: str | None = None, cluster: str | None = None
) -> tuple[ListedPart, ...]:
    """Return the active parts of a ClickHouse table.

    Args:
        spark: the session.
        table: `source.database.table`.
        partition_id: only parts of this partition; None for all.
        cluster: list the table of every shard of this cluster.

    Raises:
        TableFormatError: the table does not exist or cannot be read.
    """
    return _called(ListedPart, PARTS, locals())


def create_table_like(
    spark: SparkSession,
    table: str,
    source: str,
    *,
    convert: Mapping[str, str] = _NOTHING,
    partition_spec: str | None = None,
    strict: bool = False,
    dry_run: bool = False,
) -> tuple[CreatedTable, ...]:
    """Create the lake table for a ClickHouse table as an export would, without rows.

    Args:
        spark: the session.
        table: the lake table.
        source: the ClickHouse table, `source.database.table`.
        convert: conversions by column.
        partition_spec: for example month(ts); None to derive it.
        strict: refuse columns whose values change kind, and a lake table with other columns or
            another order of columns.
        dry_run: only report the table that would be created.

    Raises:
        TableFormatError: the table cannot be created, or exists and does not fit.
    """
    return _called(CreatedTable, CREATE_TABLE_LIKE, locals())


def gc(
    spark: SparkSession,
    table: str | None = None,
    *,
    source: str | None = None,
    cluster: str | None = None,
    older_than: datetime | None = None,
    dry_run: bool = True,
    expire_dropped: str | None = None,
    keep_replaced: str | None = None,
) -> tuple[Leftover, ...]:
    """Find the garbage of abandoned exports, and with `dry_run=False` remove it.

    Args:
        spark: the session.
        table: the lake table, or hive.`uri`; None to examine only `source`.
        source: also find staging tables there: a source, or a table of it.
        cluster: examine every host of this cluster of the source.
        older_than: only garbage of exports that began before this time.
        dry_run: list the garbage, and remove nothing.
        expire_dropped: also expire snapshots before DROP PARTITION of at least this age, `10m`.
        keep_replaced: for a Hive tree: how long replaced files are kept, `2h`; None for a day.

    Raises:
        TableFormatError: source, table or ledger cannot be read, or garbage cannot be removed.
    """
    return _called(Leftover, GC, locals())


def log(
    spark: SparkSession,
    *,
    source: str | None = None,
    since: timedelta | None = None,
    failed: bool = False,
    limit: int | None = None,
) -> tuple[LoggedOutcome, ...]:
    """Return the outcomes of exports, latest first; the ledger keeps the latest 10,000.

    Args:
        spark: the session.
        source: only exports from this ClickHouse table, `source.database.table`.
        since: only outcomes of at most this age.
        failed: only exports that did not succeed.
        limit: the maximum number of outcomes; None for all.

    Raises:
        TableFormatError: the name cannot be resolved, or the ledger cannot be read.
    """
    if limit is not None and limit < 1:
        message = f"Cannot list {limit} outcomes. Give `limit` a number from 1, or leave it out."
        raise UsageError(message)
    with in_words():
        call = session_call(spark, {"source": source})
        table = str(CallNames.of(call).source("source").table) if source is not None else None
        start = milliseconds() - int(since.total_seconds() * 1000) if since is not None else None
        with known_ledger(call.conf) as ledger:
            found = logged_events(ledger, table, start, failed=failed) if ledger else ()
    return tuple(_logged(event) for event in found[:limit])


def show_export(
    spark: SparkSession,
    table: str | None = None,
    source: str | None = None,
    *,
    partition_id: str,
) -> tuple[ShownExport, ...]:
    """Return the exports of a partition with their source parts, latest first.

    Args:
        spark: the session.
        table: only exports into this lake table.
        source: only exports from this ClickHouse table, `source.database.table`.
        partition_id: the partition's id.

    Raises:
        NotFoundError: the ledger has no such export.
        TableFormatError: a name cannot be resolved, or the ledger cannot be read.
    """
    what = f"show the export of partition {partition_id}"
    with in_words():
        call = session_call(spark, {"table": table, "source": source})
        names = CallNames.of(call)
        to = names.destination("table") if table is not None else None
        of = str(names.source("source").table) if source is not None else None
        opened = partial(open_destination_in, call.conf, looks_only=True, time_outs=LOOKING)
        into = named_to_list(to, opened, log_note) if to is not None else None
        with contextlib.closing(names.open_ledger(to)) as ledger:
            found = exports_of(ledger, partition_id, of, into, what)
    lake = KnownDestinations(opened)
    return tuple(
        ShownExport(
            _record(export_row(one)),
            _parts(one, lake),
            one.rows_in_main,
            one.statement,
        )
        for one in found
    )


def _parts(one: ListedExport, lake: KnownDestinations) -> tuple[SourcePart, ...]:
    """Return the source parts of an export, without files if the lake cannot be read."""
    try:
        found = parts_with_files(one, lake)
    except TableFormatError:
        found = without_files(one.parts)
    return tuple(SourcePart(part.name, part.rows, part.remote_paths) for part in found)


def check(
    spark: SparkSession,
    source: str,
    *,
    table: str | None = None,
    convert: Mapping[str, str] = _NOTHING,
    partition_spec: str | None = None,
    evolve_schema: bool = False,
    strict: bool = False,
    cluster: str | None = None,
) -> tuple[CheckedTable, ...]:
    """Check whether a table can be exported, and how each column would be mapped.

    The check changes nothing. For a cluster, it returns one value for each shard.

    Args:
        spark: the session.
        source: the ClickHouse table, `source.database.table`.
        table: the lake table of the export; None to check the source only.
        convert: conversions by column.
        partition_spec: the partition spec of a new lake table; None to derive it.
        evolve_schema: add columns that the lake table lacks, and widen its types.
        strict: refuse columns whose values change kind, and a lake table with other columns or
            another order of columns.
        cluster: check the table of every shard of this cluster.

    Raises:
        TableFormatError: the table does not exist, or source, catalog or ledger cannot be read.
    """
    found: list[CheckedTable] = []
    with in_words():
        call = session_call(spark, {"source": source, "table": table})
        names = CallNames.of(call)
        named = names.source("source")
        to = names.lake("table") if table is not None else None
        request = CheckRequest(named.table, to, convert, strict, partition_spec, evolve_schema)
        lake = names.open(to) if to is not None else None
        settings = names.names.settings
        warehouse = (
            lake.ledger_directory if lake is not None else local_directory(settings.warehouse)
        )
        with contextlib.ExitStack() as stack:
            ledger = None
            if to is not None and (settings.ledger or warehouse):
                ledger = stack.enter_context(contextlib.closing(names.open_ledger(to)))

            def check_one(one: LocalTable) -> int:
                wanted = replace(request, table=one.table)
                with open_source(one.place) as opened:
                    checked = check_export(wanted, opened, lake, ledger)
                spaces = checked_spaces(wanted, checked, warehouse)
                found.append(_checked(one, checked, spaces))
                return 0

            each_table(named.tables(cluster=cluster), check_one, _ignore_note, doing="check")
    return tuple(found)


def _ignore_note(_note: str) -> None:
    """Ignore the name of a shard, because every value has it."""


def _checked(one: LocalTable, found: Check, spaces: tuple[Space, ...]) -> CheckedTable:
    server = found.server
    return CheckedTable(
        table=str(one.table),
        reasons=tuple(map(in_python, found.reasons)),
        warnings=tuple(map(in_python, found.warnings)),
        columns=tuple(found.columns),
        partition_key=found.partition_key,
        partition_spec=found.spec,
        sorting_key=found.sorting_key,
        sort_order=found.sort_order,
        destination=found.destination,
        partitions=found.partitions,
        space=spaces,
        grants=tuple(statements(server.grants, server.user)) if server is not None else (),
        versions=found.versions,
        shard=one.shard,
    )


def _logged(event: Event) -> LoggedOutcome:
    return LoggedOutcome(
        datetime.fromtimestamp(event.time / 1000, UTC),
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
        event.transaction_id,
        event.error,
    )


def _record(row: tuple[Value, ...]) -> ExportRecord:
    return _typed(ExportRecord, EXPORTS, row)


def _called(
    kind: Callable[..., T], procedure: Procedure, given: Mapping[str, Given | SparkSession]
) -> tuple[T, ...]:
    """Call a procedure with the arguments of a Python function; return its rows as values."""
    arguments = dict(given)
    spark = arguments.pop("spark")
    rows = called_rows(procedure, spark, arguments)  # type: ignore[arg-type]
    return tuple(_typed(kind, procedure, row) for row in rows)


def _typed(kind: Callable[..., T], procedure: Procedure, row: tuple[Value, ...]) -> T:
    """Return a row of a result as a value, with times as `datetime` and messages for Python."""
    values: dict[str, object] = {}
    for column, value in zip(procedure.columns, row, strict=True):
        values[column.name] = value
        if isinstance(value, str) and column.type == "TIMESTAMP":
            values[column.name] = datetime.fromisoformat(value)
        elif isinstance(value, str) and column.name in _SENTENCES:
            values[column.name] = in_python(value)
    return kind(**values)

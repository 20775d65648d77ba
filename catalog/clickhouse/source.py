"""Implements `tableformat.source.Source` over any connection to a ClickHouse.

- `ClickHouseSource` opens the connection at the first call that needs it, and keeps it until
  `close`. A job describes a table and takes its snapshot in one opening, so no other process can
  open an embedded ClickHouse's directory in between. It closes the source while it writes, except
  an embedded one between groups of small partitions, and opens it again to release the snapshot.
- `with_times` adds the minimum and maximum of the table's time column to each partition, in the
  column's type. system.parts has them only as Date and DateTime, which cannot hold a DateTime64 of
  2299 or 1969, and not at all for a Date32. For other types a query computes them; ClickHouse reads
  them from the partition key's index of each part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from catalog.clickhouse import table_description as reading
from catalog.clickhouse.capabilities import Capabilities, Offer, probe_capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, text, texts, whole
from catalog.clickhouse.removal import detached_parts, drop_detached, take_out
from catalog.clickhouse.rows.partitions import (
    all_partitions_error,
    key_types,
    no_such_partition,
    unresolved,
)
from catalog.clickhouse.server.replicas import Waiting
from catalog.clickhouse.snapshot.comparison import within
from catalog.clickhouse.snapshot.preflight import (
    COPIES,
    far_parts,
    refused_by_source,
    refused_disks,
)
from catalog.clickhouse.snapshot.proof import probed_in
from catalog.clickhouse.snapshot.protocol import SnapshotRequest, take_snapshot
from catalog.clickhouse.snapshot.staging import (
    Search,
    create_staging,
    drop_staging,
    find_left_snapshot,
    list_leftovers,
    staging_table,
    sweep_leftovers,
)
from catalog.clickhouse.table_description import (
    ObjectTable,
    active_parts,
    object_table,
    with_missing_columns,
)
from catalog.processes import Closing, new_job
from catalog.source_defaults import SYNC_TIMEOUT
from tableformat.errors import RefusedError, TableFormatError
from tableformat.ledger import DetachedPart, ExportedPart
from tableformat.mergetree.compatibility import time_column
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.partition_literal import (
    All,
    ById,
    ByValue,
    parse_partition_literal,
    render_partition_literal,
)
from tableformat.mergetree.table import (
    Column,
    MergeTreeTable,
    NoTimes,
    Part,
    PartitionSummary,
    Times,
)
from tableformat.mergetree.types import DataType, DateTime, Simple
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName, quote_identifier, quote_string
from tableformat.source import Leftover, LeftSnapshot, Probe, ProbedValue, SourceSnapshot

__all__ = ["ClickHouseSource", "with_times"]


def with_times(
    connection: Connection,
    capabilities: Capabilities,
    table: MergeTreeTable,
    found: tuple[PartitionSummary, ...],
) -> tuple[PartitionSummary, ...]:
    """Return partitions with the minimum and maximum of their time column, or why it is unknown.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: the table of the partitions.
        found: the partitions.

    Raises:
        SourceError: the source cannot be read.
    """
    column = time_column(table)
    if isinstance(column, NoTimes):
        return tuple(replace(one, times=column) for one in found)
    if not found:
        return found
    if column.type == Simple("Date") or isinstance(column.type, DateTime):
        known = _of_parts(connection, table, column)
    else:
        known = _of_rows(connection, capabilities, table, column, found)
    changed = NoTimes("it changed while it was checked. Run it again")
    empty = Times("", "")
    return tuple(
        replace(one, times=known.get(str(one.partition_id), changed) if one.rows else empty)
        for one in found
    )


def _of_parts(
    connection: Connection, table: MergeTreeTable, column: Column
) -> dict[str, Times | NoTimes]:
    """Return the times in system.parts, which are exact for a Date and a DateTime."""
    if isinstance(column.type, DateTime):
        zone = f", {quote_string(column.type.zone)}" if column.type.zone else ""
        least, greatest = f"toString(min(min_time){zone})", f"toString(max(max_time){zone})"
    else:
        least, greatest = "toString(min(min_date))", "toString(max(max_date))"
    rows = connection.rows(
        f"SELECT partition_id, {least}, {greatest} FROM system.parts"
        f" WHERE {active_parts(table.name)} AND rows > 0 GROUP BY partition_id"
    )
    return {text(row[0]): Times(text(row[1]), text(row[2])) for row in rows}


def _of_rows(
    connection: Connection,
    capabilities: Capabilities,
    table: MergeTreeTable,
    column: Column,
    found: tuple[PartitionSummary, ...],
) -> dict[str, Times | NoTimes]:
    """Return the times that a query computes, if it sees all rows of the partition.

    Rows removed by lightweight deletes count, as in system.parts.
    """
    value = f"{SOURCE_ALIAS}.{quote_identifier(column.name)}"
    settings = " SETTINGS apply_deleted_mask = 0" if capabilities.has(Offer.DELETED_ROWS) else ""
    try:
        rows = connection.rows(
            f"SELECT {SOURCE_ALIAS}._partition_id, ifNull(toString(min({value})), ''),"
            f" ifNull(toString(max({value})), ''), count() FROM {table.name.sql} AS {SOURCE_ALIAS}"
            f" GROUP BY {SOURCE_ALIAS}._partition_id{settings}"
        )
    except ClickHouseError as error:
        why = NoTimes(f"{column.name} of {table.name} cannot be read: {error.reason}")
        return {str(one.partition_id): why for one in found}
    shown: Mapping[str, int] = {str(one.partition_id): one.rows for one in found}
    return {
        text(row[0]): Times(text(row[1]), text(row[2]))
        if whole(row[3]) >= shown.get(text(row[0]), 0)
        else NoTimes(
            f"{table.name} shows {whole(row[3]):,} of its {shown[text(row[0])]:,} rows. A row "
            "policy or a setting of the user hides rows"
        )
        for row in rows
    }


_WITH_REPLICAS: Final = ("Replicated", "Shared")


class ClickHouseSource(Closing):
    """A ClickHouse as a source. A context manager that closes it; snapshots are kept."""

    def __init__(
        self,
        open_connection: Callable[[TableName | None], Connection],
        *,
        sync_timeout: float = SYNC_TIMEOUT,
        assumes_zone: bool = False,
    ) -> None:
        """Keep the function that connects; nothing is opened yet.

        Args:
            open_connection: opens a ClickHouse for a table, or without one for other work, e.g.
                `lambda _: EmbeddedConnection(directory)`. It chooses among replicas.
            sync_timeout: seconds to wait for parts of a partition that the replicas have announced
                and the server does not have yet.
            assumes_zone: nobody has named the time zone of the server that wrote the parts.
        """
        self._open_connection = open_connection
        self._assumes_zone = assumes_zone
        self._sync_timeout = sync_timeout
        self._held: tuple[Connection, Capabilities] | None = None

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the current definition of a table.

        Raises:
            NotFoundError: no such database or table (code 81, 60).
            UnsupportedError: it is not of the MergeTree family (code 48).
            SourceError: the source cannot be read.
        """
        return reading.describe(*self._opened(table), table)

    def partitions(self, table: TableName) -> tuple[PartitionSummary, ...]:
        """Return the partitions with active parts, sorted by id, without patch parts.

        Raises:
            SourceError: the source cannot be read.
        """
        return reading.list_partitions(self._opened(table)[0], table)

    def with_times(
        self, table: MergeTreeTable, found: tuple[PartitionSummary, ...]
    ) -> tuple[PartitionSummary, ...]:
        """Return partitions with their times, or why these are unknown."""
        return with_times(*self._opened(table.name), table, found)

    def parts(self, table: TableName, *partition_ids: PartitionId) -> tuple[Part, ...]:
        """Return the active parts with rows of partitions, in one query.

        Raises:
            SourceError: the source cannot be read.
        """
        ids = partition_ids
        opened = self._opened(table)
        parts = reading.list_parts(*opened, table, ids) if ids else ()
        return with_missing_columns(opened[0], table, parts)

    def all_parts(self, table: TableName) -> tuple[Part, ...]:
        """Return the active parts with rows of a table.

        Raises:
            SourceError: the source cannot be read.
        """
        opened = self._opened(table)
        return with_missing_columns(opened[0], table, reading.list_parts(*opened, table))

    def engine_of(self, table: TableName) -> str | None:
        """Return the engine of any table or view, None if it does not exist.

        Raises:
            SourceError: the source cannot be read.
        """
        return reading.engine_of(self._opened(table)[0], table)

    def object_table(self, table: TableName) -> ObjectTable | None:
        """Return a table over object storage, None if it does not exist or has another engine.

        Raises:
            SourceError: the source cannot be read.
        """
        return object_table(self._opened(table)[0], table)

    def refusals(
        self, table: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, RefusedError]:
        """Return the partitions that a snapshot would refuse now, for mutations, damage or disks.

        Raises:
            SourceError: the source cannot be read.
        """
        opened = self._opened(table)
        return {
            **refused_disks(*opened, table, partition_ids),
            **refused_by_source(*opened, table, partition_ids),
        }

    def copied_to(self, table: TableName) -> dict[PartitionId, str]:
        """Return the partitions that a snapshot copies, because tasks cannot open all their parts.

        Returns:
            The root directory of the disk to which each is copied.

        Raises:
            SourceError: the source cannot be read.
        """
        connection, capabilities = self._opened(table)
        far = far_parts(connection, capabilities, table)
        where = f"name = {quote_string(COPIES)}"
        (path,) = (
            texts(connection, f"SELECT path FROM system.disks WHERE {where}") if far else ("",)
        )
        return {part.partition_id: path for part in far}

    def free_bytes(self) -> dict[str, int] | None:
        """Return the free bytes of a server's disks, by root directory.

        None if the disks are on this host, where they can be measured directly. Empty if the server
        does not show its disks.

        Raises:
            SourceError: the source cannot be read.
        """
        connection, capabilities = self._opened()
        if not connection.address:
            return None
        if not capabilities.has(Offer.DISKS):
            return {}
        found = connection.rows("SELECT path, toUInt64(free_space) FROM system.disks")
        return {text(row[0]): whole(row[1]) for row in found}

    def passed_over(self, table: TableName) -> tuple[str, ...]:  # noqa: ARG002  none of any table
        """Return nothing: only a directory of parts has other entries that are not read."""
        return ()

    def row_policies(self, table: TableName) -> tuple[str, ...] | None:
        """Return the row policies that an export would not apply, None if they are hidden.

        Raises:
            SourceError: the source cannot be read.
        """
        return reading.row_policies(*self._opened(table), table)

    def find_partition(self, table: MergeTreeTable, expression: str) -> PartitionId:
        """Return ClickHouse's id of a partition expression.

        Raises:
            UsageError: the expression is not made of literals, or does not fit the partition key.
            RefusedError: lightweight updates of the partition are pending (code 344).
            NotFoundError: no active part has that value.
            SourceError: the source cannot be read.
        """
        match parse_partition_literal(expression):
            case All():
                raise all_partitions_error(table, expression)
            case ById(one):
                if one not in (partition.partition_id for partition in self.partitions(table.name)):
                    raise no_such_partition(table, expression)
                return one
            case ByValue() as value:
                return self._resolved(table, expression, render_partition_literal(value))
            case unexpected:
                assert_never(unexpected)

    def key_types(self, table: MergeTreeTable) -> tuple[DataType, ...]:
        """Return the types of the members of a table's partition key, in order.

        Raises:
            UnsupportedError: this ClickHouse does not show the value of a partition (code 48).
            SourceError: the source cannot be read.
        """
        return key_types(self._opened(table.name)[0], table)

    def probe(
        self, table: TableName, partition_id: PartitionId, probes: tuple[Probe, ...]
    ) -> tuple[ProbedValue, ...] | None:
        """Return the results of probes in a partition, None if it has no visible rows.

        Raises:
            SourceError: the source cannot be read.
        """
        if not probes:
            return ()
        found = probed_in(*self._opened(table), table, within((partition_id,)), probes)
        return found.get(str(partition_id))

    def snapshot(
        self,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...] = (),
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        """Take a snapshot of partitions, each completely or not at all, verified part by part.

        Raises:
            SourceError: the source cannot be used at all.
        """
        return self._taken(SnapshotRequest(table, partition_ids, job, probes, digest))

    def find_snapshot(
        self,
        table: MergeTreeTable,
        wanted: Mapping[PartitionId, LeftSnapshot],
        *,
        probes: tuple[Probe, ...] = (),
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        """Return the snapshot that an ended job left, proved again, without changed partitions.

        Raises:
            SourceError: the source cannot be read.
        """
        return self._found_again(Search(table, wanted, probes, digest))

    def release(self, snapshot: SourceSnapshot, keep: Collection[str] = ()) -> None:
        """Drop the staging tables of a snapshot except those in `keep`; may be repeated.

        Raises:
            SourceError: the source cannot be used.
        """
        self.release_staging(tuple(name for name in snapshot.handle if name not in keep))

    def release_staging(self, handle: tuple[str, ...]) -> None:
        """Drop the staging tables of a snapshot by its handle.

        Raises:
            SourceError: the source cannot be used.
        """
        if not handle:
            return
        connection, capabilities = self._opened()
        for name in handle:
            drop_staging(connection, capabilities, staging_table(connection, name))

    def sweep_leftovers(
        self, is_alive: Callable[[str], bool], keep: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Drop the staging tables of ended jobs; return their names.

        Args:
            is_alive: whether the job of a name may still need its staging tables.
            keep: names of staging tables to keep.

        Raises:
            SourceError: the source cannot be used.
        """
        return sweep_leftovers(*self._opened(), is_alive, keep)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return every staging table in the source, in order of name.

        Raises:
            SourceError: the source cannot be read.
        """
        return list_leftovers(*self._opened())

    def take_out(
        self, table: TableName, partition_id: PartitionId, exported: tuple[ExportedPart, ...]
    ) -> tuple[DetachedPart, ...]:
        """Detach a partition that has exactly these parts; return the detached parts.

        Raises:
            RefusedError: the partition differs from what was exported; it stays unchanged.
            SourceError: ClickHouse failed; the rows are in the table or among its detached parts.
        """
        connection, capabilities = self._opened(table)
        has_replicas = (reading.engine_of(connection, table) or "").startswith(_WITH_REPLICAS)
        if has_replicas and connection.address:
            waiting = Waiting(connection, self._sync_timeout)
            if late := waiting.refused(table, (partition_id,)).get(partition_id):
                raise late
        opened = (connection, capabilities, table)
        return take_out(*opened, partition_id, exported, has_replicas=has_replicas)

    def detached_parts(
        self, table: TableName, partition_id: PartitionId
    ) -> frozenset[DetachedPart] | None:
        """Return the parts of a partition in the table's `detached` directory; None if not shown.

        Raises:
            SourceError: ClickHouse failed.
        """
        return detached_parts(*self._opened(table), table, partition_id)

    def drop_detached(
        self, table: TableName, partition_id: PartitionId, parts: tuple[DetachedPart, ...], *,
        fresh: bool,
    ) -> tuple[DetachedPart, ...]:  # fmt: skip
        """Drop the parts that `take_out` detached, just before if `fresh`; return those dropped.

        Raises:
            RefusedError: a part is not the detached one; nothing is dropped.
            SourceError: ClickHouse failed; the remaining parts are still detached.
        """
        return drop_detached(*self._opened(table), table, partition_id, parts, fresh=fresh)

    def command(self, table: TableName, statement: str) -> None:
        """Run a user's statement on a table.

        Raises:
            SourceError: ClickHouse refuses it, with its code, or cannot be reached.
        """
        self._opened(table)[0].command(statement)

    def close(self) -> None:
        """Close the connection; snapshots are kept. The next call opens it again."""
        held, self._held = self._held, None
        if held is not None:
            held[0].close()

    def _taken(self, request: SnapshotRequest) -> SourceSnapshot:
        """Take a snapshot, as `snapshot` does; subclasses override it."""
        connection, capabilities = self._opened(request.table.name)
        late = self._late(connection, request.table, request.partition_ids)
        ready = tuple(one for one in request.partition_ids if one not in late)
        taken = take_snapshot(connection, capabilities, replace(request, partition_ids=ready))
        return replace(taken, refused=tuple(sorted((*taken.refused, *late.items()))))

    def _found_again(self, search: Search) -> SourceSnapshot:
        """Find a snapshot, as `find_snapshot` does; subclasses override it."""
        return find_left_snapshot(*self._opened(search.table.name), search)

    def _resolved(self, table: MergeTreeTable, expression: str, sql: str) -> PartitionId:
        """Let ClickHouse compute the id: attach the partition to a scratch table, and read it."""
        connection, _ = self._opened()
        with self._scratch(table) as scratch:
            try:
                connection.command(
                    f"ALTER TABLE {scratch.sql} ATTACH PARTITION {sql} FROM {table.name.sql}"
                )
            except ClickHouseError as error:
                raise unresolved(table, expression, error) from error
            found = texts(
                connection,
                f"SELECT DISTINCT partition_id FROM system.parts WHERE {reading.of_table(scratch)}",
            )
        if not found:
            # ClickHouse attaches nothing, without an error, if no part has that value.
            raise no_such_partition(table, expression)
        (one,) = found
        return PartitionId(one)

    def _late(
        self, connection: Connection, table: MergeTreeTable, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, TableFormatError]:
        """Return the partitions whose parts did not all reach the server's replica in time."""
        if not (connection.address and table.engine.replicated):
            return {}
        return Waiting(connection, self._sync_timeout).refused(table.name, partition_ids)

    def _opened(self, table: TableName | None = None) -> tuple[Connection, Capabilities]:
        if self._held is None:
            connection = self._open_connection(table)
            try:
                found = probe_capabilities(connection)
                self._held = (connection, replace(found, assumes_zone=self._assumes_zone))
            except BaseException:
                connection.close()
                raise
        return self._held

    @contextlib.contextmanager
    def _scratch(self, table: MergeTreeTable) -> Iterator[TableName]:
        """Create an empty staging table, dropped at the end of the `with`."""
        connection, capabilities = self._opened()
        # Named like a staging table of a job of this process, so that a leftover is swept.
        name = staging_table(connection, f"{new_job()}_1")
        create_staging(connection, capabilities, table, name)
        try:
            yield name
        finally:
            drop_staging(connection, capabilities, name)

"""`ClickHouseSource`: the contract `tableformat.source.Source` over any connection to a ClickHouse.

Owns when the connection is open. It is opened by the first call that needs it and stays open until
`close`, so that a job describes and freezes within one opening, lets go while it writes, and opens
again to release: nobody else can open an embedded ClickHouse's directory in between.

The least and greatest time of each partition, in the type of the table's own time column.

system.parts has them as Date and DateTime only: a DateTime64 of 2299 or of 1969 is another time
there, and a Date32 has none. Where the column is neither a Date nor a DateTime its values are
asked for; ClickHouse takes them from the index of each part that it keeps for partition keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from catalog.clickhouse import table_description as reading
from catalog.clickhouse.capabilities import Capabilities, Offer, probe_capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, text, texts, whole
from catalog.clickhouse.missing_columns import with_missing_columns
from catalog.clickhouse.removal import drop_detached, take_out
from catalog.clickhouse.rows.partitions import (
    all_partitions_error,
    key_types,
    no_such_partition,
    unresolved,
)
from catalog.clickhouse.server.replicas import SYNC_TIMEOUT, Waiting
from catalog.clickhouse.snapshot.comparison import within
from catalog.clickhouse.snapshot.leftovers import Search, find_left_snapshot
from catalog.clickhouse.snapshot.preflight import (
    COPIES,
    far_parts,
    refused_by_source,
    refused_disks,
)
from catalog.clickhouse.snapshot.proof import probed_in
from catalog.clickhouse.snapshot.protocol import SnapshotRequest, take_snapshot
from catalog.clickhouse.snapshot.staging import (
    create_staging,
    drop_staging,
    list_leftovers,
    staging_table,
    sweep_leftovers,
)
from catalog.clickhouse.table_description import ObjectTable, active_parts, object_table
from catalog.processes import Closing, new_job
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
    """Return partitions with their times, or with why these are not known.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: whose partitions they are.
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
    gone = NoTimes("it changed while it was looked at. Run the command again")
    empty = Times("", "")
    return tuple(
        replace(one, times=known.get(str(one.partition_id), gone) if one.rows else empty)
        for one in found
    )


def _of_parts(
    connection: Connection, table: MergeTreeTable, column: Column
) -> dict[str, Times | NoTimes]:
    """Return the times of system.parts, which are exact for a Date and a DateTime."""
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
    """Return the times that a query finds, of partitions whose rows are all shown to it.

    Rows that are deleted lightly count here, as they count in system.parts.
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
    """A ClickHouse as a source. A context manager: leaving it lets go, snapshots stay."""

    def __init__(
        self,
        open_connection: Callable[[TableName | None], Connection],
        *,
        sync_timeout: float = SYNC_TIMEOUT,
    ) -> None:
        """Keep the way to a connection; nothing is opened yet.

        Args:
            open_connection: opens a ClickHouse for a table, or for whatever has to be done, e.g.
                `lambda _: EmbeddedConnection(directory)`; of replicas it chooses one.
            sync_timeout: how many seconds a partition of a server waits for the parts that its
                replica was told of and does not have yet.
        """
        self._open_connection = open_connection
        self._sync_timeout = sync_timeout
        self._held: tuple[Connection, Capabilities] | None = None

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the table as it is now.

        Raises:
            NotFoundError: no such database or table (code 81, 60).
            UnsupportedError: it is not of the MergeTree family (code 48).
            SourceError: the source cannot be read.
        """
        return reading.describe(*self._opened(table), table)

    def partitions(self, table: TableName) -> tuple[PartitionSummary, ...]:
        """Return the partitions with active parts, in the order of their ids, without patch parts.

        Raises:
            SourceError: the source cannot be read.
        """
        return reading.list_partitions(self._opened(table)[0], table)

    def with_times(
        self, table: MergeTreeTable, found: tuple[PartitionSummary, ...]
    ) -> tuple[PartitionSummary, ...]:
        """Return partitions with their times, or with why these are not known."""
        return with_times(*self._opened(table.name), table, found)

    def parts(self, table: TableName, *partition_ids: PartitionId) -> tuple[Part, ...]:
        """Return the active parts of partitions that hold rows, in one query.

        Raises:
            SourceError: the source cannot be read.
        """
        ids = partition_ids
        opened = self._opened(table)
        parts = reading.list_parts(*opened, table, ids) if ids else ()
        return with_missing_columns(opened[0], table, parts)

    def all_parts(self, table: TableName) -> tuple[Part, ...]:
        """Return the active parts of a table that hold rows.

        Raises:
            SourceError: the source cannot be read.
        """
        opened = self._opened(table)
        return with_missing_columns(opened[0], table, reading.list_parts(*opened, table))

    def engine_of(self, table: TableName) -> str | None:
        """Return the engine of any table or view, None when there is no such table.

        Raises:
            SourceError: the source cannot be read.
        """
        return reading.engine_of(self._opened(table)[0], table)

    def object_table(self, table: TableName) -> ObjectTable | None:
        """Return a table over objects; None when there is none, or it is of another kind.

        Raises:
            SourceError: the source cannot be read.
        """
        return object_table(self._opened(table)[0], table)

    def refusals(
        self, table: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, RefusedError]:
        """Return the partitions that a snapshot would refuse now: its mutations, damage, disks.

        Raises:
            SourceError: the source cannot be read.
        """
        opened = self._opened(table)
        return {
            **refused_disks(*opened, table, partition_ids),
            **refused_by_source(*opened, table, partition_ids),
        }

    def copied_to(self, table: TableName) -> dict[PartitionId, str]:
        """Return the partitions that a snapshot copies, as tasks cannot open a part of them.

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
        """Return what is free on the disks of a server, by their root directory.

        None for a source whose disks are on this host, where everybody can look. A server that does
        not show its disks gives none.

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
        """Return the names of what lies beside the parts and is not read: only files have that."""
        return ()

    def row_policies(self, table: TableName) -> tuple[str, ...] | None:
        """Return the row policies that an export would not apply; None when they are hidden.

        Raises:
            SourceError: the source cannot be read.
        """
        return reading.row_policies(*self._opened(table), table)

    def find_partition(self, table: MergeTreeTable, expression: str) -> PartitionId:
        """Return the id that ClickHouse itself gives to a partition expression.

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
        """Return the types of the members of a table's partition key, in their order.

        Raises:
            UnsupportedError: this ClickHouse does not show the value of a partition (code 48).
            SourceError: the source cannot be read.
        """
        return key_types(self._opened(table.name)[0], table)

    def probe(
        self, table: TableName, partition_id: PartitionId, probes: tuple[Probe, ...]
    ) -> tuple[ProbedValue, ...] | None:
        """Return what probes find in a partition as it is now; None when it shows no rows.

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
        """Freeze partitions: all or none of each, verified part by part.

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
        """Find again what a dead job had frozen, proved anew; what cannot be is left out.

        Raises:
            SourceError: the source cannot be read.
        """
        return self._found_again(Search(table, wanted, probes, digest))

    def release(self, snapshot: SourceSnapshot, keep: Collection[str] = ()) -> None:
        """Drop what the snapshot holds but the staging tables in `keep`. May be repeated.

        Raises:
            SourceError: the source cannot be used.
        """
        self.release_staging(tuple(name for name in snapshot.handle if name not in keep))

    def release_staging(self, handle: tuple[str, ...]) -> None:
        """Drop the staging tables of a snapshot of which only the handle is left.

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
        """Drop the staging tables of dead jobs; return their names.

        Args:
            is_alive: whether the job of that name may still need its staging tables.
            keep: names of staging tables that stay.

        Raises:
            SourceError: the source cannot be used.
        """
        return sweep_leftovers(*self._opened(), is_alive, keep)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return every staging table in the source, in the order of the names.

        Raises:
            SourceError: the source cannot be read.
        """
        return list_leftovers(*self._opened())

    def take_out(
        self, table: TableName, partition_id: PartitionId, exported: tuple[ExportedPart, ...]
    ) -> tuple[DetachedPart, ...]:
        """Detach a partition that holds exactly these parts; return what is detached then.

        Raises:
            RefusedError: the partition is not what was exported; it stays as it is.
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

    def drop_detached(
        self, table: TableName, partition_id: PartitionId, parts: tuple[DetachedPart, ...], *,
        fresh: bool,
    ) -> int:  # fmt: skip
        """Drop what `take_out` detached, a moment ago if `fresh`; return the bytes that are freed.

        Raises:
            RefusedError: a part is another one than was detached; nothing is dropped.
            SourceError: ClickHouse failed; the others are still detached.
        """
        return drop_detached(*self._opened(table), table, partition_id, parts, fresh=fresh)

    def command(self, table: TableName, statement: str) -> None:
        """Run a user's statement on a table.

        Raises:
            SourceError: ClickHouse refuses it, with its code, or cannot be reached.
        """
        self._opened(table)[0].command(statement)

    def close(self) -> None:
        """Let go of the source; snapshots stay. The next call opens it again."""
        held, self._held = self._held, None
        if held is not None:
            held[0].close()

    def _taken(self, request: SnapshotRequest) -> SourceSnapshot:
        """Do what `snapshot` is asked for."""
        connection, capabilities = self._opened(request.table.name)
        late = self._late(connection, request.table, request.partition_ids)
        ready = tuple(one for one in request.partition_ids if one not in late)
        taken = take_snapshot(connection, capabilities, replace(request, partition_ids=ready))
        return replace(taken, refused=tuple(sorted((*taken.refused, *late.items()))))

    def _found_again(self, search: Search) -> SourceSnapshot:
        """Do what `find_snapshot` is asked for."""
        return find_left_snapshot(*self._opened(search.table.name), search)

    def _resolved(self, table: MergeTreeTable, expression: str, sql: str) -> PartitionId:
        """Let ClickHouse compute the id: attach the partition somewhere and look what came."""
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
            # ClickHouse attaches nothing, silently, when no part has that value.
            raise no_such_partition(table, expression)
        (one,) = found
        return PartitionId(one)

    def _late(
        self, connection: Connection, table: MergeTreeTable, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, TableFormatError]:
        """Return the partitions that a server's replica has not all parts of, in time."""
        if not (connection.address and table.engine.replicated):
            return {}
        return Waiting(connection, self._sync_timeout).refused(table.name, partition_ids)

    def _opened(self, table: TableName | None = None) -> tuple[Connection, Capabilities]:
        if self._held is None:
            connection = self._open_connection(table)
            try:
                self._held = (connection, probe_capabilities(connection))
            except BaseException:
                connection.close()
                raise
        return self._held

    @contextlib.contextmanager
    def _scratch(self, table: MergeTreeTable) -> Iterator[TableName]:
        """Make an empty staging table that ends with the `with`."""
        connection, capabilities = self._opened()
        # Like a staging table of a job of this process, so that a leftover is swept.
        name = staging_table(connection, f"{new_job()}_1")
        create_staging(connection, capabilities, table, name)
        try:
            yield name
        finally:
            drop_staging(connection, capabilities, name)

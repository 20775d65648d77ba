"""Implements `tableformat.source.Source` for a ClickHouse server: `ServerSource`.

- A job stays with one replica, which has its staging tables. Only a new description of the table
  may choose another one.
- With `replicas=N` in the address, other replicas that have the same parts copy them and read
  slices, too (`copies.py`).
- `why_not_instead_of` decides whether a replica can continue a job whose host no longer responds.
- The user's rights are checked once, before anything is created.
- Rows that the user may not see are never exported. Listed row policies refuse the export; unlisted
  ones are found by counting the rows of the snapshot that the user sees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.server.access_report import (
    ServerReport,
    check_staging_seen,
    check_system_tables,
    report_of,
    standing_of,
)
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.copies import (
    Copied,
    Reader,
    are_readable,
    copy_partitions,
    is_same_table,
    readers_note,
    same_parts,
    why_not_read,
    with_copies,
)
from catalog.clickhouse.server.policies import Policies, hidden_rows, refuse_hidden
from catalog.clickhouse.server.replicas import Waiting, connect, lag_of
from catalog.clickhouse.server.settings import Host, ServerSettings
from catalog.clickhouse.snapshot.protocol import SnapshotRequest
from catalog.clickhouse.snapshot.staging import Search, layout_of
from catalog.clickhouse.source import ClickHouseSource
from catalog.processes import new_job
from catalog.source_defaults import SYNC_TIMEOUT
from tableformat.clickhouse_codes import ACCESS_DENIED
from tableformat.errors import SourceError, TableFormatError
from tableformat.mergetree.table import MergeTreeTable, Part, PartitionSummary
from tableformat.names import PartitionId, TableName
from tableformat.source import FrozenPartition, Leftover, SourceSnapshot

__all__ = ["ServerSource"]

_LOGGER: Final = logging.getLogger("mergeberg.source")


class ServerSource(ClickHouseSource):
    """A server as a source. A context manager that closes it; snapshots are kept."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        sync_timeout: float = SYNC_TIMEOUT,
        is_exporting: bool = False,
        ignore_row_policies: bool = False,
    ) -> None:
        """Keep the settings; nothing is sent yet.

        Args:
            settings: of the server; its hosts are replicas of one another.
            sync_timeout: seconds to wait for parts that the replica lacks.
            is_exporting: whether snapshots will be taken for an export. The rights for that are
                then checked first, and row policies refuse the export.
            ignore_row_policies: whether rows that the user does not see are exported, too.
        """
        super().__init__(self._connected, sync_timeout=sync_timeout)
        self._settings = settings
        self._is_exporting = is_exporting
        self._ignores = ignore_row_policies
        self._host: Host | None = None
        self._described: MergeTreeTable | None = None
        self._listed: frozenset[PartitionId] = frozenset()
        self._was_checked = False
        self._user = ""
        self._policies: Policies | None = None
        self._readers: dict[Host, ServerSource] = {}

    @property
    def host(self) -> Host | None:
        """The chosen replica, None before the first choice."""
        return self._host

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the current definition of a table; choose another replica if the last one fails.

        Raises:
            NotFoundError: no such database or table (code 81, 60).
            UnsupportedError: it is not of the MergeTree family (code 48).
            SourceError: the source cannot be read.
        """
        if self._host is not None and self._held is None:
            with self._reached(table) as connection:
                if not _can_be_read(connection, table):
                    # The user may have other rights on another replica.
                    self._host, self._was_checked = None, False
        self._described = super().describe(table)
        return self._described

    def partitions(self, table: TableName) -> tuple[PartitionSummary, ...]:
        """Return the partitions with active parts, sorted by id, without patch parts.

        For an export it waits until the replica has a part of every partition in its log, because a
        missing partition would be left out without an error.

        Raises:
            RefusedError: the replica has not caught up in time.
            SourceError: the source cannot be read.
        """
        if self._is_exporting:
            connection, _ = self._opened(table)
            Waiting(connection, self._sync_timeout).check_listed(table)
        found = super().partitions(table)
        self._listed = frozenset(one.partition_id for one in found)
        return found

    def why_not_instead_of(self, gone: ServerSource, table: TableName) -> str:
        """Return why this source cannot continue the job of another one, '' if it can.

        It must be a replica of the same table that is not read-only, and have every partition that
        the other source listed.

        Raises:
            RefusedError: the table does not exist, or the user may not export it here.
            SourceError: the source cannot be read.
        """
        found = self.describe(table)
        if not found.engine.replicated or not is_same_table(gone._described, found):
            return f"its {table} is no replica of the one that was exported"
        connection, _ = self._opened(table)
        lag = lag_of(connection, table)
        if lag is None or lag.read_only:
            return f"its replica of {table} is read-only"
        lacking = gone._listed.difference(one.partition_id for one in self.partitions(table))
        if lacking:
            return f"it does not have partition {', '.join(map(str, sorted(lacking)))} yet"
        return ""

    def report(self, table: TableName) -> ServerReport:
        """Return all facts about an export of a table, even if rights are missing.

        Raises:
            SourceError: the server cannot be read.
        """
        with self._chosen(table) as connection:
            return report_of(connection, table, connection.staging_database, ignores=self._ignores)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return every staging table in the source, in order of name.

        Raises:
            RefusedError: the user may not see them.
            SourceError: the source cannot be read.
        """
        found = super().leftovers()
        if not found:
            with self._reached(None) as connection:
                check_staging_seen(connection)
        return found

    def release(self, snapshot: SourceSnapshot, keep: Collection[str] = ()) -> None:
        """Drop the staging tables of a snapshot, except those in `keep`, and all of its copies.

        Raises:
            SourceError: the server of the snapshot cannot be used.
        """
        try:
            super().release(snapshot, keep)
        finally:
            self._release_copies(snapshot.elsewhere)

    def sweep_leftovers(
        self, is_alive: Callable[[str], bool], keep: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Drop the staging tables of dead jobs, also at the other replicas that may read slices.

        Args:
            is_alive: whether the job of that name may still need its staging tables.
            keep: names of staging tables that stay.

        Returns:
            The names of the tables that were dropped.

        Raises:
            SourceError: the server cannot be used.
        """
        dropped = super().sweep_leftovers(is_alive, keep)
        for host, other in self._others():
            try:
                dropped += other.sweep_leftovers(is_alive, keep)
            except TableFormatError as error:
                _LOGGER.warning("staging tables at %s may stay: %s", host.place, error)
            finally:
                # It was opened without a table: a later copy there has to check the user's rights.
                other.close()
        return dropped

    def close(self) -> None:
        """Close the connections to this and the other replicas; snapshots stay."""
        super().close()
        for other in self._readers.values():
            other.close()

    def readers(self, table: TableName, partition_ids: tuple[PartitionId, ...]) -> tuple[str, ...]:
        """Return notes on the replicas that would read slices of an export; none for a single one.

        Raises:
            SourceError: the server cannot be read.
        """
        if not self._others(table) or not partition_ids:
            return ()
        described = self.describe(table)
        connection, capabilities = self._opened(table)
        reader = Reader(
            described, layout_of(connection, capabilities, described), capabilities.version
        )
        parts = self.parts(table, *partition_ids)
        found = {self._shown: len(partition_ids)}
        notes = []
        for host, other in self._others(table):
            if len(found) == self._settings.replicas:
                break
            try:
                why = other.why_not_reading(reader)
                there = () if why else other.parts(table, *partition_ids)
            except TableFormatError as error:
                why, there = error.message, ()
            same = [one for one in partition_ids if _is_readable(described, one, parts, there)]
            if same:
                found[host.place] = len(same)
            else:
                notes.append(_reads_nothing(host, why or "it has other parts"))
        return (*notes, readers_note(found, len(partition_ids)))

    def why_not_reading(self, reader: Reader) -> str:
        """Return why this server cannot read slices of another one's snapshot, '' if it can.

        Raises:
            RefusedError: the user may not make staging tables here.
            SourceError: this server cannot be read.
        """
        table = self.describe(reader.table.name)
        connection, capabilities = self._opened(table.name)
        lag = lag_of(connection, table.name)
        if lag is not None and lag.read_only:
            return "its replica is read-only"
        return why_not_read(connection, capabilities, table, reader)

    def copied(self, reader: Reader, wanted: tuple[FrozenPartition, ...], job: str) -> Copied:
        """Copy partitions of another server's snapshot; the result has the reason of an error."""
        try:
            why, table = self.why_not_reading(reader), self._described
            if why or table is None:
                return Copied("", why=why)
            return copy_partitions(*self._opened(table.name), table, wanted, job)
        except TableFormatError as error:
            return Copied("", why=error.message)

    def _taken(self, request: SnapshotRequest) -> SourceSnapshot:
        """Take a snapshot of partitions, and copy it at other replicas.

        Partitions of which the user does not see all rows are refused.
        """
        taken = self._visible(super()._taken(request))
        try:
            return self._copied(taken, request.job)
        except BaseException:
            self.release(taken)
            raise

    def _found_again(self, search: Search) -> SourceSnapshot:
        """Find the snapshot of an abandoned job, and copy it at other replicas."""
        return self._copied(super()._found_again(search), new_job())

    def _copied(self, taken: SourceSnapshot, job: str) -> SourceSnapshot:
        """Copy the partitions of a snapshot at up to `replicas` - 1 other hosts of the address."""
        wanted = tuple(
            one
            for one in taken.partitions
            if one.visible_rows and are_readable(taken.table, (held.part for held in one.parts))
        )
        if not self._is_exporting or not wanted or not self._others():
            return taken
        _, capabilities = self._opened(taken.table.name)
        reader = Reader(taken.table, taken.layout, capabilities.version)
        found: list[Copied] = []
        notes: list[str] = []
        try:
            for host, other in self._others():
                if len(found) == self._settings.replicas - 1:
                    break
                copied = other.copied(reader, wanted, job)
                if copied.copies:
                    found.append(copied)
                else:
                    notes.append(_reads_nothing(host, copied.why))
        except BaseException:
            self._release_copies(with_copies(taken, found, ()).elsewhere)
            raise
        places = {host.url: host.place for host in self._settings.hosts}
        readers = {self._shown: len(taken.partitions)} | {
            places[one.host]: len(one.copies) for one in found
        }
        notes.append(readers_note(readers, len(taken.partitions)))
        return with_copies(taken, found, tuple(notes))

    def _others(self, table: TableName | None = None) -> tuple[tuple[Host, ServerSource], ...]:
        """Return the other hosts if the address lets them read slices, else none."""
        if self._settings.replicas == 1:
            return ()
        if self._host is None:
            self._opened(table)
        for host in self._settings.hosts:
            if host != self._host and host not in self._readers:
                self._readers[host] = ServerSource(
                    replace(self._settings, hosts=(host,), replicas=1),
                    sync_timeout=self._sync_timeout,
                    is_exporting=self._is_exporting,
                    ignore_row_policies=self._ignores,
                )
        return tuple((host, other) for host, other in self._readers.items() if host != self._host)

    @property
    def _shown(self) -> str:
        return "" if self._host is None else self._host.place

    def _release_copies(self, elsewhere: tuple[tuple[str, str], ...]) -> None:
        """Drop copies; a copy that cannot be dropped stays until the next export from its host."""
        for host, other in self._others() if elsewhere else ():
            try:
                other.release_staging(tuple(name for at, name in elsewhere if at == host.url))
            except TableFormatError as error:
                _LOGGER.warning("staging tables at %s stay: %s", host.place, error)

    def _visible(self, taken: SourceSnapshot) -> SourceSnapshot:
        """Refuse partitions of which the user is not shown all rows."""
        if not self._must_count or not taken.partitions:
            return taken
        try:
            refused = self._refused(taken)
        except BaseException:
            self.release(taken)
            raise
        kept = tuple(one for one in taken.partitions if one.partition_id not in refused)
        if not kept:
            self.release(taken)
        return replace(
            taken,
            partitions=kept,
            refused=tuple(sorted((*taken.refused, *refused.items()), key=lambda pair: pair[0])),
            handle=taken.handle if kept else (),
        )

    @property
    def _must_count(self) -> bool:
        """Whether the table may have row policies that were not listed."""
        if not self._is_exporting or self._ignores:
            return False
        return self._policies is None or self._policies.must_count

    def _refused(self, taken: SourceSnapshot) -> dict[PartitionId, TableFormatError]:
        connection, capabilities = self._opened(taken.table.name)
        visible = {p.source_name: p.visible_rows for one in taken.partitions for p in one.parts}
        ids = tuple(one.partition_id for one in taken.partitions)
        name = taken.table.name
        hidden = hidden_rows(connection, capabilities, name, ids, visible)
        return {one: refuse_hidden(name, one, what, self._user) for one, what in hidden.items()}

    def _connected(self, table: TableName | None) -> Connection:
        connection = self._reached(table)
        self._host = connection.host
        try:
            self._check(connection, table)
        except BaseException:
            connection.close()
            raise
        return connection

    def _reached(self, table: TableName | None) -> ServerConnection:
        """Connect to the chosen replica, or choose one."""
        if self._host is None:
            return self._chosen(table)
        return connect(replace(self._settings, hosts=(self._host,)), table)

    def _chosen(self, table: TableName | None) -> ServerConnection:
        """Connect to the best replica, or to any if the user may not see their lag."""
        try:
            return connect(self._settings, table)
        except SourceError as error:
            # The user may not see the lag of replicas. Reading needs that right, too; any replica
            # reports what is missing.
            if error.code != ACCESS_DENIED:
                raise
            return connect(self._settings, None)

    def _check(self, connection: ServerConnection, table: TableName | None) -> None:
        """Check the user's rights once: rights of the start may be revoked before the end."""
        if self._was_checked:
            return
        if not self._is_exporting or table is None:
            check_system_tables(connection)
            return
        standing = standing_of(connection, table, connection.staging_database)
        refusal = standing.refusal(ignore_row_policies=self._ignores)
        if refusal is not None:
            raise refusal
        self._policies, self._user = standing.policies, standing.user
        self._was_checked = True


def _reads_nothing(host: Host, why: str) -> str:
    return f"{host.place} reads no slices: {why}"


def _is_readable(
    table: MergeTreeTable, one: PartitionId, parts: tuple[Part, ...], there: tuple[Part, ...]
) -> bool:
    """Whether another replica has the same parts of a partition."""
    here = tuple(part for part in parts if part.partition_id == one)
    others = tuple(part for part in there if part.partition_id == one)
    return bool(here) and are_readable(table, here) and same_parts(here, others)


def _can_be_read(connection: ServerConnection, table: TableName) -> bool:
    """Whether a replica still responds and is not read-only."""
    try:
        lag = lag_of(connection, table)
    except SourceError:
        # The connection to all replicas that follows reports each with the reason.
        return False
    return lag is None or not lag.read_only

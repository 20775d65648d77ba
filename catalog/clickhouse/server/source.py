"""`ServerSource`: a server as a source, asked first whether its user may do what an export does.

Owns when the user is looked at: once, before anything is made. And that nothing is exported which
the user must not see: row policies that are listed refuse the export, those that are not are found
by counting what the user is shown of the frozen partitions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from catalog.clickhouse.connection import Connection
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.policies import Policies, hidden_rows, refuse_hidden
from catalog.clickhouse.server.replicas import SYNC_TIMEOUT, connect
from catalog.clickhouse.server.report import ServerReport, report_of
from catalog.clickhouse.server.settings import ServerSettings
from catalog.clickhouse.server.standing import check_system_tables, standing_of
from catalog.clickhouse.source import ClickHouseSource
from tableformat.errors import SourceError, TableFormatError
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId, TableName
from tableformat.source import Probe, SourceSnapshot

__all__ = ["ServerSource"]

_ACCESS_DENIED: Final = 497


class ServerSource(ClickHouseSource):
    """A server as a source. A context manager: leaving it lets go, snapshots stay."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        sync_timeout: float = SYNC_TIMEOUT,
        is_exporting: bool = False,
        ignore_row_policies: bool = False,
    ) -> None:
        """Keep how to reach the server; nothing is sent yet.

        Args:
            settings: of the server; its hosts are replicas of one another.
            sync_timeout: how many seconds a partition waits for parts that its replica lacks.
            is_exporting: whether snapshots will be taken for an export: then the rights for that
                are asked for first, and row policies refuse it.
            ignore_row_policies: whether rows that the user is not shown are exported too.
        """
        super().__init__(self._connected, sync_timeout=sync_timeout)
        self._settings = settings
        self._is_exporting = is_exporting
        self._ignores = ignore_row_policies
        self._was_checked = False
        self._user = ""
        self._policies: Policies | None = None

    def report(self, table: TableName) -> ServerReport:
        """Return what can be said about an export of a table, whatever is missing.

        Raises:
            SourceError: the server cannot be asked.
        """
        try:
            connection = connect(self._settings, table)
        except SourceError as error:
            if error.code != _ACCESS_DENIED:
                raise
            # It may not see how far the replicas are behind; any of them can say so.
            connection = connect(self._settings, None)
        with connection:
            return report_of(connection, table, connection.staging_database, ignores=self._ignores)

    def snapshot(
        self,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...] = (),
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        """Freeze partitions, and refuse those of which the user is not shown all rows.

        Raises:
            SourceError: the source cannot be used at all.
        """
        taken = super().snapshot(table, partition_ids, job=job, probes=probes, digest=digest)
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
        """Whether row policies may be there that nobody has seen."""
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
        connection = connect(self._settings, table)
        try:
            self._check(connection, table)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: ServerConnection, table: TableName | None) -> None:
        """Look at the user, once: what was allowed at the start may be given back in the end."""
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

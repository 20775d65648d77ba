"""Which of several replicas serves a job, and when it has all of a partition.

Any replica of a table gives the same parts under the same names (coverage.md reading 3), so a job
takes the one that is behind the least, and stays with it: its staging tables are there. One that
lost its Keeper is read-only and knows nothing of what the others got since, so it is never taken. A
replica may still lack parts that it was told of; a partition is waited for until it has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.connection import Connection, flag, text, whole
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import Host, ServerSettings
from tableformat.errors import RefusedError, SourceError, TableFormatError
from tableformat.names import PartitionId, TableName, quote_string

__all__ = ["SYNC_TIMEOUT", "Lag", "Waiting", "connect", "lag_of"]

SYNC_TIMEOUT: Final = 60.0
_LOOK_SECONDS: Final = 0.5
_LACKING: Final = "lacking"


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a replica of a table is behind: `delay` in seconds, `unread` entries of its log.

    `lacking` are the parts that it was told of and does not have yet.
    """

    read_only: bool
    delay: int
    unread: int
    lacking: int

    @property
    def rank(self) -> tuple[int, int]:
        """The lower, the better to read from."""
        return self.delay, self.unread + self.lacking


def connect(settings: ServerSettings, name: TableName | None) -> ServerConnection:
    """Return a connection to the host that a job should stay with.

    Args:
        settings: of the source; its hosts are replicas of one another.
        name: the table that will be read, None when it does not matter.

    Raises:
        SourceError: no host can be used; each is named with the reason.
    """
    if len(settings.hosts) == 1:
        return _connection(settings, settings.hosts[0])
    found: list[tuple[tuple[int, int], int, ServerConnection]] = []
    reasons: list[str] = []
    for number, host in enumerate(settings.hosts):
        connection = _connection(settings, host)
        try:
            lag = _asked(connection, name)
        except SourceError as error:
            connection.close()
            if _is_of_every_host(error):
                raise
            reasons.append(f"{host.url}: {error.message}")
            continue
        if lag is not None and lag.read_only:
            connection.close()
            reasons.append(f"{host.url}: its replica of {name} is read-only")
            continue
        found.append((lag.rank if lag is not None else (0, 0), number, connection))
    if not found:
        message = (
            f"Cannot read from any replica of {settings.shown}: {' '.join(reasons)} Run the same "
            "command again when one of them answers."
        )
        raise SourceError(message)
    (_, _, best), *others = sorted(found, key=lambda one: one[:2])
    for _, _, connection in others:
        connection.close()
    return best


def lag_of(connection: Connection, name: TableName) -> Lag | None:
    """Return how far the replica of a table is behind, None when the table is not replicated.

    Raises:
        SourceError: the source cannot be read.
    """
    found = connection.rows(
        "SELECT is_readonly, toUInt64(absolute_delay), toInt64(log_max_index),"
        " toInt64(log_pointer), toInt64(inserts_in_queue) FROM system.replicas"
        f" WHERE {_of_table(name)}"
    )
    if not found:
        return None
    ((read_only, delay, last, next_one, lacking),) = found
    # The pointer stands at the entry that is read next.
    unread = max(0, whole(last) + 1 - whole(next_one))
    return Lag(flag(read_only), whole(delay), unread, whole(lacking))


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits until a replica has the parts of partitions; `timeout` in seconds."""

    connection: Connection
    timeout: float = SYNC_TIMEOUT
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def refused(
        self, name: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, TableFormatError]:
        """Return the partitions that the replica has not caught up on in time, with the reason.

        Raises:
            SourceError: the source cannot be read.
        """
        until = self.clock() + self.timeout
        while True:
            lag = lag_of(self.connection, name)
            if lag is None:
                return {}
            lacking = self._lacking(name, partition_ids)
            if not lag.read_only and not lag.unread and not lacking:
                return {}
            if self.clock() >= until:
                return {
                    one: self._refusal(name, one, lag, lacking.get(one, ()))
                    for one in partition_ids
                    if lag.read_only or lag.unread or one in lacking
                }
            self.pause(_LOOK_SECONDS)

    def _lacking(
        self, name: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, tuple[str, ...]]:
        """Return what a replica has still to fetch or to do, by partition."""
        found = self.connection.rows(
            f"SELECT type, new_part_name FROM system.replication_queue WHERE {_of_table(name)}"
        )
        lacking: dict[PartitionId, tuple[str, ...]] = {}
        for row in found:
            kind, part = text(row[0]), text(row[1])
            # A merge or a mutation changes no row set that another replica would not have; a clone
            # of what is there is as good.
            if kind in _MAKES_FROM_OWN:
                continue
            for one in partition_ids:
                if part.startswith(f"{one}_") or not part:
                    lacking[one] = (*lacking.get(one, ()), f"{kind} {part}".strip())
        return lacking

    def _refusal(
        self, name: TableName, one: PartitionId, lag: Lag, lacking: tuple[str, ...]
    ) -> RefusedError:
        what = f"Cannot export partition {one} of {name}: its replica"
        if lag.read_only:
            why = "is read-only, so it may lack what other replicas have"
        elif lacking:
            why = f"has still to do {', '.join(lacking[:3])}"
        else:
            why = f"has {lag.unread} entries of its log still to read"
        return RefusedError(
            f"{what} {why}, after {self.timeout:g} s. Run again later, name another replica in "
            "--source, or raise --sync-timeout."
        )


_MAKES_FROM_OWN: Final = frozenset({"MERGE_PARTS", "MUTATE_PART", "CLEAR_COLUMN", "CLEAR_INDEX"})


def _connection(settings: ServerSettings, host: Host) -> ServerConnection:
    return ServerConnection(ServerClient(settings, host))


def _asked(connection: ServerConnection, name: TableName | None) -> Lag | None:
    if name is None:
        connection.rows("SELECT 1")
        return None
    return lag_of(connection, name)


def _is_of_every_host(error: SourceError) -> bool:
    """Whether another replica would say the same: who logs in, and not where."""
    return error.code in _LOGIN_CODES


_LOGIN_CODES: Final = frozenset({192, 193, 194, 497, 516})


def _of_table(name: TableName) -> str:
    return f"database = {quote_string(name.database)} AND table = {quote_string(name.name)}"

"""Which of several replicas serves a job, and when it has all of a partition.

Any replica of a table gives the same parts under the same names (coverage.md reading 3), so a job
takes the one that is behind the least, and stays with it: its staging tables are there. One that
lost its Keeper is read-only and knows nothing of what the others got since, so it is never taken. A
replica may still lack parts that it was told of; a partition is waited for until it has them, and
its partitions are listed when it has a part of each.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.connection import (
    ClickHouseError,
    Connection,
    flag,
    text,
    texts,
    whole,
)
from catalog.clickhouse.describe import of_table
from catalog.clickhouse.server.answers import LOGIN_REFUSED
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import Host, ServerSettings
from catalog.some import some
from tableformat.clickhouse_codes import ACCESS_DENIED, READONLY
from tableformat.errors import RefusedError, SourceError, TableFormatError
from tableformat.names import PartitionId, TableName

__all__ = ["SYNC_TIMEOUT", "Lag", "Waiting", "connect", "is_part_of", "lag_of"]

SYNC_TIMEOUT: Final = 60.0
_LOOK_SECONDS: Final = 0.5


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
    try:
        found = connection.rows(
            "SELECT is_readonly, toUInt64(absolute_delay), toInt64(log_max_index),"
            " toInt64(log_pointer), toInt64(inserts_in_queue) FROM system.replicas"
            f" WHERE {of_table(name)}"
        )
    except ClickHouseError as error:
        # A user who exports no replicated table needs no right on this system table.
        if error.code != ACCESS_DENIED or _is_replicated(connection, name):
            raise
        return None
    if not found:
        return None
    ((read_only, delay, last, next_one, lacking),) = found
    # The pointer stands at the entry that is read next.
    unread = max(0, whole(last) + 1 - whole(next_one))
    return Lag(flag(read_only), whole(delay), unread, whole(lacking))


def _is_replicated(connection: Connection, name: TableName) -> bool:
    asked = f"SELECT engine FROM system.tables WHERE {of_table(name, column='name')}"
    return any(engine.startswith("Replicated") for engine in texts(connection, asked))


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits until a replica has the parts of partitions; `timeout` in seconds."""

    connection: Connection
    timeout: float = SYNC_TIMEOUT
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def check_listed(self, name: TableName) -> None:
        """Wait until the replica has a part of every partition that it was told of.

        One that is read-only is not waited for: each of its partitions is refused, where it has
        any.

        Raises:
            RefusedError: it has not in time: a list of its partitions would leave some out.
            SourceError: the source cannot be read.
        """
        until = self.clock() + self.timeout
        while True:
            lag = lag_of(self.connection, name)
            if lag is None:
                return
            listed = self._listed(name)
            missing = tuple(
                f"{kind} {part}".strip()
                for kind, part in self._queued(name)
                if not any(is_part_of(part, one) for one in listed)
            )
            if lag.read_only and listed:
                return
            if not lag.read_only and not lag.unread and not missing:
                return
            if lag.read_only or self.clock() >= until:
                raise self._refusal(f"list the partitions of {name}", lag, missing)
            self.pause(_LOOK_SECONDS)

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
                    one: self._refusal(
                        f"export partition {one} of {name}", lag, lacking.get(one, ())
                    )
                    for one in partition_ids
                    if lag.read_only or lag.unread or one in lacking
                }
            self.pause(_LOOK_SECONDS)

    def _lacking(
        self, name: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, tuple[str, ...]]:
        """Return what a replica has still to fetch or to do, by partition."""
        lacking: dict[PartitionId, tuple[str, ...]] = {}
        for kind, part in self._queued(name):
            for one in partition_ids:
                if is_part_of(part, one) or not part:
                    lacking[one] = (*lacking.get(one, ()), f"{kind} {part}".strip())
        return lacking

    def _listed(self, name: TableName) -> tuple[PartitionId, ...]:
        found = self.connection.rows(
            f"SELECT DISTINCT partition_id FROM system.parts WHERE active AND {of_table(name)}"
        )
        return tuple(PartitionId(text(row[0])) for row in found)

    def _queued(self, name: TableName) -> tuple[tuple[str, str], ...]:
        """Return what a replica has still to do that changes which rows it has: kind and part.

        A merge or a mutation changes no row set that another replica would not have; a clone of
        what is there is as good.
        """
        found = self.connection.rows(
            f"SELECT type, new_part_name FROM system.replication_queue WHERE {of_table(name)}"
        )
        queued = [(text(row[0]), text(row[1])) for row in found]
        return tuple(one for one in queued if one[0] not in _MAKES_FROM_OWN)

    def _refusal(self, what: str, lag: Lag, lacking: tuple[str, ...]) -> RefusedError:
        if lag.read_only:
            why = "is read-only, so it may lack what other replicas have"
        elif lacking:
            why = f"has still to do {some(lacking)}"
        else:
            why = f"has {lag.unread} entries of its log still to read"
        after = "" if lag.read_only else f", after {self.timeout:g} s"
        return RefusedError(
            f"Cannot {what}: its replica {why}{after}. Run again later, name "
            "another replica in --source, or raise --sync-timeout."
        )


def is_part_of(part: str, partition_id: PartitionId) -> bool:
    """Whether a part's name may be of a partition; in doubt it is.

    In tables of the old syntax it begins with two days of the month that the partition is:
    `20240101_20240131_1_1_0` (source.md section 5).
    """
    one = str(partition_id)
    if part.startswith(f"{one}_"):
        return True
    return _MONTH.fullmatch(one) is not None and bool(re.match(rf"{one}\d\d_{one}\d\d_", part))


_MONTH: Final = re.compile(r"\d{6}")
_MAKES_FROM_OWN: Final = frozenset({"MERGE_PARTS", "MUTATE_PART", "CLEAR_COLUMN", "CLEAR_INDEX"})


def _connection(settings: ServerSettings, host: Host) -> ServerConnection:
    return ServerConnection(ServerClient(settings, host))


def _asked(connection: ServerConnection, name: TableName | None) -> Lag | None:
    try:
        if name is not None:
            return lag_of(connection, name)
        connection.rows("SELECT 1")
    except SourceError as error:
        # A user with readonly = 1 may ask nothing as it has to be asked; who reads next says so.
        if error.code != READONLY:
            raise
    return None


def _is_of_every_host(error: SourceError) -> bool:
    """Whether another replica would say the same: who logs in, and not where."""
    return error.code in (*LOGIN_REFUSED, ACCESS_DENIED)

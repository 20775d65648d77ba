"""Chooses the replica that serves a job, resolves cluster shards, and ends a job's queries.

- Any replica of a table gives the same parts under the same names (RQ…ClustersNodes). A job
  takes the one that is least behind and stays there, because its staging tables are there. A
  read-only replica, which lost its Keeper, is never taken.
- A replica may still lack parts that its log names. `Waiting` waits for a partition until the
  replica has them, and for the list of partitions until it has a part of each.
- Each shard is a source of its own (RQ…Shards): its local table has its own key and parts, and
  all shards export into the same lake partitions. A cluster names its hosts by the native port,
  so the HTTP port is that of the address, or is given for each host.
- The ids of all queries of a job share a prefix; `kill_queries` ends them and does not wait.

See docs/reference/source-server.md, "Shards" and "Another replica".
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.connection import ClickHouseError, Connection, flag, text, texts, whole
from catalog.clickhouse.server.client import LOGIN_REFUSED, ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.settings import Host, ServerSettings, host_at
from catalog.clickhouse.table_description import of_table
from catalog.network import some
from catalog.source_defaults import SYNC_TIMEOUT
from tableformat.clickhouse_codes import ACCESS_DENIED, CLUSTER_DOESNT_EXIST, READONLY
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    SourceError,
    TableFormatError,
    Unable,
    UnsupportedError,
    UsageError,
)
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.messages import Option
from tableformat.names import PartitionId, TableName, quote_string

__all__ = [
    "ClusterHost",
    "Distributed",
    "Lag",
    "Shard",
    "Waiting",
    "connect",
    "distributed_table",
    "hosts_of",
    "is_part_of",
    "kill_queries",
    "lag_of",
    "query_prefix",
    "shards_of",
]

_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a replica: `delay` in seconds, and `unread` entries of its log.

    `lacking` is the number of parts that it has to fetch.
    """

    read_only: bool
    delay: int
    unread: int
    lacking: int

    @property
    def rank(self) -> tuple[int, int]:
        """The order of preference: a lower value is better."""
        return self.delay, self.unread + self.lacking


def connect(settings: ServerSettings, name: TableName | None) -> ServerConnection:
    """Return a connection to the host that a job should use.

    Args:
        settings: of the source; its hosts are replicas of one another.
        name: the table to read, None if it does not matter.

    Raises:
        SourceError: no host can be used; the message names each with the reason.
    """
    if len(settings.hosts) == 1:
        return _connection(settings, settings.hosts[0])
    found: list[tuple[tuple[int, int], int, ServerConnection]] = []
    reasons: list[str] = []
    for number, host in enumerate(settings.hosts):
        connection = _connection(settings, host)
        try:
            lag = _lag_or_none(connection, name)
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
            f"Cannot read from any replica of {settings.shown}: {' '.join(reasons)} Run it again "
            "when one of them responds."
        )
        raise SourceError(message)
    (_, _, best), *others = sorted(found, key=lambda one: one[:2])
    for _, _, connection in others:
        connection.close()
    return best


def lag_of(connection: Connection, name: TableName) -> Lag | None:
    """Return the lag of a table's replica, None if the table is not replicated.

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
        # Without replicated tables, the user needs no right on this system table.
        if error.code != ACCESS_DENIED or _is_replicated(connection, name):
            raise
        return None
    if not found:
        return None
    ((read_only, delay, last, next_one, lacking),) = found
    # The pointer is that of the next entry to read.
    unread = max(0, whole(last) + 1 - whole(next_one))
    return Lag(flag(read_only), whole(delay), unread, whole(lacking))


def _is_replicated(connection: Connection, name: TableName) -> bool:
    query = f"SELECT engine FROM system.tables WHERE {of_table(name, column='name')}"
    return any(engine.startswith("Replicated") for engine in texts(connection, query))


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits until a replica has the parts of partitions, for `timeout` seconds."""

    connection: Connection
    timeout: float = SYNC_TIMEOUT
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def check_listed(self, name: TableName) -> None:
        """Wait until the replica has a part of every partition in its log.

        It does not wait for a read-only replica, whose partitions are refused one by one.

        Raises:
            RefusedError: the time is over, and a list of partitions would be incomplete.
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
                message = f"Cannot list the partitions of {name}: {self._why(lag, missing)}"
                raise RefusedError(message)
            self.pause(_LOOK_SECONDS)

    def refused(
        self, name: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, TableFormatError]:
        """Return the partitions whose parts did not arrive in time, with the reason.

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
                    one: RefusedError(
                        Unable.of(
                            f"partition {one} of {name}", self._why(lag, lacking.get(one, ()))
                        )
                    )
                    for one in partition_ids
                    if lag.read_only or lag.unread or one in lacking
                }
            self.pause(_LOOK_SECONDS)

    def _lacking(
        self, name: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, tuple[str, ...]]:
        """Return the unfinished tasks of a replica's queue by partition."""
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
        """Return the unfinished tasks that change the rows of a replica: type and part.

        Merges and mutations are left out, because they use the replica's own parts, and a clone of
        these has the same rows.
        """
        found = self.connection.rows(
            f"SELECT type, new_part_name FROM system.replication_queue WHERE {of_table(name)}"
        )
        queued = [(text(row[0]), text(row[1])) for row in found]
        return tuple(one for one in queued if one[0] not in _MAKES_FROM_OWN)

    def _why(self, lag: Lag, lacking: tuple[str, ...]) -> str:
        """Return why rows may be missing here, and what to do."""
        if lag.read_only:
            why = "is read-only, so it may lack what other replicas have"
        elif lacking:
            why = f"has still to do {some(lacking)}"
        else:
            why = f"has {lag.unread} entries of its log still to read"
        after = "" if lag.read_only else f", after {self.timeout:g} s"
        return (
            f"its replica {why}{after}. Run again later, name another replica in {Option.SOURCE}, "
            f"or raise {Option.SYNC_TIMEOUT}."
        )


def is_part_of(part: str, partition_id: PartitionId) -> bool:
    """Whether a name may be that of a part of a partition; True in doubt.

    In the old syntax it begins with two days, and the partition is their month:
    `20240101_20240131_1_1_0`.
    """
    one = str(partition_id)
    if part.startswith(f"{one}_"):
        return True
    return _MONTH.fullmatch(one) is not None and bool(re.match(rf"{one}\d\d_{one}\d\d_", part))


_MONTH: Final = re.compile(r"\d{6}")
_MAKES_FROM_OWN: Final = frozenset({"MERGE_PARTS", "MUTATE_PART", "CLEAR_COLUMN", "CLEAR_INDEX"})


def _connection(settings: ServerSettings, host: Host) -> ServerConnection:
    return ServerConnection(ServerClient(settings, host))


def _lag_or_none(connection: ServerConnection, name: TableName | None) -> Lag | None:
    try:
        if name is not None:
            return lag_of(connection, name)
        connection.rows("SELECT 1")
    except SourceError as error:
        # A user with readonly = 1 may not send the settings of the query; the next read reports
        # that.
        if error.code != READONLY:
            raise
    return None


def _is_of_every_host(error: SourceError) -> bool:
    """Whether every replica would return the error, because it is about the user."""
    return error.code in (*LOGIN_REFUSED, ACCESS_DENIED)


_ARGUMENTS: Final = 3
_NONE_KNOWN: Final = (
    f"none. Leave {Option.CLUSTER} out, or define it in the server's remote_servers."
)
_PORT: Final = re.compile(r":[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class ClusterHost:
    """A host in a cluster's definition; `port` is that of the native protocol."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of a cluster: its number, and its replicas in order."""

    number: int
    replicas: tuple[ClusterHost, ...]


@dataclass(frozen=True, slots=True)
class Distributed:
    """The tables behind a Distributed table: one table on each shard of a cluster."""

    cluster: str
    table: TableName


def distributed_table(connection: Connection, name: TableName) -> Distributed | None:
    """Return the tables behind a Distributed table, None for another engine.

    Raises:
        UnsupportedError: it is over a table function, or over no single table.
        SourceError: the source cannot be read.
    """
    found = texts(
        connection,
        "SELECT engine_full FROM system.tables WHERE engine = 'Distributed'"
        f" AND database = {quote_string(name.database)} AND name = {quote_string(name.name)}",
    )
    if not found:
        return None
    arguments = _arguments(found[0])
    named = [_name_of(argument) for argument in arguments[:_ARGUMENTS]]
    if len(named) < _ARGUMENTS or not all(named):
        message = (
            f"Cannot find the tables behind {name}: its engine is {found[0]}. Name the local "
            f"table, and its cluster by {Option.CLUSTER}."
        )
        raise UnsupportedError(message)
    cluster, database, table = named
    return Distributed(cluster, TableName(database, table))


def shards_of(connection: Connection, cluster: str) -> tuple[Shard, ...]:
    """Return the shards of a cluster, in order.

    Raises:
        NotFoundError: the server has no such cluster.
        SourceError: the source cannot be read.
    """
    rows = connection.rows(
        "SELECT toInt64(shard_num), host_name, toInt64(port) FROM system.clusters"
        f" WHERE cluster = {quote_string(cluster)} ORDER BY shard_num, replica_num"
    )
    if not rows:
        known = texts(connection, "SELECT DISTINCT cluster FROM system.clusters ORDER BY cluster")
        shown = f"{', '.join(known[:10])}. Name one of them." if known else _NONE_KNOWN
        message = f"Cannot find the cluster {cluster!r}: the server knows {shown}"
        raise NotFoundError(message, code=CLUSTER_DOESNT_EXIST)
    shards: dict[int, tuple[ClusterHost, ...]] = {}
    for row in rows:
        host = ClusterHost(text(row[1]), whole(row[2]))
        shards[whole(row[0])] = (*shards.get(whole(row[0]), ()), host)
    return tuple(Shard(number, replicas) for number, replicas in shards.items())


def hosts_of(settings: ServerSettings, shard: Shard, places: Mapping[str, str]) -> tuple[Host, ...]:
    """Return the HTTP addresses of a shard's replicas.

    Args:
        settings: of the source, whose first host gives scheme and port.
        shard: the shard.
        places: maps `HOST:PORT` in the cluster's definition to `HOST:PORT` of the HTTP interface,
            for hosts where they differ.

    Raises:
        UsageError: a place is not HOST:PORT.
    """
    like = settings.hosts[0]
    hosts = []
    for replica in shard.replicas:
        given = places.get(str(replica))
        if given is None:
            hosts.append(Host(like.scheme, replica.name, like.port))
            continue
        host = host_at(like.scheme, given) if _PORT.search(given) else None
        if host is None:
            message = (
                f"Cannot find {replica} at {given!r}: that is not HOST:PORT. Write for example "
                f"{Option.CLUSTER_HOST} {replica}={replica.name}:{like.port}."
            )
            raise UsageError(message)
        hosts.append(host)
    return tuple(hosts)


def _arguments(engine_full: str) -> tuple[Expression, ...]:
    text = parse_engine(engine_full).arguments
    read = parse_expression(f"tuple({text})", what="engine")
    return read.arguments if isinstance(read, Call) else ()


def _name_of(argument: Expression) -> str:
    """Return a name, which older versions write without quotes, '' for other arguments."""
    match argument:
        case Literal(str() as name) | ColumnName(name):
            return name
        case _:
            return ""


_LOGGER = logging.getLogger("mergeberg.source")


def query_prefix(job: str) -> str:
    """Return the prefix of the ids of all queries of a job's tasks."""
    return f"mergeberg-{job}-"


def kill_queries(settings: ServerSettings, hosts: Collection[str], job: str) -> None:
    """Kill the queries of a job's tasks on some servers, without waiting for their end.

    A query whose client has disconnected ends with its next block, but a query that sorts has none
    for a long time. If a server cannot be reached, only its work is lost: that is logged.

    Args:
        settings: of the source.
        hosts: the addresses of the servers that the tasks read.
        job: the job of the queries.
    """
    for host in (host for host in settings.hosts if host.url in hosts):
        mine = f"startsWith(query_id, {quote_string(query_prefix(job))})"
        with ServerClient(settings, host) as client:
            try:
                client.query(f"KILL QUERY WHERE {mine} ASYNC")
            except SourceError as error:
                _LOGGER.warning("queries of an ended export may still run: %s", error)

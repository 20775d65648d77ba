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
    UnsupportedError,
    UsageError,
)
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_text import parse_expression
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


_ARGUMENTS: Final = 3
_NONE_KNOWN: Final = "none. Leave --cluster out, or define it in the server's remote_servers."
_PORT: Final = re.compile(r":[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class ClusterHost:
    """A host as its cluster names it; `port` is of the native protocol."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a cluster, by its number, with its replicas in their order."""

    number: int
    replicas: tuple[ClusterHost, ...]


@dataclass(frozen=True, slots=True)
class Distributed:
    """What a Distributed table stands for: a table of each shard of a cluster."""

    cluster: str
    table: TableName


def distributed_table(connection: Connection, name: TableName) -> Distributed | None:
    """Return what a table stands for when it is Distributed, else None.

    Raises:
        UnsupportedError: it stands for a table function, or for no one table.
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
            f"Cannot tell which table {name} stands for: its engine is {found[0]}. Name the local "
            "table, and its cluster by --cluster."
        )
        raise UnsupportedError(message)
    cluster, database, table = named
    return Distributed(cluster, TableName(database, table))


def shards_of(connection: Connection, cluster: str) -> tuple[Shard, ...]:
    """Return the shards of a cluster, in their order.

    Raises:
        NotFoundError: the server knows no such cluster.
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
    """Return where the replicas of a shard answer over HTTP.

    Args:
        settings: of the source; scheme and port are taken over from its first host.
        shard: whose replicas.
        places: `HOST:PORT` over HTTP by `HOST:PORT` as the cluster names it, where they differ.

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
                f"--cluster-host {replica}={replica.name}:{like.port}."
            )
            raise UsageError(message)
        hosts.append(host)
    return tuple(hosts)


def _arguments(engine_full: str) -> tuple[Expression, ...]:
    text = parse_engine(engine_full).arguments
    read = parse_expression(f"tuple({text})", what="engine")
    return read.arguments if isinstance(read, Call) else ()


def _name_of(argument: Expression) -> str:
    """Return a name, which older versions write without quotes; '' for anything else."""
    match argument:
        case Literal(str() as name) | ColumnName(name):
            return name
        case _:
            return ""


_LOGGER = logging.getLogger("mergeberg.source")


def query_prefix(job: str) -> str:
    """Return how the ids of all queries of a job's tasks begin."""
    return f"mergeberg-{job}-"


def kill_queries(settings: ServerSettings, hosts: Collection[str], job: str) -> None:
    """Let servers end what tasks of a job may still read there; nobody waits for it.

    A query whose reader is gone ends by itself with its next block, but one that sorts first has
    none for a long time. Where a server cannot be told, nothing is lost but its work: that is
    logged.

    Args:
        settings: of the source.
        hosts: the addresses of the servers that the tasks read.
        job: whose queries.
    """
    for host in (host for host in settings.hosts if host.url in hosts):
        mine = f"startsWith(query_id, {quote_string(query_prefix(job))})"
        with ServerClient(settings, host) as client:
            try:
                client.query(f"KILL QUERY WHERE {mine} ASYNC")
            except SourceError as error:
                _LOGGER.warning("queries of an ended export may still run: %s", error)

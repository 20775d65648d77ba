"""The shards of a cluster, and the local table of a Distributed one.

Each shard is a source of its own: its local table has its own key and its own parts, and all land
in the same lake partitions (coverage.md readings 3 and 22). A cluster names its hosts by the port
of the native protocol, so which port speaks HTTP has to be known from elsewhere: the same on every
host as in the address, or given for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.connection import Connection, text, texts, whole
from catalog.clickhouse.server.settings import Host, ServerSettings, host_at
from tableformat.clickhouse_codes import CLUSTER_DOESNT_EXIST
from tableformat.errors import NotFoundError, UnsupportedError, UsageError
from tableformat.mergetree.engine_text import parse_engine
from tableformat.mergetree.expression import Call, ColumnName, Expression, Literal
from tableformat.mergetree.expression_text import parse_expression
from tableformat.names import TableName, quote_string

__all__ = ["ClusterHost", "Distributed", "Shard", "distributed_table", "hosts_of", "shards_of"]

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

"""Resolves a table name to the tables that are read: one table, or one local table of each shard.

- `local_tables` resolves a Distributed table or a cluster.
- `hosts_to_look_at` lists each host of a source or cluster once, for work on every host.
- `other_replica` finds another host when the host of a job no longer responds. It connects to the
  other hosts of the address, the least-behind first; `ServerSource.why_not_instead_of` decides
  whether a host fits.

See docs/reference/source-server.md, "Shards" and "Another replica".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.replicas import (
    Distributed,
    connect,
    distributed_table,
    hosts_of,
    shards_of,
)
from catalog.clickhouse.server.settings import Host
from catalog.clickhouse.server.source import ServerSource
from catalog.network import shown_address
from catalog.sources import SourcePlace, each_host, open_source, server_of
from tableformat.clickhouse_codes import READONLY
from tableformat.errors import RefusedError, SourceError, UsageError
from tableformat.messages import Option
from tableformat.names import TableName

__all__ = ["LocalTable", "hosts_to_look_at", "local_tables", "other_replica"]


@dataclass(frozen=True, slots=True)
class LocalTable:
    """A table on a source; `shard` is the number of its shard, None outside a cluster."""

    place: SourcePlace
    table: TableName
    shard: int | None = None

    @property
    def fields(self) -> dict[str, int]:
        """The fields that begin a result line about the table: the shard, if there is one."""
        return {} if self.shard is None else {"shard": self.shard}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return tuple(self.fields)


def local_tables(
    place: SourcePlace,
    table: TableName,
    *,
    cluster: str | None = None,
    cluster_hosts: Mapping[str, str] | None = None,
) -> tuple[LocalTable, ...]:
    """Return the tables to read for a name: one table, or one of each shard.

    Args:
        place: the source.
        table: a Distributed table, or any other.
        cluster: the cluster whose shards have the table; None for that of a Distributed table.
        cluster_hosts: maps `HOST:PORT` in the cluster's definition to `HOST:PORT` of the HTTP
            interface; added to those of the source.

    Raises:
        UsageError: a cluster is named, and the source is no server.
        NotFoundError: the server has no such cluster.
        UnsupportedError: the tables behind the Distributed table cannot be determined.
        SourceError: the server cannot be read.
    """
    settings = server_of(place)
    if settings is None:
        if cluster is not None:
            raise _no_server(place, f"the cluster {cluster!r}")
        return (LocalTable(place, table),)
    with contextlib.closing(connect(settings, None)) as connection:
        distributed = _distributed(connection, table)
        of = cluster or (distributed.cluster if distributed else None)
        if of is None:
            return (LocalTable(place, table),)
        local = distributed.table if distributed else table
        shards = shards_of(connection, of)
    return tuple(
        LocalTable(
            replace(place, hosts=hosts_of(settings, shard, _over_http(place, cluster_hosts))),
            local,
            shard.number,
        )
        for shard in shards
    )


def hosts_to_look_at(
    place: SourcePlace,
    *,
    cluster: str | None = None,
    table: TableName | None = None,
    cluster_hosts: Mapping[str, str] | None = None,
) -> tuple[SourcePlace, ...]:
    """Return a place for each host of a source, or of all shards of a cluster, each once.

    Args:
        place: the source.
        cluster: the cluster; None for that of `table`, or for the source's own hosts.
        table: a Distributed table; any other is on the source's own hosts.
        cluster_hosts: maps `HOST:PORT` in the cluster's definition to `HOST:PORT` of the HTTP
            interface; added to those of the source.

    Raises:
        UsageError: a cluster or a table is named, and the source is no server.
        NotFoundError: the server has no such cluster.
        UnsupportedError: the tables behind the Distributed table cannot be determined.
        SourceError: the server cannot be read.
    """
    settings = server_of(place)
    if cluster is None and table is None:
        return each_host(place)
    if settings is None:
        raise _no_server(place, f"the cluster {cluster!r}" if cluster else f"the hosts of {table}")
    if cluster is None and table is not None:
        found = [one.place for one in local_tables(place, table, cluster_hosts=cluster_hosts)]
    else:
        with contextlib.closing(connect(settings, None)) as connection:
            shards = shards_of(connection, str(cluster))
        over_http = _over_http(place, cluster_hosts)
        hosts = (hosts_of(settings, shard, over_http) for shard in shards)
        found = [replace(place, hosts=one) for one in hosts]
    return tuple(dict.fromkeys(one for at in found for one in each_host(at)))


def _over_http(place: SourcePlace, given: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the HTTP addresses of a cluster's hosts: those of the source, then `given`."""
    return {**dict(place.cluster_hosts), **(given or {})}


def _no_server(place: SourcePlace, what: str) -> UsageError:
    message = (
        f"Cannot look for {what} in {shown_address(place.uri)}: it is no server. Name one of its "
        f"hosts, {Option.SOURCE} https://HOST."
    )
    return UsageError(message)


def _distributed(connection: ServerConnection, table: TableName) -> Distributed | None:
    """Return the definition of a Distributed table, None if it is none or cannot be checked."""
    try:
        return distributed_table(connection, table)
    except SourceError as error:
        # The check needs settings, which a user with readonly = 1 may not send. The next read of
        # the table reports this, with the user's other missing rights.
        if error.code != READONLY:
            raise
    return None


def other_replica(
    place: SourcePlace,
    gone: ServerSource,
    tried: Collection[Host],
    table: TableName,
    note: Callable[[str], None],
) -> Host | None:
    """Return another host of the source that can continue a job, None if there is none.

    Args:
        place: the source; its address names the hosts.
        gone: the source whose host no longer responds; another host must have the same parts.
        tried: hosts to leave out.
        table: the exported table.
        note: receives the reason why a host cannot continue.

    Raises:
        UsageError: the address is malformed.
    """
    settings = server_of(place)
    remaining = () if settings is None else tuple(one for one in settings.hosts if one not in tried)
    while remaining:
        with open_source(replace(place, hosts=remaining), is_exporting=True) as source:
            why = _why_not(source, gone, table)
            host = source.host if isinstance(source, ServerSource) else None
        if host is None:
            note(f"no other host of the address can continue: {why}")
            return None
        if not why:
            return host
        note(f"{host.place} cannot continue: {why}")
        remaining = tuple(one for one in remaining if one != host)
    return None


def _why_not(source: object, gone: ServerSource, table: TableName) -> str:
    if not isinstance(source, ServerSource):
        return "it is no server"
    try:
        return source.why_not_instead_of(gone, table)
    except (RefusedError, SourceError) as error:
        return error.message

"""Finds the tables that a name stands for: itself, or a local table of every shard of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from catalog.clickhouse.server.replicas import connect
from catalog.clickhouse.server.shards import distributed_table, hosts_of, shards_of
from catalog.clickhouse.server.shown import without_secret
from catalog.sources import SourcePlace, server_of
from tableformat.errors import UsageError
from tableformat.names import TableName

__all__ = ["LocalTable", "local_tables"]


@dataclass(frozen=True, slots=True)
class LocalTable:
    """A table and where it is; `shard` is the number of its shard, None of a table of its own."""

    place: SourcePlace
    table: TableName
    shard: int | None = None

    @property
    def fields(self) -> dict[str, int]:
        """What a line about something of it says first: which shard that is, if it is of one."""
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
    """Return what is read for a table: one, or one of each shard.

    Args:
        place: the source that was named.
        table: a Distributed table, or any other.
        cluster: whose shards have the table; None for the one of a Distributed table.
        cluster_hosts: `HOST:PORT` over HTTP by `HOST:PORT` as the cluster names it.

    Raises:
        UsageError: a cluster is named, and the source is no server.
        NotFoundError: the server knows no such cluster.
        UnsupportedError: what the Distributed table stands for cannot be told.
        SourceError: the server cannot be read.
    """
    settings = server_of(place)
    if settings is None:
        if cluster is not None:
            message = (
                f"Cannot look for the cluster {cluster!r} in {without_secret(place.uri)}: it is no "
                "server. Name one of its hosts, --source https://HOST."
            )
            raise UsageError(message)
        return (LocalTable(place, table),)
    with contextlib.closing(connect(settings, None)) as connection:
        distributed = distributed_table(connection, table)
        of = cluster or (distributed.cluster if distributed else None)
        if of is None:
            return (LocalTable(place, table),)
        local = distributed.table if distributed else table
        shards = shards_of(connection, of)
    return tuple(
        LocalTable(
            replace(place, hosts=hosts_of(settings, shard, cluster_hosts or {})),
            local,
            shard.number,
        )
        for shard in shards
    )

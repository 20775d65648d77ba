"""Which tables of a source are replicated under a path in ZooKeeper."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from catalog.clickhouse.connection import text
from catalog.clickhouse.keeper_node import MAIN_KEEPER, node_of
from catalog.clickhouse.server.replicas import Lag, connect, lag_of
from catalog.sources import SourcePlace, server_of
from tableformat.mergetree.keeper_node import KeeperNode
from tableformat.names import TableName, quote_string

__all__ = ["Replica", "replica_at", "tables_under"]


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of a table: the node that its Keeper has, None where that is not known, its lag."""

    node: KeeperNode | None
    lag: Lag | None


def tables_under(place: SourcePlace, path: str) -> tuple[TableName, ...]:
    """Return the tables of a server that are replicated under a path; none of other sources.

    Args:
        place: the source.
        path: as the tables' definitions have it, without macros.

    Raises:
        UsageError: the source's address is malformed.
        SourceError: the server cannot be read.
    """
    settings = server_of(place)
    if settings is None:
        return ()
    with contextlib.closing(connect(settings, None)) as connection:
        found = connection.rows(
            "SELECT database, table FROM system.replicas"
            f" WHERE zookeeper_path = {quote_string(path.rstrip('/'))} ORDER BY database, table"
        )
    return tuple(TableName(text(database), text(table)) for database, table in found)


def replica_at(place: SourcePlace, name: TableName, path: str) -> Replica:
    """Return what a server says of its replica of a table.

    Args:
        place: the source.
        name: the table there.
        path: under which it is replicated.

    Raises:
        SourceError: the server cannot be read, or its user may not read `system.zookeeper`.
    """
    settings = server_of(place)
    if settings is None:
        return Replica(None, None)
    with contextlib.closing(connect(settings, name)) as connection:
        node = node_of(connection, path.rstrip("/"), MAIN_KEEPER)
        return Replica(node if isinstance(node, KeeperNode) else None, lag_of(connection, name))

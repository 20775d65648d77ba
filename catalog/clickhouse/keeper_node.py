"""Asks a server which node its Keeper has of a replicated table (`mergetree/keeper_node.py`).

Of the nodes that are made together with the path the one above the replicas is asked for: it is
there in every version from 18.16 on, nothing that happens to the table touches it, and its siblings
are few, of which Keeper is asked all.
"""

from __future__ import annotations

from typing import Final

from catalog.clickhouse.connection import ClickHouseError, Connection, whole
from tableformat.clickhouse_codes import (
    KEEPER_EXCEPTION,
    NO_ZOOKEEPER,
    UNKNOWN_IDENTIFIER,
    UNKNOWN_TABLE,
)
from tableformat.mergetree.keeper_node import KeeperNode, KeeperSilent
from tableformat.names import quote_string

__all__ = ["MAIN_KEEPER", "node_of"]

MAIN_KEEPER: Final = "default"
"""What servers call the ensemble that is not an auxiliary one."""


def node_of(connection: Connection, path: str, keeper: str) -> KeeperNode | KeeperSilent | None:
    """Return the node of a table; None where no Keeper can be asked at all.

    Args:
        connection: to a server.
        path: of the table in Keeper.
        keeper: the name of the ensemble that has it.

    Raises:
        SourceError: the server cannot be read, or its user may not read `system.zookeeper`.
    """
    # Versions that cannot ask auxiliary ensembles do not have the column.
    of_keeper = "" if keeper == MAIN_KEEPER else f" AND zookeeperName = {quote_string(keeper)}"
    try:
        found = connection.rows(
            "SELECT czxid, toUnixTimestamp(ctime) FROM system.zookeeper"
            f" WHERE path = {quote_string(path)} AND name = 'replicas'{of_keeper}"
        )
    except ClickHouseError as error:
        if error.code in (UNKNOWN_TABLE, NO_ZOOKEEPER):
            return None
        if of_keeper and error.code == UNKNOWN_IDENTIFIER:
            return None
        if error.code == KEEPER_EXCEPTION:
            return KeeperSilent(error.reason)
        raise
    if not found:
        return KeeperSilent(f"it has no node {path}/replicas")
    ((czxid, created),) = found
    return KeeperNode(whole(czxid), whole(created) * 1000)

"""Which tables of a source are replicated under a path in ZooKeeper."""

from __future__ import annotations

import contextlib

from catalog.clickhouse.connection import text
from catalog.clickhouse.server.replicas import connect
from catalog.sources import SourcePlace, server_of
from tableformat.names import TableName, quote_string

__all__ = ["tables_under"]


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

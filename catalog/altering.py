"""Whether a source may be changed: asked before anything is done that would be in vain.

An embedded ClickHouse is the user's own directory, and nobody else has it open, so a command that
says that it changes the source is enough. A server has other users, and the command may be one of
many in a script: it is changed only where that was allowed, whatever its grants are.
"""

from __future__ import annotations

import contextlib
from typing import Final

from catalog.clickhouse.server.grants import ARCHIVE, Grant, Target, statements
from catalog.clickhouse.server.replicas import connect
from catalog.clickhouse.server.rights import ask_rights, user_of
from catalog.sources import SourcePlace, server_of
from tableformat.errors import RefusedError
from tableformat.names import TableName

__all__ = ["check_alter_allowed", "check_alter_rights"]

_ACCESS_DENIED: Final = 497


def check_alter_allowed(place: SourcePlace, table: TableName, *, drop: bool) -> None:
    """Refuse to archive from a server that was not allowed to be changed. Nothing is sent.

    Args:
        place: the source.
        table: that would be changed.
        drop: whether detached parts would be dropped.

    Raises:
        RefusedError: it is a server, and --allow-alter was not given.
    """
    server = server_of(place)
    if server is None or place.allow_alter:
        return
    then = ", and DROP DETACHED PART of each part" if drop else ""
    user = server.credentials.user or "default"
    (grant,) = statements(_grants(table), user)
    message = (
        f"Cannot archive partitions of {table}: that runs ALTER TABLE {table.sql} DETACH PARTITION "
        f"ID '...'{then} at {server.hosts[0].url}, and a server is changed only where that is "
        f"allowed. Give --allow-alter; the user needs {grant}"
    )
    raise RefusedError(message)


def check_alter_rights(place: SourcePlace, table: TableName) -> None:
    """Refuse a user of a server that may not take parts out of a table, or attach them again.

    Raises:
        RefusedError: a right is missing (code 497); where nobody can say, the server itself will.
        SourceError: the server cannot be asked.
    """
    server = server_of(place)
    if server is None:
        return
    with contextlib.closing(connect(server, table)) as connection:
        missing = ask_rights(connection, _grants(table)).missing
        if not missing:
            return
        user = user_of(connection)
    message = (
        f"Cannot archive partitions of {table} as the user {user!r}: a right is missing. Run "
        f"{' '.join(statements(missing, user))}"
    )
    raise RefusedError(message, code=_ACCESS_DENIED)


def _grants(table: TableName) -> tuple[Grant, ...]:
    on = Target(table.database, table.name)
    return tuple(Grant(privilege, on, why) for privilege, why in ARCHIVE)

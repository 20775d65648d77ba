"""Whether a source may be changed: asked before anything is done that would be in vain.

A server has other users, and the command may be one of many in a script: it is changed only where
that was allowed, whatever its grants are. An embedded ClickHouse is the user's own directory, and
nobody else has it open, so a command that is there to change the source, as `archive` is, is
enough; a statement that is passed on may say anything, and has to be allowed there too. Frozen
parts are never changed.
"""

from __future__ import annotations

import contextlib

from catalog.clickhouse.frozen.uri import is_parts
from catalog.clickhouse.server.grants import ARCHIVE, Grant, Target, statements
from catalog.clickhouse.server.replicas import connect
from catalog.clickhouse.server.rights import ask_rights, user_of
from catalog.sources import SourcePlace, open_source, server_of
from tableformat.clickhouse_codes import ACCESS_DENIED, NOT_IMPLEMENTED
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.names import TableName

__all__ = ["check_alter_allowed", "check_alter_rights", "check_pass_on", "pass_on"]


def check_alter_allowed(place: SourcePlace, table: TableName, *, drop: bool) -> None:
    """Refuse to archive from a source that may not be changed. Nothing is sent.

    Args:
        place: the source.
        table: that would be changed.
        drop: whether detached parts would be dropped.

    Raises:
        UnsupportedError: it is frozen parts (code 48).
        RefusedError: it is a server, and --allow-alter was not given.
    """
    if is_parts(place.uri):
        message = (
            f"Cannot archive partitions of {table}: its source is frozen parts, which are only "
            "read. Export them, take the partitions out on their server, or remove the part "
            "folders yourself."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
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
    raise RefusedError(message, code=ACCESS_DENIED)


def _grants(table: TableName) -> tuple[Grant, ...]:
    on = Target(table.database, table.name)
    return tuple(Grant(privilege, on, why) for privilege, why in ARCHIVE)


def check_pass_on(place: SourcePlace, table: TableName, statement: str) -> None:
    """Refuse to let a source run a statement where that is not allowed. Nothing is sent.

    Args:
        place: the source.
        table: that the statement is about.
        statement: ClickHouse's SQL.

    Raises:
        UnsupportedError: the source is frozen parts (code 48).
        RefusedError: the source does not allow it.
    """
    what = f"Cannot run {statement.partition(chr(10))[0]}"
    if is_parts(place.uri):
        message = f"{what}: its source is frozen parts, only read. Run it on their server."
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)
    if not place.allow_alter:
        message = (
            f"{what}: it changes {table}, and its source does not allow that. Allow it with "
            "--allow-alter."
        )
        raise RefusedError(message)


def pass_on(place: SourcePlace, table: TableName, statement: str) -> None:
    """Let a source run a statement about one of its tables; its answer is the error it gives.

    Args:
        place: the source.
        table: that the statement is about.
        statement: ClickHouse's SQL, which names the table.

    Raises:
        UnsupportedError: the source is frozen parts (code 48).
        RefusedError: the source does not allow it.
        SourceError: ClickHouse refuses the statement, or cannot be reached.
    """
    check_pass_on(place, table, statement)
    with open_source(place) as source:
        source.command(table, statement)

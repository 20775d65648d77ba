"""Asks a server which rights its user lacks, in the way that the server at hand answers.

    CHECK GRANT, which knows roles, wildcards and what was taken away again (from 24.10 on)
    -> else SHOW GRANTS of the user and of each role that is active, read here
    -> else nobody can say: the oldest servers have no grants, only `readonly` and allow_databases

Which of them there is, is tried, never concluded from a version. What a user may read of the system
tables is tried too: whether a grant is needed for them is a matter of the server's configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from catalog.clickhouse.connection import ClickHouseError, text, texts
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.grant_text import (
    Given,
    GivenRole,
    NotUnderstoodError,
    allows,
    parse_line,
)
from catalog.clickhouse.server.grants import Grant, Target
from tableformat.clickhouse_codes import ACCESS_DENIED, SYNTAX_ERROR, UNKNOWN_FUNCTION
from tableformat.errors import InternalError
from tableformat.names import quote_identifier

__all__ = ["Asked", "Rights", "ask_rights", "unreadable_tables", "user_of"]

# Rows of no table: cheap, however many parts a server has.
_NONE: Final = " WHERE database = 'system' AND table = '' LIMIT 0"
_WITHOUT_TABLE: Final = ("disks", "merge_tree_settings", "processes")
# It answers no query without a path.
_KEEPER: Final = "zookeeper"


class Asked(Enum):
    """What the server was asked."""

    CHECK_GRANT = "CHECK GRANT"
    SHOW_GRANTS = "SHOW GRANTS"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Rights:
    """Which of the wanted rights are missing, as far as can be known.

    `idle_roles` are granted to the user and not active, `hidden_roles` are active and nobody may
    look into them. `why` says why nothing could be asked.
    """

    asked: Asked
    missing: tuple[Grant, ...] = ()
    idle_roles: tuple[str, ...] = ()
    hidden_roles: tuple[str, ...] = ()
    why: str = ""


def user_of(connection: ServerConnection) -> str:
    """Return the name of the user as the server has it, or as it was given to log in.

    Raises:
        SourceError: the server cannot be asked.
    """
    try:
        return texts(connection, "SELECT currentUser()")[0]
    except ClickHouseError as error:
        if error.code != UNKNOWN_FUNCTION:
            raise
    return connection.client.settings.credentials.user or "default"


def ask_rights(connection: ServerConnection, wanted: tuple[Grant, ...]) -> Rights:
    """Return which rights the user of a connection lacks.

    Raises:
        SourceError: the server cannot be asked anything at all.
    """
    if _check_grant(connection, wanted):
        return Rights(Asked.CHECK_GRANT)
    checked = [(one, _check_grant(connection, (one,))) for one in wanted]
    seen = _seen(connection)
    # A privilege that the version does not know is not taken; then it is not needed either.
    if any(is_held is not None for _, is_held in checked):
        missing = tuple(one for one, is_held in checked if is_held is False)
        return Rights(Asked.CHECK_GRANT, missing, seen.idle, why=seen.why)
    if seen.why:
        return Rights(Asked.NOTHING, why=seen.why)
    known = _privileges(connection)
    missing = tuple(
        one
        for one in wanted
        if one.privilege in (known or {one.privilege})
        and not any(allows(_givens(held), one) for held in seen.holders)
    )
    return Rights(Asked.SHOW_GRANTS, missing, seen.idle, seen.hidden)


def unreadable_tables(connection: ServerConnection, wanted: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """Return the tables among the wanted rights that the user may not read, by reading them.

    A table that the version does not have is not among them.

    Raises:
        SourceError: the server cannot be asked.
    """
    together = " UNION ALL ".join(f"SELECT 1 FROM {one.on.sql}{_nothing(one)}" for one in wanted)
    if _is_readable(connection, together, others=False):
        return ()
    return tuple(
        one
        for one in wanted
        if not _is_readable(connection, f"SELECT 1 FROM {one.on.sql}{_nothing(one)}", others=True)
    )


Lines = tuple[Given | GivenRole, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the server shows: what the user and each active role is given; else why not."""

    holders: tuple[Lines, ...] = ()
    hidden: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    why: str = ""


def _check_grant(connection: ServerConnection, grants: Iterable[Grant]) -> bool | None:
    """Tell whether the user has rights; None where the server does not take the question."""
    asked = ", ".join(one.sql for one in grants)
    try:
        # It takes no FORMAT clause.
        said = connection.client.query(
            f"CHECK GRANT {asked}",
            settings=(*connection.settings, ("default_format", "TSV")),
            repeat=True,
        )
    except ClickHouseError as error:
        if error.code == SYNTAX_ERROR:
            return None
        raise
    if said not in (b"0\n", b"1\n"):
        message = (
            f"Cannot read an answer of ClickHouse: {said[:50]!r} is not 0 or 1. This is a bug, "
            "please report it."
        )
        raise InternalError(message)
    return said == b"1\n"


def _shown(connection: ServerConnection, who: str) -> Lines:
    """Return what the server shows of the rights of a user or role.

    Raises:
        NotUnderstoodError: something is taken away that cannot be told.
        ClickHouseError: the server does not show it.
    """
    read = (parse_line(line) for line in texts(connection, f"SHOW GRANTS FOR {who}"))
    return tuple(one for one in read if one is not None)


def _seen(connection: ServerConnection) -> _Seen:
    try:
        lines = _shown(connection, "CURRENT_USER")
        active = [text(row[0]) for row in connection.rows("SELECT arrayJoin(enabledRoles())")]
    except NotUnderstoodError as error:
        return _Seen(why=str(error))
    except ClickHouseError as error:
        if error.code == SYNTAX_ERROR:
            return _Seen(why="this version has no GRANT")
        if error.code not in (ACCESS_DENIED, UNKNOWN_FUNCTION):
            raise
        return _Seen(why=error.reason)
    granted = {role for one in lines if isinstance(one, GivenRole) for role in one.roles}
    holders, hidden = [lines], []
    for role in active:
        try:
            holders.append(_shown(connection, quote_identifier(role)))
        except (ClickHouseError, NotUnderstoodError) as error:
            if isinstance(error, ClickHouseError) and error.code != ACCESS_DENIED:
                raise
            hidden.append(role)
    return _Seen(tuple(holders), tuple(hidden), tuple(sorted(granted - set(active))))


def _givens(lines: Lines) -> list[Given]:
    return [one for one in lines if isinstance(one, Given)]


def _privileges(connection: ServerConnection) -> frozenset[str]:
    """Return the privileges that the version knows; nothing when it does not list them."""
    try:
        return frozenset(
            texts(connection, "SELECT DISTINCT toString(privilege) FROM system.privileges")
        )
    except ClickHouseError:
        return frozenset()


def _nothing(grant: Grant) -> str:
    if grant.on == Target("system", _KEEPER):
        return " WHERE path = '/' LIMIT 0"
    of_system = grant.on.database == "system" and grant.on.table not in _WITHOUT_TABLE
    return _NONE if of_system else " LIMIT 0"


def _is_readable(connection: ServerConnection, sql: str, *, others: bool) -> bool:
    """Whether the user may run a query; `others` is what is answered on another error."""
    try:
        connection.rows(sql)
    except ClickHouseError as error:
        return others and error.code != ACCESS_DENIED
    return True

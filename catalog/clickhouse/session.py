"""Reads an open chdb session of this process as a source.

This process locks the session's directory, so no child process can open it. Queries run in a second
session on the same data, with its own settings and database. The user's settings (`limit`, `final`,
filters) therefore hide no row from an export, and the user's session does not change. Only
statements about temporary tables run in the user's session.

The caller's session has loaded chdb; this module never imports it.
"""

from __future__ import annotations

import json
from typing import Any, Final, Protocol

from catalog.clickhouse.connection import (
    JSON_SETTINGS,
    LARGE_QUERY_SETTINGS,
    ClickHouseError,
    Row,
)
from catalog.processes import Closing
from catalog.source_defaults import STAGING_DATABASE
from tableformat.errors import SourceError, UsageError

__all__ = ["ChdbSession", "SessionConnection", "check_session", "rows_in", "run_in"]

_ROWS: Final = "JSONCompactEachRow"
_CLEAN: Final = "mergeberg clean"
_DRAINS: Final = 3


class ChdbSession(Protocol):
    """The methods of a `chdb.session.Session` that this package uses."""

    def query(self, sql: str, fmt: str = ...) -> Any:
        """Run one statement; its result has `bytes()`."""
        ...

    def close(self) -> None:
        """Release the data directory."""
        ...


def check_session(session: object) -> None:
    """Check that an object is an open chdb session.

    Raises:
        UsageError: it is another object, or it is closed.
    """
    if _class_of(session) is None:
        message = (
            f"Cannot read from {type(session).__name__}: it is no chdb session. Give an open "
            "chdb.session.Session, or the name of a source."
        )
        raise UsageError(message)
    _check_open(session)


def rows_in(session: ChdbSession, sql: str) -> tuple[Row, ...]:
    """Return the rows of a query, which has no FORMAT clause.

    Raises:
        ClickHouseError: ClickHouse refused the query, or it failed.
        SourceError: after an error, results no longer match their statements.
    """
    lines = _result(session, sql, _ROWS).split(b"\n")
    # ClickHouse strings are bytes; surrogates keep those that are not UTF-8.
    return tuple(
        tuple(json.loads(line.decode("utf-8", "surrogateescape"))) for line in lines if line
    )


def run_in(session: ChdbSession, sql: str) -> None:
    """Run a statement without a result.

    Raises:
        ClickHouseError: ClickHouse refused the statement, or it failed.
        SourceError: after an error, results no longer match their statements.
    """
    _result(session, sql, "Null")


class SessionConnection(Closing):
    """A connection to the data of an open session, which does not change the session.

    A context manager that closes the connection, never the session.
    """

    def __init__(self, session: ChdbSession, *, staging_database: str = STAGING_DATABASE) -> None:
        """Open a second session on the data of an open one.

        Args:
            session: the user's session.
            staging_database: the database for staging tables.

        Raises:
            UsageError: it is no chdb session, or it is closed.
            SourceError: a second session cannot be opened.
        """
        check_session(session)
        self._staging_database = staging_database
        self._second_session: ChdbSession | None = _second(session)
        try:
            defaults = (*JSON_SETTINGS, *LARGE_QUERY_SETTINGS)
            settings = ", ".join(f"{name} = {value}" for name, value in defaults)
            self.command(f"SET {settings}")
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """'': tasks read the parts as files, because this ClickHouse serves no other process."""
        return ""

    @property
    def staging_database(self) -> str:
        """The database for staging tables."""
        return self._staging_database

    def rows(self, sql: str) -> tuple[Row, ...]:
        """Return the rows of a query.

        Raises:
            ClickHouseError: ClickHouse refused the query, or it failed.
            SourceError: the connection is closed.
        """
        return rows_in(self._opened(), sql)

    def command(self, sql: str) -> None:
        """Run a statement without a result.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: the connection is closed.
        """
        run_in(self._opened(), sql)

    def close(self) -> None:
        """Close the second session."""
        second, self._second_session = self._second_session, None
        if second is not None:
            second.close()

    def _opened(self) -> ChdbSession:
        if self._second_session is None:
            message = "Cannot use ClickHouse: the connection to it is closed. Open it again."
            raise SourceError(message)
        return self._second_session


def _class_of(session: object) -> type[Any] | None:
    """Return chdb's session class of an object, also of a subclass; None for other objects."""
    for kind in type(session).__mro__:
        if kind.__name__ == "Session" and kind.__module__.startswith("chdb.session"):
            return kind
    return None


def _check_open(session: object) -> None:
    # chdb has no function for this; a query would open a closed session again, without the lock.
    if getattr(session, "_conn", None) is None:
        message = "Cannot read from the chdb session: it is closed. Open it, and call again."
        raise UsageError(message)


def _second(session: object) -> ChdbSession:
    """Open a second session on the same data; chdb finds it by the path that opened the first."""
    kind, path = _class_of(session), getattr(session, "_path", None)
    if kind is None or not isinstance(path, str):
        message = (
            f"Cannot read from {type(session).__name__}: this release of chdb does not say where "
            "its data is. Close the session, and give its directory as a source, chdb:DIRECTORY."
        )
        raise SourceError(message)
    try:
        opened: ChdbSession = kind(path)
    except RuntimeError as error:
        message = (
            f"Cannot read from the chdb session on {path!r}: "
            f"{ClickHouseError(str(error)).reason}. A relative path means another directory when "
            "the working directory has changed: open sessions by absolute paths."
        )
        raise SourceError(message) from error
    return opened


def _result(session: ChdbSession, sql: str, output_format: str) -> bytes:
    try:
        result: bytes = session.query(sql, output_format).bytes()
    except RuntimeError as error:
        _drain(session)
        raise ClickHouseError(str(error)) from error
    return result


def _drain(session: ChdbSession) -> None:
    """Discard the rows of a failed query, which chdb would return before the next result.

    Raises:
        SourceError: rows of the failed query remain.
    """
    for _ in range(_DRAINS):
        if session.query(f"SELECT '{_CLEAN}'", "TSV").bytes() == f"{_CLEAN}\n".encode():
            return
    message = (
        "Cannot read from the chdb session: after a failed statement it returns the rest of "
        "that statement's result. Close the session, open it again, and run again."
    )
    raise SourceError(message)

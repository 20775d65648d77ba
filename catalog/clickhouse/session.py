"""A ClickHouse that the user has open in this very process: a chdb session as a source.

Its directory is locked by this process, so no child of ours can open it. All
questions are asked in a second session on the same data, which has settings and a database of its
own: what the user set (`limit`, `final`, filters) must not hide a row from an export, and nothing
of the user's session changes. Only what a temporary table needs is asked in the user's own.

The session brings chdb with it: nothing here loads it into a process that has none.
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
from catalog.clickhouse.staging_comment import STAGING_DATABASE
from catalog.processes import Closing
from tableformat.errors import SourceError, UsageError

__all__ = ["ChdbSession", "SessionConnection", "check_session", "rows_in", "run_in"]

_ROWS: Final = "JSONCompactEachRow"
_CLEAN: Final = "mergeberg clean"
_DRAINS: Final = 3


class ChdbSession(Protocol):
    """What is used of a `chdb.session.Session`."""

    def query(self, sql: str, fmt: str = ...) -> Any:
        """Run one statement; its answer has `bytes()`."""
        ...

    def close(self) -> None:
        """Let go of the data."""
        ...


def check_session(session: object) -> None:
    """Make sure that an object is an open chdb session.

    Raises:
        UsageError: it is something else, or it is closed.
    """
    if _class_of(session) is None:
        message = (
            f"Cannot read from {type(session).__name__}: it is no chdb session. Give an open "
            "chdb.session.Session, or the name of a source."
        )
        raise UsageError(message)
    _check_open(session)


def rows_in(session: ChdbSession, sql: str) -> tuple[Row, ...]:
    """Return the rows of a query. `sql` carries no FORMAT clause.

    Raises:
        ClickHouseError: ClickHouse refused the query, or it failed.
        SourceError: its answers cannot be told apart any more.
    """
    lines = _answered(session, sql, _ROWS).split(b"\n")
    # ClickHouse strings are bytes; those that are no UTF-8 survive as surrogates.
    return tuple(
        tuple(json.loads(line.decode("utf-8", "surrogateescape"))) for line in lines if line
    )


def run_in(session: ChdbSession, sql: str) -> None:
    """Run a statement that gives no rows.

    Raises:
        ClickHouseError: ClickHouse refused the statement, or it failed.
        SourceError: its answers cannot be told apart any more.
    """
    _answered(session, sql, "Null")


class SessionConnection(Closing):
    """A connection beside an open session, to the same data; the session itself is left alone.

    A context manager: leaving it closes the connection, never the session.
    """

    def __init__(self, session: ChdbSession, *, staging_database: str = STAGING_DATABASE) -> None:
        """Open a second session on the data of one that is open.

        Args:
            session: the user's.
            staging_database: where staging tables are made.

        Raises:
            UsageError: it is no chdb session, or it is closed.
            SourceError: there can be no second one.
        """
        check_session(session)
        self._staging_database = staging_database
        self._ours: ChdbSession | None = _second(session)
        try:
            ours = (*JSON_SETTINGS, *LARGE_QUERY_SETTINGS)
            settings = ", ".join(f"{name} = {value}" for name, value in ours)
            self.command(f"SET {settings}")
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Nothing: a ClickHouse in our own process answers no task, its files are at hand."""
        return ""

    @property
    def staging_database(self) -> str:
        """The database of our own in which staging tables are made."""
        return self._staging_database

    def rows(self, sql: str) -> tuple[Row, ...]:
        """Return the rows of a query.

        Raises:
            ClickHouseError: ClickHouse refused the query, or it failed.
            SourceError: the connection is closed.
        """
        return rows_in(self._opened(), sql)

    def command(self, sql: str) -> None:
        """Run a statement that gives no rows.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: the connection is closed.
        """
        run_in(self._opened(), sql)

    def close(self) -> None:
        """Let go of the second session."""
        ours, self._ours = self._ours, None
        if ours is not None:
            ours.close()

    def _opened(self) -> ChdbSession:
        if self._ours is None:
            message = "Cannot use ClickHouse: the connection to it is closed. Open it again."
            raise SourceError(message)
        return self._ours


def _class_of(session: object) -> type[Any] | None:
    """Return chdb's own class of a session, whatever the user derived from it."""
    for kind in type(session).__mro__:
        if kind.__name__ == "Session" and kind.__module__.startswith("chdb.session"):
            return kind
    return None


def _check_open(session: object) -> None:
    # chdb has no question for this; a closed session would be opened anew, without the lock.
    if getattr(session, "_conn", None) is None:
        message = "Cannot read from the chdb session: it is closed. Open it, and call again."
        raise UsageError(message)


def _second(session: object) -> ChdbSession:
    """Open a second session on the same data: chdb finds it by the text that opened the first."""
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


def _answered(session: ChdbSession, sql: str, answer_format: str) -> bytes:
    try:
        answer: bytes = session.query(sql, answer_format).bytes()
    except RuntimeError as error:
        _drain(session)
        raise ClickHouseError(str(error)) from error
    return answer


def _drain(session: ChdbSession) -> None:
    """Take away the rows of a failed query: chdb gives them out before those of the next.

    Raises:
        SourceError: they do not end.
    """
    for _ in range(_DRAINS):
        if session.query(f"SELECT '{_CLEAN}'", "TSV").bytes() == f"{_CLEAN}\n".encode():
            return
    message = (
        "Cannot read from the chdb session: after a failed statement it answers with what was "
        "left of it. Close the session, open it again, and run again."
    )
    raise SourceError(message)

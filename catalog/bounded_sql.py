"""PyIceberg's catalog in a PostgreSQL, none of whose requests waits for ever; its own do.

Each way to wait has a bound: reaching the server, a statement, a transaction that its client has
left open, a server that is gone without a word, and one that is there and says nothing. What the
configuration says of a connection itself stays as it is said. A connection that broke while nothing
was asked is replaced; one that breaks in a request is an error, of which nobody can know whether it
was applied.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Dialect, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from catalog.shared_sql import SharedSqlCatalog
from catalog.time_outs import TimeOuts

__all__ = ["BoundedSqlCatalog"]

_LIBPQ: Final = ("psycopg", "psycopg2")
"""The drivers that hand a connection's parameters to PostgreSQL's own library."""
_PROBES: Final = 3
_WATCH: Final = "mergeberg.watch"
# For the transaction only: behind a pooler a connection is others' a moment later.
_BOUND: Final = (
    "SELECT set_config('statement_timeout', '{0}', true),"
    " set_config('idle_in_transaction_session_timeout', '{0}', true)"
)


class BoundedSqlCatalog(SharedSqlCatalog):
    """A catalog in PostgreSQL whose requests end, one way or the other."""

    def __init__(self, name: str, time_outs: TimeOuts, **properties: Any) -> None:
        """Connect, and make the catalog's own two tables when they are missing.

        Args:
            name: of the catalog.
            time_outs: of every request.
            properties: PyIceberg's own.
        """
        self._time_outs = time_outs
        super().__init__(name, **properties)

    def _init_catalog(self) -> None:
        # They know nothing of the catalog: its connections are closed when nobody has it any more.
        bounds = _Bounds(self._time_outs, self.engine.dialect)
        if self.engine.dialect.driver in _LIBPQ:
            event.listen(self.engine, "do_connect", bounds.connection)
            event.listen(self.engine, "checkout", bounds.watch)
            event.listen(self.engine, "checkin", _end_watch)
        event.listen(self.engine, "begin", bounds.transaction)
        super()._init_catalog()


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What is done to each connection, and to each transaction, of an engine."""

    time_outs: TimeOuts
    dialect: Dialect

    def connection(
        self, _dialect: Dialect, _entry: object, _words: object, named: MutableMapping[str, Any]
    ) -> None:
        """Bound how long a connection is waited for, to be made and when it is gone."""
        read = self.time_outs.read
        bounds = {
            "connect_timeout": _whole(self.time_outs.connect),
            "tcp_user_timeout": _whole(read * 1000),
            "keepalives_idle": _whole(read / 2),
            "keepalives_interval": _whole(read / 2 / _PROBES),
            "keepalives_count": _PROBES,
        }
        for name, value in bounds.items():
            named.setdefault(name, value)

    def transaction(self, connection: Connection) -> None:
        """Bound how long the server works on a statement, and waits for one."""
        connection.exec_driver_sql(_BOUND.format(_whole(self.time_outs.read * 1000)))

    def watch(self, connection: Any, entry: ConnectionPoolEntry, _shown: object) -> None:
        """Bound how long a connection is used, and replace one that broke while it was not.

        Raises:
            DisconnectionError: it broke; the pool makes another one.
        """
        # A statement's own bound comes first, and says more.
        watch = _Watch(connection.fileno(), self.time_outs.read + self.time_outs.connect)
        try:
            self.dialect.do_ping(connection)
        except self.dialect.loaded_dbapi.Error as error:
            watch.end()
            raise DisconnectionError from error
        entry.info[_WATCH] = watch


class _Watch:
    """Cuts a connection after so many seconds, which wakes up who waits for an answer on it."""

    def __init__(self, number: int, seconds: float) -> None:
        # Of its own, because the connection's number may be another file's when the time is over.
        self._socket = socket.socket(fileno=os.dup(number))
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Cut nothing any more."""
        self._timer.cancel()
        self._timer.join()
        self._socket.close()

    def _cut(self) -> None:
        # It may be closed already, by the other side.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _end_watch(_connection: object, entry: ConnectionPoolEntry) -> None:
    # None where the connection broke before it was handed out.
    if watch := entry.info.pop(_WATCH, None):
        watch.end()


def _whole(value: float) -> int:
    """Return a whole number above 0, which would be for ever."""
    return max(1, round(value))

"""Provides PyIceberg REST and SQL catalogs whose requests are bounded in time.

- `BoundedRestCatalog` sets a time-out on every request; PyIceberg's own catalog waits for ever.
  It filters file properties from the server through `file_properties`; no table property changes
  how the table's files are opened.
- `BoundedSqlCatalog` bounds each wait for PostgreSQL: connecting, a statement, a transaction
  that its client left open, a lost server, a silent server. Explicit connection settings in the
  configuration win. A connection that broke while idle is replaced. A connection that breaks
  during a request is an error, because it is unknown whether the request was applied.
- `SharedSqlCatalog` lets several processes open a new catalog database at the same time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.catalog.sql import DEFAULT_INIT_CATALOG_TABLES, SqlCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.types import strtobool
from requests import PreparedRequest, Response, Session
from sqlalchemy import Connection, Dialect, event
from sqlalchemy.exc import DisconnectionError, IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.pool import ConnectionPoolEntry

from catalog.file_properties import CLASSES, with_vended
from catalog.network import TimeOuts

__all__ = ["BoundedRestCatalog", "BoundedSqlCatalog", "SharedSqlCatalog"]


class BoundedRestCatalog(RestCatalog):
    """A REST catalog with a time-out on every request, including the first one."""

    def __init__(self, name: str, time_outs: TimeOuts, **properties: Any) -> None:
        """Open the catalog.

        Args:
            name: of the catalog.
            time_outs: of every request.
            properties: PyIceberg's own.
        """
        self._bounds = (time_outs.connect, time_outs.read)
        self._own: Mapping[str, Any] = dict(properties)
        super().__init__(name, **properties)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        for name in CLASSES:
            self.properties.pop(name, None)
            if name in self._own:
                self.properties[name] = self._own[name]

    def _response_to_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> Table:
        return Table(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=str(table_response.metadata_location),
            io=self._io(table_response),
            catalog=self,
            config=table_response.config,
        )

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        return StagedTable(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=str(table_response.metadata_location),
            io=self._io(table_response),
            catalog=self,
        )

    def _io(self, response: TableResponse) -> FileIO:
        """Return the `FileIO` of a table's files."""
        at = response.metadata_location
        credentials = self._resolve_storage_credentials(response.storage_credentials, at)
        of_server = {n: v for n, v in self.properties.items() if self._own.get(n) != v}
        vended = {**of_server, **response.config, **credentials}
        return load_file_io(with_vended(self._own, vended, os.environ), at)

    def _create_session(self) -> Session:
        session = super()._create_session()
        send = session.send

        def bounded(request: PreparedRequest, **options: Any) -> Response:
            if options.get("timeout") is None:
                options["timeout"] = self._bounds
            if isinstance(session.verify, str):
                # The catalog names authorities; requests would prefer REQUESTS_CA_BUNDLE.
                options["verify"] = session.verify
            return send(request, **options)

        # It wraps the session and keeps PyIceberg's adapters: one of them signs requests.
        session.send = bounded  # type: ignore[method-assign]
        return session


_SQLITE: Final = "sqlite"


class SharedSqlCatalog(SqlCatalog):
    """A catalog in a database; the first process to open it creates its tables, even in a race."""

    def _init_catalog(self) -> None:
        if self.engine.dialect.name == _SQLITE:
            event.listen(self.engine, "connect", _commit_to_disk)
        if strtobool(self.properties.get("init_catalog_tables", DEFAULT_INIT_CATALOG_TABLES)):
            # Before the check of PyIceberg, a statement that fails where a table is missing:
            # the failure's traceback would refer to the catalog until garbage is collected.
            self.create_tables()
        super()._init_catalog()

    def create_tables(self) -> None:
        """Create the catalog's own tables.

        Raises:
            SQLAlchemyError: the database refused.
        """
        try:
            super().create_tables()
        except (IntegrityError, OperationalError, ProgrammingError):
            # Another process created them between this one's check and its statement.
            super().create_tables()


def _commit_to_disk(connection: Any, _entry: object) -> None:
    """Make a commit durable before it returns.

    By default SQLite does not sync the removal of the journal, which is the commit, so a power cut
    would undo it.
    """
    connection.execute("PRAGMA synchronous = EXTRA")


_LIBPQ: Final = ("psycopg", "psycopg2")
"""The drivers that pass a connection's parameters to libpq."""
_PROBES: Final = 3
_TIMER: Final = "mergeberg.watch"
# For the transaction only: a connection pooler gives the connection to other clients afterwards.
_BOUND: Final = (
    "SELECT set_config('statement_timeout', '{0}', true),"
    " set_config('idle_in_transaction_session_timeout', '{0}', true)"
)


class BoundedSqlCatalog(SharedSqlCatalog):
    """A catalog in PostgreSQL whose requests are bounded in time."""

    def __init__(self, name: str, time_outs: TimeOuts, **properties: Any) -> None:
        """Connect, and create the catalog's own two tables if they are missing.

        Args:
            name: of the catalog.
            time_outs: of every request.
            properties: PyIceberg's own.
        """
        self._time_outs = time_outs
        super().__init__(name, **properties)

    def _init_catalog(self) -> None:
        # The listeners do not refer to the catalog, so that it can be garbage-collected.
        bounds = _Bounds(self._time_outs, self.engine.dialect)
        if self.engine.dialect.driver in _LIBPQ:
            event.listen(self.engine, "do_connect", bounds.connection)
            event.listen(self.engine, "checkout", bounds.watch)
            event.listen(self.engine, "checkin", _end_timer)
        event.listen(self.engine, "begin", bounds.transaction)
        super()._init_catalog()


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The time limits of an engine's connections and transactions."""

    time_outs: TimeOuts
    dialect: Dialect

    def connection(
        self, _dialect: Dialect, _entry: object, _words: object, named: MutableMapping[str, Any]
    ) -> None:
        """Bound the time to connect, and to notice a lost connection."""
        read = self.time_outs.read
        bounds = {
            "connect_timeout": _positive(self.time_outs.connect),
            "tcp_user_timeout": _positive(read * 1000),
            "keepalives_idle": _positive(read / 2),
            "keepalives_interval": _positive(read / 2 / _PROBES),
            "keepalives_count": _PROBES,
        }
        for name, value in bounds.items():
            named.setdefault(name, value)

    def transaction(self, connection: Connection) -> None:
        """Bound how long the server runs a statement, and waits for one."""
        connection.exec_driver_sql(_BOUND.format(_positive(self.time_outs.read * 1000)))

    def watch(self, connection: Any, entry: ConnectionPoolEntry, _shown: object) -> None:
        """Bound how long a connection is in use, and replace one that broke while idle.

        Raises:
            DisconnectionError: it broke; the pool opens another one.
        """
        # The limit of a statement is shorter and has a better message.
        watch = _ConnectionTimer(connection.fileno(), self.time_outs.read + self.time_outs.connect)
        try:
            self.dialect.do_ping(connection)
        except self.dialect.loaded_dbapi.Error as error:
            watch.end()
            raise DisconnectionError from error
        entry.info[_TIMER] = watch


class _ConnectionTimer:
    """Shuts a connection down after a time limit, which wakes a thread that waits on it."""

    def __init__(self, number: int, seconds: float) -> None:
        # A duplicate descriptor: the original number may belong to another file by then.
        self._socket = socket.socket(fileno=os.dup(number))
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Cancel the time limit."""
        self._timer.cancel()
        self._timer.join()
        self._socket.close()

    def _shut_down(self) -> None:
        # The server may have closed it already.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _end_timer(_connection: object, entry: ConnectionPoolEntry) -> None:
    # None if the connection broke before it was handed out.
    if watch := entry.info.pop(_TIMER, None):
        watch.end()


def _positive(value: float) -> int:
    """Round to an integer above 0, because 0 means no limit."""
    return max(1, round(value))

"""Opens Iceberg catalogs and tables by name, over TLS unless the user allows plain connections.

- A catalog is configured as PyIceberg defines it (~/.pyiceberg.yaml, PYICEBERG_CATALOG__...
  variables). Without configuration the catalog `lake` is SQLite plus a directory:
  `<warehouse>/lake.db` and the warehouse, created with the first table.
- A REST catalog needs https. For PostgreSQL, libpq would skip TLS when the server does not offer
  it, so without an sslmode, TLS with verification of the server is required.
- Connections inside this machine need no TLS.

The catalogs are PyIceberg's, with requests that are bounded in time:

- `BoundedRestCatalog` sets a time-out on every request; PyIceberg's own catalog waits for ever.
  It filters file properties from the server through `file_io`; no table property changes how the
  table's files are opened.
- `BoundedSqlCatalog` bounds each wait for PostgreSQL: connecting, a statement, a transaction
  that its client left open, a lost server, a silent server. Explicit connection settings in the
  configuration win. A connection that broke while idle is replaced. A connection that breaks
  during a request is an error, because it is unknown whether the request was applied.
- `SharedSqlCatalog` lets several processes open a new catalog database at the same time.

Requirements: RQ…Security.Network, RQ…Security.DataEncryption. See docs/reference/catalogs.md.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError as InvalidMetadata
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.catalog.sql import DEFAULT_INIT_CATALOG_TABLES, SqlCatalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import strtobool
from pyiceberg.utils.config import CATALOG, Config
from requests import PreparedRequest, Response, Session
from sqlalchemy import URL, Connection, Dialect, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DisconnectionError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from catalog.iceberg.file_io import CLASSES, opened_by_configuration, with_vended
from catalog.iceberg.table import IcebergTable, unreachable, unreadable
from catalog.network import (
    DEFAULT_TIME_OUTS,
    INSECURE,
    TimeOuts,
    is_in_clear,
    is_this_machine,
    is_true,
)
from catalog.storages.access import ALLOW_INSECURE
from catalog.storages.local import local_directory, local_location, local_path, make_directory
from catalog.storages.schemes import BY_CATALOG, Storages, is_local
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import NotFoundError, RefusedError, UnsupportedError, UsageError
from tableformat.messages import Option
from tableformat.names import LakeName, check_new_table

__all__ = [
    "LOCAL_CATALOG",
    "BoundedRestCatalog",
    "BoundedSqlCatalog",
    "OpenedCatalog",
    "SharedSqlCatalog",
    "configured_catalogs",
    "open_catalog",
    "with_encryption",
]

_LOGGER: Final = logging.getLogger(__name__)
_ADDRESSES: Final = ("uri", "oauth2-server-uri")
"""Addresses of a REST catalog and of its token server."""
_SSLMODE: Final = "sslmode"
_ENCRYPTED: Final = ("require", "verify-ca", "verify-full")
_DEFAULT_SSLMODE: Final = "verify-full"


def with_encryption(
    name: str, properties: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the properties of a catalog, completed so that connections use TLS.

    Args:
        name: of the catalog.
        properties: as configured.
        environment: of the process.

    Raises:
        RefusedError: a connection would not use TLS, and that is not allowed.
    """
    allowed = is_true(properties.get(ALLOW_INSECURE)) or is_true(environment.get(INSECURE))
    for setting in _ADDRESSES:
        address = str(properties.get(setting, ""))
        if is_in_clear(address):
            shown = f"http://{urlsplit(address).netloc.rpartition('@')[2]}"
            _warn_or_refuse(name, shown, f"Use https in its {setting}", allowed)
    uri = str(properties.get("uri", ""))
    if uri.startswith("postgresql"):
        return {**properties, "uri": _postgres(name, uri, environment, allowed=allowed)}
    return dict(properties)


def _postgres(name: str, uri: str, environment: Mapping[str, str], *, allowed: bool) -> str:
    """Return the address of a PostgreSQL, with an sslmode if it has none."""
    try:
        url = make_url(uri)
    except ArgumentError:
        # Opening the catalog reports the malformed address.
        return uri
    hosts = _hosts(url, environment)
    mode = url.query.get(_SSLMODE) or environment.get("PGSSLMODE")
    if mode in _ENCRYPTED or all(is_this_machine(h) or h.startswith("/") for h in hosts):
        return uri
    if mode is None and not allowed:
        named = url.update_query_dict({_SSLMODE: _DEFAULT_SSLMODE})
        return named.render_as_string(hide_password=False)
    advice = f"Write sslmode={_DEFAULT_SSLMODE} into its uri"
    _warn_or_refuse(name, f"PostgreSQL at {', '.join(hosts)}", advice, allowed)
    return uri


def _hosts(url: URL, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that libpq would connect to, none for a socket of this machine."""
    query = url.query.get("host", ())
    given = (query,) if isinstance(query, str) else query
    if url.host:
        given = (url.host,)
    if not given:
        given = (environment.get("PGHOST", ""), environment.get("PGHOSTADDR", ""))
    return tuple(_without_port(h) for text in given for h in text.split(",") if h)


def _without_port(host: str) -> str:
    """Return a host of a list without its port."""
    return host.partition(":")[0] if host.count(":") == 1 else host.strip("[]")


def _warn_or_refuse(name: str, shown: str, advice: str, allowed: bool) -> None:  # noqa: FBT001
    if allowed:
        _warn_once(name, shown)
        return
    message = (
        f"Cannot open the catalog {name} ({shown}): without TLS anyone on the network can read all "
        f"requests and change which files a table has. {advice}, or allow it in the catalog's "
        f"configuration ({ALLOW_INSECURE}: true) or by {INSECURE}=1."
    )
    raise RefusedError(message)


@functools.cache
def _warn_once(name: str, shown: str) -> None:
    """Warn about an allowed plain connection, once in a process."""
    _LOGGER.warning(
        "the catalog %s (%s) is used without TLS: anyone on the network can read all requests and "
        "change which files a table has.",
        name,
        shown,
    )


_NO_PROPERTIES: Final[Mapping[str, Any]] = {}
_FILES: Final = "catalog.iceberg.file_io.LakeFileIO"
_DATABASES: Final = ("sqlite", "postgresql")
LOCAL_CATALOG: Final = "lake"
"""The built-in catalog, which needs no configuration."""


@dataclass(frozen=True, slots=True)
class OpenedCatalog:
    """A catalog by name; `local_warehouse` is the directory of the built-in local one, else None.

    `properties` are those of a configured catalog; they may have secrets. `storages` opens the
    storages of its tables' locations.
    """

    name: str
    local_warehouse: Path | None
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    time_outs: TimeOuts = DEFAULT_TIME_OUTS
    storages: Storages = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Create the storages from the properties."""
        object.__setattr__(self, "storages", Storages(self.properties, self.time_outs))

    @property
    def ledger_directory(self) -> Path | None:
        """The directory of the default ledger: the warehouse, if it is a local directory.

        None if the warehouse is remote, or only the catalog's server knows it.
        """
        if self.local_warehouse is not None:
            return self.local_warehouse
        kind, uri = _kind_of(self.properties)
        warehouse = str(self.properties.get("warehouse", ""))
        is_sql = kind == "sql" or (not kind and uri.startswith(_DATABASES))
        if not is_sql or not warehouse or not is_local(warehouse):
            return None
        return local_directory(local_path(warehouse))

    @property
    def catalog(self) -> Catalog:
        """PyIceberg's catalog, newly opened; a missing directory of the local one is created.

        Raises:
            DestinationError: it cannot be opened.
        """
        root = self.local_warehouse
        try:
            if root is None:
                return _close_with(_configured(self.name, self._all_properties(), self.time_outs))
            make_directory(root)
            # A path may have characters with a meaning in URLs; a location is literal.
            database = URL.create("sqlite", database=str(_local_file(root, self.name)))
            local = {"uri": database, "warehouse": local_location(root), **self._files()}
            return _close_with(opened_by_configuration(SharedSqlCatalog(self.name, **local)))
        except UsageError:
            raise
        except Exception as error:
            raise unreachable(self.name, "open the catalog", error) from error

    def _all_properties(self) -> dict[str, Any]:
        """Return the properties with our `FileIO`, unless they name another one."""
        return {**self._files(), **self.properties, BY_CATALOG: self.storages}

    def _files(self) -> dict[str, Any]:
        return {PY_IO_IMPL: _FILES, BY_CATALOG: self.storages}

    def table(self, name: LakeName) -> IcebergTable | None:
        """Return an existing table, None if it does not exist.

        Raises:
            UnsupportedError: it is a view, or has types that PyIceberg cannot read (code 48).
            DestinationError: the catalog does not respond.
        """
        if self.local_warehouse and not _local_file(self.local_warehouse, self.name).exists():
            return None
        catalog = self.catalog
        try:
            loaded = catalog.load_table(name.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            _refuse_view(catalog, name)
            return None
        except (InvalidMetadata, ValidationError) as error:
            raise unreadable(name, error) from error
        except Exception as error:
            raise unreachable(self.name, f"load {name}", error) from error
        return IcebergTable(catalog, name, loaded, self.storages)

    def name_of(self, uuid: str) -> LakeName | None:
        """Return the present name of the table with a uuid; None if the catalog has no such table.

        It loads one table after the other, because catalogs find tables by name only.

        Raises:
            UnsupportedError: a table cannot be read, and might be that table (code 48).
            DestinationError: the catalog does not respond.
        """
        if self.local_warehouse and not _local_file(self.local_warehouse, self.name).exists():
            return None
        catalog = self.catalog
        try:
            found = tuple(
                i for space in _namespaces(catalog, ()) for i in catalog.list_tables(space)
            )
        except Exception as error:
            raise unreachable(self.name, "list its tables", error) from error
        for identifier in found:
            name = LakeName(self.name, tuple(identifier[:-1]), identifier[-1])
            table = self.table(name)
            if table is not None and table.load().layout.table_uuid == uuid:
                return name
        return None

    def create(
        self,
        name: LakeName,
        *,
        schema: Schema,
        spec: PartitionSpec,
        order: SortOrder,
        properties: Mapping[str, str],
    ) -> IcebergTable:
        """Create the table, and its namespace if missing; return it as the catalog created it.

        If another process creates the table meanwhile, that table is returned; the caller checks it
        like any other.

        Raises:
            RefusedError: the table's files would not be in a directory of its name.
            DestinationError: the catalog or its storage failed.
        """
        check_new_table(name)
        catalog = self.catalog
        try:
            _make_namespace(catalog, name)
            with contextlib.suppress(TableAlreadyExistsError):
                catalog.create_table(
                    name.identifier,
                    schema,
                    partition_spec=spec,
                    sort_order=order,
                    properties=dict(properties),
                )
            created = catalog.load_table(name.identifier)
            return IcebergTable(catalog, name, created, self.storages)
        except Exception as error:
            raise unreachable(self.name, f"create {name}", error) from error


def open_catalog(
    name: str,
    *,
    warehouse: Path,
    time_outs: TimeOuts = DEFAULT_TIME_OUTS,
    properties: Mapping[str, Any] = _NO_PROPERTIES,
) -> OpenedCatalog:
    """Open a catalog by name: a configured one, or the built-in `lake`.

    Args:
        name: the catalog's name, the first part of a destination.
        warehouse: the directory of the built-in local catalog.
        time_outs: for catalogs over a network.
        properties: PyIceberg's properties of a catalog that is configured elsewhere, used if
            PyIceberg's own configuration does not have the name.

    Raises:
        NotFoundError: no catalog of that name is configured.
        DestinationError: the configuration cannot be read.
    """
    configured = _configuration(name)
    if configured:
        return OpenedCatalog(name, None, configured, time_outs)
    if properties:
        return OpenedCatalog(name, None, properties, time_outs)
    if name == LOCAL_CATALOG:
        return OpenedCatalog(name, local_directory(warehouse), time_outs=time_outs)
    others = "".join(f"{other}, " for other in sorted(configured_catalogs()))
    message = (
        f"Cannot find the catalog {name!r}: it is not configured. Name one of "
        f"{others}{LOCAL_CATALOG} (built in, its files are in {Option.WAREHOUSE}), or configure "
        f"{name!r} in ~/.pyiceberg.yaml or with PYICEBERG_CATALOG__{name.upper()}__URI."
    )
    raise NotFoundError(message)


def configured_catalogs() -> frozenset[str]:
    """Return the names, in lower case, of the catalogs in PyIceberg's configuration.

    Raises:
        DestinationError: the configuration cannot be read.
    """
    try:
        held: Any = Config().config.get(CATALOG, {})
        return frozenset(name for name, properties in held.items() if properties)
    except Exception as error:
        raise unreachable(LOCAL_CATALOG, "read PyIceberg's configuration", error) from error


def _configuration(name: str) -> Mapping[str, Any]:
    """Return PyIceberg's properties of a catalog, even if those of others are malformed."""
    try:
        return Config().get_catalog_config(name) or {}
    except Exception as error:
        raise unreachable(name, "read PyIceberg's configuration", error) from error


def _kind_of(properties: Mapping[str, Any]) -> tuple[str, str]:
    """Return a catalog's type, '' if it has none, and its address."""
    return str(properties.get("type", "")).lower(), str(properties.get("uri", ""))


def _configured(name: str, properties: Mapping[str, Any], time_outs: TimeOuts) -> Catalog:
    """Open a configured catalog; a remote one has time-outs and uses TLS."""
    properties = with_encryption(name, properties, os.environ)
    kind, uri = _kind_of(properties)
    if kind == "rest" or (not kind and uri.startswith(("http://", "https://"))):
        return BoundedRestCatalog(name, time_outs, **properties)
    if kind in {"", "sql"} and uri.startswith("postgresql"):
        return opened_by_configuration(BoundedSqlCatalog(name, time_outs, **properties))
    if kind in {"", "sql"} and uri.startswith("sqlite"):
        return opened_by_configuration(SharedSqlCatalog(name, **properties))
    return opened_by_configuration(load_catalog(name, **properties))


def _close_with(catalog: Catalog) -> Catalog:
    """Close the connections of an SQL catalog when the catalog is garbage-collected."""
    if isinstance(catalog, SqlCatalog):
        # Not at process exit: a forked child shares the connections.
        weakref.finalize(catalog, catalog.engine.dispose).atexit = False
    return catalog


def _namespaces(catalog: Catalog, below: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield all namespaces below one, on all levels."""
    for one in catalog.list_namespaces(below):
        name = tuple(one)
        if name != below:
            yield name
            yield from _namespaces(catalog, name)


def _make_namespace(catalog: Catalog, name: LakeName) -> None:
    try:
        catalog.create_namespace(name.namespace)
    except NamespaceAlreadyExistsError:
        return
    except Exception:
        # If two processes create it, PyIceberg's SQL catalog raises the database's error in one.
        if not catalog.namespace_exists(name.namespace):
            raise


def _local_file(warehouse: Path, name: str) -> Path:
    return warehouse / f"{name}.db"


def _refuse_view(catalog: Catalog, name: LakeName) -> None:
    """Refuse a name of a view, if the catalog supports views.

    Raises:
        UnsupportedError: it is a view (code 48).
    """
    try:
        found = catalog.view_exists(name.identifier)
    except NotImplementedError:
        return
    except Exception as error:
        raise unreachable(name.catalog, f"load {name}", error) from error
    if found:
        message = (
            f"Cannot use {name}: Destination storage View does not support MergeTree parts or uses "
            "unsupported partitioning. Name a table. To export, the name may also be new: the "
            "table is created."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)


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

"""Opens Iceberg catalogs and tables by name, over TLS unless the user allows plain connections.

- A catalog is configured as PyIceberg defines it (~/.pyiceberg.yaml, PYICEBERG_CATALOG__...
  variables). Without configuration the catalog `lake` is SQLite plus a directory:
  `<warehouse>/lake.db` and the warehouse, created with the first table.
- A REST catalog needs https. For PostgreSQL, libpq would skip TLS when the server does not offer
  it, so without an sslmode, TLS with verification of the server is required.
- Connections inside this machine need no TLS.

Requirements: RQ…Security.Network, RQ…Security.DataEncryption. See docs/reference/catalogs.md.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError as InvalidMetadata
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.utils.config import CATALOG, Config
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from catalog.file_properties import opened_by_configuration
from catalog.iceberg.bounded_catalogs import BoundedRestCatalog, BoundedSqlCatalog, SharedSqlCatalog
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
from tableformat.names import LakeName, check_new_table

__all__ = [
    "LOCAL_CATALOG",
    "OpenedCatalog",
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
        f"Cannot open the catalog {name} ({shown}): without TLS everybody on the way reads what is "
        f"said there, and can change which files a table has. {advice}, or allow it in the "
        f"catalog's configuration ({ALLOW_INSECURE}: true) or by {INSECURE}=1."
    )
    raise RefusedError(message)


@functools.cache
def _warn_once(name: str, shown: str) -> None:
    """Warn about an allowed plain connection, once in a process."""
    _LOGGER.warning(
        "the catalog %s (%s) is not asked over TLS: everybody on the way reads what is said there, "
        "and can change which files a table has.",
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
        f"Cannot find the catalog {name!r}: it is not configured. Name one of {others}"
        f"{LOCAL_CATALOG} (built in, its files are in --warehouse), or configure {name!r} in "
        f"~/.pyiceberg.yaml or with PYICEBERG_CATALOG__{name.upper()}__URI."
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

"""Opens Iceberg catalogs and tables by name, and sends what `tableformat.iceberg.snapshot` staged.

A catalog is configured PyIceberg's own way (~/.pyiceberg.yaml, PYICEBERG_CATALOG__... variables).
Without configuration the catalog `lake` is SQLite plus a directory: `<warehouse>/lake.db` and the
warehouse itself, made when the first table is.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

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
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.utils.config import CATALOG, Config

from catalog.bounded_rest import DEFAULT_TIME_OUTS, BoundedRestCatalog, TimeOuts
from catalog.bounded_sql import BoundedSqlCatalog
from catalog.encrypted import with_encryption
from catalog.iceberg_failures import first_line, unreachable, unreadable
from catalog.shared_sql import SharedSqlCatalog
from catalog.storages.opening import BY_CATALOG, Storages
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.committer import (
    BranchFile,
    Commit,
    FileInMain,
    LakeTableState,
    PartitionFile,
    SchemaChange,
    Sent,
    Staged,
)
from tableformat.errors import NotFoundError, UnsupportedError, UsageError
from tableformat.iceberg import snapshot
from tableformat.iceberg.main_files import MainFiles
from tableformat.iceberg.references import References
from tableformat.names import LakeName

__all__ = ["LOCAL_CATALOG", "IcebergTable", "OpenedCatalog", "configured_catalogs", "open_catalog"]

_NO_PROPERTIES: Final[Mapping[str, Any]] = {}
_FILES: Final = "catalog.lake_files.LakeFileIO"
LOCAL_CATALOG: Final = "lake"
"""The catalog that needs no configuration."""


@dataclass(frozen=True, slots=True)
class OpenedCatalog:
    """A catalog by name: `local_warehouse` is its directory when it is the built-in local one.

    `properties` are those of a configured one; they hold secrets. `storages` opens what the
    locations of its tables belong to.
    """

    name: str
    local_warehouse: Path | None
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    time_outs: TimeOuts = DEFAULT_TIME_OUTS
    storages: Storages = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the storages, of these properties."""
        object.__setattr__(self, "storages", Storages(self.properties, self.time_outs))

    @property
    def catalog(self) -> Catalog:
        """PyIceberg's catalog, opened anew; the local one's directory is made when missing.

        Raises:
            DestinationError: it cannot be opened.
        """
        root = self.local_warehouse
        try:
            if root is None:
                return _closed_with_it(_configured(self.name, self._whole(), self.time_outs))
            root.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{_local_file(root, self.name)}"
            opened = SharedSqlCatalog(self.name, uri=uri, warehouse=root.as_uri())
            return _closed_with_it(opened)
        except UsageError:
            raise
        except Exception as error:
            raise unreachable(self.name, "open the catalog", error) from error

    def _whole(self) -> dict[str, Any]:
        """Return the properties with the door to files, where they do not name another one."""
        return {PY_IO_IMPL: _FILES, **self.properties, BY_CATALOG: self.storages}

    def table(self, name: LakeName) -> IcebergTable | None:
        """Return an existing table, None when there is none.

        Raises:
            UnsupportedError: it is a view, or holds types that PyIceberg cannot read (code 48).
            DestinationError: the catalog did not answer.
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
        """Create the namespace if it is missing, and the table; return it as the catalog made it.

        A table that somebody else creates meanwhile is returned instead; the caller checks it like
        any other.

        Raises:
            DestinationError: the catalog or its storage refused.
        """
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
            made = catalog.load_table(name.identifier)
            return IcebergTable(catalog, name, made, self.storages)
        except Exception as error:
            raise unreachable(self.name, f"create {name}", error) from error


class IcebergTable:
    """A `tableformat.committer.LakeTable` on any PyIceberg catalog."""

    def __init__(
        self, catalog: Catalog, name: LakeName, loaded: Table, storages: Storages | None = None
    ) -> None:
        """Remember the catalog and the name; `loaded` is the table as it was found.

        `storages` are those of the catalog, which learn of the table; None for those of its own.
        """
        self._catalog = catalog
        self.name = name
        self.loaded = loaded
        self.storages = Storages() if storages is None else storages
        self.storages.learn(loaded.location(), loaded.io.properties)
        self._io = loaded.io
        self._files = MainFiles()
        self._references = References()

    def load(self) -> LakeTableState:
        """Load the metadata anew.

        Raises:
            NotFoundError: the table is gone (code 60).
            DestinationError: the catalog did not answer.
        """
        try:
            table = self._catalog.load_table(self.name.identifier)
        except NoSuchTableError as error:
            message = (
                f"Cannot find {self.name} any more: it was dropped or renamed meanwhile. Run the "
                "command again."
            )
            raise NotFoundError(message, code=UNKNOWN_TABLE) from error
        except Exception as error:
            raise unreachable(self.name.catalog, f"load {self.name}", error) from error
        # A server may have given new credentials, and the old ones end.
        self.storages.learn(table.location(), table.io.properties)
        self._io = table.io
        return snapshot.state_of(table)

    def files_of(
        self, state: LakeTableState, key: str, at: int | None = None
    ) -> tuple[FileInMain, ...]:
        """Return the data files of a snapshot, or of main, that exports of a key hash added."""
        with self._trying_to("read the manifests"):
            return self._files.of_key(state, key, state.main if at is None else at)

    def paths_in_main(self, state: LakeTableState) -> tuple[str, ...]:
        """Return the paths of all data files of main."""
        with self._trying_to("read the manifests"):
            return self._files.paths(state)

    def files_on(self, state: LakeTableState, branch: str) -> tuple[BranchFile, ...]:
        """Return all data files of a branch."""
        with self._trying_to("read the manifests"):
            return self._files.on(state, branch)

    def files_in(
        self, state: LakeTableState, partition: tuple[str | None, ...]
    ) -> tuple[PartitionFile, ...]:
        """Return the data files of main that may hold rows of a partition."""
        with self._trying_to("read the manifests"):
            return self._files.in_partition(state, partition)

    def refers_to(
        self, state: LakeTableState, key: str, transaction_ids: Collection[str]
    ) -> frozenset[str]:
        """Return the data files of these exports of a key that any snapshot refers to."""
        with self._trying_to("read the manifests"):
            return self._references.to(state, key, transaction_ids)

    def metadata_files(self, state: LakeTableState) -> frozenset[str]:
        """Return the metadata files that `state` knows, and what its snapshots refer to."""
        with self._trying_to("read the manifests"):
            return self._references.metadata_files(state)

    def stage(self, state: LakeTableState, commit: Commit, leaves: tuple[str, ...] = ()) -> Staged:
        """Write the manifests of one attempt."""
        with self._trying_to("write the manifests"):
            return snapshot.stage(state, commit, leaves)

    def send(
        self, state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
    ) -> Sent:
        """Ask the catalog, once, to apply an attempt."""
        return self._request(state, *snapshot.request(state, staged, commit, remove_marks))

    def evolve(self, state: LakeTableState, change: SchemaChange) -> Sent:
        """Ask the catalog, once, for another schema."""
        return self._request(state, *snapshot.schema_request(state, change))

    def in_use(self, state: LakeTableState, staged: Staged) -> bool:
        """Whether any snapshot refers to a manifest of the attempt."""
        with self._trying_to("read the manifests"):
            return snapshot.is_in_use(state, staged)

    def discard(self, staged: Staged) -> None:
        """Delete the manifests of a dead attempt."""
        with self._trying_to("delete unused manifests"):
            for path in staged.files:
                self._io.delete(path)

    @contextlib.contextmanager
    def _trying_to(self, what: str) -> Iterator[None]:
        """Say what the storage fails with as a `DestinationError`."""
        try:
            yield
        except OSError as error:
            raise unreachable(self.name.catalog, f"{what} of {self.name}", error) from error

    def _request(
        self,
        state: LakeTableState,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...],
    ) -> Sent:
        try:
            self._catalog.commit_table(snapshot.table_of(state), requirements, updates)
        except Exception as error:  # noqa: BLE001  every answer but a success is "unknown" (protocol.md step 7)
            return Sent(applied=False, error=f"{type(error).__name__}: {first_line(error)}")
        return Sent(applied=True)


def open_catalog(
    name: str,
    *,
    warehouse: Path,
    time_outs: TimeOuts = DEFAULT_TIME_OUTS,
    properties: Mapping[str, Any] = _NO_PROPERTIES,
) -> OpenedCatalog:
    """Open a catalog by name: PyIceberg's configuration of it, else, for `lake`, the local one.

    Args:
        name: the catalog's name, the first part of a destination.
        warehouse: the directory of the built-in local catalog.
        time_outs: for catalogs that are asked over a network.
        properties: PyIceberg's, of a catalog that is configured elsewhere; they count where
            PyIceberg itself has no configuration of the name.

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
        return OpenedCatalog(name, warehouse.absolute(), time_outs=time_outs)
    others = "".join(f"{other}, " for other in sorted(configured_catalogs()))
    message = (
        f"Cannot find the catalog {name!r}: it is not configured. Name one of {others}"
        f"{LOCAL_CATALOG} (built in, its files are in --warehouse), or configure {name!r} in "
        f"~/.pyiceberg.yaml or with PYICEBERG_CATALOG__{name.upper()}__URI."
    )
    raise NotFoundError(message)


def configured_catalogs() -> frozenset[str]:
    """Return the names, in lower case, of the catalogs that PyIceberg has a configuration of.

    Raises:
        DestinationError: the configuration cannot be read.
    """
    try:
        held: Any = Config().config.get(CATALOG, {})
        return frozenset(name for name, properties in held.items() if properties)
    except Exception as error:
        raise unreachable(LOCAL_CATALOG, "read PyIceberg's configuration", error) from error


def _configuration(name: str) -> Mapping[str, Any]:
    """Return PyIceberg's properties of a catalog; those of others may be malformed."""
    try:
        return Config().get_catalog_config(name) or {}
    except Exception as error:
        raise unreachable(name, "read PyIceberg's configuration", error) from error


def _configured(name: str, properties: Mapping[str, Any], time_outs: TimeOuts) -> Catalog:
    """Open a configured catalog; one that is asked over a network with time-outs, and over TLS."""
    properties = with_encryption(name, properties, os.environ)
    kind, uri = str(properties.get("type", "")).lower(), str(properties.get("uri", ""))
    if kind == "rest" or (not kind and uri.startswith(("http://", "https://"))):
        return BoundedRestCatalog(name, time_outs, **properties)
    if kind in {"", "sql"} and uri.startswith("postgresql"):
        return BoundedSqlCatalog(name, time_outs, **properties)
    if kind in {"", "sql"} and uri.startswith("sqlite"):
        return SharedSqlCatalog(name, **properties)
    return load_catalog(name, **properties)


def _closed_with_it(catalog: Catalog) -> Catalog:
    """Close the connections of a catalog in a database when nobody has the catalog any more."""
    if isinstance(catalog, SqlCatalog):
        # Not at the end of the process, which may be a child that only shares the connections.
        weakref.finalize(catalog, catalog.engine.dispose).atexit = False
    return catalog


def _make_namespace(catalog: Catalog, name: LakeName) -> None:
    try:
        catalog.create_namespace(name.namespace)
    except NamespaceAlreadyExistsError:
        return
    except Exception:
        # Of two at once PyIceberg's SQL catalog shows one the database's own error.
        if not catalog.namespace_exists(name.namespace):
            raise


def _local_file(warehouse: Path, name: str) -> Path:
    return warehouse / f"{name}.db"


def _refuse_view(catalog: Catalog, name: LakeName) -> None:
    """Refuse a name that a view has, where the catalog has views.

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
            f"Cannot use {name} as a destination: Destination storage View does not support "
            "MergeTree parts or uses unsupported partitioning. Name a table, or a name that "
            "nothing has: it is created."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)

"""Chooses the properties of the `FileIO` that opens a table's data and metadata files.

They come from the catalog's configuration, never from the table. Otherwise a user who may alter a
table could redirect the operator's credentials, or choose classes that this process loads. A REST
catalog also vends properties, for all tables or for one. An endpoint that it vends is used only
with credentials that it vends with it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from catalog.storages.access import text_of
from tableformat.errors import RefusedError
from tableformat.iceberg.snapshot import location_provider

__all__ = ["CLASSES", "opened_by_configuration", "with_vended"]

CLASSES: Final = (PY_IO_IMPL, "auth", "s3.retry-strategy-impl")
"""Properties that name classes to load; only an operator may set them."""


@dataclass(frozen=True, slots=True)
class _Family:
    """The properties of one kind of storage that a catalog may vend.

    The storage refuses each property in `refused` by name when it is opened.
    """

    prefix: str
    endpoints: tuple[str, ...]
    credentials: tuple[str, ...]
    others: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def is_credential(self, name: str) -> bool:
        """Whether a property is a credential; the names of some end with the account."""
        return name in self.credentials or any(name.startswith(f"{c}.") for c in self.credentials)

    def may_vend(self, name: str) -> bool:
        """Whether a property is accepted from a REST catalog."""
        known = (*self.endpoints, *self.others, *self.refused)
        return name in known or self.is_credential(name)


_FAMILIES: Final = (
    _Family(
        "s3",
        ("s3.endpoint",),
        tuple(
            f"{of}.{name}"
            for of in ("s3", "client")
            for name in ("access-key-id", "secret-access-key", "session-token")
        ),
        ("s3.region", "client.region", "s3.force-virtual-addressing", "s3.path-style-access"),
        tuple(
            f"{of}.{name}"
            for of in ("s3", "client")
            for name in (
                *("role-arn", "anonymous", "signer"),
                *("server-side-encryption", "sse-kms-key-id"),
            )
        ),
    ),
    _Family(
        "gcs",
        ("gcs.service.host",),
        ("gcs.oauth2.token",),
        ("gcs.oauth2.token-expires-at", "gcs.project-id"),
        (
            *("gcs.requester-pays", "gcs.user-project", "gcs.encryption-key"),
            *("gcs.decryption-key", "gcs.impersonate.service-account", "gcs.no-auth"),
        ),
    ),
    _Family(
        "adls",
        ("adls.account-host",),
        # A connection string has the endpoint and the credentials, so it needs no further property.
        ("adls.connection-string", "adls.account-key", "adls.sas-token", "adls.token"),
        ("adls.account-name",),
        (
            *("adls.credential", "adls.tenant-id", "adls.client-id", "adls.client-secret"),
            *("adls.anon", "adls.blob-storage-authority", "adls.dfs-storage-authority"),
            *("adls.blob-storage-scheme", "adls.dfs-storage-scheme"),
        ),
    ),
)
# A profile of the operator also holds credentials.
_CONFIGURED_PROFILES: Final = ("s3.profile-name", "client.profile-name")


def with_vended(
    configured: Mapping[str, Any], vended: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the properties of a `FileIO`: the configured ones, completed by vended ones.

    Vended credentials replace all configured ones of the same storage.

    Args:
        configured: the properties of the catalog's configuration.
        vended: the properties that the REST catalog sends, for all tables or for one.
        environment: variables, some of which name endpoints, too.

    Raises:
        RefusedError: the server vends another endpoint than the configured one, without credentials
            for it.
    """
    found = dict(configured)
    for family in _FAMILIES:
        given = {n: v for n, v in vended.items() if family.may_vend(n) and v not in (None, "")}
        if any(family.is_credential(name) for name in given):
            # The operator's credentials must not go to a vended endpoint.
            kept = {
                name: value
                for name, value in found.items()
                if not family.is_credential(name) and not _is_profile(family, name)
            }
            found = {**kept, **given}
            continue
        for name in family.endpoints:
            _refuse_other_endpoint(name, given, configured, environment)
        found.update(given)
    return found


def _is_profile(family: _Family, name: str) -> bool:
    return family.prefix == "s3" and name in _CONFIGURED_PROFILES


_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gcs.service.host": ("STORAGE_EMULATOR_HOST",),
}


def _refuse_other_endpoint(
    name: str,
    given: Mapping[str, Any],
    configured: Mapping[str, Any],
    environment: Mapping[str, str],
) -> None:
    """Refuse a vended endpoint that would receive the operator's own credentials.

    Raises:
        RefusedError: the endpoint is not the configured one.
    """
    endpoint = text_of(given, name)
    trusted = text_of(configured, name) or text_of(environment, *_VARIABLES.get(name, ()))
    if endpoint is None or (trusted or "").rstrip("/") == endpoint.rstrip("/"):
        return
    # The text before an @ may be a secret.
    shown = endpoint.rpartition("@")[2]
    message = (
        f"Cannot open the files of the table: its catalog says {name}: {shown} and vends no "
        "credentials for it, and those of the configuration go only to where the configuration "
        f"says. Write {name}: {shown} into the catalog's configuration, if it is right."
    )
    raise RefusedError(message)


def opened_by_configuration(catalog: Catalog) -> Catalog:
    """Make a catalog of any kind open files with its own properties only; return the catalog.

    PyIceberg would merge a table's properties into them, and some of these name classes.
    """
    # A changed class, because functions set on the object would form a reference cycle that keeps
    # the catalog's connections open.
    catalog.__class__ = _of_configuration(type(catalog))
    return catalog


@functools.cache
def _of_configuration(kind: type[Catalog]) -> type[Catalog]:
    methods: dict[str, object] = {"__slots__": (), "__module__": kind.__module__}
    methods["_load_file_io"] = _load_file_io
    if issubclass(kind, MetastoreCatalog):
        # For other catalogs the server stages the table.
        methods["_update_and_stage_table"] = _update_and_stage_table
    subclass: type[Catalog] = types.new_class(
        kind.__name__, (kind,), exec_body=lambda namespace: namespace.update(methods)
    )
    return subclass


def _load_file_io(
    self: Catalog,
    properties: Properties = EMPTY_DICT,  # noqa: ARG001  the table's
    location: str | None = None,
) -> FileIO:
    """Return the catalog's `FileIO`, without the properties of a table."""
    return load_file_io(self.properties, location)


def _update_and_stage_table(
    self: MetastoreCatalog,
    current_table: Table | None,
    table_identifier: Identifier,
    requirements: tuple[TableRequirement, ...],
    updates: tuple[TableUpdate, ...],
) -> StagedTable:
    """Stage a table as PyIceberg does, but without the location provider class that it names."""
    before = current_table.metadata if current_table else None
    for requirement in requirements:
        requirement.validate(before)
    number, at = 0, None
    if current_table is not None:
        at = current_table.metadata_location
        number = self._parse_metadata_version(at) + 1
    metadata = update_table_metadata(
        base_metadata=before or self._empty_table_metadata(),
        updates=updates,
        enforce_validation=before is None,
        metadata_location=at,
    )
    places = location_provider(metadata.location, metadata.properties)
    location = places.new_table_metadata_file_location(number)
    return StagedTable(
        identifier=table_identifier,
        metadata=metadata,
        metadata_location=location,
        io=_load_file_io(self, location=location),
        catalog=self,
    )

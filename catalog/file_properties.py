"""The properties that the files of a table are opened with: never the table's own.

They are those of the catalog's configuration. Whoever may alter a table would otherwise say where
the operator's credentials go and which classes are loaded here. A REST catalog also vends
properties, for all tables or with one: an endpoint of these is used with the credentials that
came with it, and with no others.
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
"""Properties that name classes, which are loaded: an operator alone sets them."""


@dataclass(frozen=True, slots=True)
class _Family:
    """The properties of one storage that a catalog may vend.

    Of `refused` each is refused by name where the storage is opened.
    """

    prefix: str
    endpoints: tuple[str, ...]
    credentials: tuple[str, ...]
    others: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def is_credential(self, name: str) -> bool:
        """Whether a property says who asks; some have the account in their name."""
        return name in self.credentials or any(name.startswith(f"{c}.") for c in self.credentials)

    def may_vend(self, name: str) -> bool:
        """Whether a property is taken from a server."""
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
        # A connection string has both, so that it is whole by itself.
        ("adls.connection-string", "adls.account-key", "adls.sas-token", "adls.token"),
        ("adls.account-name",),
        (
            *("adls.credential", "adls.tenant-id", "adls.client-id", "adls.client-secret"),
            *("adls.anon", "adls.blob-storage-authority", "adls.dfs-storage-authority"),
            *("adls.blob-storage-scheme", "adls.dfs-storage-scheme"),
        ),
    ),
)
# A profile is the operator's, and says who asks, too.
_NOT_BESIDE_VENDED: Final = ("s3.profile-name", "client.profile-name")


def with_vended(
    configured: Mapping[str, Any], vended: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the properties of a `FileIO`: those configured, and what a REST catalog vends.

    Args:
        configured: the properties of the catalog's configuration.
        vended: what its server sends, for all tables or for one.
        environment: which may name endpoints, too.

    Raises:
        RefusedError: the server names an endpoint and vends no credentials for it.
    """
    found = dict(configured)
    for family in _FAMILIES:
        given = {n: v for n, v in vended.items() if family.may_vend(n) and v not in (None, "")}
        if any(family.is_credential(name) for name in given):
            # None of the operator's is mixed with them: it would go where they go.
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
    return family.prefix == "s3" and name in _NOT_BESIDE_VENDED


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
    """Refuse an endpoint of a server where the operator's own credentials would go.

    Raises:
        RefusedError: it is not the one that the configuration names.
    """
    endpoint = text_of(given, name)
    own = text_of(configured, name) or text_of(environment, *_VARIABLES.get(name, ()))
    if endpoint is None or (own or "").rstrip("/") == endpoint.rstrip("/"):
        return
    # What stands before an @ may be a secret.
    shown = endpoint.rpartition("@")[2]
    message = (
        f"Cannot open the files of the table: its catalog says {name}: {shown} and vends no "
        "credentials for it, and those of the configuration go only to where the configuration "
        f"says. Write {name}: {shown} into the catalog's configuration, if it is right."
    )
    raise RefusedError(message)


def opened_by_configuration(catalog: Catalog) -> Catalog:
    """Return a catalog, of any kind, that opens files with the properties that it has itself.

    PyIceberg mixes the properties of a table with them, of which one may name a class.
    """
    # Its class, and no functions of its own: these would keep it, and its connections, for longer.
    catalog.__class__ = _of_configuration(type(catalog))
    return catalog


@functools.cache
def _of_configuration(kind: type[Catalog]) -> type[Catalog]:
    methods: dict[str, object] = {"__slots__": (), "__module__": kind.__module__}
    methods["_load_file_io"] = _load_file_io
    if issubclass(kind, MetastoreCatalog):
        # A server stages for the others.
        methods["_update_and_stage_table"] = _update_and_stage_table
    made: type[Catalog] = types.new_class(
        kind.__name__, (kind,), exec_body=lambda own: own.update(methods)
    )
    return made


def _load_file_io(
    self: Catalog,
    properties: Properties = EMPTY_DICT,  # noqa: ARG001  the table's
    location: str | None = None,
) -> FileIO:
    """Return what opens files of a catalog."""
    return load_file_io(self.properties, location)


def _update_and_stage_table(
    self: MetastoreCatalog,
    current_table: Table | None,
    table_identifier: Identifier,
    requirements: tuple[TableRequirement, ...],
    updates: tuple[TableUpdate, ...],
) -> StagedTable:
    """Do what PyIceberg does, without the class that a table names for its locations."""
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

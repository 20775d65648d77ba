"""Opens the storage of a location (`tableformat.storage.Storage`) by its scheme.

Supported are the local file system, S3, Google Cloud Storage, Azure Blob Storage and HDFS; other
schemes are refused by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from catalog.network import DEFAULT_TIME_OUTS, TimeOuts, is_true
from catalog.storages.abfs.access import AbfsAccess
from catalog.storages.abfs.store import AbfsStorage
from catalog.storages.access import ALLOW_INSECURE
from catalog.storages.gs.access import ENDPOINT, GsAccess
from catalog.storages.gs.store import GsStorage
from catalog.storages.hdfs.access import ENDPOINT as HDFS_ENDPOINT
from catalog.storages.hdfs.access import HdfsAccess
from catalog.storages.hdfs.store import HdfsStorage
from catalog.storages.local import LocalStorage
from catalog.storages.s3.access import S3Access
from tableformat.errors import InternalError, UnsupportedError, UsageError
from tableformat.names import secret_in, shown_location
from tableformat.storage import Storage

__all__ = [
    "BY_CATALOG",
    "Access",
    "Opens",
    "ReachedStorages",
    "Storages",
    "is_local",
    "is_remote",
    "open_storage",
]

Access = S3Access | GsAccess | AbfsAccess | HdfsAccess
"""The settings of a remote storage."""

Opens = Callable[[str], Storage]
"""Opens the storage of a location."""

BY_CATALOG: Final = "mergeberg.storages"
"""The property by which a catalog passes its `Storages` to the `FileIO` of its tables."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_S3: Final = ("s3", "s3a", "s3n")
_GS: Final = "gs"
_ABFS: Final = ("abfs", "abfss")
_HDFS: Final = "hdfs"


def open_storage(location: str, access: Access | None = None) -> Storage:
    """Return the storage of a location.

    Args:
        location: a path or a URI.
        access: the settings of a remote storage; None reads them from the environment.

    Raises:
        UnsupportedError: its scheme is not supported, or its client library is not installed.
    """
    if is_local(location):
        return LocalStorage()
    kind = _kind(location)
    if access is not None and not isinstance(access, kind):
        message = (
            f"Cannot use {location}: the metadata of its table is in a storage of another kind. "
            "Keep metadata and data files of a table in one."
        )
        raise UnsupportedError(message)
    match access or _access(location, {}, DEFAULT_TIME_OUTS, allow_insecure=False):
        case S3Access() as in_s3:
            return _s3_storage(in_s3)
        case GsAccess() as in_gs:
            return GsStorage(in_gs)
        case AbfsAccess() as in_abfs:
            return AbfsStorage(in_abfs)
        case HdfsAccess() as in_hdfs:
            return HdfsStorage(in_hdfs)
        case never:
            assert_never(never)


def is_remote(location: str) -> bool:
    """Whether a location is in a supported remote storage."""
    return _scheme(location) in (*_S3, _GS, *_ABFS, _HDFS)


def is_local(location: str) -> bool:
    """Whether a location is on a file system of this host: a path, or a file:// URI."""
    return _scheme(location) == "file"


def _scheme(location: str) -> str:
    found = _SCHEME.match(location)
    return "file" if found is None else found[1]


def _kind(location: str) -> type[S3Access | GsAccess | AbfsAccess | HdfsAccess]:
    """Return the settings' class for a remote location.

    Raises:
        UnsupportedError: its scheme is not supported.
        UsageError: it has a secret, which messages about its files would show.
    """
    if secret := secret_in(location):
        message = (
            f"Cannot use {shown_location(location)}: it has {secret}, which messages would show. "
            "Leave it out, and give the keys of the store in the configuration of the catalog."
        )
        raise UsageError(message)
    scheme = _scheme(location)
    if scheme in _S3:
        return S3Access
    if scheme == _GS:
        return GsAccess
    if scheme in _ABFS:
        return AbfsAccess
    if scheme == _HDFS:
        return HdfsAccess
    message = (
        f"Cannot use {location}: storage of the scheme {scheme!r} is not supported yet. "
        "Use a path, a file://, an s3://, a gs://, an abfss:// or an hdfs:// location."
    )
    raise UnsupportedError(message)


def _access(
    location: str, properties: Mapping[str, Any], time_outs: TimeOuts, *, allow_insecure: bool
) -> Access:
    """Return the settings for a remote location.

    Raises:
        UsageError: its scheme is not supported, or the properties are not sufficient.
    """
    kind = _kind(location)
    if issubclass(kind, AbfsAccess):
        return AbfsAccess.of(
            location,
            properties,
            environment=os.environ,
            time_outs=time_outs,
            allow_insecure=allow_insecure,
        )
    return kind.of(
        properties, environment=os.environ, time_outs=time_outs, allow_insecure=allow_insecure
    )


@dataclass(frozen=True, slots=True)
class Storages:
    """Opens the storages of a catalog's tables, with the properties of the catalog or the table.

    The properties of a table, such as credentials that a REST catalog vends, apply below the
    table's location. Only the catalog's own properties can allow http.
    """

    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    time_outs: TimeOuts = DEFAULT_TIME_OUTS
    _of_tables: dict[str, Mapping[str, Any]] = field(default_factory=dict, repr=False, init=False)

    def learn(self, location: str, properties: Mapping[str, Any]) -> None:
        """Keep the properties of a loaded table's `FileIO`."""
        self._of_tables[location.rstrip("/")] = properties

    def __call__(self, location: str) -> Storage:
        """Open the storage of a location.

        Raises:
            UsageError: its scheme is not supported, or the properties are not sufficient.
        """
        return open_storage(location, self.access(location))

    def access(self, location: str) -> Access | None:
        """Return the settings for a remote location, None for a local one.

        Raises:
            UsageError: its scheme is not supported, or the properties are not sufficient.
        """
        if is_local(location):
            return None
        table = _longest_prefix(location, self._of_tables)
        properties = self.properties if table is None else self._of_tables[table]
        return self.access_by(location, properties)

    def access_by(self, location: str, properties: Mapping[str, Any]) -> Access:
        """Return the settings for a remote location by the properties of a `FileIO`.

        Raises:
            UsageError: its scheme is not supported, or the properties are not sufficient.
        """
        insecure = is_true(self.properties.get(ALLOW_INSECURE))
        return _access(location, properties, self.time_outs, allow_insecure=insecure)

    def reached(self, locations: Iterable[str]) -> ReachedStorages:
        """Return an opener for other hosts with only the settings of these locations.

        Raises:
            UsageError: a scheme is not supported, or the properties are not sufficient.
        """
        one_of = {self._place(one): one for one in locations if not is_local(one)}
        return ReachedStorages({place: self.access(one) for place, one in one_of.items()})

    def _place(self, location: str) -> str:
        """Return the longest prefix of a location whose locations share settings."""
        return _longest_prefix(location, self._of_tables) or "/".join(location.split("/", 3)[:3])

    def check(self) -> None:
        """Refuse unusable storage properties of the catalog before an export starts.

        Raises:
            UsageError: its properties are not sufficient, or it is http, which is not allowed.
        """
        warehouse = str(self.properties.get("warehouse", ""))
        for scheme, endpoint in (
            ("s3", "s3.endpoint"),
            (_GS, ENDPOINT),
            (_HDFS, HDFS_ENDPOINT),
        ):
            if endpoint in self.properties:
                self.access_by(f"{scheme}://", self.properties)
        if is_remote(warehouse):
            self.access_by(warehouse, self.properties)


@dataclass(frozen=True, slots=True)
class ReachedStorages:
    """Opens storages with known settings, by location prefix."""

    places: Mapping[str, Access | None] = field(repr=False)

    def __call__(self, location: str) -> Storage:
        """Open the storage of a location.

        Raises:
            InternalError: no prefix matches.
        """
        if is_local(location):
            return LocalStorage()
        place = _longest_prefix(location, self.places)
        if place is None:
            message = (
                f"Cannot reach {location}: no storage was opened for it. This is a bug, please "
                "report it."
            )
            raise InternalError(message)
        return open_storage(location, self.places[place])


def _longest_prefix(location: str, places: Iterable[str]) -> str | None:
    """Return the longest prefix that a location is below, None for none."""
    above = (one for one in places if f"{location}/".startswith(f"{one}/"))
    return max(above, key=len, default=None)


def _s3_storage(access: S3Access) -> Storage:
    try:
        from catalog.storages.s3.storage import S3Storage
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("boto3", "botocore"):
            raise
        message = (
            "Cannot use S3: boto3 is not installed. Run: pip install 'mergeberg[s3]', on every "
            "host that writes."
        )
        raise UnsupportedError(message) from error
    return S3Storage(access)

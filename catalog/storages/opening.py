"""Files and objects behind locations, a `tableformat.storage.Storage`: opened by their scheme.

Served are the local file system and S3; every other scheme is refused by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from catalog.bounded_rest import DEFAULT_TIME_OUTS, TimeOuts
from catalog.environment import is_true
from catalog.storages.local import LocalStorage
from catalog.storages.s3.access import ALLOW_INSECURE, S3Access
from tableformat.errors import UnsupportedError
from tableformat.storage import Storage

__all__ = ["BY_CATALOG", "Storages", "is_in_s3", "is_local", "open_storage"]

BY_CATALOG: Final = "mergeberg.storages"
"""The property by which a catalog hands its `Storages` to the `FileIO` of its tables."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_S3: Final = ("s3", "s3a", "s3n")


def open_storage(location: str, access: S3Access | None = None) -> Storage:
    """Return the storage that a location belongs to.

    Args:
        location: a path or a URI.
        access: how to reach S3; when None, as the environment says.

    Raises:
        UnsupportedError: its scheme is not served, or what speaks to it is not installed.
    """
    if is_in_s3(location):
        return _in_s3(access or S3Access.of({}, environment=os.environ))
    if not is_local(location):
        scheme = location.partition(":")[0]
        message = (
            f"Cannot use {location}: storage of the scheme {scheme!r} is not supported yet. "
            "Use a path, a file:// or an s3:// location."
        )
        raise UnsupportedError(message)
    return LocalStorage()


def is_in_s3(location: str) -> bool:
    """Whether a location is one in S3, as Iceberg or as Hadoop writes it."""
    scheme = _SCHEME.match(location)
    return scheme is not None and scheme[1] in _S3


def is_local(location: str) -> bool:
    """Whether a location is on a file system of this host: a path, or a file:// URI."""
    scheme = _SCHEME.match(location)
    return scheme is None or scheme[1] == "file"


@dataclass(frozen=True, slots=True)
class Storages:
    """Opens the storages of one catalog's tables, as its properties say, and those of each table.

    What a table adds, as the credentials that a REST catalog vends with it, is for what lies below
    its location. Whether http is allowed is said by the catalog alone.
    """

    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    time_outs: TimeOuts = DEFAULT_TIME_OUTS
    _of_tables: dict[str, Mapping[str, Any]] = field(default_factory=dict, repr=False, init=False)

    def learn(self, location: str, properties: Mapping[str, Any]) -> None:
        """Remember the properties of the `FileIO` of a table that was loaded."""
        self._of_tables[location.rstrip("/")] = properties

    def __call__(self, location: str) -> Storage:
        """Open the storage that a location belongs to.

        Raises:
            UsageError: its scheme is not served, or the properties do not say how to reach it.
        """
        return open_storage(location, self.access(location))

    def access(self, location: str) -> S3Access | None:
        """Return how a location in S3 is reached, None for one elsewhere.

        Raises:
            UsageError: the properties do not say it.
        """
        if not is_in_s3(location):
            return None
        above = [one for one in self._of_tables if f"{location}/".startswith(f"{one}/")]
        return self.access_by(self._of_tables[max(above, key=len)] if above else self.properties)

    def access_by(self, properties: Mapping[str, Any]) -> S3Access:
        """Return how S3 is reached by the properties of a `FileIO`.

        Raises:
            UsageError: the properties do not say it.
        """
        return S3Access.of(
            properties,
            environment=os.environ,
            time_outs=self.time_outs,
            allow_insecure=is_true(self.properties.get(ALLOW_INSECURE)),
        )

    def check(self) -> None:
        """Refuse, before anything is begun, what the catalog itself says of S3.

        Raises:
            UsageError: its properties do not say how to reach it, or it is http, not allowed.
        """
        warehouse = str(self.properties.get("warehouse", ""))
        if "s3.endpoint" in self.properties or is_in_s3(warehouse):
            self.access_by(self.properties)


def _in_s3(access: S3Access) -> Storage:
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

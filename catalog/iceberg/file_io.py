"""Opens a table's data and metadata files for PyIceberg: the `FileIO`, and its properties.

`LakeFileIO` implements PyIceberg's `FileIO` over the storages that also hold the data files. So
credentials, authorities, time-outs and retries are the same for both, and objects that must not be
replaced are not. A local file is on disk when it is closed, before any catalog refers to it. If the
writer of a data file or a metadata JSON failed, the file is never published. A manifest may be,
because PyIceberg closes it even then; no snapshot refers to it.

The properties come from the catalog's configuration, never from the table. Otherwise a user who may
alter a table could redirect the operator's credentials, or choose classes that this process loads.
A REST catalog also vends properties, for all tables or for one. An endpoint that it vends is used
only with credentials that it vends with it.
"""

from __future__ import annotations

import functools
import io
import types
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import (
    PY_IO_IMPL,
    FileIO,
    InputFile,
    InputStream,
    OutputFile,
    OutputStream,
    load_file_io,
)
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from catalog.storages.access import text_of
from catalog.storages.local import LocalStorage, local_path
from catalog.storages.schemes import BY_CATALOG, Storages, is_local, open_storage
from tableformat.errors import DestinationError, InternalError, MissingError, RefusedError
from tableformat.iceberg.snapshot import location_provider
from tableformat.storage import Storage

__all__ = ["CLASSES", "LakeFileIO", "opened_by_configuration", "with_vended"]


class LakeFileIO(FileIO):
    """PyIceberg's `FileIO` over the supported storages."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        """Keep the properties of a catalog, with those that a REST catalog vends.

        Raises:
            InternalError: the catalog's storages are not among them.
        """
        super().__init__(properties)
        storages = properties.get(BY_CATALOG)
        if not isinstance(storages, Storages):
            message = f"{BY_CATALOG} is no Storages; this is a bug, please report it."
            raise InternalError(message)
        self._storages = storages

    def new_input(self, location: str) -> InputFile:
        """Return a file for reading."""
        if is_local(location):
            return _LocalFile(location)
        return _Object(location, self._storage(location))

    def new_output(self, location: str) -> OutputFile:
        """Return a file for writing."""
        if is_local(location):
            return _LocalFile(location)
        return _Object(location, self._storage(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file.

        Raises:
            OSError: it cannot be removed.
        """
        place = location if isinstance(location, str) else location.location
        if is_local(place):
            local_path(place).unlink()
            return
        try:
            self._storage(place).delete(place)
        except DestinationError as error:
            # PyIceberg continues after failed deletions only for this class.
            raise OSError(error.message) from error

    def _storage(self, location: str) -> Storage:
        return open_storage(location, self._storages.access_by(location, self.properties))


class _LocalFile(InputFile, OutputFile):
    """A local file: read in place, and written as data files are."""

    def __len__(self) -> int:
        return local_path(self.location).stat().st_size

    def exists(self) -> bool:
        """Whether the file exists."""
        return local_path(self.location).exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002  PyIceberg's
        """Return a stream for reading."""
        opened: InputStream = pa.OSFile(str(local_path(self.location)), "rb")
        return opened

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  PyIceberg's
        """Start the file; it appears when the stream is closed without an earlier error.

        Raises:
            FileExistsError: the file exists and must not be replaced.
        """
        if not overwrite and self.exists():
            raise _exists_error(self.location)
        # A rename may replace: hard links are not universal, and metadata names have a UUID.
        return _BufferedOutput(self.location, LocalStorage(), replaces=True)

    def to_input_file(self) -> InputFile:
        """Return the file itself."""
        return self


class _Object(InputFile, OutputFile):
    """An object. Metadata is small: it is read and written as a whole."""

    def __init__(self, location: str, storage: Storage) -> None:
        super().__init__(location)
        self._storage = storage

    def __len__(self) -> int:
        return self._storage.size(self.location)

    def exists(self) -> bool:
        """Whether the object exists."""
        try:
            self._storage.size(self.location)
        except MissingError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002  PyIceberg's
        """Return a stream of its bytes."""
        return io.BytesIO(self._storage.read(self.location))

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  PyIceberg's
        """Start the object; it appears when the stream is closed without an earlier error."""
        return _BufferedOutput(self.location, self._storage, replaces=overwrite)

    def to_input_file(self) -> InputFile:
        """Return the object itself."""
        return self


class _BufferedOutput:
    """Bytes that become an object when the stream is closed, unless an error came first."""

    def __init__(self, location: str, storage: Storage, *, replaces: bool) -> None:
        self._bytes = io.BytesIO()
        self._location, self._storage, self._replaces = location, storage, replaces

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._bytes.close()

    def write(self, b: bytes) -> int:
        """Append bytes."""
        return self._bytes.write(b)

    def tell(self) -> int:
        """Return the number of bytes."""
        return self._bytes.tell()

    @property
    def closed(self) -> bool:
        """Whether the stream is closed; PyArrow checks it before it writes."""
        return self._bytes.closed

    def close(self) -> None:
        """Store the bytes; closing again does nothing.

        Raises:
            FileExistsError: an object of that name exists and must not be replaced.
            DestinationError: the bytes cannot be stored.
        """
        if self._bytes.closed:
            return
        data = self._bytes.getvalue()
        self._bytes.close()
        if self._replaces:
            self._storage.put(self._location, data)
        elif not self._storage.put_if_absent(self._location, data):
            raise _exists_error(self._location)


def _exists_error(location: str) -> FileExistsError:
    return FileExistsError(f"Cannot write {location}: there is an object of that name.")


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
        f"Cannot open the files of the table: its catalog returns {name}: {shown} and vends no "
        "credentials for it, and configured credentials are sent only to configured places. Write "
        f"{name}: {shown} into the catalog's configuration, if it is right."
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

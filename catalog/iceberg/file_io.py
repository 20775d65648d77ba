"""PyIceberg's interface to files: the same storage that data files go to.

So credentials, authorities, time-outs and how long to go on are one thing for both, and no object
is replaced that must not be. On this host a file is on the disk when it is closed, before any
catalog refers to it. Of data files and metadata JSON none is published whose writer failed; a
manifest may be, which PyIceberg closes whatever happened, and then no snapshot refers to it.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from catalog.storages.local import LocalStorage, local_path
from catalog.storages.opening import BY_CATALOG, Storages, is_local, open_storage
from tableformat.errors import DestinationError, InternalError, MissingError
from tableformat.storage import Storage

__all__ = ["LakeFileIO"]


class LakeFileIO(FileIO):
    """PyIceberg's `FileIO` over the storages that are served."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        """Take the properties of a catalog, with those that a REST catalog vends.

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
        """Return what reads a file."""
        if is_local(location):
            return _File(location)
        return _Object(location, self._storage(location))

    def new_output(self, location: str) -> OutputFile:
        """Return what writes a file."""
        if is_local(location):
            return _File(location)
        return _Object(location, self._storage(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file.

        Raises:
            OSError: it does not go.
        """
        place = location if isinstance(location, str) else location.location
        if is_local(place):
            local_path(place).unlink()
            return
        try:
            self._storage(place).delete(place)
        except DestinationError as error:
            # PyIceberg goes on without what it could not delete, by this class only.
            raise OSError(error.message) from error

    def _storage(self, location: str) -> Storage:
        return open_storage(location, self._storages.access_by(location, self.properties))


class _File(InputFile, OutputFile):
    """A file of this host: read where it is, and written as data files are."""

    def __len__(self) -> int:
        return local_path(self.location).stat().st_size

    def exists(self) -> bool:
        """Whether it is there."""
        return local_path(self.location).exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002  PyIceberg's
        """Return what reads it."""
        opened: InputStream = pa.OSFile(str(local_path(self.location)), "rb")
        return opened

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  PyIceberg's
        """Begin it; it appears when the stream is closed, and only if nothing failed before.

        Raises:
            FileExistsError: there is one, which is not to be replaced.
        """
        if not overwrite and self.exists():
            raise _taken(self.location)
        # Not all file systems can do more: names of metadata have a UUID, no two writers one.
        return _Written(self.location, LocalStorage(), replaces=True)

    def to_input_file(self) -> InputFile:
        """Return it."""
        return self


class _Object(InputFile, OutputFile):
    """An object. Metadata is small: it is read and written whole."""

    def __init__(self, location: str, storage: Storage) -> None:
        super().__init__(location)
        self._storage = storage

    def __len__(self) -> int:
        return self._storage.size(self.location)

    def exists(self) -> bool:
        """Whether it is there."""
        try:
            self._storage.size(self.location)
        except MissingError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002  PyIceberg's
        """Return its bytes."""
        return io.BytesIO(self._storage.read(self.location))

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  PyIceberg's
        """Begin it; it appears when the stream is closed, and only if nothing failed before."""
        return _Written(self.location, self._storage, replaces=overwrite)

    def to_input_file(self) -> InputFile:
        """Return it."""
        return self


class _Written:
    """Bytes that become an object when they are closed; not when they are forgotten."""

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
        """Return how many there are."""
        return self._bytes.tell()

    @property
    def closed(self) -> bool:
        """Whether no more can be written; PyArrow asks before it writes."""
        return self._bytes.closed

    def close(self) -> None:
        """Store what was written. Closing twice is the same as once.

        Raises:
            FileExistsError: there is an object of that name, which is not to be replaced.
            DestinationError: it cannot be stored.
        """
        if self._bytes.closed:
            return
        data = self._bytes.getvalue()
        self._bytes.close()
        if self._replaces:
            self._storage.put(self._location, data)
        elif not self._storage.put_if_absent(self._location, data):
            raise _taken(self._location)


def _taken(location: str) -> FileExistsError:
    return FileExistsError(f"Cannot write {location}: there is an object of that name.")

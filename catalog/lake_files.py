"""PyIceberg's door to files, where metadata is not local: the same storage that data files go to.

So credentials, authorities, time-outs and how long to go on are one thing for both, and no object
is replaced that must not be. Of data files and metadata JSON none is published whose writer failed;
a manifest may be, which PyIceberg closes whatever happened, and then no snapshot refers to it.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import Self

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowLocalFileSystem
from pyiceberg.typedef import EMPTY_DICT, Properties

from catalog.storages.local import local_path
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
            return _local_file(location)
        return _Object(location, self._storage(location))

    def new_output(self, location: str) -> OutputFile:
        """Return what writes a file."""
        if is_local(location):
            return _local_file(location)
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


def _local_file(location: str) -> PyArrowFile:
    """Return a file of this host; PyIceberg would take ? and # for the end of its path."""
    path = str(local_path(location))
    return PyArrowFile(location=location, path=path, fs=PyArrowLocalFileSystem())


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
            message = f"Cannot write {self._location}: there is an object of that name."
            raise FileExistsError(message)

"""Implements PyIceberg's `FileIO` over the storages that also hold the data files.

So credentials, authorities, time-outs and retries are the same for both, and objects that must not
be replaced are not. A local file is on disk when it is closed, before any catalog refers to it. If
the writer of a data file or a metadata JSON failed, the file is never published. A manifest may be,
because PyIceberg closes it even then; no snapshot refers to it.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from catalog.storages.local import LocalStorage, local_path
from catalog.storages.schemes import BY_CATALOG, Storages, is_local, open_storage
from tableformat.errors import DestinationError, InternalError, MissingError
from tableformat.storage import Storage

__all__ = ["LakeFileIO"]


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

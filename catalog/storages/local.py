"""Implements `tableformat.storage.Storage` for the local file system.

A file is durable when it has its name: its bytes, its directory entry, and each directory above it
are on disk.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from catalog.storages.access import exists_error
from tableformat.errors import DestinationError, LastingError, MissingError
from tableformat.parquet.writer import FileSink
from tableformat.storage import Storage, StoredObject

__all__ = [
    "LocalStorage",
    "download",
    "local_directory",
    "local_location",
    "local_path",
    "make_directory",
]

_IN_PROGRESS: Final = ".inprogress"
_NO_LINKS: Final = frozenset(
    # Linux also returns EPERM for a file of another user.
    {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
)
"""Errors of a hard link after which a copy may still succeed."""
_LASTING: Final[Mapping[int, str]] = {
    errno.ENOSPC: "Free space there",
    errno.EDQUOT: "Free space there, or raise the quota",
    errno.EROFS: "Let it be written to, or name another place",
}
"""Errors that a retry cannot cure, with the advice."""
_LOCAL: Final = re.compile(r"file:(?://)?(?=/)")
_ON_DISK: Final[dict[Path, int]] = {}
"""The inodes of directories that this process has made durable, with all directories above."""


def local_path(location: str) -> Path:
    """Return the path of a local location: a path or a file:// URI, taken literally.

    Nothing is decoded; Iceberg's and Hadoop's readers decode nothing either.
    """
    return Path(location.removeprefix(_head(location)))


def local_location(path: Path) -> str:
    """Return the location of an absolute path, for which `local_path` returns the path."""
    return f"file://{path}"


def local_directory(path: Path) -> Path:
    """Return a directory's absolute path, equal however it is written."""
    # abspath() keeps two leading slashes, which no supported system treats differently.
    return Path("/", os.path.abspath(path).lstrip("/"))  # noqa: PTH100  it takes .. out


def download(
    location: str, into: Path, read: Callable[[Callable[[Iterable[bytes]], Path]], Path]
) -> Path:
    """Download an object to a new file in a directory; return its path.

    Args:
        location: of the object, for messages.
        into: the directory.
        read: opens the object and calls its argument with the bytes, again if the download breaks.

    Raises:
        DestinationError: the directory has no space, or the object cannot be read.
    """
    copy = into / uuid.uuid4().hex

    def write(chunks: Iterable[bytes]) -> Path:
        with copy.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
        return copy

    try:
        return read(write)
    except BaseException as error:
        copy.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        message = (
            f"Cannot copy {location} to {into}: {error.strerror}. Make space there, or name "
            "another directory by TMPDIR, and run again."
        )
        raise DestinationError(message) from error


class LocalStorage:
    """The local file system. Locations are absolute paths or file:// URIs, taken literally."""

    def create(self, location: str) -> FileSink:
        """Start a new object, which appears when the sink is committed."""
        with _storage_errors("create", location):
            return _LocalSink(local_path(location))

    def put(self, location: str, data: bytes) -> None:
        """Write a whole small object; an existing one is replaced."""
        # What a killed process left does not stop the next one: each has a hidden name of its own.
        with _storage_errors("create", location):
            sink = _LocalSink(local_path(location), uuid.uuid4().hex)
        with _aborting(sink):
            sink.write(data)
            sink.commit()

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a whole small object; return False, and change nothing, if one exists."""
        path = local_path(location)
        with _storage_errors("create", location):
            make_directory(path.parent)
            # The link appears with the whole content or not at all, and never over another.
            hidden = _hidden(path, uuid.uuid4().hex)
            try:
                with hidden.open("xb") as file:
                    file.write(data)
                    _sync(file)
                os.link(hidden, path)
            except FileExistsError:
                return False
            finally:
                hidden.unlink(missing_ok=True)
            _sync_path(path.parent)
        return True

    def read(self, location: str) -> bytes:
        """Return a whole object."""
        with _read_errors(location):
            return local_path(location).read_bytes()

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished objects below a directory, at any depth, sorted."""
        found = _files(prefix)
        return tuple(o for o in found if not o.location.endswith(_IN_PROGRESS))

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the unfinished objects below a directory, of running and of ended writers."""
        return tuple(o for o in _files(prefix) if o.location.endswith(_IN_PROGRESS))

    def delete(self, location: str) -> None:
        """Remove an object; a missing one counts as removed."""
        with _storage_errors("delete", location):
            local_path(location).unlink(missing_ok=True)

    def size(self, location: str) -> int:
        """Return an object's size in bytes."""
        with _read_errors(location):
            return local_path(location).stat().st_size

    def sha256(self, location: str) -> str:
        """Return the SHA-256 of a file's bytes."""
        with _read_errors(location), local_path(location).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def fetch(self, location: str, into: Path) -> Path:  # noqa: ARG002  it is here already
        """Return the path of the file itself."""
        return local_path(location)

    def copy(self, source: Storage, location: str, to: str) -> bool:
        """Create a hard link to a file, which survives the removal of the first name.

        Data files are never written once they have their name, so both names keep the same bytes.
        Returns False if the file system cannot link, for example across two file systems.
        """
        if not isinstance(source, LocalStorage):
            return False
        old, new = local_path(location), local_path(to)
        with _read_errors(location):
            if old.is_symlink():
                # A hard link would link to the symbolic link.
                return False
            _sync_path(old)
        with _storage_errors("create", to):
            make_directory(new.parent)
            try:
                os.link(old, new)
            except FileExistsError as error:
                raise exists_error(to) from error
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                return False
            _sync_path(new.parent)
        return True

    def free_bytes(self, location: str) -> int | None:
        """Return the free space at a location, which need not exist yet."""
        path = local_path(location)
        while not path.exists():
            path = path.parent
        with _storage_errors("read", location):
            return shutil.disk_usage(path).free


def _files(prefix: str) -> tuple[StoredObject, ...]:
    head, found = _head(prefix), []
    for directory, _, names in os.walk(local_path(prefix), onerror=_raise_listing_error):
        for path in (os.path.join(directory, name) for name in names):  # noqa: PTH118  each of thousands
            # A file may be removed between listing and stat.
            with _storage_errors("list", path), contextlib.suppress(FileNotFoundError):
                status = os.stat(path)  # noqa: PTH116  as above
                if stat.S_ISREG(status.st_mode):
                    found.append(StoredObject(f"{head}{path}", status.st_size))
    return tuple(sorted(found))


def _raise_listing_error(error: OSError) -> None:
    """Raise the error of listing a directory, unless it does not exist."""
    if not isinstance(error, FileNotFoundError):
        with _storage_errors("list", str(error.filename)):
            raise error


class _LocalSink:
    """A file under a hidden name, of which `mark` is a part, until it is committed."""

    def __init__(self, path: Path, mark: str = "") -> None:
        self._path = path
        self._hidden = _hidden(path, mark)
        make_directory(path.parent)
        self._file = self._hidden.open("xb")

    def write(self, data: bytes, /) -> None:
        with _storage_errors("write", str(self._path)):
            self._file.write(data)

    def commit(self) -> None:
        with _storage_errors("write", str(self._path)):
            _sync(self._file)
            self._file.close()
            self._hidden.rename(self._path)
            _sync_path(self._path.parent)

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            # Closing flushes the buffer, which fails again on a full disk; the file still closes.
            self._file.close()
        self._hidden.unlink(missing_ok=True)


def _head(location: str) -> str:
    """Return the text before a path; Hadoop writes file:/path for file:///path."""
    found = _LOCAL.match(location)
    return found[0] if found else ""


def make_directory(path: Path) -> None:
    """Create a directory and those above it durably.

    It also syncs an existing directory: a process that ended early may have created it without.

    Raises:
        OSError: it cannot be created.
    """
    path.mkdir(parents=True, exist_ok=True)
    new: dict[Path, int] = {}
    for directory in (path, *path.parents[:-1]):
        inode = directory.stat().st_ino
        if _ON_DISK.get(directory) == inode:
            break
        # A user who may not open a directory has created nothing in it.
        with contextlib.suppress(PermissionError):
            _sync_path(directory.parent)
        new[directory] = inode
    _ON_DISK.update(new)


def _hidden(path: Path, mark: str = "") -> Path:
    return path.with_name(f".{path.name}{mark and '.'}{mark}{_IN_PROGRESS}")


def _sync(file: BinaryIO) -> None:
    """Make bytes durable: a snapshot must never refer to bytes that a power cut can lose."""
    file.flush()
    os.fsync(file.fileno())


def _sync_path(path: Path) -> None:
    """Make a directory durable, or a file that another process may have written."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextlib.contextmanager
def _aborting(sink: FileSink) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sink.abort()
        raise


@contextlib.contextmanager
def _read_errors(location: str) -> Iterator[None]:
    with _storage_errors("read", location):
        try:
            yield
        except FileNotFoundError as error:
            message = (
                f"Cannot read {location}: {error.strerror}. It was removed or moved away: put it "
                "back from a copy."
            )
            raise MissingError(message) from error


@contextlib.contextmanager
def _storage_errors(what: str, location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"Cannot {what} {location}: {error.strerror or error}."
        if advice := _LASTING.get(error.errno or 0):
            message = f"{problem} {advice}, and run it again: it continues."
            raise LastingError(message) from error
        message = f"{problem} Check space and permissions there, and run again."
        raise DestinationError(message) from error

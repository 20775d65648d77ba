"""Implements `tableformat.storage.Storage` for stores over HTTP.

`ObjectSink` writes one object with one request; the bytes wait in a local file until all are
there.

- The store verifies the bytes by their MD5 before it shows the object.
- It stores the object only if the name is free.
- The response may be lost, so an existing object may be our own. The object carries its writer's
  mark, and the mark decides.
- There is no upload in several requests, because another process would have to find and remove
  the parts of an interrupted one.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Final, TypeVar

from catalog.storages.access import Place, exists_error
from catalog.storages.local import download
from catalog.storages.over_http.requests import (
    Content,
    ObjectClient,
    RefusalError,
    Requests,
    missing_object,
)
from tableformat.errors import DestinationError
from tableformat.parquet.writer import FileSink
from tableformat.storage import Storage, StoredObject

__all__ = ["ObjectSink", "ObjectStorage", "delete", "put", "put_new"]

_IN_MEMORY: Final = 8 * 1024 * 1024
_LOGGER: Final = logging.getLogger(__name__)


class ObjectSink:
    """An object that appears when it is committed. For one thread."""

    def __init__(self, requests: Requests, location: str) -> None:
        """Start; nothing is sent yet."""
        self._stopped = Event()
        self._requests = replace(requests, stopped=self._stopped)
        self._location, self._writer = location, uuid.uuid4().hex
        Place.of(location)
        # The file has no name, so it disappears with the process.
        self._waiting = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  until the end
        self._digest = hashlib.md5(usedforsecurity=False)
        self._size = 0
        self._committing = False

    def write(self, data: bytes, /) -> None:
        """Append bytes.

        Raises:
            DestinationError: this host has no space for them.
        """
        try:
            self._waiting.write(data)
        except OSError as error:
            message = (
                f"Cannot write {self._location}: its bytes are collected in "
                f"{tempfile.gettempdir()} before they are sent: {error.strerror}. Make space "
                "there, or name another directory by TMPDIR, and run again."
            )
            raise DestinationError(message) from error
        self._digest.update(data)
        self._size += len(data)

    def commit(self) -> None:
        """Make the object visible.

        Raises:
            DestinationError: it cannot be stored, or another object has its name.
        """
        self._committing = True
        content = Content(self._waiting, self._size, self._digest.digest())
        done = _put_new(self._requests, self._location, content, self._writer)
        self._waiting.close()
        if not done:
            raise exists_error(self._location)

    def abort(self) -> None:
        """Remove the written bytes; a failed removal is logged and left to `gc`."""
        self._stopped.set()
        self._waiting.close()
        if not self._committing:
            return
        try:
            if _writer_of(self._requests, self._location) == self._writer:
                delete(self._requests, self._location)
        except DestinationError as error:
            _LOGGER.warning("the object %s stays until gc: %s", self._location, error)


def put(requests: Requests, location: str, data: bytes) -> None:
    """Store a whole object; an existing one is replaced.

    Raises:
        DestinationError: it cannot be stored.
    """
    place, content = Place.of(location), Content.of(data)
    requests.run("write", location, lambda client: client.insert(place, content))


def put_new(requests: Requests, location: str, data: bytes) -> bool:
    """Store a whole object; return False, and change nothing, if another object exists.

    Raises:
        DestinationError: it cannot be stored.
    """
    return _put_new(requests, location, Content.of(data), uuid.uuid4().hex)


def delete(requests: Requests, location: str) -> None:
    """Remove an object; a missing one counts as removed.

    Raises:
        DestinationError: it cannot be removed.
    """
    place = Place.of(location)

    def deleted(client: ObjectClient) -> None:
        try:
            client.remove(place)
        except RefusalError as error:
            if not error.is_missing:
                raise
            client.check_root(place)

    requests.run("delete", location, deleted)


def _put_new(requests: Requests, location: str, content: Content, writer: str) -> bool:
    place = Place.of(location)

    def put_once(client: ObjectClient) -> bool:
        try:
            client.insert_new(place, content, writer)
        except RefusalError as error:
            if not error.is_taken:
                raise
            return False
        return True

    return requests.run("write", location, put_once) or _writer_of(requests, location) == writer


def _writer_of(requests: Requests, location: str) -> str | None:
    """Return the mark of an object's writer, '' if it has none; None if there is no object."""
    place = Place.of(location)

    def found(client: ObjectClient) -> str | None:
        try:
            return client.writer(place)
        except RefusalError as error:
            if error.is_missing:
                return None
            raise

    return requests.run("read", location, found)


T = TypeVar("T")


class ObjectStorage:
    """Objects at literal names. Requests are retried while the server is down."""

    def __init__(self, requests: Requests) -> None:
        """Keep the requests; nothing is sent yet."""
        self._requests = requests

    def create(self, location: str) -> FileSink:
        """Start a new object, which appears when the sink is committed."""
        return ObjectSink(self._requests, location)

    def put(self, location: str, data: bytes) -> None:
        """Write a whole small object; an existing one is replaced."""
        put(self._requests, location, data)

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a whole small object; return False, and change nothing, if one exists."""
        return put_new(self._requests, location, data)

    def read(self, location: str) -> bytes:
        """Return a whole object."""
        return self._read(location, b"".join)

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished objects below a directory, at any depth, sorted."""
        place = Place.below(prefix)
        return self._requests.run("list", prefix, lambda client: tuple(sorted(client.below(place))))

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:  # noqa: ARG002  it is so everywhere
        """Return nothing: unfinished objects exist only on the writer's host."""
        return ()

    def delete(self, location: str) -> None:
        """Remove an object; a missing one counts as removed."""
        delete(self._requests, location)

    def size(self, location: str) -> int:
        """Return an object's size in bytes."""
        place = Place.of(location)
        return self._found(location, lambda client: client.size(place))

    def sha256(self, location: str) -> str:
        """Return the SHA-256 of an object's bytes."""

        def digested(chunks: Iterator[bytes]) -> str:
            digest = hashlib.sha256()
            for chunk in chunks:
                digest.update(chunk)
            return digest.hexdigest()

        return self._read(location, digested)

    def fetch(self, location: str, into: Path) -> Path:
        """Download an object to a directory; return the copy's path."""
        return download(location, into, lambda write: self._read(location, write))

    def copy(self, source: Storage, location: str, to: str) -> bool:  # noqa: ARG002  as below
        """Return False: copies inside the server are not implemented for these stores."""
        return False

    def free_bytes(self, location: str) -> int | None:  # noqa: ARG002  it is so everywhere
        """Return None: the store has no limit."""
        return None

    def _read(self, location: str, use: Callable[[Iterator[bytes]], T]) -> T:
        """Apply `use` to an object's bytes; it restarts if the download breaks."""
        place = Place.of(location)

        def read(client: ObjectClient) -> T:
            with client.chunks(place) as chunks:
                return use(chunks)

        return self._found(location, read)

    def _found(self, location: str, request: Callable[[ObjectClient], T]) -> T:
        """Return the result of a request for an object.

        Raises:
            MissingError: the object does not exist, in an existing bucket.
        """

        def send(client: ObjectClient) -> T | None:
            try:
                return request(client)
            except RefusalError as error:
                if not error.is_missing:
                    raise
                client.check_root(Place.of(location))
                return None

        found = self._requests.run("read", location, send)
        if found is None:
            raise missing_object(location)
        return found

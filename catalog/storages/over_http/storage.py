"""Objects in a store that is asked over HTTP, a `tableformat.storage.Storage`."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from catalog.storages.over_http.failures import RefusalError, gone
from catalog.storages.over_http.objects import ObjectClient
from catalog.storages.over_http.requests import Requests
from catalog.storages.over_http.sink import ObjectSink, delete, put, put_new
from catalog.storages.places import Place
from tableformat.errors import DestinationError
from tableformat.parquet.writer import FileSink
from tableformat.storage import Storage, StoredObject

__all__ = ["ObjectStorage"]

T = TypeVar("T")


class ObjectStorage:
    """Objects at literal names. A request goes on while the server is away."""

    def __init__(self, requests: Requests) -> None:
        """Remember how it is asked; nothing is asked yet."""
        self._requests = requests

    def create(self, location: str) -> FileSink:
        """Begin a new object; it appears when the sink is committed."""
        return ObjectSink(self._requests, location)

    def put(self, location: str, data: bytes) -> None:
        """Write a whole small object, in place of one that is there."""
        put(self._requests, location, data)

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a whole small object; false, and nothing is changed, when there is one already."""
        return put_new(self._requests, location, data)

    def read(self, location: str) -> bytes:
        """Return a whole object."""
        return self._read(location, b"".join)

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished objects below a directory, at any depth, in order."""
        place = Place.below(prefix)
        return self._requests.ask("list", prefix, lambda client: tuple(sorted(client.below(place))))

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:  # noqa: ARG002  it is so everywhere
        """Return nothing: what is begun is on its writer's host, and goes with the process."""
        return ()

    def delete(self, location: str) -> None:
        """Remove an object; one that is not there is removed already."""
        delete(self._requests, location)

    def size(self, location: str) -> int:
        """Return an object's bytes."""
        place = Place.of(location)
        return self._found(location, lambda client: client.size(place))

    def sha256(self, location: str) -> str:
        """Return the digest of an object's bytes."""

        def digested(chunks: Iterator[bytes]) -> str:
            digest = hashlib.sha256()
            for chunk in chunks:
                digest.update(chunk)
            return digest.hexdigest()

        return self._read(location, digested)

    def fetch(self, location: str, into: Path) -> Path:
        """Return a copy of an object, in a directory."""
        copy = into / uuid.uuid4().hex

        def copied(chunks: Iterator[bytes]) -> Path:
            with copy.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
            return copy

        try:
            return self._read(location, copied)
        except BaseException as error:
            copy.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            message = (
                f"Cannot copy {location} to {into}: {error.strerror}. Make space there, or name "
                "another directory by TMPDIR, and run again."
            )
            raise DestinationError(message) from error

    def copy(self, source: Storage, location: str, to: str) -> bool:  # noqa: ARG002  as below
        """Return false: no server of these is asked to copy yet."""
        return False

    def free_bytes(self, location: str) -> int | None:  # noqa: ARG002  it is so everywhere
        """Return None: there is no bound."""
        return None

    def _read(self, location: str, use: Callable[[Iterator[bytes]], T]) -> T:
        """Return what `use` makes of an object's bytes; it begins anew when they break off."""
        place = Place.of(location)

        def read(client: ObjectClient) -> T:
            with client.chunks(place) as chunks:
                return use(chunks)

        return self._found(location, read)

    def _found(self, location: str, request: Callable[[ObjectClient], T]) -> T:
        """Return what a request of an object returns.

        Raises:
            MissingError: there is no such object, in a bucket that is there.
        """

        def asked(client: ObjectClient) -> T | None:
            try:
                return request(client)
            except RefusalError as error:
                if not error.is_missing:
                    raise
                client.check_root(Place.of(location))
                return None

        found = self._requests.ask("read", location, asked)
        if found is None:
            raise gone(location)
        return found

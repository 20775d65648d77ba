"""Objects in Google Cloud Storage, a `tableformat.storage.Storage`; gs://bucket/name is literal."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from urllib3.response import BaseHTTPResponse

from catalog.storages.gs.access import GsAccess
from catalog.storages.gs.failures import ChangedError, RefusalError, gone, is_missing
from catalog.storages.gs.requests import Client, Requests, bucket_path, object_path
from catalog.storages.gs.sink import GsSink, check_bucket, delete, put, put_new
from catalog.storages.places import Place
from tableformat.errors import DestinationError
from tableformat.parquet.writer import FileSink
from tableformat.storage import StoredObject

__all__ = ["GsStorage"]

T = TypeVar("T")
_CHUNK: Final = 1024 * 1024
_MD5: Final = re.compile(r"md5=([A-Za-z0-9+/=]+)")


class GsStorage:
    """Objects in buckets. A request goes on while the server is away, as long as `access` says."""

    def __init__(self, access: GsAccess) -> None:
        """Remember how to reach it; nothing is asked yet."""
        self._requests = Requests(access)

    def create(self, location: str) -> FileSink:
        """Begin a new object; it appears when the sink is committed."""
        return GsSink(self._requests, location)

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
        return self._requests.ask(
            "list", prefix, lambda client: tuple(sorted(_listed(client, place)))
        )

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:  # noqa: ARG002  it is so everywhere
        """Return nothing: what is begun is on its writer's host, and goes with the process."""
        return ()

    def delete(self, location: str) -> None:
        """Remove an object; one that is not there is removed already."""
        delete(self._requests, location)

    def size(self, location: str) -> int:
        """Return an object's bytes."""
        place = Place.of(location)

        def sized(client: Client) -> int:
            return int(client.ask("GET", object_path(place), query={"fields": "size"})["size"])

        return self._found(location, sized)

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

    def free_bytes(self, location: str) -> int | None:  # noqa: ARG002  it is so everywhere
        """Return None: there is no bound."""
        return None

    def _read(self, location: str, use: Callable[[Iterator[bytes]], T]) -> T:
        """Return what `use` makes of an object's bytes; it begins anew when they break off."""
        path = object_path(Place.of(location))

        def read(client: Client) -> T:
            with client.answer("GET", path, query={"alt": "media"}) as answer:
                return use(_compared(answer))

        return self._found(location, read)

    def _found(self, location: str, request: Callable[[Client], T]) -> T:
        """Return what a request of an object returns.

        Raises:
            MissingError: there is no such object, in a bucket that is there.
        """

        def asked(client: Client) -> T | None:
            try:
                return request(client)
            except RefusalError as error:
                if not is_missing(error):
                    raise
                check_bucket(client, Place.of(location))
                return None

        found = self._requests.ask("read", location, asked)
        if found is None:
            raise gone(location)
        return found


def _listed(client: Client, place: Place) -> Iterator[StoredObject]:
    query = {"prefix": place.key, "fields": "items(name,size),nextPageToken"}
    while True:
        page = client.ask("GET", bucket_path(place), query=query)
        for one in page.get("items", ()):
            # What ends with a slash is how some tools mark a directory.
            if not one["name"].endswith("/"):
                yield StoredObject(place.location(one["name"]), int(one["size"]))
        if not page.get("nextPageToken"):
            return
        query["pageToken"] = page["nextPageToken"]


def _compared(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the bytes of an object; at the end they are those that were stored.

    Raises:
        ChangedError: they are others.
    """
    said = _MD5.search(answer.headers.get("X-Goog-Hash", ""))
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in answer.stream(_CHUNK):
        digest.update(chunk)
        yield chunk
    # An object that others composed of several has none; its length is compared in any case.
    if said is not None and base64.b64decode(said[1]) != digest.digest():
        raise ChangedError("its bytes are not those that were stored")

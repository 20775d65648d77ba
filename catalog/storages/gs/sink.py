"""Writes one object by one request: the bytes wait in a file of this host until they are all there.

Google Cloud Storage compares them with their MD5 before it shows the object, and stores it only if
there is none of its name (`ifGenerationMatch=0`). The answer may be lost, so that what looks like
somebody else's object may be this one; the object carries a mark of its writer, and that decides.

Not by a resumable upload: one that broke off is found by its address alone, which dies with the
writer, so that nobody could look for it; and it compares the bytes after it has shown the object.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import logging
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from typing import IO, Final

from catalog.storages.gs.failures import RefusalError, is_missing, is_taken
from catalog.storages.gs.requests import Client, Requests, bucket_path, object_path
from catalog.storages.places import Place
from tableformat.errors import DestinationError

__all__ = ["GsSink", "check_bucket", "delete", "put", "put_new"]

_IN_MEMORY: Final = 8 * 1024 * 1024
_PIECE: Final = 256 * 1024
_WRITER: Final = "mergeberg-writer"
_LOGGER: Final = logging.getLogger(__name__)


class GsSink:
    """An object that appears when it is committed. Used by one thread."""

    def __init__(self, requests: Requests, location: str) -> None:
        """Begin; nothing is asked of the server yet."""
        self._stopped = Event()
        self._requests = replace(requests, stopped=self._stopped)
        self._location, self._writer = location, uuid.uuid4().hex
        Place.of(location)
        # The file has no name: it goes with this process, whatever ends that.
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
                f"Cannot write {self._location}: its bytes wait in {tempfile.gettempdir()} until "
                f"they are all there: {error.strerror}. Make space there, or name another "
                "directory by TMPDIR, and run again."
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
        content = _Content(self._waiting, self._size, _base64(self._digest.digest()))
        done = _put_new(self._requests, self._location, content, self._writer)
        self._waiting.close()
        if not done:
            message = (
                f"Cannot write {self._location}: there is another object of that name, which is "
                "kept. Run the command again: names are new each time."
            )
            raise DestinationError(message)

    def abort(self) -> None:
        """Remove what was written; what cannot be removed now is left to `gc`, and told."""
        self._stopped.set()
        self._waiting.close()
        if not self._committing:
            return
        try:
            if _writer_of(self._requests, self._location) == self._writer:
                delete(self._requests, self._location)
        except DestinationError as error:
            _LOGGER.warning("the object %s stays until gc: %s", self._location, error)


class _Content:
    """The bytes of an object, which can be sent more than once."""

    def __init__(self, file: IO[bytes], size: int, md5: str) -> None:
        self._file, self.size, self.md5 = file, size, md5

    @classmethod
    def of(cls, data: bytes) -> _Content:
        md5 = _base64(hashlib.md5(data, usedforsecurity=False).digest())
        return cls(io.BytesIO(data), len(data), md5)

    def pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece


def put(requests: Requests, location: str, data: bytes) -> None:
    """Store a whole object, in place of one that is there.

    Raises:
        DestinationError: it cannot be stored.
    """
    content = _Content.of(data)
    requests.ask("write", location, lambda client: _insert(client, location, content, {}, {}))


def put_new(requests: Requests, location: str, data: bytes) -> bool:
    """Store a whole object; false, and nothing is changed, when there is one that is not this one.

    Raises:
        DestinationError: it cannot be stored.
    """
    return _put_new(requests, location, _Content.of(data), uuid.uuid4().hex)


def delete(requests: Requests, location: str) -> None:
    """Remove an object; one that is not there is removed already.

    Raises:
        DestinationError: it does not go.
    """
    place = Place.of(location)

    def deleted(client: Client) -> None:
        try:
            client.ask("DELETE", object_path(place))
        except RefusalError as error:
            if not is_missing(error):
                raise
            check_bucket(client, place)

    requests.ask("delete", location, deleted)


def check_bucket(client: Client, place: Place) -> None:
    """Fail when it is the whole bucket that is not there; who looks must not take it for empty.

    Raises:
        RefusalError: there is no such bucket.
    """
    client.ask("GET", bucket_path(place), query={"maxResults": "1", "fields": "items(name)"})


def _put_new(requests: Requests, location: str, content: _Content, writer: str) -> bool:
    def put_once(client: Client) -> bool:
        try:
            _insert(client, location, content, {"ifGenerationMatch": "0"}, {_WRITER: writer})
        except RefusalError as error:
            if not is_taken(error):
                raise
            return False
        return True

    return requests.ask("write", location, put_once) or _writer_of(requests, location) == writer


def _insert(
    client: Client, location: str, content: _Content, query: dict[str, str], marks: dict[str, str]
) -> None:
    """Send an object as a document of two parts: what is to be known of it, and its bytes."""
    place, boundary = Place.of(location), uuid.uuid4().hex
    known = json.dumps({"name": place.key, "md5Hash": content.md5, "metadata": marks})
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{known}\r\n"
        f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    ).encode()
    tail = f"\r\n--{boundary}--\r\n".encode()

    def body() -> Iterator[bytes]:
        yield head
        yield from content.pieces()
        yield tail

    client.ask(
        "POST",
        f"/upload{bucket_path(place)}",
        query={"uploadType": "multipart", "fields": "generation", **query},
        headers={
            "Content-Type": f"multipart/related; boundary={boundary}",
            "Content-Length": str(len(head) + content.size + len(tail)),
        },
        body=body(),
    )


def _writer_of(requests: Requests, location: str) -> str | None:
    """Return the mark of the writer of an object, None where there is no object, '' without one."""
    place = Place.of(location)

    def found(client: Client) -> str | None:
        try:
            known = client.ask("GET", object_path(place), query={"fields": "metadata"})
        except RefusalError as error:
            if is_missing(error):
                return None
            raise
        return str(known.get("metadata", {}).get(_WRITER, ""))

    return requests.ask("read", location, found)


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()

"""Writes one object by one request: the bytes wait in a file of this host until they are all there.

The store compares them with their MD5 before it shows the object, and stores it only if there is
none of its name. The answer may be lost, so that what looks like somebody else's object may be this
one; the object carries a mark of its writer, and that decides.

Not by an upload of several requests: what one that broke off leaves would have to be found, and
removed, by somebody else.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import uuid
from dataclasses import replace
from threading import Event
from typing import Final

from catalog.storages.over_http.failures import RefusalError
from catalog.storages.over_http.objects import Content, ObjectClient
from catalog.storages.over_http.requests import Requests
from catalog.storages.places import Place
from tableformat.errors import DestinationError

__all__ = ["ObjectSink", "delete", "put", "put_new"]

_IN_MEMORY: Final = 8 * 1024 * 1024
_LOGGER: Final = logging.getLogger(__name__)


class ObjectSink:
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
        content = Content(self._waiting, self._size, self._digest.digest())
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


def put(requests: Requests, location: str, data: bytes) -> None:
    """Store a whole object, in place of one that is there.

    Raises:
        DestinationError: it cannot be stored.
    """
    place, content = Place.of(location), Content.of(data)
    requests.ask("write", location, lambda client: client.insert(place, content))


def put_new(requests: Requests, location: str, data: bytes) -> bool:
    """Store a whole object; false, and nothing is changed, when there is one that is not this one.

    Raises:
        DestinationError: it cannot be stored.
    """
    return _put_new(requests, location, Content.of(data), uuid.uuid4().hex)


def delete(requests: Requests, location: str) -> None:
    """Remove an object; one that is not there is removed already.

    Raises:
        DestinationError: it does not go.
    """
    place = Place.of(location)

    def deleted(client: ObjectClient) -> None:
        try:
            client.remove(place)
        except RefusalError as error:
            if not error.is_missing:
                raise
            client.check_root(place)

    requests.ask("delete", location, deleted)


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

    return requests.ask("write", location, put_once) or _writer_of(requests, location) == writer


def _writer_of(requests: Requests, location: str) -> str | None:
    """Return the mark of the writer of an object, None where there is no object, '' without one."""
    place = Place.of(location)

    def found(client: ObjectClient) -> str | None:
        try:
            return client.writer(place)
        except RefusalError as error:
            if error.is_missing:
                return None
            raise

    return requests.ask("read", location, found)

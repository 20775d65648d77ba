"""What a store does with objects that are whole at once: the contract, and the bytes of one."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import IO, Final, Protocol, Self

from catalog.storages.places import Place
from tableformat.storage import StoredObject

__all__ = ["Content", "ObjectClient"]

_PIECE: Final = 256 * 1024


class Content:
    """The bytes of an object, which can be sent more than once; `md5` is in base64."""

    def __init__(self, file: IO[bytes], size: int, md5: bytes) -> None:
        """Take a file that can be read from its beginning, its bytes and their digest."""
        self._file, self.size, self.md5 = file, size, base64.b64encode(md5).decode()

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Make it of bytes."""
        return cls(io.BytesIO(data), len(data), hashlib.md5(data, usedforsecurity=False).digest())

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes, from the beginning."""
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece


class ObjectClient(Protocol):
    """Speaks to a store; each is one request, and raises what a request raises (`failures.py`)."""

    def insert(self, place: Place, content: Content) -> None:
        """Store an object, in place of one that is there."""
        ...

    def insert_new(self, place: Place, content: Content, writer: str) -> None:
        """Store an object with the mark of its writer.

        Raises:
            RefusalError: `is_taken` when there is one.
        """
        ...

    def writer(self, place: Place) -> str:
        """Return the mark of an object's writer, '' without one."""
        ...

    def size(self, place: Place) -> int:
        """Return an object's bytes."""
        ...

    def chunks(self, place: Place) -> AbstractContextManager[Iterator[bytes]]:
        """Open an object's bytes; at their end they are those that were stored.

        Raises:
            ChangedError: they are others.
        """
        ...

    def below(self, place: Place) -> Iterator[StoredObject]:
        """Yield the objects below a directory, by as many requests as it takes."""
        ...

    def remove(self, place: Place) -> None:
        """Remove an object."""
        ...

    def check_root(self, place: Place) -> None:
        """Fail when it is the whole bucket that is not there; it must not be taken for empty."""
        ...

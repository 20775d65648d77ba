"""Defines the contract of storages: files and objects by location, which are created atomically.

`catalog/storages/schemes.py` opens a storage by the scheme of a location.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tableformat.parquet.writer import FileSink

__all__ = ["Storage", "StoredObject"]


@dataclass(frozen=True, slots=True, order=True)
class StoredObject:
    """A finished object: its location and its size in bytes."""

    location: str
    size: int


class Storage(Protocol):
    """Objects by location, each complete or absent; every failure is a DestinationError.

    Reading an absent object raises MissingError, and no other failure does. A caller that continues
    without an object must not mistake an outage for its absence. A storage that allows no list or
    deletion raises DeniedError, and so may a read of an absent object where no list is allowed.
    """

    def create(self, location: str) -> FileSink:
        """Begin a new object; it appears when the sink is committed."""
        ...

    def put(self, location: str, data: bytes) -> None:
        """Write a complete small object; an existing one is replaced."""
        ...

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a complete small object; if one exists, change nothing and return false."""
        ...

    def read(self, location: str) -> bytes:
        """Return the bytes of an object."""
        ...

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished objects below a directory, at any depth, in order."""
        ...

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the unfinished objects below a directory, of running or interrupted writers."""
        ...

    def delete(self, location: str) -> None:
        """Remove an object; an absent one counts as removed."""
        ...

    def size(self, location: str) -> int:
        """Return the size of an object in bytes."""
        ...

    def sha256(self, location: str) -> str:
        """Return the SHA-256 of an object's bytes, in hex."""
        ...

    def fetch(self, location: str, into: Path) -> Path:
        """Return a local file with an object's bytes: its own file, or a copy in a directory."""
        ...

    def copy(self, source: Storage, location: str, to: str) -> bool:
        """Copy an object of another storage on the server side; no bytes pass through this process.

        Return false, with nothing done, if that is impossible: the storages are of two kinds or
        servers, use two identities, or can only copy bytes. The new object is equal, and complete
        or absent. It does not depend on the other one. If the target exists, that is an error.
        """
        ...

    def free_bytes(self, location: str) -> int | None:
        """Return the free bytes at a location, None if there is no limit."""
        ...

"""Contract: files and objects behind locations, created whole or not at all, listed, deleted.

`catalog/storages/schemes.py` opens one by the scheme of a location.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tableformat.parquet.writer import FileSink

__all__ = ["Storage", "StoredObject"]


@dataclass(frozen=True, slots=True, order=True)
class StoredObject:
    """A finished object: where it is and how many bytes it has."""

    location: str
    size: int


class Storage(Protocol):
    """Objects by location, each whole or absent; every failure is a DestinationError.

    Reading what is not there is a MissingError, and nothing else is one: whoever goes on without an
    object must not take an outage for its absence.
    """

    def create(self, location: str) -> FileSink:
        """Begin a new object; it appears when the sink is committed."""
        ...

    def put(self, location: str, data: bytes) -> None:
        """Write a whole small object, in place of one that is there."""
        ...

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a whole small object; false, and nothing is changed, when there is one already."""
        ...

    def read(self, location: str) -> bytes:
        """Return a whole object."""
        ...

    def list(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return the finished objects below a directory, at any depth, in order."""
        ...

    def list_unfinished(self, prefix: str) -> tuple[StoredObject, ...]:
        """Return what begun objects below a directory have left; of the living, or of the dead."""
        ...

    def delete(self, location: str) -> None:
        """Remove an object; one that is not there is removed already."""
        ...

    def size(self, location: str) -> int:
        """Return an object's bytes."""
        ...

    def sha256(self, location: str) -> str:
        """Return the digest of an object's bytes, in hex."""
        ...

    def fetch(self, location: str, into: Path) -> Path:
        """Return a file of this host with an object's bytes: its own, or a copy in a directory."""
        ...

    def copy(self, source: Storage, location: str, to: str) -> bool:
        """Let a new object be made of one of a storage, without its bytes passing through here.

        False, and nothing is done, where that cannot be: the storages are of two kinds or servers,
        are asked in two names, or can only copy bytes. The new object is equal, whole or absent,
        and lives on when the other one is deleted; never in the place of another: that is an error.
        """
        ...

    def free_bytes(self, location: str) -> int | None:
        """Return the space left at a location, None where there is no bound."""
        ...

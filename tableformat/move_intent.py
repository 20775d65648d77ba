"""What the claim of a MOVE says, so that whoever finds it can finish it (decision 0013)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["MoveIntent", "digest_of_paths"]


@dataclass(frozen=True, slots=True)
class MoveIntent:
    """Where the rows of a key go, and which files leave main when they are there.

    `key` is the hash of the key there, `transaction_id` what brings the rows, `table` the name of
    the lake table, `files` a digest of the paths of the files here.
    """

    key: str
    transaction_id: str
    table: str
    files: str


def digest_of_paths(paths: Iterable[str]) -> str:
    """Return the SHA-256 of paths, in whatever order they come."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.encode() + b"\0")
    return digest.hexdigest()

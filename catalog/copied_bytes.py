"""Makes copies of data files: by the storage that has them, where it can, else by their bytes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.storages.opening import Storages
from tableformat.branches import BranchFile
from tableformat.errors import DestinationError
from tableformat.iceberg.copies import Copy
from tableformat.storage import Storage

__all__ = ["CopiedBytes"]

_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class CopiedBytes:
    """Copies files from some storages to others; `hashes` has the SHA-256 of those it has.

    What a storage copies by itself keeps the SHA-256 that was written down of the file; where none
    was, the copy is read for it.
    """

    source: Storages
    to: Storages
    hashes: Mapping[str, str]
    scratch: Path

    def copy(self, file: BranchFile, path: str, attempt: str) -> Copy:
        """Copy a file under a name that nothing has.

        Raises:
            DestinationError: a storage failed, or the copy has another size.
        """
        began, source, to = time.monotonic(), self.source(file.path), self.to(path)
        if to.copy(source, file.path, path):
            sha256, written = self.hashes.get(file.path) or to.sha256(path), to.size(path)
        else:
            sha256, written = self._through_here(file, path, source, to)
        if written != file.bytes:
            message = (
                f"Cannot copy {file.path}: {written:,} bytes of {file.bytes:,} arrived. Run the "
                "statement again."
            )
            raise DestinationError(message)
        return Copy(path, attempt, sha256, time.monotonic() - began)

    def _through_here(
        self, file: BranchFile, path: str, source: Storage, to: Storage
    ) -> tuple[str, int]:
        local = source.fetch(file.path, self.scratch)
        try:
            return _written(local, path, to)
        finally:
            if local.is_relative_to(self.scratch):
                local.unlink()


def _written(local: Path, path: str, to: Storage) -> tuple[str, int]:
    """Write a file under its name; return its SHA-256 and its bytes."""
    digest, written, sink = hashlib.sha256(), 0, to.create(path)
    try:
        with local.open("rb") as read:
            while block := read.read(_BLOCK):
                digest.update(block)
                written += len(block)
                sink.write(block)
        sink.commit()
    except BaseException:
        sink.abort()
        raise
    return digest.hexdigest(), written

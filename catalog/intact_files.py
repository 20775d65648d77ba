"""Whether data files that come back to a table are as they were written.

By size, footer and number of rows, as the table's metadata has them; and byte for byte where the
receipts of the export that wrote them are there. Iceberg's metadata does not refer to receipts, so
that the removal of orphans takes them away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.file_hashes import written_hashes
from catalog.scratch import ScratchDirectory
from tableformat.branches import BranchFile
from tableformat.errors import MissingError, RefusedError
from tableformat.file_names import exported_by
from tableformat.storage import Storage

__all__ = ["refuse_changed_files"]


def refuse_changed_files(
    storages: Callable[[str], Storage],
    table_location: str,
    note: Callable[[str], None],
    files: tuple[BranchFile, ...],
) -> None:
    """Refuse files unless all of them are as they were written.

    Args:
        storages: open what a location belongs to.
        table_location: of the lake table, below which the receipts are.
        note: hears how many files of exports have no receipt any more.
        files: as the table's metadata has them.

    Raises:
        RefusedError: one of them is gone, cut off or another one; it is named.
        DestinationError: the storage failed.
        LedgerError: a receipt is damaged.
    """
    exports = {named for f in files if (named := exported_by(f.path)) is not None}
    hashes: dict[str, str] = {}
    for key, transaction_id in sorted(exports):
        hashes |= written_hashes(storages, table_location, key, transaction_id)
    with ScratchDirectory("attach") as scratch:
        for file in files:
            if why := _difference(storages(file.path), file, hashes.get(file.path), scratch.path):
                raise _refused(file.path, why)
    without = sum(exported_by(f.path) is not None and f.path not in hashes for f in files)
    if without:
        note(
            f"{without:,} file(s) were compared by size, footer and rows alone: their receipts are "
            "gone, as after a removal of orphans"
        )


def _refused(path: str, why: str) -> RefusedError:
    message = (
        f"Cannot attach {path}: {why}. Restore it from a copy, or export its partition again. "
        "Nothing was attached."
    )
    return RefusedError(message)


def _difference(storage: Storage, file: BranchFile, sha256: str | None, scratch: Path) -> str:
    """Say how a file differs from what the table's metadata has of it, '' for not at all."""
    try:
        size = storage.size(file.path)
    except MissingError:
        return "it is gone"
    if size != file.bytes:
        return f"it has {size:,} bytes, and {file.bytes:,} were written"
    local = storage.fetch(file.path, scratch)
    try:
        if sha256 is not None and _sha256(local) != sha256:
            return "its bytes are not those that the export wrote"
        rows = _rows(local)
    except (pa.ArrowException, OSError) as error:
        return f"it is no readable Parquet file any more ({error})"
    finally:
        if local.is_relative_to(scratch):
            local.unlink()
    return "" if rows == file.rows else f"it has {rows:,} rows, and {file.rows:,} were written"


def _rows(path: Path) -> int:
    with pq.ParquetFile(path) as read:
        return int(read.metadata.num_rows)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

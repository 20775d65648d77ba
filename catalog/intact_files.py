"""Whether data files that come back to a table are as they were written.

By size, footer and number of rows, as the table's metadata has them; and byte for byte where an
export of ours wrote them, by its receipts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.file_hashes import changed_files
from catalog.scratch import ScratchDirectory
from tableformat.branches import BranchFile
from tableformat.errors import MissingError, RefusedError
from tableformat.file_names import exported_by
from tableformat.storage import Storage

__all__ = ["refuse_changed_files"]


def refuse_changed_files(
    storages: Callable[[str], Storage], table_location: str, files: tuple[BranchFile, ...]
) -> None:
    """Refuse files unless all of them are as they were written.

    Args:
        storages: open what a location belongs to.
        table_location: of the lake table, below which the receipts are.
        files: as the table's metadata has them.

    Raises:
        RefusedError: one of them is gone, cut off or another one; it is named.
        DestinationError: the storage failed, or a file of an export has no receipt.
    """
    with ScratchDirectory("attach") as scratch:
        for file in files:
            if why := _difference(storages(file.path), file, scratch.path):
                raise _refused(file.path, why)
    exported: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for file in files:
        named = exported_by(file.path)
        if named is not None:
            exported[named].append(file.path)
    for (key, transaction_id), paths in exported.items():
        changed = changed_files(storages, table_location, key, transaction_id, paths)
        if changed:
            raise _refused(changed[0], "its bytes are not those that the export wrote")


def _refused(path: str, why: str) -> RefusedError:
    message = (
        f"Cannot attach {path}: {why}. Restore it from a copy, or export its partition again. "
        "Nothing was attached."
    )
    return RefusedError(message)


def _difference(storage: Storage, file: BranchFile, scratch: Path) -> str:
    """Say how a file differs from what the table's metadata has of it, '' for not at all."""
    try:
        size = storage.size(file.path)
    except MissingError:
        return "it is gone"
    if size != file.bytes:
        return f"it has {size:,} bytes, and {file.bytes:,} were written"
    local = storage.fetch(file.path, scratch)
    try:
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

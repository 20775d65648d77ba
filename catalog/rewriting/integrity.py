"""Checks whether data files that return to a table are unchanged since they were written.

- `refuse_changed_files` compares size, footer and number of rows with the table's metadata, and
  the SHA-256 with the receipts of the export where receipts exist.
- `refuse_changed_sizes` is the fast form: it compares sizes alone and opens no file.
- `changed_files` compares every byte with the hashes of an export's receipts. It says nothing
  about the source; it remains when the source changed and no digest was kept.

Iceberg metadata does not refer to receipts, so a removal of orphan files deletes them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.processes import ScratchDirectory
from tableformat.committer import BranchFile
from tableformat.errors import DestinationError, MissingError, RefusedError
from tableformat.file_names import RECEIPTS, exported_by
from tableformat.quantities import counted
from tableformat.receipt import Receipt
from tableformat.storage import Storage

__all__ = [
    "Checks",
    "changed_files",
    "checks",
    "hashes_of",
    "refuse_changed_files",
    "refuse_changed_sizes",
    "refuse_other_bytes",
    "written_hashes",
]


def changed_files(
    storages: Callable[[str], Storage],
    table_location: str,
    key: str,
    transaction_id: str,
    locations: Iterable[str],
) -> tuple[str, ...]:
    """Return the files whose bytes are not those of their receipt.

    Args:
        storages: open what a location belongs to.
        table_location: of the lake table.
        key: the hash of the ledger key.
        transaction_id: of the export that wrote the files.
        locations: of the files.

    Raises:
        UnsupportedError: the storage of a file is not served.
        DestinationError: a file or a receipt cannot be read, or a file has no receipt.
        LedgerError: a receipt is damaged.
    """
    hashes = written_hashes(storages, table_location, key, transaction_id)
    changed = []
    for location in locations:
        if location not in hashes:
            below = _receipts(table_location, key, transaction_id)
            message = (
                f"Cannot check {location}: there is no receipt of it below {below}. Restore the "
                "table's metadata directory, or export the partition again."
            )
            raise DestinationError(message)
        if _sha256_of_file(storages(location), location) != hashes[location]:
            changed.append(location)
    return tuple(changed)


def written_hashes(
    storages: Callable[[str], Storage], table_location: str, key: str, transaction_id: str
) -> dict[str, str]:
    """Return the SHA-256 of the files that an export wrote, by location, where there are receipts.

    Raises:
        DestinationError: a receipt cannot be read.
        LedgerError: a receipt is damaged.
    """
    below = _receipts(table_location, key, transaction_id)
    storage = storages(below)
    receipts = (
        Receipt.from_json(storage.read(stored.location).decode())
        for stored in storage.list(below)
        if stored.location.rpartition("/")[2][:1].isdecimal()
    )
    return {receipt.file_path: receipt.sha256 for receipt in receipts}


def hashes_of(
    storages: Callable[[str], Storage], table_location: str, locations: Iterable[str]
) -> dict[str, str]:
    """Return the SHA-256 of all files of the exports that wrote some, where there are receipts.

    Raises:
        DestinationError: a receipt cannot be read.
        LedgerError: a receipt is damaged.
    """
    exports = {named for one in locations if (named := exported_by(one)) is not None}
    found: dict[str, str] = {}
    for key, transaction_id in sorted(exports):
        found |= written_hashes(storages, table_location, key, transaction_id)
    return found


def _receipts(table_location: str, key: str, transaction_id: str) -> str:
    return f"{table_location.rstrip('/')}/{RECEIPTS}/{key}/{transaction_id}"


def _sha256_of_file(storage: Storage, location: str) -> str:
    try:
        return storage.sha256(location)
    except DestinationError as error:
        message = f"{error.message} Restore it from a copy, or export its partition again."
        raise DestinationError(message) from error


Checks: TypeAlias = Callable[
    [Callable[[str], Storage], str, Callable[[str], None], tuple[BranchFile, ...]], None
]
"""Refuses files of a table, whose location is the second, that are not as they were written."""

_OTHER_BYTES: Final = "its bytes are not those that the export wrote"
_TOLD: Final = 10
_PAGE: Final = 1_000
"""So many objects a store lists in one request: from there on listing is less than asking each."""


def checks(*, fast: bool) -> Checks:
    """Return what refuses files that are not as they were written, `fast` by their sizes alone."""
    return refuse_changed_sizes if fast else refuse_changed_files


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
        RefusedError: some of them are gone, cut off or others; they are named.
        DestinationError: the storage failed.
        LedgerError: a receipt is damaged.
    """
    hashes = hashes_of(storages, table_location, (file.path for file in files))
    with ScratchDirectory("attach") as scratch:
        differ = {
            file.path: _difference(storages(file.path), file, hashes.get(file.path), scratch.path)
            for file in files
        }
    _refuse(differ)
    without = sum(exported_by(f.path) is not None and f.path not in hashes for f in files)
    if without:
        note(
            f"{counted(without, 'file')} compared by size, footer and rows alone: their receipts "
            "are "
            "gone, as after a removal of orphans"
        )


def refuse_changed_sizes(
    storages: Callable[[str], Storage],
    table_location: str,  # noqa: ARG001  no receipt is read
    note: Callable[[str], None],  # noqa: ARG001
    files: tuple[BranchFile, ...],
) -> None:
    """Refuse files unless all are there and have the size of what was written; open none.

    Raises:
        RefusedError: some of them are gone, or have another size; they are named.
        DestinationError: the storage failed.
    """
    below: defaultdict[str, list[BranchFile]] = defaultdict(list)
    for file in files:
        below[file.path.rpartition("/")[0]].append(file)
    differ: dict[str, str] = {}
    for directory, inside in below.items():
        listed: dict[str, int] | None = None
        if len(inside) >= _PAGE:
            found = storages(directory).list(directory)
            listed = {one.location: one.size for one in found}
        for file in inside:
            differ[file.path] = _other_size(file, _size(storages(file.path), file, listed))
    _refuse(differ)


def refuse_other_bytes(
    files: tuple[BranchFile, ...], written: Mapping[str, str], copied: Mapping[str, str]
) -> None:
    """Refuse files of which other bytes were copied than were written, by their SHA-256.

    Where only sizes were looked at before, a copy would otherwise be taken for what was written.

    Raises:
        RefusedError: one is not as it was written; it is named.
    """
    given = {path: written.get(path, sha256) for path, sha256 in copied.items()}
    _refuse({f.path: _OTHER_BYTES for f in files if copied[f.path] != given[f.path]})


def _size(storage: Storage, file: BranchFile, listed: dict[str, int] | None) -> int | None:
    """Return the bytes of a file, None when it is gone."""
    if listed is not None:
        return listed.get(file.path)
    try:
        return storage.size(file.path)
    except MissingError:
        return None


def _other_size(file: BranchFile, size: int | None) -> str:
    if size is None:
        return "it is gone"
    return "" if size == file.bytes else f"it has {size:,} bytes, and {file.bytes:,} were written"


def _refuse(differ: Mapping[str, str]) -> None:
    """Refuse files of which it is said how they differ, '' for not at all.

    Raises:
        RefusedError: one differs; all that do are named, or of very many the first.
    """
    told = [f"{path}: {why}" for path, why in differ.items() if why]
    if not told:
        return
    rest = f"; and {len(told) - _TOLD:,} more" if len(told) > _TOLD else ""
    count = f"{len(told):,} of {len(differ):,} files: " if len(told) > 1 else ""
    message = (
        f"Cannot use {count}{'; '.join(told[:_TOLD])}{rest}. Restore what is damaged from a "
        "copy, or export its partition again. Nothing was changed."
    )
    raise RefusedError(message)


def _difference(storage: Storage, file: BranchFile, sha256: str | None, scratch: Path) -> str:
    """Say how a file differs from what the table's metadata has of it, '' for not at all."""
    if why := _other_size(file, _size(storage, file, None)):
        return why
    local = storage.fetch(file.path, scratch)
    try:
        if sha256 is not None and _sha256(local) != sha256:
            return _OTHER_BYTES
        rows = _rows(local)
    except PermissionError as error:
        message = (
            f"Cannot read {file.path}: {error.strerror}. Let the user of this command read it, and "
            "run the statement again. Nothing was changed."
        )
        raise DestinationError(message) from error
    except (pa.ArrowException, OSError) as error:
        return f"it is no readable Parquet file any more ({error})"
    finally:
        if local.is_relative_to(scratch):
            local.unlink()
    return (
        ""
        if rows == file.rows
        else f"it has {counted(rows, 'row')}, and {file.rows:,} were written"
    )


def _rows(path: Path) -> int:
    with pq.ParquetFile(path) as read:
        return int(read.metadata.num_rows)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

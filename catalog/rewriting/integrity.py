"""Checks whether data files that return to a table are unchanged since they were written.

- `refuse_changed_files` compares size, footer and number of rows with the table's metadata, and
  the SHA-256 with the receipts of the export where receipts exist. Only plain Parquet files have a
  footer that is read here; of ORC, Avro and encrypted files the size is compared.
- `refuse_changed_sizes` is the fast form: it compares sizes alone and opens no file.
- `refuse_unreadable` refuses files whose columns the schema of the table cannot read. `intact` does
  both for files that return to a table.
- `changed_files` compares every byte with the hashes of an export's receipts. It says nothing
  about the source; it remains when the source changed and no digest was kept.

Iceberg metadata does not refer to receipts, so a removal of orphan files deletes them.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from catalog.processes import ScratchDirectory
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import DeniedError, DestinationError, MissingError, RefusedError
from tableformat.file_names import RECEIPTS, exported_by, table_locations
from tableformat.iceberg.schema_evolution import are_all_schemas, unreadable
from tableformat.iceberg.snapshot import table_of
from tableformat.quantities import counted
from tableformat.receipt import Receipt
from tableformat.storage import Storage

__all__ = [
    "Checks",
    "changed_files",
    "checks",
    "hashes_of",
    "intact",
    "refuse_changed_files",
    "refuse_changed_sizes",
    "refuse_other_bytes",
    "refuse_unreadable",
    "written_hashes",
]


def changed_files(
    storages: Callable[[str], Storage],
    table_location: str,
    key: str,
    transaction_id: str,
    locations: Iterable[str],
) -> tuple[str, ...]:
    """Return the files whose bytes do not match their receipts.

    Args:
        storages: open a location's storage.
        table_location: the location of the lake table.
        key: the hash of the ledger key.
        transaction_id: the export that wrote the files.
        locations: the locations of the files.

    Raises:
        UnsupportedError: the storage of a file is not supported.
        DestinationError: a file or a receipt cannot be read, or a file has no receipt.
        LedgerError: a receipt is damaged.
    """
    files = tuple(locations)
    places = table_locations(table_location, files)
    hashes: dict[str, str] = {}
    for place in places:
        hashes |= written_hashes(storages, place, key, transaction_id)
    changed = []
    for location in files:
        if location not in hashes:
            below = " or ".join(_receipts(place, key, transaction_id) for place in places)
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
    """Return the SHA-256 of an export's files by location, from its remaining receipts.

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
    """Return the SHA-256, as far as receipts are found, of all files of the exports of some files.

    Receipts are also looked for where the files are, if the owner has moved the table's location.
    If the storage allows no list, none is found.

    Raises:
        DestinationError: a receipt cannot be read.
        LedgerError: a receipt is damaged.
    """
    exports: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for one in locations:
        if (named := exported_by(one)) is not None:
            exports[named].append(one)
    found: dict[str, str] = {}
    for (key, transaction_id), files in sorted(exports.items()):
        for place in table_locations(table_location, files):
            if all(one in found for one in files):
                break
            with contextlib.suppress(DeniedError):
                found |= written_hashes(storages, place, key, transaction_id)
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
"""Refuses changed files of a table; the second argument is the table's location."""

_OTHER_BYTES: Final = "its bytes are not those that the export wrote"
_MOST_NAMED: Final = 10
_PAGE: Final = 1_000
"""The number of objects in one response to a list request; for more files, a list is cheaper."""


def checks(*, fast: bool) -> Checks:
    """Return the function that refuses changed files; `fast` compares only their sizes."""
    return refuse_changed_sizes if fast else refuse_changed_files


def refuse_changed_files(
    storages: Callable[[str], Storage],
    table_location: str,
    note: Callable[[str], None],
    files: tuple[BranchFile, ...],
) -> None:
    """Refuse files if any of them has changed since it was written.

    Args:
        storages: open a location's storage.
        table_location: the location of the lake table, below which the receipts are.
        note: receives the number of files whose receipts no longer exist.
        files: the files as in the table's metadata.

    Raises:
        RefusedError: files are missing, truncated or different; the message names them.
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
            f"{counted(without, 'file')} compared by size, footer and rows alone: no receipts of "
            "them were found, as after a removal of orphans"
        )


def refuse_changed_sizes(
    storages: Callable[[str], Storage],
    table_location: str,  # noqa: ARG001  no receipt is read
    note: Callable[[str], None],  # noqa: ARG001
    files: tuple[BranchFile, ...],
) -> None:
    """Refuse files if any is missing or has another size than was written; opens none.

    Raises:
        RefusedError: files are missing or have another size; the message names them.
        DestinationError: the storage failed.
    """
    below: defaultdict[str, list[BranchFile]] = defaultdict(list)
    for file in files:
        below[file.path.rpartition("/")[0]].append(file)
    differ: dict[str, str] = {}
    for directory, inside in below.items():
        listed: dict[str, int] | None = None
        if len(inside) >= _PAGE:
            with contextlib.suppress(DeniedError):
                found = storages(directory).list(directory)
                listed = {one.location: one.size for one in found}
        for file in inside:
            differ[file.path] = _other_size(file, _size(storages(file.path), file, listed))
    _refuse(differ)


def intact(
    check: Checks,
    storages: Callable[[str], Storage],
    load: Callable[[], LakeTableState],
    note: Callable[[str], None],
) -> Callable[[tuple[BranchFile, ...]], None]:
    """Return the function that refuses files that may not return to a table.

    Args:
        check: refuses changed files.
        storages: open a location's storage.
        load: loads the table.
        note: as in `Checks`.
    """

    def refuse(files: tuple[BranchFile, ...]) -> None:
        state = load()
        check(storages, state.location, note, files)
        refuse_unreadable(storages, state, table_of(state).schema(), files)

    return refuse


def refuse_unreadable(
    storages: Callable[[str], Storage],
    source: LakeTableState,
    schema: Schema,
    files: tuple[BranchFile, ...],
) -> None:
    """Refuse files if readers cannot read them by a schema, because their columns differ.

    The files are only opened if a schema that the table had, or may have had, does not fit.

    Args:
        storages: open a location's storage.
        source: the table that has the files, or had them.
        schema: the schema by which they will be read.
        files: the files.

    Raises:
        RefusedError: files cannot be read; the message names them.
        DestinationError: a file cannot be read.
    """
    table = table_of(source)
    known = table.metadata.schemas
    fits = not any(unreadable(schema, one) for one in known)
    if fits and are_all_schemas(known, table.metadata.last_column_id):
        return
    with ScratchDirectory("columns") as scratch:
        found = {
            file.path: unreadable(schema, _columns_of(storages, file, table, scratch.path))
            for file in files
        }
    named = [f"{path}: {why}" for path, why in found.items() if why]
    if named:
        rest = f"; and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
        message = (
            f"Cannot use {'; '.join(named[:_MOST_NAMED])}{rest}. The columns of the table were "
            "replaced since. Read the rows from a snapshot of that time, and insert what the "
            "table should have. Nothing was changed."
        )
        raise RefusedError(message)


def _columns_of(
    storages: Callable[[str], Storage], file: BranchFile, table: Table, scratch: Path
) -> Schema:
    """Return the columns of a file, with their ids.

    Raises:
        DestinationError: the file cannot be read, or has a column without an id.
    """
    path = file.path
    if file.other_form:
        message = (
            f"Cannot read the columns of {path}: it is {file.other_form}, and only plain Parquet "
            "files are read. The columns of the table were changed since, so that it may not fit "
            "them. Read the rows from the snapshot that has the file, by the engine that wrote "
            "it, and insert them. Nothing was changed."
        )
        raise DestinationError(message)
    local = storages(path).fetch(path, scratch)
    try:
        with pq.ParquetFile(local) as read:
            return pyarrow_to_schema(read.schema_arrow, table.name_mapping())
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        message = (
            f"Cannot read the columns of {path}: {error}. Rewrite it with an Iceberg writer. "
            "Nothing was changed."
        )
        raise DestinationError(message) from error
    finally:
        if local.is_relative_to(scratch):
            local.unlink()


def refuse_other_bytes(
    files: tuple[BranchFile, ...], written: Mapping[str, str], copied: Mapping[str, str]
) -> None:
    """Refuse files whose copies have another SHA-256 than their receipts.

    After a check of sizes alone, a copy could otherwise pass for the written file.

    Raises:
        RefusedError: a file has changed; the message names it.
    """
    given = {path: written.get(path, sha256) for path, sha256 in copied.items()}
    _refuse({f.path: _OTHER_BYTES for f in files if copied[f.path] != given[f.path]})


def _size(storage: Storage, file: BranchFile, listed: dict[str, int] | None) -> int | None:
    """Return the size of a file in bytes, None if it does not exist."""
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
    """Refuse files by their differences, '' for none.

    Raises:
        RefusedError: files differ; the message names them, or the first of very many.
    """
    named = [f"{path}: {why}" for path, why in differ.items() if why]
    if not named:
        return
    rest = f"; and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
    count = f"{len(named):,} of {len(differ):,} files: " if len(named) > 1 else ""
    message = (
        f"Cannot use {count}{'; '.join(named[:_MOST_NAMED])}{rest}. Restore what is damaged from a "
        "copy, or export its partition again. Nothing was changed."
    )
    raise RefusedError(message)


def _difference(storage: Storage, file: BranchFile, sha256: str | None, scratch: Path) -> str:
    """Return how a file differs from the table's metadata, '' if it does not."""
    if why := _other_size(file, _size(storage, file, None)):
        return why
    if file.other_form and sha256 is None:
        return ""
    local = storage.fetch(file.path, scratch)
    try:
        if sha256 is not None and _sha256(local) != sha256:
            return _OTHER_BYTES
        rows = file.rows if file.other_form else _rows(local)
    except PermissionError as error:
        message = (
            f"Cannot read {file.path}: {error.strerror}. Let the user of this command read it, and "
            "run it again. Nothing was changed."
        )
        raise DestinationError(message) from error
    except (pa.ArrowException, OSError) as error:
        return f"it is no longer a readable Parquet file ({error})"
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

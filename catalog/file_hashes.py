"""Whether data files are, byte for byte, those that an export wrote: by the hashes of its receipts.

It says nothing about the source; it is what is left to say when the source went on and no digest
was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tableformat.errors import DestinationError
from tableformat.file_names import RECEIPTS, exported_by
from tableformat.receipt import Receipt
from tableformat.storage import Storage

__all__ = ["changed_files", "hashes_of", "written_hashes"]


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
        if _sha256(storages(location), location) != hashes[location]:
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


def _sha256(storage: Storage, location: str) -> str:
    try:
        return storage.sha256(location)
    except DestinationError as error:
        message = f"{error.message} Restore it from a copy, or export its partition again."
        raise DestinationError(message) from error

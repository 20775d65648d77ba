"""Whether data files are, byte for byte, those that an export wrote: by the hashes of its receipts.

It says nothing about the source; it is what is left to say when the source went on and no digest
was kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from catalog.storage import local_path, open_storage
from tableformat.errors import DestinationError
from tableformat.file_names import RECEIPTS
from tableformat.receipt import Receipt

__all__ = ["changed_files"]


def changed_files(
    table_location: str, key: str, transaction_id: str, locations: Iterable[str]
) -> tuple[str, ...]:
    """Return the files whose bytes are not those of their receipt.

    Args:
        table_location: of the lake table.
        key: the hash of the ledger key.
        transaction_id: of the export that wrote the files.
        locations: of the files.

    Raises:
        UnsupportedError: a file is not on a local disk.
        DestinationError: a file or a receipt cannot be read, or a file has no receipt.
        LedgerError: a receipt is damaged.
    """
    below = f"{table_location.rstrip('/')}/{RECEIPTS}/{key}/{transaction_id}"
    storage = open_storage(below)
    receipts = (
        Receipt.from_json(storage.read(stored.location).decode())
        for stored in storage.list(below)
        if stored.location.rpartition("/")[2][:1].isdecimal()
    )
    hashes = {receipt.file_path: receipt.sha256 for receipt in receipts}
    changed = []
    for location in locations:
        if location not in hashes:
            message = (
                f"Cannot check {location}: there is no receipt of it below {below}. Restore the "
                "table's metadata directory, or export the partition again."
            )
            raise DestinationError(message)
        if _sha256(location) != hashes[location]:
            changed.append(location)
    return tuple(changed)


def _sha256(location: str) -> str:
    path = local_path(location, "check the data file")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        message = (
            f"Cannot check {location}: {error.strerror}. Restore it from a copy, or export its "
            "partition again."
        )
        raise DestinationError(message) from error

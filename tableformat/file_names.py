"""The names of data files: `<key>-<transaction>-<slice>-<attempt>.parquet` (docs/spec/files.md).

A name carries the key and the transaction, so that the files of an export are told from main
itself, also when ledger and receipts are gone; it is unique for each attempt, so that no attempt
can overwrite another one's file.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RECEIPTS", "data_file_name", "is_of_key", "is_of_transaction"]

RECEIPTS: Final = "metadata/mergeberg"
"""Where receipts and kept digests are stored, below the table's location."""


def data_file_name(key: str, transaction_id: str, slice_number: int, attempt: str) -> str:
    """Return the name of a data file; `key` is a hash, `attempt` unique for each attempt."""
    return f"{key}-{transaction_id}-{slice_number}-{attempt}.parquet"


def is_of_key(path: str, key: str) -> bool:
    """Whether a file was written by an export of a key hash."""
    return path.rsplit("/", 1)[-1].startswith(f"{key}-")


def is_of_transaction(path: str, key: str, transaction_id: str) -> bool:
    """Whether a file was written by one export of a key hash."""
    return path.rsplit("/", 1)[-1].startswith(f"{key}-{transaction_id}-")

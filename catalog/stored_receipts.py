"""What is stored of the files that a statement writes, before they can be committed."""

from __future__ import annotations

from dataclasses import replace

from catalog.storages.opening import Storages
from tableformat.export.commit_lists import store_list
from tableformat.export.destination import WrittenClaim
from tableformat.file_names import RECEIPTS
from tableformat.ledger import Row
from tableformat.receipt import Receipt

__all__ = ["list_files", "store_receipts"]


def store_receipts(
    row: Row, receipts: tuple[Receipt, ...], table_location: str, storages: Storages
) -> None:
    """Store the receipts of files that are written for a claim, and the list of them.

    Args:
        row: with the claim.
        receipts: of the files.
        table_location: of the table that gets them.
        storages: open what locations belong to.

    Raises:
        DestinationError: the storage failed.
    """
    for receipt in receipts:
        below = f"{table_location.rstrip('/')}/{RECEIPTS}/{receipt.key}"
        name = f"{receipt.transaction_id}/{receipt.slice_number}-{receipt.attempt}.json"
        storages(below).put(f"{below}/{name}", receipt.to_json().encode())
    list_files(row, receipts, table_location, storages)


def list_files(
    row: Row, receipts: tuple[Receipt, ...], table_location: str, storages: Storages
) -> None:
    """Store which files are written for a claim, where their receipts are stored already.

    Else nobody could tell, once the ledger is lost, that main has the export which copies or files
    that were written anew are; and files of a key that no list names, however few, would keep the
    whole table from getting a new one.

    Args:
        row: with the claim.
        receipts: of the files; nothing is stored where there are none.
        table_location: of the table that gets them.
        storages: open what locations belong to.

    Raises:
        DestinationError: the storage failed.
    """
    if receipts:
        claim = replace(row.claim, bytes=sum(r.file_bytes for r in receipts))
        written = WrittenClaim(replace(row, claim=claim), receipts, may_shrink=False, beside=False)
        name = row.claim.transaction_id
        store_list(storages(table_location), table_location, name, (written,))

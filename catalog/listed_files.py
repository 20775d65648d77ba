"""The list of what a statement writes into a lake table: from it a lost ledger is made anew."""

from __future__ import annotations

from dataclasses import replace

from catalog.storages.opening import Storages
from tableformat.export.commit_lists import store_list
from tableformat.export.destination import WrittenClaim
from tableformat.ledger import Row
from tableformat.receipt import Receipt

__all__ = ["list_files"]


def list_files(
    row: Row, receipts: tuple[Receipt, ...], table_location: str, storages: Storages
) -> None:
    """Store which files are written for a claim, before they can be committed.

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

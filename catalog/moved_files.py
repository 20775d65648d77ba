"""Copies data files of a lake table to other places of the same table, as a plan says.

Each has a receipt like any file that an export wrote, before it can be committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from catalog.carried_digest import TableFiles, carry_digest
from catalog.copied_bytes import CopiedBytes
from catalog.file_hashes import hashes_of
from catalog.intact_files import Checks, refuse_changed_files, refuse_other_bytes
from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Storages
from catalog.stored_receipts import store_receipts
from tableformat.committer import LakeTableState
from tableformat.disks import Disks
from tableformat.file_names import data_file_name
from tableformat.iceberg.copies import Copy, copied_receipts
from tableformat.ledger import Row
from tableformat.operations.planned import Rewrite
from tableformat.receipt import Receipt

__all__ = ["MovedFiles"]


@dataclass(frozen=True, slots=True)
class MovedFiles:
    """Copies files where they are to be; a `tableformat.operations.statement.Rewrites`.

    `note` hears of files that could not be compared byte for byte; `checks` refuses those that are
    not as they were written.
    """

    storages: Storages
    note: Callable[[str], None]
    checks: Checks = refuse_changed_files

    def __call__(
        self,
        row: Row,
        rewrites: tuple[Rewrite, ...],
        state: LakeTableState,
        look: Callable[[], None],
    ) -> tuple[Receipt, ...]:
        """Copy files for the claim of a row; return their receipts, which are stored.

        Raises:
            StoppedError: it is not needed any more, as `look`, called before each file, says.
            RefusedError: a file is not as it was written.
            DestinationError: a storage failed.
        """
        files = tuple(file for one in rewrites for file in one.files)
        self.checks(self.storages, state.location, self.note, files)
        hashes = hashes_of(self.storages, state.location, (file.path for file in files))
        disks = Disks.of(state)
        with ScratchDirectory("move") as scratch:
            by = CopiedBytes(self.storages, self.storages, hashes, scratch.path)
            copies = dict[str, Copy]()
            for number, one in enumerate(rewrites):
                look()
                copies[one.files[0].path] = _copied(row, number, one, by, disks)
        refuse_other_bytes(files, hashes, {path: copy.sha256 for path, copy in copies.items()})
        receipts = copied_receipts(state, row, copies, state)
        store_receipts(row, receipts, state.location, self.storages)
        table = TableFiles(state.location, self.storages)
        carry_digest(row, files, table, table)
        return receipts


def _copied(row: Row, number: int, one: Rewrite, by: CopiedBytes, disks: Disks) -> Copy:
    (file,) = one.files
    attempt = f"0-{uuid.uuid4().hex[:12]}"
    name = data_file_name(row.key.hash, row.claim.transaction_id, number, attempt)
    below = one.place or disks.beside(file.path)
    place = (below, disks.directory_of(file.path), name)
    return by.copy(file, "/".join(part for part in place if part), attempt)

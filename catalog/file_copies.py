"""Copies data files of one lake table as files of another: the same bytes under names of their own.

Each has a receipt like any file that an export wrote, before it can be committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from catalog.carried_digest import TableFiles, carry_digest
from catalog.copied_bytes import CopiedBytes
from catalog.file_hashes import hashes_of
from catalog.intact_files import Checks, refuse_changed_files, refuse_other_bytes
from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Storages
from catalog.stored_receipts import store_receipts
from tableformat.branches import BranchFile
from tableformat.committer import LakeTableState
from tableformat.disks import Disks
from tableformat.file_names import data_file_name
from tableformat.iceberg.copies import Copy, copied_receipts
from tableformat.iceberg.file_partition import FilePartition
from tableformat.ledger import Row
from tableformat.receipt import Receipt

__all__ = ["CopiedFiles"]


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """Copies files of the snapshot `source` into the table of `destination`.

    `checks` refuses files of `source` that are not as they were written. `partitions` says where
    they lie there, when it is divided otherwise.
    """

    source: LakeTableState
    source_storages: Storages
    destination: LakeTableState
    storages: Storages
    checks: Checks = refuse_changed_files
    partitions: Callable[[BranchFile], FilePartition] | None = None

    def __call__(self, row: Row, files: tuple[BranchFile, ...]) -> tuple[Receipt, ...]:
        """Copy files for the claim of a row; return their receipts, which are stored.

        Raises:
            RefusedError: a file is not as it was written.
            DestinationError: a storage failed.
        """
        location, storages = self.source.location, self.source_storages
        self.checks(storages, location, _unsaid, files)
        hashes = hashes_of(storages, location, (file.path for file in files))
        lie = {f.path: self.partitions(f) for f in files} if self.partitions else None
        with ScratchDirectory("copy") as scratch:
            by = CopiedBytes(storages, self.storages, hashes, scratch.path)
            copies = {
                file.path: self._copied(row, number, file, lie, by)
                for number, file in enumerate(files)
            }
        refuse_other_bytes(files, hashes, {path: copy.sha256 for path, copy in copies.items()})
        values = {path: one.values for path, one in lie.items()} if lie is not None else None
        receipts = copied_receipts(self.source, row, copies, self.destination, values)
        store_receipts(row, receipts, self.destination.location, self.storages)
        source = TableFiles(self.source.location, self.source_storages)
        carry_digest(row, files, source, TableFiles(self.destination.location, self.storages))
        return receipts

    def _copied(
        self,
        row: Row,
        number: int,
        file: BranchFile,
        lie: Mapping[str, FilePartition] | None,
        by: CopiedBytes,
    ) -> Copy:
        attempt = f"0-{uuid.uuid4().hex[:12]}"
        name = data_file_name(row.key.hash, row.claim.transaction_id, number, attempt)
        of_source = Disks.of(self.source).directory_of(file.path)
        directory = of_source if lie is None else lie[file.path].directory
        place = (self.destination.data_location, directory, name)
        return by.copy(file, "/".join(part for part in place if part), attempt)


def _unsaid(_: str) -> None:
    """Say nothing of receipts that are gone: the copy has receipts of its own."""

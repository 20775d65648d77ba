"""Places, describes and records the files that a statement writes instead of existing ones.

- `FilePlace` chooses the directory of a new file; `NewFile` gives it a unique name and describes
  the written file.
- `store_receipts` and `list_files` store the receipts and the list of a claim's files before
  they can be committed (docs/spec/files.md).
- `carry_digest` copies the kept digest of an export whose files are copied or rewritten, because
  the rows are the same (docs/spec/digest.md).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace

from catalog.clickhouse.rows.digests import FileDigests
from catalog.storages.schemes import Storages
from tableformat.committer import BranchFile, ByStatement, LakeTableState
from tableformat.disks import Disks
from tableformat.export.commit_lists import store_list
from tableformat.export.destination import WrittenClaim
from tableformat.export.verification import digest_location
from tableformat.file_names import RECEIPTS, data_file_name, exported_by
from tableformat.iceberg.copied_files import Rewritten
from tableformat.ledger import Row
from tableformat.parquet.writer import WrittenFile
from tableformat.receipt import Receipt

__all__ = ["FilePlace", "NewFile", "TableFiles", "carry_digest", "list_files", "store_receipts"]


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a file of a claim is written, whoever writes it and however often; `number` is its own.

    `directory` is a location, `key` the hash of the claim's key.
    """

    directory: str
    key: str
    transaction_id: str
    number: int

    @classmethod
    def in_directory_of(
        cls, file: BranchFile, row: Row, number: int, state: LakeTableState
    ) -> FilePlace:
        """Return the directory of another file as the place of a file.

        Args:
            file: the other one.
            row: whose claim it is of.
            number: of the file in it.
            state: of the table.
        """
        disks = Disks.of(state)
        place = (disks.place_for_replacement(file.path), disks.directory_of(file.path))
        directory = "/".join(part for part in place if part)
        return cls(directory, row.key.hash, row.claim.transaction_id, number)

    def new(self) -> NewFile:
        """Return a file there whose name no other attempt has."""
        attempt = f"0-{uuid.uuid4().hex[:12]}"
        name = data_file_name(self.key, self.transaction_id, self.number, attempt)
        return NewFile(f"{self.directory}/{name}", attempt)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file of a claim, before it is there: `attempt` makes its name unique."""

    path: str
    attempt: str
    began: float = field(default_factory=time.monotonic)

    def rewritten(self, written: WrittenFile) -> Rewritten:
        """Return what is told of it, once it is there."""
        return Rewritten(
            self.path,
            self.attempt,
            written.rows,
            written.bytes,
            written.sha256,
            written.split_offsets,
            written.columns,
            time.monotonic() - self.began,
        )


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
        written = WrittenClaim(replace(row, claim=claim), receipts, ByStatement())
        name = row.claim.transaction_id
        store_list(storages(table_location), table_location, name, (written,))


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Where the files of a lake table are."""

    location: str
    storages: Storages


def carry_digest(row: Row, files: Iterable[BranchFile], source: TableFiles, to: TableFiles) -> None:
    """Keep the digest of an export for the claim that its files are copied or written anew for.

    Else the proof that its rows are those of the source would end with the files. A claim that is a
    statement's is of other rows; there is nothing to carry where the export kept no digest.

    Args:
        row: with the claim.
        files: those of which copies, or in whose place others, come.
        source: the table that has them.
        to: the table of the claim.

    Raises:
        DestinationError: it cannot be read or stored.
    """
    written_by = {exported_by(file.path) for file in files}
    if row.claim.kind is not None or len(written_by) != 1:
        return
    (named,) = written_by
    if named is None:
        return
    with closing(FileDigests(source.storages)) as digests:
        kept = digests.kept(digest_location(source.location, *named))
    if kept is None:
        return
    transaction_id = row.claim.transaction_id
    with closing(FileDigests(to.storages)) as digests:
        location = digest_location(to.location, row.key.hash, transaction_id)
        digests.keep(location, replace(kept, transaction_id=transaction_id))

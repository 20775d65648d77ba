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
from tableformat.export.archived import archived_location, archived_text
from tableformat.export.commit_lists import store_list
from tableformat.export.destination import WrittenClaim
from tableformat.export.main_state import transaction_of
from tableformat.export.verification import digest_location, kept_digest
from tableformat.file_names import (
    RECEIPTS,
    PathLayout,
    data_file_name,
    data_file_path,
    exported_by,
)
from tableformat.iceberg.copied_files import Rewritten
from tableformat.ledger import Row
from tableformat.parquet.writer import WrittenFile
from tableformat.receipt import Receipt

__all__ = ["FilePlace", "NewFile", "TableFiles", "carry_digest", "list_files", "store_receipts"]


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The place of a new file of a claim, the same for every attempt; `number` identifies it.

    `location` is that of data files, `directory` the partition's below it; `key` is the hash of the
    claim's key.
    """

    location: str
    directory: str
    layout: PathLayout
    key: str
    transaction_id: str
    number: int

    @classmethod
    def in_directory_of(
        cls, file: BranchFile, row: Row, number: int, state: LakeTableState
    ) -> FilePlace:
        """Return a place in the directory of the file that is replaced, or on its new disk.

        Args:
            file: the replaced file.
            row: the row with the claim.
            number: the number of the file in the claim.
            state: the state of the table.
        """
        disks = Disks.of(state)
        location, directory = disks.place_for_replacement(file.path), disks.directory_of(file.path)
        layout = disks.layout_at(location)
        return cls(location, directory, layout, row.key.hash, row.claim.transaction_id, number)

    def new(self) -> NewFile:
        """Return a file at this place, with a name that no other attempt has."""
        attempt = f"0-{uuid.uuid4().hex[:12]}"
        name = data_file_name(self.key, self.transaction_id, self.number, attempt)
        return NewFile(data_file_path(self.location, self.directory, name, self.layout), attempt)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file of a claim to be written; `attempt` makes its name unique."""

    path: str
    attempt: str
    began: float = field(default_factory=time.monotonic)

    def rewritten(self, written: WrittenFile) -> Rewritten:
        """Return the description of the written file."""
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
    """Store the receipts of the files of a claim, and their list.

    Args:
        row: the row with the claim.
        receipts: of the files.
        table_location: the location of the table that gets the files.
        storages: open a location's storage.

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
    """Store the list of a claim's files, whose receipts are already stored.

    Copies of archived rows are archived, too, which is stored next to the table as by `archive`.

    After a loss of the ledger, only the list shows that copied or rewritten files are an export of
    main. A key with files that no list names would prevent the table from getting a new ledger.

    Args:
        row: the row with the claim.
        receipts: of the files; without any, nothing is stored.
        table_location: the location of the table that gets the files.
        storages: open a location's storage.

    Raises:
        DestinationError: the storage failed.
    """
    if receipts:
        claim = replace(row.claim, bytes=sum(r.file_bytes for r in receipts))
        written = WrittenClaim(replace(row, claim=claim), receipts, ByStatement())
        name = row.claim.transaction_id
        store_list(storages(table_location), table_location, name, (written,))
        if claim.archived_since:
            mark = archived_location(table_location, row.key.hash)
            storages(mark).put(mark, archived_text(claim.archived_since))


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The location and the storages of a lake table."""

    location: str
    storages: Storages


def carry_digest(row: Row, files: Iterable[BranchFile], source: TableFiles, to: TableFiles) -> None:
    """Store the digest of an export for the claim that copies or rewrites the export's files.

    Otherwise the proof that the rows match the source would be lost with the files. Nothing is
    stored for the claim of a statement, which has other rows, or if the export has no digest.

    Args:
        row: the row with the claim.
        files: the files that are copied or rewritten.
        source: the table of these files.
        to: the table of the claim.

    Raises:
        DestinationError: the digest cannot be read or stored.
    """
    paths = [file.path for file in files]
    written_by = {_export_of(path, row) for path in paths}
    if row.claim.kind is not None or len(written_by) != 1:
        return
    (export,) = written_by
    if export is None:
        return
    with closing(FileDigests(source.storages)) as digests:
        kept = kept_digest(digests, source.location, *export, paths)
    if kept is None:
        return
    transaction_id = row.claim.transaction_id
    with closing(FileDigests(to.storages)) as digests:
        location = digest_location(to.location, row.key.hash, transaction_id)
        digests.keep(location, replace(kept, transaction_id=transaction_id))


def _export_of(path: str, row: Row) -> tuple[str, str] | None:
    """Return the key hash and the transaction of the export whose rows a file has, if it is known.

    `row` is that of the key that the file's new form belongs to.
    """
    named = exported_by(path)
    if named is not None:
        return named
    transaction_id = transaction_of(path, row)
    return None if transaction_id is None else (row.key.hash, transaction_id)

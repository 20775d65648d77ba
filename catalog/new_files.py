"""Where a file is written that comes in the place of another one, and what is told of it."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from tableformat.branches import BranchFile
from tableformat.committer import LakeTableState
from tableformat.disks import Disks
from tableformat.file_names import data_file_name
from tableformat.iceberg.copies import Rewritten
from tableformat.ledger import Row
from tableformat.parquet.writer import WrittenFile

__all__ = ["FilePlace", "NewFile"]


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
    def beside(cls, file: BranchFile, row: Row, number: int, state: LakeTableState) -> FilePlace:
        """Return the directory of another file as the place of a file.

        Args:
            file: the other one.
            row: whose claim it is of.
            number: of the file in it.
            state: of the table.
        """
        disks = Disks.of(state)
        place = (disks.beside(file.path), disks.directory_of(file.path))
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

    def told(self, written: WrittenFile) -> Rewritten:
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

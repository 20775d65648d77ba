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

__all__ = ["NewFile"]


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file of a claim, before it is there: `attempt` makes its name unique."""

    path: str
    attempt: str
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def beside(cls, file: BranchFile, row: Row, number: int, state: LakeTableState) -> NewFile:
        """Return the name of a file in the directory of another one.

        Args:
            file: the other one.
            row: whose claim it is of.
            number: of the file in it.
            state: of the table.
        """
        attempt = f"0-{uuid.uuid4().hex[:12]}"
        name = data_file_name(row.key.hash, row.claim.transaction_id, number, attempt)
        disks = Disks.of(state)
        place = (disks.beside(file.path), disks.directory_of(file.path), name)
        return cls("/".join(part for part in place if part), attempt)

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

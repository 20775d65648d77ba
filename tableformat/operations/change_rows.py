"""UPDATE, DELETE and CLEAR COLUMN [IN PARTITION …]: files of which rows change are written anew.

Copy on write: a file without such a row stays, and what readers have open stays as it was. Which
rows of a file change, and into what, ClickHouse says (P-64, P-65, P-67, P-68, P-36). A statement
without IN PARTITION is one snapshot, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tableformat.branches import BranchFile
from tableformat.export.outcome import Status
from tableformat.operations.partition_files import FilesOfKey, PartitionFiles, held_of
from tableformat.operations.planned import KeyChange, Plan, Rewrite
from tableformat.operations.which import AllPartitions, OnePartition
from tableformat.operations.writing_anew import (
    refuse_deletes,
    refuse_other_columns,
    refuse_other_spec,
)

__all__ = ["ChangeRows", "RowsOfFiles"]

RowsOfFiles = Callable[[tuple[BranchFile, ...]], tuple[Rewrite | None, ...]]
"""Says what changes in each file, None for nothing; the same whenever it is asked."""


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The request: `text` as the ledger keeps it; files are read as those of `schema_id`.

    `verb` says what it did with the rows that changed. `check_partition` refuses a file of an
    earlier partition spec whose rows lie in several partitions of the table as it is now; without
    it each of them is refused.
    """

    which: OnePartition | AllPartitions
    text: str
    rows: RowsOfFiles
    schema_id: int
    verb: str = "changed"
    check_partition: Callable[[BranchFile], object] | None = None
    did: ClassVar[Status] = Status.CHANGED
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return self.text

    def plan(self, there: PartitionFiles) -> Plan:
        """Write anew what changes.

        Raises:
            RefusedError: the table's columns are others by now.
            UnsupportedError: a file cannot be written anew as it is.
            TableFormatError: ClickHouse refuses the statement, or a file cannot be read.
        """
        refuse_other_columns(self, there, self.schema_id)
        files = tuple(f for one in there.keys for f in one.files)
        for file in files:
            refuse_deletes(self, file)
        changes = {f: r for f, r in zip(files, self.rows(files), strict=True) if r is not None}
        for file in changes:
            if self.check_partition is None:
                refuse_other_spec(self, file, there)
            elif file.spec_id != there.spec_id:
                self.check_partition(file)
        every = (self._of_key(one, there, changes) for one in there.keys)
        found = tuple(change for change in every if change is not None)
        rows = sum(f.rows for f in files)
        return Plan(found, kept=rows - sum(r.changed for c in found for r in c.rewrites))

    @staticmethod
    def _of_key(
        one: FilesOfKey, there: PartitionFiles, changes: Mapping[BranchFile, Rewrite]
    ) -> KeyChange | None:
        found = tuple(changes[f] for f in one.files if f in changes)
        if not found:
            return None
        leaves = tuple(f for r in found for f in r.files)
        left = tuple(f for f in one.files if f not in leaves)
        holds = held_of(left) if there.knows(one.key) else None
        return KeyChange(one.key, leaves=leaves, holds=holds, rewrites=found)

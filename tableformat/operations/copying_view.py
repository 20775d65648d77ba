"""ALTER TABLE … ATTACH and REPLACE PARTITION … FROM a view: rows of which nobody knows whose.

A view has no files and no exports: nobody can tell whether its rows are those that main has. So
they come only where main has none of the partition, or, with REPLACE, instead of all that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.branches import BranchFile
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.operations.copying import CopyFrom, OtherKey, OtherTable
from tableformat.operations.partition_files import PartitionFiles
from tableformat.operations.planned import Plan
from tableformat.operations.which import OnePartition
from tableformat.operations.writing_anew import refuse_other_columns

__all__ = ["CopyFromView", "files_in"]


def files_in(there: PartitionFiles) -> frozenset[BranchFile]:
    """Return the files that main has of a partition."""
    return frozenset(f for one in there.keys for f in one.files)


@dataclass(frozen=True, slots=True)
class CopyFromView:
    """The request: which partition comes from which view; `replaces` what is here.

    `allow_empty`: no rows replace, too. `keys` are the files of its rows, none where it has none of
    the partition; `schema_id` is that of the columns here that they were looked at for, `before`
    what main had of the partition before the view was evaluated.
    """

    which: OnePartition
    view: str
    replaces: bool
    allow_empty: bool
    keys: tuple[OtherKey, ...]
    schema_id: int
    before: frozenset[BranchFile]
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    @property
    def did(self) -> Status:
        """What became of the partition, once it has landed."""
        return Status.REPLACED if self.replaces else Status.ATTACHED

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"{'REPLACE' if self.replaces else 'ATTACH'} {self.which} FROM {self.view}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let the rows come, and with REPLACE everything else leave.

        Raises:
            RefusedError: main has rows of the partition and they would stay, the view has none that
                replace them (code 36), or the columns of the table were changed meanwhile, or what
                would leave.
        """
        refuse_other_columns(self, there, self.schema_id)
        if self.replaces and files_in(there) != self.before:
            # A view of this very table has read what was there before.
            message = (
                f"Cannot run {self}: main got or lost rows of the partition while the view was "
                "evaluated, which may have read them. Run the statement again."
            )
            raise RefusedError(message)
        if self.replaces and not self.keys and not self.allow_empty:
            message = (
                f"Cannot run {self}: the view has no rows of it, and what is here would be dropped "
                "without a word. Set allow_replace_partition_from_empty_source = 1, or use DROP "
                "PARTITION."
            )
            raise RefusedError(message, code=BAD_ARGUMENTS)
        rows = sum(f.rows for one in there.keys for f in one.files)
        if not self.replaces and self.keys and rows:
            message = (
                f"Cannot run {self}: main has {rows:,} rows of the partition already, and nobody "
                "can tell whether those of a view are the same: they could be there twice. Use "
                "REPLACE PARTITION, or DROP PARTITION first."
            )
            raise RefusedError(message)
        other = OtherTable(self.view, "", None, self.keys)
        return CopyFrom(self.which, other, self.replaces, self.allow_empty).plan(there)

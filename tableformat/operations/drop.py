"""ALTER TABLE … DROP PARTITION: what is in the partition leaves main.

Snapshots before it still have the rows, until they expire (DESIGN 7). A partition without a file is
dropped, too: as in ClickHouse that is no error.
"""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.export.outcome import Status
from tableformat.names import PartitionId
from tableformat.operations.partition_files import PartitionFiles
from tableformat.operations.planned import KeyChange, Plan

__all__ = ["DropPartition"]


@dataclass(frozen=True, slots=True)
class DropPartition:
    """The request: which partition is dropped."""

    partition_id: PartitionId

    @property
    def did(self) -> Status:
        """What became of the partition, once it has landed."""
        return Status.DROPPED

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"DROP PARTITION ID '{self.partition_id}'"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let every file of the partition leave."""
        return Plan(
            tuple(
                KeyChange(one.key, tuple(f.path for f in one.files), one.rows, ())
                for one in there.keys
            )
        )

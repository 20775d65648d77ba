"""ALTER TABLE … DROP PARTITION|PART: its files leave main.

Snapshots before it still have the rows, until they expire (DESIGN 7). A partition without a file is
dropped, too: as in ClickHouse that is no error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.export.outcome import Status
from tableformat.operations.partition_files import PartitionFiles
from tableformat.operations.planned import Plan
from tableformat.operations.taking_out import taken_out
from tableformat.operations.which import Which

__all__ = ["Drop"]


@dataclass(frozen=True, slots=True)
class Drop:
    """The request: what is dropped."""

    which: Which
    did: ClassVar[Status] = Status.DROPPED
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"DROP {self.which}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let the files leave."""
        return taken_out(self.which, there)

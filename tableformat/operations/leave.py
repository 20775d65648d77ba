"""MOVE PARTITION … TO TABLE as the table sees it that the rows leave: as a DROP, of what is there.

The other table sees an ATTACH FROM (`copying.py`); what keeps both together is in `moving.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.export.outcome import Status
from tableformat.names import LakeName
from tableformat.operations.partition_files import PartitionFiles
from tableformat.operations.planned import Plan
from tableformat.operations.taking_out import taken_out
from tableformat.operations.which import OnePartition

__all__ = ["Leave"]


@dataclass(frozen=True, slots=True)
class Leave:
    """The request, as this table sees it: what goes where."""

    which: OnePartition
    to: LakeName
    did: ClassVar[Status] = Status.MOVED
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"MOVE {self.which} TO TABLE {self.to}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let all files leave."""
        return taken_out(self.which, there)

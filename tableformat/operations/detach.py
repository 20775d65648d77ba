"""ALTER TABLE … DETACH PARTITION|PART: its files leave main, and stay on the branch `detached`.

Both in one commit, so that they are always on one of the two. The branch has an age that no expiry
reaches, and keeps its files from the removal of orphans (Iceberg's specification, snapshot
retention).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.branches import BranchFile
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.operations.partition_files import PartitionFiles
from tableformat.operations.planned import Plan
from tableformat.operations.taking_out import taken_out
from tableformat.operations.which import Which

__all__ = ["Detach"]


@dataclass(frozen=True, slots=True)
class Detach:
    """The request: what is detached."""

    which: Which
    did: ClassVar[Status] = Status.DETACHED
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = True

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"DETACH {self.which}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let the files leave main for the branch.

        Raises:
            RefusedError: a file carries deletes, which would not apply to it there, or was written
                for another partition spec.
        """
        plan = taken_out(self.which, there)
        for change in plan.changes:
            for file in change.leaves:
                self._refuse(file, there.spec_id)
        return plan

    def _refuse(self, file: BranchFile, spec_id: int) -> None:
        if file.deletes:
            message = (
                f"Cannot run {self}: rows of {file.path} are deleted by delete files, which would "
                "not go with it, and the rows would be there again. Rewrite the file with the "
                "engine that deleted them (Spark: rewrite_data_files with delete-file-threshold "
                "1), and run the statement again."
            )
            raise RefusedError(message)
        if file.spec_id != spec_id:
            message = (
                f"Cannot run {self}: {file.path} was written for partition spec {file.spec_id}, "
                f"and the table's is {spec_id} now. Rewrite its data files (Spark: "
                "rewrite_data_files with rewrite-all), and run the statement again."
            )
            raise RefusedError(message)

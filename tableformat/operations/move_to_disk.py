"""MOVE PARTITION|PART … TO DISK|VOLUME …: files come to another place, in one snapshot.

Each is copied as it is, under a new name, and the entry of the copy takes the place of its own; the
old files stay for the snapshots that refer to them. Where main has a whole export it lands as that
export again, so that all files of the key get new names: those that are not moved beside the old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.branches import BranchFile
from tableformat.disks import DiskOrVolume, Disks
from tableformat.export.outcome import Status
from tableformat.operations.partition_files import FilesOfKey, PartitionFiles
from tableformat.operations.planned import KeyChange, Plan, Rewrite
from tableformat.operations.rewriting import rewritten
from tableformat.operations.which import OnePart, OnePartition
from tableformat.operations.writing_anew import refuse_deletes, refuse_other_spec

__all__ = ["MoveToDisk"]


@dataclass(frozen=True, slots=True)
class MoveToDisk:
    """The request: what goes where; `disks` are the table's."""

    which: OnePartition | OnePart
    to: DiskOrVolume
    disks: Disks
    did: ClassVar[Status] = Status.MOVED
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"MOVE {self.which} TO {self.to}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Copy what is elsewhere.

        Raises:
            NotFoundError: there is no such part (code 232).
            RefusedError: the part's rows lie in files with those of other parts.
            UnsupportedError: a file cannot be copied as it is.
        """
        chosen = tuple(f for one in self.which.of(there.keys) for f in one.files)
        moved = tuple(f for f in chosen if self.disks.place_of(f.path) not in self.to.places)
        found = tuple(c for one in there.keys if (c := self._of_key(one, there, moved)) is not None)
        return Plan(
            found,
            kept=sum(f.rows for f in chosen),
            moved=moved,
            unmoved=f"all of it is on {self.to}",
        )

    def _of_key(
        self, one: FilesOfKey, there: PartitionFiles, moved: tuple[BranchFile, ...]
    ) -> KeyChange | None:
        every = {
            f: Rewrite((f,), 0, (f.rows,), self.to.places[0] if f in moved else "")
            for f in one.files
        }
        worth = tuple(r for f, r in every.items() if f in moved)
        found = rewritten(one, there, tuple(every.values()), worth)
        for file in found.leaves if found is not None else ():
            refuse_deletes(self, file)
            refuse_other_spec(self, file, there)
        return found

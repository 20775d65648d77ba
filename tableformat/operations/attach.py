"""ALTER TABLE … ATTACH PARTITION|PART: what is detached comes back to main.

Files leave the branch `detached` and are in main in one commit. Beside another export of the same
key their rows would be there twice, which is refused (decision 0013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.file_names import exported_by
from tableformat.operations.partition_files import FilesOfKey, PartitionFiles, held_of
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.which import Which

__all__ = ["Attach"]


@dataclass(frozen=True, slots=True)
class Attach:
    """The request: what is attached."""

    which: Which
    did: ClassVar[Status] = Status.ATTACHED
    looks_at_detached: ClassVar[bool] = True
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"ATTACH {self.which}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let the files come back.

        Raises:
            NotFoundError: no such part is detached.
            RefusedError: main has other rows of the same key, or a file was written for another
                partition spec.
        """
        main = {one.key: one for one in there.keys}
        return Plan(
            tuple(
                self._change(one, main.get(one.key), there.spec_id)
                for one in self.which.of(there.detached, detached=True)
            )
        )

    def _change(self, back: FilesOfKey, main: FilesOfKey | None, spec_id: int) -> KeyChange:
        for file in back.files:
            if file.spec_id != spec_id:
                message = (
                    f"Cannot run {self}: {file.path} was written for partition spec "
                    f"{file.spec_id}, and the table's is {spec_id} now. Read it from the branch "
                    "detached, and write it with the engine that changed the spec."
                )
                raise RefusedError(message)
        there = main.files if main is not None else ()
        if main is not None:
            self._refuse_twice(back, main)
        return KeyChange(back.key, returns=back.files, holds=held_of((*there, *back.files)))

    def _refuse_twice(self, back: FilesOfKey, main: FilesOfKey) -> None:
        """Refuse files whose rows main has: these very files, or another export of the key.

        Raises:
            RefusedError: it would have them twice.
        """
        paths = {f.path for f in main.files}
        if same := next((f.path for f in back.files if f.path in paths), None):
            message = (
                f"Cannot run {self}: {same} is in main already, which was moved to where it had "
                f"not been detached. DROP DETACHED {self.which} takes it off the branch."
            )
            raise RefusedError(message)
        export = main.export
        if export is None and not any(exported_by(f.path) for f in main.files):
            return
        late = {x.transaction_id for x in back.landed if export and x.epoch >= export.epoch}
        if all((found := exported_by(f.path)) and found[1] in late for f in back.files):
            return
        where = f"in snapshot {export.snapshot_id}" if export else "by what this ledger lost"
        message = (
            f"Cannot run {self}: the partition was exported again since it was detached, "
            f"{where}, and its rows would be there twice. DROP PARTITION first for what was "
            f"detached, or DROP DETACHED {self.which} for what is there."
        )
        raise RefusedError(message)

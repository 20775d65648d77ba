"""ALTER TABLE … ATTACH PARTITION|PART: what is detached comes back to main.

Files leave the branch `detached` and are in main in one commit. Beside another export of the same
key their rows would be there twice, which is refused (decision 0013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.branches import BranchFile
from tableformat.errors import RefusedError
from tableformat.export.outcome import Status
from tableformat.file_names import exported_by
from tableformat.ledger import Landed, Row
from tableformat.operations.partition_files import (
    FilesOfKey,
    KeyInMain,
    PartitionFiles,
    held_of,
)
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
        main = {one.key: one.files for one in there.keys}
        wanted = self.which.of(there.detached, detached=True)
        return Plan(tuple(self._change(one, main.get(one.key, ()), there) for one in wanted))

    def _change(
        self, back: FilesOfKey, main: tuple[BranchFile, ...], there: PartitionFiles
    ) -> KeyChange:
        for file in back.files:
            if file.spec_id != there.spec_id:
                message = (
                    f"Cannot run {self}: {file.path} was written for partition spec "
                    f"{file.spec_id}, and the table's is {there.spec_id} now. Read it from the "
                    "branch detached, and write it with the engine that changed the spec."
                )
                raise RefusedError(message)
        paths = {f.path for f in main}
        if same := next((f.path for f in back.files if f.path in paths), None):
            message = (
                f"Cannot run {self}: {same} is in main already, which was moved to where it had "
                f"not been detached. DROP DETACHED {self.which} takes it off the branch."
            )
            raise RefusedError(message)
        at = there.in_main.get(back.key.hash)
        if at is not None and at.export is not None:
            self._refuse_beside(back, at, at.export)
        else:
            self._refuse_after_exports(back, there)
        return KeyChange(back.key, returns=back.files, holds=held_of((*main, *back.files)))

    def _refuse_beside(self, back: FilesOfKey, at: KeyInMain, export: Landed) -> None:
        """Refuse files of a key of which main may have the rows of another export.

        Raises:
            RefusedError: it may.
        """
        if not at.held.is_known:
            message = (
                f"Cannot run {self}: which rows of partition {back.key.partition_id} main has "
                f"cannot be told, and some could be there twice. {at.held.text} DROP PARTITION "
                "first for what was detached."
            )
            raise RefusedError(message)
        if not at.held.files:
            return
        if any(_was_fetched(f, at.row) for f in back.files):
            message = (
                f"Cannot run {self}: main has rows of partition {back.key.partition_id} already, "
                "and those that were fetched could be there twice. DROP PARTITION first, or "
                f"DROP DETACHED {self.which} for what is there."
            )
            raise RefusedError(message)
        late = {x.transaction_id for x in at.row.landed if x.epoch >= export.epoch}
        if not all((found := exported_by(f.path)) and found[1] in late for f in back.files):
            raise self._twice(export)

    def _refuse_after_exports(self, back: FilesOfKey, there: PartitionFiles) -> None:
        """Refuse files that no export wrote where one came since: it may have the same rows.

        Raises:
            RefusedError: one came, and main has, or may have, rows of it.
        """
        since = min(f.sequence_number for f in back.files)
        fetched = back.row is not None and any(_was_fetched(f, back.row) for f in back.files)
        for at in there.in_main.values():
            # What was fetched may be what others made of the same rows elsewhere, at any time.
            if at.export is None or (at.export.sequence_number <= since and not fetched):
                continue
            if at.held.files or not at.held.is_known:
                raise self._twice(at.export)

    def _twice(self, export: Landed) -> RefusedError:
        message = (
            f"Cannot run {self}: the partition was exported again since it was detached, in "
            f"snapshot {export.snapshot_id}, and its rows would be there twice. DROP PARTITION "
            f"first for what was detached, or DROP DETACHED {self.which} for what is there."
        )
        return RefusedError(message)


def _was_fetched(file: BranchFile, row: Row) -> bool:
    """Whether a file came by FETCH, and was never in main: its statement left others there."""
    named = exported_by(file.path)
    landed = next((x for x in row.landed if named and x.transaction_id == named[1]), None)
    if landed is None or not landed.statement:
        return False
    return landed.transaction_id not in {one.transaction_id for one in landed.holds or ()}

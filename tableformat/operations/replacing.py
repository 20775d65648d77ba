"""ALTER TABLE … REPLACE PARTITION … FROM a ClickHouse table: exports come, all else leaves.

What it has come, or leaves there, are exports; everything else that the partition has leaves, of
whatever key and whoever wrote it (decision 0013). How both land in one snapshot:
`landing_replaced.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.errors import RefusedError
from tableformat.export.archived import unarchive_command
from tableformat.export.outcome import Status
from tableformat.ledger import Key
from tableformat.operations.partition_files import PartitionFiles
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.which import OnePartition

__all__ = ["Replacing", "Staying"]


@dataclass(frozen=True, slots=True)
class Staying:
    """An export that main has already, and that is what the source has: by key and content."""

    key: Key
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Replacing:
    """The request: what stays in a partition, or comes to it by exports; all else leaves.

    `table` is the name behind FROM.
    """

    which: OnePartition
    table: str
    brings: tuple[Key, ...] = ()
    stays: tuple[Staying, ...] = ()
    did: ClassVar[Status] = Status.REPLACED
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"REPLACE {self.which} FROM {self.table}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let everything leave but what stays; each key that comes has a change of its own.

        Raises:
            RefusedError: main has what was to stay no more, or what would leave is archived, so
                that no export may replace it.
        """
        for one in self.stays:
            at = there.in_main.get(one.key.hash)
            record = at.record if at is not None else None
            if record is None or record.landed.fingerprint != one.fingerprint:
                message = (
                    f"Cannot run {self}: what main had of it was changed meanwhile. Run the "
                    "statement again."
                )
                raise RefusedError(message)
        staying = {one.key for one in self.stays}
        files = {one.key: one.files for one in there.keys if one.key not in staying}
        for key in (*self.brings, *files):
            self._refuse_archived(key, there)
        keys = (*self.brings, *(key for key in files if key not in self.brings))
        changes = (KeyChange(key, leaves=files.get(key, ())) for key in keys)
        here = sum(f.rows for one in there.keys if one.key in staying for f in one.files)
        return Plan(tuple(changes), here)

    def _refuse_archived(self, key: Key, there: PartitionFiles) -> None:
        """Refuse to let rows leave that no source may have any more.

        Raises:
            RefusedError: the partition of this key is archived.
        """
        at = there.in_main.get(key.hash)
        if at is None or at.row.archived is None:
            return
        row = at.row
        message = (
            f"Cannot run {self}: partition {row.key.partition_id} of {row.source_table} is "
            "archived, so that no export takes its rows out of the lake, and this statement is "
            "one. Nothing was changed. ATTACH PARTITION … FROM adds rows and takes none out; "
            f"`{unarchive_command(row)}` ends that the partition is archived."
        )
        raise RefusedError(message)

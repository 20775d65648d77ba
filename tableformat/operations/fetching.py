"""ALTER TABLE … FETCH PARTITION … FROM another lake table: copies of its files, detached here.

Neither main nor the other table is changed; ATTACH PARTITION makes the rows visible. As in
ClickHouse it is an error where the other table has no such partition, and where one is detached
here already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tableformat.clickhouse_codes import PARTITION_ALREADY_EXISTS, PARTITION_DOESNT_EXIST
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.outcome import Status
from tableformat.operations.copying import OtherTable
from tableformat.operations.partition_files import PartitionFiles, held_of
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.which import OnePartition

__all__ = ["Fetch"]


@dataclass(frozen=True, slots=True)
class Fetch:
    """The request: which partition is fetched from which table."""

    which: OnePartition
    other: OtherTable
    did: ClassVar[Status] = Status.FETCHED
    looks_at_detached: ClassVar[bool] = True
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"FETCH {self.which} FROM {self.other.name}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let copies come to the branch `detached`.

        Raises:
            NotFoundError: the other table has no file of it (code 257).
            RefusedError: something of it is detached here already (code 256).
        """
        if not self.other.keys:
            message = f"Cannot run {self}: {self.other.name} has no files of it."
            raise NotFoundError(message, code=PARTITION_DOESNT_EXIST)
        if there.detached:
            message = (
                f"Cannot run {self}: files of the partition are detached here already. ATTACH "
                f"{self.which} brings them to main, DROP DETACHED {self.which} takes them away."
            )
            raise RefusedError(message, code=PARTITION_ALREADY_EXISTS)
        main = {one.key: one.files for one in there.keys}
        changes = []
        for one in self.other.keys:
            key = one.key.at(there.table_uuid)
            # Main has afterwards what it had before.
            holds = held_of(main.get(key, ())) if there.knows(key) else None
            changes.append(
                KeyChange(key, copies=one.files, holds=holds, source=one.row, aside=True)
            )
        return Plan(tuple(changes))

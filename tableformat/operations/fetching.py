"""ALTER TABLE … FETCH PARTITION|PART … FROM elsewhere: copies of its files, detached here.

Neither main nor what they are copied from is changed; ATTACH PARTITION makes the rows visible. As
in ClickHouse it is an error where there is no such partition or part, and where something of the
partition is detached here already.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from tableformat.clickhouse_codes import PARTITION_ALREADY_EXISTS, PARTITION_DOESNT_EXIST
from tableformat.errors import NotFoundError, RefusedError
from tableformat.export.outcome import Status
from tableformat.operations.copying import OtherKey
from tableformat.operations.partition_files import PartitionFiles, held_of
from tableformat.operations.planned import KeyChange, Plan
from tableformat.operations.which import OnePart, OnePartition
from tableformat.operations.writing_anew import refuse_other_columns

__all__ = ["Fetch", "is_from_outside"]

_OUTSIDE: Final = re.compile(r"FETCH (?:PARTITION ID|PART) '[^']*' FROM '")


@dataclass(frozen=True, slots=True)
class Fetch:
    """The request: which partition or part is fetched, from where, and what is there of it.

    `origin` is the name of a lake table, or what stands in quotes for a place outside of the lake;
    `schema_id` the columns here that files were looked at for, None where they are copied as they
    are.
    """

    which: OnePartition | OnePart
    origin: str
    keys: tuple[OtherKey, ...]
    schema_id: int | None = None
    did: ClassVar[Status] = Status.FETCHED
    looks_at_detached: ClassVar[bool] = True
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return f"FETCH {self.which} FROM {self.origin}"

    def plan(self, there: PartitionFiles) -> Plan:
        """Let copies come to the branch `detached`.

        Raises:
            NotFoundError: there is no file of it (code 257).
            RefusedError: something of its partition is detached here already (code 256), or the
                columns of the table were changed meanwhile.
        """
        if not self.keys:
            message = f"Cannot run {self}: {self.origin} has no files of it."
            raise NotFoundError(message, code=PARTITION_DOESNT_EXIST)
        if there.detached:
            of = OnePartition(self.which.partition_id)
            message = (
                f"Cannot run {self}: files of the partition are detached here already. ATTACH "
                f"{of} brings them to main, DROP DETACHED {of} takes them away."
            )
            raise RefusedError(message, code=PARTITION_ALREADY_EXISTS)
        if self.schema_id is not None:
            refuse_other_columns(self, there, self.schema_id)
        main = {one.key: one.files for one in there.keys}
        changes = []
        for one in self.keys:
            key = one.key.at(there.table_uuid)
            # Main has afterwards what it had before.
            holds = held_of(main.get(key, ())) if there.knows(key) else None
            changes.append(
                KeyChange(key, copies=one.files, holds=holds, source=one.row, aside=True)
            )
        return Plan(tuple(changes))


def is_from_outside(statement: str) -> bool:
    """Whether a statement, as the ledger keeps it, is a FETCH from a place outside of the lake."""
    return _OUTSIDE.match(statement) is not None

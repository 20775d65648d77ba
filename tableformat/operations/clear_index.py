"""CLEAR INDEX [IN PARTITION …]: files are written anew without the bloom filters of an index.

A skip index of ClickHouse is, in a data file, the bloom filters of the columns that it reads
(P-51). Rows, their order and all other filters stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from tableformat.branches import BranchFile
from tableformat.export.outcome import Status
from tableformat.operations.partition_files import FilesOfKey, PartitionFiles
from tableformat.operations.planned import KeyChange, Plan, Rewrite
from tableformat.operations.rewriting import rewritten
from tableformat.operations.which import AllPartitions, OnePartition
from tableformat.operations.writing_anew import (
    refuse_deletes,
    refuse_other_columns,
    refuse_other_spec,
)

__all__ = ["ClearIndex"]


_UNMOVED: Final = "no file has a bloom filter of the index"


@dataclass(frozen=True, slots=True)
class ClearIndex:
    """The request: `text` as the ledger keeps it; files are read as those of `schema_id`.

    `has_filters` says of a file whether it has bloom filters of the index; `unmoved` is what is
    said where none has.
    """

    which: OnePartition | AllPartitions
    text: str
    has_filters: Callable[[BranchFile], bool]
    schema_id: int
    unmoved: str = ""
    did: ClassVar[Status] = Status.CHANGED
    verb: ClassVar[str] = "index cleared"
    looks_at_detached: ClassVar[bool] = False
    detaches: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the statement as the ledger keeps it."""
        return self.text

    def plan(self, there: PartitionFiles) -> Plan:
        """Write anew what has such filters.

        Raises:
            RefusedError: the table's columns are others by now.
            UnsupportedError: a file cannot be written anew as it is.
            DestinationError: a file cannot be read.
        """
        refuse_other_columns(self, there, self.schema_id)
        found = tuple(c for one in there.keys if (c := self._of_key(one, there)) is not None)
        kept = sum(f.rows for one in there.keys for f in one.files)
        return Plan(found, kept=kept, unmoved=self.unmoved or _UNMOVED)

    def _of_key(self, one: FilesOfKey, there: PartitionFiles) -> KeyChange | None:
        every = {f: Rewrite((f,), 0, (f.rows,) if f.rows else ()) for f in one.files}
        worth = tuple(r for f, r in every.items() if self.has_filters(f))
        found = rewritten(one, there, tuple(every.values()), worth)
        for file in found.leaves if found is not None else ():
            refuse_deletes(self, file)
            refuse_other_spec(self, file, there)
        return found

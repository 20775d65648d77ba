"""In which partition of a lake table a file lies, and of which key it is there.

A partition is one of the partition key that the table remembers. The ledger tells it of exports of
tables with that key. Of exports of a table that is divided otherwise (`--partition-spec` allows
them) the ledger has that table's id, which may be anything here: as of files that no export wrote,
their rows tell it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from tableformat.branches import BranchFile
from tableformat.committer import LakeTableState
from tableformat.errors import RefusedError
from tableformat.ledger import Key, Row
from tableformat.mergetree.division import division_of
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import LakeName, PartitionId

__all__ = ["ANY_PARTITION", "Lying", "RowPartitions", "own_key"]

ANY_PARTITION: Final = "*"
"""In the key of files that no export wrote, where nobody asks in which partition they lie."""
_BY_WRITER: Final = (
    "Rewrite the file by partition with the engine that wrote it, and run the statement again."
)
_AS_PART: Final = (
    "Change it whole, by its name as a part (the system tables parts and detached_parts list it), "
    "or all partitions."
)


class RowPartitions(Protocol):
    """Says of rows in which partitions they lie."""

    def ids(self, location: str, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions that rows of a data file lie in, deleted ones included.

        Raises:
            DestinationError: the file cannot be read, or lacks a column of the key.
        """
        ...


@dataclass(frozen=True, slots=True)
class Lying:
    """Tells it of one lake table. `source` is the ClickHouse table that it remembers.

    None: all exports to it are of tables that are divided as it is, which `division` says. `seen`
    keeps what rows told.
    """

    name: LakeName
    rows: RowPartitions
    source: MergeTreeTable | None
    division: str | None = field(init=False)
    seen: dict[str, frozenset[PartitionId]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Find out once how the table is divided: it is asked of each file."""
        division = None if self.source is None else division_of(self.source)
        object.__setattr__(self, "division", division)

    def is_own(self, row: Row) -> bool:
        """Whether the partition of a key is one of this table's partition key."""
        if self.source is None or not row.key.is_of_export:
            return True
        if row.division is None:
            return row.key.source == self.source.key_source
        return row.division == self.division

    def is_of(self, row: Row, partition_id: PartitionId) -> bool:
        """Whether the ledger tells that a key is of a partition here."""
        return self.is_own(row) and row.key.partition_id == partition_id.value

    def key_in(
        self,
        file: BranchFile,
        row: Row | None,
        state: LakeTableState,
        partition_id: PartitionId,
        *,
        by_name: bool,
    ) -> Key | None:
        """Return the key of a file in a partition; None where it is not in it.

        With `by_name` what counts of an export is the id of its partition, whosever it is.

        Raises:
            RefusedError: its rows lie in several, this one among them.
            DestinationError: the file cannot be read.
        """
        if row is None:
            lies = self.lies_in(file, state, partition_id)
            return own_key(state, partition_id) if lies else None
        is_named = row.key.partition_id == partition_id.value
        if by_name or self.is_own(row):
            return row.key if is_named else None
        return row.key if self.lies_in(file, state, partition_id, row) else None

    def key_of_others(self, file: BranchFile, state: LakeTableState) -> Key:
        """Return the key of a file that no export wrote: of the partition that its rows lie in.

        Raises:
            RefusedError: they lie in several.
            DestinationError: the file cannot be read.
        """
        ids = self.ids(file, state)
        if len(ids) == 1:
            return own_key(state, next(iter(ids)))
        message = (
            f"Cannot tell of which partition of {self.name} {file.path} is: no export of this "
            f"ledger wrote it, and it holds rows of {', '.join(sorted(map(str, ids))) or 'none'}. "
            "Rewrite the file by partition with the engine that wrote it, and run the statement "
            "again."
        )
        raise RefusedError(message)

    def ids(self, file: BranchFile, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions that rows of a file lie in.

        Raises:
            DestinationError: the file cannot be read.
        """
        if file.path not in self.seen:
            self.seen[file.path] = self.rows.ids(file.path, state)
        return self.seen[file.path]

    def lies_in(
        self,
        file: BranchFile,
        state: LakeTableState,
        partition_id: PartitionId,
        row: Row | None = None,
    ) -> bool:
        """Whether a file lies in a partition: one of others, or of the key of a row.

        Raises:
            RefusedError: its rows lie in several, this one among them.
            DestinationError: the file cannot be read.
        """
        if not file.rows:
            return False
        ids = self.ids(file, state)
        if partition_id in ids and len(ids) > 1:
            others = ", ".join(sorted(str(i) for i in ids if i != partition_id))
            whose, way = "which no export of this ledger wrote", _BY_WRITER
            if row is not None:
                whose, way = f"exported of partition {row.key.partition_id} of ", _AS_PART
                whose += f"{row.source_table}, which has another partition key"
            message = (
                f"Cannot change partition {partition_id} of {self.name}: {file.path}, {whose}, "
                f"holds rows of it and of {others}. {way}"
            )
            raise RefusedError(message)
        return partition_id in ids


def own_key(state: LakeTableState, partition_id: PartitionId | None) -> Key:
    """Return the key that files of no key in a partition of a lake table belong to."""
    uuid = state.layout.table_uuid
    return Key.of_lake(uuid, partition_id.value if partition_id else ANY_PARTITION, uuid)

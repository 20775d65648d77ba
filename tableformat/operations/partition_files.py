"""What main has in one partition of a lake table, by whose it is.

A partition is ClickHouse's, of the key that the lake table remembers. Of files that exports wrote
the ledger tells in which partition they lie; of files of others, ClickHouse does by their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tableformat.committer import FileInMain, LakeTable, LakeTableState
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError
from tableformat.file_names import key_in
from tableformat.ledger import Key, Ledger
from tableformat.names import LakeName, PartitionId

__all__ = ["FilesOfKey", "PartitionFiles", "PartitionedLake", "Partitions", "RowPartitions"]


class PartitionedLake(LakeTable, Protocol):
    """An Iceberg table as statements need it."""

    def files_in_main(self, state: LakeTableState) -> tuple[FileInMain, ...]:
        """Return all data files of main, whoever wrote them."""
        ...


class RowPartitions(Protocol):
    """Says of rows in which partitions they lie."""

    def ids(self, location: str, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions that rows of a data file lie in, deleted ones included.

        Raises:
            DestinationError: the file cannot be read, or lacks a column of the key.
        """
        ...


@dataclass(frozen=True, slots=True)
class FilesOfKey:
    """The files that main has of one key in a partition, whatever other files it has."""

    key: Key
    files: tuple[FileInMain, ...]

    @property
    def rows(self) -> int:
        """Rows in them, those that delete files take away included."""
        return sum(f.rows for f in self.files)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files that main has in a partition, by key.

    Those that are of no key of the ledger belong to the partition's own.
    """

    partition_id: PartitionId
    keys: tuple[FilesOfKey, ...]


@dataclass(frozen=True, slots=True)
class Partitions:
    """Looks at the partitions of one lake table."""

    name: LakeName
    lake: PartitionedLake
    ledger: Ledger
    rows: RowPartitions
    effects: Effects
    _seen: dict[str, frozenset[PartitionId]] = field(default_factory=dict)

    def files(self, state: LakeTableState, partition_id: PartitionId) -> PartitionFiles:
        """Return what main has in a partition.

        Raises:
            RefusedError: a file of others holds rows of this partition and of another one.
            DestinationError: main, or a file of others, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        known = self._keys(state)
        found: dict[Key, list[FileInMain]] = {}
        for file in self.lake.files_in_main(state):
            key = known.get(key_in(file.path))
            if key is None and self._lies_in(file, state, partition_id):
                key = own_key(state, partition_id)
            if key is not None and key.partition_id == partition_id.value:
                found.setdefault(key, []).append(file)
        keys = (FilesOfKey(key, tuple(files)) for key, files in sorted(found.items()))
        return PartitionFiles(partition_id, tuple(keys))

    def _keys(self, state: LakeTableState) -> Mapping[str, Key]:
        """Return the keys that the ledger knows of the table, by hash."""
        rows = self.effects(Step.READ_LEDGER, lambda: tuple(self.ledger.rows()))
        return {r.key.hash: r.key for r in rows if r.key.destination == state.layout.table_uuid}

    def _lies_in(self, file: FileInMain, state: LakeTableState, partition_id: PartitionId) -> bool:
        if file.path not in self._seen:
            self._seen[file.path] = self.rows.ids(file.path, state)
        ids = self._seen[file.path]
        if partition_id in ids and len(ids) > 1:
            others = ", ".join(sorted(str(i) for i in ids if i != partition_id))
            message = (
                f"Cannot change partition {partition_id} of {self.name}: {file.path}, which no "
                f"export of this ledger wrote, holds rows of it and of {others}. Rewrite the file "
                "by partition with the engine that wrote it, and run the statement again."
            )
            raise RefusedError(message)
        return partition_id in ids


def own_key(state: LakeTableState, partition_id: PartitionId) -> Key:
    """Return the key that files of no key in a partition of a lake table belong to."""
    uuid = state.layout.table_uuid
    return Key(f"lake:{uuid}", partition_id.value, uuid)

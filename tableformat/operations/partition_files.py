"""What a lake table has in one partition, or in all, by whose it is: on main, and detached.

A partition is ClickHouse's, of the key that the lake table remembers. Of files that exports wrote
the ledger tells in which partition they lie; of files of others, ClickHouse does by their rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tableformat.branches import DETACHED_BRANCH, MAIN_BRANCH, BranchFile, TagChange
from tableformat.committer import LakeTable, LakeTableState, Sent
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError
from tableformat.file_names import exported_by, key_in
from tableformat.ledger import Held, Key, Landed, Ledger, Row
from tableformat.names import LakeName, PartitionId

__all__ = [
    "FilesOfKey",
    "PartitionFiles",
    "PartitionedLake",
    "Partitions",
    "RowPartitions",
    "held_of",
]

_ANY: Final = "*"
"""In the key of files that no export wrote, where nobody asks in which partition they lie."""


class PartitionedLake(LakeTable, Protocol):
    """An Iceberg table as statements need it."""

    def files_on(self, state: LakeTableState, branch: str) -> tuple[BranchFile, ...]:
        """Return all data files of a branch, whoever wrote them; none when there is no branch."""
        ...

    def tag(self, state: LakeTableState, change: TagChange) -> Sent:
        """Ask the catalog, once, to make tags of main, or to let tags go.

        Requires main as in `state` for what is made, and the tags as they are there. Any answer
        but a success is `applied=False`: it may still have been applied.
        """
        ...

    def references(self, state: LakeTableState) -> Mapping[str, int]:
        """Return the snapshots of all branches and tags, by name."""
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
    """The files of one key in a partition, with its row in the ledger.

    `export` is the last export of the key in the line of main, None when there is none.
    """

    key: Key
    files: tuple[BranchFile, ...]
    row: Row | None = None
    export: Landed | None = None

    @property
    def landed(self) -> tuple[Landed, ...]:
        """Every export and statement of the key that landed."""
        return self.row.landed if self.row is not None else ()

    def only(self, files: tuple[BranchFile, ...]) -> FilesOfKey:
        """Return it with some of its files."""
        return replace(self, files=files)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files in a partition (None: in all) by key: of main, and `detached` ones if asked for.

    Those that are of no key of the ledger belong to the partition's own. `spec_id` is the table's
    partition spec.
    """

    partition_id: PartitionId | None
    spec_id: int
    keys: tuple[FilesOfKey, ...]
    detached: tuple[FilesOfKey, ...] = ()


def held_of(files: tuple[BranchFile, ...]) -> tuple[Held, ...] | None:
    """Return files of a key as the ledger notes them; None where a name tells no transaction."""
    found: defaultdict[str, list[BranchFile]] = defaultdict(list)
    for file in files:
        named = exported_by(file.path)
        if named is None:
            return None
        found[named[1]].append(file)
    return tuple(
        Held(one, len(own), sum(f.rows for f in own)) for one, own in sorted(found.items())
    )


@dataclass(frozen=True, slots=True)
class Partitions:
    """Looks at the partitions of one lake table."""

    name: LakeName
    lake: PartitionedLake
    ledger: Ledger
    rows: RowPartitions
    effects: Effects
    _seen: dict[str, frozenset[PartitionId]] = field(default_factory=dict)

    def files(
        self, state: LakeTableState, partition_id: PartitionId | None, *, detached: bool = False
    ) -> PartitionFiles:
        """Return what a partition has, or every one; what is detached only if asked for.

        Raises:
            RefusedError: a file of others holds rows of this partition and of another one.
            DestinationError: a branch, or a file of others, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        known = self._keys(state)
        main, aside = (
            self._by_key(state, branch, known, partition_id) if wanted else ()
            for branch, wanted in ((MAIN_BRANCH, True), (DETACHED_BRANCH, detached))
        )
        return PartitionFiles(partition_id, state.layout.spec_id, main, aside)

    def rows_of(self, state: LakeTableState, partition_id: PartitionId) -> tuple[Row, ...]:
        """Return the ledger's rows of the table's keys of a partition.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return tuple(
            row for row in self._keys(state).values() if row.key.partition_id == partition_id.value
        )

    def detached(self, state: LakeTableState) -> tuple[BranchFile, ...]:
        """Return all files that are detached.

        Raises:
            DestinationError: the branch cannot be read.
        """
        return self.lake.files_on(state, DETACHED_BRANCH)

    def _by_key(
        self,
        state: LakeTableState,
        branch: str,
        known: Mapping[str, Row],
        partition_id: PartitionId | None,
    ) -> tuple[FilesOfKey, ...]:
        found: defaultdict[Key, list[BranchFile]] = defaultdict(list)
        for file in self.lake.files_on(state, branch):
            row = known.get(key_in(file.path))
            if row is not None:
                key = row.key
            elif partition_id is None or self._lies_in(file, state, partition_id):
                key = own_key(state, partition_id)
            else:
                continue
            if partition_id is None or key.partition_id == partition_id.value:
                found[key].append(file)
        return tuple(
            FilesOfKey(key, tuple(files), row := known.get(key.hash), _export(row, state))
            for key, files in sorted(found.items())
        )

    def _keys(self, state: LakeTableState) -> Mapping[str, Row]:
        """Return the rows that the ledger has of the table, by the hash of their key."""
        rows = self.effects(Step.READ_LEDGER, lambda: tuple(self.ledger.rows()))
        return {r.key.hash: r for r in rows if r.key.destination == state.layout.table_uuid}

    def _lies_in(self, file: BranchFile, state: LakeTableState, partition_id: PartitionId) -> bool:
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


def own_key(state: LakeTableState, partition_id: PartitionId | None) -> Key:
    """Return the key that files of no key in a partition of a lake table belong to."""
    uuid = state.layout.table_uuid
    return Key(f"lake:{uuid}", partition_id.value if partition_id else _ANY, uuid)


def _export(row: Row | None, state: LakeTableState) -> Landed | None:
    """Return the last export of a key in the line of main; where that is expired, the last."""
    exports = tuple(x for x in row.landed if not x.statement) if row is not None else ()
    line = tuple(x for x in exports if state.is_ancestor(x.snapshot_id))
    return max(line or exports, key=lambda x: x.epoch, default=None)

"""What a lake table has in one partition, or in all, by whose it is: on main, and detached.

A partition is ClickHouse's, of the key that the lake table remembers. Of files that exports wrote
the ledger tells in which partition they lie; of files of others, ClickHouse does by their rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from tableformat.branches import DETACHED_BRANCH, MAIN_BRANCH, BranchFile, TagChange
from tableformat.committer import LakeTable, LakeTableState, Sent
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError
from tableformat.export.in_main import Holding, holding
from tableformat.file_names import exported_by, key_in
from tableformat.ledger import Held, Key, Landed, Ledger, Record, Row
from tableformat.names import LakeName, PartitionId
from tableformat.operations.earlier import Earlier, earlier

__all__ = [
    "ANY_PARTITION",
    "FilesOfKey",
    "KeyInMain",
    "PartitionFiles",
    "PartitionedLake",
    "Partitions",
    "RowPartitions",
    "held_of",
]

ANY_PARTITION: Final = "*"
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
    """The files of one key in a partition, with its row in the ledger."""

    key: Key
    files: tuple[BranchFile, ...]
    row: Row | None = None

    def only(self, files: tuple[BranchFile, ...]) -> FilesOfKey:
        """Return it with some of its files."""
        return replace(self, files=files)


@dataclass(frozen=True, slots=True)
class KeyInMain:
    """What main has of a key of the ledger, and the last export of it in the line of main.

    `earlier` reads what main was before each statement on the key, the latest first.
    """

    row: Row
    held: Holding
    export: Landed | None
    earlier: Callable[[], Iterator[Earlier]]

    @property
    def record(self) -> Record | None:
        """That of the export of which main has all files and no others, None where it has not."""
        done = self.row.done
        return done if done is not None and self.held.holds(done.landed) else None


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files in a partition (None: in all) by key: of main, and `detached` ones if asked for.

    Those that are of no key of the ledger belong to the partition's own. `table_uuid`, `spec_id`
    and `schema_id` are the table's. `in_main` says, by hash, what main has of each key of the
    ledger in the partition, `elsewhere` of one that the ledger may know of another partition.
    """

    partition_id: PartitionId | None
    table_uuid: str
    spec_id: int
    schema_id: int
    keys: tuple[FilesOfKey, ...]
    detached: tuple[FilesOfKey, ...] = ()
    in_main: Mapping[str, KeyInMain] = field(default_factory=dict)
    elsewhere: Callable[[str], KeyInMain | None] = lambda _: None

    def knows(self, key: Key) -> bool:
        """Whether main has rows of a key in its files and nowhere else."""
        at = self.in_main.get(key.hash)
        return at is None or at.held.is_known


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
        self,
        state: LakeTableState,
        partition_id: PartitionId | None,
        *,
        detached: bool = False,
        each: bool = False,
    ) -> PartitionFiles:
        """Return what a partition has, or every one; what is detached only if asked for.

        Of every one the files of others are together, or, if `each` is asked for, by partition.

        Raises:
            RefusedError: a file of others holds rows of this partition and of another one.
            DestinationError: a branch, or a file of others, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        known = self._keys(state)
        found = partial(self._by_key, state, known, partition_id, each=each)
        main = found(MAIN_BRANCH)
        aside = found(DETACHED_BRANCH) if detached else ()
        held = {
            row.key.hash: self._in_main(state, row)
            for row in known.values()
            if partition_id is None or row.key.partition_id == partition_id.value
        }
        of = state.layout
        return PartitionFiles(
            partition_id,
            of.table_uuid,
            of.spec_id,
            of.schema_id,
            main,
            aside,
            held,
            partial(self._elsewhere, state, known),
        )

    def _elsewhere(
        self, state: LakeTableState, known: Mapping[str, Row], key: str
    ) -> KeyInMain | None:
        row = known.get(key)
        return self._in_main(state, row) if row is not None else None

    def _in_main(self, state: LakeTableState, row: Row) -> KeyInMain:
        key = row.key.hash
        files_at = partial(self.lake.files_of, state, key)
        held = holding(row, state, key, files_at)
        return KeyInMain(row, held, _export(row, state), partial(earlier, row, state, files_at))

    def rows_of(self, state: LakeTableState, partition_id: PartitionId | None) -> tuple[Row, ...]:
        """Return the ledger's rows of the table's keys of a partition (None: of all).

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return tuple(
            row
            for row in self._keys(state).values()
            if partition_id is None or row.key.partition_id == partition_id.value
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
        known: Mapping[str, Row],
        partition_id: PartitionId | None,
        branch: str,
        *,
        each: bool,
    ) -> tuple[FilesOfKey, ...]:
        found: defaultdict[Key, list[BranchFile]] = defaultdict(list)
        for file in self.lake.files_on(state, branch):
            row = known.get(key_in(file.path))
            if row is not None:
                key = row.key
            elif partition_id is None and each and not file.rows:
                # It lies in no partition, and has nothing that could change.
                continue
            elif partition_id is None and each:
                key = self.key_of_others(file, state)
            elif partition_id is None or self._lies_in(file, state, partition_id):
                key = own_key(state, partition_id)
            else:
                continue
            if partition_id is None or key.partition_id == partition_id.value:
                found[key].append(file)
        return tuple(
            FilesOfKey(key, tuple(files), known.get(key.hash))
            for key, files in sorted(found.items())
        )

    def _keys(self, state: LakeTableState) -> Mapping[str, Row]:
        """Return the rows that the ledger has of the table, by the hash of their key."""
        rows = self.effects(Step.READ_LEDGER, lambda: tuple(self.ledger.rows()))
        return {r.key.hash: r for r in rows if r.key.destination == state.layout.table_uuid}

    def key_of_others(self, file: BranchFile, state: LakeTableState) -> Key:
        """Return the key of a file that no export wrote: of the partition that its rows lie in.

        Raises:
            RefusedError: they lie in several.
            DestinationError: the file cannot be read.
        """
        ids = self._ids(file, state)
        if len(ids) == 1:
            return own_key(state, next(iter(ids)))
        message = (
            f"Cannot tell of which partition of {self.name} {file.path} is: no export of this "
            f"ledger wrote it, and it holds rows of {', '.join(sorted(map(str, ids))) or 'none'}. "
            "Rewrite the file by partition with the engine that wrote it, and run the statement "
            "again."
        )
        raise RefusedError(message)

    def _ids(self, file: BranchFile, state: LakeTableState) -> frozenset[PartitionId]:
        if file.path not in self._seen:
            self._seen[file.path] = self.rows.ids(file.path, state)
        return self._seen[file.path]

    def _lies_in(self, file: BranchFile, state: LakeTableState, partition_id: PartitionId) -> bool:
        if not file.rows:
            return False
        ids = self._ids(file, state)
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
    return Key.of_lake(uuid, partition_id.value if partition_id else ANY_PARTITION, uuid)


def _export(row: Row, state: LakeTableState) -> Landed | None:
    """Return the last export of a key in the line of main; where that is expired, the last."""
    exports = tuple(x for x in row.landed if not x.statement)
    line = tuple(x for x in exports if state.is_ancestor(x.snapshot_id))
    return max(line or exports, key=lambda x: x.epoch, default=None)

"""What a lake table has in one partition, or in all, by whose it is: on main, and detached.

A partition is ClickHouse's, of the key that the lake table remembers. Of files that exports of
tables with this key wrote the ledger tells in which partition they lie; of files of others, and of
exports of a table that is divided otherwise, ClickHouse does by their rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from tableformat.branches import DETACHED_BRANCH, MAIN_BRANCH, BranchFile, TagChange
from tableformat.committer import LakeTable, LakeTableState, Sent, Staged
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError
from tableformat.export.in_main import Holding, holding
from tableformat.file_names import exported_by, key_in
from tableformat.iceberg.snapshot import table_of
from tableformat.iceberg.tags import refuse_tag
from tableformat.ledger import Held, Key, Landed, Ledger, Record, Row
from tableformat.mergetree.table import MergeTreeTable
from tableformat.move_intent import MoveIntent
from tableformat.names import LakeName, PartitionId
from tableformat.operations.earlier import Earlier, earlier
from tableformat.operations.lying import Lying, RowPartitions, own_key

__all__ = [
    "FilesOfKey",
    "KeyInMain",
    "PartitionFiles",
    "PartitionedLake",
    "Partitions",
    "RowPartitions",
    "held_of",
]


class PartitionedLake(LakeTable, Protocol):
    """An Iceberg table as statements need it."""

    def files_on(self, state: LakeTableState, branch: str) -> tuple[BranchFile, ...]:
        """Return all data files of a branch, whoever wrote them; none when there is no branch."""
        ...

    def prune(
        self, state: LakeTableState, at: int, leaves: tuple[str, ...], ledger: str, number: int
    ) -> Staged:
        """Write the manifests of a snapshot for a tag: what snapshot `at` has without some files.

        Args:
            state: of the table.
            at: the snapshot.
            leaves: the paths of the files.
            ledger: the identity of the ledger, and `number` one of its counter: the manifests'
                names tell from them when nobody can need the manifests any more.
            number: see `ledger`.

        Raises:
            DestinationError: a manifest cannot be read or written.
        """
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


@dataclass(frozen=True, slots=True)
class FilesOfKey:
    """The files of one key in a partition, with its row in the ledger.

    `is_own`: the key's partition is one of this table, and of no source that is divided otherwise.
    """

    key: Key
    files: tuple[BranchFile, ...]
    row: Row | None = None
    is_own: bool = True

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
    """Looks at the partitions of one lake table.

    `source` is the ClickHouse table that it remembers; None where all exports to it are of tables
    that are divided as it is.
    """

    name: LakeName
    lake: PartitionedLake
    ledger: Ledger
    rows: RowPartitions
    effects: Effects
    source: MergeTreeTable | None = None
    lying: Lying = field(init=False)
    """What tells in which partition a file lies."""

    def __post_init__(self) -> None:
        """Remember what rows tell for as long as this is there."""
        object.__setattr__(self, "lying", Lying(self.name, self.rows, self.source))

    def files(
        self,
        state: LakeTableState,
        partition_id: PartitionId | None,
        *,
        detached: bool = False,
        each: bool = False,
        by_name: bool = False,
    ) -> PartitionFiles:
        """Return what a partition has, or every one; what is detached only if asked for.

        Of every one the files of others are together, or, if `each` is asked for, by partition.
        With `by_name` what counts of an export is the id that its partition has where it comes
        from, as it does in the names of parts.

        Raises:
            RefusedError: a file of others, or of an export of a table that is divided otherwise,
                holds rows of this partition and of another one; or a tag has the branch's name.
            DestinationError: a branch, or a file of others, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        if detached:
            refuse_tag(table_of(state), DETACHED_BRANCH)
        known = self._keys(state)
        found = partial(self._by_key, state, known, partition_id, each=each, by_name=by_name)
        main = found(MAIN_BRANCH)
        aside = found(DETACHED_BRANCH) if detached else ()
        there = {one.key.hash for one in (*main, *aside)}
        held = {
            key: self._in_main(state, row)
            for key, row in known.items()
            if partition_id is None or key in there or self.lying.is_of(row, partition_id)
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

        Of an export of a table that is divided otherwise it counts in which partition its files
        lie.

        Raises:
            RefusedError: such a file holds rows of this partition and of another one.
            DestinationError: a branch, or such a file, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        return tuple(
            row
            for row in self._keys(state).values()
            if partition_id is None
            or self.lying.is_of(row, partition_id)
            or (not self.lying.is_own(row) and self._has_rows(row, state, partition_id))
        )

    def moving(
        self, state: LakeTableState, partition_id: PartitionId | None
    ) -> tuple[tuple[Row, MoveIntent], ...]:
        """Return the keys that a MOVE, which is not finished, takes away, and where it does.

        Of those of a table that is divided otherwise nobody can tell in which partition they were.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return tuple(
            (row, row.move)
            for row in self._keys(state).values()
            if row.move is not None and (partition_id is None or self.may_have(row, partition_id))
        )

    def rows_named(self, state: LakeTableState, partition_id: PartitionId) -> tuple[Row, ...]:
        """Return the ledger's rows of keys that name a partition by this id, whosever it is.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        rows = self._keys(state).values()
        return tuple(row for row in rows if row.key.partition_id == partition_id.value)

    def may_have(self, row: Row, partition_id: PartitionId) -> bool:
        """Whether rows of a key may lie in a partition, as far as the ledger tells."""
        return not self.lying.is_own(row) or self.lying.is_of(row, partition_id)

    def refuse_named_elsewhere(
        self, what: str, state: LakeTableState, partition_id: PartitionId
    ) -> None:
        """Refuse the id of a partition of a table that is divided otherwise, whose rows are here.

        Args:
            what: cannot be run, as the error has it.
            state: of the table, where nothing was found in the partition.
            partition_id: the partition.

        Raises:
            RefusedError: such a partition has rows in main, or detached, in another one of here.
            DestinationError: a branch, or a file, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        for row in self.rows_named(state, partition_id):
            if self.lying.is_own(row):
                continue
            files = self._files_of(row, state)
            if lie := sorted({str(one) for file in files for one in self.lying.ids(file, state)}):
                message = (
                    f"Cannot run {what}: partition {partition_id} is one of {row.source_table}, "
                    f"which has another partition key than {self.name} remembers, and its rows "
                    f"lie in partition {', '.join(lie)} here. Name that, or its files as parts "
                    "(the system tables parts and detached_parts list them)."
                )
                raise RefusedError(message)

    def _has_rows(self, row: Row, state: LakeTableState, partition_id: PartitionId) -> bool:
        """Whether rows of a key that is divided otherwise lie in a partition."""
        files = self._files_of(row, state)
        return any(self.lying.lies_in(file, state, partition_id, row) for file in files)

    def _files_of(self, row: Row, state: LakeTableState) -> tuple[BranchFile, ...]:
        """Return the files of a key in main and those that are detached."""
        both = (*self.lake.files_on(state, MAIN_BRANCH), *self.detached(state))
        return tuple(file for file in both if key_in(file.path) == row.key.hash)

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
        by_name: bool,
    ) -> tuple[FilesOfKey, ...]:
        found: defaultdict[Key, list[BranchFile]] = defaultdict(list)
        for file in self.lake.files_on(state, branch):
            row = known.get(key_in(file.path))
            if partition_id is not None:
                key = self.lying.key_in(file, row, state, partition_id, by_name=by_name)
            elif row is not None:
                key = row.key
            elif each and not file.rows:
                # It lies in no partition, and has nothing that could change.
                continue
            else:
                key = self.lying.key_of_others(file, state) if each else own_key(state, None)
            if key is not None:
                found[key].append(file)
        rows = ((key, tuple(files), known.get(key.hash)) for key, files in sorted(found.items()))
        return tuple(
            FilesOfKey(key, files, row, row is None or self.lying.is_own(row))
            for key, files, row in rows
        )

    def _keys(self, state: LakeTableState) -> Mapping[str, Row]:
        """Return the rows that the ledger has of the table, by the hash of their key."""
        rows = self.effects(Step.READ_LEDGER, lambda: tuple(self.ledger.rows()))
        return {r.key.hash: r for r in rows if r.key.destination == state.layout.table_uuid}


def _export(row: Row, state: LakeTableState) -> Landed | None:
    """Return the last export of a key in the line of main; where that is expired, the last."""
    exports = tuple(x for x in row.landed if not x.statement)
    line = tuple(x for x in exports if state.is_ancestor(x.snapshot_id))
    return max(line or exports, key=lambda x: x.epoch, default=None)

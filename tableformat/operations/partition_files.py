"""Finds the files of a lake partition, or of all partitions, by key: in main and detached.

Partitions are ClickHouse's, of the partition key that the lake table stores. Two sources give the
partition of a file:

* the ledger, for exports of tables with that partition key;
* the rows of the file (`Membership`), for foreign files, and for files of exports of a table with
  another partition key (`--partition-spec` allows them). The ledger's partition id of such an
  export belongs to the other table.

The name of a file has the key of the export or statement that wrote it. Files that other writers
made of all files of a key belong to the key, too (`export/main_state.py`); the ledger notes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from tableformat.committer import (
    DETACHED_BRANCH,
    MAIN_BRANCH,
    BranchFile,
    FilesOfMain,
    LakeTable,
    LakeTableState,
    Sent,
    Staged,
    TagChange,
)
from tableformat.effects import Effects, Step
from tableformat.errors import RefusedError
from tableformat.export.foreign_rows import ANY_PARTITION
from tableformat.export.main_state import (
    Holding,
    Kind,
    Past,
    holding,
    noted_files,
    transaction_of,
)
from tableformat.file_names import key_in
from tableformat.iceberg.snapshot import refuse_tag, table_of
from tableformat.ledger import (
    MOST_FILES_NOTED,
    Held,
    Key,
    Landed,
    Ledger,
    MoveIntent,
    Record,
    Rewritten,
    Row,
)
from tableformat.mergetree.compatibility import division_of
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import LakeName, PartitionId

__all__ = [
    "ANY_PARTITION",
    "FilesOfKey",
    "KeyInMain",
    "Membership",
    "PartitionFiles",
    "PartitionedLake",
    "Partitions",
    "RowPartitions",
    "held_of",
    "own_key",
    "refuse_other_columns",
]


@dataclass(frozen=True, slots=True)
class KeyInMain:
    """The state of a key in main, its last export in main's history, and its earlier states."""

    row: Row
    held: Holding
    export: Landed | None
    past: Past

    @property
    def record(self) -> Record | None:
        """The record of the export of which main has all files and no others, None otherwise."""
        done = self.row.done
        return done if done is not None and self.held.holds(done.landed) else None


@dataclass(frozen=True, slots=True)
class _KeysOfTable:
    """The ledger rows of a lake table by key hash, and the state of each key in main, found once.

    `may_have` tells whether a key may have rows in a partition, according to the ledger.
    """

    lake: FilesOfMain
    state: LakeTableState
    rows: Mapping[str, Row]
    may_have: Callable[[Row, PartitionId], bool]
    states: dict[str, KeyInMain] = field(default_factory=dict, init=False)
    rewritten: dict[PartitionId | None, Mapping[str, Row]] = field(default_factory=dict, init=False)

    def find(self, key: str) -> KeyInMain | None:
        """Return the state of a key in main, None for a key that the ledger does not know."""
        return self.in_main(key) if key in self.rows else None

    def in_main(self, key: str) -> KeyInMain:
        """Return the state of a key of the ledger in main, with the proof if it is rewritten."""
        if key not in self.states:
            row = self.rows[key]
            held = holding(row, self.state, key, self.lake)
            if held.proof is not None and len(held.proof.files) <= MOST_FILES_NOTED:
                row = replace(row, rewritten=held.proof)
            elif held.proof is not None and held.kind is not Kind.MIXED:
                # The ledger cannot store which files have the rows.
                held = replace(held, kind=Kind.CHANGED)
            past = Past(row, self.state, self.lake)
            self.states[key] = KeyInMain(row, held, _export(row, self.state), past)
        return self.states[key]

    def row_of(self, file: BranchFile, partition_id: PartitionId | None) -> Row | None:
        """Return the row of the key of a file in a partition, None for foreign files."""
        named = self.rows.get(key_in(file.path))
        return named or self._rewritten(partition_id).get(file.path)

    def _rewritten(self, partition_id: PartitionId | None) -> Mapping[str, Row]:
        """Return the rows of rewritten exports by the paths of the files with their rows."""
        if partition_id not in self.rewritten:
            keys = (
                self.in_main(key)
                for key, row in self.rows.items()
                if partition_id is None or self.may_have(row, partition_id)
            )
            self.rewritten[partition_id] = {
                path: at.row for at in keys if at.held.is_known for path in noted_files(at.row)
            }
        return self.rewritten[partition_id]


def _export(row: Row, state: LakeTableState) -> Landed | None:
    """Return the last export of a key in main's history; if none is there, the last export."""
    exports = tuple(x for x in row.landed if x.kind is None)
    line = tuple(x for x in exports if state.is_ancestor(x.snapshot_id))
    return max(line or exports, key=lambda x: x.epoch, default=None)


def held_of(files: tuple[BranchFile, ...], row: Row | None) -> tuple[Held, ...] | None:
    """Return files of a key as the ledger records them; None if the transaction of one is unknown.

    `row` is that of the key.
    """
    found: defaultdict[str, list[BranchFile]] = defaultdict(list)
    for file in files:
        transaction_id = transaction_of(file.path, row)
        if transaction_id is None:
            return None
        found[transaction_id].append(file)
    return tuple(
        Held(one, len(own), sum(f.rows for f in own)) for one, own in sorted(found.items())
    )


_BY_WRITER: Final = "Rewrite the file by partition with the engine that wrote it, and run it again."
_AS_PART: Final = (
    "Change it whole, by its name as a part (the system tables parts and detached_parts list it), "
    "or all partitions."
)
_ALL_OF_THEM: Final = "Run the statement on all partitions."


class RowPartitions(Protocol):
    """Finds the partitions of the rows of a file."""

    def ids(self, file: BranchFile, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions of a data file's rows, deleted rows included.

        Its partition values decide where they have all columns of the key as they are.

        Raises:
            DestinationError: the file cannot be read, or lacks a column of the key.
        """
        ...


@dataclass(frozen=True, slots=True)
class Membership:
    """Finds the partitions of the files of one lake table from their rows.

    `source` is the ClickHouse table that the lake table stores, `division` its partitioning; both
    are None if all exported tables have the partitioning of the lake table. `seen` caches the
    partitions of files that were read.
    """

    name: LakeName
    rows: RowPartitions
    source: MergeTreeTable | None
    division: str | None = field(init=False)
    seen: dict[str, frozenset[PartitionId]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Compute the table's partitioning once, because every file needs it."""
        division = None if self.source is None else division_of(self.source)
        object.__setattr__(self, "division", division)

    def is_own(self, row: Row) -> bool:
        """Whether the partition id of a key belongs to this table's partition key."""
        if self.source is None or not row.key.is_of_export:
            return True
        if row.division is None:
            return row.key.source == self.source.key_source
        return row.division == self.division

    def is_of(self, row: Row, partition_id: PartitionId) -> bool:
        """Whether a key belongs to a partition here, according to the ledger."""
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
        """Return the key of a file in a partition, None if the file is not in the partition.

        With `by_name`, the partition id of an export decides, also if the exported table has
        another partition key.

        Raises:
            RefusedError: the file has rows of this partition and of others.
            DestinationError: the file cannot be read.
        """
        if row is None:
            lies = self.belongs_to(file, state, partition_id)
            return own_key(state, partition_id) if lies else None
        is_named = row.key.partition_id == partition_id.value
        if by_name or self.is_own(row):
            return row.key if is_named else None
        return row.key if self.belongs_to(file, state, partition_id, row) else None

    def key_of_others(self, file: BranchFile, state: LakeTableState) -> Key:
        """Return the key of a foreign file, which is that of the partition of its rows.

        Raises:
            RefusedError: the rows belong to several partitions, or there are none.
            DestinationError: the file cannot be read.
        """
        ids = self.ids(file, state)
        if len(ids) == 1:
            return own_key(state, next(iter(ids)))
        message = (
            f"Cannot tell of which partition of {self.name} {file.path} is: no export of this "
            f"ledger wrote it, and it has rows of {', '.join(sorted(map(str, ids))) or 'none'}. "
            "Rewrite the file by partition with the engine that wrote it, and run it again."
        )
        raise RefusedError(message)

    def ids(self, file: BranchFile, state: LakeTableState) -> frozenset[PartitionId]:
        """Return the partitions of a file's rows.

        Raises:
            DestinationError: the file cannot be read.
        """
        if file.path not in self.seen:
            self.seen[file.path] = self.rows.ids(file, state)
        return self.seen[file.path]

    def belongs_to(
        self,
        file: BranchFile,
        state: LakeTableState,
        partition_id: PartitionId,
        row: Row | None = None,
    ) -> bool:
        """Whether the rows of a file belong to a partition.

        Args:
            file: the file.
            state: the table's state.
            partition_id: the partition.
            row: the ledger row of the file's key, for errors; None for a foreign file.

        Raises:
            RefusedError: some rows do, others belong to other partitions.
            DestinationError: the file cannot be read.
        """
        if not file.rows:
            return False
        ids = self.ids(file, state)
        if partition_id in ids and len(ids) > 1:
            message = (
                f"Cannot change partition {partition_id} of {self.name}: "
                f"{_file_and_writer(file, row)}, holds rows of it and of "
                f"{_listed(ids - {partition_id})}. {_BY_WRITER if row is None else _AS_PART}"
            )
            raise RefusedError(message)
        return partition_id in ids

    def begins_with(
        self, what: str, file: BranchFile, row: Row | None, state: LakeTableState, prefix: str
    ) -> bool:
        """As `belongs_to`, for partitions whose ids begin with a text, to run `what`."""
        if row is not None and self.is_own(row):
            return row.key.partition_id.startswith(prefix)
        if not file.rows:
            return False
        ids = self.ids(file, state)
        others = frozenset(one for one in ids if not one.value.startswith(prefix))
        if others and others != ids:
            message = (
                f"Cannot run {what}: {_file_and_writer(file, row)}, holds rows of "
                f"{_listed(ids - others)} and of {_listed(others)}. "
                f"{_BY_WRITER if row is None else _ALL_OF_THEM}"
            )
            raise RefusedError(message)
        return not others


def _file_and_writer(file: BranchFile, row: Row | None) -> str:
    """Return a file and who wrote it, as errors have it; `row` is that of its key."""
    if row is None:
        return f"{file.path}, which no export of this ledger wrote"
    return (
        f"{file.path}, exported of partition {row.key.partition_id} of {row.source_table}, which "
        "has another partition key"
    )


def _listed(ids: frozenset[PartitionId]) -> str:
    return ", ".join(sorted(map(str, ids)))


def own_key(state: LakeTableState, partition_id: PartitionId | None) -> Key:
    """Return the key of foreign files in a partition of a lake table, None for any partition."""
    uuid = state.layout.table_uuid
    return Key.of_lake(uuid, partition_id.value if partition_id else ANY_PARTITION, uuid)


class PartitionedLake(LakeTable, Protocol):
    """An Iceberg table with the operations that statements need."""

    def files_on(self, state: LakeTableState, branch: str) -> tuple[BranchFile, ...]:
        """Return all data files of a branch, of any writer; none if there is no such branch."""
        ...

    def prune(
        self, state: LakeTableState, at: int, leaves: tuple[str, ...], ledger: str, number: int
    ) -> Staged:
        """Write the manifests of a snapshot for a tag, with the files of snapshot `at` except some.

        Args:
            state: the table's state.
            at: the snapshot.
            leaves: the paths of the files to leave out.
            ledger: the ledger's identity. The names of the manifests contain it and `number`; they
                tell when the manifests may be removed.
            number: the next value of the ledger's counter.

        Raises:
            DestinationError: a manifest cannot be read or written.
        """
        ...

    def tag(self, state: LakeTableState, change: TagChange) -> Sent:
        """Send one request to the catalog that creates and removes tags.

        The request requires main of `state` for new tags, and the present snapshots of the others.
        Any response but success gives `applied=False`: the request may still have been applied.
        """
        ...

    def references(self, state: LakeTableState) -> Mapping[str, int]:
        """Return the snapshots of all branches and tags, by name."""
        ...


@dataclass(frozen=True, slots=True)
class FilesOfKey:
    """The files of one key in a partition, with its row in the ledger.

    `is_own`: the partition id of the key belongs to this table's partition key.
    """

    key: Key
    files: tuple[BranchFile, ...]
    row: Row | None = None
    is_own: bool = True

    def only(self, files: tuple[BranchFile, ...]) -> FilesOfKey:
        """Return a copy with only these files."""
        return replace(self, files=files)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of a partition (None: of all) by key: in main and, if requested, detached ones.

    Files of no key in the ledger have the partition's own key. Files of other writers that have all
    rows of an export, and no others, have the key of that export. `state` is the table's, and
    `table_uuid`, `spec_id` and `schema_id` are from it. `ids` returns the partitions of a file's
    rows; it may read the file. `in_main` has the state in main of each key of the partition in the
    ledger, by hash. `elsewhere` returns it for any key of the ledger, by hash. `foreign_rows` are
    the ledger rows of the table's keys of foreign files.
    """

    partition_id: PartitionId | None
    table_uuid: str
    spec_id: int
    schema_id: int
    state: LakeTableState
    ids: Callable[[BranchFile], frozenset[PartitionId]]
    keys: tuple[FilesOfKey, ...]
    detached: tuple[FilesOfKey, ...] = ()
    in_main: Mapping[str, KeyInMain] = field(default_factory=dict)
    elsewhere: Callable[[str], KeyInMain | None] = lambda _: None
    foreign_rows: tuple[Row, ...] = ()
    foreign: tuple[FilesOfKey, ...] = field(init=False)
    """The foreign files in main by key, copies of such files included."""

    def __post_init__(self) -> None:
        """Find the foreign files once, because every key asks for them."""
        found = tuple(one for one in self.keys if not one.key.stays)
        object.__setattr__(self, "foreign", found)

    def knows(self, key: Key) -> bool:
        """Whether all rows of a key in main are known to be in its files."""
        at = self.in_main.get(key.hash)
        return at is None or at.held.is_known

    def row_of(self, key: Key) -> Row | None:
        """Return the ledger row of a key of the partition, None if the ledger has none."""
        at = self.in_main.get(key.hash)
        return at.row if at is not None else None

    def proof_of(self, key: Key) -> Rewritten | None:
        """Return the last proof for rewritten files of a key, None if there is none."""
        row = self.row_of(key)
        return row.rewritten if row is not None else None


@dataclass(frozen=True, slots=True)
class Partitions:
    """Finds the files and ledger rows of the partitions of one lake table.

    `source` is the ClickHouse table that the lake table stores; None if all exported tables have
    the partitioning of the lake table.
    """

    name: LakeName
    lake: PartitionedLake
    ledger: Ledger
    rows: RowPartitions
    effects: Effects
    source: MergeTreeTable | None = None
    membership: Membership = field(init=False)
    """Finds the partitions of files from their rows."""

    def __post_init__(self) -> None:
        """Create the cache of the partitions of files."""
        object.__setattr__(self, "membership", Membership(self.name, self.rows, self.source))

    def files(
        self,
        state: LakeTableState,
        partition_id: PartitionId | None,
        *,
        detached: bool = False,
        each: bool = False,
        by_name: bool = False,
    ) -> PartitionFiles:
        """Return the files of a partition, or of all partitions; detached files only if requested.

        For all partitions, foreign files have one key or, with `each`, one key for each partition.
        With `by_name`, the partition id of an export decides, as in the names of parts, also if the
        exported table has another partition key.

        Raises:
            RefusedError: a foreign file, or a file of an export of a table with another partition
                key, has rows of this partition and of another one; or a tag has the name of the
                branch.
            DestinationError: a branch or such a file cannot be read.
            LedgerError: the ledger cannot be read.
        """
        if detached:
            refuse_tag(table_of(state), DETACHED_BRANCH)
        known = _KeysOfTable(self.lake, state, self._keys(state), self.may_have)
        found = partial(self._by_key, state, known, partition_id, each=each, by_name=by_name)
        main = found(MAIN_BRANCH)
        aside = found(DETACHED_BRANCH) if detached else ()
        there = {one.key.hash for one in (*main, *aside)}
        if aside:
            # A statement on all partitions took out foreign rows of this one under that key.
            there |= {own_key(state, None).hash} & known.rows.keys()
        held = {
            key: known.in_main(key)
            for key, row in known.rows.items()
            if partition_id is None or key in there or self.membership.is_of(row, partition_id)
        }
        of = state.layout
        return PartitionFiles(
            partition_id,
            of.table_uuid,
            of.spec_id,
            of.schema_id,
            state,
            lambda file: self.membership.ids(file, state),
            main,
            aside,
            held,
            known.find,
            tuple(row for row in known.rows.values() if not row.key.stays),
        )

    def files_beginning(
        self, what: str, state: LakeTableState, prefix: str
    ) -> tuple[BranchFile, ...]:
        """Return the files in main of partitions whose ids begin with a text, to run `what`.

        Raises:
            RefusedError: a file holds rows of such a partition and of another one.
            DestinationError: main, or a file, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        known, begins = self._keys(state), self.membership.begins_with
        return tuple(
            file
            for file in self.lake.files_on(state, MAIN_BRANCH)
            if begins(what, file, known.get(key_in(file.path)), state, prefix)
        )

    def rows_of(self, state: LakeTableState, partition_id: PartitionId | None) -> tuple[Row, ...]:
        """Return the ledger rows of the keys with rows in a partition (None: of all keys).

        For exports of a table with another partition key, the rows of their files decide.

        Raises:
            RefusedError: such a file has rows of this partition and of another one.
            DestinationError: a branch or such a file cannot be read.
            LedgerError: the ledger cannot be read.
        """
        return tuple(
            row
            for row in self._keys(state).values()
            if partition_id is None
            or self.membership.is_of(row, partition_id)
            or (not self.membership.is_own(row) and self._has_rows(row, state, partition_id))
        )

    def moving(
        self, state: LakeTableState, partition_id: PartitionId | None
    ) -> tuple[tuple[Row, MoveIntent], ...]:
        """Return the keys of a partition with an unfinished MOVE, and the destination of each.

        Keys of tables with another partition key are included: the partition of their rows is
        unknown.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return tuple(
            (row, row.move)
            for row in self._keys(state).values()
            if row.move is not None and (partition_id is None or self.may_have(row, partition_id))
        )

    def rows_named(self, state: LakeTableState, partition_id: PartitionId) -> tuple[Row, ...]:
        """Return the ledger rows of keys with a partition id, whatever their partition key.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        rows = self._keys(state).values()
        return tuple(row for row in rows if row.key.partition_id == partition_id.value)

    def may_have(self, row: Row, partition_id: PartitionId) -> bool:
        """Whether a key may have rows in a partition, according to the ledger."""
        return not self.membership.is_own(row) or self.membership.is_of(row, partition_id)

    def refuse_named_elsewhere(
        self, what: str, state: LakeTableState, partition_id: PartitionId
    ) -> None:
        """Refuse a partition id of a table with another partition key if its rows are here.

        Args:
            what: the statement, for the error.
            state: the table's state, which has no file in a partition of that id.
            partition_id: the partition id.

        Raises:
            RefusedError: a key of such a table has the id, and rows in main or detached.
            DestinationError: a branch, or a file, cannot be read.
            LedgerError: the ledger cannot be read.
        """
        for row in self.rows_named(state, partition_id):
            if self.membership.is_own(row):
                continue
            files = self._files_of(row, state)
            if lie := sorted(
                {str(one) for file in files for one in self.membership.ids(file, state)}
            ):
                message = (
                    f"Cannot run {what}: partition {partition_id} is one of {row.source_table}, "
                    f"which has another partition key than the one recorded in {self.name}, and "
                    f"its rows are in partition {', '.join(lie)} here. Name that, or its files as "
                    "parts (the system tables parts and detached_parts list them)."
                )
                raise RefusedError(message)

    def _has_rows(self, row: Row, state: LakeTableState, partition_id: PartitionId) -> bool:
        """Whether a file of a key with another partition key belongs to a partition."""
        files = self._files_of(row, state)
        return any(self.membership.belongs_to(file, state, partition_id, row) for file in files)

    def _files_of(self, row: Row, state: LakeTableState) -> tuple[BranchFile, ...]:
        """Return the files of a key in main and the detached ones."""
        both = (*self.lake.files_on(state, MAIN_BRANCH), *self.detached(state))
        return tuple(file for file in both if key_in(file.path) == row.key.hash)

    def detached(self, state: LakeTableState) -> tuple[BranchFile, ...]:
        """Return all detached files.

        Raises:
            DestinationError: the branch cannot be read.
        """
        return self.lake.files_on(state, DETACHED_BRANCH)

    def _by_key(
        self,
        state: LakeTableState,
        known: _KeysOfTable,
        partition_id: PartitionId | None,
        branch: str,
        *,
        each: bool,
        by_name: bool,
    ) -> tuple[FilesOfKey, ...]:
        found: defaultdict[Key, list[BranchFile]] = defaultdict(list)
        for file in self.lake.files_on(state, branch):
            row = known.row_of(file, partition_id)
            if partition_id is not None:
                key = self.membership.key_in(file, row, state, partition_id, by_name=by_name)
            elif row is not None:
                key = row.key
            elif each and not file.rows:
                # It belongs to no partition, and has no row that could change.
                continue
            else:
                key = self.membership.key_of_others(file, state) if each else own_key(state, None)
            if key is not None:
                found[key].append(file)
        states = ((key, tuple(own), known.find(key.hash)) for key, own in sorted(found.items()))
        return tuple(
            FilesOfKey(key, files, at.row, self.membership.is_own(at.row))
            if at is not None
            else FilesOfKey(key, files)
            for key, files, at in states
        )

    def _keys(self, state: LakeTableState) -> Mapping[str, Row]:
        """Return the ledger's rows for this table by the hash of their key."""
        rows = self.effects(Step.READ_LEDGER, lambda: tuple(self.ledger.rows()))
        return {r.key.hash: r for r in rows if r.key.destination == state.layout.table_uuid}


def refuse_other_columns(what: object, there: PartitionFiles, schema_id: int) -> None:
    """Refuse a table whose columns have changed since its files were examined.

    Raises:
        RefusedError: they have.
    """
    if there.schema_id != schema_id:
        message = (
            f"Cannot run {what}: the columns of the table were changed meanwhile. Run it again."
        )
        raise RefusedError(message)

"""Defines the contract of a commit: its content (`Commit`), its outcomes, and the lake table.

`tableformat/export/commit.py` implements the protocol (docs/spec/commit-protocol.md) on top of
it.

* `Sent` is the result of one request: applied for certain, or not known.
* `CommitOutcome` is the result of a commit. `Unknown` covers every case that is neither a success
  nor a proof; no file is deleted after it.
* `PropertyChange` holds the changes to table properties that a commit makes, for every kind of
  destination: the marks of its keys, the ledger's identity, the highest number of the ledger's
  counter, and the watermark (step 7; docs/spec/table-properties.md).
* `BranchFile`, `PrunedTag` and `TagChange` describe the branches and tags that mergeberg uses,
  their files, and the changes to tags.
* `Figures` and `Leaving` count the files and rows that a commit adds to main and removes from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from tableformat.errors import DestinationError, TableFormatError
from tableformat.file_names import data_below
from tableformat.receipt import Receipt
from tableformat.table_properties import EPOCH_PROPERTY, LEDGER_PROPERTY, MARK_PREFIX, Mark

__all__ = [
    "DETACHED_BRANCH",
    "MAIN_BRANCH",
    "Append",
    "AppendAlongside",
    "Attach",
    "BranchFile",
    "ByStatement",
    "Commit",
    "CommitOutcome",
    "Committed",
    "Conflicted",
    "DetachLeaving",
    "DetachedChange",
    "DiscardDetached",
    "FetchFiles",
    "Figures",
    "FileInMain",
    "FilesOfMain",
    "KeyCommit",
    "LakeTable",
    "LakeTableState",
    "Layout",
    "Leaving",
    "MainChange",
    "NotSent",
    "PartitionFile",
    "PropertyChange",
    "PrunedTag",
    "ReplaceOwn",
    "ReplacePartition",
    "SchemaChange",
    "Sent",
    "Sized",
    "SnapshotSeen",
    "Staged",
    "Superseded",
    "TagChange",
    "Unknown",
    "counted_files",
    "property_change",
]


class Sized(Protocol):
    """A file with its number of rows and its size."""

    @property
    def rows(self) -> int:
        """The number of its rows."""
        ...

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Figures:
    """The number of files, rows and bytes; `bytes` is None if files are not written yet."""

    files: int = 0
    rows: int = 0
    bytes: int | None = 0

    def __add__(self, other: Figures) -> Figures:
        """Return the sum of both."""
        unknown = self.bytes is None or other.bytes is None
        size = None if unknown else (self.bytes or 0) + (other.bytes or 0)
        return Figures(self.files + other.files, self.rows + other.rows, size)


@dataclass(frozen=True, slots=True)
class Leaving:
    """The files that leave main for a key, with their rows and bytes.

    `foreign_files` and `foreign_rows` count those of other writers. `before` is the snapshot of
    main before the commit, None if there is none. `copied_back`: the files that the partition had
    there can be copied back, all of them.
    """

    paths: tuple[str, ...] = ()
    rows: int = 0
    foreign_files: int = 0
    foreign_rows: int = 0
    bytes: int = 0
    before: int | None = None
    copied_back: bool = True

    @property
    def figures(self) -> Figures:
        """Files, rows and bytes."""
        return Figures(len(self.paths), self.rows, self.bytes)


def counted_files(files: Iterable[Sized]) -> Figures:
    """Return the figures of files."""
    found = tuple(files)
    return Figures(len(found), sum(f.rows for f in found), sum(f.bytes for f in found))


@dataclass(frozen=True, slots=True)
class Layout:
    """The table, schema, spec and sort order for which files were written; each commit requires it.

    So the files can land only in the table for which they were written.
    """

    table_uuid: str
    schema_id: int
    spec_id: int
    sort_order_id: int


@dataclass(frozen=True, slots=True)
class Append:
    """Adds the files of a key to main; the key's own earlier files leave in the same snapshot.

    Refused if main would have fewer rows of the key, or if these are the key's only files in a
    partition with files of other writers.
    """


@dataclass(frozen=True, slots=True)
class AppendAlongside:
    """As `Append`, also into a partition with files of other writers, which stay.

    Refused if another writer removed the key's own files: its files may hold the same rows.
    """


@dataclass(frozen=True, slots=True)
class ReplaceOwn:
    """Replaces the key's own files, also by fewer rows (`--force`).

    `alongside`: the partition may have files of other writers, which stay.
    """

    alongside: bool = False


@dataclass(frozen=True, slots=True)
class ReplacePartition:
    """Replaces all files of the lake partition, of any writer (`--force --replace-partition`)."""


@dataclass(frozen=True, slots=True)
class Attach:
    """Adds the files of a key of which main has no file (ATTACH PARTITION … FROM)."""


@dataclass(frozen=True, slots=True)
class ByStatement:
    """Changes the key's files as the plan of a statement on the lake table says.

    `returns` are the paths of files that come back to main from the branch `detached`. Only the
    statement's own transaction proves that it landed, never one with the same fingerprint.
    """

    returns: tuple[str, ...] = ()


MainChange = Append | AppendAlongside | ReplaceOwn | ReplacePartition | Attach | ByStatement
"""How main changes for one key of a commit."""


@dataclass(frozen=True, slots=True)
class KeyCommit:
    """The change of main for one key of a commit: its new files by receipt, and how they enter.

    `key` is the 26-character hash of the ledger key, `partition_id` the partition's id in the
    source.
    """

    key: str
    epoch: int
    transaction_id: str
    fingerprint: str
    receipts: tuple[Receipt, ...]
    change: MainChange = field(default_factory=Append)
    partition_id: str = ""

    @property
    def returns(self) -> tuple[str, ...]:
        """The paths of files that come back to main from the branch `detached`."""
        return self.change.returns if isinstance(self.change, ByStatement) else ()


@dataclass(frozen=True, slots=True)
class DetachLeaving:
    """Adds the files that leave main to the branch `detached` at the same time (DETACH)."""


@dataclass(frozen=True, slots=True)
class FetchFiles:
    """Adds the files of the keys to the branch `detached`; main does not change (FETCH)."""


@dataclass(frozen=True, slots=True)
class DiscardDetached:
    """Removes the files at `paths` from the branch `detached`; main does not change."""

    paths: tuple[str, ...]


DetachedChange = DetachLeaving | FetchFiles | DiscardDetached
"""How a commit changes the branch `detached`, apart from files that return to main."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The changes that become visible in one snapshot.

    * `keys`: empty for the first snapshot and for the fence.
    * `ledger`: the identity of the ledger. `summary`: entries of the snapshot's summary.
    * `number`: drawn from the ledger's counter for each attempt. A restored older copy of the
      ledger is detected by it (`h-ledger-restored` in docs/spec/model/results.md).
    * `watermark`: a table property, and its value after the snapshot's id; '' to remove it.
    * `detached`: the change of the branch `detached`, None for none.
    """

    keys: tuple[KeyCommit, ...]
    layout: Layout
    ledger: str
    summary: tuple[tuple[str, str], ...] = ()
    number: int = 0
    watermark: tuple[str, str] | None = None
    detached: DetachedChange | None = None


@dataclass(frozen=True, slots=True)
class SnapshotSeen:
    """One snapshot of the table's metadata; the added figures are None if its summary lacks them.

    `made` is milliseconds since 1970, by the clock of the writer.
    """

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    operation: str
    added_rows: int | None = None
    added_files: int | None = None
    made: int = 0


@dataclass(frozen=True, slots=True)
class LakeTableState:
    """M: one loaded metadata object, from which all decisions of a turn are made.

    `snapshots` is by id. `main` is None if the table never had a snapshot. `handle` is the
    implementation's own object for the same metadata. `tree` is the root of a tree of Hive
    directories (`tableformat/hive`), '' for a table of a catalog. `replaced` are the transaction
    ids of exports in a tree that later exports replaced.
    """

    layout: Layout
    format_version: int
    location: str
    main: int | None
    last_sequence_number: int
    properties: Mapping[str, str]
    snapshots: Mapping[int, SnapshotSeen]
    metadata_location: str
    handle: object = field(default=None, compare=False, repr=False)
    tree: str = ""
    replaced: frozenset[str] = frozenset()

    @property
    def data_location(self) -> str:
        """The location of the partition directories, with new data files.

        Raises:
            RefusedError: the table's property about it is not a valid location.
        """
        return data_below(self.location, self.tree, self.properties)

    @property
    def data_locations(self) -> frozenset[str]:
        """The locations of new data files, and of those before the table had a property about it.

        Raises:
            RefusedError: the table's property about it is not a valid location.
        """
        return frozenset({self.data_location, data_below(self.location, self.tree, {})})

    def mark(self, key: str) -> Mark | None:
        """Return the mark of a key hash, None if the table has none.

        Raises:
            DestinationError: the property is not a mark.
        """
        text = self.properties.get(MARK_PREFIX + key)
        return Mark.parse(text) if text is not None else None

    @property
    def marks(self) -> Mapping[str, Mark]:
        """All marks of the table, by key hash.

        Raises:
            DestinationError: a property is not a mark.
        """
        found = (k.removeprefix(MARK_PREFIX) for k in self.properties if k.startswith(MARK_PREFIX))
        return {k: Mark.parse(self.properties[MARK_PREFIX + k]) for k in found}

    @property
    def highest_epoch(self) -> int:
        """The highest epoch or attempt number in any commit of the ledger, 0 before the first.

        Raises:
            DestinationError: the property is not a number.
        """
        text = self.properties.get(EPOCH_PROPERTY, "0")
        if not text.isdecimal():
            message = (
                f"Cannot read the table's property {EPOCH_PROPERTY}: {text!r} is not a number. It "
                "was edited; put the value back from an earlier metadata file."
            )
            raise DestinationError(message)
        return int(text)

    def ancestors(self) -> Iterator[SnapshotSeen]:
        """Yield `main` and its ancestors as far as they are known, the latest first."""
        seen = self.main
        while seen is not None and seen in self.snapshots:
            yield self.snapshots[seen]
            seen = self.snapshots[seen].parent_id

    def is_ancestor(self, snapshot_id: int) -> bool:
        """Whether a snapshot is `main` or an ancestor of it."""
        seen = self.main
        while seen is not None and seen in self.snapshots:
            if seen == snapshot_id:
                return True
            seen = self.snapshots[seen].parent_id
        return seen == snapshot_id

    @property
    def history_is_complete(self) -> bool:
        """Whether all ancestors of `main` are known, down to the first snapshot of the table.

        A snapshot without a parent may not be the first: when PyIceberg expires a snapshot, it
        removes the parent id from the children. The first snapshot has sequence number 1.
        """
        seen = self.main
        while seen is not None and seen in self.snapshots:
            one = self.snapshots[seen]
            if one.parent_id is None:
                return one.sequence_number == 1
            seen = one.parent_id
        return self.main is None


@dataclass(frozen=True, slots=True)
class Staged:
    """An attempt: one staged snapshot with its own manifests.

    Once the table's last sequence number has reached `sequence_number`, the attempt can no longer
    be applied (the fence). `files` are its manifests and its manifest list.
    """

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    files: tuple[str, ...]
    handle: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FileInMain:
    """A data file of main; `deletes`: delete files may apply to it."""

    path: str
    rows: int
    deletes: bool
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """A data file of main that may have rows of a partition, and the snapshot that added it.

    `key` is the key hash in its name, '' for none. `whole`: all its rows belong to the partition.
    """

    path: str
    rows: int
    snapshot_id: int
    key: str
    whole: bool
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of a table's schema, without a snapshot.

    `schema_json` is the whole new schema, without an id. `added` and `widened` describe the changes
    in messages; if both are empty, the schema stays. `properties` are set in the same commit.
    """

    schema_json: str
    added: tuple[str, ...]
    properties: tuple[tuple[str, str], ...] = ()
    widened: tuple[str, ...] = ()

    @property
    def is_of_schema(self) -> bool:
        """Whether the schema changes, not only properties."""
        return bool(self.added or self.widened)


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of one request: applied for certain, or unknown, with the `error`."""

    applied: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """The key has landed, by a request of this run or of an earlier owner (`epoch`).

    `in_main` is false if main was moved away from it since (a rollback). `leaves` are the files
    that left main in the same snapshot.
    """

    snapshot_id: int
    epoch: int
    attempts: int
    in_main: bool
    leaves: Leaving = field(default_factory=Leaving)


@dataclass(frozen=True, slots=True)
class Conflicted:
    """The key did not land and can no longer land; `by` is the reason."""

    by: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another owner has claimed the key since; this run must not touch its data files any more.

    `may_land`: a request that was sent before may still be applied.
    """

    by: str
    may_land: bool = False


@dataclass(frozen=True, slots=True)
class NotSent:
    """No request was sent, or none can still be applied, so the key cannot land; with the error."""

    error: TableFormatError


@dataclass(frozen=True, slots=True)
class Unknown:
    """The key may have landed. Nothing was deleted; the next run settles it."""

    evidence: str


CommitOutcome = Committed | Conflicted | Superseded | NotSent | Unknown


class FilesOfMain(Protocol):
    """The data files of main that have the rows of exports (`export/main_state.py`)."""

    def files_of(
        self,
        state: LakeTableState,
        key: str,
        at: int | None = None,
        also: Collection[str] = (),
    ) -> tuple[FileInMain, ...]:
        """Return the data files of a key in snapshot `at`, or in main.

        These are the files with the key in their names, and those at the paths `also`.
        """
        ...

    def rewritten(
        self, state: LakeTableState, files: Collection[FileInMain], since: Iterable[int]
    ) -> tuple[FileInMain, ...] | None:
        """Return the files of main with the rows of earlier files, which other writers rewrote.

        Args:
            state: the table's metadata.
            files: files of an earlier snapshot of main, to which no deletes applied.
            since: the snapshots of main after that one, oldest first.

        Returns:
            The files, which may also have other rows of the same lake partitions; None if the
            metadata does not prove that they have all rows of `files`.
        """
        ...

    def paths_in_main(self, state: LakeTableState) -> tuple[str, ...]:
        """Return the paths of all data files of main, of any writer."""
        ...


class LakeTable(FilesOfMain, Protocol):
    """An Iceberg table as the commit protocol needs it.

    Every call may fail with DestinationError.
    """

    def load(self) -> LakeTableState:
        """Load the current metadata with all snapshots, never from a cache."""
        ...

    def files_in(
        self, state: LakeTableState, partition: tuple[str | None, ...]
    ) -> tuple[PartitionFile, ...]:
        """Return the data files of main that may have rows of a partition, of any writer.

        `partition` is as in `Receipt`, by the spec of `state`. A file of another spec is included
        unless its partition values exclude the partition.
        """
        ...

    def refers_to(
        self, state: LakeTableState, key: str, transaction_ids: Collection[str]
    ) -> frozenset[str]:
        """Return the paths of data files of these exports to which any snapshot of `state` refers.

        This covers the snapshots of all branches and tags (step 10).
        """
        ...

    def metadata_files(self, state: LakeTableState) -> frozenset[str]:
        """Return all metadata files that `state` and its snapshots refer to.

        These are metadata versions, manifest lists, manifests and statistics, not data files.
        """
        ...

    def stage(self, state: LakeTableState, commit: Commit, leaves: tuple[str, ...] = ()) -> Staged:
        """Write the manifests of one attempt with the parent `state.main`; nothing becomes visible.

        The snapshot has the files of main except those at the paths `leaves`. A commit without keys
        stages an empty append (first snapshot, or the fence). A commit that detaches or returns
        files also stages a snapshot of the branch `detached`, which is sent in the same request; a
        commit with `FetchFiles` or `DiscardDetached` stages only that snapshot.
        """
        ...

    def send(
        self, state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
    ) -> Sent:
        """Send one request to the catalog to apply an attempt.

        The request requires uuid, schema, spec, sort order and main as in `state`. It adds the
        snapshot, moves main, sets the marks of `commit` and the ledger's identity and highest
        epoch, and removes `remove_marks`. Every response except a success is `applied=False`: the
        request may still have been applied.
        """
        ...

    def evolve(self, state: LakeTableState, change: SchemaChange) -> Sent:
        """Send one request to the catalog for a schema change, without a snapshot.

        The request requires uuid, current schema and last column id as in `state`, so it applies at
        most once. Every response except a success is `applied=False`: the request may still have
        been applied.
        """
        ...

    def in_use(self, state: LakeTableState, staged: Staged) -> bool:
        """Whether any snapshot of `state` refers to a manifest of the attempt (step 10)."""
        ...

    def discard(self, staged: Staged) -> None:
        """Delete the manifests of an attempt that can no longer land and is not in use."""
        ...


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """Table properties to set, and the names of properties to remove."""

    set: Mapping[str, str]
    removed: tuple[str, ...]


def property_change(
    state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
) -> PropertyChange:
    """Return the changes of table properties by an attempt.

    Args:
        state: M, on which it was staged.
        staged: the attempt.
        commit: its commit.
        remove_marks: the keys whose mark is no longer needed.
    """
    epochs = [state.highest_epoch, commit.number, *(k.epoch for k in commit.keys)]
    properties = {LEDGER_PROPERTY: commit.ledger, EPOCH_PROPERTY: str(max(epochs))}
    for key in commit.keys:
        mark = Mark(key.epoch, key.transaction_id, key.fingerprint, staged.snapshot_id)
        properties[MARK_PREFIX + key.key] = mark.text
    removed = [MARK_PREFIX + k for k in remove_marks]
    if commit.watermark is not None:
        name, value = commit.watermark
        if value:
            properties[name] = f"{staged.snapshot_id}:{value}"
        elif name in state.properties:
            removed.append(name)
    return PropertyChange(properties, tuple(removed))


MAIN_BRANCH: Final = "main"
DETACHED_BRANCH: Final = "detached"
"""The branch with the files that DETACH removed from main, until ATTACH or DROP DETACHED."""


@dataclass(frozen=True, slots=True)
class BranchFile:
    """A data file of a branch; `deletes`: delete files may apply to it.

    `bytes` is its size, `spec_id` the partition spec with which it was written, and `partition` has
    its values by that spec. `sequence_number` is that of the snapshot that added the file to the
    branch, 0 if it is unknown. `other_form` is what it is if it is no plain Parquet file, '' if it
    is one.
    """

    path: str
    rows: int
    bytes: int
    spec_id: int
    deletes: bool = False
    sequence_number: int = 0
    partition: tuple[object, ...] = ()
    other_form: str = ""


@dataclass(frozen=True, slots=True)
class PrunedTag:
    """A tag on a snapshot that was staged for it, with fewer files than the snapshot before.

    `before` is the current snapshot of the tag, None if the tag is new.
    """

    name: str
    staged: Staged
    before: int | None = None


@dataclass(frozen=True, slots=True)
class TagChange:
    """A change of tags and properties, without a change of main.

    `added` are the names of new tags on main, `removed` the names of removed tags with their
    snapshots. `pruned` are tags on snapshots that were staged for them.
    """

    added: tuple[str, ...] = ()
    pruned: tuple[PrunedTag, ...] = ()
    removed: tuple[tuple[str, int], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    removed_properties: tuple[str, ...] = ()

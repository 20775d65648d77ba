"""Opens a tree of Hive directories by its root, as a `committer.LakeTable` without a catalog.

The log of the tree decides what is committed, by put-if-absent. A commit file publishes an entry to
other readers (docs/spec/hive.md).

- A run that loads a tree for an export writes the commit files that an earlier run did not write,
  after it compared size and SHA-256 of their data files. It then removes the commit files of
  replaced exports.
- The data files of replaced exports are kept for `grace`.
- A commit file must match the tree. A missing data file, other bytes or a commit file of another
  export is an error that names it (`TreeFiles`).
- The name of a tree is its full location, so each tree has one name (`tree_name`).
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from catalog.ledgers.memory import milliseconds
from catalog.network import DEFAULT_TIME_OUTS, TimeOuts
from catalog.storages.local import local_directory
from catalog.storages.schemes import Storages, is_remote
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_TABLE
from tableformat.committer import (
    Commit,
    FileInMain,
    LakeTableState,
    PartitionFile,
    SchemaChange,
    Sent,
    Staged,
)
from tableformat.errors import (
    DestinationError,
    MissingError,
    NotFoundError,
    UnsupportedError,
    UsageError,
)
from tableformat.file_names import key_in
from tableformat.hive.documents import (
    CommitFile,
    CommittedFile,
    TreeIdentity,
    commit_name,
    is_commit_name,
    new_identity,
    without_replaced,
)
from tableformat.hive.layout import TreePaths
from tableformat.hive.levels import tree_directory
from tableformat.hive.log import LogEntry, LoggedFile, LogIndex, entry_of, state_after
from tableformat.names import HiveName, LakeName
from tableformat.quantities import counted
from tableformat.storage import Storage

__all__ = [
    "GRACE",
    "HiveTable",
    "OpenedTree",
    "PublishedCommits",
    "TreeFiles",
    "open_tree",
    "tree_name",
]

_MOST_LOOKS: Final = 10


@dataclass(frozen=True, slots=True)
class TreeFiles:
    """The data files and commit files of a tree in a storage."""

    storage: Storage
    paths: TreePaths

    def check(self, commit: CommitFile, file: CommittedFile, *, content: bool) -> None:
        """Check that a data file has the size of its commit file, and with `content` its SHA-256.

        Raises:
            DestinationError: the file is missing, differs, or cannot be read.
        """
        location = self.paths.absolute(file.path)
        try:
            is_same = self.storage.size(location) == file.bytes and (
                not content or self.storage.sha256(location) == file.sha256
            )
        except MissingError as error:
            raise self._unusable(commit, file, "gone") from error
        if not is_same:
            raise self._unusable(commit, file, "not what was written")

    def content(self, commit: CommitFile, file: CommittedFile) -> bytes:
        """Return the bytes of a data file, after they were compared with its commit file.

        Raises:
            DestinationError: the file is missing, differs, or cannot be read.
        """
        try:
            data = self.storage.read(self.paths.absolute(file.path))
        except MissingError as error:
            raise self._unusable(commit, file, "gone") from error
        if (len(data), hashlib.sha256(data).hexdigest()) != (file.bytes, file.sha256):
            raise self._unusable(commit, file, "not what was written")
        return data

    def _unusable(self, commit: CommitFile, file: CommittedFile, why: str) -> DestinationError:
        return DestinationError(
            f"Cannot use {self.paths.absolute(file.path)}, a file of the export {commit.name}: it "
            f"is {why}. Put it back from a copy, or export to another tree."
        )

    def commits(self, tree: str) -> Iterator[CommitFile]:
        """Yield the commit files of the current exports, without those that another one replaces.

        Args:
            tree: the UUID of the tree.

        Raises:
            DestinationError: a commit file was changed since it was written, or belongs to another
                tree.
        """
        last: MissingError | None = None
        listed = self.listed()
        for _ in range(_MOST_LOOKS):
            # A replacement during a listing of a directory may be missing in it, and what it
            # replaced, too. Two equal listings had none between them.
            before, listed = listed, self.listed()
            if listed != before:
                continue
            try:
                yield from without_replaced(tuple(self.commit(n, tree) for n in sorted(listed)))
            except MissingError as error:
                # It was replaced between listing and reading: the next list has its successor.
                last = error
            else:
                return
        message = (
            f"Cannot read the commit files in {self.paths.commits}: in {_MOST_LOOKS} attempts they "
            f"changed meanwhile{f', the last time: {last}' if last else ''}. Run it again."
        )
        raise DestinationError(message)

    def listed(self) -> set[str]:
        """Return the names of all commit files, including those of replaced exports."""
        names = (o.location.rsplit("/", 1)[-1] for o in self.storage.list(self.paths.commits))
        return {name for name in names if is_commit_name(name)}

    def commit(self, name: str, tree: str) -> CommitFile:
        """Return the commit file of a name.

        Raises:
            MissingError: it does not exist.
            DestinationError: it was changed since it was written, or belongs to another tree.
        """
        at = self.paths.commit(name)
        found = CommitFile.from_bytes(self.storage.read(at), at)
        if (found.name, found.tree) != (name, tree):
            message = (
                f"Cannot use {at}: it belongs to {found.name} of the tree {found.tree}, but this "
                f"is {tree}. It was copied here; remove it."
            )
            raise DestinationError(message)
        return found


class PublishedCommits:
    """Writes and removes a tree's commit files, and remembers which exist."""

    def __init__(self, files: TreeFiles) -> None:
        """Start without a list of commit files."""
        self._files = files
        self._there: set[str] = set()

    def complete(self, index: LogIndex) -> None:
        """Write missing commit files of current exports, then remove those of replaced exports.

        A commit file is missing if the run that committed died before it wrote it, or if it was
        deleted.

        Raises:
            DestinationError: a data file does not match its commit file, or the storage refuses.
        """
        current = index.counting
        if not all(commit.name in self._there for commit in current):
            self._there |= self._files.listed()
        for commit in current:
            if commit.name not in self._there:
                for file in commit.files:
                    self._files.check(commit, file, content=True)
                self.put(commit)
        for replaced in index.until:
            self._withdraw(index.commits[replaced].name)

    def put(self, commit: CommitFile) -> None:
        """Write a commit file, and then remove those that it replaces."""
        # Concurrent runs write the same bytes.
        at = self._files.paths.commit(commit.name)
        self._files.storage.put_if_absent(at, commit.to_bytes())
        self._there.add(commit.name)
        for replaced in commit.replaces:
            self._withdraw(commit_name(commit.partition_id, replaced))

    def _withdraw(self, name: str) -> None:
        """Remove the commit file of a replaced export, if this process knows that it exists.

        A delayed run may write it again. Readers ignore it then, because its successor names it as
        replaced.
        """
        if name in self._there:
            self._files.storage.delete(self._files.paths.commit(name))
            self._there.discard(name)


GRACE: Final = 86_400_000
"""Milliseconds for which the data files of a replaced export are kept."""

_SNAPSHOT_BITS: Final = 62
_ENTRY: Final = re.compile(r"\d+\.json")


def open_tree(
    name: HiveName,
    *,
    warehouse: Path | None = None,
    time_outs: TimeOuts = DEFAULT_TIME_OUTS,
    completes: bool = True,
) -> OpenedTree:
    """Open a tree by its location; it need not exist yet.

    Args:
        name: as `tree_name` returns it.
        warehouse: the directory of the local catalog; a tree on a local disk keeps its default
            ledger there.
        time_outs: for storage over a network.
        completes: whether a load writes missing commit files and removes replaced ones.

    Raises:
        UsageError: the scheme is unsupported, or the configuration does not say how to reach it.
    """
    local_warehouse = local_directory(warehouse) if warehouse and not is_remote(name.uri) else None
    # Credentials go only to the host in the tree's location.
    storages = Storages({"warehouse": name.uri}, time_outs)
    return OpenedTree(name, storages, local_warehouse, completes)


@dataclass(frozen=True, slots=True)
class OpenedTree:
    """A tree, existing or not: a `tableformat.export.ports.Lake` with this one table.

    `storages` open its locations. `local_warehouse` is the directory of the default ledger, if
    there is one. `grace` is the time in milliseconds for which the data files of a replaced export
    are kept for readers that began earlier.
    """

    name: HiveName
    storages: Storages
    local_warehouse: Path | None = None
    completes: bool = True
    grace: int = GRACE
    storage: Storage = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Open the storage of the tree's root.

        Raises:
            UsageError: the scheme is unsupported, or the configuration does not say how to reach
                it.
        """
        object.__setattr__(self, "storage", self.storages(self.name.uri))

    @property
    def ledger_directory(self) -> Path | None:
        """The directory of the default ledger, None if there is none."""
        return self.local_warehouse

    @property
    def paths(self) -> TreePaths:
        """The paths of the tree's files."""
        return TreePaths(self.name.uri)

    def identity(self) -> TreeIdentity | None:
        """Return the identity of the tree, None if the tree does not exist.

        Raises:
            DestinationError: the identity cannot be read, or is damaged.
        """
        at = self.paths.identity
        try:
            data = self.storage.read(at)
        except MissingError:
            return None
        return TreeIdentity.from_bytes(data, at)

    def table(self, name: LakeName) -> HiveTable | None:  # noqa: ARG002  a tree has one name
        """Return the tree, None if it does not exist."""
        identity = self.identity()
        return HiveTable(self, identity) if identity is not None else None

    def create(
        self,
        name: LakeName,
        *,
        schema: Schema,
        spec: PartitionSpec,
        order: SortOrder,
        properties: Mapping[str, str],
    ) -> HiveTable:
        """Create the tree; return the existing one if another process created it meanwhile."""
        identity = new_identity(schema, spec, order, properties)
        self.storage.put_if_absent(self.paths.identity, identity.to_bytes())
        found = self.table(name)
        if found is None:
            message = f"Cannot create {name}: its identity disappeared at once. Run it again."
            raise NotFoundError(message)
        return found

    @property
    def files(self) -> TreeFiles:
        """The tree's data files and commit files."""
        return TreeFiles(self.storage, self.paths)

    def commit_files(self) -> Iterator[CommitFile]:
        """Yield the commit files of the current exports; none if the tree does not exist.

        Raises:
            DestinationError: a commit file was changed since it was written, or belongs to another
                tree.
        """
        identity = self.identity()
        if identity is not None:
            yield from self.files.commits(identity.uuid)


class HiveTable:
    """An existing tree, for one process, which caches entries of the log: they never change."""

    def __init__(self, opened: OpenedTree, identity: TreeIdentity) -> None:
        """Start without entries of the log."""
        self._opened = opened
        self.storages = opened.storages
        self._storage, self._paths = opened.storage, opened.paths
        self._identity = identity
        self._empty = identity.state(opened.name.uri)
        self._known: dict[int, LogEntry] = {}
        self._index = LogIndex.of((), opened.paths)
        self._published = PublishedCommits(opened.files)

    def load(self) -> LakeTableState:
        """Load the log; if the tree `completes`, write the missing commit files of landed exports.

        Raises:
            NotFoundError: the tree was removed or created again meanwhile (code 60).
            DestinationError: the tree cannot be read or completed, or is damaged.
        """
        found = self._opened.identity()
        if found is None or found.uuid != self._identity.uuid:
            message = (
                f"Cannot find {self._opened.name} any more: it was removed or created again "
                "meanwhile. Run it again."
            )
            raise NotFoundError(message, code=UNKNOWN_TABLE)
        self._read_log()
        state = state_after(self._empty, self._index.entries)
        if self._opened.completes:
            self._published.complete(self._index)
        return state

    def _read_log(self) -> None:
        entries_by_number: dict[int, LogEntry] = {}
        for stored in self._storage.list(self._paths.log(self._identity.uuid)):
            name = stored.location.rsplit("/", 1)[-1]
            if _ENTRY.fullmatch(name):
                number = int(name.partition(".")[0])
                entries_by_number[number] = self._known.get(number) or LogEntry.from_bytes(
                    self._storage.read(stored.location), stored.location
                )
        if entries_by_number != self._known:
            self._known = entries_by_number
            entries = (entries_by_number[number] for number in sorted(entries_by_number))
            self._index = LogIndex.of(tuple(entries), self._paths)

    def unseen(self, transaction_id: str) -> str:
        """Return why readers do not see a landed export, '' if its commit file exists.

        Raises:
            DestinationError: the commit file cannot be read, or differs from what was written.
        """
        name = self._index.commits[transaction_id].name
        try:
            self._opened.files.commit(name, self._identity.uuid)
        except MissingError:
            at = self._paths.commit(name)
            return f"its commit file {at} is not there; the next export writes it"
        return ""

    def files_of(
        self,
        state: LakeTableState,
        key: str,
        at: int | None = None,
        also: Collection[str] = (),  # noqa: ARG002
    ) -> tuple[FileInMain, ...]:
        """Return the data files that exports of a key hash added, as of a snapshot or of main.

        No other file of a tree has rows of a key.
        """
        last = _number(state, state.main if at is None else at)
        return tuple(
            FileInMain(one.location, one.rows, deletes=False, bytes=one.bytes)
            for one in self._index.by_key.get(key, ())
            if one.is_in(last)
        )

    def rewritten(
        self,
        state: LakeTableState,  # noqa: ARG002
        files: Collection[FileInMain],  # noqa: ARG002
        since: Iterable[int],  # noqa: ARG002
    ) -> tuple[FileInMain, ...] | None:
        """Return None: no commit of a tree rewrites files."""
        return None

    def paths_in_main(self, state: LakeTableState) -> tuple[str, ...]:
        """Return the locations of all committed data files."""
        last = _number(state, state.main)
        return tuple(at for at, one in self._index.by_location.items() if one.is_in(last))

    def files_in(
        self, state: LakeTableState, partition: tuple[str | None, ...]
    ) -> tuple[PartitionFile, ...]:
        """Return the data files in a partition's directory, including files of other writers.

        Files that no commit file names have 0 rows and snapshot 0, because their rows are not
        known. Files of replaced exports, which stay in the directory for a while, are left out.
        """
        last = _number(state, state.main)
        below = tree_directory(self._identity.levels, partition)
        directory = self._paths.absolute(below) if below else self._paths.root
        found = []
        for at in (o.location for o in self._storage.list(directory)):
            if self._paths.is_data(at):
                one = self._index.by_location.get(at)
                is_current = one is not None and one.is_in(last)
                if one is not None and one.entry.number <= last and not is_current:
                    continue
                rows, snapshot = (one.rows, one.entry.snapshot_id) if one and is_current else (0, 0)
                found.append(PartitionFile(at, rows, snapshot, key_in(at), whole=True))
        return tuple(found)

    def refers_to(
        self, state: LakeTableState, key: str, transaction_ids: Collection[str]
    ) -> frozenset[str]:
        """Return the locations of the committed data files of these exports of a key.

        Replaced files are included for as long as readers may use them.
        """
        last = _number(state, state.main)
        of_key = self._index.by_key.get(key, ())
        of_exports = (o for o in of_key if o.export.commit.transaction_id in transaction_ids)
        return frozenset(
            one.location
            for one in of_exports
            if one.is_in(last) or (one.entry.number <= last and self._is_kept(one))
        )

    def _is_kept(self, one: LoggedFile) -> bool:
        """Whether readers may still use a file, although its export may have been replaced.

        Yes within `grace`. After it, also while the commit file of the current export is missing or
        the commit file of this export still exists, because readers then find this file.
        """
        if one.until is None or milliseconds() - one.until.made < self._opened.grace:
            return True
        names = self._opened.files.listed()
        # The last export of a key is the current one.
        _, counting = self._index.exports[one.export.key][-1]
        return counting.name not in names or one.export.commit.name in names

    def metadata_files(self, state: LakeTableState) -> frozenset[str]:
        """Return the locations of the log's entries."""
        uuid, last = self._identity.uuid, _number(state, state.main)
        return frozenset(self._paths.log_entry(uuid, number) for number in range(1, last + 1))

    def stage(self, state: LakeTableState, commit: Commit, leaves: tuple[str, ...] = ()) -> Staged:
        """Begin an attempt; `send` writes it.

        Raises:
            UnsupportedError: a file would leave the tree that no export of the commit's keys wrote
                (code 48).
        """
        replaced = {f.path for key in commit.keys for f in self.files_of(state, key.key)}
        if others := [path for path in leaves if path not in replaced]:
            message = (
                f"Cannot remove {counted(len(others), 'file')} of {self._opened.name}, for example "
                f"{others[0]}: no export of the partition wrote them, and files of others never "
                "leave a tree of Hive directories. Remove them yourself."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
        return Staged(
            snapshot_id=secrets.randbits(_SNAPSHOT_BITS) | 1,
            parent_id=state.main,
            sequence_number=state.last_sequence_number + 1,
            files=(),
        )

    def send(
        self, state: LakeTableState, staged: Staged, commit: Commit, remove_marks: tuple[str, ...]
    ) -> Sent:
        """Write the next entry of the log, once, and then the commit files of its exports."""
        entry = entry_of(
            state,
            staged,
            commit,
            remove_marks,
            made=milliseconds(),
            earlier=partial(self._index.earlier, last=_number(state, state.main)),
        )
        at = self._paths.log_entry(self._identity.uuid, entry.number)
        try:
            if not self._storage.put_if_absent(at, entry.to_bytes()):
                return Sent(applied=False, error=f"another commit has number {entry.number}")
            for export in entry.exports:
                self._published.put(export.commit)
        except DestinationError as error:
            return Sent(applied=False, error=str(error))
        return Sent(applied=True)

    def evolve(self, state: LakeTableState, change: SchemaChange) -> Sent:  # noqa: ARG002  never sent
        """Return that nothing was sent: the columns of a tree never change."""
        return Sent(applied=False, error="the columns of a tree never change")

    def in_use(self, state: LakeTableState, staged: Staged) -> bool:
        """Whether the log has the attempt."""
        return staged.snapshot_id in state.snapshots

    def discard(self, staged: Staged) -> None:
        """Do nothing: an attempt that was not sent has written nothing."""


def _number(state: LakeTableState, at: int | None) -> int:
    """Return the number of the entry that made a snapshot, 0 without one."""
    return 0 if at is None else state.snapshots[at].sequence_number


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL: Final = re.compile(r"file:(?://)?(?=/)")


def tree_name(name: HiveName) -> HiveName:
    """Return the one name of a tree: its absolute location.

    Raises:
        UsageError: the text is neither a path nor a location with a scheme.
    """
    local = _LOCAL.match(name.uri)
    if local is None and _SCHEME.match(name.uri):
        return name
    path = name.uri[local.end() :] if local is not None else name.uri
    if local is None and ":" in path.split("/", 1)[0]:
        message = (
            f"Cannot use {name} as a destination: {path.split('/', 1)[0]!r} is no scheme with a "
            "location. Write hive:s3://BUCKET/PATH, hive:file:///PATH, or a path, such as ./a:b "
            "for one with a colon."
        )
        raise UsageError(message)
    # POSIX keeps two leading slashes; here they mean one.
    below = os.path.abspath(path).lstrip("/")  # noqa: PTH100  it takes .. out
    return HiveName.at(f"file:///{below}" if below else below)

"""Defines the log of a tree: one entry for each commit, numbered without gaps, each put if absent.

It takes the place of a catalog. An entry requires the previous one to be the last, so of two
concurrent commits only one succeeds (docs/decisions/0010-hive-destination.md). The tree's state
results from its entries in order. Other programs see only the commit files, which are created from
the entries.

`LogIndex` finds exported data files by key and location, and replaced exports. An export counts
from its own entry up to the entry that names it in `replaces`. The state of a tree as of an entry
consists of the exports that count then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tableformat.committer import Commit, LakeTableState, SnapshotSeen, Staged, property_change
from tableformat.errors import DestinationError
from tableformat.hive.documents import (
    TREE_FORMAT,
    CommitFile,
    CommittedFile,
    damaged,
    opened,
    sealed,
)
from tableformat.hive.layout import TreePaths

__all__ = [
    "LogEntry",
    "LogIndex",
    "LoggedExport",
    "LoggedFile",
    "entry_of",
    "state_after",
    "why_not_whole",
]


@dataclass(frozen=True, slots=True)
class LoggedExport:
    """One export of a commit: its key's hash, and the contents of its commit file."""

    key: str
    commit: CommitFile


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit. `number` counts from 1; `parent` is the previous entry's snapshot, if any.

    `made` is milliseconds since 1970. `set_properties` and `removed_properties` change the tree's
    properties. An entry without exports is the first one, or a fence
    (docs/spec/commit-protocol.md).
    """

    tree: str
    number: int
    snapshot_id: int
    parent: int | None
    made: int
    exports: tuple[LoggedExport, ...]
    set_properties: tuple[tuple[str, str], ...]
    removed_properties: tuple[str, ...]
    summary: tuple[tuple[str, str], ...]

    @property
    def files(self) -> tuple[CommittedFile, ...]:
        """All files that the entry adds."""
        return tuple(f for e in self.exports for f in e.commit.files)

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        exports = [{**asdict(e), "commit": e.commit.body()} for e in self.exports]
        form = max((e.commit.format for e in self.exports), default=TREE_FORMAT)
        return sealed({**asdict(self), "exports": exports}, form)

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> LogEntry:
        """Parse the stored form.

        Args:
            data: the stored form.
            what: names the document in errors.

        Raises:
            DestinationError: it was changed since it was written, or has another format.
        """
        raw = opened(data, what)
        try:
            raw["exports"] = tuple(_export(e) for e in raw["exports"])
            raw["set_properties"] = tuple((k, v) for k, v in raw["set_properties"])
            raw["removed_properties"] = tuple(raw["removed_properties"])
            raw["summary"] = tuple((k, v) for k, v in raw["summary"])
            return cls(**raw)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(what, repr(error)) from error


def entry_of(
    state: LakeTableState,
    staged: Staged,
    commit: Commit,
    remove_marks: tuple[str, ...],
    *,
    made: int,
    earlier: Callable[[str], tuple[str, ...]],
) -> LogEntry:
    """Return the entry of an attempt.

    Args:
        state: the state on which it was staged.
        staged: the attempt.
        commit: the content to make visible.
        remove_marks: keys whose mark is no longer needed.
        made: the current time, in milliseconds since 1970.
        earlier: returns the transaction ids of a key's exports in the log of `state`.
    """
    change = property_change(state, staged, commit, remove_marks)
    paths = TreePaths(state.tree)
    source_table = dict(commit.summary).get("mergeberg.source-table", "")
    exports = tuple(
        LoggedExport(
            key.key,
            CommitFile(
                tree=state.layout.table_uuid,
                source_table=source_table,
                partition_id=key.partition_id,
                transaction_id=key.transaction_id,
                fingerprint=key.fingerprint,
                files=tuple(
                    CommittedFile(paths.relative(r.file_path), r.file_bytes, r.rows, r.sha256)
                    for r in key.receipts
                ),
                replaces=earlier(key.key),
            ),
        )
        for key in commit.keys
    )
    return LogEntry(
        tree=state.layout.table_uuid,
        number=staged.sequence_number,
        snapshot_id=staged.snapshot_id,
        parent=staged.parent_id,
        made=made,
        exports=exports,
        set_properties=tuple(sorted(change.set.items())),
        removed_properties=change.removed,
        summary=commit.summary,
    )


def why_not_whole(entries: Sequence[LogEntry], tree: str) -> str:
    """Return '' if the entries are a complete log, else the reason why not."""
    parent = None
    for number, entry in enumerate(entries, start=1):
        if entry.tree != tree:
            return f"entry {number} is of another tree, {entry.tree}"
        if entry.number != number:
            return f"entry {number} is missing"
        if entry.parent != parent:
            return f"entry {number} follows on snapshot {entry.parent}, and before it is {parent}"
        parent = entry.snapshot_id
    return ""


def state_after(empty: LakeTableState, entries: Sequence[LogEntry]) -> LakeTableState:
    """Return the state of a tree: its identity, with every entry of its log applied.

    Args:
        empty: the state before the first entry.
        entries: the log from its beginning.

    Raises:
        DestinationError: an entry is missing, or belongs to another tree.
    """
    if wrong := why_not_whole(entries, empty.layout.table_uuid):
        message = (
            f"Cannot read the log of {empty.tree}: {wrong}. Put the log back from a copy; nothing "
            "can be exported there without it."
        )
        raise DestinationError(message)
    properties = dict(empty.properties)
    snapshots: dict[int, SnapshotSeen] = {}
    for entry in entries:
        properties.update(entry.set_properties)
        for name in entry.removed_properties:
            properties.pop(name, None)
        snapshots[entry.snapshot_id] = _seen(entry)
    return LakeTableState(
        layout=empty.layout,
        format_version=empty.format_version,
        location=empty.location,
        main=entries[-1].snapshot_id if entries else None,
        last_sequence_number=len(entries),
        properties=properties,
        snapshots=snapshots,
        metadata_location=empty.metadata_location,
        handle=empty.handle,
        tree=empty.tree,
        replaced=frozenset(t for e in entries for x in e.exports for t in x.commit.replaces),
    )


def _seen(entry: LogEntry) -> SnapshotSeen:
    return SnapshotSeen(
        entry.snapshot_id,
        entry.parent,
        entry.number,
        _operation(entry),
        sum(f.rows for f in entry.files),
        len(entry.files),
        entry.made,
    )


def _operation(entry: LogEntry) -> str:
    """Return an entry's operation in the terms of Iceberg's snapshots."""
    if not any(e.commit.replaces for e in entry.exports):
        return "append"
    return "overwrite" if entry.files else "delete"


def _export(raw: dict[str, Any]) -> LoggedExport:
    commit = dict(raw["commit"])
    commit["files"] = tuple(CommittedFile(**f) for f in commit["files"])
    commit["replaces"] = tuple(commit.get("replaces", ()))
    return LoggedExport(raw["key"], CommitFile(**commit))


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A data file that a log entry adds; `until` is the entry that replaces its export."""

    entry: LogEntry
    export: LoggedExport
    location: str
    rows: int
    bytes: int
    until: LogEntry | None

    def is_in(self, last: int) -> bool:
        """Whether the file is exported when the log ends with the entry of this number."""
        return self.entry.number <= last and (self.until is None or last < self.until.number)


@dataclass(frozen=True, slots=True)
class LogIndex:
    """The index of a whole log, computed once for thousands of look-ups.

    `exports` are those of a key in order, each with the number of its entry. `commits` has the
    commit file of each export, and `until` the entry that replaced it, both by transaction id.
    """

    entries: tuple[LogEntry, ...]
    exports: Mapping[str, Sequence[tuple[int, CommitFile]]]
    by_key: Mapping[str, Sequence[LoggedFile]]
    by_location: Mapping[str, LoggedFile]
    commits: Mapping[str, CommitFile]
    until: Mapping[str, LogEntry]

    @classmethod
    def of(cls, entries: tuple[LogEntry, ...], paths: TreePaths) -> LogIndex:
        """Index a log, given in order."""
        until: dict[str, LogEntry] = {}
        for entry in entries:
            for replaced in (t for e in entry.exports for t in e.commit.replaces):
                until.setdefault(replaced, entry)
        found = [
            LoggedFile(
                entry,
                export,
                paths.absolute(file.path),
                file.rows,
                file.bytes,
                until.get(export.commit.transaction_id),
            )
            for entry in entries
            for export in entry.exports
            for file in export.commit.files
        ]
        by_key: dict[str, list[LoggedFile]] = {}
        for one in found:
            by_key.setdefault(one.export.key, []).append(one)
        exports: dict[str, list[tuple[int, CommitFile]]] = {}
        for number, export in ((entry.number, e) for entry in entries for e in entry.exports):
            exports.setdefault(export.key, []).append((number, export.commit))
        commits = {c.transaction_id: c for of_key in exports.values() for _, c in of_key}
        return cls(entries, exports, by_key, {one.location: one for one in found}, commits, until)

    @property
    def counting(self) -> tuple[CommitFile, ...]:
        """The commit files of the exports that no later one replaced."""
        return tuple(c for t, c in self.commits.items() if t not in self.until)

    def earlier(self, key: str, *, last: int) -> tuple[str, ...]:
        """Return the transaction ids of all exports of a key, up to the entry of this number."""
        return tuple(c.transaction_id for number, c in self.exports.get(key, ()) if number <= last)

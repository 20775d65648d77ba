"""Indexes the log of a tree: exported data files by key and location, and replaced exports.

An export counts from its own entry up to the entry that names it in `replaces`. The state of a tree
as of an entry consists of the exports that count then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tableformat.hive.documents import CommitFile
from tableformat.hive.layout import TreePaths
from tableformat.hive.log import LogEntry, LoggedExport

__all__ = ["LogIndex", "LoggedFile"]


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

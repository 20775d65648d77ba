"""Defines the outcome of one partition, its status word and the exit codes of commands.

`Status` is the word that the command line and the JSON output print for a partition. The exit
codes (`DIFFERS`, `REFUSED`, `FAILED` …) are those of docs/reference/errors.md; 0 has no name here
and means done, or nothing to do. `worst` selects the exit code if a command has several.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tableformat.committer import Figures, FileInMain
from tableformat.quantities import counted

__all__ = [
    "DIFFERS",
    "FAILED",
    "INTERRUPTED",
    "IN_PROGRESS",
    "REFUSED",
    "UNKNOWN",
    "USAGE",
    "WORSE_THAN_FAILED",
    "Cause",
    "Outcome",
    "Status",
    "worst",
]

DIFFERS: Final = 1
"""The lake has something else than it was said to have."""
USAGE: Final = 2
"""The command cannot be read."""
REFUSED: Final = 3
"""It would be wrong or unsafe; nothing was changed."""
FAILED: Final = 4
"""Safe to run again."""
UNKNOWN: Final = 5
"""Whether it landed is not known yet; the next run settles it."""
IN_PROGRESS: Final = 6
"""Another process does it."""
INTERRUPTED: Final = 130

WORSE_THAN_FAILED: Final = (DIFFERS, UNKNOWN)
"""What was found wrong in the lake says more than that something could not be done."""
_WORST_FIRST: Final = (*WORSE_THAN_FAILED, FAILED, IN_PROGRESS, REFUSED)


def worst(codes: Iterable[int]) -> int:
    """Return the first of 1, 5, 4, 6, 3 that is among the codes, else 0."""
    there = set(codes)
    return next((code for code in _WORST_FIRST if code in there), 0)


class Status(StrEnum):
    """What became of a partition."""

    COMMITTED = "committed"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    ALREADY_EXPORTED = "already_exported"
    EMPTY = "empty"
    IN_PROGRESS = "in_progress"
    REFUSED = "refused"
    KILLED = "killed"
    FAILED = "failed"
    STOPPED = "stopped"
    UNKNOWN = "unknown"
    DIFFERS = "differs"
    UNVERIFIED = "unverified"
    DROPPED = "dropped"
    DETACHED = "detached"
    ATTACHED = "attached"
    MOVED = "moved"
    CHANGED = "changed"
    OPTIMIZED = "optimized"
    FETCHED = "fetched"
    FROZEN = "frozen"
    UNFROZEN = "unfrozen"
    FORGOTTEN = "forgotten"

    @property
    def exit_code(self) -> int:
        """0 done, 1 wrong in the lake, 3 refused, 4 failed, 5 unknown, 6 in progress elsewhere."""
        return _EXIT_CODES.get(self.value, 0)

    @property
    def planned(self) -> str:
        """The word for a dry run: `detach` where the statement itself would say `detached`."""
        return _PLANNED.get(self.value, self.value)


_PLANNED: Final = {
    "committed": "export",
    "replaced": "replace",
    "dropped": "drop",
    "detached": "detach",
    "attached": "attach",
    "moved": "move",
    "changed": "change",
    "optimized": "optimize",
    "fetched": "fetch",
    "frozen": "freeze",
    "unfrozen": "unfreeze",
    "forgotten": "forget",
}
_EXIT_CODES: Final = {
    "differs": DIFFERS,
    "refused": REFUSED,
    "failed": FAILED,
    "stopped": FAILED,
    "killed": FAILED,
    "unverified": FAILED,
    "unknown": UNKNOWN,
    "in_progress": IN_PROGRESS,
}


class Cause(StrEnum):
    """Which error is the reason that a partition was not exported."""

    ERROR = "error"
    ROWS_OF_OTHERS = "rows_of_others"
    """Rows that no export of this ledger wrote are there already."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one partition.

    `message` is one sentence for people, and `cause` says why the partition was not exported where
    an error is the reason and no answer; `rows`, `data_files`, `bytes` are those of the export that
    is in main, `seconds` the wall time that this run spent on the partition, `code` ClickHouse's
    number for why it was not exported, where ClickHouse has one. `verified` says that main was
    compared with what was frozen, and is equal; `parts` how many source parts a refusal is about,
    where that is known and no export is. `source_gone` says that it failed because the host that
    was read is gone, so that another replica of the table may go on with it. `left_*` and `came_*`
    are what the commit took out of main and what it brought, `undo` is the statement that undoes
    it. In a dry run `came_bytes` is None where files are to be written. `verb` is the word for
    people where `status` alone does not say what was done.
    """

    partition_id: str
    status: Status
    table: str
    message: str = ""
    transaction_id: str | None = None
    snapshot_id: int | None = None
    rows: int = 0
    data_files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    code: int | None = None
    verified: bool = False
    parts: int = 0
    source_gone: bool = False
    left_files: int = 0
    left_rows: int = 0
    left_bytes: int = 0
    came_files: int = 0
    came_rows: int = 0
    came_bytes: int | None = 0
    undo: str = ""
    verb: str = ""
    cause: Cause | None = None

    @property
    def change(self) -> str:
        """What leaves main and what comes, '' where nothing leaves."""
        if not self.left_files:
            return ""
        size = "" if self.came_bytes is None else f", {self.came_bytes:,} bytes,"
        left = f"{counted(self.left_rows, 'row')}, {self.left_bytes:,} bytes, leave main"
        return f"{left}; {counted(self.came_rows, 'row')}{size} come"

    def of_main(self, left: Figures, came: Figures, undo: str = "") -> Outcome:
        """Return it with what its commit takes out of main and brings; the latter only with it."""
        if not left.files:
            return self
        return replace(
            self,
            left_files=left.files,
            left_rows=left.rows,
            left_bytes=left.bytes or 0,
            came_files=came.files,
            came_rows=came.rows,
            came_bytes=came.bytes,
            undo=undo,
        )

    def of_files(self, files: tuple[FileInMain, ...]) -> Outcome:
        """Return it with the figures of files of main, whose size nobody has noted."""
        return replace(self, rows=sum(f.rows for f in files), data_files=len(files), bytes=0)

"""Defines the outcome of one partition, its status word and the exit codes of commands.

`Status` is the word that the command line and the JSON output print for a partition. The exit
codes (`DIFFERS`, `REFUSED`, `FAILED` …) are those of docs/reference/errors.md; 0 has no name here
and means done, or nothing to do. `worst` selects the exit code if a command has several.

`undo_statement` names the statement that restores rows which a snapshot took out of main. It
works as long as the table has the snapshot before that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tableformat.committer import Figures, FileInMain
from tableformat.names import HiveName, LakeName
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
    "undo_statement",
    "worst",
]

DIFFERS: Final = 1
"""The rows in the lake differ from the exported rows."""
USAGE: Final = 2
"""The command cannot be parsed."""
REFUSED: Final = 3
"""The command would be wrong or unsafe; nothing was changed."""
FAILED: Final = 4
"""The command failed, and can be run again."""
UNKNOWN: Final = 5
"""The commit may have landed; the next run settles it."""
IN_PROGRESS: Final = 6
"""Another process works on the partition."""
INTERRUPTED: Final = 130

WORSE_THAN_FAILED: Final = (DIFFERS, UNKNOWN)
"""Exit codes for a possible fault in the lake, which come before a failure."""
_WORST_FIRST: Final = (*WORSE_THAN_FAILED, FAILED, IN_PROGRESS, REFUSED)


def worst(codes: Iterable[int]) -> int:
    """Return the first of 1, 5, 4, 6, 3 that is among the codes, else 0."""
    there = set(codes)
    return next((code for code in _WORST_FIRST if code in there), 0)


class Status(StrEnum):
    """The outcome of a partition as one word."""

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
        """The word in a dry run: `detach` instead of `detached`."""
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
    """The kind of error for which a partition was not exported."""

    ERROR = "error"
    ROWS_OF_OTHERS = "rows_of_others"
    """The lake partition already has rows that no export of this ledger wrote."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one partition.

    * `message`: one sentence for the user.
    * `rows`, `data_files`, `bytes`: of the export that main holds. `seconds`: the wall time that
      this run spent on the partition.
    * `cause`: the kind of error, None if the partition was exported or decided without an error.
      `code`: ClickHouse's code of the error, None if ClickHouse has none.
    * `verified`: main was compared with the source snapshot and is equal.
    * `parts`: the number of source parts of a failed partition, if no claim has them.
    * `source_gone`: the host that was read cannot be reached, so another replica may continue.
    * `left_*`, `came_*`: the files, rows and bytes that the commit removed from main and added. In
      a dry run `came_bytes` is None if files are to be written.
    * `undo`: the statement that undoes the commit, '' if there is none.
    * `verb`: the word for the user if `status` is not specific enough.
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
        """The text on the rows that leave main and enter it, '' if none leave."""
        if not self.left_files:
            return ""
        size = "" if self.came_bytes is None else f", {self.came_bytes:,} bytes,"
        left = f"{counted(self.left_rows, 'row')}, {self.left_bytes:,} bytes, leave main"
        return f"{left}; {counted(self.came_rows, 'row')}{size} come"

    def of_main(self, left: Figures, came: Figures, undo: str = "") -> Outcome:
        """Return it with the figures of the files that leave main and enter it, if any leave."""
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
        """Return it with the figures of files in main; their size is not known."""
        return replace(self, rows=sum(f.rows for f in files), data_files=len(files), bytes=0)


# Other statements add rows, or write the same rows to other files.
_TAKES_ROWS: Final = (Status.DROPPED, Status.REPLACED, Status.CHANGED)


def undo_statement(
    table: LakeName,
    did: Status,
    which: str,
    partition_id: str | None,
    before: int | None,
    *,
    of_part: bool = False,
) -> str:
    """Return the statement that undoes a statement or export; '' if no single statement does.

    ATTACH brings detached rows back from the branch `detached`. Other rows are copied from the
    snapshot `before`: after a DROP of a partition with ATTACH … FROM, which keeps the rows there,
    otherwise with REPLACE … FROM, which replaces them.

    Args:
        table: the lake table.
        did: the outcome to undo.
        which: the object of the statement, as in SQL.
        partition_id: the partition that this is or belongs to; None for all partitions.
        before: the snapshot that main was before; None if it is not known.
        of_part: the statement changed a part, not whole partitions.
    """
    if isinstance(table, HiveName):
        return ""
    if did is Status.DETACHED:
        return f"ALTER TABLE {table} ATTACH {which}"
    if before is None or did not in _TAKES_ROWS:
        return ""
    earlier = LakeName(table.catalog, table.identifier, f"snapshot_id_{before}")
    if did is Status.DROPPED and not of_part:
        return f"ALTER TABLE {table} ATTACH {which} FROM {earlier}"
    if partition_id is None:
        return ""
    return f"ALTER TABLE {table} REPLACE PARTITION ID '{partition_id}' FROM {earlier}"

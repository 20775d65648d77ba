"""Defines the outcome of one partition, its status word, exit code and events of the history.

`Status` is the word that the command line and the JSON output print for a partition. The exit
codes (`DIFFERS`, `REFUSED`, `FAILED` …) are those of docs/reference/errors.md; 0 has no name here
and means done, or nothing to do. `worst` selects the exit code if a command has several.

`undo_statement` names the statement that restores rows which a snapshot took out of main. It
works as long as the table has the snapshot before that one.

`events_of` returns the events of an outcome (RQ…Logging, RQ…Metrics). An outcome that exported
rows, or failed, gets one event for each source part and one for the partition. Every other outcome
gets one event for the partition only: the history is bounded, and a schedule that runs every hour
must not displace the events of exports. The parts and their files come from the ledger row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from tableformat.committer import Figures, FileInMain
from tableformat.file_names import is_of_transaction
from tableformat.history import Counter, Event, EventKind
from tableformat.ledger import ExportedPart, Record, Row
from tableformat.messages import plain
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
    "events_of",
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


_COUNTED: Final = {
    Status.COMMITTED: Counter.EXPORTS,
    Status.REPLACED: Counter.EXPORTS,
    Status.DIFFERS: Counter.EXPORTS,
    Status.UNVERIFIED: Counter.EXPORTS,
    Status.ALREADY_EXPORTED: Counter.DUPLICATED,
    Status.UNCHANGED: Counter.DUPLICATED,
    Status.IN_PROGRESS: Counter.DUPLICATED,
    Status.REFUSED: Counter.DUPLICATED,
    Status.FAILED: Counter.FAILURES,
    Status.KILLED: Counter.FAILURES,
    Status.UNKNOWN: Counter.FAILURES,
}
"""The counter that an outcome increases; other outcomes are noted and increase none."""
_NO_ERRORS: Final = (Status.COMMITTED, Status.REPLACED, Status.UNCHANGED, Status.EMPTY)
"""Outcomes whose message is not an error."""


def events_of(
    outcome: Outcome, row: Row | None, table: str, now: int, *, query_id: str = ""
) -> tuple[Event, ...]:
    """Return the events of an outcome: one for each part if it exported or failed, then one more.

    Args:
        outcome: the outcome of the partition.
        row: its ledger row afterwards, None if it has none.
        table: the source table's name.
        now: milliseconds since 1970.
        query_id: the name of the statement.
    """
    counter = _counter(outcome)
    parts, written = _exported(outcome, row)
    whole = Event(
        time=now,
        kind=EventKind.EXPORT_PARTITION,
        table=table,
        destination=outcome.table,
        partition_id=outcome.partition_id,
        part_name="",
        status=outcome.status.value,
        transaction_id=outcome.transaction_id or "",
        rows=sum(p.rows for p in parts),
        duration=round(outcome.seconds * 1000),
        error="" if outcome.status in _NO_ERRORS else plain(outcome.message),
        counter=counter,
        # An export that failed before its parts were known counts as one part.
        parts=0 if counter is None else len(parts) or outcome.parts or 1,
        query_id=query_id,
    )
    if counter not in (Counter.EXPORTS, Counter.FAILURES):
        return (whole,)
    read = sum(p.bytes_on_disk for p in parts) if counter is Counter.EXPORTS else 0
    whole = replace(whole, bytes_read=read, bytes_written=written)
    shares = _shares(written, tuple(p.rows for p in parts))
    of_parts = tuple(
        replace(
            whole,
            part_name=part.name,
            rows=part.rows,
            bytes_read=part.bytes_on_disk if read else 0,
            bytes_written=share,
            counter=None,
            parts=0,
        )
        for part, share in zip(parts, shares, strict=True)
    )
    return (*of_parts, whole)


def _counter(outcome: Outcome) -> Counter | None:
    # A refusal with an error is a failure, except for rows of other writers: a duplicate.
    if outcome.status is Status.REFUSED and outcome.cause is Cause.ERROR:
        return Counter.FAILURES
    return _COUNTED.get(outcome.status)


def _exported(outcome: Outcome, row: Row | None) -> tuple[tuple[ExportedPart, ...], int]:
    """Return the parts that the outcome's transaction wrote, and the bytes of its files in main."""
    if row is None:
        return (), 0
    if outcome.status is Status.IN_PROGRESS:
        return row.claim.parts, 0
    if outcome.transaction_id is None:
        return (), 0
    if row.done is not None and row.done.landed.transaction_id == outcome.transaction_id:
        return _written(row, row.done)
    claim = row.claim_of(outcome.transaction_id)
    return (claim.parts, 0) if claim is not None else ((), 0)


def _written(row: Row, done: Record) -> tuple[tuple[ExportedPart, ...], int]:
    """Return the parts that the last export wrote, and the bytes of its own files."""
    landed = done.landed
    if not landed.stays:
        return done.parts, done.bytes
    # OPTIMIZE left the older parts without paths: a part without one of this export is not new.
    of_export = partial(is_of_transaction, key=row.key.hash, transaction_id=landed.transaction_id)
    own = tuple(part for part in done.parts if any(map(of_export, part.remote_paths)))
    is_known = row.claim.transaction_id == landed.transaction_id
    return own, row.claim.bytes if is_known else 0


def _shares(total: int, rows: tuple[int, ...]) -> Iterator[int]:
    """Divide the bytes of files among parts by their rows; the shares add up to the total."""
    before, counted, of_all = 0, 0, sum(rows)
    for own in rows:
        counted += own
        until = total * counted // of_all if of_all else 0
        yield until - before
        before = until

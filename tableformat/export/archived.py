"""Marks a partition's ledger row as archived, so that no export replaces its rows in the lake.

An archived partition may get new rows in the source: late rows or test rows. An export would take
them for the new content and replace all archived rows with them.

* `archiving` marks the row before `archive` touches the source.
* While the row is archived, no export of the key begins or commits, with any option.
* Only `unarchive` removes the mark.
* A row can become archived only if no claim of it is running: a request of an earlier claim could
  still land (docs/spec/ledger.md, Archived; docs/spec/model/Archive.tla).

`undo_statement` names the statement that restores rows which a snapshot took out of main. It
works as long as the table has the snapshot before that one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from tableformat.errors import LedgerError, RefusedError
from tableformat.export.leases import one_lease
from tableformat.export.outcome import Status
from tableformat.ledger import Archived, DetachedPart, LeaseHeld, Ledger, Owner, Row, Stale, State
from tableformat.messages import Command
from tableformat.names import HiveName, LakeName, TableName
from tableformat.quantities import counted

__all__ = [
    "Archiving",
    "archiving",
    "refuse_archived",
    "unarchive",
    "unarchive_command",
    "undo_statement",
]

# The lease is not renewed; another process checks whether the owner is running.
_LEASE_SECONDS: Final = 600.0


@dataclass(slots=True)
class Archiving:
    """A row that is being archived, under the lease of its key.

    `row` is the ledger's current row; `has_left`: the parts were detached or dropped in the source.
    """

    ledger: Ledger
    row: Row
    now: int
    has_left: bool = False

    def note_detached(self, parts: tuple[DetachedPart, ...]) -> None:
        """Note the parts in the source's `detached` directory; none if they were dropped.

        Raises:
            LedgerError: another process changed the row meanwhile, or the ledger cannot be written.
        """
        self.has_left = True
        since = self.row.archived.since if self.row.archived is not None else self.now
        noted = replace(self.row, archived=Archived(since, parts), updated=self.now)
        written = self.ledger.write(noted)
        if isinstance(written, Stale):
            message = (
                f"Cannot record which parts of partition {self.row.key.partition_id} of "
                f"{self.row.source_table} were detached: its ledger row was changed at the same "
                "moment. They are out of the table and archived. Run it again."
            )
            raise LedgerError(message)
        self.row = written


@contextlib.contextmanager
def archiving(
    ledger: Ledger,
    row: Row,
    *,
    owner: Owner,
    is_alive: Callable[[Owner], bool],
    now: int,
) -> Generator[Archiving]:
    """Mark a completed export as archived, and hold the lease of its key in the `with` block.

    If the block ends with a refusal before parts were noted as detached, the source is unchanged
    and the mark is removed. After any other error the state of the source is unknown, and the mark
    stays.

    Args:
        ledger: the ledger with the row.
        row: the row of the partition.
        owner: this process.
        is_alive: whether the owner of a lease may be running.
        now: milliseconds since 1970.

    Raises:
        RefusedError: an export of the partition is running or unfinished, or another process
            changed the row meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    with _leased(ledger, row, owner, is_alive, "archive"):
        if row.state is State.RUNNING:
            why = (
                "another export of it was begun and did not end, and may still land. Export the "
                f"partition, or give that up with {Command.CANCEL}, and run "
                "it again"
            )
            raise _refused(row, "archive", why)
        kept = replace(row, archived=row.archived or Archived(now), updated=now)
        held = Archiving(ledger, _written(ledger, kept, "archive"), now)
        try:
            yield held
        except RefusedError:
            if not held.has_left:
                _written(ledger, replace(held.row, archived=row.archived), "archive")
            raise


def unarchive(
    ledger: Ledger, row: Row, *, owner: Owner, is_alive: Callable[[Owner], bool], now: int
) -> Row:
    """Remove the mark, so that exports of the partition can replace its rows; return the row.

    Args:
        ledger: the ledger with the row.
        row: as it was read before the user confirmed.
        owner: this process, which holds the key's lease meanwhile.
        is_alive: whether the owner of a lease may be running.
        now: milliseconds since 1970.

    Raises:
        RefusedError: the partition is not archived, another process works on it, or changed the row
            meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    with _leased(ledger, row, owner, is_alive, "unarchive"):
        if row.archived is None:
            raise _refused(row, "unarchive", "it is not archived. Nothing was changed")
        return _written(ledger, replace(row, archived=None, updated=now), "unarchive")


def refuse_archived(row: Row, archived: Archived, rows: int, parts: int) -> str:
    """Return the reason why the source's rows of an archived partition are not exported.

    Args:
        row: the row of the key.
        archived: its mark.
        rows: the number of rows in the source now.
        parts: the number of parts in the source now.
    """
    since = datetime.fromtimestamp(archived.since / 1000, UTC)
    there = f"{counted(rows, 'row')} in {counted(parts, 'part')}" if parts else "nothing"
    text = (
        f"it is archived since {since:%Y-%m-%d %H:%M:%S} UTC, so no export may remove its rows "
        f"from the lake; the source has {there} of it now. Nothing was changed"
    )
    if not parts:
        return text
    late = (
        "To bring late rows into the lake, too, put them into a table of the same structure and "
        f"another name, and export that one into {row.destination_table}"
    )
    return f"{text}. {late}"


def unarchive_command(row: Row) -> str:
    """Return the command that removes the mark."""
    table = TableName.parse(row.source_table)
    return (
        f"mergeberg exports unarchive {row.key.partition_id} --table {table} "
        f"--to {row.destination_table}"
    )


@contextlib.contextmanager
def _leased(
    ledger: Ledger, row: Row, owner: Owner, is_alive: Callable[[Owner], bool], what: str
) -> Iterator[None]:
    lease = one_lease(ledger, row.key.hash, owner, is_alive=is_alive, seconds=_LEASE_SECONDS)
    if isinstance(lease, LeaseHeld):
        why = f"{lease.owner} works on it. Run it again when it has ended"
        raise _refused(row, what, why)
    try:
        yield
    finally:
        ledger.release(lease)


def _written(ledger: Ledger, row: Row, what: str) -> Row:
    written = ledger.write(row)
    if isinstance(written, Stale):
        why = "its ledger row was changed at the same moment. Run it again"
        raise _refused(row, what, why)
    return written


def _refused(row: Row, what: str, why: str) -> RefusedError:
    return RefusedError(
        f"Cannot {what} partition {row.key.partition_id} of {row.source_table}: {why}."
    )


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

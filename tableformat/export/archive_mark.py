"""Marks a partition's ledger row as archived, so that no export replaces its rows in the lake.

An archived partition may get new rows in the source: late rows or test rows. An export would take
them for the new content and replace all archived rows with them.

* `archiving` marks the row before `archive` touches the source.
* While the row is archived, no export of the key begins or commits, with any option.
* Only `unarchive` removes the mark.
* A row can become archived only if nothing is under way for it: a request of an earlier claim
  could still land (docs/spec/ledger.md, Archived; docs/spec/model/Archive.tla).

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

# A process that lives renews nothing meanwhile; others ask whether it does.
_LEASE_SECONDS: Final = 600.0


@dataclass(slots=True)
class Archiving:
    """A row that is archived, under the lease of its key.

    `row` is what the ledger has of it, `has_left` whether its parts are out of the source's table.
    """

    ledger: Ledger
    row: Row
    now: int
    has_left: bool = False

    def note_detached(self, parts: tuple[DetachedPart, ...]) -> None:
        """Note which parts lie in the source's `detached` directory; none where they were dropped.

        Raises:
            LedgerError: the row moved meanwhile, or the ledger cannot be read or written.
        """
        self.has_left = True
        since = self.row.archived.since if self.row.archived is not None else self.now
        noted = replace(self.row, archived=Archived(since, parts), updated=self.now)
        written = self.ledger.write(noted)
        if isinstance(written, Stale):
            message = (
                f"Cannot note which parts of partition {self.row.key.partition_id} of "
                f"{self.row.source_table} were detached: its ledger row was changed at the same "
                "moment. They are out of the table and archived. Run the command again."
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
    """Note that a completed export is archived, and hold its key's lease in the `with`.

    When the `with` ends with a refusal before anything was noted as detached, the source is as it
    was, and that is taken back. After any other error nobody knows what became of the source, and
    it stays.

    Args:
        ledger: where the row is.
        row: of the partition.
        owner: this process.
        is_alive: whether the owner of a lease may still work.
        now: milliseconds since 1970.

    Raises:
        RefusedError: an export of it runs, or was begun and did not end, or the row moved
            meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    with _leased(ledger, row, owner, is_alive, "archive"):
        if row.state is State.RUNNING:
            why = (
                "another export of it was begun and did not end, and may still land. Export the "
                "partition, or give that up with `mergeberg exports cancel`, and run the command "
                "again"
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
    """Let exports of an archived partition replace its rows again; return the row.

    Args:
        ledger: where the row is.
        row: as it was read when the caller was told what that allows.
        owner: this process, which holds the key's lease meanwhile.
        is_alive: whether the owner of a lease may still work.
        now: milliseconds since 1970.

    Raises:
        RefusedError: it is not archived, somebody works on it, or the row moved meanwhile.
        LedgerError: the ledger cannot be read or written.
    """
    with _leased(ledger, row, owner, is_alive, "unarchive"):
        if row.archived is None:
            raise _refused(row, "unarchive", "it is not archived. Nothing was changed")
        return _written(ledger, replace(row, archived=None, updated=now), "unarchive")


def refuse_archived(row: Row, archived: Archived, rows: int, parts: int) -> str:
    """Return why the source's rows of an archived partition are not exported.

    Args:
        row: of the key.
        archived: its state.
        rows: that the source has of it now, 0 for none.
        parts: their parts.
    """
    since = datetime.fromtimestamp(archived.since / 1000, UTC)
    there = f"{counted(rows, 'row')} in {counted(parts, 'part')}" if parts else "nothing"
    text = (
        f"it is archived since {since:%Y-%m-%d %H:%M:%S} UTC, so that no export takes its rows out "
        f"of the lake; the source has {there} of it now. Nothing was changed"
    )
    if not parts:
        return text
    late = (
        "To bring late rows into the lake, too, put them into a table of the same structure and "
        f"another name, and export that one into {row.destination_table}"
    )
    return f"{text}. {late}"


def unarchive_command(row: Row) -> str:
    """Return the command that ends it."""
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
        why = f"{lease.owner} works on it. Run the command again when it has ended"
        raise _refused(row, what, why)
    try:
        yield
    finally:
        ledger.release(lease)


def _written(ledger: Ledger, row: Row, what: str) -> Row:
    written = ledger.write(row)
    if isinstance(written, Stale):
        why = "its ledger row was changed at the same moment. Run the command again"
        raise _refused(row, what, why)
    return written


def _refused(row: Row, what: str, why: str) -> RefusedError:
    return RefusedError(
        f"Cannot {what} partition {row.key.partition_id} of {row.source_table}: {why}."
    )


# Others bring rows, or write the same rows to other files.
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
    """Return the statement; '' where there is no single one.

    What DETACH took out comes back from the branch `detached`. Everything else is copied from the
    snapshot that main was: beside what is there by now after a DROP of a partition, and in the
    place of it otherwise.

    Args:
        table: the lake table.
        did: what was done.
        which: it was done to, as a statement has it.
        partition_id: the partition that this is, or lies in; None for all.
        before: the snapshot that main was.
        of_part: it was done to a part, and not to whole partitions.
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

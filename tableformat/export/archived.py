"""Keeps archived exports as they are, and finds the key of rows that arrive after them.

Once a partition is archived, the lake may have the only copy of its rows. The source may get new
rows of it: late rows or test rows. An export would take them for the new content and replace all
archived rows with them.

* `archiving` marks the row before `archive` touches the source. While it is marked, no export of
  the key begins or commits, with any option. Only `unarchive` removes the mark.
* A row can become archived only if no claim of it is running: a request of an earlier claim could
  still land (docs/spec/ledger.md, Archived; docs/spec/model/Archive.tla).
* Rows that arrive later get a key of their own, an increment, with its own claim, files, digest and
  archived state (decision 0023). An export writes the first key that is not archived:
  `exports_of_partition`.
* A part that was attached to the source again has its hash, and is not detached any more. While it
  is detached, or after it was dropped, a part with its hash has new rows, or comes from another
  replica: it never counts as archived, and only the user can say that it is new.
* `may_be_back`: a merge or a mutation of an attached part has another hash. So late rows are
  refused while an archived part may have returned to the table.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self

from tableformat.errors import LedgerError, RefusedError, TableFormatError
from tableformat.export.content import Content, is_merged
from tableformat.export.leases import one_lease
from tableformat.export.main_state import Holding
from tableformat.export.options import LateRows
from tableformat.file_names import RECEIPTS
from tableformat.ledger import (
    Archived,
    DetachedPart,
    ExportedPart,
    Key,
    LeaseHeld,
    Ledger,
    Owner,
    Row,
    Stale,
    State,
)
from tableformat.messages import Command, Option
from tableformat.names import TableName
from tableformat.quantities import counted

__all__ = [
    "ArchivedExport",
    "ArchivedExports",
    "Archiving",
    "PartitionExports",
    "archived_location",
    "archived_since",
    "archived_text",
    "archiving",
    "exports_of_partition",
    "has_it",
    "is_attached",
    "lacks_archived",
    "later_in_main",
    "may_be_back",
    "refuse_archived",
    "unarchive",
    "unarchive_command",
]

_Read = Callable[[str], Row | None]
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
    note: Callable[[int | None], None] = lambda _: None,
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
        note: stores next to the table since when the key is archived, None if it is not, for a
            ledger that is made anew; called under the lease. If it fails, the mark is removed.

    Raises:
        RefusedError: an export of the partition is running or unfinished, or another process
            changed the row meanwhile.
        LedgerError: the ledger cannot be read or written.
        DestinationError: of `note`.
    """
    with _leased(ledger, row, owner, is_alive, "archive"):
        if row.state is State.RUNNING:
            why = (
                "another export of it was begun and did not end, and may still land. Export the "
                f"partition, or give that up with {Command.CANCEL}, and run "
                "it again"
            )
            raise _refused(row, "archive", why)
        mark = replace(row.archived or Archived(now), is_ending=False)
        kept = replace(row, archived=mark, updated=now)
        held = Archiving(ledger, _written(ledger, kept, "archive"), now)
        is_noted = False
        try:
            note(mark.since)
            is_noted = True
            yield held
        except TableFormatError as error:
            if (isinstance(error, RefusedError) or not is_noted) and not held.has_left:
                _written(ledger, replace(held.row, archived=row.archived), "archive")
                if row.archived is None:
                    note(None)
            raise


_FORMAT: Final = 1


def archived_location(table_location: str, key: str) -> str:
    """Return the location of the object that says since when a key is archived.

    The ledger says it, too. A ledger that is made anew reads it here.

    Args:
        table_location: the location of the lake table.
        key: the hash of the key.
    """
    return f"{table_location.rstrip('/')}/{RECEIPTS}/archived/{key}.json"


def archived_text(since: int | None) -> bytes:
    """Return the text of that object.

    Args:
        since: milliseconds since 1970; None if the key is not archived any more.
    """
    return json.dumps({"format_version": _FORMAT, "since": since}).encode()


def archived_since(location: str, text: bytes) -> int | None:
    """Return since when a key is archived, in milliseconds since 1970; None if it is not.

    Args:
        location: of the object, for messages.
        text: the text of the object.

    Raises:
        LedgerError: it is damaged, or of a newer format.
    """
    try:
        raw = json.loads(text)
        if raw["format_version"] == _FORMAT and isinstance(raw["since"], int | None):
            since: int | None = raw["since"]
            return since
    except (ValueError, KeyError, TypeError) as error:
        message = f"Cannot read {location}: {error}. It is damaged; restore it from a copy."
        raise LedgerError(message) from error
    message = f"Cannot read {location}: a newer release wrote it. Use that release."
    raise LedgerError(message)


def unarchive(
    ledger: Ledger,
    row: Row,
    later: Row | None,
    *,
    owner: Owner,
    is_alive: Callable[[Owner], bool],
    now: int,
    note: Callable[[], None] = lambda: None,
) -> Row:
    """Remove the mark, so that exports of the partition can replace its rows; return the row.

    First the mark says that it ends, so that neither this key is exported nor later rows; then
    their row is read. An export of later rows reads the mark after its claim. So one of the two
    sees the other before either continues (docs/spec/model/Late.tla).

    Args:
        ledger: the ledger with the row.
        row: as it was read before the user confirmed.
        later: the row of the next increment as it was read then, None if there was none. Main has
            no rows of it.
        owner: this process, which holds the key's lease meanwhile.
        is_alive: whether the owner of a lease may be running.
        now: milliseconds since 1970.
        note: stores next to the table that the key is not archived, for a ledger that is made anew;
            called under the lease, so that no archive of the key begins before.

    Raises:
        RefusedError: the partition is not archived, another process works on it, or changed the row
            meanwhile.
        LedgerError: the ledger cannot be read or written.
        DestinationError: of `note`. The partition is not archived any more.
    """
    with _leased(ledger, row, owner, is_alive, "unarchive"):
        if row.archived is None:
            raise _refused(row, "unarchive", "it is not archived. Nothing was changed")
        _refuse_later(ledger, row, later)
        ends = replace(row.archived, is_ending=True)
        ending = _written(ledger, replace(row, archived=ends, updated=now), "unarchive")
        try:
            _refuse_later(ledger, row, later)
        except RefusedError:
            again = replace(row.archived, is_ending=False)
            _written(ledger, replace(ending, archived=again), "unarchive")
            raise
        ended = _written(ledger, replace(ending, archived=None), "unarchive")
        note()
        return ended


def _refuse_later(ledger: Ledger, row: Row, later: Row | None) -> None:
    """Refuse to unarchive while rows that arrived later may be on their way to the lake.

    Raises:
        RefusedError: an export of them is unfinished, or their row has changed.
        LedgerError: the ledger cannot be read.
    """
    now = ledger.read(row.key.next.hash)
    if now is not None and now.state is State.RUNNING:
        why = (
            "an export of rows that arrived later was begun and did not end. Export the partition, "
            f"or give that up with {Command.CANCEL}, and run it again"
        )
        raise _refused(row, "unarchive", why)
    if (now.version if now is not None else None) != (later.version if later is not None else None):
        why = "an export of rows that arrived later began at the same moment. Run it again"
        raise _refused(row, "unarchive", why)


def refuse_archived(row: Row, rows: int, parts: int) -> str:
    """Return the reason why the source's rows of an archived partition are not exported.

    Args:
        row: the archived row of the key.
        rows: the number of rows in the source now.
        parts: the number of parts in the source now.
    """
    since = _since(row)
    there = f"{counted(rows, 'row')} in {counted(parts, 'part')}" if parts else "nothing"
    text = (
        f"it is archived since {since}, so no export may remove its rows "
        f"from the lake; the source has {there} of it now. Nothing was changed"
    )
    if not parts:
        return text
    if row.archived is not None and row.archived.detached is None:
        return (
            f"{text}. The ledger does not record that its parts left the source. If none of these "
            f"rows can be archived, {Option.LATE_ROWS} adds them to the lake, next to the archived "
            f"rows. If all archived rows are among these, `{unarchive_command(row)}` lets an "
            "export replace them"
        )
    return f"{text}. {Option.LATE_ROWS} adds them to the lake, next to the archived rows"


def _since(row: Row) -> str:
    """Return since when a row is archived."""
    if row.archived is None:
        return "now"
    return f"{datetime.fromtimestamp(row.archived.since / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


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


@dataclass(frozen=True, slots=True)
class PartitionExports:
    """The exports of one partition of a source table in one destination.

    `archived` are the rows of its archived keys, in the order of their increments. `key` is the
    first key that is not archived, which an export writes; `row` is its row, None if it has none.
    """

    archived: tuple[Row, ...]
    key: Key
    row: Row | None

    def row_of(self, transaction_id: str | None) -> Row | None:
        """Return the row of the export of a transaction, or else the last one, None if none."""
        rows = (*self.archived, *filter(None, (self.row,)))
        for row in rows:
            if transaction_id in (
                row.claim.transaction_id,
                *(x.transaction_id for x in row.landed),
            ):
                return row
        return rows[-1] if rows else None


def exports_of_partition(read: _Read, key: Key, row: Row | None) -> PartitionExports:
    """Return the exports of a partition.

    Args:
        read: returns the ledger's row of a key's hash, None if there is none.
        key: the key of the partition, with increment 0.
        row: the row of this key, None if it has none.

    Raises:
        LedgerError: from `read`.
    """
    archived: list[Row] = []
    while row is not None and row.archived is not None:
        archived.append(row)
        key = key.next
        row = read(key.hash)
    return PartitionExports(tuple(archived), key, row)


def later_in_main(read: _Read, row: Row | None, held: Callable[[Row], Holding]) -> str:
    """Return why a key is not exported while main has later rows of its partition, '' if it is.

    The mark of a key can be removed while main is rolled back to before the later rows. Main gets
    them again when it is moved forward. The source may have them, too.

    Args:
        read: returns the ledger's row of a key's hash, None if there is none.
        row: the row of the key, None if it was never exported.
        held: returns the state of a row's key in main.

    Raises:
        LedgerError: from `read`.
        DestinationError: from `held`.
    """
    # A key has later rows only if it was archived, which an export in main precedes.
    later = read(row.key.next.hash) if row is not None and row.landed else None
    while later is not None:
        found = held(later)
        if found.files or found.proof is not None or not found.is_certain:
            return (
                f"main has late rows {later.key.increment} of it, which arrived after it was "
                "archived, and the source may have them, too: they could be there twice. "
                f"{found.text} If the source has all rows of the partition, run DETACH PARTITION "
                "on the lake table, which keeps those of main, and export it again after that"
            )
        later = read(later.key.next.hash)
    return ""


@dataclass(frozen=True, slots=True)
class ArchivedExport:
    """The row of an archived export, and the state of its key in main."""

    row: Row
    held: Holding


def lacks_archived(exports: Iterable[ArchivedExport]) -> ArchivedExport | None:
    """Return the first archived export of which main lacks rows, None if there is none."""
    lacking = (
        one
        for one in exports
        if one.row.done is None or not one.held.has_rows_of(one.row.done.landed)
    )
    return next(lacking, None)


@dataclass(frozen=True, slots=True)
class ArchivedExports:
    """All archived exports of a partition, at least one, in the order of their increments.

    `may_be_back` is the reason why parts of the source may have archived rows although their
    hashes do not show it; '' if they cannot. `detached` are the parts in the source's `detached`
    directory; None if the source does not show them, or no part of it equals an archived one.
    """

    exports: tuple[ArchivedExport, ...]
    may_be_back: str = ""
    detached: frozenset[DetachedPart] | None = None

    @classmethod
    def of(
        cls,
        exports: tuple[ArchivedExport, ...],
        content: Content | None,
        detached: Callable[[], frozenset[DetachedPart] | None],
    ) -> Self:
        """Compare the source of a partition with its archived exports.

        Args:
            exports: the archived exports.
            content: the content of the source partition, None if it has none.
            detached: as in `may_be_back`.

        Raises:
            SourceError: from `detached`.
        """
        seen = functools.cache(detached)
        rows = tuple(one.row for one in exports)
        back = may_be_back(rows, content, seen)
        is_equal = content is not None and any(_has_equal(row, content) for row in rows)
        return cls(exports, back, seen() if is_equal else None)

    @property
    def is_ending(self) -> bool:
        """Whether an unarchive of one of them has begun and not ended."""
        marks = (one.row.archived for one in self.exports)
        return any(mark is not None and mark.is_ending for mark in marks)

    def has(self, content: Content) -> ArchivedExport | None:
        """Return the export whose parts were attached to the source again, if main has its rows."""
        in_main = (one for one in self.exports if has_it(one.row, content, one.held))
        back = (one for one in in_main if is_attached(one.row, content, lambda: self.detached))
        return next(back, None)

    def equal_parts(self, content: Content) -> tuple[list[str], list[str]]:
        """Return the names of the source's parts that equal archived ones, by their hashes.

        First those that were attached again, then those of which no archived part was.
        """
        known = {_identity(part) for one in self.exports for part in _parts(one.row)}
        left = Counter[tuple[str, int]]()
        for one in self.exports:
            left += _returned(one.row, content, self.detached)
        again, new = list[str](), list[str]()
        for part in content.parts:
            of = _identity(part)
            if of in known:
                (again if left[of] > 0 else new).append(part.name)
                left[of] -= 1
        return again, new

    def why_refused(self, content: Content | None) -> str:
        """Return the reason why the source's rows are not exported without being asked for."""
        rows, parts = (content.rows, len(content.parts)) if content is not None else (0, 0)
        if content is not None and (why := self._why_equal(content)):
            return why
        return refuse_archived(self.exports[-1].row, rows, parts)

    def why_not_late(self, content: Content, late_rows: LateRows) -> str:
        """Return the reason why the source's rows are no increment; '' if they are one."""
        if self.is_ending:
            return (
                f"{Command.UNARCHIVE} of it was begun and did not end. Run that again, or "
                f"{Command.ARCHIVE} when the source has exactly the archived rows again"
            )
        again, _ = self.equal_parts(content)
        if again:
            return (
                f"its part {_first_of(again)} is archived, and was attached to the source again. "
                "Detach that part in the source, and run it again"
            )
        if late_rows is LateRows.APPEND_ALL:
            return ""
        return self._why_equal(content) or self.may_be_back

    def _why_equal(self, content: Content) -> str:
        """Return why parts that equal archived ones are not added unasked, '' if there are none."""
        again, new = self.equal_parts(content)
        if again or not new:
            return ""
        marks = [one.row.archived for one in self.exports]
        is_dropped = all(mark is not None and mark.detached == () for mark in marks)
        where = "was dropped" if is_dropped else "is still detached"
        return (
            f"its part {_first_of(new)} equals an archived one, which {where} and was not attached "
            f"here again. If the rows were inserted, {Option.LATE_ROWS_ALL} adds them to the lake, "
            "next to the archived rows. If another replica attached its copy, detach the part"
        )


def _first_of(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


# ClickHouse appends this to the name of a part that is detached while one of the name is.
_AGAIN: Final = re.compile(r"_try\d+\Z")


def _has_equal(row: Row, content: Content) -> bool:
    """Whether the source has a part that equals one of an archived export."""
    known = {_identity(part) for part in _parts(row)}
    return any(_identity(part) in known for part in content.parts)


def is_attached(
    row: Row, content: Content, detached: Callable[[], frozenset[DetachedPart] | None]
) -> bool:
    """Whether the source has exactly the parts of an archived export, attached again."""
    if row.done is None or content.fingerprint != row.done.landed.fingerprint:
        return False
    # A rebuilt ledger knows only the fingerprint of all parts together.
    return not _parts(row) or (
        Counter(map(_identity, content.parts)) <= _returned(row, content, detached())
    )


def _returned(
    row: Row, content: Content, there: frozenset[DetachedPart] | None
) -> Counter[tuple[str, int]]:
    """Count the parts of an archived export that the source may have again, by their hashes.

    Args:
        row: the row of the export.
        content: the content of the source partition.
        there: the parts in the source's `detached` directory; None if it does not show them.
    """
    parts, mark = _parts(row), row.archived
    if there is None or mark is None:
        return Counter(map(_identity, parts))
    if mark.detached is None:
        # Perhaps it never left: then it has its name, and a DETACH that died made a copy of it.
        copies = {_AGAIN.sub("", part.name) for part in there}
        active = {(part.name, _identity(part)) for part in content.parts}
        never_left = (p for p in parts if (p.name, _identity(p)) in active or p.name not in copies)
        return Counter(map(_identity, never_left))
    gone = [_AGAIN.sub("", part.name) for part in mark.detached if part not in there]
    of_name = {part.name: _identity(part) for part in parts}
    if any(name not in of_name for name in gone):
        # It was attached again, and detached under another name, before it was archived.
        return Counter(map(_identity, parts))
    return Counter(of_name[name] for name in gone)


def has_it(row: Row, content: Content, held: Holding) -> bool:
    """Whether main holds a complete export of the key, and the source is unchanged since.

    Parts that left the source keep their hashes when they are attached again, and get other block
    numbers. So block numbers, which show a merge, prove nothing of an archived export.
    """
    done = row.done
    if done is None or not held.has_rows_of(done.landed):
        return False
    is_same = content.fingerprint == done.landed.fingerprint
    return is_same or (row.archived is None and is_merged(done, content))


def may_be_back(
    archived: Iterable[Row],
    content: Content | None,
    detached: Callable[[], frozenset[DetachedPart] | None],
) -> str:
    """Return the reason why parts of a partition may have rows that are archived; '' if not.

    A part that is attached again and then merged or mutated has another hash, and after a DETACH
    and an ATTACH of it not even its name shows that. So no part is known to be new while an
    archived one may be in the table.

    Args:
        archived: the rows of the partition's archived exports.
        content: the content of the source partition, None if it has none.
        detached: returns the parts in the source's `detached` directory; None if the source does
            not show them. It is called only if the answer depends on it.

    Raises:
        SourceError: from `detached`.
    """
    rows = tuple(archived)
    if content is None or not content.parts or not rows:
        return ""
    beyond = f"If none of them is archived, add the rows with {Option.LATE_ROWS_ALL}"
    if not all(_parts(row) for row in rows):
        return (
            f"the ledger does not know which parts of it were archived, so {content.parts[0].name} "
            f"may be one of them. {beyond}"
        )
    kept = [row for row in rows if row.archived is not None and row.archived.detached != ()]
    if not kept:
        return ""
    there = detached()
    unsure = [row for row in kept if row.archived is not None and row.archived.detached is None]
    for row in unsure if there is not None else ():
        if why := _may_not_have_left(row, content, there or frozenset()):
            return (
                f"{why} If they have them, `{unarchive_command(unsure[-1])}` lets an export "
                f"replace the archived rows. {beyond}"
            )
    gone = [name for row in kept for name in _gone(row, there or frozenset())]
    if not gone:
        return ""
    shown = gone[0] + (f" and {len(gone) - 1} more" if len(gone) > 1 else "")
    unseen = there is None
    why = "the source does not show its detached parts" if unseen else "it is not detached any more"
    return (
        f"its parts may have the rows of the archived part {shown}: {why}, and a merge or a "
        f"mutation would hide it. {beyond}"
    )


def _may_not_have_left(row: Row, content: Content, there: frozenset[DetachedPart]) -> str:
    """Return why parts may have rows of an export of which no detached part is noted, '' if not.

    DETACH PARTITION first copies the parts to the `detached` directory. If the server dies then,
    they stay in the table, too, with their blocks, and a merge of them has these blocks.
    """
    names = {part.name for part in there}
    for one in _parts(row):
        what = f"its parts may have the rows of the archived part {one.name}: the ledger does not"
        if one.name not in names:
            return f"{what} record that it left the source, and it is not detached."
        of_blocks = (
            part.name
            for part in content.parts
            if part.min_block <= one.max_block and one.min_block <= part.max_block
        )
        if (name := next(of_blocks, None)) is not None:
            return f"{what} record that it left the source, and {name} has its block numbers."
    return ""


def _gone(row: Row, there: frozenset[DetachedPart]) -> list[str]:
    """Return the names of the parts that an archive detached and that are not detached now."""
    if row.archived is not None and row.archived.detached is not None:
        return [part.name for part in row.archived.detached if part not in there]
    names = {part.name for part in there}
    return [part.name for part in _parts(row) if part.name not in names]


def _parts(row: Row) -> tuple[ExportedPart, ...]:
    return row.done.parts if row.done is not None else ()


def _identity(part: ExportedPart) -> tuple[str, int]:
    return part.hash_of_all_files, part.rows

"""Whether a partition is exported, and if not, what is said instead: the table of DESIGN 5.5, pure.

The caller has the lease, the ledger row, the content of the source partition, and one loaded state
of the table with the key's files in main. What is not answered here is claimed: a new epoch, by
compare-and-set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tableformat.committer import FileInMain, LakeTableState
from tableformat.errors import UsageError
from tableformat.export.outcome import Status
from tableformat.file_names import is_of_transaction
from tableformat.ledger import ExportedPart, Key, Landed, Row, State
from tableformat.mergetree.parts import Part, fingerprint
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartName

__all__ = [
    "Answer",
    "Content",
    "InMain",
    "Wish",
    "answer",
    "claimed",
    "content_of",
    "in_main",
    "settled",
]

_NOT_YET: Final = "this release does not replace an export yet"


@dataclass(frozen=True, slots=True)
class Content:
    """What a source partition holds now.

    `merge_explains` says whether a merge alone can change the hashes.
    """

    fingerprint: str
    parts: tuple[ExportedPart, ...]
    merge_explains: bool

    @property
    def rows(self) -> int:
        """Rows of the parts, lightweight-deleted ones included."""
        return sum(p.rows for p in self.parts)


@dataclass(frozen=True, slots=True)
class Wish:
    """How the user asked. `ttl` in seconds is for the record that is made now; 0 is for ever."""

    force: bool = False
    ttl: int = 180


@dataclass(frozen=True, slots=True)
class Answer:
    """Why nothing is exported: said to the user, nothing is changed."""

    status: Status
    message: str


def content_of(table: MergeTreeTable, parts: tuple[Part, ...]) -> Content:
    """Return the content identity of a partition (DESIGN 5.1)."""
    exported = tuple(
        ExportedPart(p.name, p.hash_of_all_files, p.rows, p.min_block, p.max_block, p.data_version)
        for p in parts
    )
    plain = table.engine.name in ("MergeTree", "ReplicatedMergeTree", "SharedMergeTree")
    return Content(
        fingerprint(parts), exported, plain and not table.engine.ttl and not table.has_ttl_columns
    )


def answer(
    row: Row | None,
    content: Content | None,
    wish: Wish,
    state: LakeTableState,
    files: tuple[FileInMain, ...],
    now: int,
) -> Answer | None:
    """Return what is said instead of exporting; None when the partition is to be claimed.

    Args:
        row: the key's row, None when it was never exported.
        content: what the source partition holds; None when it has no active part any more.
        wish: how the user asked.
        state: the table now.
        files: the files in main that exports of this key added.
        now: milliseconds since 1970.
    """
    if row is None or row.done is None:
        return _first_export(row, files)
    found = in_main(row, row.done, state, files)
    if content is None:
        return Answer(
            Status.ALREADY_EXPORTED if found.holds else Status.REFUSED,
            f"exported before; the source partition is gone since. {found.text}",
        )
    same = content.fingerprint == row.done.fingerprint
    merged = not same and content.merge_explains and _merged(row.parts, content.parts)
    if wish.force:
        return Answer(
            Status.REFUSED,
            f"it was exported in snapshot {row.done.snapshot_id}, and {_NOT_YET}. Leave out "
            "--force.",
        )
    if not (same or merged):
        return _differs(row, row.done, content, now)
    if not found.holds:
        return Answer(
            Status.REFUSED,
            f"{found.text} Exporting it again would be a replacement, and {_NOT_YET}.",
        )
    if row.state is not State.COMPLETED:
        return Answer(
            Status.REFUSED, f"a replacement of it was begun and not finished, and {_NOT_YET}."
        )
    if _inside_ttl(row, now):
        return Answer(
            Status.ALREADY_EXPORTED,
            f"{row.rows:,} rows are in main since snapshot {row.done.snapshot_id}.",
        )
    how = "unchanged (merged)" if merged else "unchanged"
    return Answer(
        Status.UNCHANGED,
        f"{how}: {row.rows:,} rows are in main since snapshot {row.done.snapshot_id}.",
    )


def claimed(
    row: Row | None,
    key: Key,
    *,
    names: tuple[str, str],
    content: Content,
    epoch: int,
    transaction_id: str,
    wish: Wish,
    now: int,
) -> Row:
    """Return the row of a new claim; the files of the attempt before go on the list `old`."""
    if row is None:
        source, destination = names
        return Row(
            key, source, destination, epoch, State.RUNNING, transaction_id,
            content.fingerprint, now, now,
            parts=content.parts, ttl=wish.ttl,
        )  # fmt: skip
    return replace(
        row,
        epoch=epoch,
        state=State.RUNNING,
        transaction_id=transaction_id,
        fingerprint=content.fingerprint,
        updated=now,
        parts=content.parts,
        ttl=wish.ttl,
        old=(*row.old, row.transaction_id),
        last_error="",
        rows=0,
        data_files=0,
        bytes=0,
        completed=None,
    )


def settled(row: Row, landed: Landed, now: int) -> Row:
    """Return the row after an export of it was seen to have landed (protocol.md step 8)."""
    return replace(
        row.with_landed(landed),
        state=State.COMPLETED,
        done=landed,
        updated=now,
        completed=now,
        last_error="",
    )


@dataclass(frozen=True, slots=True)
class InMain:
    """Whether an export's rows are all in main, untouched, and how that is said."""

    holds: bool
    text: str


def in_main(row: Row, done: Landed, state: LakeTableState, files: tuple[FileInMain, ...]) -> InMain:
    """Say whether every file of the last export is in main and carries no delete (DESIGN 5.5)."""
    own = [f for f in files if is_of_transaction(f.path, row.key.hash, done.transaction_id)]
    if (
        own
        and len(own) == row.data_files
        and sum(f.rows for f in own) == row.rows
        and not any(f.deletes for f in own)
    ):
        return InMain(
            holds=True, text=f"{row.rows:,} rows are in main since snapshot {done.snapshot_id}."
        )
    if not state.is_ancestor(done.snapshot_id) and state.history_is_complete:
        text = f"It landed in snapshot {done.snapshot_id}, and main was moved away from it since."
        return InMain(holds=False, text=text)
    changed = _changed_since(done, state)
    text = f"It landed in snapshot {done.snapshot_id}; its files were changed since{changed}."
    return InMain(holds=False, text=text)


def _changed_since(done: Landed, state: LakeTableState) -> str:
    """Name the later snapshots of main that did not only append."""
    found, seen = [], state.main
    while seen is not None and seen != done.snapshot_id and seen in state.snapshots:
        if state.snapshots[seen].operation != "append":
            found.append(f"snapshot {seen} ({state.snapshots[seen].operation})")
        seen = state.snapshots[seen].parent_id
    return f" by {', '.join(reversed(found))}" if found else ""


def _first_export(row: Row | None, files: tuple[FileInMain, ...]) -> Answer | None:
    if not files:
        return None
    rows = sum(f.rows for f in files)
    where = "this ledger does not know it" if row is None else "its row was not settled"
    return Answer(
        Status.REFUSED,
        f"main already holds {len(files)} file(s) with {rows:,} rows of this very partition, and "
        f"{where}. Use the ledger that exported it.",
    )


def _differs(row: Row, done: Landed, content: Content, now: int) -> Answer:
    before, after = sum(p.rows for p in row.parts), content.rows
    text = (
        f"the source partition differs from what was exported in snapshot {done.snapshot_id}: "
        f"{before:,} rows in {len(row.parts)} part(s) then, {after:,} in {len(content.parts)} now"
    )
    if _inside_ttl(row, now):
        return Answer(
            Status.REFUSED,
            f"{text}, and the export is younger than its manifest TTL of {row.ttl} s.",
        )
    return Answer(Status.REFUSED, f"{text}, and {_NOT_YET}.")


def _inside_ttl(row: Row, now: int) -> bool:
    return row.completed is not None and (row.ttl == 0 or now < row.completed + row.ttl * 1000)


def _merged(before: tuple[ExportedPart, ...], after: tuple[ExportedPart, ...]) -> bool:
    """Whether a merge explains other hashes: rows, blocks and mutation number agree."""
    return bool(before) and bool(after) and _extent(before) == _extent(after)


def _extent(parts: tuple[ExportedPart, ...]) -> tuple[int, int, int, frozenset[int | None]] | None:
    try:
        mutations = frozenset(PartName.parse(p.name).mutation for p in parts)
    except UsageError:
        return None
    rows = sum(p.rows for p in parts)
    return rows, min(p.min_block for p in parts), max(p.max_block for p in parts), mutations

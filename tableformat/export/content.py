"""What a source partition holds, by which an export is known to be of the same rows.

The parts' hashes tell it, and where parts lack columns, what ClickHouse computes these from. Other
hashes may be those of the same rows after a merge.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tableformat.errors import UsageError
from tableformat.ledger import Claim, ExportedPart, Record
from tableformat.mergetree.missing_columns import computed_text, shown_definitions
from tableformat.mergetree.table import MergeTreeTable, Part, fingerprint
from tableformat.names import PartName
from tableformat.quantities import counted

__all__ = [
    "Content",
    "columns_of",
    "content_of",
    "how_it_differs",
    "is_merged",
    "lacks_values",
    "same_parts",
]

_COLUMNS_DIGITS: Final = 16
_COMPUTED: Final = "+"


@dataclass(frozen=True, slots=True)
class Content:
    """What a source partition holds now.

    `merge_explains` says whether a merge alone can change the hashes; `columns` is as in
    `ledger.Claim`. `computed` says, for people, from what ClickHouse computes the columns that
    parts lack; '' when none is lacked that is not NULL.
    """

    fingerprint: str
    parts: tuple[ExportedPart, ...]
    merge_explains: bool
    columns: str = ""
    computed: str = ""

    @property
    def rows(self) -> int:
        """Rows of the parts, lightweight-deleted ones included."""
        return sum(p.rows for p in self.parts)


def content_of(table: MergeTreeTable, parts: tuple[Part, ...]) -> Content:
    """Return the content identity of a partition.

    A merge writes the values of columns that its parts lacked as they are computed at that moment,
    so it explains nothing where any are lacked.
    """
    exported = tuple(
        ExportedPart(
            p.name,
            p.hash_of_all_files,
            p.rows,
            p.min_block,
            p.max_block,
            p.data_version,
            p.bytes_on_disk,
        )
        for p in parts
    )
    plain = table.engine.name in ("MergeTree", "ReplicatedMergeTree", "SharedMergeTree")
    computed = {p.lacks: computed_text(table.columns, p.lacks) for p in parts}
    lacked = frozenset(name for lacks, text in computed.items() if text for name in lacks)
    return Content(
        fingerprint(parts, computed),
        exported,
        plain and not table.engine.ttl and not table.has_ttl_columns and not lacked,
        columns=columns_of(table) + _COMPUTED * bool(lacked),
        computed=shown_definitions(table.columns, lacked),
    )


def columns_of(table: MergeTreeTable) -> str:
    """Return what tells the stored columns of a table from those of another time."""
    text = repr([(c.name, c.type_text) for c in table.stored_columns])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_COLUMNS_DIGITS]


def lacks_values(done: Record, now: Content) -> bool:
    """Whether an export lacks values of columns that the source shows now, or has others.

    Of one that an earlier release made only what parts lack tells it.
    """
    if now.fingerprint == done.landed.fingerprint or is_merged(done, now):
        return False
    before, of = done.columns.rstrip(_COMPUTED), now.columns.rstrip(_COMPUTED)
    return bool(now.computed or (before and before != of))


def how_it_differs(done: Record, now: Content) -> str:
    """Say how a source partition differs from what was exported of it."""
    if now.computed and same_parts(done, now):
        return (
            "its parts are the same, and ClickHouse computes columns that they lack from what was "
            f"added or changed since: {now.computed}"
        )
    return (
        f"{counted(done.source_rows, 'row')} in {counted(len(done.parts), 'part')} then, "
        f"{now.rows:,} in {len(now.parts)} now"
    )


def same_parts(done: Record, now: Content) -> bool:
    """Whether a source partition has the very parts that were exported, by their hashes."""
    before = Counter((p.hash_of_all_files, p.rows) for p in done.parts)
    return before == Counter((p.hash_of_all_files, p.rows) for p in now.parts)


def is_merged(before: Record | Claim, now: Content) -> bool:
    """Whether a merge explains other hashes: rows, blocks and mutation number agree.

    It brings the values of no column that parts lacked, or that the table did not have; rows of
    ledgers that do not tell are taken as if there had been none.
    """
    if not (now.merge_explains and before.parts and now.parts):
        return False
    return before.columns in ("", now.columns) and _extent(before.parts) == _extent(now.parts)


def _extent(parts: tuple[ExportedPart, ...]) -> tuple[int, int, int, frozenset[int | None]] | None:
    try:
        mutations = frozenset(PartName.parse(p.name).mutation for p in parts)
    except UsageError:
        return None
    rows = sum(p.rows for p in parts)
    return rows, min(p.min_block for p in parts), max(p.max_block for p in parts), mutations

"""Computes the content identity of a source partition, by which an export is recognised.

The identity consists of the parts' hashes and, if parts lack columns, of the expressions from which
ClickHouse computes these. After a merge the same rows can have other hashes (`is_merged`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tableformat.errors import UsageError
from tableformat.ledger import Claim, ExportedPart, Record
from tableformat.mergetree.missing_columns import computed_text, shown_definitions
from tableformat.mergetree.table import (
    MergeTreeTable,
    Part,
    PartIdentity,
    fingerprint,
    part_identity,
)
from tableformat.names import PartName
from tableformat.quantities import counted
from tableformat.table_properties import is_of_statement

__all__ = [
    "Content",
    "added_parts",
    "columns_of",
    "content_of",
    "how_it_differs",
    "is_merged",
    "knows_source",
    "lacks_values",
    "same_parts",
]

_COLUMNS_DIGITS: Final = 16
_COMPUTED: Final = "+"


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a source partition.

    `merge_explains`: a merge changes the hashes only, never a row. `counts_again`: the table, which
    is not replicated, may number its blocks from the start again after it was emptied and loaded
    anew, so that other rows have the blocks of exported ones. `columns` is as in `ledger.Claim`.
    `computed` describes for the user the expressions from which ClickHouse computes
    columns that parts lack; '' if no part lacks a column, or the missing values are NULL.
    `identities` are those of the parts, in their order.
    """

    fingerprint: str
    parts: tuple[ExportedPart, ...]
    merge_explains: bool
    columns: str = ""
    computed: str = ""
    counts_again: bool = False
    identities: tuple[PartIdentity, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows in the parts, including rows that lightweight deletes hide."""
        return sum(p.rows for p in self.parts)


def content_of(table: MergeTreeTable, parts: tuple[Part, ...]) -> Content:
    """Return the content identity of a partition.

    A merge stores the values of missing columns as they are computed at that time. So if a part
    lacks columns, a merge does not explain other hashes. Nor does it while lightweight updates are
    not written into the parts, which keep their names and hashes until then.
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
    has_ttl = bool(table.engine.ttl) or table.has_ttl_columns
    identities = tuple(part_identity(p, computed[p.lacks]) for p in parts)
    return Content(
        fingerprint(identities),
        exported,
        plain and not has_ttl and not lacked and not any(p.patches for p in parts),
        # A TTL may have acted before it was removed: a merge then changed rows.
        columns=columns_of(table) + _COMPUTED * (bool(lacked) or has_ttl),
        computed=shown_definitions(table.columns, lacked),
        counts_again=not table.engine.replicated,
        identities=identities,
    )


def columns_of(table: MergeTreeTable) -> str:
    """Return a digest of the names and types of a table's stored columns."""
    text = repr([(c.name, c.type_text) for c in table.stored_columns])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_COLUMNS_DIGITS]


def lacks_values(done: Record, now: Content) -> bool:
    """Whether an export lacks column values that the source has now, or has other values.

    For an export of an earlier release, which recorded no columns, only missing columns of the
    source's parts show this.
    """
    if now.fingerprint == done.landed.fingerprint or is_merged(done, now):
        return False
    before, of = done.columns.rstrip(_COMPUTED), now.columns.rstrip(_COMPUTED)
    return bool(now.computed or (before and before != of))


def knows_source(done: Record) -> bool:
    """Whether the record of an export knows what the source had; not that of a rebuilt ledger.

    An export that removed all rows had no parts.
    """
    removed = not done.landed.rows and not is_of_statement(done.landed.fingerprint)
    return bool(done.parts) or removed


def how_it_differs(done: Record, now: Content) -> str:
    """Return the text on how a source partition differs from its export."""
    if not knows_source(done):
        return (
            "the ledger was rebuilt and does not know what the source had then; it has "
            f"{counted(now.rows, 'row')} in {counted(len(now.parts), 'part')} now"
        )
    if now.computed and same_parts(done, now):
        return (
            "its parts are the same, but the definitions from which ClickHouse computes missing "
            f"columns were added or changed since: {now.computed}"
        )
    return (
        f"{counted(done.source_rows, 'row')} in {counted(len(done.parts), 'part')} then, "
        f"{now.rows:,} in {len(now.parts)} now"
    )


def same_parts(done: Record, now: Content) -> bool:
    """Whether a source partition has exactly the exported parts, by their hashes."""
    before = Counter((p.hash_of_all_files, p.rows) for p in done.parts)
    return before == Counter((p.hash_of_all_files, p.rows) for p in now.parts)


def added_parts(done: Record, now: Content) -> tuple[ExportedPart, ...]:
    """Return the parts that a source partition has besides all the exported ones.

    Empty if it is not certain that it has these, with the same values. A merge or a mutation gives
    a part another name. The fingerprint covers what its name and hash do not show: the definitions
    of columns that it lacks, and patch parts.
    """
    before = {part.name: _identity(part) for part in done.parts}
    pairs = tuple(zip(now.parts, now.identities, strict=True)) if now.identities else ()
    stays = [of for part, of in pairs if before.get(part.name) == _identity(part)]
    same_columns = done.columns.rstrip(_COMPUTED) == now.columns.rstrip(_COMPUTED) != ""
    if not (stays and same_columns and fingerprint(stays) == done.landed.fingerprint):
        return ()
    return tuple(part for part in now.parts if part.name not in before)


def is_merged(before: Record | Claim, now: Content) -> bool:
    """Whether merges explain other hashes: every part now is an exported one, or made of some.

    The part that a merge makes has the blocks, the rows and the mutation of the merged parts, and a
    higher level (ClickHouse's names of parts). The columns must agree, too: a merge does not add
    values of columns that the exported parts lacked. A record of an earlier release, without
    columns, counts as having the same ones.
    """
    if not (now.merge_explains and before.parts and now.parts):
        return False
    if before.columns not in ("", now.columns):
        return False
    try:
        exported = [(PartName.parse(part.name), part) for part in before.parts]
        made = [(PartName.parse(part.name), part) for part in now.parts]
    except UsageError:
        return False
    of_each = [
        [one for one in exported if name.low <= one[0].low and one[0].high <= name.high]
        for name, _ in made
    ]
    is_each_once = sorted(part.name for of_one in of_each for _, part in of_one) == sorted(
        part.name for _, part in exported
    )
    return is_each_once and all(
        _is_made_of(name, part, of_one) for (name, part), of_one in zip(made, of_each, strict=True)
    )


def _is_made_of(
    name: PartName, part: ExportedPart, merged: list[tuple[PartName, ExportedPart]]
) -> bool:
    """Whether a part is the only exported one among these, or the result of their merge.

    A table that was emptied counts its blocks from the start again after a restart of the server:
    then another part has the name of an exported one.
    """
    if any(before.name == part.name for _, before in merged):
        return [_identity(before) for _, before in merged] == [_identity(part)]
    return (
        bool(merged)
        and (name.low, name.high)
        == (min(one.low for one, _ in merged), max(one.high for one, _ in merged))
        and name.level > max(one.level for one, _ in merged)
        and {name.mutation} == {one.mutation for one, _ in merged}
        and part.rows == sum(before.rows for _, before in merged)
    )


def _identity(part: ExportedPart) -> tuple[str, int]:
    return part.hash_of_all_files, part.rows

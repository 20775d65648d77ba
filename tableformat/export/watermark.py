"""The watermark: up to which partition everything is exported and unchanged (N-40, reading 32).

For queries that read what is old from the lake and what is new from ClickHouse: the order is that
of ClickHouse's partition ids, and the watermark never lies inside a partition. It is true of the
moment in which the source was listed; `setting_watermark.py` puts it into commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tableformat.committer import LakeTable, LakeTableState
from tableformat.export.claim import Answer, Wish, answer
from tableformat.export.content import Content, content_of, how_it_differs
from tableformat.export.in_main import holding
from tableformat.export.loading import check_table_of_ledger
from tableformat.export.marks import unsettled_mark
from tableformat.export.outcome import Status
from tableformat.export.same_table import other_table
from tableformat.ledger import Key, Ledger, Row
from tableformat.mergetree.parts import Part
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId
from tableformat.source import Source

__all__ = ["Listing", "Watermark", "find_watermark", "list_source", "why_not"]

_AT_ONCE: Final = 400
"""Partitions of one question: with the longest ids it is still shorter than ClickHouse takes."""
_IN_MAIN: Final = (Status.UNCHANGED, Status.ALREADY_EXPORTED)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source table held at a time, in milliseconds since 1970.

    `contents` has every partition by its id, None for one without rows: there is nothing to export.
    """

    table: MergeTreeTable
    time: int
    contents: Mapping[PartitionId, Content | None]

    @property
    def source(self) -> str:
        """The identity in the keys of its exports."""
        return self.table.key_source


@dataclass(frozen=True, slots=True)
class Watermark:
    """The greatest partition up to which all are exported and unchanged, None before the first.

    `reached` of `partitions` source partitions are; `stopped_by` is the first that is not, and
    `why` says so; None and '' when none is left.
    """

    partition_id: PartitionId | None
    reached: int
    partitions: int
    stopped_by: PartitionId | None = None
    why: str = ""


def list_source(table: MergeTreeTable, source: Source, *, now: int) -> Listing:
    """List the partitions of a source table with their contents, in the order of their ids.

    Raises:
        SourceError: the source cannot be read.
    """
    ids = sorted(p.partition_id for p in source.partitions(table.name))
    parts: dict[PartitionId, list[Part]] = {one: [] for one in ids}
    for first in range(0, len(ids), _AT_ONCE):
        for part in source.parts(table.name, *ids[first : first + _AT_ONCE]):
            parts[part.partition_id].append(part)
    contents = {
        one: content_of(table, tuple(held)) if held else None for one, held in parts.items()
    }
    return Listing(table, now, contents)


def find_watermark(
    table: MergeTreeTable, source: Source, lake: LakeTable, ledger: Ledger, *, now: int
) -> Watermark:
    """Compare the partitions of a source table with what main holds, in the order of their ids.

    Args:
        table: the source table.
        source: where it is.
        lake: the lake table.
        ledger: what was exported.
        now: milliseconds since 1970.

    Raises:
        RefusedError: the lake table is another ledger's.
        TableFormatError: source, lake table or ledger cannot be read.
    """
    state = lake.load()
    check_table_of_ledger(state, ledger)
    listing = list_source(table, source, now=now)
    last, among = None, len(listing.contents)
    for number, (one, content) in enumerate(listing.contents.items()):
        key = Key(listing.source, one.value, state.layout.table_uuid)
        row = ledger.read(key.hash) if content else None
        why = why_not(table, content, row, key, lake, state) if content else ""
        if why:
            return Watermark(last, number, among, one, why)
        last = one
    return Watermark(last, among, among)


def why_not(
    table: MergeTreeTable,
    content: Content,
    row: Row | None,
    key: Key,
    lake: LakeTable,
    state: LakeTableState,
) -> str:
    """Say why a partition is not exported and unchanged, '' when it is.

    Args:
        table: the source table.
        content: what the source partition holds.
        row: its ledger row, read after `state` was loaded.
        key: its key.
        lake: the lake table.
        state: its metadata.

    Raises:
        DestinationError: main cannot be read.
    """
    if other := other_table(row, table):
        return other.rstrip(".")
    if row is not None and unsettled_mark(row, state) is not None:
        return "an export of it landed and is not in the ledger yet. Run the export again"
    if row is None or row.done is None:
        error = row.last_error.splitlines()[0] if row is not None and row.last_error else ""
        return f"its export did not end well: {error}" if error else "it was never exported"
    held = holding(row, state, key.hash, partial(lake.files_of, state, key.hash))
    # Whether exporting it again would be refused for a while is no question here.
    said = answer(row, content, Wish(), held, now=0)
    if isinstance(said, Answer) and said.status in _IN_MAIN:
        return ""
    landed = row.done.landed
    if not held.holds(landed):
        return held.about(landed).rstrip(".")
    return (
        f"the source partition differs from what was exported in snapshot {landed.snapshot_id}: "
        f"{how_it_differs(row.done, content)}"
    )

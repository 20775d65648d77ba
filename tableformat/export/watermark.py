"""The watermark: up to which partition everything is exported and unchanged (N-40, reading 32).

For queries that read what is old from the lake and what is new from ClickHouse: the order is that
of ClickHouse's partition ids, and the watermark never lies inside a partition. It is true of the
moment in which it was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tableformat.committer import LakeTable, LakeTableState
from tableformat.export.claim import Answer, Wish, answer, content_of
from tableformat.export.commit import unsettled_mark
from tableformat.export.in_main import holding
from tableformat.export.loading import check_table_of_ledger
from tableformat.export.outcome import Status
from tableformat.ledger import Key, Ledger, Row
from tableformat.mergetree.parts import Part
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId
from tableformat.source import Source

__all__ = ["Watermark", "find_watermark"]

_IN_MAIN = (Status.UNCHANGED, Status.ALREADY_EXPORTED)


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


def find_watermark(
    table: MergeTreeTable, source: Source, lake: LakeTable, ledger: Ledger, *, now: int
) -> Watermark:
    """Compare the partitions of a source table with what main holds, in the order of their ids.

    Partitions without rows are passed over: there is nothing to export in them.

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
    ids = sorted(p.partition_id for p in source.partitions(table.name))
    last = None
    for number, one in enumerate(ids):
        key = Key(table.identity, one.value, state.layout.table_uuid)
        parts = source.parts(table.name, one)
        why = _why_not(table, parts, ledger.read(key.hash), key, lake, state, now) if parts else ""
        if why:
            return Watermark(last, number, len(ids), one, why)
        last = one
    return Watermark(last, len(ids), len(ids))


def _why_not(
    table: MergeTreeTable,
    parts: tuple[Part, ...],
    row: Row | None,
    key: Key,
    lake: LakeTable,
    state: LakeTableState,
    now: int,
) -> str:
    """Say why a partition is not exported and unchanged, '' when it is."""
    if row is not None and unsettled_mark(row, state) is not None:
        return "an export of it landed and is not in the ledger yet. Run the export again"
    if row is None or row.done is None:
        error = row.last_error.splitlines()[0] if row is not None and row.last_error else ""
        return f"its export did not end well: {error}" if error else "it was never exported"
    held = holding(row, state, key.hash, partial(lake.files_of, state, key.hash))
    content = content_of(table, parts)
    said = answer(row, content, Wish(), held, now)
    if isinstance(said, Answer) and said.status in _IN_MAIN:
        return ""
    landed = row.done.landed
    if not held.holds(landed):
        return held.about(landed).rstrip(".")
    return (
        f"the source partition differs from what was exported in snapshot {landed.snapshot_id}: "
        f"{row.done.source_rows:,} rows in {len(row.done.parts)} part(s) then, {content.rows:,} in "
        f"{len(content.parts)} now"
    )

"""Computes the watermark of a source table and writes it with each commit of exports (N-40).

The watermark is the greatest partition id, in ClickHouse's order of ids, up to which every
partition is exported and unchanged. Queries read older rows from the lake and newer rows from
ClickHouse. So it is not less than an archived partition that has left the source, unless a
partition before that one stops it. The watermark never falls inside a partition. It is true for
the moment when the source was listed.

* `SettingWatermark` sets it as a table property, in the request that adds the rows.
* It is computed in each turn from the metadata M of that turn, from main and from the keys that
  the request makes visible. It records when the source was listed.
* A rollback of main does not change a table property, so the value names the snapshot for which
  it holds.
* If another table with the same identity has exports, there is no watermark.

Source: docs/spec/commit-protocol.md, "The watermark".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from tableformat.committer import FileInMain, KeyCommit, LakeTable, LakeTableState
from tableformat.errors import DestinationError, UnsupportedError
from tableformat.export.archived import (
    ArchivedExport,
    ArchivedExports,
    PartitionExports,
    exports_of_partition,
    lacks_archived,
)
from tableformat.export.commit import check_table_of_ledger
from tableformat.export.content import Content, content_of, how_it_differs
from tableformat.export.decision import Skip, decide_export
from tableformat.export.main_state import holding, unsettled_mark
from tableformat.export.outcome import Status
from tableformat.export.request import ExportOptions
from tableformat.export.table_identity import known_node, other_table
from tableformat.ledger import DetachedPart, Key, Ledger, Row
from tableformat.mergetree.table import MergeTreeTable, Part
from tableformat.messages import Command
from tableformat.names import PartitionId, hash_of
from tableformat.source import Source

__all__ = [
    "Listing",
    "SettingWatermark",
    "StoredWatermark",
    "Watermark",
    "find_watermark",
    "list_source",
    "property_of",
    "why_not",
]

_AT_ONCE: Final = 400
"""Partitions of one query: with the longest ids the query is within ClickHouse's limit."""
_IN_MAIN: Final = (Status.UNCHANGED, Status.ALREADY_EXPORTED)


@dataclass(frozen=True, slots=True)
class Listing:
    """The partitions of a source table at `time`, in milliseconds since 1970.

    `contents` has every partition by its id; it is None for a partition without rows, which has
    nothing to export.
    """

    table: MergeTreeTable
    time: int
    contents: Mapping[PartitionId, Content | None]

    @property
    def source(self) -> str:
        """The table's identity in the keys of its exports."""
        return self.table.key_source


@dataclass(frozen=True, slots=True)
class Watermark:
    """The greatest partition up to which all are exported and unchanged, None if there is none.

    `reached` of the `partitions` source partitions are below or at it. `stopped_by` is the first
    partition that is not exported and unchanged, with the reason `why`; None and '' if all are.
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
    """Compute the watermark: compare the source partitions with main, in the order of their ids.

    Args:
        table: the source table.
        source: the source that has it.
        lake: the lake table.
        ledger: the ledger of the exports.
        now: milliseconds since 1970.

    Raises:
        RefusedError: the lake table belongs to another ledger.
        TableFormatError: source, lake table or ledger cannot be read.
    """
    state = lake.load()
    check_table_of_ledger(state, ledger)
    listing = list_source(table, source, now=now)
    left = _Left.of(listing, ledger, state)
    last, among = None, len(listing.contents)
    for number, (one, content) in enumerate(listing.contents.items()):
        first = Key(listing.source, one.value, state.layout.table_uuid)
        exports = exports_of_partition(ledger.read, first, ledger.read(first.hash))
        try:
            detached = partial(source.detached_parts, table.name, one)
            why = why_not(table, content, exports, lake, state, detached)
        except UnsupportedError as error:
            why = error.message.rstrip(".")
        if why:
            return Watermark(left.after(last, one, lake, state), number, among, one, why)
        last = one
    return Watermark(left.after(last, None, lake, state), among, among)


@dataclass(frozen=True, slots=True)
class _Left:
    """The archived partitions that a source does not have any more, the greatest id first."""

    archived: tuple[tuple[PartitionId, tuple[Row, ...]], ...]

    @classmethod
    def of(cls, listing: Listing, ledger: Ledger, state: LakeTableState) -> Self:
        """Return those of a source table in a lake table.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found: dict[PartitionId, list[Row]] = {}
        of_it = listing.source, state.layout.table_uuid
        for row in ledger.rows():
            if (row.key.source, row.key.destination) != of_it or row.archived is None:
                continue
            one = PartitionId(row.key.partition_id)
            if one not in listing.contents:
                found.setdefault(one, []).append(row)
        return cls(tuple((one, tuple(found[one])) for one in sorted(found, reverse=True)))

    def after(
        self,
        last: PartitionId | None,
        before: PartitionId | None,
        lake: LakeTable,
        state: LakeTableState,
    ) -> PartitionId | None:
        """Return the greatest archived partition that main has, or `last` if that is greater.

        Args:
            last: the last partition of the source before the first that is not exported.
            before: this first one; None if there is none.
            lake: the lake table.
            state: its metadata.

        Raises:
            DestinationError: main cannot be read.
        """
        for one, rows in self.archived:
            if last is not None and one < last:
                break
            is_before = before is None or one < before
            if is_before and all(_has_rows(row, lake, state) for row in rows):
                return one
        return last


def _has_rows(row: Row, lake: LakeTable, state: LakeTableState) -> bool:
    """Whether main has all rows of an export; false if deletes in main hide that."""
    try:
        held = holding(row, state, row.key.hash, lake)
    except UnsupportedError:
        return False
    return row.done is not None and held.has_rows_of(row.done.landed)


def why_not(
    table: MergeTreeTable,
    content: Content | None,
    exports: PartitionExports,
    lake: LakeTable,
    state: LakeTableState,
    detached: Callable[[], frozenset[DetachedPart] | None] | None,
) -> str:
    """Return the reason why a partition is not exported and unchanged, '' if it is.

    Of an archived partition the source may have the archived rows again, or later ones. Main must
    have all of them, whatever the source has.

    Args:
        table: the source table.
        content: the content of the source partition, None if it has no rows.
        exports: its exports, read after `state` was loaded.
        lake: the lake table.
        state: its metadata.
        detached: returns the parts in the source's `detached` directory, None if the source does
            not show them. None instead of it if the source is not read: then archived parts that
            the source has again may be new ones.

    Raises:
        DestinationError: main cannot be read.
        SourceError: from `detached`.
    """
    row, key = exports.row, exports.key
    if content is None and not exports.archived:
        return ""
    if (first := next(iter(exports.archived), row)) and (other := other_table(first, table)):
        return other.rstrip(".")
    found = tuple(
        ArchivedExport(one, holding(one, state, one.key.hash, lake)) for one in exports.archived
    )
    if (lacks := lacks_archived(found)) is not None:
        return lacks.held.text.rstrip(".")
    if content is None:
        return ""
    if found and detached and ArchivedExports.of(found, content, detached).has(content):
        return ""
    if row is None and exports.archived:
        return "rows arrived after it was archived"
    if row is not None and unsettled_mark(row, state) is not None:
        return "an export of it landed and is not in the ledger yet. Run the export again"
    if row is None or row.done is None:
        error = row.last_error.splitlines()[0] if row is not None and row.last_error else ""
        return f"its export failed: {error}" if error else "it was never exported"
    held = holding(row, state, key.hash, lake)
    # `now=0`: the manifest TTL, which only delays another export, does not matter here.
    decision = decide_export(row, content, ExportOptions(), held, now=0)
    if isinstance(decision, Skip) and decision.status in _IN_MAIN:
        return ""
    landed = row.done.landed
    if not held.holds(landed):
        return held.about(landed).rstrip(".")
    return (
        f"the source partition differs from what was exported in snapshot {landed.snapshot_id}: "
        f"{how_it_differs(row.done, content)}"
    )


_PREFIX: Final = "mergeberg.watermark."
_TEXT: Final = re.compile(r"(\d+):(\d+):([A-Za-z0-9-]+)")


@dataclass(frozen=True, slots=True)
class StoredWatermark:
    """The value of the watermark property: the partition, and the snapshot for which it holds.

    `time` is when the source was listed, in milliseconds since 1970.
    """

    snapshot_id: int
    time: int
    partition_id: PartitionId

    @property
    def text(self) -> str:
        """The property's value."""
        return f"{self.snapshot_id}:{self.time}:{self.partition_id}"

    @classmethod
    def parse(cls, text: str) -> StoredWatermark:
        """Parse the property's value (docs/spec/table-properties.md).

        Raises:
            DestinationError: the text is not SNAPSHOT:TIME:PARTITION.
        """
        found = _TEXT.fullmatch(text)
        if found is None:
            message = (
                f"Cannot read the watermark {text!r}: it is not SNAPSHOT:TIME:PARTITION. Run "
                f"{Command.WATERMARK}, which does not need it."
            )
            raise DestinationError(message)
        return cls(int(found[1]), int(found[2]), PartitionId(found[3]))


def property_of(source: str) -> str:
    """Return the name of the property for a source table's identity."""
    return _PREFIX + hash_of(source)


class SettingWatermark:
    """Computes the watermark of one source table for each commit of a run."""

    def __init__(self, listing: Listing, lake: LakeTable, ledger: Ledger) -> None:
        """Store the source's partitions as they were listed when the run began."""
        self._listing, self._lake, self._ledger = listing, lake, ledger
        self._whole: dict[str, frozenset[FileInMain]] = {}
        self._is_shared: bool | None = None
        self._left: _Left | None = None

    def __call__(self, state: LakeTableState, keys: tuple[KeyCommit, ...]) -> tuple[str, str]:
        """Return the property's name, and its value without the snapshot id, '' to remove it.

        Args:
            state: M.
            keys: the keys that the commit makes visible.

        Raises:
            DestinationError: main cannot be read.
            LedgerError: the ledger cannot be read.
        """
        landing = {key.key: key.fingerprint for key in keys}
        last = None
        if not self._of_two_tables(state):
            self._left = self._left or _Left.of(self._listing, self._ledger, state)
            last, stop = self._reached(state, landing)
            last = self._left.after(last, stop, self._lake, state)
        value = f"{self._listing.time}:{last}" if last is not None else ""
        return property_of(self._listing.source), value

    def _reached(
        self, state: LakeTableState, landing: dict[str, str]
    ) -> tuple[PartitionId | None, PartitionId | None]:
        """Return the last partition before the first that is not exported, and this one."""
        last = None
        for one, content in self._listing.contents.items():
            try:
                if not self._is_exported(one, content, state, landing):
                    return last, one
            except UnsupportedError:
                # Deletes in main hide which rows it has of this partition.
                return last, one
            last = one
        return last, None

    def _of_two_tables(self, state: LakeTableState) -> bool:
        """Whether another table with the source's identity has exports; computed once."""
        if self._is_shared is None:
            table, destination = self._listing.table, state.layout.table_uuid
            has_guard = known_node(table) is not None or bool(table.server)
            self._is_shared = has_guard and any(
                row.key.source == table.key_source
                and row.key.destination == destination
                and bool(other_table(row, table))
                for row in self._ledger.rows()
            )
        return self._is_shared

    def _is_exported(
        self,
        one: PartitionId,
        content: Content | None,
        state: LakeTableState,
        landing: dict[str, str],
    ) -> bool:
        key = Key(self._listing.source, one.value, state.layout.table_uuid)
        if content is None:
            exports = exports_of_partition(self._ledger.read, key, self._ledger.read(key.hash))
            return not why_not(self._listing.table, None, exports, self._lake, state, None)
        if key.hash in landing:
            return landing[key.hash] == content.fingerprint
        files = frozenset(self._lake.files_of(state, key.hash))
        # While main holds the same files, the earlier result from the ledger is still valid.
        if files and self._whole.get(key.hash) == files:
            return True
        exports = exports_of_partition(self._ledger.read, key, self._ledger.read(key.hash))
        increment, row = exports.key.hash, exports.row
        if increment != key.hash and increment in landing:
            return landing[increment] == content.fingerprint and all(
                one.done is not None
                and holding(one, state, one.key.hash, self._lake).has_rows_of(one.done.landed)
                for one in exports.archived
            )
        if why_not(self._listing.table, content, exports, self._lake, state, None):
            return False
        # Of a rewritten export, other files have the rest of the rows.
        is_first = increment == key.hash
        if is_first and row and row.done and row.done.landed.rows == sum(f.rows for f in files):
            self._whole[key.hash] = files
        return True

"""The snapshot protocol: partitions are cloned into staging tables, then proved to be the source's parts.

    preflight -> staging table -> one ALTER with a REPLACE for each partition -> read-only
    -> is the source still what it was? -> preflight again -> parts, disks, CHECK, counts, probes

A clone is atomic for each partition and costs milliseconds; what can go wrong silently around it is
listed in source.md sections 0 and 1, and each entry has its check here. One bad partition never fails
the others; a staging table that was used once is never filled again (its hidden parts would double).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection
from catalog.clickhouse.describe import describe, list_parts
from catalog.clickhouse.preflight import (
    foreign_columns,
    mutation_ids,
    refuse_foreign_columns,
    refused_by_source,
)
from catalog.clickhouse.staging import (
    create_staging,
    drop_staging,
    layout_of,
    make_readonly,
    next_staging,
)
from catalog.clickhouse.verify import check_disks, check_parts, count_visible, measure
from tableformat.errors import NotFoundError, RefusedError, SourceError, TableFormatError
from tableformat.mergetree.parts import Part
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId, TableName, quote_string
from tableformat.source import FrozenPart, FrozenPartition, Probe, SourceSnapshot

__all__ = ["SnapshotRequest", "take_snapshot"]

_GROUP: Final = 100
_ATTEMPTS: Final = 5
_PATCHES_PENDING: Final = 344
_BAD_ARGUMENTS: Final = 36

Refused = tuple[tuple[PartitionId, TableFormatError], ...]


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What is to be frozen: partitions of a table as it was described, for a job, with its probes."""

    table: MergeTreeTable
    partition_ids: tuple[PartitionId, ...]
    job: str
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a group of partitions, and the staging tables that hold the frozen ones."""

    frozen: tuple[FrozenPartition, ...] = ()
    refused: Refused = ()
    staging: tuple[TableName, ...] = ()

    def __add__(self, other: _Outcome) -> _Outcome:
        return _Outcome(
            self.frozen + other.frozen,
            self.refused + other.refused,
            self.staging + other.staging,
        )


class _SourceMoved(Exception):  # noqa: N818  no error: it says that an attempt must be made again
    """The source changed while a clone was made."""


def take_snapshot(
    connection: Connection, capabilities: Capabilities, request: SnapshotRequest
) -> SourceSnapshot:
    """Freeze partitions: each whole and proved, or refused with its reason.

    Raises:
        SourceError: the source cannot be used at all.
    """
    refused = refused_by_source(connection, request.table.name, request.partition_ids)
    outcome = _Outcome(refused=tuple(refused.items()))
    for group in _groups(tuple(p for p in request.partition_ids if p not in refused)):
        part = replace(request, partition_ids=group)
        outcome += _Freezing(connection, capabilities, part).run()
    return SourceSnapshot(
        table=request.table,
        layout=layout_of(request.table, capabilities),
        partitions=tuple(sorted(outcome.frozen, key=lambda partition: partition.partition_id)),
        refused=tuple(sorted(outcome.refused, key=lambda pair: pair[0])),
        handle=tuple(name.name for name in outcome.staging),
    )


def _groups(partition_ids: tuple[PartitionId, ...]) -> Iterator[tuple[PartitionId, ...]]:
    for start in range(0, len(partition_ids), _GROUP):
        yield partition_ids[start : start + _GROUP]


@dataclass(frozen=True, slots=True)
class _Freezing:
    """The freezing of one group of partitions."""

    connection: Connection
    capabilities: Capabilities
    request: SnapshotRequest

    def run(self) -> _Outcome:
        """Freeze the group; when its clone fails, each partition alone."""
        for attempt in itertools.count(1):
            staging = next_staging(self.connection, self.request.job)
            try:
                return self._attempt(staging)
            except _SourceMoved as moved:
                drop_staging(self.connection, self.capabilities, staging)
                if attempt == _ATTEMPTS:
                    return self._refuse_all(self._unsteady(moved))
            except RefusedError as error:
                drop_staging(self.connection, self.capabilities, staging)
                return self._refuse_all(error)
            except ClickHouseError as error:
                drop_staging(self.connection, self.capabilities, staging)
                if len(self.request.partition_ids) == 1:
                    return self._refuse_all(self._clone_error(error))
                return self._one_by_one()
        raise AssertionError

    def _attempt(self, staging: TableName) -> _Outcome:
        """Clone the group into a fresh staging table and prove what is in it."""
        mutations = mutation_ids(self.connection, self._source)
        create_staging(self.connection, self.capabilities, self.request.table, staging)
        before = self._source_parts()
        self._clone(staging)
        after = self._source_parts()
        self._check_definition(staging)
        if mutation_ids(self.connection, self._source) != mutations:
            message = "mutations were started"
            raise _SourceMoved(message)
        cloned = list_parts(self.connection, staging, self.request.partition_ids)
        frozen = self._matched(cloned, before, after)
        make_readonly(self.connection, self.capabilities, staging)
        return self._proved(staging, frozen)

    def _one_by_one(self) -> _Outcome:
        outcome = _Outcome()
        for one in self.request.partition_ids:
            alone = replace(self.request, partition_ids=(one,))
            outcome += replace(self, request=alone).run()
        return outcome

    def _clone(self, staging: TableName) -> None:
        replaces = ", ".join(
            f"REPLACE PARTITION ID {quote_string(str(one))} FROM {self._source.sql}"
            for one in self.request.partition_ids
        )
        self.connection.command(f"ALTER TABLE {staging.sql} {replaces}")

    def _check_definition(self, staging: TableName) -> None:
        """Refuse when source or staging table are not what `describe` had found.

        Raises:
            RefusedError: columns or keys differ.
        """
        planned = self.request.table
        now = describe(self.connection, self.capabilities, self._source)
        copy = describe(self.connection, self.capabilities, staging)
        different = _differences(planned, now) or (
            "" if _columns(copy) == _columns(planned) else "its columns"
        )
        if different:
            message = (
                f"Cannot export {self._source}: {different} changed since the table was described. "
                "Run the export again."
            )
            raise RefusedError(message)

    def _matched(
        self, cloned: tuple[Part, ...], before: tuple[Part, ...], after: tuple[Part, ...]
    ) -> dict[PartitionId, tuple[FrozenPart, ...]]:
        """Pair the cloned parts with the source's, by content.

        Raises:
            _SourceMoved: the source held other parts both before and after the clone.
        """
        frozen = {}
        for one in self.request.partition_ids:
            copies = _of_partition(cloned, one)
            content = Counter(part.content for part in copies)
            for parts in (_of_partition(before, one), _of_partition(after, one)):
                if Counter(part.content for part in parts) == content:
                    frozen[one] = _paired(copies, parts)
                    break
            else:
                message = f"the parts of partition {one} changed"
                raise _SourceMoved(message)
        return frozen

    def _proved(
        self, staging: TableName, cloned: dict[PartitionId, tuple[FrozenPart, ...]]
    ) -> _Outcome:
        """Check each partition of a clone by itself; a refused one does not touch the others."""
        refused: dict[PartitionId, TableFormatError] = {
            **refused_by_source(self.connection, self._source, cloned)
        }
        foreign = foreign_columns(self.connection, staging, self._source)
        frozen = []
        for one, parts in cloned.items():
            if one in refused:
                continue
            if str(one) in foreign:
                refused[one] = refuse_foreign_columns(self._source, one, foreign[str(one)])
                continue
            try:
                frozen.append(self._proved_partition(staging, one, parts))
            except ClickHouseError as error:
                refused[one] = self._read_error(one, error)
            except (RefusedError, SourceError) as error:
                refused[one] = error
        if not frozen:
            drop_staging(self.connection, self.capabilities, staging)
        return _Outcome(tuple(frozen), tuple(refused.items()), (staging,) if frozen else ())

    def _proved_partition(
        self, staging: TableName, one: PartitionId, parts: tuple[FrozenPart, ...]
    ) -> FrozenPartition:
        copies = tuple(frozen.part for frozen in parts)
        check_disks(self.connection, self._source, one, copies)
        check_parts(self.connection, self._source, staging, one)
        visible = count_visible(self.connection, self._source, staging, one, copies)
        return FrozenPartition(
            one,
            tuple(replace(p, visible_rows=visible[p.part.name]) for p in parts),
            measure(self.connection, staging, one, self.request.probes),
        )

    @property
    def _source(self) -> TableName:
        return self.request.table.name

    def _source_parts(self) -> tuple[Part, ...]:
        return list_parts(self.connection, self._source, self.request.partition_ids)

    def _refuse_all(self, error: TableFormatError) -> _Outcome:
        return _Outcome(refused=tuple((one, error) for one in self.request.partition_ids))

    def _unsteady(self, moved: _SourceMoved) -> SourceError:
        return SourceError(
            f"Cannot export {self._source}: in {_ATTEMPTS} attempts to take a snapshot, {moved} each "
            "time meanwhile. Run the export again when the table is changed less."
        )

    def _clone_error(self, error: ClickHouseError) -> TableFormatError:
        """Say why ClickHouse did not clone the only partition of this group."""
        (one,) = self.request.partition_ids
        what = f"Cannot export partition {one} of {self._source}"
        if error.code == _PATCHES_PENDING:
            message = (
                f"{what}: lightweight updates have not been written into its parts yet, and a "
                f"snapshot would lose them. Run ALTER TABLE {self._source.sql} APPLY PATCHES IN "
                f"PARTITION ID {quote_string(str(one))} SETTINGS mutations_sync = 2."
            )
            return RefusedError(message, code=error.code)
        if error.code == _BAD_ARGUMENTS and "has no parts in partition" in error.reason:
            message = f"{what}: it has no active parts. List them with `mergeberg partitions`."
            return NotFoundError(message, code=error.code)
        message = (
            f"{what}: ClickHouse cannot clone it: {error.reason}. "
            "Check the table with CHECK TABLE and run again."
        )
        return SourceError(message, code=error.code)

    def _read_error(self, one: PartitionId, error: ClickHouseError) -> SourceError:
        message = (
            f"Cannot export partition {one} of {self._source}: reading its snapshot failed: "
            f"{error.reason}. Check the table with CHECK TABLE and run again."
        )
        return SourceError(message, code=error.code)


def _of_partition(parts: tuple[Part, ...], one: PartitionId) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.partition_id == one)


def _paired(copies: tuple[Part, ...], originals: tuple[Part, ...]) -> tuple[FrozenPart, ...]:
    """Name for each copy the original it is a clone of; equal parts are told apart by their order."""
    names: dict[tuple[str, str, int], list[str]] = {}
    for part in originals:
        names.setdefault(part.content, []).append(part.name)
    return tuple(
        FrozenPart(part, source_name=names[part.content].pop(0), visible_rows=part.rows)
        for part in copies
    )


def _differences(planned: MergeTreeTable, now: MergeTreeTable) -> str:
    """Return what of a table is another thing now, '' when nothing is."""
    told = (
        ("its identity", planned.identity, now.identity),
        ("its columns", _columns(planned), _columns(now)),
        ("its engine", planned.engine.name, now.engine.name),
        ("its engine's arguments", planned.engine.arguments, now.engine.arguments),
        ("its partition key", planned.engine.partition_by, now.engine.partition_by),
        ("its sorting key", planned.engine.order_by, now.engine.order_by),
        ("its primary key", planned.engine.primary_key, now.engine.primary_key),
    )
    return ", ".join(what for what, before, after in told if before != after)


def _columns(table: MergeTreeTable) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(
        (c.name, c.type_text, c.default_kind, c.default_expression) for c in table.columns
    )

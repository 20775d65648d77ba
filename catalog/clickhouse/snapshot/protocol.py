"""Takes a snapshot of partitions: clones them into staging tables, then proves the clones.

    preflight -> staging table -> one ALTER with a REPLACE for each partition -> read-only
    -> source unchanged? -> preflight again -> parts, disks, CHECK, counts, probes

A clone is atomic for each partition and costs milliseconds. Each known way in which a clone goes
wrong silently has its check here. A bad partition never fails the others. A staging table is filled
only once, because its hidden parts would be duplicated.

An embedded ClickHouse may have parts on disks whose files no task can open. Partitions with such
parts are cloned by ATTACH, which unlike REPLACE copies to another disk. ClickHouse decrypts and
fetches the files, and the copies have the hashes of the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, advice
from catalog.clickhouse.snapshot.comparison import Clone, differences, paired
from catalog.clickhouse.snapshot.preflight import (
    COPIES,
    far_parts,
    mutation_ids,
    refuse_patched,
    refused_by_source,
    refused_disks,
)
from catalog.clickhouse.snapshot.proof import prove
from catalog.clickhouse.snapshot.staging import (
    create_staging,
    drop_staging,
    layout_of,
    make_readonly,
    next_staging,
    place_of,
    staging_columns,
)
from catalog.clickhouse.table_description import (
    describe,
    has_active_parts,
    list_parts,
    with_missing_columns,
)
from tableformat.clickhouse_codes import BAD_ARGUMENTS, SUPPORT_IS_DISABLED
from tableformat.errors import (
    Advice,
    NotFoundError,
    RefusedError,
    SourceError,
    TableFormatError,
    Unable,
)
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import Column, MergeTreeTable, Part
from tableformat.mergetree.table_settings import on_disk
from tableformat.messages import Command
from tableformat.names import PartitionId, TableName, quote_string
from tableformat.source import FrozenPart, FrozenPartition, LeftPart, Probe, SourceSnapshot

__all__ = ["SnapshotRequest", "take_snapshot"]

_GROUP: Final = 100
_ATTEMPTS: Final = 5

Refused = tuple[tuple[PartitionId, TableFormatError], ...]


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """The partitions of a described table to snapshot for a job, with probes and digest columns."""

    table: MergeTreeTable
    partition_ids: tuple[PartitionId, ...]
    job: str
    probes: tuple[Probe, ...]
    digest: tuple[DigestColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome for partitions, and the staging tables that hold those in the snapshot."""

    partitions: tuple[FrozenPartition, ...] = ()
    refused: Refused = ()
    staging: tuple[TableName, ...] = ()

    def __add__(self, other: _Outcome) -> _Outcome:
        return _Outcome(
            self.partitions + other.partitions,
            self.refused + other.refused,
            self.staging + other.staging,
        )


class _SourceMoved(Exception):  # noqa: N818  no error: the attempt is made again
    """The source changed while a clone was made."""


def take_snapshot(
    connection: Connection, capabilities: Capabilities, request: SnapshotRequest
) -> SourceSnapshot:
    """Take a snapshot of partitions: each is complete and proved, or refused with its reason.

    Raises:
        SourceError: the source cannot be used at all.
    """
    # Before the clone, because the table may be dropped after it.
    layout = layout_of(connection, capabilities, request.table)
    name = request.table.name
    refused: dict[PartitionId, TableFormatError] = {
        **refused_disks(connection, capabilities, name, request.partition_ids),
        **refused_by_source(connection, capabilities, name, request.partition_ids),
    }
    outcome = _Outcome(refused=tuple(refused.items()))
    far = {part.partition_id for part in far_parts(connection, capabilities, name)}
    for disk in ("", COPIES):
        rest = (p for p in request.partition_ids if p not in refused and (p in far) is bool(disk))
        for group in _groups(tuple(rest)):
            part = replace(request, partition_ids=group)
            outcome += _GroupSnapshot(connection, capabilities, part, disk).run()
    return SourceSnapshot(
        table=request.table,
        layout=layout.over(request.table, outcome.partitions),
        partitions=tuple(sorted(outcome.partitions, key=lambda partition: partition.partition_id)),
        refused=tuple(sorted(outcome.refused, key=lambda pair: pair[0])),
        handle=tuple(name.name for name in outcome.staging),
    )


def _groups(partition_ids: tuple[PartitionId, ...]) -> Iterator[tuple[PartitionId, ...]]:
    for start in range(0, len(partition_ids), _GROUP):
        yield partition_ids[start : start + _GROUP]


@dataclass(frozen=True, slots=True)
class _GroupSnapshot:
    """Takes the snapshot of one group of partitions.

    `disk` is the disk to which their parts are copied, '' if they are linked.
    """

    connection: Connection
    capabilities: Capabilities
    request: SnapshotRequest
    disk: str = ""

    def run(self) -> _Outcome:
        """Take the snapshot of the group, or of each partition if the clone of the group fails."""
        change = ""
        for _ in range(_ATTEMPTS):
            staging = next_staging(self.connection, self.request.job)
            try:
                return self._attempt(staging)
            except _SourceMoved as why:
                change = str(why)
            except RefusedError as error:
                return self._refuse_all(error)
            except ClickHouseError as error:
                if len(self.request.partition_ids) == 1:
                    return self._refuse_all(self._clone_error(error))
                return self._one_by_one()
        return self._refuse_all(self._unsteady(change))

    def _attempt(self, staging: TableName) -> _Outcome:
        """Take the snapshot in a new staging table, which is dropped if that fails."""
        mutations = mutation_ids(self.connection, self._source)
        self._check_definition(self._source)
        before = self._source_parts()
        try:
            create_staging(
                self.connection, self.capabilities, self._placed, staging, _lacked(before)
            )
            return self._filled(staging, mutations, before)
        except (_SourceMoved, ClickHouseError, RefusedError):
            # After any other error ClickHouse does not respond, and the next run drops it.
            drop_staging(self.connection, self.capabilities, staging)
            raise

    def _filled(
        self, staging: TableName, mutations: frozenset[str], before: tuple[Part, ...]
    ) -> _Outcome:
        """Clone the group into the empty staging table, and prove the clone."""
        self._clone(staging)
        after = self._source_parts()
        self._check_definition(self._source)
        self._check_definition(staging, staging_columns(self.request.table, _lacked(before)))
        if mutation_ids(self.connection, self._source) != mutations:
            message = "mutations were started"
            raise _SourceMoved(message)
        if not _lacked(after) <= _lacked(before):
            message = "parts that lack columns were added"
            raise _SourceMoved(message)
        matched, refused = self._matched(staging, before, after)
        make_readonly(self.connection, self.capabilities, self.request.table, staging)
        return self._proved(Clone(self._source, staging, matched)) + _Outcome(refused=refused)

    def _one_by_one(self) -> _Outcome:
        outcome = _Outcome()
        for one in self.request.partition_ids:
            alone = replace(self.request, partition_ids=(one,))
            outcome += replace(self, request=alone).run()
        return outcome

    def _clone(self, staging: TableName) -> None:
        clone = "ATTACH" if self.disk else "REPLACE"
        clones = ", ".join(
            f"{clone} PARTITION ID {quote_string(str(one))} FROM {self._source.sql}"
            for one in self.request.partition_ids
        )
        self.connection.command(f"ALTER TABLE {staging.sql} {clones}")

    def _check_definition(self, name: TableName, bare: tuple[Column, ...] | None = None) -> None:
        """Refuse if the source, or its copy, differs from the description of the table.

        Raises:
            RefusedError: columns or keys differ.
        """
        found = describe(self.connection, self.capabilities, name)
        copy = name != self._source
        different = differences(self.request.table, found, copy=copy, bare=bare)
        if different:
            message = Unable.of(
                str(self._source),
                f"{different} changed since the table was described. Run it again.",
            )
            raise RefusedError(message)

    def _matched(
        self, staging: TableName, before: tuple[Part, ...], after: tuple[Part, ...]
    ) -> tuple[dict[PartitionId, tuple[FrozenPart, ...]], Refused]:
        """Pair the cloned parts with the source's by content; refuse parts without a pair.

        Raises:
            _SourceMoved: the parts of a partition changed while it was cloned, and match the clone
                neither before nor after.
        """
        cloned = list_parts(self.connection, self.capabilities, staging, self.request.partition_ids)
        matched: dict[PartitionId, tuple[FrozenPart, ...]] = {}
        refused: dict[PartitionId, TableFormatError] = {}
        for one in self.request.partition_ids:
            copies = _of_partition(cloned, one)
            first, last = _of_partition(before, one), _of_partition(after, one)
            place = place_of(staging, self.capabilities)
            pairs = paired(copies, _named(first), place=place)
            if pairs is None:
                pairs = paired(copies, _named(last), place=place)
            if pairs == () and not has_active_parts(self.connection, self._source, one):
                # Older versions replace from an empty partition without an error.
                refused[one] = self._no_parts(one)
            elif pairs is not None and (other := _of_other_size(pairs, (*first, *last))):
                refused[one] = self._read_otherwise(one, other)
            elif pairs is not None:
                matched[one] = pairs
            elif _content(first) == _content(last):
                refused[one] = self._unlike(one, first, copies)
            else:
                message = f"the parts of partition {one} changed"
                raise _SourceMoved(message)
        return matched, tuple(refused.items())

    def _proved(self, clone: Clone) -> _Outcome:
        """Return the proved partitions of a clone; drop the staging table if there are none."""
        # The preflight again, for changes that began between the first one and the clone.
        late = refused_by_source(self.connection, self.capabilities, clone.source, clone.parts)
        steady = replace(clone, parts={p: held for p, held in clone.parts.items() if p not in late})
        proved = prove(
            self.connection, self.capabilities, steady, self.request.probes, self.request.digest
        )
        if not proved.partitions:
            drop_staging(self.connection, self.capabilities, clone.staging)
        kept = (clone.staging,) if proved.partitions else ()
        return _Outcome(proved.partitions, (*late.items(), *proved.refused.items()), kept)

    @property
    def _source(self) -> TableName:
        return self.request.table.name

    @property
    def _placed(self) -> MergeTreeTable:
        """The table, with the settings that place the parts of its staging table."""
        table = self.request.table
        if not self.disk:
            return table
        settings = on_disk(table.engine.settings, self.disk)
        return replace(table, engine=replace(table.engine, settings=settings))

    def _source_parts(self) -> tuple[Part, ...]:
        ids = self.request.partition_ids
        found = list_parts(self.connection, self.capabilities, self._source, ids)
        return with_missing_columns(self.connection, self._source, found)

    def _refuse_all(self, error: TableFormatError) -> _Outcome:
        return _Outcome(refused=tuple((one, error) for one in self.request.partition_ids))

    def _unsteady(self, change: str) -> SourceError:
        return SourceError(
            Unable.of(
                str(self._source),
                f"in each of {_ATTEMPTS} attempts to take a snapshot, {change}. Run it again when "
                "the table is changed less.",
            )
        )

    def _unlike(
        self, one: PartitionId, originals: tuple[Part, ...], copies: tuple[Part, ...]
    ) -> SourceError:
        """Return the refusal of parts whose files differ from what ClickHouse has in memory."""
        missing = _content(originals) - _content(copies)
        names = ", ".join(part.name for part in originals if part.content in missing)
        return SourceError(
            Unable.of(
                f"partition {one} of {self._source}",
                f"read again from their files, {names or 'its parts'} have other rows or another "
                "hash than ClickHouse has in memory, so the files are damaged. Repair the part "
                "from a replica or a backup, or detach it, and run again.",
            )
        )

    def _read_otherwise(self, one: PartitionId, part: str) -> SourceError:
        return SourceError(
            Unable.of(
                f"partition {one} of {self._source}",
                f"a copy of its part {part} shows columns of another size than the part itself, so "
                "it does not read all of its files. Report it with the settings of the table "
                "(SHOW CREATE TABLE).",
            )
        )

    def _no_parts(self, one: PartitionId) -> NotFoundError:
        message = Unable.of(
            f"partition {one} of {self._source}",
            f"it has no active parts. List them with {Command.PARTITIONS}.",
        )
        advice = frozenset({Advice.LIST_PARTITIONS})
        return NotFoundError(message, code=BAD_ARGUMENTS, advice=advice)

    def _clone_error(self, error: ClickHouseError) -> TableFormatError:
        """Return the refusal of this group's only partition, which ClickHouse did not clone."""
        (one,) = self.request.partition_ids
        what = f"partition {one} of {self._source}"
        if error.code == SUPPORT_IS_DISABLED:
            return refuse_patched(self._source, one)
        if error.code == BAD_ARGUMENTS and "has no parts in partition" in error.reason:
            return self._no_parts(one)
        remedy = (
            advice(error.code, error.reason) or "Check the table with CHECK TABLE and run again."
        )
        message = Unable.of(what, f"ClickHouse cannot clone it: {error.reason}. {remedy}")
        return SourceError(message, code=error.code)


def _content(parts: tuple[Part, ...]) -> Counter[tuple[str, str, int]]:
    return Counter(part.content for part in parts)


def _of_other_size(pairs: tuple[FrozenPart, ...], originals: tuple[Part, ...]) -> str:
    """Return the name of a part whose columns have another size in its copy, '' for none."""
    sizes = {(part.name, part.uncompressed_bytes) for part in originals}
    other = (p for p in pairs if (p.source_name, p.part.uncompressed_bytes) not in sizes)
    return next((p.source_name for p in other), "")


def _lacked(parts: tuple[Part, ...]) -> frozenset[str]:
    """Return the stored columns that at least one of the parts lacks."""
    return frozenset(column for part in parts for column in part.lacks)


def _of_partition(parts: tuple[Part, ...], one: PartitionId) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.partition_id == one)


def _named(parts: tuple[Part, ...]) -> tuple[LeftPart, ...]:
    return tuple(
        LeftPart(part.name, part.hash_of_all_files, part.rows, part.lacks) for part in parts
    )

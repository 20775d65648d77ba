"""Implements `FrozenPartsSource`: part folders in a directory as a source, without a server.

The parts never change. A snapshot therefore creates nothing and leaves nothing: it proves the
parts, and tasks open the directory itself, because no file may be written there.

1. `refused_folders` refuses partitions by their folders, before any row is read: a part is
   damaged, covered by another one, there twice, or not loaded.
2. A part that ClickHouse did not load stays listed with the rows of its `count.txt`, so that its
   partition is refused and never read as a smaller one.
3. `prove_parts` checks the statement's claims on the parts (`claims`), which a server would
   guarantee, then applies the proof of a clone (`catalog.clickhouse.snapshot.proof`).

See docs/reference/source-parts.md, "What is proved before the first row is written".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection
from catalog.clickhouse.frozen.definition import (
    NIL_UUID,
    Claimed,
    FrozenSettings,
    identity_of,
    other_partition_keys,
    other_settings,
    other_types,
    read_definition,
    unsorted,
    uuid_of,
)
from catalog.clickhouse.frozen.folders import (
    OpenedParts,
    PartFolder,
    check_unchanged,
    open_clickhouse,
    open_parts,
)
from catalog.clickhouse.rows.partitions import partition_id_of
from catalog.clickhouse.snapshot.comparison import Clone, Refused, differences
from catalog.clickhouse.snapshot.preflight import refused_by_source
from catalog.clickhouse.snapshot.proof import prove
from catalog.clickhouse.snapshot.protocol import SnapshotRequest
from catalog.clickhouse.snapshot.staging import Search, files_layout
from catalog.clickhouse.source import ClickHouseSource
from catalog.clickhouse.table_description import list_parts, with_missing_columns
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import (
    Advice,
    NotFoundError,
    RefusedError,
    SourceError,
    TableFormatError,
    Unable,
    UnsupportedError,
)
from tableformat.ledger import DetachedPart, ExportedPart
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import MergeTreeTable, NoTimes, Part, PartitionSummary
from tableformat.mergetree.table_settings import check_readable
from tableformat.mergetree.types import DataType
from tableformat.messages import Command
from tableformat.names import PartitionId, TableName
from tableformat.quantities import counted
from tableformat.source import FrozenPart, Leftover, LeftPart, Probe, ProbedValue, SourceSnapshot

__all__ = ["FrozenPartsSource", "ProofRequest", "prove_parts", "refused_folders", "unloaded_parts"]

_CLAIMS: Final = (other_partition_keys, unsorted)


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """A request for a snapshot: partitions, those already refused, and what to measure.

    `handle` names the snapshot, if there is one.
    """

    partition_ids: tuple[PartitionId, ...]
    refused: Refused
    probes: tuple[Probe, ...]
    digest: tuple[DigestColumn, ...]
    handle: str


def prove_parts(
    connection: Connection, capabilities: Capabilities, claimed: Claimed, request: ProofRequest
) -> SourceSnapshot:
    """Prove partitions in open parts; each is complete, or refused with its reason.

    Raises:
        RefusedError: the table cannot be read reliably.
        SourceError: ClickHouse does not respond.
    """
    refused: dict[PartitionId, TableFormatError] = dict(request.refused)
    table = claimed.table
    check_readable(table)
    for check in _CLAIMS:
        rest = tuple(one for one in request.partition_ids if one not in refused)
        refused |= _refuted(check, connection, claimed, rest)
    rest = tuple(one for one in request.partition_ids if one not in refused)
    listed = list_parts(connection, capabilities, table.name, rest) if rest else ()
    held = with_missing_columns(connection, table.name, listed)
    # '' as the place: tasks open the directory itself, and nothing is created in it.
    parts = {
        one: tuple(FrozenPart(p, p.name, p.rows, "") for p in held if p.partition_id == one)
        for one in rest
    }
    clone = Clone(table.name, table.name, parts)
    proved = prove(connection, capabilities, clone, request.probes, request.digest)
    refused |= proved.refused
    return SourceSnapshot(
        table=table,
        layout=files_layout(table, capabilities).over(table, proved.partitions),
        partitions=tuple(sorted(proved.partitions, key=lambda p: p.partition_id)),
        refused=tuple(sorted(refused.items(), key=lambda pair: pair[0])),
        handle=(request.handle,) if proved.partitions else (),
    )


def _refuted(
    check: Callable[[Connection, Claimed, tuple[PartitionId, ...]], Refused],
    connection: Connection,
    claimed: Claimed,
    partition_ids: tuple[PartitionId, ...],
) -> Refused:
    """Check a claim on all partitions together; if they cannot be read, on each alone."""
    if not partition_ids:
        return {}
    try:
        return check(connection, claimed, partition_ids)
    except ClickHouseError as error:
        if len(partition_ids) == 1:
            (one,) = partition_ids
            message = Unable.of(
                f"partition {one} of {claimed.table.name}",
                f"reading its parts failed: {error.reason}. Copy the parts again, or correct "
                f"{claimed.file}.",
            )
            return {one: SourceError(message, code=error.code)}
    each = (_refuted(check, connection, claimed, (one,)) for one in partition_ids)
    return {one: why for refused in each for one, why in refused.items()}


_NOT_LOADED: Final = "not loaded"


def unloaded_parts(opened: OpenedParts) -> tuple[Part, ...]:
    """Return the parts that ClickHouse did not load, with the facts from their folders.

    Raises:
        SourceError: a folder cannot be read.
    """
    try:
        return tuple(_part(folder) for folder in opened.missing)
    except OSError as error:
        message = (
            f"Cannot read the parts in {opened.folders.directory}: {error}. Run as a user who may "
            "read the directory and everything in it."
        )
        raise SourceError(message) from error


def refused_folders(
    opened: OpenedParts,
    settings: FrozenSettings,
    loaded: Iterable[Part],
    partition_ids: Collection[PartitionId],
) -> dict[PartitionId, RefusedError]:
    """Return the partitions with a part that is damaged, covered, duplicated or not loaded.

    Args:
        opened: the parts.
        settings: the user's settings.
        loaded: the parts that ClickHouse has loaded.
        partition_ids: the requested ones.
    """
    damage: dict[str, str] = {}
    for folder in opened.folders.parts:
        if folder.damage:
            damage.setdefault(folder.partition_id, folder.damage)
    for folder in opened.missing:
        damage.setdefault(folder.partition_id, _not_loaded(opened, settings, folder))
    if not settings.keep_equal_parts:
        for one, twice in _equal_parts(loaded).items():
            damage.setdefault(one, twice)
    return {
        one: RefusedError(
            Unable.of(
                f"partition {one} of {opened.table} from {opened.folders.directory}",
                f"{damage[str(one)]}.",
            )
        )
        for one in partition_ids
        if str(one) in damage
    }


def _not_loaded(opened: OpenedParts, settings: FrozenSettings, folder: PartFolder) -> str:
    return (
        f"ClickHouse did not load the part {folder.name}, so it is damaged, or its keys are not "
        f"PARTITION BY {opened.definition.engine.partition_by or 'tuple()'} ORDER BY "
        f"{opened.definition.engine.order_by}. Copy it again, or correct {settings.ddl_file}"
    )


def _equal_parts(parts: Iterable[Part]) -> dict[str, str]:
    """Return, by partition, the message about two parts with the same bytes."""
    first: dict[tuple[str, str, int], str] = {}
    twice: dict[str, str] = {}
    for part in parts:
        other = first.setdefault(part.content, part.name)
        if other != part.name:
            twice.setdefault(
                str(part.partition_id),
                f"the parts {other} and {part.name} hold the same {counted(part.rows, 'row')}, "
                "byte by "
                "byte. Move one of them away if it is a copy; add &equal-parts=keep to the source "
                "if the same rows were inserted twice",
            )
    return twice


def _part(folder: PartFolder) -> Part:
    name = folder.name
    return Part(
        name=str(name),
        partition_id=PartitionId(folder.partition_id),
        rows=_claimed_rows(folder.path),
        bytes_on_disk=_bytes(folder.path),
        uncompressed_bytes=0,
        hash_of_all_files=_NOT_LOADED,
        disk=f"{folder.path.parent}/",
        path=f"{folder.path}/",
        part_type=_NOT_LOADED,
        min_block=name.low,
        max_block=name.high,
        level=name.level,
        data_version=name.low if name.mutation is None else name.mutation,
        has_lightweight_delete=False,
    )


def _claimed_rows(path: Path) -> int:
    """Return the rows in count.txt; a part without a readable one counts as one row."""
    try:
        return max(1, int((path / "count.txt").read_text()))
    except (OSError, ValueError):
        return 1


def _bytes(path: Path) -> int:
    return sum(
        (Path(directory) / name).lstat().st_size
        for directory, _, names in os.walk(path)
        for name in names
    )


class FrozenPartsSource(ClickHouseSource):
    """Frozen parts as a source. A context manager that closes it; the parts stay unchanged.

    It has one table. A partition with an unreadable part is listed and refused, never skipped.
    """

    def __init__(self, settings: FrozenSettings) -> None:
        """Keep the settings; nothing is opened yet."""
        super().__init__(lambda _: open_clickhouse(settings.zone), assumes_zone=not settings.zone)
        self._settings = settings
        self._parts: OpenedParts | None = None

    def named(self, otherwise: TableName) -> TableName:
        """Return the statement's table name, completed from another name.

        Raises:
            NotFoundError: the file does not exist.
            UsageError: the statement cannot be parsed.
            SourceError: ClickHouse does not respond.
        """
        definition = read_definition(self._opened()[0], self._settings.ddl_file)
        return TableName(
            definition.database or otherwise.database, definition.name or otherwise.name
        )

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the table of the statement.

        Raises:
            NotFoundError: there are no parts, or the statement is another table's.
            RefusedError: the parts cannot be read, or their table's identity is unknown.
            UsageError: the statement cannot be parsed.
            SourceError: ClickHouse does not open the parts.
        """
        opened = self._open(table)
        found = super().describe(table)
        if (stated := opened.stated) is not None:
            columns, indices, projections = stated.columns, stated.indices, stated.projections
            found = replace(found, columns=columns, indices=indices, projections=projections)
        of_statement, shown = opened.definition.engine, found.engine
        uuid = uuid_of(self._settings, opened.definition, opened.folders.directory)
        # The clauses as ClickHouse formats them; the engine of the opened table is not the table's.
        engine = replace(
            of_statement,
            partition_by=shown.partition_by,
            primary_key=shown.primary_key,
            order_by=shown.order_by,
            sample_by=shown.sample_by,
        )
        return replace(
            found,
            engine=engine,
            identity=identity_of(self._settings, opened.definition, table, uuid),
            uuid=uuid or NIL_UUID,
            storage_policy=dict(engine.settings).get("storage_policy", "default").strip("'"),
        )

    def partitions(self, table: TableName) -> tuple[PartitionSummary, ...]:
        """Return the partitions that have a part folder, sorted by id.

        Raises:
            SourceError: the parts cannot be read.
        """
        opened = self._open(table)
        found = {p.partition_id: p for p in super().partitions(table)}
        for part in unloaded_parts(opened):
            one = part.partition_id
            held = found.get(one, PartitionSummary(one, "", 0, 0, 0))
            found[one] = replace(
                held,
                parts=held.parts + 1,
                rows=held.rows + part.rows,
                bytes_on_disk=held.bytes_on_disk + part.bytes_on_disk,
            )
        return tuple(found[one] for one in sorted(found))

    def with_times(
        self, table: MergeTreeTable, found: tuple[PartitionSummary, ...]
    ) -> tuple[PartitionSummary, ...]:
        """Return partitions with their times, or the reason if a part cannot be opened.

        Raises:
            SourceError: the parts cannot be read.
        """
        unread = {part.partition_id: part.name for part in unloaded_parts(self._open(table.name))}
        timed = super().with_times(table, found)
        return tuple(
            replace(one, times=NoTimes(f"its part {unread[one.partition_id]} cannot be opened"))
            if one.partition_id in unread
            else one
            for one in timed
        )

    def parts(self, table: TableName, *partition_ids: PartitionId) -> tuple[Part, ...]:
        """Return the parts of partitions, including those that ClickHouse did not load.

        Raises:
            SourceError: the parts cannot be read.
        """
        missing = unloaded_parts(self._open(table))
        named = tuple(part for part in missing if part.partition_id in partition_ids)
        return _shown((*super().parts(table, *partition_ids), *named))

    def all_parts(self, table: TableName) -> tuple[Part, ...]:
        """Return all parts, including those that ClickHouse did not load.

        Raises:
            SourceError: the parts cannot be read.
        """
        missing = unloaded_parts(self._open(table))
        return _shown((*super().all_parts(table), *missing))

    def engine_of(self, table: TableName) -> str | None:
        """Return the statement's engine, None if it names another table or none.

        Raises:
            NotFoundError: the file does not exist.
            UsageError: the statement cannot be parsed.
            SourceError: ClickHouse does not respond.
        """
        definition = read_definition(self._opened()[0], self._settings.ddl_file)
        named = definition.name == table.name and definition.database in ("", table.database)
        return definition.engine.name if named else None

    def refusals(
        self, table: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, RefusedError]:
        """Return the partitions that an export would refuse, as far as this needs no row.

        Raises:
            SourceError: the parts cannot be read.
        """
        opened = self._open(table)
        described = self.describe(table)
        by_folder = refused_folders(opened, self._settings, super().all_parts(table), partition_ids)
        claimed = Claimed(described, self._settings.ddl_file)
        connection, capabilities = self._opened()
        others = other_types(connection, claimed)
        layout = files_layout(described, capabilities)
        directory = opened.folders.directory
        return {
            **other_settings(connection, claimed, layout, directory, partition_ids),
            **{one: error for one, error in others.items() if one in partition_ids},
            **refused_by_source(*self._opened(table), table, partition_ids),
            **by_folder,
        }

    def copied_to(self, table: TableName) -> dict[PartitionId, str]:  # noqa: ARG002  of any table
        """Return nothing: tasks open the parts in their directory."""
        return {}

    def passed_over(self, table: TableName) -> tuple[str, ...]:
        """Return the names of the folders that are no parts and are not read.

        Raises:
            SourceError: the parts cannot be read.
        """
        return self._open(table).folders.others

    def find_partition(self, table: MergeTreeTable, expression: str) -> PartitionId:
        """Return ClickHouse's id of a partition expression.

        Raises:
            UsageError: the expression is not made of literals, or does not fit the partition key.
            NotFoundError: no part has that value.
            SourceError: the parts cannot be read.
        """
        one = partition_id_of(table, expression)
        if one not in (p.partition_id for p in self.partitions(table.name)):
            message = (
                f"Cannot find the partition {expression} of {table.name}: no part has that value. "
                f"List the partitions with {Command.PARTITIONS}."
            )
            raise NotFoundError(message, advice=frozenset({Advice.LIST_PARTITIONS}))
        return one

    def key_types(self, table: MergeTreeTable) -> tuple[DataType, ...]:
        """Return the types of the members of the partition key, in order.

        Raises:
            SourceError: the parts cannot be read.
        """
        self._open(table.name)
        return super().key_types(table)

    def probe(
        self, table: TableName, partition_id: PartitionId, probes: tuple[Probe, ...]
    ) -> tuple[ProbedValue, ...] | None:
        """Return the results of probes in a partition, None if it has no rows.

        Raises:
            SourceError: the parts cannot be read.
        """
        self._open(table)
        return super().probe(table, partition_id, probes)

    def release_staging(self, handle: tuple[str, ...]) -> None:
        """Do nothing: the parts belong to the user."""

    def sweep_leftovers(
        self,
        is_alive: Callable[[str], bool],  # noqa: ARG002  there is nothing to ask about
        keep: Collection[str] = (),  # noqa: ARG002  as above
    ) -> tuple[str, ...]:
        """Do nothing: no job leaves anything in frozen parts."""
        return ()

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return nothing: no job leaves anything in frozen parts."""
        return ()

    def detached_parts(self, table: TableName, partition_id: PartitionId) -> None:  # noqa: ARG002  of any
        """Return None: a directory of parts does not show which ones were detached."""
        return

    def take_out(
        self,
        table: TableName,
        partition_id: PartitionId,
        exported: tuple[ExportedPart, ...],  # noqa: ARG002  refused whatever was exported
    ) -> NoReturn:
        """Refuse: frozen parts are never changed.

        Raises:
            UnsupportedError: always.
        """
        self._refuse_change(table, partition_id)

    def drop_detached(
        self,
        table: TableName,
        partition_id: PartitionId,
        parts: tuple[DetachedPart, ...],  # noqa: ARG002  refused whatever was detached
        *,
        fresh: bool,  # noqa: ARG002  as above
    ) -> NoReturn:
        """Refuse: frozen parts are never changed.

        Raises:
            UnsupportedError: always.
        """
        self._refuse_change(table, partition_id)

    def _refuse_change(self, table: TableName, partition_id: PartitionId) -> NoReturn:
        message = (
            f"Cannot archive partition {partition_id} of {table}: its source is frozen parts, "
            "which mergeberg only reads. Detach the partition on its server, or remove the part "
            "folders yourself."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)

    def close(self) -> None:
        """Close the parts. The next call opens them again."""
        self._parts = None
        super().close()

    def _taken(self, request: SnapshotRequest) -> SourceSnapshot:
        """Prove partitions; nothing is created, because the parts never change."""
        table, partition_ids = request.table, request.partition_ids
        opened = self._open(table.name)
        check_unchanged(opened)
        described = self.describe(table.name)
        refused: dict[PartitionId, TableFormatError] = dict(
            self.refusals(table.name, partition_ids)
        )
        if changed := differences(table, described, copy=False):
            message = Unable.of(
                str(table.name),
                f"{changed} changed in {self._settings.ddl_file} since it was read. Run it again.",
            )
            refused = dict.fromkeys(partition_ids, RefusedError(message))
        handle = f"parts:{opened.folders.directory}"
        proof = ProofRequest(partition_ids, refused, request.probes, request.digest, handle)
        return prove_parts(*self._opened(), Claimed(described, self._settings.ddl_file), proof)

    def _found_again(self, search: Search) -> SourceSnapshot:
        """Return the wanted partitions that have exactly the recorded parts, proved again."""
        name = search.table.name
        matching = tuple(
            one
            for one, left in search.wanted.items()
            if left.parts and _recorded(self.parts(name, one)) == frozenset(left.parts)
        )
        request = SnapshotRequest(search.table, matching, "", search.probes, search.digest)
        return replace(self._taken(request), refused=())

    def _open(self, table: TableName) -> OpenedParts:
        """Return the parts, opened under the name of the table.

        Raises:
            TableFormatError: as `open_parts`.
        """
        if self._parts is None or self._parts.table != table:
            if self._parts is not None:
                self._parts.definition.check_name(table, self._settings.ddl_file)
            self._parts = open_parts(*self._opened(), self._settings, table)
        return self._parts


def _recorded(parts: Iterable[Part]) -> frozenset[LeftPart]:
    return frozenset(LeftPart(part.name, part.hash_of_all_files, part.rows) for part in parts)


def _shown(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts in order, without a disk: they are on no disk of a ClickHouse server."""
    ordered = sorted(parts, key=lambda part: (part.partition_id, part.min_block))
    return tuple(replace(part, disk="") for part in ordered)

"""`FrozenPartsSource`: part folders in a directory as a source, without any server.

The parts are frozen already, so a snapshot makes nothing and leaves nothing: it proves what is
there, and tasks open the directory itself, because nothing may be written beside the parts either.
What a server would vouch for is proved on the parts here (`claims`), and everything that a snapshot
of a server's table is proved by (`catalog.clickhouse.verify`), too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import NoReturn

from catalog.clickhouse.comparison import differences
from catalog.clickhouse.frozen.claims import Claimed, other_settings, other_types
from catalog.clickhouse.frozen.definition import NIL_UUID, read_definition
from catalog.clickhouse.frozen.identity import identity_of, uuid_of
from catalog.clickhouse.frozen.opening import (
    OpenedParts,
    check_unchanged,
    open_clickhouse,
    open_parts,
)
from catalog.clickhouse.frozen.proving import Asked, prove_parts
from catalog.clickhouse.frozen.refusals import refused_folders, unloaded_parts
from catalog.clickhouse.frozen.uri import FrozenSettings
from catalog.clickhouse.left_snapshot import Search
from catalog.clickhouse.partition_values import partition_id_of
from catalog.clickhouse.snapshot import SnapshotRequest
from catalog.clickhouse.source import ClickHouseSource
from catalog.clickhouse.staging import files_layout
from tableformat.archived import DetachedPart
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.errors import NotFoundError, RefusedError, TableFormatError, UnsupportedError
from tableformat.ledger import ExportedPart
from tableformat.mergetree.parts import NoTimes, Part, PartitionSummary
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import DataType
from tableformat.names import PartitionId, TableName
from tableformat.source import (
    Leftover,
    LeftPart,
    Probe,
    ProbedValue,
    SourceSnapshot,
)

__all__ = ["FrozenPartsSource"]


class FrozenPartsSource(ClickHouseSource):
    """Frozen parts as a source. A context manager: leaving it lets go; the parts stay as they are.

    It has one table. A partition with a part that cannot be read is listed and refused, never
    passed over.
    """

    def __init__(self, settings: FrozenSettings) -> None:
        """Keep where the parts are; nothing is opened yet."""
        super().__init__(lambda _: open_clickhouse(settings.zone))
        self._settings = settings
        self._parts: OpenedParts | None = None

    def named(self, otherwise: TableName) -> TableName:
        """Return the name of the table in the statement, what it does not say from another name.

        Raises:
            NotFoundError: there is no such file.
            UsageError: the statement cannot be read.
            SourceError: ClickHouse does not answer.
        """
        said = read_definition(self._opened()[0], self._settings.ddl_file)
        return TableName(said.database or otherwise.database, said.name or otherwise.name)

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the table as its statement says it.

        Raises:
            NotFoundError: there are no parts, or the statement is another table's.
            RefusedError: the parts cannot be read, or nobody says whose they are.
            UsageError: the statement cannot be read.
            SourceError: ClickHouse does not open the parts.
        """
        opened = self._open(table)
        found = super().describe(table)
        if (stated := opened.stated) is not None:
            columns, indices, projections = stated.columns, stated.indices, stated.projections
            found = replace(found, columns=columns, indices=indices, projections=projections)
        said, shown = opened.definition.engine, found.engine
        uuid = uuid_of(self._settings, opened.definition, opened.folders.directory)
        # The clauses in ClickHouse's own spelling; what it opened the parts with is not the table.
        engine = replace(
            said,
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
        """Return the partitions that have a part folder, in the order of their ids.

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
        """Return partitions with their times; of those with a part that does not open, why not.

        Raises:
            SourceError: the parts cannot be read.
        """
        unread = {part.partition_id: part.name for part in unloaded_parts(self._open(table.name))}
        known = super().with_times(table, found)
        return tuple(
            replace(one, times=NoTimes(f"its part {unread[one.partition_id]} cannot be opened"))
            if one.partition_id in unread
            else one
            for one in known
        )

    def parts(self, table: TableName, *partition_ids: PartitionId) -> tuple[Part, ...]:
        """Return the parts of partitions, those too that ClickHouse did not load.

        Raises:
            SourceError: the parts cannot be read.
        """
        missing = unloaded_parts(self._open(table))
        named = tuple(part for part in missing if part.partition_id in partition_ids)
        return _shown((*super().parts(table, *partition_ids), *named))

    def all_parts(self, table: TableName) -> tuple[Part, ...]:
        """Return all parts, those too that ClickHouse did not load.

        Raises:
            SourceError: the parts cannot be read.
        """
        missing = unloaded_parts(self._open(table))
        return _shown((*super().all_parts(table), *missing))

    def engine_of(self, table: TableName) -> str | None:
        """Return the engine that the statement says, None when it names another table or none.

        Raises:
            NotFoundError: there is no such file.
            UsageError: the statement cannot be read.
            SourceError: ClickHouse does not answer.
        """
        said = read_definition(self._opened()[0], self._settings.ddl_file)
        named = said.name == table.name and said.database in ("", table.database)
        return said.engine.name if named else None

    def refusals(
        self, table: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> dict[PartitionId, RefusedError]:
        """Return the partitions that an export would refuse, as far as no row has to be read.

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
            **super().refusals(table, partition_ids),
            **by_folder,
        }

    def passed_over(self, table: TableName) -> tuple[str, ...]:
        """Return the names of the folders beside the parts that are none: they are not read.

        Raises:
            SourceError: the parts cannot be read.
        """
        return self._open(table).folders.others

    def find_partition(self, table: MergeTreeTable, expression: str) -> PartitionId:
        """Return the id that ClickHouse gives to a partition expression.

        Raises:
            UsageError: the expression is not made of literals, or does not fit the partition key.
            NotFoundError: no part has that value.
            SourceError: the parts cannot be read.
        """
        one = partition_id_of(table, expression)
        if one not in (p.partition_id for p in self.partitions(table.name)):
            message = (
                f"Cannot find the partition {expression} of {table.name}: no part has that value. "
                "List the partitions with `mergeberg partitions`."
            )
            raise NotFoundError(message)
        return one

    def key_types(self, table: MergeTreeTable) -> tuple[DataType, ...]:
        """Return the types of the members of the partition key, in their order.

        Raises:
            SourceError: the parts cannot be read.
        """
        self._open(table.name)
        return super().key_types(table)

    def probe(
        self, table: TableName, partition_id: PartitionId, probes: tuple[Probe, ...]
    ) -> tuple[ProbedValue, ...] | None:
        """Return what probes find in a partition; None when it shows no rows.

        Raises:
            SourceError: the parts cannot be read.
        """
        self._open(table)
        return super().probe(table, partition_id, probes)

    def release_staging(self, handle: tuple[str, ...]) -> None:
        """Do nothing: the parts are not ours."""

    def sweep_leftovers(
        self,
        is_alive: Callable[[str], bool],  # noqa: ARG002  there is nothing to ask about
        keep: Collection[str] = (),  # noqa: ARG002  as above
    ) -> tuple[str, ...]:
        """Do nothing: no job leaves anything beside frozen parts."""
        return ()

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return nothing: no job leaves anything beside frozen parts."""
        return ()

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
            "which are only read. Take the partition out on its server, or remove the part folders "
            "yourself."
        )
        raise UnsupportedError(message, code=NOT_IMPLEMENTED)

    def close(self) -> None:
        """Let go of the parts. The next call opens them again."""
        self._parts = None
        super().close()

    def _taken(self, request: SnapshotRequest) -> SourceSnapshot:
        """Prove partitions; they are frozen already, and nothing is made."""
        table, partition_ids = request.table, request.partition_ids
        opened = self._open(table.name)
        check_unchanged(opened)
        described = self.describe(table.name)
        refused: dict[PartitionId, TableFormatError] = dict(
            self.refusals(table.name, partition_ids)
        )
        if changed := differences(table, described, copy=False):
            message = (
                f"Cannot export {table.name}: {changed} changed in {self._settings.ddl_file} since "
                "it was read. Run the export again."
            )
            refused = dict.fromkeys(partition_ids, RefusedError(message))
        handle = f"parts:{opened.folders.directory}"
        asked = Asked(partition_ids, refused, request.probes, request.digest, handle)
        return prove_parts(*self._opened(), Claimed(described, self._settings.ddl_file), asked)

    def _found_again(self, search: Search) -> SourceSnapshot:
        """Return the wanted partitions that are here in exactly the recorded parts, proved anew."""
        name = search.table.name
        here = tuple(
            one
            for one, left in search.wanted.items()
            if left.parts and _recorded(self.parts(name, one)) == frozenset(left.parts)
        )
        request = SnapshotRequest(search.table, here, "", search.probes, search.digest)
        return replace(self._taken(request), refused=())

    def _open(self, table: TableName) -> OpenedParts:
        """Return the parts, open under the name of the table.

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
    """Return parts in order; they lie on no disk of a ClickHouse, so nothing of it is kept."""
    ordered = sorted(parts, key=lambda part: (part.partition_id, part.min_block))
    return tuple(replace(part, disk="") for part in ordered)

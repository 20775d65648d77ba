"""Tables of an open chdb session as a source: those that everybody sees, and temporary ones.

A temporary table is seen by its own session only, so the export reads a stand-in (`stand_in.py`)
with exactly its parts. What is said of the one is said of the other; names and block numbers of
parts are always the temporary table's, and its identity is its UUID.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from catalog.clickhouse.comparison import differences
from catalog.clickhouse.connection import text
from catalog.clickhouse.left_snapshot import Search
from catalog.clickhouse.session import ChdbSession, SessionConnection
from catalog.clickhouse.snapshot import SnapshotRequest
from catalog.clickhouse.source import ClickHouseSource
from catalog.clickhouse.staging import drop_staging
from catalog.clickhouse.stand_in import TEMPORARY, StandIn, make_stand_in, only_row
from tableformat.errors import RefusedError, TableFormatError
from tableformat.mergetree.parts import Part, PartitionSummary
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import DataType
from tableformat.names import PartitionId, TableName, quote_identifier
from tableformat.source import FrozenPartition, Probe, ProbedValue, SourceSnapshot

__all__ = ["SessionName", "TemporaryTableSource", "find_table", "open_session"]

E = TypeVar("E", bound=TableFormatError)


@dataclass(frozen=True, slots=True)
class SessionName:
    """A table that a session finds; a temporary one is of a database of ClickHouse's own."""

    name: TableName
    is_temporary: bool = False


def find_table(session: ChdbSession, parts: tuple[str, ...]) -> SessionName:
    """Return what one or two parts of a name mean in a session: its own temporary table first.

    Raises:
        SourceError: the session does not answer.
    """
    if len(parts) > 1:
        return SessionName(TableName(*parts))
    (name,) = parts
    (there,) = only_row(session, f"EXISTS TEMPORARY TABLE {quote_identifier(name)}")
    if there:
        return SessionName(TableName(TEMPORARY, name), is_temporary=True)
    (database,) = only_row(session, "SELECT currentDatabase() SETTINGS limit = 0, offset = 0")
    return SessionName(TableName(text(database), name))


def open_session(session: ChdbSession, found: SessionName) -> ClickHouseSource:
    """Return the source of a table of a session; `close` lets go of it, and of nothing else."""
    if found.is_temporary:
        return TemporaryTableSource(session, found.name)
    return ClickHouseSource(lambda _: SessionConnection(session))


class TemporaryTableSource(ClickHouseSource):
    """The temporary table of a session as a source. A context manager: leaving it lets go."""

    def __init__(self, session: ChdbSession, table: TableName) -> None:
        """Keep the session; nothing is opened yet.

        Args:
            session: that has the table.
            table: its name, in the database of ClickHouse's own.
        """
        super().__init__(lambda _: SessionConnection(session))
        self._session = session
        self._table = table
        self._made: StandIn | None = None

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the table as it is now.

        Raises:
            NotFoundError: the session has it no more (code 60).
            UnsupportedError: it is not of the MergeTree family (code 48).
            RefusedError: it is changing.
            SourceError: the session does not answer.
        """
        made, found = self._stand_in(), self._described()
        return replace(found, name=table, uuid=made.uuid, identity=f"uuid:{made.uuid}")

    def partitions(self, table: TableName) -> tuple[PartitionSummary, ...]:  # noqa: ARG002  one
        """Return the partitions with active parts, in the order of their ids.

        Raises:
            SourceError: the session does not answer.
        """
        return super().partitions(self._stand_in().name)

    def with_times(
        self, table: MergeTreeTable, found: tuple[PartitionSummary, ...]
    ) -> tuple[PartitionSummary, ...]:
        """Return partitions with their times, or with why these are not known.

        Raises:
            SourceError: the session does not answer.
        """
        return super().with_times(replace(table, name=self._stand_in().name), found)

    def parts(self, table: TableName, *partition_ids: PartitionId) -> tuple[Part, ...]:  # noqa: ARG002  one
        """Return the active parts of partitions, by their own names and block numbers.

        Raises:
            SourceError: the session does not answer.
        """
        # Those of the stand-in are numbered anew each time, and would pass for merged ones.
        found = self._stand_in().originals.values()
        return tuple(part for part in found if part.partition_id in partition_ids)

    def refusals(
        self,
        table: TableName,  # noqa: ARG002  there is one
        partition_ids: tuple[PartitionId, ...],
    ) -> dict[PartitionId, RefusedError]:
        """Return the partitions that a snapshot would refuse now.

        Raises:
            SourceError: the session does not answer.
        """
        found = super().refusals(self._stand_in().name, partition_ids)
        return {one: self._renamed(error) for one, error in found.items()}

    def find_partition(self, table: MergeTreeTable, expression: str) -> PartitionId:
        """Return the id that ClickHouse itself gives to a partition expression.

        Raises:
            UsageError: the expression is not made of literals, or does not fit the partition key.
            NotFoundError: no active part has that value.
            SourceError: the session does not answer.
        """
        try:
            return super().find_partition(replace(table, name=self._stand_in().name), expression)
        except TableFormatError as error:
            raise self._renamed(error) from error

    def key_types(self, table: MergeTreeTable) -> tuple[DataType, ...]:
        """Return the types of the members of the partition key, in their order.

        Raises:
            SourceError: the session does not answer.
        """
        return super().key_types(replace(table, name=self._stand_in().name))

    def probe(
        self,
        table: TableName,  # noqa: ARG002  there is one
        partition_id: PartitionId,
        probes: tuple[Probe, ...],
    ) -> tuple[ProbedValue, ...] | None:
        """Return what probes find in a partition as it is now; None when it shows no rows.

        Raises:
            SourceError: the session does not answer.
        """
        return super().probe(self._stand_in().name, partition_id, probes)

    def close(self) -> None:
        """Drop the stand-in and let go of the session, which stays open."""
        made, self._made = self._made, None
        try:
            if made is not None:
                drop_staging(*self._opened(), made.name)
        finally:
            super().close()

    def _taken(self, request: SnapshotRequest) -> SourceSnapshot:
        """Freeze partitions of the stand-in; parts have the names of the temporary table's."""
        now = self.describe(request.table.name)
        if different := differences(request.table, now, copy=False):
            message = (
                f"Cannot export {request.table.name}: {different} changed since the table was "
                "described. Run the export again."
            )
            nothing = super()._taken(replace(request, table=self._described(), partition_ids=()))
            refused = tuple((one, RefusedError(message)) for one in request.partition_ids)
            return replace(nothing, table=request.table, refused=refused)
        taken = super()._taken(replace(request, table=self._described()))
        originals = self._stand_in().originals
        return replace(
            taken,
            table=request.table,
            partitions=tuple(_of_originals(one, originals) for one in taken.partitions),
            refused=tuple((one, self._renamed(error)) for one, error in taken.refused),
        )

    def _found_again(self, search: Search) -> SourceSnapshot:
        """Find nothing: a stand-in of another time is nobody's, and everything is frozen anew."""
        found = super()._found_again(replace(search, table=self._described(), wanted={}))
        return replace(found, table=search.table)

    def _described(self) -> MergeTreeTable:
        """Return the stand-in as it is now.

        Raises:
            UnsupportedError: it is not of the MergeTree family (code 48).
            SourceError: the session does not answer.
        """
        try:
            return super().describe(self._stand_in().name)
        except TableFormatError as error:
            raise self._renamed(error) from error

    def _stand_in(self) -> StandIn:
        """Return the stand-in, made by the first call that needs it.

        Raises:
            NotFoundError: the session has no such table any more.
            UnsupportedError: it is not of the MergeTree family (code 48).
            RefusedError: it is changing.
            SourceError: the session does not answer.
        """
        if self._made is None:
            self._made = make_stand_in(*self._opened(), self._session, self._table)
        return self._made

    def _renamed(self, error: E) -> E:
        """Return an error that names the temporary table where it named its stand-in."""
        if self._made is not None:
            error.message = self._made.renamed(error.message, self._table)
            error.args = (error.message,)
        return error


def _of_originals(one: FrozenPartition, originals: Mapping[str, Part]) -> FrozenPartition:
    parts = tuple(replace(p, source_name=originals[p.source_name].name) for p in one.parts)
    return replace(one, parts=parts)

"""What comes from a ClickHouse table: the tables behind FROM, looked at, and their exports.

The conditions are ClickHouse's, between the table as it is now and what the lake table remembers,
and are told before anything is done. A Distributed table is its local table on every shard, a
materialized view the table that it writes to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from catalog.clickhouse.views import ViewError
from catalog.shards import LocalTable
from catalog.sources import SourcePlace, open_source
from spark_ext.failing_over import export_from_any
from spark_ext.operations.exports_from import ExportsFrom, OpensPorts, Untold
from spark_ext.operations.other_tables import RememberingTable
from tableformat.clickhouse_codes import BAD_ARGUMENTS
from tableformat.errors import RefusedError
from tableformat.export.claim import Wish
from tableformat.export.job import ExportRequest
from tableformat.export.outcome import Outcome, Status
from tableformat.export.ports import JobPorts, Lands
from tableformat.export.selection import AllPartitions as EveryPartition
from tableformat.export.selection import ById
from tableformat.ledger import Key
from tableformat.mergetree.alike import differences
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import TableName
from tableformat.operations.running import Running
from tableformat.operations.which import AllPartitions, OnePartition, shown_partition

__all__ = ["Coming", "Local", "each_once", "looked_at"]

_MOST_VIEWS: Final = 8


@dataclass(frozen=True, slots=True)
class Local:
    """A table behind FROM as it was looked at: where it is, and whether it has the partition."""

    at: LocalTable
    table: MergeTreeTable
    has_parts: bool


@dataclass(frozen=True, slots=True)
class Coming:
    """What a statement brings: `table` is the name behind FROM, `tables` what it stands for.

    `running` runs statements on the table that it comes to, `exports` the exports. With
    `allow_empty` an empty partition there replaces what is here.
    """

    which: OnePartition | AllPartitions
    table: str
    tables: tuple[Local, ...]
    to: RememberingTable
    running: Running
    exports: ExportsFrom
    replaces: bool
    allow_empty: bool

    def __str__(self) -> str:
        """Return the statement, as messages have it."""
        verb = "REPLACE" if self.replaces else "ATTACH"
        return f"{verb} {self.which} FROM {self.table} on {self.to.name}"

    @property
    def filled(self) -> tuple[Local, ...]:
        """The tables that have parts of the partition."""
        return tuple(one for one in self.tables if one.has_parts)

    def nothing_comes(self) -> RefusedError:
        """Return the refusal of a partition that has no rows there."""
        message = (
            f"Cannot run {self}: {self.table} has no rows of it, and what is here would be dropped "
            "without a word. Set allow_replace_partition_from_empty_source = 1, or use DROP "
            "PARTITION."
        )
        return RefusedError(message, code=BAD_ARGUMENTS)

    def request(self, one: Local) -> ExportRequest:
        """Return the export of one of the tables."""
        given = self.exports.settings
        wish = Wish(
            force=self.replaces,
            ttl=given.manifest_ttl,
            allow_empty=self.replaces and self.allow_empty,
            beside=not self.replaces and given.overwrite_file_if_exists,
            attaches=not self.replaces,
            replaces=self.replaces,
        )
        of = self.which
        request = ExportRequest(
            table=one.at.table,
            to=self.to.name,
            selection=ById(of.partition_id) if isinstance(of, OnePartition) else EveryPartition(),
            wish=wish,
            conversions={},
            max_retries=given.max_retries,
            abandoned_ttl=given.abandoned_ttl,
            limits=given.limits,
            format=given.file_format,
        )
        return request.of_table(one.at.table, len(self.tables))

    def export(
        self, one: Local, opens: OpensPorts, landing: Lands | None = None
    ) -> tuple[Outcome, ...]:
        """Export one of the tables; what it says is the statement's to tell.

        Raises:
            TableFormatError: nothing of it can be exported, or it failed before that.
        """

        def opened(place: SourcePlace) -> JobPorts:
            ports = opens(place)
            return replace(ports, observer=Untold(ports.observer), landing=landing)

        slots = self.exports.slots
        return export_from_any(self.request(one), one.at.place, opened, slots=slots)

    def told(self, status: Status, message: str) -> Outcome:
        """Return an outcome of the whole statement."""
        return Outcome(shown_partition(self.which), status, str(self.to.name), message)

    def key(self, one: Local) -> Key:
        """Return the key of the partition of one of the tables."""
        uuid = self.to.found.load().layout.table_uuid
        return Key(one.table.key_source, shown_partition(self.which), uuid)


def looked_at(
    what: str, one: LocalTable, which: OnePartition | AllPartitions, to: RememberingTable
) -> Local:
    """Return a table as it is now, when the conditions hold between it and the lake table."""
    with contextlib.closing(open_source(one.place, is_exporting=True)) as source:
        name, table = _described(source.describe, one.table)
        found = differences(table, to.source.table)
        if found:
            told = "; ".join(different.text for different in found)
            shard = f"shard {one.shard}: " if one.shard is not None else ""
            raise RefusedError(f"{what}: {shard}{told}.", code=found[0].code)
        if isinstance(which, OnePartition):
            has_parts = bool(source.parts(name, which.partition_id))
        else:
            has_parts = bool(source.partitions(name))
    return Local(replace(one, table=name), table, has_parts)


def each_once(found: Iterable[Local]) -> tuple[Local, ...]:
    """Return every table once: what a cluster calls shards may be replicas of one table.

    Their rows are the same, of one key, and would be there twice where one replica is behind. Of
    several one is taken that has the partition.
    """
    once: dict[str, Local] = {}
    for one in found:
        known = once.setdefault(one.table.key_source, one)
        if one.has_parts and not known.has_parts:
            once[one.table.key_source] = one
    return tuple(once.values())


def _described(
    describe: Callable[[TableName], MergeTreeTable], name: TableName
) -> tuple[TableName, MergeTreeTable]:
    """Return a table, or the one that a materialized view writes to, by its name."""
    for _ in range(_MOST_VIEWS):
        try:
            return name, describe(name)
        except ViewError as error:
            if error.target is None:
                raise
            name = error.target
    return name, describe(name)

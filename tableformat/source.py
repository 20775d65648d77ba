"""Contract: where MergeTree data is read.

A source describes a table, freezes partitions of it in a snapshot that nothing on the source can
change any more, and says for each frozen partition what it holds. It never hands out rows itself:
tasks open the frozen parts (docs/reference/source-parts.md, docs/reference/source-server.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from tableformat.digest import Digest
from tableformat.errors import RefusedError, TableFormatError
from tableformat.ledger import DetachedPart, ExportedPart
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.missing_columns import column_list, columns_of_parts
from tableformat.mergetree.table import MergeTreeTable, Part, PartitionSummary
from tableformat.mergetree.types import DataType
from tableformat.names import PartitionId, TableName

__all__ = [
    "FrozenPart",
    "FrozenPartition",
    "LeftPart",
    "LeftSnapshot",
    "Leftover",
    "PartsLayout",
    "Probe",
    "ProbedValue",
    "ServedLayout",
    "Source",
    "SourceSnapshot",
]


@dataclass(frozen=True, slots=True)
class Probe:
    """A value that must be the same in every row of a partition: an Iceberg transform in SQL.

    `sql` is the transform over the table's columns, each qualified by `SOURCE_ALIAS`; `text_sql`
    turns the value `v` into text, e.g. `toString(v)` or `hex(v)`.
    """

    sql: str
    text_sql: str


@dataclass(frozen=True, slots=True)
class ProbedValue:
    """What a probe found in a partition: least and greatest text (None: only NULLs), NULLs."""

    least: str | None
    greatest: str | None
    nulls: int


@dataclass(frozen=True, slots=True)
class FrozenPart:
    """A part inside a snapshot.

    `part` has its frozen name and path, `source_name` is its name in the source, `visible_rows` are
    the rows it shows when lightweight deletes are applied. `place` is where tasks find it, together
    with the others of that place: the root directory of its disk, or the table that a server keeps
    it in; '' when nothing may be made beside it, and its own directory is opened.
    """

    part: Part
    source_name: str
    visible_rows: int
    place: str


@dataclass(frozen=True, slots=True)
class FrozenPartition:
    """One partition of a snapshot: complete, checked, and not changed by anything any more.

    `digest` is of its visible rows; None when none was asked for, or when a value has no wire value
    and so cannot be exported either.
    """

    partition_id: PartitionId
    parts: tuple[FrozenPart, ...]
    probed: tuple[ProbedValue, ...]
    digest: Digest | None = None

    @property
    def visible_rows(self) -> int:
        """The rows that a SELECT would return: what must arrive in the lake."""
        return sum(p.visible_rows for p in self.parts)


@dataclass(frozen=True, slots=True)
class PartsLayout:
    """What a task needs to open frozen parts as files: the clauses of the staging table.

    A wrong clause opens zero rows without an error, so they are taken from
    the staging table itself. `columns` is the text between the parentheses of CREATE TABLE. `zone`
    is the server's time zone, in which defaults and keys over a DateTime without a zone are
    computed ('' for that of the host that opens the parts). `ranges` tells that a range of a part
    can be read.
    """

    columns: str
    partition_by: str
    order_by: str
    primary_key: str
    settings: tuple[tuple[str, str], ...]
    zone: str = ""
    ranges: bool = True

    def over(self, table: MergeTreeTable, partitions: Iterable[FrozenPartition]) -> PartsLayout:
        """Return the clauses under which these partitions of a table open.

        An expression stands only where a part needs it (`mergetree/missing_columns.py`).
        """
        lacked = {name for one in partitions for held in one.parts for name in held.part.lacks}
        return replace(self, columns=column_list(columns_of_parts(table.columns, lacked)))


@dataclass(frozen=True, slots=True)
class ServedLayout:
    """What a task needs to ask a server for the rows of frozen parts; no secret is in it.

    `host` is the address of the one server that holds them. `columns` are the stored columns, each
    with its type. `order_by` and `zone` are as in `PartsLayout`; `settings` go with every query.
    `typed` tells that the server itself makes values of the wire types, as Arrow; of other servers
    the task takes the columns as they are. `ranges` tells that it can read a range of a part.
    """

    host: str
    columns: tuple[tuple[str, str], ...]
    order_by: str
    zone: str
    settings: tuple[tuple[str, str], ...]
    typed: bool
    ranges: bool

    def over(self, table: MergeTreeTable, partitions: Iterable[FrozenPartition]) -> ServedLayout:  # noqa: ARG002  its server computes what parts lack
        """Return how these partitions of a table are read: as any others."""
        return self


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """Frozen partitions of one table, until `Source.release`.

    `refused` holds the partitions that could not be frozen, each with the error that says why: one
    bad partition never fails the others. `handle` is the source's own text (staging tables), kept
    in the ledger so that a later run finds what a dead one left (`Source.find_snapshot`).
    """

    table: MergeTreeTable
    layout: PartsLayout | ServedLayout
    partitions: tuple[FrozenPartition, ...]
    refused: tuple[tuple[PartitionId, TableFormatError], ...]
    handle: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftPart:
    """A part as a dead job had frozen it: its name in the source, and what tells its content.

    `rows` counts lightweight-deleted rows too, as `Part.rows` does; `lacks` are the stored columns
    that it has no values of, where that is known.
    """

    source_name: str
    hash_of_all_files: str
    rows: int
    lacks: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class LeftSnapshot:
    """What a ledger row says of a partition that a dead job had frozen; it proves nothing.

    `staging` is the handle of that job's snapshot: one of its tables held the partition. `parts`
    are all parts of the partition, in the order in which they were frozen or described.
    """

    staging: tuple[str, ...]
    parts: tuple[LeftPart, ...]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A staging table that is in the source now, be its job alive or dead.

    `created` is in milliseconds since 1970 and as exact as the source keeps it; `bytes_on_disk` are
    shared with the source table's files as long as that still has the same parts; `table` is the
    table whose parts it holds, None when it does not say so itself, and `made_by` the process that
    made it, for people, '' when that is not known.
    """

    name: str
    job: str
    created: int
    bytes_on_disk: int
    rows: int
    table: TableName | None
    made_by: str = ""


class Source(Protocol):
    """Where MergeTree data is read."""

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the table as it is now.

        Raises:
            NotFoundError: no such database or table (code 81, 60).
            UnsupportedError: it is not of the MergeTree family (code 48).
            SourceError: the source cannot be read.
        """
        ...

    def partitions(self, table: TableName) -> tuple[PartitionSummary, ...]:
        """Return the partitions with active parts, by id; patch parts are left out."""
        ...

    def engine_of(self, table: TableName) -> str | None:
        """Return the engine of any table or view, None when there is no such table."""
        ...

    def with_times(
        self, table: MergeTreeTable, found: tuple[PartitionSummary, ...]
    ) -> tuple[PartitionSummary, ...]:
        """Return partitions with their times, or with why these are not known."""
        ...

    def parts(self, table: TableName, *partition_ids: PartitionId) -> tuple[Part, ...]:
        """Return the active parts of partitions that hold rows, in the order of the partitions."""
        ...

    def find_partition(self, table: MergeTreeTable, expression: str) -> PartitionId:
        """Return the id that ClickHouse gives to an expression (`202401`, `tuple('x', 3)`).

        Raises:
            UsageError: the expression is not made of literals, or does not fit the partition key.
            NotFoundError: no active part has that value.
        """
        ...

    def key_types(self, table: MergeTreeTable) -> tuple[DataType, ...]:
        """Return the types of the members of the partition key, in their order.

        Raises:
            UnsupportedError: it does not tell the value of a member (code 48).
            SourceError: the source cannot be read.
        """
        ...

    def refusals(
        self, table: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> Mapping[PartitionId, RefusedError]:
        """Return the partitions that a snapshot would refuse now, as far as that is seen before.

        Raises:
            SourceError: the source cannot be read.
        """
        ...

    def copied_to(self, table: TableName) -> Mapping[PartitionId, str]:
        """Return, for the partitions that a snapshot copies, the disk of the copies (its root).

        Raises:
            SourceError: the source cannot be read.
        """
        ...

    def probe(
        self, table: TableName, partition_id: PartitionId, probes: tuple[Probe, ...]
    ) -> tuple[ProbedValue, ...] | None:
        """Return what probes find in a partition as it is now; None when it shows no rows."""
        ...

    def snapshot(
        self,
        table: MergeTreeTable,
        partition_ids: tuple[PartitionId, ...],
        *,
        job: str,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        """Freeze partitions: all or none of each, verified part by part.

        Args:
            table: as `describe` gave it; when the columns or keys differ by now, every partition is
                refused.
            partition_ids: at least one; each has active parts.
            job: names what is created in the source, so that leftovers of dead jobs can be told
                apart.
            probes: values asked of every partition.
            digest: the columns of which every partition is digested; none when empty.

        Raises:
            SourceError: nothing could be frozen at all.
        """
        ...

    def find_snapshot(
        self,
        table: MergeTreeTable,
        wanted: Mapping[PartitionId, LeftSnapshot],
        *,
        probes: tuple[Probe, ...],
        digest: tuple[DigestColumn, ...] = (),
    ) -> SourceSnapshot:
        """Find again what a dead job had frozen, proved anew as a fresh snapshot is.

        Nothing is made, and nothing of what is left is trusted. A partition is in the answer, under
        its frozen names, only when a staging table still holds exactly the recorded parts of it, is
        of this very table, has its definition and is closed for changes. Whatever is otherwise is
        not in the answer and has to be frozen afresh; `refused` is empty. A partition of which no
        part is recorded is never found.

        Args:
            table: as `describe` gave it.
            wanted: what the ledger says of each partition.
            probes: values asked of every partition.
            digest: the columns of which every partition is digested; none when empty.

        Returns:
            The partitions that were found; its handle names the staging tables that hold them,
            which may hold others too.

        Raises:
            SourceError: the source cannot be read.
        """
        ...

    def release(self, snapshot: SourceSnapshot, keep: Collection[str] = ()) -> None:
        """Drop what the snapshot holds. Releasing twice is the same as once.

        Args:
            snapshot: fresh or found again.
            keep: names of its handle that stay, for a later `find_snapshot`.
        """
        ...

    def sweep_leftovers(
        self, is_alive: Callable[[str], bool], keep: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Drop what dead jobs left behind; return the names of it.

        Args:
            is_alive: whether the job of that name may still need its snapshots.
            keep: names that stay: ledger rows name them that can be resumed.
        """
        ...

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return every staging table in the source, in the order of the names."""
        ...

    def take_out(
        self,
        table: TableName,
        partition_id: PartitionId,
        exported: tuple[ExportedPart, ...],
    ) -> tuple[DetachedPart, ...]:
        """Detach a partition that holds exactly these parts; return what is detached then.

        Raises:
            RefusedError: the partition is not what was exported; it stays as it is.
            SourceError: the source failed; the rows are in the table or among its detached parts.
        """
        ...

    def drop_detached(
        self,
        table: TableName,
        partition_id: PartitionId,
        parts: tuple[DetachedPart, ...],
        *,
        fresh: bool,
    ) -> int:
        """Drop what `take_out` detached, a moment ago if `fresh`; return the bytes that are freed.

        Raises:
            RefusedError: a part is not the one that was detached; nothing is dropped.
            SourceError: the source failed; what is not dropped is still detached.
        """
        ...

    def close(self) -> None:
        """Let go of the source; snapshots stay until they are released."""
        ...

"""Defines the contract of a source, from which MergeTree data is read.

A source describes a table and takes snapshots of its partitions. Nothing on the source can change
a snapshot any more. For each partition in a snapshot, the source reports what it holds. A source
never returns rows: tasks open the parts of the snapshot
(docs/reference/source-parts.md, docs/reference/source-server.md).
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
    "PartitionCopy",
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
    """The result of a probe: least and greatest text (None: only NULLs), and the count of NULLs."""

    least: str | None
    greatest: str | None
    nulls: int


@dataclass(frozen=True, slots=True)
class FrozenPart:
    """A part in a snapshot.

    `part` has its name and path in the snapshot, `source_name` is its name in the source.
    `visible_rows` excludes rows that a lightweight delete removed. `place` is where tasks find the
    part with the other parts of that place: the root directory of its disk, or the table in which a
    server keeps it. It is '' if nothing may be created there; then a task opens the part's own
    directory.
    """

    part: Part
    source_name: str
    visible_rows: int
    place: str


@dataclass(frozen=True, slots=True)
class PartitionCopy:
    """The same parts in the staging table of another server, from which slices can be read, too.

    `host` is the address of that server, `place` its staging table, as `FrozenPart.place`. `names`
    are the parts: the name in the snapshot, and the name in that table.
    """

    host: str
    place: str
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FrozenPartition:
    """A partition in a snapshot: complete, checked and immutable.

    `digest` is of its visible rows. It is None if the caller requested none, or if a value has no
    wire value, in which case the partition cannot be exported either. `copies` are at the other
    servers that read the partition.
    """

    partition_id: PartitionId
    parts: tuple[FrozenPart, ...]
    probed: tuple[ProbedValue, ...]
    digest: Digest | None = None
    copies: tuple[PartitionCopy, ...] = ()

    @property
    def visible_rows(self) -> int:
        """The number of rows that a SELECT returns, all of which must arrive in the lake."""
        return sum(p.visible_rows for p in self.parts)


@dataclass(frozen=True, slots=True)
class PartsLayout:
    """The clauses of the staging table, with which a task opens parts as files.

    They come from the staging table itself, because a wrong clause opens zero rows without an
    error. `columns` is the text between the parentheses of CREATE TABLE. `zone` is the server's
    time zone, which applies to defaults and keys over a DateTime without a zone; '' is the zone of
    the host that opens the parts. `ranges` says whether a task can read a range of a part.
    """

    columns: str
    partition_by: str
    order_by: str
    primary_key: str
    settings: tuple[tuple[str, str], ...]
    zone: str = ""
    ranges: bool = True

    def over(self, table: MergeTreeTable, partitions: Iterable[FrozenPartition]) -> PartsLayout:
        """Return the clauses with which a task opens these partitions of a table.

        An expression is included only if a part needs it (`mergetree/missing_columns.py`).
        """
        lacked = {name for one in partitions for held in one.parts for name in held.part.lacks}
        return replace(self, columns=column_list(columns_of_parts(table.columns, lacked)))


@dataclass(frozen=True, slots=True)
class ServedLayout:
    """The values with which a task requests rows of parts from a server; they include no secret.

    `host` is the address of the server that holds the parts; others may have copies of them
    (`PartitionCopy`). `columns` are the stored columns
    with their types. `order_by` and `zone` are as in `PartsLayout`; every query has the `settings`.
    `typed` says whether the server itself converts values to the wire types, as Arrow; from other
    servers the task reads the columns unconverted. `ranges` says whether the server can read a
    range of a part.
    """

    host: str
    columns: tuple[tuple[str, str], ...]
    order_by: str
    zone: str
    settings: tuple[tuple[str, str], ...]
    typed: bool
    ranges: bool

    def over(self, table: MergeTreeTable, partitions: Iterable[FrozenPartition]) -> ServedLayout:  # noqa: ARG002  its server computes what parts lack
        """Return the layout unchanged: the server computes columns that parts lack."""
        return self


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """A snapshot of partitions of one table, valid until `Source.release`.

    `refused` lists partitions without a snapshot, each with its error: one bad partition never
    fails the others. `handle` is the source's own text (staging tables). The ledger stores it, so
    that a later run finds the snapshot of an interrupted one (`Source.find_snapshot`). `elsewhere`
    are the staging tables of copies, each with the address of its server; no later run needs them.
    `notes` are for the user.
    """

    table: MergeTreeTable
    layout: PartsLayout | ServedLayout
    partitions: tuple[FrozenPartition, ...]
    refused: tuple[tuple[PartitionId, TableFormatError], ...]
    handle: tuple[str, ...]
    elsewhere: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftPart:
    """A part in the snapshot of an interrupted job: its name in the source, and its content.

    `rows` includes lightweight-deleted rows, as `Part.rows` does. `lacks` are the stored columns
    without values in the part, if they are known.
    """

    source_name: str
    hash_of_all_files: str
    rows: int
    lacks: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class LeftSnapshot:
    """The ledger's record of a partition in the snapshot of an interrupted job; it proves nothing.

    `staging` is the handle of that job's snapshot: one of its tables held the partition. `parts`
    are all parts of the partition, in the order of that snapshot or description.
    """

    staging: tuple[str, ...]
    parts: tuple[LeftPart, ...]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A staging table in the source, of a running or an abandoned job.

    `created` is milliseconds since 1970, as exact as the source stores it. The table shares
    `bytes_on_disk` with the files of the source table while that table has the same parts. `table`
    is the table whose parts it holds, None if the staging table does not name it. `made_by` is the
    process that created it, for people, '' if unknown.
    """

    name: str
    job: str
    created: int
    bytes_on_disk: int
    rows: int
    table: TableName | None
    made_by: str = ""


class Source(Protocol):
    """A place of MergeTree tables: a server, an embedded ClickHouse or a directory of parts."""

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the table as it is now.

        Raises:
            NotFoundError: no such database or table (code 81, 60).
            UnsupportedError: it is not of the MergeTree family (code 48).
            SourceError: the source cannot be read.
        """
        ...

    def partitions(self, table: TableName) -> tuple[PartitionSummary, ...]:
        """Return the partitions with active parts, by id, without patch parts."""
        ...

    def engine_of(self, table: TableName) -> str | None:
        """Return the engine of any table or view, None if there is no such table."""
        ...

    def with_times(
        self, table: MergeTreeTable, found: tuple[PartitionSummary, ...]
    ) -> tuple[PartitionSummary, ...]:
        """Return partitions with their times, or with the reason why their times are unknown."""
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
            UnsupportedError: the source does not report the values of the key's members (code 48).
            SourceError: the source cannot be read.
        """
        ...

    def refusals(
        self, table: TableName, partition_ids: tuple[PartitionId, ...]
    ) -> Mapping[PartitionId, RefusedError]:
        """Return the partitions that a snapshot would refuse now, as far as this is known before.

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
        """Return the results of probes in the current partition; None if it has no visible rows."""
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
        """Take a snapshot of partitions: each is complete or refused, and verified part by part.

        Args:
            table: from `describe`; if its columns or keys have changed since, every partition is
                refused.
            partition_ids: at least one; each has active parts.
            job: is part of the names that are created in the source, and identifies the leftovers
                of each job.
            probes: values to compute for every partition.
            digest: the columns of the digest of every partition; no digest when empty.

        Raises:
            SourceError: the source could take no snapshot at all.
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
        """Find the snapshot of an interrupted job, and prove it as a new snapshot is proved.

        This creates nothing and trusts nothing that the job left. The result includes a partition
        only if a staging table still holds exactly the recorded parts, belongs to this very table,
        has its definition and is closed for changes. All other partitions need a new snapshot;
        `refused` is empty. A partition without recorded parts is never found.

        Args:
            table: from `describe`.
            wanted: the ledger's record of each partition.
            probes: values to compute for every partition.
            digest: the columns of the digest of every partition; no digest when empty.

        Returns:
            The partitions that were found, under their names in the snapshot. The handle names the
            staging tables that hold them; these may hold other partitions too.

        Raises:
            SourceError: the source cannot be read.
        """
        ...

    def release(self, snapshot: SourceSnapshot, keep: Collection[str] = ()) -> None:
        """Drop the snapshot. A second release changes nothing.

        Args:
            snapshot: new, or found by `find_snapshot`.
            keep: names of its handle that stay, for a later `find_snapshot`.
        """
        ...

    def sweep_leftovers(
        self, is_alive: Callable[[str], bool], keep: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Drop the snapshots that abandoned jobs left; return their names.

        Args:
            is_alive: whether the job of that name may still need its snapshots.
            keep: names that stay, because ledger rows that can be resumed name them.
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
        """Detach a partition that holds exactly these parts; return the detached parts.

        Raises:
            RefusedError: the partition differs from the exported one; it stays as it is.
            SourceError: the source failed; the rows are in the table or among its detached parts.
        """
        ...

    def detached_parts(
        self, table: TableName, partition_id: PartitionId
    ) -> frozenset[DetachedPart] | None:
        """Return the parts of a partition in the table's `detached` directory; None if not shown.

        Raises:
            SourceError: the source failed.
        """
        ...

    def drop_detached(
        self,
        table: TableName,
        partition_id: PartitionId,
        parts: tuple[DetachedPart, ...],
        *,
        fresh: bool,
    ) -> tuple[DetachedPart, ...]:
        """Drop the parts that `take_out` detached, just now if `fresh`.

        Return those that were dropped; the others are not detached any more.

        Raises:
            RefusedError: a part is not the one that was detached; nothing is dropped.
            SourceError: the source failed; parts that were not dropped are still detached.
        """
        ...

    def close(self) -> None:
        """Close the source; snapshots stay until they are released."""
        ...

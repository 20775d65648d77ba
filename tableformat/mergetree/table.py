"""Describes a MergeTree source table: columns, engine clauses, storage policy, identity and parts.

`MergeTreeTable` is the table. `Part` and `PartitionSummary` hold the data of system.parts;
`fingerprint` is the identity of a partition's content.

`KeeperNode` is the node in Keeper of a replicated table, with its creation. A Keeper path is only
a name: two ensembles may have the same path, and a table may be dropped and created again under
it. The node is created with the table and stays when replicas come and go.
`catalog/clickhouse/describe.py` chooses the node; `tableformat/export/namesakes.py` compares it
(docs/spec/ledger.md, "Nodes of Keeper").
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tableformat.mergetree.types import DataType
from tableformat.names import PartitionId, TableName

__all__ = [
    "Column",
    "Engine",
    "KeeperNode",
    "KeeperSilent",
    "MergeTreeTable",
    "NoTimes",
    "Part",
    "PartitionSummary",
    "Projection",
    "SkipIndex",
    "Times",
    "fingerprint",
    "known_by_name",
]


@dataclass(frozen=True, slots=True)
class KeeperNode:
    """A node: the number of the change that made it, and when that was.

    `czxid` is counted by the ensemble, `created` is milliseconds since 1970 by its clock, in whole
    seconds. A copy of the ensemble's data keeps both.
    """

    czxid: int
    created: int

    def __str__(self) -> str:
        """Return what people need to tell two nodes apart."""
        made = datetime.fromtimestamp(self.created / 1000, UTC)
        return f"{made:%Y-%m-%d %H:%M:%S} UTC (zxid {self.czxid})"


@dataclass(frozen=True, slots=True)
class KeeperSilent:
    """There is a Keeper, and it does not say which node there is; `reason` is its answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column of system.columns.

    `default_kind` is '', DEFAULT, MATERIALIZED, ALIAS or EPHEMERAL; `default_expression` its text.
    """

    name: str
    type: DataType
    type_text: str
    default_kind: str = ""
    default_expression: str = ""
    comment: str = ""

    @property
    def stored(self) -> bool:
        """Whether parts hold this column (ALIAS and EPHEMERAL are never stored)."""
        return self.default_kind not in ("ALIAS", "EPHEMERAL")


@dataclass(frozen=True, slots=True)
class SkipIndex:
    """A data skipping index: `type_text` is the type with its arguments, `set(100)`."""

    name: str
    expression: str
    type_text: str
    granularity: int


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection and its query."""

    name: str
    query: str


@dataclass(frozen=True, slots=True)
class Engine:
    """The clauses of system.tables.engine_full, each as its text; '' when absent.

    The text is taken from engine_full because `sorting_key` hides DESC. A table of
    the old syntax, `MergeTree(date, (k), 8192)`, has the clauses that it stands for, and
    in `old_arguments` those of its arguments that any engine with such parts has.
    """

    name: str
    arguments: str = ""
    partition_by: str = ""
    primary_key: str = ""
    order_by: str = ""
    sample_by: str = ""
    ttl: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    old_arguments: str = ""

    @property
    def family(self) -> str:
        """The engine without replication: what a table needs to have in common with another."""
        return self.name.removeprefix("Replicated").removeprefix("Shared")

    @property
    def replicated(self) -> bool:
        """Whether replicas of this table exist or may exist."""
        return self.name.startswith(("Replicated", "Shared"))


@dataclass(frozen=True, slots=True)
class MergeTreeTable:
    """A table of the MergeTree family.

    `identity` tells the same data by another name apart from other data by the same name
    (docs/spec/table-properties.md): the Keeper path of a replicated table, else the table's UUID,
    else server and name. `keeper_node` tells one replicated table from another of the same
    Keeper path; it is None without a Keeper. `known_as` is the identity under which the user says
    that it was exported, '' for its own.
    """

    name: TableName
    identity: str
    uuid: str
    engine: Engine
    columns: tuple[Column, ...]
    storage_policy: str
    server_version: str
    server_zone: str
    has_ttl_columns: bool = False
    indices: tuple[SkipIndex, ...] = ()
    projections: tuple[Projection, ...] = ()
    keeper_node: KeeperNode | KeeperSilent | None = None
    known_as: str = ""

    @property
    def key_source(self) -> str:
        """The identity in the keys of its exports."""
        return self.known_as or self.identity

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns that are exported: everything that parts hold, in declared order."""
        return tuple(c for c in self.columns if c.stored)


def known_by_name(identity: str) -> tuple[str, TableName] | None:
    """Return place and name of a table that only its name tells apart; None of any other."""
    scheme, _, rest = identity.partition(":")
    match scheme:
        case "server":
            place, _, name = rest.partition(":")
        case "host":
            place, name = rest.partition(":")[0], rest.partition("/:")[2]
        case "directory":
            # The table's own directory is in that of its database.
            directory, _, name = rest.partition("/:")
            place = directory.rpartition("/")[0].rpartition("/")[0]
        case _:
            return None
    return f"{scheme}:{place}", TableName.parse(name)


@dataclass(frozen=True, slots=True)
class Part:
    """One active part.

    `rows` counts lightweight-deleted rows too, as system.parts does; `path` is the part's own
    directory, `disk` the root directory of the disk that it is on; `part_type` is Wide or Compact;
    sizes in bytes. `lacks` are the stored columns of its table of which it has no values, in
    declared order: ClickHouse computes them (`lacked_columns.py`).
    """

    name: str
    partition_id: PartitionId
    rows: int
    bytes_on_disk: int
    uncompressed_bytes: int
    hash_of_all_files: str
    disk: str
    path: str
    part_type: str
    min_block: int
    max_block: int
    level: int
    data_version: int
    has_lightweight_delete: bool
    lacks: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[str, str, int]:
        """What stays equal when a clone renumbers the part."""
        return (str(self.partition_id), self.hash_of_all_files, self.rows)


@dataclass(frozen=True, slots=True)
class Times:
    """The least and greatest value of a partition's time column, as ClickHouse writes its type.

    Both are '' when the column holds nothing but NULL there.
    """

    least: str
    greatest: str


@dataclass(frozen=True, slots=True)
class NoTimes:
    """Why the times of a partition are not known."""

    why: str


_NOT_READ: Final = NoTimes("they were not read")


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition of a table; `times` are read on request only (`Source.with_times`)."""

    partition_id: PartitionId
    partition: str
    parts: int
    rows: int
    bytes_on_disk: int
    times: Times | NoTimes = _NOT_READ

    @property
    def min_time(self) -> str:
        """The least time, '' where there is none or it is not known."""
        return self.times.least if isinstance(self.times, Times) else ""

    @property
    def max_time(self) -> str:
        """The greatest time, '' where there is none or it is not known."""
        return self.times.greatest if isinstance(self.times, Times) else ""


def fingerprint(parts: Iterable[Part], computed: Mapping[tuple[str, ...], str]) -> str:
    """Return the content identity of a partition: a digest over its parts' hashes and rows.

    A merge changes it although the rows are equal; the ledger explains that. Of a part that lacks
    columns it covers what decides their values, too: without any it is as if there were none.

    Args:
        parts: of the partition.
        computed: what decides the values of the columns that a part lacks, by these; '' for NULL.
    """
    digest = hashlib.sha256()
    found = ((*p.content, text) if (text := computed[p.lacks]) else p.content for p in parts)
    for content in sorted(found):
        digest.update(repr(content).encode())
    return digest.hexdigest()

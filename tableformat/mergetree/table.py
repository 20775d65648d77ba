"""Describes a MergeTree source table: columns, engine clauses, storage policy, identity and parts.

`MergeTreeTable` is the table. `Part` and `PartitionSummary` hold the data of system.parts;
`fingerprint` is the identity of a partition's content.

`KeeperNode` is the node in Keeper of a replicated table, with its creation. A Keeper path is only
a name: two ensembles may have the same path, and a table may be dropped and created again under
it. The node is created with the table and stays when replicas come and go.
`catalog/clickhouse/table_description.py` chooses the node; `tableformat/export/table_identity.py`
compares it (docs/spec/ledger.md, "Nodes of Keeper").
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tableformat.mergetree.types import DataType
from tableformat.names import PartitionId, TableName

__all__ = [
    "Column",
    "Engine",
    "KeeperNode",
    "KeeperUnavailable",
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
    """A node: the number and the time of the change that created it.

    `czxid` is the ensemble's counter. `created` is milliseconds since 1970 by its clock, in whole
    seconds. A copy of the ensemble's data keeps both.
    """

    czxid: int
    created: int

    def __str__(self) -> str:
        """Return the creation time and number, which distinguish two nodes for people."""
        made = datetime.fromtimestamp(self.created / 1000, UTC)
        return f"{made:%Y-%m-%d %H:%M:%S} UTC (zxid {self.czxid})"


@dataclass(frozen=True, slots=True)
class KeeperUnavailable:
    """The table has a Keeper that does not report the node; `reason` is its response."""

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
        """Whether parts store this column (not so for ALIAS and EPHEMERAL)."""
        return self.default_kind not in ("ALIAS", "EPHEMERAL")


@dataclass(frozen=True, slots=True)
class SkipIndex:
    """A data skipping index: `types` is the type with its arguments, `set(100)`."""

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

    The text comes from engine_full because `sorting_key` hides DESC. A table of the old syntax,
    `MergeTree(date, (k), 8192)`, gets the equivalent clauses; `old_arguments` has those arguments
    that any engine with such parts needs, '' for the new syntax.
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
        """The engine without replication, which compatible tables share."""
        return self.name.removeprefix("Replicated").removeprefix("Shared")

    @property
    def replicated(self) -> bool:
        """Whether the table has, or may have, replicas."""
        return self.name.startswith(("Replicated", "Shared"))


@dataclass(frozen=True, slots=True)
class MergeTreeTable:
    """A table of the MergeTree family.

    `identity` distinguishes the same data under another name from other data under the same name
    (docs/spec/table-properties.md): the Keeper path of a replicated table, else the table's UUID,
    else server and name. `keeper_node` distinguishes replicated tables of the same Keeper path; it
    is None without a Keeper. `server` is the UUID of the server of any other table, '' if it is
    unknown: CREATE … ON CLUSTER gives the tables of all shards one UUID. `known_as` is the identity
    of earlier exports if the user names another one, '' for the table's own.
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
    keeper_node: KeeperNode | KeeperUnavailable | None = None
    server: str = ""
    known_as: str = ""

    @property
    def key_source(self) -> str:
        """The identity in the keys of its exports."""
        return self.known_as or self.identity

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns that parts store and exports contain, in declared order."""
        return tuple(c for c in self.columns if c.stored)


def known_by_name(identity: str) -> tuple[str, TableName] | None:
    """Return place and name of a table that only its name identifies; None for other tables."""
    scheme, _, rest = identity.partition(":")
    match scheme:
        case "server":
            place, _, name = rest.partition(":")
        case "host":
            place, name = rest.partition(":")[0], rest.partition("/:")[2]
        case "directory":
            # A table's directory is inside the directory of its database.
            directory, _, name = rest.partition("/:")
            place = directory.rpartition("/")[0].rpartition("/")[0]
        case _:
            return None
    return f"{scheme}:{place}", TableName.parse(name)


@dataclass(frozen=True, slots=True)
class Part:
    """One active part.

    `rows` counts lightweight-deleted rows too, as system.parts does. `path` is the part's
    directory, `disk` the root directory of its disk; `part_type` is Wide or Compact; sizes are in
    bytes. `lacks` are the table's stored columns without values in the part, in declared order,
    which ClickHouse computes (`missing_columns.py`). `patches` are the patch parts of lightweight
    updates that ClickHouse has not written into the part: a SELECT shows their values.
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
    patches: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[str, str, int]:
        """The values that stay equal when a clone renumbers the part."""
        return (str(self.partition_id), self.hash_of_all_files, self.rows)


@dataclass(frozen=True, slots=True)
class Times:
    """The least and greatest value of a partition's time column, as ClickHouse writes its type.

    Both are '' if the column has only NULL there.
    """

    least: str
    greatest: str


@dataclass(frozen=True, slots=True)
class NoTimes:
    """Why the times of a partition are unknown."""

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
        """The least time, '' if there is none or it is unknown."""
        return self.times.least if isinstance(self.times, Times) else ""

    @property
    def max_time(self) -> str:
        """The greatest time, '' if there is none or it is unknown."""
        return self.times.greatest if isinstance(self.times, Times) else ""


PartIdentity = tuple[str | int, ...]
"""The content identity of a part, as `part_identity` returns it."""


def part_identity(part: Part, computed: str) -> PartIdentity:
    """Return the content identity of a part: its hash and rows.

    For a part that lacks columns it includes their definitions; for other parts these add nothing.
    It includes the names of patch parts that are to be written into it.

    Args:
        part: of a partition.
        computed: the definitions of the columns that it lacks; '' if it lacks none, or for NULL.
    """
    return (*part.content, *filter(None, (computed, ",".join(part.patches))))


def fingerprint(parts: Iterable[PartIdentity]) -> str:
    """Return the content identity of a partition: a digest over those of its parts.

    A merge changes it although the rows are equal; the ledger explains that.
    """
    digest = hashlib.sha256()
    for identity in sorted(parts):
        digest.update(repr(identity).encode())
    return digest.hexdigest()

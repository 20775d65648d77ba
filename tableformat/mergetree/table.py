"""A MergeTree table as a source describes it: columns, engine clauses, storage policy, identity."""

from __future__ import annotations

from dataclasses import dataclass

from tableformat.mergetree.keeper_node import KeeperNode, KeeperSilent
from tableformat.mergetree.types import DataType
from tableformat.names import TableName

__all__ = ["Column", "Engine", "MergeTreeTable", "Projection", "SkipIndex", "known_by_name"]


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

    The text is taken from engine_full because `sorting_key` hides DESC (types.md section 4). A
    table of the old syntax, `MergeTree(date, (k), 8192)`, has the clauses that it stands for, and
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
    (DESIGN 5.1): the Keeper path of a replicated table, else the table's UUID, else server and
    name. `keeper_node` tells one replicated table from another of the same Keeper path; it is None
    without a Keeper. `known_as` is the identity under which the user says that it was exported, ''
    for its own.
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

"""Which rights a user needs at a server, as values and as the GRANT statements that give them.

The least set, seen by running everything with one right less at a time (source.md section 1,
privileges; tests/integration/test_grants.py). A clone asks for SELECT on the whole source table,
columns alone are not enough, and for nothing else there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tableformat.names import TableName, quote_identifier

__all__ = [
    "ARCHIVE",
    "NICE",
    "Grant",
    "Need",
    "Target",
    "export_grants",
    "statements",
    "system_grants",
]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """What a right is on: a table, a whole database (`table` is ''), or everything (both '')."""

    database: str = ""
    table: str = ""

    @property
    def sql(self) -> str:
        """What stands behind ON."""
        return f"{_named(self.database)}.{_named(self.table)}"


@dataclass(frozen=True, slots=True)
class Grant:
    """One privilege on one target, and what it is needed for."""

    privilege: str
    on: Target
    why: str

    @property
    def sql(self) -> str:
        """The privilege and its target, as between GRANT and TO."""
        return f"{self.privilege} ON {self.on.sql}"


@dataclass(frozen=True, slots=True)
class Need:
    """What decides which rights an export of a table needs; True where it is not known.

    `makes_database` is whether the staging database is still to be made, `closes_tables` whether
    this version can make a table read-only, `has_column_ttl` and `is_replicated` are the table's.
    """

    table: TableName
    staging: str
    makes_database: bool = True
    closes_tables: bool = True
    has_column_ttl: bool = True
    is_replicated: bool = True


_STAGING: Final = (
    ("CREATE TABLE", "a staging table is made"),
    ("INSERT", "parts of the source are linked into it"),
    ("ALTER DELETE", "REPLACE PARTITION asks for it, also when there is nothing to replace"),
    ("SELECT", "the rows are read from it"),
    ("CHECK", "each of its parts is checked for damage"),
    ("SYSTEM MERGES", "its parts must not be merged"),
    ("SYSTEM TTL MERGES", "its rows must not expire"),
    ("DROP TABLE", "it is dropped in the end"),
)
_READ: Final = (
    ("parts", "the parts of a snapshot are listed and compared"),
    ("parts_columns", "a RENAME that is not carried out is seen there"),
    ("mutations", "a mutation that is not finished is seen there"),
    ("detached_parts", "a broken part that was set aside is seen there"),
    ("merge_tree_settings", "it says which settings a staging table can have"),
    ("disks", "it says where parts lie"),
    ("data_skipping_indices", "the skip indices of the table are remembered"),
    ("projections", "the projections of the table are remembered"),
)
_READ_OF_REPLICAS: Final = (
    ("replicas", "the identity of a replicated table and its delay stand there"),
    ("zookeeper", "the node of its path tells it from another table of the same path"),
    ("replication_queue", "parts that a replica still has to fetch are seen there"),
)
ARCHIVE: Final = (
    ("ALTER DELETE", "`archive` detaches the partition, and drops it with --drop"),
    ("INSERT", "`archive` attaches again what changed meanwhile"),
)
"""On the source table, for `archive` alone."""
NICE: Final = (
    Grant(
        "SHOW ROW POLICIES",
        Target(),
        "row policies are seen, and need not be found out by counting rows",
    ),
    Grant(
        "SELECT",
        Target("system", "processes"),
        "the queries of an export that is stopped are ended at once",
    ),
)
"""An export works without these."""


def export_grants(need: Need) -> tuple[Grant, ...]:
    """Return the rights that an export needs beside those on system tables, in the order of use."""
    staging = Target(need.staging)
    database = Grant("CREATE DATABASE", staging, "the staging database is made once")
    closing = Grant("ALTER SETTINGS", staging, "a filled staging table is made read-only")
    ttl = Grant("ALTER MODIFY COLUMN", staging, "the TTLs of columns are taken off it")
    source = Grant(
        "SELECT",
        Target(need.table.database, need.table.name),
        "its parts are cloned; SELECT on columns alone is not enough for that",
    )
    return (
        source,
        *((database,) if need.makes_database else ()),
        *(Grant(privilege, staging, why) for privilege, why in _STAGING),
        *((closing,) if need.closes_tables else ()),
        *((ttl,) if need.has_column_ttl else ()),
    )


def system_grants(*, is_replicated: bool = True) -> tuple[Grant, ...]:
    """Return the rights on system tables that every command needs.

    A server gives them to everybody, unless it is configured to ask for a grant
    (select_from_system_db_requires_grant, which the configuration of its packages sets).
    """
    read = (*_READ, *(_READ_OF_REPLICAS if is_replicated else ()))
    return tuple(Grant("SELECT", Target("system", table), why) for table, why in read)


def statements(grants: Iterable[Grant], user: str) -> tuple[str, ...]:
    """Return the statements that give rights to a user, one for each target, ready to be run."""
    found: dict[Target, list[str]] = {}
    for grant in grants:
        held = found.setdefault(grant.on, [])
        if grant.privilege not in held:
            held.append(grant.privilege)
    return tuple(
        f"GRANT {', '.join(privileges)} ON {on.sql} TO {_named(user)};"
        for on, privileges in found.items()
    )


def _named(name: str) -> str:
    if not name:
        return "*"
    return name if _PLAIN.fullmatch(name) else quote_identifier(name)

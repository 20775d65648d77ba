"""Reuses the snapshot of an ended job: staging tables outlive the process that filled them.

    staging tables in the ledger -> exists, of this table, closed, with the same definition?
    -> exactly the recorded parts? -> CHECK, counts, probes, digest, as for a new clone

Since the job ended, a server may have restarted, and an operator may have dropped or changed a
staging table; or the job ended while it filled one. So everything is checked again. A partition
that does not pass is left out, and a new snapshot of it is taken, which costs time but no row.
Changes of the source table do not matter, except that its definition must match the staging table,
because the files were planned for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import Connection
from catalog.clickhouse.missing_columns import with_missing_columns
from catalog.clickhouse.snapshot.comparison import Clone, differences, paired
from catalog.clickhouse.snapshot.proof import Proved, prove
from catalog.clickhouse.snapshot.staging import (
    files_layout,
    is_closed,
    layout_of,
    origins,
    place_of,
    staging_columns,
    staging_table,
)
from catalog.clickhouse.table_description import describe, list_parts
from tableformat.errors import NotFoundError, UnsupportedError
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import MergeTreeTable
from tableformat.names import PartitionId, TableName
from tableformat.source import FrozenPart, FrozenPartition, LeftSnapshot, Probe, SourceSnapshot

__all__ = ["Search", "find_left_snapshot"]

Left = Mapping[PartitionId, LeftSnapshot]


@dataclass(frozen=True, slots=True)
class Search:
    """Partitions of a described table to find, with the probes and digest columns to compute."""

    table: MergeTreeTable
    wanted: Left
    probes: tuple[Probe, ...]
    digest: tuple[DigestColumn, ...] = ()


def find_left_snapshot(
    connection: Connection, capabilities: Capabilities, search: Search
) -> SourceSnapshot:
    """Return the wanted partitions that staging tables still hold completely, proved again.

    Raises:
        SourceError: the source cannot be read.
    """
    found: dict[PartitionId, FrozenPartition] = {}
    handle = []
    for staging in _usable(connection, capabilities, search):
        missing = {one: left for one, left in search.wanted.items() if one not in found}
        proved = _proved(connection, capabilities, staging, search, missing)
        if proved.partitions:
            found |= {partition.partition_id: partition for partition in proved.partitions}
            handle.append(staging.name)
    layout = layout_of(connection, capabilities, search.table)
    return SourceSnapshot(
        table=search.table,
        layout=layout.over(search.table, found.values()),
        partitions=tuple(found[one] for one in sorted(found)),
        refused=(),
        handle=tuple(handle),
    )


def _usable(
    connection: Connection, capabilities: Capabilities, search: Search
) -> tuple[TableName, ...]:
    """Return the recorded staging tables that belong to this table and are unchanged."""
    names = {name: None for left in search.wanted.values() for name in left.staging}
    if not names:
        return ()
    owners = origins(connection, capabilities, names)
    return tuple(
        staging_table(connection, name)
        for name in names
        if name in owners
        and owners[name].identity == search.table.identity
        and _is_unchanged(connection, capabilities, search.table, staging_table(connection, name))
    )


def _is_unchanged(
    connection: Connection, capabilities: Capabilities, table: MergeTreeTable, staging: TableName
) -> bool:
    """Whether a staging table is closed and opens its parts as a new one would."""
    try:
        found = describe(connection, capabilities, staging)
    except (NotFoundError, UnsupportedError):
        # It was dropped meanwhile, or replaced by another object.
        return False
    parts = with_missing_columns(connection, staging, list_parts(connection, capabilities, staging))
    bare = staging_columns(table, {column for part in parts for column in part.lacks})
    return (
        is_closed(found.engine, capabilities)
        and not differences(table, found, copy=True, bare=bare)
        and _opening(table, capabilities) == _opening(found, capabilities)
    )


def _opening(table: MergeTreeTable, capabilities: Capabilities) -> dict[str, str]:
    """Return the settings of a table that decide how its parts open as files."""
    # Permissions are added to every table that is opened.
    given = dict(capabilities.permissions)
    settings = files_layout(table, capabilities).settings
    return {name: value for name, value in settings if name not in given}


def _proved(
    connection: Connection,
    capabilities: Capabilities,
    staging: TableName,
    search: Search,
    missing: Left,
) -> Proved:
    """Prove the missing partitions of which a staging table has exactly the recorded parts."""
    wanted = {one: left for one, left in missing.items() if staging.name in left.staging}
    parts = _matched(connection, capabilities, staging, wanted)
    if not parts:
        return Proved((), {})
    clone = Clone(search.table.name, staging, parts)
    return prove(connection, capabilities, clone, search.probes, search.digest)


def _matched(
    connection: Connection, capabilities: Capabilities, staging: TableName, wanted: Left
) -> dict[PartitionId, tuple[FrozenPart, ...]]:
    """Return each partition's parts with their recorded names, without partitions that differ."""
    # A partition without recorded parts would match, empty, in every table.
    recorded = {one: left for one, left in wanted.items() if left.parts}
    if not recorded:
        return {}
    listed = list_parts(connection, capabilities, staging, tuple(recorded))
    held = with_missing_columns(connection, staging, listed)
    place = place_of(staging, capabilities)
    matched = {}
    for one, left in recorded.items():
        copies = tuple(part for part in held if part.partition_id == one)
        pairs = paired(copies, left.parts, place=place)
        if pairs is not None:
            matched[one] = pairs
    return matched

"""Copies a snapshot at other replicas, so that they read slices of its partitions, too.

A staging table exists only on the replica that created it, with the parts of that replica. Other
replicas may have merged their parts differently. So another replica creates its own staging table
by the whole snapshot protocol. It reads a partition only if it has the same parts: the same names,
hashes and rows, stored and visible. The files of such parts have the same bytes, and every row has
the same position in its part.

- The two servers have the same version and read with the same settings, or values might differ.
- Not copied: a partition with a part that lacks columns, whose values each server computes, and,
  of a table that is not replicated, parts whose hash the server does not show.
- A difference or an error at another replica costs no row and no partition: the replica of the
  snapshot reads these slices.

See docs/reference/source-server.md, "Slices at several replicas".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import Connection
from catalog.clickhouse.snapshot.comparison import differences, is_hash
from catalog.clickhouse.snapshot.protocol import SnapshotRequest, take_snapshot
from catalog.clickhouse.snapshot.staging import drop_staging, layout_of, staging_table
from catalog.network import some
from tableformat.mergetree.table import KeeperNode, MergeTreeTable, Part
from tableformat.names import PartitionId
from tableformat.quantities import counted
from tableformat.source import FrozenPartition, PartitionCopy, PartsLayout, ServedLayout
from tableformat.source import SourceSnapshot as Snapshot

__all__ = [
    "Copied",
    "Reader",
    "are_readable",
    "copy_partitions",
    "is_same_table",
    "readers_note",
    "same_parts",
    "why_not_read",
    "with_copies",
]


@dataclass(frozen=True, slots=True)
class Reader:
    """How the server of a snapshot reads a table."""

    table: MergeTreeTable
    layout: PartsLayout | ServedLayout
    version: str


@dataclass(frozen=True, slots=True)
class Copied:
    """The copies of a snapshot's partitions at another server, in staging tables there.

    `why` is the reason if partitions are missing, else ''.
    """

    host: str
    copies: Mapping[PartitionId, PartitionCopy] = field(default_factory=dict)
    staging: tuple[str, ...] = ()
    why: str = ""


def is_same_table(before: MergeTreeTable | None, now: MergeTreeTable) -> bool:
    """Whether two descriptions are of the same table; None counts as any table."""
    if before is None:
        return True
    nodes = {one.keeper_node for one in (before, now) if isinstance(one.keeper_node, KeeperNode)}
    return before.identity == now.identity and len(nodes) < 2  # noqa: PLR2004  two differ


def why_not_read(
    connection: Connection, capabilities: Capabilities, table: MergeTreeTable, reader: Reader
) -> str:
    """Return why a server cannot read slices of a snapshot, '' if it can.

    Args:
        connection: to that server.
        capabilities: of that server.
        table: as that server has it.
        reader: the server of the snapshot.

    Raises:
        SourceError: the server cannot be read.
    """
    if not is_same_table(reader.table, table):
        return "it has another table of this name"
    if capabilities.version != reader.version:
        return f"its version is {capabilities.version}, not {reader.version}"
    if different := differences(reader.table, table, copy=True):
        return f"{different} differ"
    layout, of = layout_of(connection, capabilities, table), reader.layout
    if not isinstance(layout, ServedLayout) or not isinstance(of, ServedLayout):
        return "its parts are files"
    return "" if replace(layout, host=of.host) == of else "its settings differ"


def are_readable(table: MergeTreeTable, parts: Iterable[Part]) -> bool:
    """Whether another server with the same parts certainly returns the same rows."""
    return not any(
        part.lacks or not (table.engine.replicated or is_hash(part.hash_of_all_files))
        for part in parts
    )


def same_parts(parts: Iterable[Part], there: Iterable[Part]) -> bool:
    """Whether the parts of a source partition are the same at another server."""
    here, others = (
        {(part.name, part.hash_of_all_files, part.rows, part.lacks) for part in found}
        for found in (parts, there)
    )
    return here == others


def copy_partitions(
    connection: Connection,
    capabilities: Capabilities,
    table: MergeTreeTable,
    wanted: Sequence[FrozenPartition],
    job: str,
) -> Copied:
    """Make staging tables of partitions at another server, and compare them with a snapshot.

    Args:
        connection: to the other server.
        capabilities: of the other server.
        table: as the other server has it.
        wanted: the partitions, in the snapshot.
        job: is part of the names of the staging tables.

    Raises:
        SourceError: the other server cannot be used.
    """
    ids = tuple(one.partition_id for one in wanted)
    taken = take_snapshot(connection, capabilities, SnapshotRequest(table, ids, job, ()))
    there = {one.partition_id: one for one in taken.partitions}
    copies = {
        one.partition_id: _copy(connection.address, one, there[one.partition_id])
        for one in wanted
        if one.partition_id in there and _contents(one) == _contents(there[one.partition_id])
    }
    used = {copy.place for copy in copies.values()}
    tables = [staging_table(connection, name) for name in taken.handle]
    for staging in (one for one in tables if one.sql not in used):
        drop_staging(connection, capabilities, staging)
    refused = {one: error.message for one, error in taken.refused}
    lacking = tuple(one for one in ids if one not in copies)
    other = f"it has other parts of partition {some(map(str, lacking))}"
    why = refused.get(lacking[0], other) if lacking else ""
    return Copied(
        connection.address, copies, tuple(one.name for one in tables if one.sql in used), why
    )


def _copy(host: str, one: FrozenPartition, there: FrozenPartition) -> PartitionCopy:
    names = {held.source_name: held.part.name for held in there.parts}
    return PartitionCopy(
        host,
        there.parts[0].place,
        tuple((held.part.name, names[held.source_name]) for held in one.parts),
    )


def _contents(one: FrozenPartition) -> set[tuple[str, str, int, int, tuple[str, ...]]]:
    """Return what must be the same of each part: a name has one content on all replicas."""
    return {
        (p.source_name, p.part.hash_of_all_files, p.part.rows, p.visible_rows, p.part.lacks)
        for p in one.parts
    }


def with_copies(snapshot: Snapshot, found: Sequence[Copied], notes: tuple[str, ...]) -> Snapshot:
    """Return a snapshot with its copies at other servers."""
    partitions = tuple(
        replace(
            one,
            copies=tuple(
                copied.copies[one.partition_id]
                for copied in found
                if one.partition_id in copied.copies
            ),
        )
        for one in snapshot.partitions
    )
    elsewhere = tuple((copied.host, name) for copied in found for name in copied.staging)
    return replace(snapshot, partitions=partitions, elsewhere=elsewhere, notes=notes)


def readers_note(readers: Mapping[str, int], partitions: int) -> str:
    """Return which hosts read slices.

    Args:
        readers: how many partitions each host can read.
        partitions: how many there are.
    """
    hosts = ", ".join(
        host if number == partitions else f"{host} ({number} of {counted(partitions, 'partition')})"
        for host, number in readers.items()
    )
    return f"slices are read at {counted(len(readers), 'replica')}: {hosts}"

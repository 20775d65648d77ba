"""The proof of frozen parts: what a file claims of them, then all that a clone is proved by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.clone import Clone, Refused
from catalog.clickhouse.connection import ClickHouseError, Connection
from catalog.clickhouse.describe import list_parts
from catalog.clickhouse.frozen.claims import Claimed, other_partition_keys, unsorted
from catalog.clickhouse.lacked import with_lacked
from catalog.clickhouse.staging import files_layout
from catalog.clickhouse.verify import prove
from tableformat.errors import SourceError, TableFormatError
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.readability import check_readable
from tableformat.names import PartitionId
from tableformat.source import FrozenPart, Probe, SourceSnapshot

__all__ = ["Asked", "prove_parts"]

_CLAIMS: Final = (other_partition_keys, unsorted)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a snapshot is asked for: partitions, what is refused of them already, what to measure.

    `handle` names the snapshot, if there is one.
    """

    partition_ids: tuple[PartitionId, ...]
    refused: Refused
    probes: tuple[Probe, ...]
    digest: tuple[DigestColumn, ...]
    handle: str


def prove_parts(
    connection: Connection, capabilities: Capabilities, claimed: Claimed, asked: Asked
) -> SourceSnapshot:
    """Prove partitions in the parts that are open; each whole, or refused with its reason.

    Raises:
        RefusedError: it is not known what would be read of such a table.
        SourceError: ClickHouse does not answer any more.
    """
    refused: dict[PartitionId, TableFormatError] = dict(asked.refused)
    table = claimed.table
    check_readable(table)
    for is_false in _CLAIMS:
        rest = tuple(one for one in asked.partition_ids if one not in refused)
        refused |= _refuted(is_false, connection, claimed, rest)
    rest = tuple(one for one in asked.partition_ids if one not in refused)
    listed = list_parts(connection, capabilities, table.name, rest) if rest else ()
    held = with_lacked(connection, table.name, listed)
    # '' as the place: the directory is opened itself, and nothing is made in it.
    parts = {
        one: tuple(FrozenPart(p, p.name, p.rows, "") for p in held if p.partition_id == one)
        for one in rest
    }
    clone = Clone(table.name, table.name, parts)
    proved = prove(connection, capabilities, clone, asked.probes, asked.digest)
    refused |= proved.refused
    return SourceSnapshot(
        table=table,
        layout=files_layout(table, capabilities).over(table, proved.frozen),
        partitions=tuple(sorted(proved.frozen, key=lambda p: p.partition_id)),
        refused=tuple(sorted(refused.items(), key=lambda pair: pair[0])),
        handle=(asked.handle,) if proved.frozen else (),
    )


def _refuted(
    is_false: Callable[[Connection, Claimed, tuple[PartitionId, ...]], Refused],
    connection: Connection,
    claimed: Claimed,
    partition_ids: tuple[PartitionId, ...],
) -> Refused:
    """Try a claim on partitions together; when they cannot be read, each by itself."""
    if not partition_ids:
        return {}
    try:
        return is_false(connection, claimed, partition_ids)
    except ClickHouseError as error:
        if len(partition_ids) == 1:
            (one,) = partition_ids
            message = (
                f"Cannot export partition {one} of {claimed.table.name}: reading its parts "
                f"failed: {error.reason}. Copy the parts again, or correct {claimed.file}."
            )
            return {one: SourceError(message, code=error.code)}
    each = (_refuted(is_false, connection, claimed, (one,)) for one in partition_ids)
    return {one: why for refused in each for one, why in refused.items()}

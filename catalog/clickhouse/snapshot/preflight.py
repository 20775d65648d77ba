"""What forbids to freeze a partition although a clone would succeed: the rows would be wrong.

Unfinished mutations (a clone drops what they still have to do), columns in parts that the table
does not have (a RENAME that a clone loses), broken detached parts (the source itself lost rows).
And columns that parts lack, where tasks that open the parts as files cannot compute them.

Parts on disks whose files no task can open (encrypted ones, caches, object storage) are copied to
the default disk by their ClickHouse. They are refused only where that disk is such a disk, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.capabilities import Capabilities, Offer
from catalog.clickhouse.connection import Connection, flag, text, texts
from catalog.clickhouse.missing_columns import with_missing_columns
from catalog.clickhouse.table_description import active_parts, describe, list_parts, of_table
from catalog.network import some
from tableformat.errors import RefusedError, UnsupportedError
from tableformat.mergetree.missing_columns import definitions, external_reference
from tableformat.names import PartitionId, TableName, quote_identifier, quote_string

__all__ = [
    "COPIES",
    "OWN_COLUMNS",
    "FarPart",
    "far_parts",
    "foreign_columns",
    "grouped",
    "mutation_ids",
    "refuse_foreign_columns",
    "refused_by_source",
    "refused_disks",
]

COPIES: Final = "default"
"""The disk to which parts are copied; every ClickHouse has it."""
OWN_COLUMNS: Final = ("_row_exists", "_block_number", "_block_offset")
"""Columns that parts hold for ClickHouse itself."""
_OF_ITS_OWN: Final = " WHERE origin = 'System'"
"""Every ClickHouse that is opened as files is of this release: it has that column."""
_OLD_NAME: Final = re.compile(r"(\d{6})\d\d_\d{8}_\d+_\d+_\d+")


def mutation_ids(connection: Connection, name: TableName) -> frozenset[str]:
    """Return the mutations of a table, finished ones too.

    Raises:
        SourceError: the source cannot be read.
    """
    return frozenset(
        texts(connection, f"SELECT mutation_id FROM system.mutations WHERE {of_table(name)}")
    )


def refused_by_source(
    connection: Connection,
    capabilities: Capabilities,
    name: TableName,
    partition_ids: Collection[PartitionId],
) -> dict[PartitionId, RefusedError]:
    """Return the partitions that must not be frozen now, each with the reason that comes first.

    Raises:
        SourceError: the source cannot be read.
    """
    mutations = _unfinished_mutations(connection, capabilities, name)
    # The column and the statement came together.
    killable = capabilities.has(Offer.MUTATION_FAILURES)
    foreign = foreign_columns(connection, name, name)
    broken = _broken_parts(connection, capabilities, name)
    computed = _computed_elsewhere(connection, capabilities, name, tuple(partition_ids))
    refused = {}
    for one in partition_ids:
        if error := _refused_by_mutation(name, one, mutations, killable=killable):
            refused[one] = error
        elif str(one) in foreign:
            refused[one] = refuse_foreign_columns(name, one, foreign[str(one)])
        elif str(one) in broken:
            refused[one] = _refuse_broken(name, one, broken[str(one)])
        elif str(one) in computed:
            refused[one] = _refuse_computed(name, one, computed[str(one)])
    return refused


@dataclass(frozen=True, slots=True)
class FarPart:
    """A part on a disk whose files no task can open; `disk` is that disk in words."""

    partition_id: PartitionId
    name: str
    disk: str


def far_parts(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> tuple[FarPart, ...]:
    """Return the active parts with rows on disks whose files no task can open.

    None of a server, which reads its parts itself, whatever disk they are on.

    Raises:
        SourceError: the source cannot be read.
    """
    known = capabilities.has(Offer.DISKS) and capabilities.has(Offer.PART_DISKS)
    if connection.address or not known:
        return ()
    far = _far_disks(connection, capabilities)
    if not far:
        return ()
    found = connection.rows(
        "SELECT partition_id, name, disk_name FROM system.parts"
        f" WHERE {active_parts(name)} AND rows > 0"
        f" AND disk_name IN ({', '.join(map(quote_string, far))}) ORDER BY partition_id, name"
    )
    return tuple(FarPart(PartitionId(text(p)), text(n), far[text(d)]) for p, n, d in found)


def refused_disks(
    connection: Connection,
    capabilities: Capabilities,
    name: TableName,
    partition_ids: Collection[PartitionId],
) -> dict[PartitionId, UnsupportedError]:
    """Return the partitions with parts that can neither be opened nor copied to be opened.

    Raises:
        SourceError: the source cannot be read.
    """
    far = far_parts(connection, capabilities, name)
    default = _far_disks(connection, capabilities).get(COPIES, "") if far else ""
    if not default:
        return {}
    return {
        part.partition_id: _refuse_far(name, part, default)
        for part in reversed(far)
        if part.partition_id in partition_ids
    }


def _refuse_far(name: TableName, part: FarPart, default: str) -> UnsupportedError:
    return UnsupportedError(
        f"Cannot export partition {part.partition_id} of {name}: its part {part.name} is on the "
        f"disk {part.disk}, and ClickHouse cannot copy it to a disk whose files can be opened, "
        f"because its default disk is {default}. Use a plain local disk as the default disk, or "
        "export from a ClickHouse server (--source https://HOST)."
    )


def _far_disks(connection: Connection, capabilities: Capabilities) -> dict[str, str]:
    """Return the disks whose files no task can open, in words, by their names."""
    encrypted = "is_encrypted" if capabilities.has(Offer.DISK_ENCRYPTION) else "0"
    found = connection.rows(f"SELECT name, toString(type), {encrypted} FROM system.disks")
    return {
        text(name): f"{text(name)!r} of type {text(kind)}{', encrypted' * flag(hides)}"
        for name, kind, hides in found
        if text(kind).lower() != "local" or flag(hides)
    }


def foreign_columns(
    connection: Connection, parts_of: TableName, columns_of: TableName
) -> dict[str, tuple[str, ...]]:
    """Return, by partition id, the columns in active parts of one table that another does not have.

    Raises:
        SourceError: the source cannot be read.
    """
    own = ", ".join(quote_string(column) for column in OWN_COLUMNS)
    found = connection.rows(
        f"SELECT DISTINCT partition_id, column FROM system.parts_columns WHERE {of_table(parts_of)}"
        f" AND active AND NOT startsWith(partition_id, 'patch-') AND column NOT IN ({own})"
        f" AND column NOT IN (SELECT name FROM system.columns WHERE {of_table(columns_of)})"
        " ORDER BY partition_id, column"
    )
    return grouped((text(row[0]), text(row[1])) for row in found)


def refuse_foreign_columns(
    name: TableName, partition_id: PartitionId, columns: tuple[str, ...]
) -> RefusedError:
    """Return the refusal of a partition whose parts hold columns that the table does not have."""
    return RefusedError(
        f"Cannot export partition {partition_id} of {name}: its parts hold {some(columns)}, "
        "which the table does not have: an ALTER ... RENAME or DROP COLUMN has not been carried "
        "out on them, and a snapshot would show other values than the table. Wait until the "
        f"mutation is done, or rewrite them with OPTIMIZE TABLE {name.sql} PARTITION ID "
        f"{quote_string(str(partition_id))} FINAL."
    )


def _unfinished_mutations(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> tuple[tuple[str, str, tuple[str, ...], str], ...]:
    """Return id, command, parts to do (none where they are not named) and last failure of each."""
    has_parts = capabilities.has(Offer.MUTATED_PARTS)
    parts = "arrayStringConcat(parts_to_do_names, ' ')" if has_parts else "''"
    failure = "latest_fail_reason" if capabilities.has(Offer.MUTATION_FAILURES) else "''"
    found = connection.rows(
        f"SELECT mutation_id, command, {parts}, {failure}"
        f" FROM system.mutations WHERE {of_table(name)} AND NOT is_done ORDER BY mutation_id"
    )
    return tuple(
        (text(row[0]), _bare(text(row[1])), tuple(text(row[2]).split()), text(row[3]))
        for row in found
    )


def _bare(command: str) -> str:
    """Return a command without the brackets that newer versions put around it."""
    return command[1:-1] if command.startswith("(") and command.endswith(")") else command


def _refused_by_mutation(
    name: TableName,
    partition_id: PartitionId,
    mutations: tuple[tuple[str, str, tuple[str, ...], str], ...],
    *,
    killable: bool,
) -> RefusedError | None:
    for mutation, command, to_do, failure in mutations:
        here = [part for part in to_do if _may_be_of(part, partition_id)]
        # Without a list of parts nobody knows which partitions it has still to change.
        if here or not to_do:
            which = f"{of_table(name)} AND mutation_id = {quote_string(mutation)}"
            failed = f" It failed last with: {failure.partition(chr(10))[0]}." if failure else ""
            return RefusedError(
                f"Cannot export partition {partition_id} of {name}: the mutation {mutation} "
                f"({command}) is not finished; it has still to change "
                f"{some(here) or 'parts that it does not name'}.{failed} Wait until it is "
                f"done{f', or run KILL MUTATION WHERE {which}' if killable else ''}."
            )
    return None


def _may_be_of(part: str, partition_id: PartitionId) -> bool:
    """Whether a part's name may be that of a part of a partition.

    One of the old syntax begins with its first and last day, and the partition is their month.
    """
    day = _OLD_NAME.match(part)
    return part.startswith(f"{partition_id}_") or (day is not None and day[1] == str(partition_id))


def _broken_parts(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> dict[str, tuple[str, ...]]:
    if not capabilities.has(Offer.DETACHED_PARTS):
        return {}
    found = connection.rows(
        "SELECT ifNull(partition_id, ''), name FROM system.detached_parts"
        f" WHERE {of_table(name)} AND startsWith(ifNull(reason, ''), 'broken') ORDER BY name"
    )
    return grouped((text(row[0]), text(row[1])) for row in found)


def _refuse_broken(
    name: TableName, partition_id: PartitionId, parts: tuple[str, ...]
) -> RefusedError:
    return RefusedError(
        f"Cannot export partition {partition_id} of {name}: ClickHouse found broken parts and set "
        f"them aside ({some(parts)}), so the partition lacks their rows. Restore them, or accept "
        f"the loss with ALTER TABLE {name.sql} DROP DETACHED PART {quote_string(parts[0])} "
        "SETTINGS allow_drop_detached = 1."
    )


def _computed_elsewhere(
    connection: Connection,
    capabilities: Capabilities,
    name: TableName,
    partition_ids: tuple[PartitionId, ...],
) -> dict[str, tuple[str, str, str]]:
    """Return, by partition id, a column that parts lack and that only their ClickHouse computes.

    With the part and the reason. A server computes what the parts of its own lack.
    """
    if capabilities.address or not partition_ids:
        return {}
    parts = with_missing_columns(
        connection, name, list_parts(connection, capabilities, name, partition_ids)
    )
    if not any(part.lacks for part in parts):
        return {}
    columns = describe(connection, capabilities, name).columns
    functions = f"SELECT lower(name) FROM system.functions{_OF_ITS_OWN}"
    known = frozenset(texts(connection, functions))
    found: dict[str, tuple[str, str, str]] = {}
    for part in parts:
        for column in part.lacks:
            why = next(
                (
                    f"{one.name} {one.default_kind} {one.default_expression} takes {taken}"
                    for one in definitions(columns, (column,))
                    if (taken := external_reference(one.default_expression, known))
                ),
                "",
            )
            if why:
                found.setdefault(str(part.partition_id), (part.name, column, why))
    return found


def _refuse_computed(
    name: TableName, partition_id: PartitionId, found: tuple[str, str, str]
) -> RefusedError:
    part, column, why = found
    return RefusedError(
        f"Cannot export partition {partition_id} of {name}: its part {part} lacks the column "
        f"{column}, and {why}, which is not there for tasks that read the files of the part. Write "
        f"the values into the parts: ALTER TABLE {name.sql} MATERIALIZE COLUMN "
        f"{quote_identifier(column)} IN PARTITION ID {quote_string(str(partition_id))} SETTINGS "
        "mutations_sync = 2."
    )


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return the values of each key, in their order."""
    grouped: dict[str, tuple[str, ...]] = {}
    for key, value in pairs:
        grouped[key] = (*grouped.get(key, ()), value)
    return grouped

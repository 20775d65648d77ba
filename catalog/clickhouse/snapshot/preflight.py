"""Finds partitions whose clone would succeed but have wrong rows, and refuses them.

- Unfinished mutations: a clone loses what is left to do.
- Columns in parts that the table does not have: a RENAME that a clone loses.
- Broken detached parts: the source itself lost rows.
- Lightweight updates that are not written into the parts: ClickHouse refuses the clone.
- Columns that parts lack and that tasks, which open the parts as files, cannot compute, or only in
  a time zone that nobody has named.

Parts on disks whose files no task can open (encrypted disks, caches, object storage) are copied to
the default disk by their ClickHouse. They are refused only if the default disk is such a disk, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.capabilities import Capabilities, Offer
from catalog.clickhouse.connection import Connection, flag, text, texts
from catalog.clickhouse.table_description import (
    active_parts,
    describe,
    list_parts,
    of_table,
    with_missing_columns,
)
from catalog.network import some
from tableformat.clickhouse_codes import SUPPORT_IS_DISABLED
from tableformat.errors import RefusedError, Unable, UnsupportedError
from tableformat.mergetree.missing_columns import (
    definitions,
    depends_on_zone,
    external_reference,
)
from tableformat.mergetree.table import Column
from tableformat.messages import Option
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
    "refuse_patched",
    "refused_by_source",
    "refused_disks",
]

COPIES: Final = "default"
"""The disk to which parts are copied; every ClickHouse has it."""
OWN_COLUMNS: Final = ("_row_exists", "_block_number", "_block_offset")
"""ClickHouse's internal columns in parts."""
_OF_ITS_OWN: Final = " WHERE origin = 'System'"
"""Selects built-in functions.

`origin` exists in the release of the embedded ClickHouse, the only one that opens parts as files.
"""
_OLD_NAME: Final = re.compile(r"(\d{6})\d\d_\d{8}_\d+_\d+_\d+")


def mutation_ids(connection: Connection, name: TableName) -> frozenset[str]:
    """Return the mutations of a table, including finished ones.

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
    """Return the partitions that allow no correct snapshot now, each with its first reason.

    Raises:
        SourceError: the source cannot be read.
    """
    mutations = _unfinished_mutations(connection, capabilities, name)
    # The column `latest_fail_reason` and KILL MUTATION appeared in the same version.
    killable = capabilities.has(Offer.MUTATION_FAILURES)
    foreign = foreign_columns(connection, name, name)
    broken = _broken_parts(connection, capabilities, name)
    computed = _computed_elsewhere(connection, capabilities, name, tuple(partition_ids))
    patched = _patched(connection, capabilities, name)
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
        elif str(one) in patched:
            refused[one] = refuse_patched(name, one)
    return refused


@dataclass(frozen=True, slots=True)
class FarPart:
    """A part on a disk whose files no task can open; `disk` describes the disk for messages."""

    partition_id: PartitionId
    name: str
    disk: str


def far_parts(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> tuple[FarPart, ...]:
    """Return the active parts with rows on disks whose files no task can open.

    A server has none, because it reads its parts itself on any disk.

    Raises:
        SourceError: the source cannot be read.
    """
    shows_disks = capabilities.has(Offer.DISKS) and capabilities.has(Offer.PART_DISKS)
    if connection.address or not shows_disks:
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
    """Return the partitions with parts that tasks cannot open and ClickHouse cannot copy.

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
        Unable.of(
            f"partition {part.partition_id} of {name}",
            f"its part {part.name} is on the disk {part.disk}, and ClickHouse cannot copy it to a "
            f"disk whose files can be opened, because its default disk is {default}. Use a plain "
            f"local disk as the default disk, or export from a ClickHouse server ({Option.SOURCE} "
            "https://HOST).",
        )
    )


def _far_disks(connection: Connection, capabilities: Capabilities) -> dict[str, str]:
    """Return the disks whose files no task can open: their descriptions by name."""
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
    """Return, by partition id, columns in active parts of a table that `columns_of` does not have.

    Raises:
        SourceError: the source cannot be read.
    """
    internal = ", ".join(quote_string(column) for column in OWN_COLUMNS)
    found = connection.rows(
        f"SELECT DISTINCT partition_id, column FROM system.parts_columns WHERE {of_table(parts_of)}"
        f" AND active AND NOT startsWith(partition_id, 'patch-') AND column NOT IN ({internal})"
        f" AND column NOT IN (SELECT name FROM system.columns WHERE {of_table(columns_of)})"
        " ORDER BY partition_id, column"
    )
    return grouped((text(row[0]), text(row[1])) for row in found)


def refuse_foreign_columns(
    name: TableName, partition_id: PartitionId, columns: tuple[str, ...]
) -> RefusedError:
    """Return the refusal of a partition whose parts have columns that the table does not have."""
    return RefusedError(
        Unable.of(
            f"partition {partition_id} of {name}",
            f"its parts hold {some(columns)}, which the table does not have: an ALTER ... RENAME "
            "or DROP COLUMN has not been carried out on them, and a snapshot would show other "
            "values than the table. Wait until the mutation is done, or rewrite them with "
            f"OPTIMIZE TABLE {name.sql} PARTITION ID {quote_string(str(partition_id))} FINAL.",
        )
    )


def _unfinished_mutations(
    connection: Connection, capabilities: Capabilities, name: TableName
) -> tuple[tuple[str, str, tuple[str, ...], str], ...]:
    """Return id, command, parts to do (if known) and last failure of each unfinished mutation."""
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
    """Return a command without the parentheses that newer versions put around it."""
    return command[1:-1] if command.startswith("(") and command.endswith(")") else command


def _refused_by_mutation(
    name: TableName,
    partition_id: PartitionId,
    mutations: tuple[tuple[str, str, tuple[str, ...], str], ...],
    *,
    killable: bool,
) -> RefusedError | None:
    for mutation, command, to_do, failure in mutations:
        of_partition = [part for part in to_do if _may_be_of(part, partition_id)]
        # Without a list of parts, the mutation may still change any partition.
        if of_partition or not to_do:
            which = f"{of_table(name)} AND mutation_id = {quote_string(mutation)}"
            failed = f" It failed last with: {failure.partition(chr(10))[0]}." if failure else ""
            return RefusedError(
                Unable.of(
                    f"partition {partition_id} of {name}",
                    f"the mutation {mutation} ({command}) is not finished; it has still to change "
                    f"{some(of_partition) or 'parts that it does not name'}.{failed} Wait until it "
                    f"is done{f', or run KILL MUTATION WHERE {which}' if killable else ''}.",
                )
            )
    return None


def _may_be_of(part: str, partition_id: PartitionId) -> bool:
    """Whether a name may be that of a part of a partition.

    In the old syntax it begins with the first and last day of the part, and the partition is a
    month.
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
        Unable.of(
            f"partition {partition_id} of {name}",
            f"ClickHouse detached broken parts ({some(parts)}), so the partition lacks their rows. "
            f"Restore them, or accept the loss with ALTER TABLE {name.sql} DROP DETACHED PART "
            f"{quote_string(parts[0])} SETTINGS allow_drop_detached = 1.",
        )
    )


def _computed_elsewhere(
    connection: Connection,
    capabilities: Capabilities,
    name: TableName,
    partition_ids: tuple[PartitionId, ...],
) -> dict[str, tuple[str, str, str]]:
    """Return, by partition id, a column that parts lack and that only their ClickHouse can compute.

    The value is the part, the column and the reason with its remedy. A server has none, because it
    computes missing columns itself.
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
    built_in = frozenset(texts(connection, functions))
    found: dict[str, tuple[str, str, str]] = {}
    for part in parts:
        for column in part.lacks:
            needed = definitions(columns, (column,))
            why = next(
                (
                    f"{_shown(one)} takes {reference}, which tasks that read the files of the part "
                    f"do not have. {_materialize(name, part.partition_id, column)}"
                    for one in needed
                    if (reference := external_reference(one.default_expression, built_in))
                ),
                "",
            )
            zoned = (one for one in needed if depends_on_zone(columns, one))
            if not why and capabilities.assumes_zone and (one := next(zoned, None)) is not None:
                why = (
                    f"{_shown(one)} depends on the time zone of the server that wrote the part, "
                    "which the address of the source does not name. Add zone=ZONE to the address, "
                    "with the result of SELECT timezone() on that server."
                )
            if why:
                found.setdefault(str(part.partition_id), (part.name, column, why))
    return found


def _refuse_computed(
    name: TableName, partition_id: PartitionId, found: tuple[str, str, str]
) -> RefusedError:
    part, column, why = found
    return RefusedError(
        Unable.of(
            f"partition {partition_id} of {name}",
            f"its part {part} lacks the column {column}, and {why}",
        )
    )


def _shown(column: Column) -> str:
    return f"{column.name} {column.default_kind} {column.default_expression}"


def _materialize(name: TableName, partition_id: PartitionId, column: str) -> str:
    return (
        f"Write the values into the parts: ALTER TABLE {name.sql} MATERIALIZE COLUMN "
        f"{quote_identifier(column)} IN PARTITION ID {quote_string(str(partition_id))} SETTINGS "
        "mutations_sync = 2."
    )


def _patched(connection: Connection, capabilities: Capabilities, name: TableName) -> frozenset[str]:
    """Return the ids of the partitions with lightweight updates that are not in their parts."""
    patches = texts(
        connection,
        f"SELECT name FROM system.parts WHERE active AND {of_table(name)}"
        " AND startsWith(partition_id, 'patch-') LIMIT 1",
    )
    if not patches:
        return frozenset()
    parts = list_parts(connection, capabilities, name)
    return frozenset(str(part.partition_id) for part in parts if part.patches)


def refuse_patched(name: TableName, partition_id: PartitionId) -> RefusedError:
    """Return the refusal of a partition with pending lightweight updates (code 344)."""
    message = Unable.of(
        f"partition {partition_id} of {name}",
        "lightweight updates have not been written into its parts yet, and a snapshot "
        f"would lose them. Run ALTER TABLE {name.sql} APPLY PATCHES IN PARTITION "
        f"ID {quote_string(str(partition_id))} SETTINGS mutations_sync = 2.",
    )
    return RefusedError(message, code=SUPPORT_IS_DISABLED)


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return the values of each key, in order."""
    grouped: dict[str, tuple[str, ...]] = {}
    for key, value in pairs:
        grouped[key] = (*grouped.get(key, ()), value)
    return grouped

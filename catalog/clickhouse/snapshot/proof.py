"""Proves a clone before it is read: checks each part, counts its rows, and measures probes.

All queries read the staging table, which nothing changes any more, for all its partitions at once.
A partition that fails is refused without the others.

- `damaged` finds damaged parts by CHECK TABLE, the only check that detects every kind of damage. A
  damaged part may be absent from its result, so the result must name exactly the expected parts.
- Old versions have no CHECK TABLE for MergeTree (code 48) or for one partition (code 62). There the
  proof reads every stored value, which verifies the checksum of each compressed block, and counts
  the rows of each part. It does not see damaged marks and indices, which a full scan hardly uses.
- `prove` also refuses columns that an unknown RENAME left in the parts, and parts that were moved
  to a disk whose files no task can open. It then counts the visible rows, measures the probes and
  computes the digest (docs/spec/digest.md). A row policy on the staging database would hide rows
  like a lightweight delete, so parts with such deletes are also counted without applying them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from catalog.clickhouse.capabilities import Capabilities, Offer
from catalog.clickhouse.connection import (
    ClickHouseError,
    Connection,
    advice,
    flag,
    text,
    texts,
    whole,
)
from catalog.clickhouse.rows.digests import digest_partitions
from catalog.clickhouse.server.embedded_query import computed_rows
from catalog.clickhouse.snapshot.comparison import Clone, Refused
from catalog.clickhouse.snapshot.preflight import (
    far_parts,
    foreign_columns,
    grouped,
    refuse_foreign_columns,
)
from catalog.clickhouse.table_description import of_table
from catalog.network import some
from tableformat.clickhouse_codes import (
    NOT_IMPLEMENTED,
    SYNTAX_ERROR,
    TOO_BIG_AST,
    UNKNOWN_IDENTIFIER,
)
from tableformat.digest import Digest
from tableformat.errors import SourceError, TableFormatError, Unable
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.table import Part
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName, quote_identifier, quote_string
from tableformat.source import FrozenPart, FrozenPartition, Probe, ProbedValue

__all__ = ["NO_CHECK_TABLE", "Proved", "damaged", "probed_in", "prove"]

NO_CHECK_TABLE: Final = (NOT_IMPLEMENTED, SYNTAX_ERROR)
"""Error codes of versions without this form of CHECK TABLE."""
_CHECK: Final = "CHECK TABLE"
_READING: Final = "reading every value"
_REPAIR: Final = "Repair the part from a replica or a backup, or detach it, and run again."


@dataclass(frozen=True, slots=True)
class _CheckResult:
    """The result of a check: its method, and for each part whether it passed and the finding."""

    how: str
    parts: Mapping[str, tuple[bool, str]]


def damaged(
    connection: Connection,
    capabilities: Capabilities,
    clone: Clone,
    partition_ids: tuple[PartitionId, ...],
) -> Refused:
    """Return the partitions with damaged parts: checks all together, or each if that fails.

    Raises:
        SourceError: ClickHouse no longer responds.
    """
    if not partition_ids:
        return {}
    alone = partition_ids[0] if len(partition_ids) == 1 else None
    how = _CHECK
    try:
        result = _checked(connection, capabilities, clone, partition_ids)
        if result is None:
            how = _READING
            result = _read(connection, clone, partition_ids)
        names = _active_parts(connection, clone.staging)
    except ClickHouseError as error:
        if alone is None:
            each = (damaged(connection, capabilities, clone, (one,)) for one in partition_ids)
            return {one: why for refused in each for one, why in refused.items()}
        remedy = advice(error.code, error.reason) or _REPAIR
        return {
            alone: _refuse(clone, alone, f"{how} fails: {_without_place(error.reason)}", remedy)
        }
    refused: dict[PartitionId, TableFormatError] = {}
    for one in partition_ids:
        if damage := _damage(clone.parts[one], names.get(str(one), ()), result):
            refused[one] = _refuse(clone, one, damage)
    if unknown := sorted(set(result.parts) - {name for found in names.values() for name in found}):
        for one in partition_ids:
            what = f"{result.how} looked at {some(unknown)}, which is no part of the snapshot"
            refused.setdefault(one, _refuse(clone, one, what))
    return refused


def _checked(
    connection: Connection,
    capabilities: Capabilities,
    clone: Clone,
    partition_ids: tuple[PartitionId, ...],
) -> _CheckResult | None:
    """Return the result of CHECK TABLE; None if the version does not have it."""
    alone = len(partition_ids) == 1
    partition = f" PARTITION ID {quote_string(str(partition_ids[0]))}" if alone else ""
    names_parts = capabilities.has(Offer.CHECK_BY_PART)
    by_part = " SETTINGS check_query_single_value_result = 0" if names_parts else ""
    try:
        rows = connection.rows(f"{_CHECK} {clone.staging.sql}{partition}{by_part}")
    except ClickHouseError as error:
        if error.code in NO_CHECK_TABLE:
            return None
        raise
    return _CheckResult(_CHECK, {text(row[0]): (flag(row[1]), text(row[2])) for row in rows})


def _read(
    connection: Connection, clone: Clone, partition_ids: tuple[PartitionId, ...]
) -> _CheckResult:
    """Read every stored value; a part passes if it returns all its rows."""
    columns = texts(
        connection,
        f"SELECT name FROM system.columns WHERE {of_table(clone.staging)}"
        " AND toString(default_kind) NOT IN ('ALIAS', 'EPHEMERAL')",
    )
    values = ", ".join(f"{SOURCE_ALIAS}.{quote_identifier(column)}" for column in columns)
    found = connection.rows(
        f"SELECT {SOURCE_ALIAS}._part AS mergeberg_part, count()"
        f" FROM {clone.staging.sql} AS {SOURCE_ALIAS}"
        f" WHERE {clone.within(partition_ids)} AND NOT ignore({values}) GROUP BY mergeberg_part"
    )
    rows = {text(row[0]): whole(row[1]) for row in found}
    expected = {p.part.name: p.part.rows for one in partition_ids for p in clone.parts[one]}
    return _CheckResult(
        _READING,
        {
            name: (given == expected.get(name, given), f"it gives {given} rows")
            for name, given in rows.items()
        },
    )


def _active_parts(connection: Connection, staging: TableName) -> dict[str, tuple[str, ...]]:
    """Return the names of the active parts by partition id, including parts without rows."""
    found = connection.rows(
        f"SELECT partition_id, name FROM system.parts WHERE active AND {of_table(staging)}"
        " ORDER BY name"
    )
    return grouped((text(row[0]), text(row[1])) for row in found)


def _damage(parts: tuple[FrozenPart, ...], expected: tuple[str, ...], result: _CheckResult) -> str:
    """Return the damage in a partition, '' if every part passed."""
    checked = result.parts
    source_names = {part.part.name: part.source_name for part in parts}
    broken = [
        f"part {source_names.get(name, name)} ({_without_advice(checked[name][1])})"
        for name in expected
        if name in checked and not checked[name][0]
    ]
    if broken:
        return f"{result.how} finds damage in {some(broken)}"
    unchecked = [source_names.get(name, name) for name in expected if name not in checked]
    unchecked += [name for frozen, name in source_names.items() if frozen not in expected]
    return f"{result.how} did not look at {some(unchecked)}" if unchecked else ""


def _without_advice(finding: str) -> str:
    """Return the finding of a part without ClickHouse's advice on memory and network cards."""
    return ClickHouseError(finding).reason.partition(" This is most likely")[0].rstrip(".")


def _without_place(reason: str) -> str:
    """Return a reading error's reason without the staging table's directory."""
    return reason.partition(": (while reading")[0].rstrip(".")


def _refuse(clone: Clone, one: PartitionId, damage: str, remedy: str = _REPAIR) -> SourceError:
    return SourceError(Unable.of(f"partition {one} of {clone.source}", f"{damage}. {remedy}"))


_OF_THE_QUERY: Final = (SYNTAX_ERROR, TOO_BIG_AST, UNKNOWN_IDENTIFIER)
"""Errors of the query itself, not of a value that it reads."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The proved partitions of a clone, and the refused ones."""

    partitions: tuple[FrozenPartition, ...]
    refused: Refused


def prove(
    connection: Connection,
    capabilities: Capabilities,
    clone: Clone,
    probes: tuple[Probe, ...],
    digest: tuple[DigestColumn, ...] = (),
) -> Proved:
    """Prove each partition of a clone, or refuse it with its reason.

    Raises:
        SourceError: ClickHouse no longer responds.
    """
    refused: dict[PartitionId, TableFormatError] = {
        **_foreign(connection, clone),
        **_unreadable_disks(connection, capabilities, clone),
    }
    for one, error in damaged(connection, capabilities, clone, _without(clone, refused)).items():
        refused.setdefault(one, error)
    measured = _measured(connection, capabilities, clone, _without(clone, refused), probes)
    refused.update(measured.refused)
    ids = tuple(partition.partition_id for partition in measured.partitions)
    digests = _digests(connection, capabilities, clone.staging, ids, digest)
    return Proved(
        tuple(replace(p, digest=digests.get(str(p.partition_id))) for p in measured.partitions),
        refused,
    )


def _without(clone: Clone, refused: Refused) -> tuple[PartitionId, ...]:
    return tuple(one for one in clone.parts if one not in refused)


def _foreign(connection: Connection, clone: Clone) -> Refused:
    """Refuse parts with columns that a RENAME left behind, which the clone does not know."""
    found = foreign_columns(connection, clone.staging, clone.staging)
    return {
        one: refuse_foreign_columns(clone.source, one, found[str(one)])
        for one in clone.parts
        if str(one) in found
    }


def _unreadable_disks(connection: Connection, capabilities: Capabilities, clone: Clone) -> Refused:
    """Refuse parts that were moved to a disk that no task can open, after the parts were listed."""
    far = {part.name: part.disk for part in far_parts(connection, capabilities, clone.staging)}
    refused: dict[PartitionId, TableFormatError] = {}
    for one, parts in clone.parts.items():
        # A part at another place is not opened from its disk.
        moved = (part for part in parts if part.place == part.part.disk and part.part.name in far)
        if part := next(moved, None):
            refused[one] = SourceError(
                Unable.of(
                    f"partition {one} of {clone.source}",
                    f"its part {part.source_name} was moved to the disk {far[part.part.name]} "
                    "while the snapshot was taken. Run it again.",
                )
            )
    return refused


def _measured(
    connection: Connection,
    capabilities: Capabilities,
    clone: Clone,
    partition_ids: tuple[PartitionId, ...],
    probes: tuple[Probe, ...],
) -> Proved:
    """Count and probe partitions together, or each if that fails."""
    if not partition_ids:
        return Proved((), {})
    try:
        where = clone.within(partition_ids)
        visible = _visible_rows(connection, clone.staging, where)
        stored = _stored_rows(connection, clone, partition_ids, visible)
        probed = probed_in(connection, capabilities, clone.staging, where, probes)
    except ClickHouseError as error:
        if len(partition_ids) == 1:
            return Proved((), {partition_ids[0]: _read_error(clone, partition_ids[0], error)})
        each = [_measured(connection, capabilities, clone, (one,), probes) for one in partition_ids]
        return Proved(
            tuple(partition for proved in each for partition in proved.partitions),
            {one: error for proved in each for one, error in proved.refused.items()},
        )
    refused = {
        one: _hidden_rows(clone, one, hiding[0], stored)
        for one in partition_ids
        if (hiding := [p.part for p in clone.parts[one] if _hides(p.part, stored, visible)])
    }
    nothing = tuple(ProbedValue(None, None, 0) for _ in probes)
    partitions = tuple(
        FrozenPartition(
            one,
            tuple(
                replace(part, visible_rows=visible.get(part.part.name, 0))
                for part in clone.parts[one]
            ),
            probed.get(str(one), nothing),
        )
        for one in partition_ids
        if one not in refused
    )
    return Proved(partitions, refused)


def _digests(
    connection: Connection,
    capabilities: Capabilities,
    staging: TableName,
    partition_ids: tuple[PartitionId, ...],
    columns: tuple[DigestColumn, ...],
) -> dict[str, Digest]:
    """Digest partitions together, or each if that fails.

    A partition with a value that cannot be exported gets no digest. The task that writes it reports
    the column.
    """
    if not columns or not partition_ids:
        return {}
    try:
        return digest_partitions(connection, capabilities, staging, partition_ids, columns)
    except ClickHouseError as error:
        if error.code in _OF_THE_QUERY:
            raise
        if len(partition_ids) == 1:
            return {}
    each = [_digests(connection, capabilities, staging, (one,), columns) for one in partition_ids]
    return {one: digest for digests in each for one, digest in digests.items()}


def _visible_rows(
    connection: Connection, staging: TableName, where: str, settings: str = ""
) -> dict[str, int]:
    """Return the number of rows that a SELECT returns, by part: without lightweight deletes."""
    found = connection.rows(
        f"SELECT {SOURCE_ALIAS}._part, count() FROM {staging.sql} AS {SOURCE_ALIAS}"
        f" WHERE {where} GROUP BY {SOURCE_ALIAS}._part{settings}"
    )
    return {text(row[0]): whole(row[1]) for row in found}


def _stored_rows(
    connection: Connection,
    clone: Clone,
    partition_ids: tuple[PartitionId, ...],
    visible: dict[str, int],
) -> dict[str, int]:
    """Return the number of rows that a SELECT returns, by part: with lightweight deletes.

    Only parts with lightweight deletes are counted again. ClickHouse lists these deletes since the
    version that can read the deleted rows.
    """
    deleted = tuple(
        one for one in partition_ids if any(p.part.has_lightweight_delete for p in clone.parts[one])
    )
    if not deleted:
        return visible
    settings = " SETTINGS apply_deleted_mask = 0"
    found = _visible_rows(connection, clone.staging, clone.within(deleted), settings)
    return visible | found


def _hides(part: Part, stored: dict[str, int], visible: dict[str, int]) -> bool:
    """Whether a SELECT returns other rows of a part than it has, but for lightweight deletes."""
    rows = visible.get(part.name, 0)
    is_whole = rows == part.rows or (part.has_lightweight_delete and rows < part.rows)
    return not is_whole or stored.get(part.name, 0) != part.rows


def _hidden_rows(
    clone: Clone, one: PartitionId, part: Part, stored: dict[str, int]
) -> TableFormatError:
    return SourceError(
        Unable.of(
            f"partition {one} of {clone.source}",
            f"its part {part.name} holds {part.rows} rows and shows {stored.get(part.name, 0)}. A "
            "row policy or a setting of the user hides rows from the exporter; use another user.",
        )
    )


def probed_in(
    connection: Connection,
    capabilities: Capabilities,
    table: TableName,
    where: str,
    probes: tuple[Probe, ...],
) -> dict[str, tuple[ProbedValue, ...]]:
    """Return the minimum, maximum and number of NULLs of each probe, by partition id.

    A partition without visible rows is absent.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: the table, or a clone of it.
        where: a condition on its rows.
        probes: the expressions to measure.

    Raises:
        ClickHouseError: the rows cannot be read.
        SourceError: ClickHouse no longer responds.
    """
    if not probes:
        return {}
    query = partial(_probe_sql, probes)
    rows = computed_rows(
        connection, capabilities, table, where, "", query, lambda row: whole(row[-1])
    )
    return {text(row[0]): _probed_values(row[1:-1]) for row in rows}


def _probe_sql(probes: tuple[Probe, ...], shown: str) -> str:
    inner = ", ".join(f"({probe.sql}) AS {_alias('p', i)}" for i, probe in enumerate(probes))
    folded = ", ".join(
        f"min({p}) AS {_alias('low', i)}, max({p}) AS {_alias('high', i)},"
        f" countIf(isNull({p})) AS {_alias('nulls', i)}"
        for i, p in enumerate(_alias("p", i) for i in range(len(probes)))
    )
    texts = ", ".join(
        f"{_text_of(probe, _alias('low', i))}, {_text_of(probe, _alias('high', i))},"
        f" {_alias('nulls', i)}"
        for i, probe in enumerate(probes)
    )
    return (
        f"SELECT mergeberg_partition, {texts}, mergeberg_rows FROM"
        f" (SELECT mergeberg_partition, {folded}, count() AS mergeberg_rows FROM"
        f" (SELECT {SOURCE_ALIAS}._partition_id AS mergeberg_partition, {inner} FROM {shown})"
        " GROUP BY mergeberg_partition)"
    )


def _probed_values(values: tuple[object, ...]) -> tuple[ProbedValue, ...]:
    return tuple(
        ProbedValue(_text_or_none(values[i]), _text_or_none(values[i + 1]), whole(values[i + 2]))
        for i in range(0, len(values), 3)
    )


def _alias(what: str, number: int) -> str:
    return quote_identifier(f"mergeberg_{what}_{number}")


def _text_of(probe: Probe, value: str) -> str:
    # A lambda, so that the value is called `v` whatever the columns are.
    return f"arrayMap(v -> {probe.text_sql}, [{value}])[1]"


def _text_or_none(value: object) -> str | None:
    return None if value is None else text(value)


def _read_error(clone: Clone, one: PartitionId, error: ClickHouseError) -> SourceError:
    remedy = advice(error.code, error.reason) or "Check the table with CHECK TABLE and run again."
    message = Unable.of(
        f"partition {one} of {clone.source}",
        f"reading its snapshot failed: {error.reason}. {remedy}",
    )
    return SourceError(message, code=error.code)

"""The proof of a clone: every part checked, every row counted, every probe measured.

`CHECK TABLE` is the only thing that sees each kind of damage; a plain SELECT lets some through,
and damaged parts may vanish from its answer (source.md section 4), so the answer must name exactly
the expected parts. All questions are asked of the staging table, which nothing changes any more,
for all of its partitions at once; a partition that fails is refused by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from catalog.clickhouse.connection import ClickHouseError, Connection, flag, text, whole
from catalog.clickhouse.describe import of_table
from catalog.clickhouse.digests import digest_partitions
from catalog.clickhouse.preflight import (
    foreign_columns,
    grouped,
    refuse_foreign_columns,
)
from tableformat.digest import Digest
from tableformat.errors import SourceError, TableFormatError, UnsupportedError
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.parts import Part
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName, quote_identifier, quote_string
from tableformat.source import FrozenPart, FrozenPartition, Probe, ProbedValue

__all__ = ["Clone", "Proved", "probed_in", "prove"]

_SHOWN: Final = 3

Refused = Mapping[PartitionId, TableFormatError]


@dataclass(frozen=True, slots=True)
class Clone:
    """A filled staging table: whose it is, and the parts of its partitions, not yet counted."""

    source: TableName
    staging: TableName
    parts: Mapping[PartitionId, tuple[FrozenPart, ...]]


@dataclass(frozen=True, slots=True)
class Proved:
    """What the proof left of a clone."""

    frozen: tuple[FrozenPartition, ...]
    refused: Refused


def prove(
    connection: Connection,
    clone: Clone,
    probes: tuple[Probe, ...],
    digest: tuple[DigestColumn, ...] = (),
) -> Proved:
    """Prove each partition of a clone, or refuse it with its reason.

    Raises:
        SourceError: ClickHouse does not answer any more.
    """
    refused: dict[PartitionId, TableFormatError] = {
        **_foreign(connection, clone),
        **_unreadable_disks(connection, clone),
    }
    for one, error in _damaged(connection, clone, _without(clone, refused)).items():
        refused.setdefault(one, error)
    frozen = _measured(connection, clone, _without(clone, refused), probes)
    refused.update(frozen.refused)
    ids = tuple(partition.partition_id for partition in frozen.frozen)
    digests = _digests(connection, clone.staging, ids, digest)
    return Proved(
        tuple(replace(p, digest=digests.get(str(p.partition_id))) for p in frozen.frozen), refused
    )


def _without(clone: Clone, refused: Refused) -> tuple[PartitionId, ...]:
    return tuple(one for one in clone.parts if one not in refused)


def _foreign(connection: Connection, clone: Clone) -> Refused:
    """Refuse what a RENAME that the clone does not know left behind."""
    found = foreign_columns(connection, clone.staging, clone.staging)
    return {
        one: refuse_foreign_columns(clone.source, one, found[str(one)])
        for one in clone.parts
        if str(one) in found
    }


def _unreadable_disks(connection: Connection, clone: Clone) -> Refused:
    """Refuse parts that a task cannot open as plain files."""
    found = connection.rows("SELECT path, name, toString(type), is_encrypted FROM system.disks")
    kinds = {text(row[0]): (text(row[1]), text(row[2]), flag(row[3])) for row in found}
    refused: dict[PartitionId, TableFormatError] = {}
    for one, parts in clone.parts.items():
        for part in parts:
            if part.place == clone.staging.sql:
                # Its server reads it, whatever it lies on.
                continue
            name, kind, encrypted = kinds[part.part.disk]
            if kind.lower() != "local" or encrypted:
                message = (
                    f"Cannot export partition {one} of {clone.source}: its part {part.source_name} "
                    f"lies on the disk {name!r} of type {kind}{', encrypted' * encrypted}, whose "
                    "files cannot be opened as they are. Move the partition to a plain local disk "
                    "(ALTER TABLE ... MOVE PARTITION ... TO DISK ...)."
                )
                refused[one] = UnsupportedError(message)
                break
    return refused


def _damaged(
    connection: Connection, clone: Clone, partition_ids: tuple[PartitionId, ...]
) -> Refused:
    """Check every file against its checksums, all partitions at once; if that fails, each alone."""
    if not partition_ids:
        return {}
    alone = partition_ids[0] if len(partition_ids) == 1 else None
    try:
        answers = _check_table(connection, clone.staging, alone)
        names = _active_parts(connection, clone.staging)
    except ClickHouseError as error:
        if alone is None:
            each = (_damaged(connection, clone, (one,)) for one in partition_ids)
            return {one: why for refused in each for one, why in refused.items()}
        return {alone: _refuse_damaged(clone, alone, f"CHECK TABLE fails: {error.reason}")}
    refused: dict[PartitionId, TableFormatError] = {}
    for one in partition_ids:
        if damage := _damage(clone.parts[one], names.get(str(one), ()), answers):
            refused[one] = _refuse_damaged(clone, one, damage)
    if unknown := sorted(set(answers) - {name for found in names.values() for name in found}):
        for one in partition_ids:
            what = f"CHECK TABLE looked at {_some(unknown)}, which is no part of the snapshot"
            refused.setdefault(one, _refuse_damaged(clone, one, what))
    return refused


def _check_table(
    connection: Connection, staging: TableName, one: PartitionId | None
) -> dict[str, tuple[bool, str]]:
    """Return, by part name, whether it passed and what is said against it."""
    partition = "" if one is None else f" PARTITION ID {quote_string(str(one))}"
    answers = connection.rows(
        f"CHECK TABLE {staging.sql}{partition} SETTINGS check_query_single_value_result = 0"
    )
    return {text(row[0]): (flag(row[1]), text(row[2])) for row in answers}


def _active_parts(connection: Connection, staging: TableName) -> dict[str, tuple[str, ...]]:
    """Return the names of the active parts, without rows too, by partition id."""
    found = connection.rows(
        f"SELECT partition_id, name FROM system.parts WHERE active AND {of_table(staging)}"
        " ORDER BY name"
    )
    return grouped((text(row[0]), text(row[1])) for row in found)


def _damage(
    parts: tuple[FrozenPart, ...],
    expected: tuple[str, ...],
    answers: Mapping[str, tuple[bool, str]],
) -> str:
    """Return what CHECK TABLE says against a partition, '' when every part of it passed."""
    source_names = {part.part.name: part.source_name for part in parts}
    damaged = [
        f"part {source_names.get(name, name)} ({_without_advice(answers[name][1])})"
        for name in expected
        if name in answers and not answers[name][0]
    ]
    if damaged:
        return f"CHECK TABLE finds damage in {_some(damaged)}"
    unseen = [source_names.get(name, name) for name in expected if name not in answers]
    unseen += [name for frozen, name in source_names.items() if frozen not in expected]
    return f"CHECK TABLE did not look at {_some(unseen)}" if unseen else ""


def _without_advice(answer: str) -> str:
    """Return what is wrong with a part, without ClickHouse's page on memory and network cards."""
    return ClickHouseError(answer).reason.partition(" This is most likely")[0].rstrip(".")


def _refuse_damaged(clone: Clone, one: PartitionId, damage: str) -> SourceError:
    return SourceError(
        f"Cannot export partition {one} of {clone.source}: {damage}. Repair the part from a "
        "replica or a backup, or detach it, and run again."
    )


def _measured(
    connection: Connection,
    clone: Clone,
    partition_ids: tuple[PartitionId, ...],
    probes: tuple[Probe, ...],
) -> Proved:
    """Count and probe partitions together; when that fails, each by itself."""
    if not partition_ids:
        return Proved((), {})
    try:
        visible = _visible_rows(connection, clone.staging, partition_ids)
        probed = probed_in(connection, clone.staging, partition_ids, probes)
    except ClickHouseError as error:
        if len(partition_ids) == 1:
            return Proved((), {partition_ids[0]: _read_error(clone, partition_ids[0], error)})
        each = [_measured(connection, clone, (one,), probes) for one in partition_ids]
        return Proved(
            tuple(partition for proved in each for partition in proved.frozen),
            {one: error for proved in each for one, error in proved.refused.items()},
        )
    refused = {
        one: _hidden_rows(clone, one, hiding[0], visible)
        for one in partition_ids
        if (hiding := [p.part for p in clone.parts[one] if _hides(p.part, visible)])
    }
    nothing = tuple(ProbedValue(None, None, 0) for _ in probes)
    frozen = tuple(
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
    return Proved(frozen, refused)


def _digests(
    connection: Connection,
    staging: TableName,
    partition_ids: tuple[PartitionId, ...],
    columns: tuple[DigestColumn, ...],
) -> dict[str, Digest]:
    """Digest partitions together; when that fails, each by itself.

    A value that cannot be exported has no digest: that is for the task to say, which names its
    column.
    """
    if not columns or not partition_ids:
        return {}
    try:
        return digest_partitions(connection, staging, partition_ids, columns)
    except ClickHouseError:
        if len(partition_ids) == 1:
            return {}
    each = [_digests(connection, staging, (one,), columns) for one in partition_ids]
    return {one: digest for digests in each for one, digest in digests.items()}


def _visible_rows(
    connection: Connection, staging: TableName, partition_ids: tuple[PartitionId, ...]
) -> dict[str, int]:
    """Return, by part name, the rows that a SELECT shows: without those deleted lightly."""
    answers = connection.rows(
        f"SELECT {SOURCE_ALIAS}._part, count() FROM {staging.sql} AS {SOURCE_ALIAS} WHERE "
        f"{_within(partition_ids)}"
        f" GROUP BY {SOURCE_ALIAS}._part"
    )
    return {text(row[0]): whole(row[1]) for row in answers}


def _hides(part: Part, visible: dict[str, int]) -> bool:
    rows = visible.get(part.name, 0)
    return rows > part.rows or (rows != part.rows and not part.has_lightweight_delete)


def _hidden_rows(
    clone: Clone, one: PartitionId, part: Part, visible: dict[str, int]
) -> TableFormatError:
    return SourceError(
        f"Cannot export partition {one} of {clone.source}: its part {part.name} holds {part.rows} "
        f"rows and shows {visible.get(part.name, 0)}. A row policy or a setting of the user hides "
        "rows from the exporter; use another user."
    )


def probed_in(
    connection: Connection,
    table: TableName,
    partition_ids: tuple[PartitionId, ...],
    probes: tuple[Probe, ...],
) -> dict[str, tuple[ProbedValue, ...]]:
    """Return, by partition id, the least and greatest value and the NULLs of each probe.

    A partition without visible rows is not in the answer.
    """
    if not probes:
        return {}
    inner = ", ".join(f"({probe.sql}) AS {_alias('p', i)}" for i, probe in enumerate(probes))
    folded = ", ".join(
        f"min({p}) AS {_alias('low', i)}, max({p}) AS {_alias('high', i)},"
        f" countIf(isNull({p})) AS {_alias('nulls', i)}"
        for i, p in enumerate(_alias("p", i) for i in range(len(probes)))
    )
    shown = ", ".join(
        f"{_text_of(probe, _alias('low', i))}, {_text_of(probe, _alias('high', i))},"
        f" {_alias('nulls', i)}"
        for i, probe in enumerate(probes)
    )
    rows = connection.rows(
        f"SELECT mergeberg_partition, {shown} FROM"
        f" (SELECT mergeberg_partition, {folded} FROM"
        f" (SELECT {SOURCE_ALIAS}._partition_id AS mergeberg_partition, {inner}"
        f" FROM {table.sql} AS {SOURCE_ALIAS}"
        f" WHERE {_within(partition_ids)}) GROUP BY mergeberg_partition)"
    )
    return {text(row[0]): _probed_values(row[1:]) for row in rows}


def _probed_values(values: tuple[object, ...]) -> tuple[ProbedValue, ...]:
    return tuple(
        ProbedValue(_text_or_none(values[i]), _text_or_none(values[i + 1]), whole(values[i + 2]))
        for i in range(0, len(values), 3)
    )


def _alias(what: str, number: int) -> str:
    return quote_identifier(f"mergeberg_{what}_{number}")


def _text_of(probe: Probe, value: str) -> str:
    # A lambda names the value `v` whatever columns there are.
    return f"arrayMap(v -> {probe.text_sql}, [{value}])[1]"


def _text_or_none(value: object) -> str | None:
    return None if value is None else text(value)


def _within(partition_ids: tuple[PartitionId, ...]) -> str:
    return (
        f"{SOURCE_ALIAS}._partition_id IN "
        f"({', '.join(quote_string(str(one)) for one in partition_ids)})"
    )


def _read_error(clone: Clone, one: PartitionId, error: ClickHouseError) -> SourceError:
    message = (
        f"Cannot export partition {one} of {clone.source}: reading its snapshot failed: "
        f"{error.reason}. Check the table with CHECK TABLE and run again."
    )
    return SourceError(message, code=error.code)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

"""The proof of a clone: every part checked, every row counted, every probe measured.

Parts are checked by `damage.py`; what is counted and measured is owned here. All questions are
asked of the staging table, which nothing changes any more, for all of its partitions at once; a
partition that fails is refused by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from catalog.clickhouse.advice import advice
from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.clone import Clone, Refused
from catalog.clickhouse.connection import ClickHouseError, Connection, flag, text, whole
from catalog.clickhouse.damage import damaged
from catalog.clickhouse.digests import digest_partitions
from catalog.clickhouse.offers import Offer
from catalog.clickhouse.preflight import foreign_columns, refuse_foreign_columns
from catalog.clickhouse.server.decoded import computed_rows
from tableformat.clickhouse_codes import SYNTAX_ERROR, TOO_BIG_AST, UNKNOWN_IDENTIFIER
from tableformat.digest import Digest
from tableformat.errors import SourceError, TableFormatError, UnsupportedError
from tableformat.mergetree.digest_sql import DigestColumn
from tableformat.mergetree.parts import Part
from tableformat.names import SOURCE_ALIAS, PartitionId, TableName, quote_identifier
from tableformat.source import FrozenPartition, Probe, ProbedValue

__all__ = ["Proved", "probed_in", "prove"]

_OF_THE_QUERY: Final = (SYNTAX_ERROR, TOO_BIG_AST, UNKNOWN_IDENTIFIER)
"""What is wrong with a query of ours, and not with a value that it reads."""


@dataclass(frozen=True, slots=True)
class Proved:
    """What the proof left of a clone."""

    frozen: tuple[FrozenPartition, ...]
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
        SourceError: ClickHouse does not answer any more.
    """
    refused: dict[PartitionId, TableFormatError] = {
        **_foreign(connection, clone),
        **_unreadable_disks(connection, capabilities, clone),
    }
    for one, error in damaged(connection, capabilities, clone, _without(clone, refused)).items():
        refused.setdefault(one, error)
    frozen = _measured(connection, capabilities, clone, _without(clone, refused), probes)
    refused.update(frozen.refused)
    ids = tuple(partition.partition_id for partition in frozen.frozen)
    digests = _digests(connection, capabilities, clone.staging, ids, digest)
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


def _unreadable_disks(connection: Connection, capabilities: Capabilities, clone: Clone) -> Refused:
    """Refuse parts that a task cannot open as plain files."""
    if not (capabilities.has(Offer.DISKS) and capabilities.has(Offer.PART_DISKS)):
        return {}
    has_encrypted = capabilities.has(Offer.DISK_ENCRYPTION)
    found = connection.rows(
        f"SELECT path, name, toString(type), {'is_encrypted' if has_encrypted else '0'}"
        " FROM system.disks"
    )
    kinds = {text(row[0]): (text(row[1]), text(row[2]), flag(row[3])) for row in found}
    refused: dict[PartitionId, TableFormatError] = {}
    for one, parts in clone.parts.items():
        for part in parts:
            if part.place != part.part.disk:
                # Its server reads it, whatever it lies on; or it was opened as it is already.
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


def _measured(
    connection: Connection,
    capabilities: Capabilities,
    clone: Clone,
    partition_ids: tuple[PartitionId, ...],
    probes: tuple[Probe, ...],
) -> Proved:
    """Count and probe partitions together; when that fails, each by itself."""
    if not partition_ids:
        return Proved((), {})
    try:
        where = clone.within(partition_ids)
        visible = _visible_rows(connection, clone.staging, where)
        probed = probed_in(connection, capabilities, clone.staging, where, probes)
    except ClickHouseError as error:
        if len(partition_ids) == 1:
            return Proved((), {partition_ids[0]: _read_error(clone, partition_ids[0], error)})
        each = [_measured(connection, capabilities, clone, (one,), probes) for one in partition_ids]
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
    capabilities: Capabilities,
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
        return digest_partitions(connection, capabilities, staging, partition_ids, columns)
    except ClickHouseError as error:
        if error.code in _OF_THE_QUERY:
            raise
        if len(partition_ids) == 1:
            return {}
    each = [_digests(connection, capabilities, staging, (one,), columns) for one in partition_ids]
    return {one: digest for digests in each for one, digest in digests.items()}


def _visible_rows(connection: Connection, staging: TableName, where: str) -> dict[str, int]:
    """Return, by part name, the rows that a SELECT shows: without those deleted lightly."""
    answers = connection.rows(
        f"SELECT {SOURCE_ALIAS}._part, count() FROM {staging.sql} AS {SOURCE_ALIAS}"
        f" WHERE {where} GROUP BY {SOURCE_ALIAS}._part"
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
    capabilities: Capabilities,
    table: TableName,
    where: str,
    probes: tuple[Probe, ...],
) -> dict[str, tuple[ProbedValue, ...]]:
    """Return, by partition id, the least and greatest value and the NULLs of each probe.

    A partition without visible rows is not in the answer.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: the table, or a clone of it.
        where: which rows of it.
        probes: what is asked.

    Raises:
        ClickHouseError: the rows cannot be read.
        SourceError: ClickHouse does not answer any more.
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
    # A lambda names the value `v` whatever columns there are.
    return f"arrayMap(v -> {probe.text_sql}, [{value}])[1]"


def _text_or_none(value: object) -> str | None:
    return None if value is None else text(value)


def _read_error(clone: Clone, one: PartitionId, error: ClickHouseError) -> SourceError:
    way = advice(error.code, error.reason) or "Check the table with CHECK TABLE and run again."
    message = (
        f"Cannot export partition {one} of {clone.source}: reading its snapshot failed: "
        f"{error.reason}. {way}"
    )
    return SourceError(message, code=error.code)

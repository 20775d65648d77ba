"""Finds damaged parts of a clone: by CHECK TABLE, or where there is none by reading every value.

`CHECK TABLE` is the only thing that sees each kind of damage, and damaged parts may vanish from its
answer (source.md section 4), so the answer must name exactly the expected parts. Old versions have
it not for MergeTree (code 48), or not for one partition (62). There every stored value is read
once, which checks each compressed block against its checksum, and the rows of each part are
counted. What that does not see are damaged marks and indices, which a full scan hardly uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.advice import advice
from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.clone import Clone, Refused
from catalog.clickhouse.connection import ClickHouseError, Connection, flag, text, texts, whole
from catalog.clickhouse.describe import of_table
from catalog.clickhouse.offers import Offer
from catalog.clickhouse.preflight import grouped
from catalog.some import some
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, SYNTAX_ERROR
from tableformat.errors import SourceError, TableFormatError
from tableformat.names import (
    SOURCE_ALIAS,
    PartitionId,
    TableName,
    quote_identifier,
    quote_string,
)
from tableformat.source import FrozenPart

__all__ = ["NO_CHECK_TABLE", "damaged"]

NO_CHECK_TABLE: Final = (NOT_IMPLEMENTED, SYNTAX_ERROR)
"""Codes by which ClickHouse says that it has no such CHECK TABLE."""
_CHECK: Final = "CHECK TABLE"
_READING: Final = "reading every value"
_REPAIR: Final = "Repair the part from a replica or a backup, or detach it, and run again."


@dataclass(frozen=True, slots=True)
class _Answer:
    """How it was looked, and for each part whether it passed and what is said against it."""

    how: str
    parts: Mapping[str, tuple[bool, str]]


def damaged(
    connection: Connection,
    capabilities: Capabilities,
    clone: Clone,
    partition_ids: tuple[PartitionId, ...],
) -> Refused:
    """Return the partitions with damaged parts: all are looked at at once; if that fails, each.

    Raises:
        SourceError: ClickHouse does not answer any more.
    """
    if not partition_ids:
        return {}
    alone = partition_ids[0] if len(partition_ids) == 1 else None
    how = _CHECK
    try:
        answer = _checked(connection, capabilities, clone, partition_ids)
        if answer is None:
            how = _READING
            answer = _read(connection, clone, partition_ids)
        names = _active_parts(connection, clone.staging)
    except ClickHouseError as error:
        if alone is None:
            each = (damaged(connection, capabilities, clone, (one,)) for one in partition_ids)
            return {one: why for refused in each for one, why in refused.items()}
        way = advice(error.code, error.reason) or _REPAIR
        return {alone: _refuse(clone, alone, f"{how} fails: {_without_place(error.reason)}", way)}
    refused: dict[PartitionId, TableFormatError] = {}
    for one in partition_ids:
        if damage := _damage(clone.parts[one], names.get(str(one), ()), answer):
            refused[one] = _refuse(clone, one, damage)
    if unknown := sorted(set(answer.parts) - {name for found in names.values() for name in found}):
        for one in partition_ids:
            what = f"{answer.how} looked at {some(unknown)}, which is no part of the snapshot"
            refused.setdefault(one, _refuse(clone, one, what))
    return refused


def _checked(
    connection: Connection,
    capabilities: Capabilities,
    clone: Clone,
    partition_ids: tuple[PartitionId, ...],
) -> _Answer | None:
    """Return what CHECK TABLE says; None where there is none."""
    alone = len(partition_ids) == 1
    partition = f" PARTITION ID {quote_string(str(partition_ids[0]))}" if alone else ""
    told = capabilities.has(Offer.CHECK_BY_PART)
    by_part = " SETTINGS check_query_single_value_result = 0" if told else ""
    try:
        answers = connection.rows(f"{_CHECK} {clone.staging.sql}{partition}{by_part}")
    except ClickHouseError as error:
        if error.code in NO_CHECK_TABLE:
            return None
        raise
    return _Answer(_CHECK, {text(row[0]): (flag(row[1]), text(row[2])) for row in answers})


def _read(connection: Connection, clone: Clone, partition_ids: tuple[PartitionId, ...]) -> _Answer:
    """Read every stored value; a part passes when it gives its rows."""
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
    return _Answer(
        _READING,
        {
            name: (given == expected.get(name, given), f"it gives {given} rows")
            for name, given in rows.items()
        },
    )


def _active_parts(connection: Connection, staging: TableName) -> dict[str, tuple[str, ...]]:
    """Return the names of the active parts, without rows too, by partition id."""
    found = connection.rows(
        f"SELECT partition_id, name FROM system.parts WHERE active AND {of_table(staging)}"
        " ORDER BY name"
    )
    return grouped((text(row[0]), text(row[1])) for row in found)


def _damage(parts: tuple[FrozenPart, ...], expected: tuple[str, ...], answer: _Answer) -> str:
    """Return what is said against a partition, '' when every part of it passed."""
    answers = answer.parts
    source_names = {part.part.name: part.source_name for part in parts}
    broken = [
        f"part {source_names.get(name, name)} ({_without_advice(answers[name][1])})"
        for name in expected
        if name in answers and not answers[name][0]
    ]
    if broken:
        return f"{answer.how} finds damage in {some(broken)}"
    unseen = [source_names.get(name, name) for name in expected if name not in answers]
    unseen += [name for frozen, name in source_names.items() if frozen not in expected]
    return f"{answer.how} did not look at {some(unseen)}" if unseen else ""


def _without_advice(answer: str) -> str:
    """Return what is wrong with a part, without ClickHouse's page on memory and network cards."""
    return ClickHouseError(answer).reason.partition(" This is most likely")[0].rstrip(".")


def _without_place(reason: str) -> str:
    """Return why reading failed, without the staging table's directory."""
    return reason.partition(": (while reading")[0].rstrip(".")


def _refuse(clone: Clone, one: PartitionId, damage: str, way: str = _REPAIR) -> SourceError:
    return SourceError(f"Cannot export partition {one} of {clone.source}: {damage}. {way}")

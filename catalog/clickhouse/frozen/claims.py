"""Proves a statement's claims on the parts: column types, settings and keys.

A server knows these of its own parts; for frozen parts a file claims them. ClickHouse silently
opens parts under wrong keys and types as long as it can read their index files. Then the partition
key does not match the partitions, rows are not sorted by the sorting key, numbers are truncated,
and arrays are empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from catalog.clickhouse.connection import Connection, text, texts, whole
from catalog.clickhouse.part_directories import PartFiles, files_sql, unread
from catalog.clickhouse.snapshot.preflight import OWN_COLUMNS
from catalog.clickhouse.table_description import of_table
from tableformat.errors import RefusedError, SourceError, Unable, UnsupportedError
from tableformat.mergetree.expression import SortKey
from tableformat.mergetree.expression_text import parse_sorting_key, qualify
from tableformat.mergetree.readability import PART_OFFSET, has_column
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.type_text import parse_type
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    Enum,
    LowCardinality,
    Nullable,
    rebuild,
)
from tableformat.names import SOURCE_ALIAS, PartitionId, quote_string
from tableformat.source import PartsLayout

__all__ = ["Claimed", "other_partition_keys", "other_settings", "other_types", "unsorted"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The table that a statement describes, and the statement's file."""

    table: MergeTreeTable
    file: Path


def other_types(connection: Connection, claimed: Claimed) -> dict[PartitionId, RefusedError]:
    """Return the partitions whose parts have a column of another type than the statement.

    A type that reads the same bytes as the same values (an Enum with more labels, another zone) is
    equal, and so is one that accepts every value of the other (LowCardinality, Nullable).

    Raises:
        SourceError: ClickHouse does not respond.
    """
    table = claimed.table
    internal = ", ".join(quote_string(column) for column in OWN_COLUMNS)
    declared = {column.name: column.type_text for column in table.columns}
    found = connection.rows(
        "SELECT partition_id, column, type, min(name) FROM system.parts_columns"
        f" WHERE active AND {of_table(table.name)} AND column NOT IN ({internal})"
        " GROUP BY partition_id, column, type ORDER BY partition_id, column, type"
    )
    refused: dict[PartitionId, RefusedError] = {}
    for row in found:
        partition, column, held, part = (text(value) for value in row)
        stated = declared.get(column)
        if stated is None or held == stated or _takes(parse_type(stated), parse_type(held)):
            continue
        message = Unable.of(
            f"partition {partition} of {table.name}",
            f"its part {part} holds the column {column} as {held}, and {claimed.file} says "
            f"{stated}. Give the statement of the table when the parts were frozen; if its type "
            "was changed then, rewrite the parts with OPTIMIZE TABLE ... FINAL and freeze them "
            "again.",
        )
        refused.setdefault(PartitionId(partition), RefusedError(message))
    return refused


def other_settings(
    connection: Connection,
    claimed: Claimed,
    layout: PartsLayout,
    directory: Path,
    partition_ids: Collection[PartitionId],
) -> dict[PartitionId, RefusedError]:
    """Return the partitions with parts that are not read as they were written.

    Args:
        connection: has the parts open as the table.
        claimed: the table.
        layout: how its parts are opened as files.
        directory: the directory of the part folders.
        partition_ids: the requested ones.

    Raises:
        SourceError: ClickHouse does not respond, or a folder cannot be read.
    """
    name = claimed.table.name
    if has_column(claimed.table, PART_OFFSET):
        message = Unable.of(
            str(name),
            f"its column {PART_OFFSET} has the name of a virtual column, without which the order "
            "of frozen parts cannot be proved. Restore the parts into a ClickHouse, and export "
            "that.",
        )
        return dict.fromkeys(partition_ids, RefusedError(message))
    opened = [
        PartFiles.of(text(part), whole(rows), whole(marks), text(files))
        for part, rows, marks, files in connection.rows(files_sql(of_table(name)))
    ]
    try:
        wrong = unread(directory, opened, layout.settings)
    except OSError as error:
        unread_text = (
            f"Cannot read the parts in {directory}: {error}. Run as a user who may read the "
            "directory and everything in it."
        )
        raise SourceError(unread_text) from error
    refused: dict[PartitionId, RefusedError] = {}
    for part, why in wrong.items():
        one = PartitionId(part.split("_", 1)[0])
        message = Unable.of(
            f"partition {one} of {name}",
            f"as {claimed.file} says, its part {part} is not read whole: {why}. Give the statement "
            "of the table, and in its SETTINGS what the configuration of its server sets (SELECT "
            "name, value FROM system.merge_tree_settings WHERE changed).",
        )
        refused.setdefault(one, RefusedError(message))
    return {one: error for one, error in refused.items() if one in partition_ids}


def _takes(stated: DataType, held: DataType) -> bool:
    """Whether values of one type are read unchanged as another one."""
    if isinstance(stated, LowCardinality):
        return _takes(stated.of, held)
    if isinstance(held, LowCardinality):
        return _takes(stated, held.of)
    if isinstance(stated, Nullable):
        return _takes(stated.of, held.of if isinstance(held, Nullable) else held)
    if isinstance(stated, Enum) and isinstance(held, Enum):
        return set(held.labels) <= set(stated.labels)
    return rebuild(stated, _without_zone) == rebuild(held, _without_zone)


def _without_zone(of: DataType) -> DataType:
    match of:
        case DateTime():
            return DateTime()
        case DateTime64(precision):
            return DateTime64(precision)
        case _:
            return of


def other_partition_keys(
    connection: Connection, claimed: Claimed, partition_ids: Iterable[PartitionId]
) -> dict[PartitionId, RefusedError]:
    """Return the partitions with rows whose PARTITION BY has another value than the partition.

    Raises:
        ClickHouseError: the rows cannot be read.
        SourceError: ClickHouse does not respond.
    """
    table = claimed.table
    key = table.engine.partition_by
    if not key or key == "tuple()":
        return {}
    one, shown, computed, alone = (f"mergeberg_{n}" for n in ("one", "shown", "computed", "alone"))
    # The text of a key of one expression does not show whether it is a tuple; both are compared.
    found = connection.rows(
        f"SELECT {one}, any({shown}), any({computed}) FROM (SELECT _partition_id AS {one},"
        f" toString(_partition_value) AS {shown}, toString(tuple({key})) AS {computed},"
        f" toString({key}) AS {alone} FROM {table.name.sql} WHERE {_within(partition_ids)})"
        f" WHERE {shown} NOT IN ({computed}, {alone}) GROUP BY {one}"
        " SETTINGS optimize_use_projections = 0"
    )
    refused: dict[PartitionId, RefusedError] = {}
    for row in found:
        partition, as_value, other = (text(value) for value in row)
        message = Unable.of(
            f"partition {partition} of {table.name}",
            f"the partition is that of {as_value}, and PARTITION BY {key}, as {claimed.file} says, "
            f"makes {other} of some of its rows in the time zone {table.server_zone}. Give the "
            "statement of the table, and its server's time zone by &zone=ZONE.",
        )
        refused[PartitionId(partition)] = RefusedError(message)
    return refused


def unsorted(
    connection: Connection, claimed: Claimed, partition_ids: Iterable[PartitionId]
) -> dict[PartitionId, RefusedError]:
    """Return the partitions with a part whose rows are not in the order of ORDER BY.

    Raises:
        ClickHouseError: the rows cannot be read.
        SourceError: ClickHouse does not respond.
    """
    table = claimed.table
    try:
        keys = parse_sorting_key(table.engine.order_by)
    except UnsupportedError:
        # For a key that our parser refuses, the lake table declares no order either.
        return {}
    if not keys:
        return {}
    names = [f"k{i}" for i in range(len(keys))]
    selected = ", ".join(
        f"{qualify(key.expression)} AS {name}" for key, name in zip(keys, names, strict=True)
    )
    before = ", ".join(f"lagInFrame({n}) OVER w AS before_{n}" for n in ("part", "row", *names))
    found = texts(
        connection,
        "SELECT part FROM"
        f" (SELECT part, row, {', '.join(names)}, {before}"
        f" FROM (SELECT {SOURCE_ALIAS}._part AS part, {SOURCE_ALIAS}._part_offset AS row,"
        f" {selected}"
        f" FROM {table.name.sql} AS {SOURCE_ALIAS} WHERE {_within(partition_ids)})"
        " WINDOW w AS (ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING))"
        # A part may be read in any order; only rows with a greater offset are compared.
        f" WHERE before_part = part AND before_row < row AND ({_descends(keys, names)})"
        " GROUP BY part ORDER BY part SETTINGS max_threads = 1, optimize_use_projections = 0",
    )
    refused: dict[PartitionId, RefusedError] = {}
    for part in found:
        one = PartitionId(part.split("_", 1)[0])
        message = Unable.of(
            f"partition {one} of {table.name}",
            f"the rows of its part {part} are not in the order of ORDER BY "
            f"{table.engine.order_by}, as {claimed.file} says. Give the statement of the table.",
        )
        refused.setdefault(one, RefusedError(message))
    return refused


def _descends(keys: tuple[SortKey, ...], names: list[str]) -> str:
    """Return the condition that a row sorts before its predecessor."""
    cases = []
    equal = ""
    for key, name in zip(keys, names, strict=True):
        first, second = f"before_{name}", name
        if key.descending:
            first, second = second, first
        # NULL is the greatest value; a comparison with NaN is never true and reports nothing.
        less = f"ifNull({second} < {first}, isNull({first}) AND NOT isNull({second}))"
        cases.append(f"({equal}{less})")
        equal += f"{first} <=> {second} AND "
    return " OR ".join(cases)


def _within(partition_ids: Iterable[PartitionId]) -> str:
    return f"_partition_id IN ({', '.join(quote_string(str(one)) for one in partition_ids)})"

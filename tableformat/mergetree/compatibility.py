"""Describes how a table is partitioned, and compares two tables for partition exchange.

`division_of` renders the partitioning as text. Tables with equal texts give equal rows equal
partition ids. The text contains the partition key, the types of its columns and, for a time
without a zone, the server's zone, because the key's result depends on all of them. `time_column`
finds the column that gives the times of a partition. `other_expressions` finds the columns whose
default expression has changed.

`differences` checks ClickHouse's conditions for ATTACH PARTITION … FROM, REPLACE PARTITION … FROM
and MOVE PARTITION … TO TABLE, which are the same for all three (SRS-032 section 7, SRS-034;
ClickHouse's texts and error codes). ClickHouse reports the first difference; this module reports
all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tableformat.clickhouse_codes import BAD_ARGUMENTS, INCOMPATIBLE_COLUMNS, NOT_IMPLEMENTED
from tableformat.errors import TableFormatError
from tableformat.mergetree.expression import columns_of
from tableformat.mergetree.expression_parser import parse_expression, parse_partition_key
from tableformat.mergetree.table import Column, MergeTreeTable, NoTimes, Projection, SkipIndex
from tableformat.mergetree.table_settings import is_on
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    Enum,
    LowCardinality,
    Nullable,
    Simple,
    rebuild,
)
from tableformat.messages import Option
from tableformat.names import quote_identifier

__all__ = [
    "Difference",
    "differences",
    "division_of",
    "key_columns",
    "other_expressions",
    "time_column",
]

_TIME: Final = "datetime"
_DATES: Final = (Simple("Date"), Simple("Date32"))


def division_of(table: MergeTreeTable) -> str:
    """Return a table's partitioning as text, '' if it has none.

    Tables with equal texts have equal partitions; tables with different texts may have, too.
    """
    key = table.engine.partition_by
    columns = ", ".join(f"{quote_identifier(c.name)} {c.type_text}" for c in key_columns(table))
    text = f"{key} of {columns}" if columns else key
    # The server's zone matters if a DateTime may lack its own.
    return f"{text} in {table.server_zone or 'UTC'}" if _TIME in text.lower() else text


def key_columns(table: MergeTreeTable) -> tuple[Column, ...]:
    """Return the columns that the partition key reads, without defaults.

    A name in the key may be a member of a column.
    """
    used = frozenset[str]().union(
        *(columns_of(e) for e in parse_partition_key(table.engine.partition_by))
    )
    return tuple(
        Column(c.name, c.type, c.type_text)
        for c in table.stored_columns
        if any(f"{name}.".startswith(f"{c.name}.") for name in used)
    )


def time_column(table: MergeTreeTable) -> Column | NoTimes:
    """Return the column whose least and greatest values are the times of a partition.

    It is the only Date or Date32 that the partition key reads, else its only DateTime or
    DateTime64, as in ClickHouse's system.parts.
    """
    columns = key_columns(table)
    dates = [c for c in columns if _plain(c.type) in _DATES]
    of_time = dates or [c for c in columns if isinstance(_plain(c.type), DateTime | DateTime64)]
    key = table.engine.partition_by or "tuple()"
    match of_time:
        case [one]:
            return one
        case []:
            return NoTimes(f"the partition key of {table.name}, {key}, reads no column of a time")
        case _:
            names = ", ".join(c.name for c in of_time)
            return NoTimes(
                f"the partition key of {table.name}, {key}, reads several columns of a time "
                f"({names})"
            )


def _plain(of: DataType) -> DataType:
    """Return a type without Nullable and LowCardinality."""
    while isinstance(of, Nullable | LowCardinality):
        of = of.of
    return of


_Named = SkipIndex | Projection
_DIVIDES: Final = "partition key"
_ANY_ENUM: Final = Enum(16, ())
_WIDEN: Final = (
    f" (a lake table notes new labels of its source by an export with {Option.EVOLVE_SCHEMA})"
)
_ENFORCE: Final = "enforce_index_structure_match_on_partition_manipulation"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference in ClickHouse's words, and its code."""

    text: str
    code: int


def differences(
    source: MergeTreeTable,
    destination: MergeTreeTable,
    *,
    moves: bool = False,
    divides: bool = True,
) -> tuple[Difference, ...]:
    """Return the differences that forbid partitions of `source` in `destination`.

    * Stored columns must be equal by name and type, in any order. An Enum of the destination may
      have more labels, if none of them changes a number.
    * Partition key, sorting key and primary key must be equal.
    * The destination must have every skip index and projection of the source, and no others if its
      setting `enforce_index_structure_match_on_partition_manipulation` is on.
    * Storage policies are compared by name (P-21, P-28, P-33).

    With `moves` both engines must be replicated, or neither. Without `divides` the partition keys
    may differ, because the rows themselves decide their partition.
    """
    return tuple(
        Difference(f"Tables have different {what}: {text}", code)
        for what, text, code in (
            *(_of_engines(source, destination) if moves else ()),
            *_of_columns(source, destination),
            *(one for one in _of_keys(source, destination) if divides or one[0] != _DIVIDES),
            *_of_indices(source, destination),
            *_of_places(source, destination),
        )
    )


def other_expressions(
    before: MergeTreeTable, now: MergeTreeTable
) -> tuple[tuple[Column | None, Column], ...]:
    """Return the columns whose default expression differs, as they were and as they are now.

    ClickHouse changes an expression without a change of rows (ALTER TABLE … MODIFY COLUMN). Columns
    that one of the tables lacks are compared if ClickHouse does not store them.
    """
    known = {c.name: c for c in before.columns}
    return tuple(
        (one, c)
        for c in now.columns
        if _expression(one := known.get(c.name)) != _expression(c)
        and (one is not None or not c.stored)
    )


def _expression(column: Column | None) -> tuple[str, str, str]:
    """Return a column's default in one form of writing, and the type of one that has no rows."""
    if column is None or not column.default_kind:
        return "", "", ""
    text = column.default_expression
    with contextlib.suppress(TableFormatError):
        text = repr(parse_expression(text))
    return column.default_kind, text, "" if column.stored else column.type_text


def _of_columns(
    source: MergeTreeTable, destination: MergeTreeTable
) -> Iterator[tuple[str, str, int]]:
    there = {c.name: c for c in source.stored_columns}
    here = {c.name: c for c in destination.stored_columns}
    reasons = [
        f"{c.name} is {one.type_text} there and {c.type_text} here{_WIDEN * _takes(one, c)}"
        for c in destination.stored_columns
        if (one := there.get(c.name)) is not None and not _takes(c, one)
    ]
    reasons += [f"{name} is only there" for name in there if name not in here]
    reasons += [f"{name} is only here" for name in here if name not in there]
    if reasons:
        yield "structure", "; ".join(f"column {text}" for text in reasons), INCOMPATIBLE_COLUMNS


def _takes(here: Column, there: Column) -> bool:
    """Whether a column can hold every value of another one with the same meaning."""
    if here.type_text == there.type_text:
        return True
    (known, of), (given, other) = _labels(here.type), _labels(there.type)
    return of == other and all(set(one) <= set(k) for one, k in zip(given, known, strict=True))


def _labels(of: DataType) -> tuple[list[tuple[tuple[str, int], ...]], DataType]:
    """Return the labels of the Enums in a type, in order, and the type without them."""
    found = []

    def collect(inner: DataType) -> DataType:
        if not isinstance(inner, Enum):
            return inner
        found.append(inner.labels)
        return _ANY_ENUM

    return found, rebuild(of, collect)


def _of_keys(source: MergeTreeTable, destination: MergeTreeTable) -> Iterator[tuple[str, str, int]]:
    there, here = source.engine, destination.engine
    for what, clause, one, other in (
        ("ordering", "ORDER BY", there.order_by, here.order_by),
        (_DIVIDES, "PARTITION BY", there.partition_by, here.partition_by),
        (
            "primary key",
            "PRIMARY KEY",
            there.primary_key or there.order_by,
            here.primary_key or here.order_by,
        ),
    ):
        if one != other:
            text = f"{clause} {one or 'tuple()'} there, {clause} {other or 'tuple()'} here"
            yield what, text, BAD_ARGUMENTS


def _of_indices(
    source: MergeTreeTable, destination: MergeTreeTable
) -> Iterator[tuple[str, str, int]]:
    exactly = is_on(destination.engine.settings, _ENFORCE)
    for what, there, here in (
        ("secondary indices", source.indices, destination.indices),
        ("projections", source.projections, destination.projections),
    ):
        text = _missing_definitions(tuple(there), tuple(here), exactly=exactly)
        if text:
            yield what, text, BAD_ARGUMENTS


def _of_places(
    source: MergeTreeTable, destination: MergeTreeTable
) -> Iterator[tuple[str, str, int]]:
    there, here = source.storage_policy, destination.storage_policy
    if there != here:
        text = f"{there or 'none'} there, {here or 'none'} here"
        yield "storage policy", text, BAD_ARGUMENTS


def _of_engines(
    source: MergeTreeTable, destination: MergeTreeTable
) -> Iterator[tuple[str, str, int]]:
    """Yield the difference that ClickHouse reports first: replicated engines or not."""
    there, here = source.engine, destination.engine
    if there.replicated != here.replicated:
        yield "engine family", f"{there.name} there, {here.name} here", NOT_IMPLEMENTED


def _missing_definitions(
    there: tuple[_Named, ...], here: tuple[_Named, ...], *, exactly: bool
) -> str:
    """Describe the definitions that the destination lacks, or has in addition; '' for none."""
    missing = [one.name for one in there if one not in here]
    extra = [one.name for one in here if one not in there and one.name not in missing]
    reasons = [f"{name} is only there, or another one here" for name in missing]
    return "; ".join(reasons + [f"{name} is only here" for name in extra if exactly])

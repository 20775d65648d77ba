"""How a table is divided into partitions, and by which time.

As a text: equal texts give equal rows equal ids.

The partition key alone does not tell: what it makes of a value hangs on the types of its columns,
and of a time without a zone on that of its server.
"""

from __future__ import annotations

from typing import Final

from tableformat.mergetree.expression_text import columns_of, parse_partition_key
from tableformat.mergetree.parts import NoTimes
from tableformat.mergetree.table import Column, MergeTreeTable
from tableformat.mergetree.types import (
    DataType,
    DateTime,
    DateTime64,
    LowCardinality,
    Nullable,
    Simple,
)
from tableformat.names import quote_identifier

__all__ = ["division_of", "key_columns", "time_column"]

_TIME: Final = "datetime"
_DATES: Final = (Simple("Date"), Simple("Date32"))


def division_of(table: MergeTreeTable) -> str:
    """Return how a table is divided, '' for not at all.

    Tables of different texts may still have the same partitions; those of one text do.
    """
    key = table.engine.partition_by
    columns = ", ".join(f"{quote_identifier(c.name)} {c.type_text}" for c in key_columns(table))
    text = f"{key} of {columns}" if columns else key
    # A zone counts wherever a time may lack its own.
    return f"{text} in {table.server_zone or 'UTC'}" if _TIME in text.lower() else text


def key_columns(table: MergeTreeTable) -> tuple[Column, ...]:
    """Return the columns that the partition key reads, without defaults.

    A name in the key may be that of a member of a column.
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

    It is the one Date or Date32 that the partition key reads, else its one DateTime or DateTime64,
    as in ClickHouse's own system.parts.
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
    """Return a type without what wraps it."""
    while isinstance(of, Nullable | LowCardinality):
        of = of.of
    return of

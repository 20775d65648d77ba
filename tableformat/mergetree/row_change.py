"""A statement that changes rows, and which columns of a table it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tableformat.mergetree.table import Column

__all__ = ["RowChange", "columns_of_change", "columns_read", "columns_set", "without_default"]

_COMPUTED: Final = ("MATERIALIZED", "ALIAS")


@dataclass(frozen=True, slots=True)
class RowChange:
    """UPDATE, DELETE or CLEAR COLUMN as it stands behind ALTER TABLE, without IN PARTITION.

    `condition` tells the rows, '' for all; `reads` are the columns in its expressions; `sets` those
    that get values, none of DELETE; `to_default`: their default expressions.
    """

    command: str
    condition: str
    reads: frozenset[str]
    sets: frozenset[str]
    to_default: bool = False


def columns_of_change(change: RowChange, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns that ClickHouse needs to run it, and those that it computes anew.

    A MATERIALIZED column is computed anew where one that it reads gets a value. Names are looked
    for in the text of expressions: there may be more of them than are read, and never fewer. The
    other columns of a Nested come along, by whose lengths ClickHouse checks and clears one. All
    other defaults mean nothing here and are left out.
    """
    reads = {c.name: frozenset(o.name for o in columns if _mentions(c, o)) for c in columns}
    computed = {c.name for c in columns if c.default_kind in _COMPUTED}
    # A member of a tuple, or the size of an array, is read of its column.
    whole = frozenset(c.name for c in columns if any(_is_of(n, c.name) for n in change.reads))
    changing = _closed(change.sets, lambda found: {n for n in computed if reads[n] & found})
    aliases = {c.name for c in columns if c.default_kind == "ALIAS"}
    kept = changing & computed | aliases | (change.sets if change.to_default else frozenset())
    nested = {_nested_of(name) for name in change.sets} - {None}
    beside = {c.name for c in columns if _nested_of(c.name) in nested}
    needed = _closed(
        whole | changing | beside,
        lambda found: {n for one in found & kept for n in reads.get(one, ())},
    )
    return tuple(
        c if c.name in kept or c.default_kind == "EPHEMERAL" else without_default(c)
        for c in columns
        if c.name in needed
    )


def columns_read(change: RowChange, columns: tuple[Column, ...]) -> frozenset[str]:
    """Return those of the columns of a change whose values before it may mean something.

    Args:
        change: the statement.
        columns: what `columns_of_change` returned.
    """
    return frozenset(
        c.name
        for c in columns
        if any(_is_of(name, c.name) for name in change.reads)
        or any(_mentions(other, c) for other in columns)
    )


def columns_set(change: RowChange, columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Return those of the stored columns of a change that may have other values afterwards.

    Args:
        change: the statement.
        columns: what `columns_of_change` returned.
    """
    return tuple(
        c.name
        for c in columns
        if c.stored and (c.name in change.sets or c.default_kind == "MATERIALIZED")
    )


def without_default(column: Column) -> Column:
    """Return a column that gets the values that it is given, and no others."""
    return replace(column, default_kind="", default_expression="")


def _nested_of(name: str) -> str | None:
    """Return the name of the Nested structure that a column with such a name is of."""
    nested, dot, _ = name.partition(".")
    return nested if dot else None


def _is_of(name: str, column: str) -> bool:
    return name == column or name.startswith(f"{column}.")


def _mentions(column: Column, other: Column) -> bool:
    return bool(column.default_kind) and other.name in column.default_expression


def _closed(names: frozenset[str], more: Callable[[frozenset[str]], set[str]]) -> frozenset[str]:
    """Return names and all that come with them, and with these."""
    while (found := names | more(names)) != names:
        names = found
    return names

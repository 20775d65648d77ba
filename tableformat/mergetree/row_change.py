"""Defines a statement that changes rows, and finds the columns that it reads and sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tableformat.mergetree.table import Column

__all__ = ["RowChange", "columns_of_change", "columns_read", "columns_set", "without_default"]

_COMPUTED: Final = ("MATERIALIZED", "ALIAS")


@dataclass(frozen=True, slots=True)
class RowChange:
    """UPDATE, DELETE or CLEAR COLUMN, as after ALTER TABLE, without IN PARTITION.

    `condition` selects the rows, '' for all. `reads` are the columns in its expressions. `sets` are
    the columns that get values, none for DELETE; with `to_default` these are their default
    expressions.
    """

    command: str
    condition: str
    reads: frozenset[str]
    sets: frozenset[str]
    to_default: bool = False


def columns_of_change(change: RowChange, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns that ClickHouse needs for the statement, and those that it recomputes.

    A MATERIALIZED column is recomputed if a column that it reads gets a value. Names are searched
    in the text of expressions, which may find too many columns but never too few. The other columns
    of a Nested are included, because ClickHouse checks and clears one by their lengths. All other
    defaults have no effect here and are dropped.
    """
    reads = {c.name: frozenset(o.name for o in columns if _default_mentions(c, o)) for c in columns}
    computed = {c.name for c in columns if c.default_kind in _COMPUTED}
    # A tuple's member or an array's size is read from its column.
    whole = frozenset(c.name for c in columns if any(_is_of(n, c.name) for n in change.reads))
    changing = _closure(change.sets, lambda found: {n for n in computed if reads[n] & found})
    aliases = {c.name for c in columns if c.default_kind == "ALIAS"}
    kept = changing & computed | aliases | (change.sets if change.to_default else frozenset())
    nested = {_nested_of(name) for name in change.sets} - {None}
    siblings = {c.name for c in columns if _nested_of(c.name) in nested}
    needed = _closure(
        whole | changing | siblings,
        lambda found: {n for one in found & kept for n in reads.get(one, ())},
    )
    return tuple(
        c if c.name in kept or c.default_kind == "EPHEMERAL" else without_default(c)
        for c in columns
        if c.name in needed
    )


def columns_read(change: RowChange, columns: tuple[Column, ...]) -> frozenset[str]:
    """Return the columns of a change whose previous values may matter.

    Args:
        change: the statement.
        columns: the result of `columns_of_change`.
    """
    return frozenset(
        c.name
        for c in columns
        if any(_is_of(name, c.name) for name in change.reads)
        or any(_default_mentions(other, c) for other in columns)
    )


def columns_set(change: RowChange, columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Return the stored columns of a change whose values may change.

    Args:
        change: the statement.
        columns: the result of `columns_of_change`.
    """
    return tuple(
        c.name
        for c in columns
        if c.stored and (c.name in change.sets or c.default_kind == "MATERIALIZED")
    )


def without_default(column: Column) -> Column:
    """Return a column without its default."""
    return replace(column, default_kind="", default_expression="")


def _nested_of(name: str) -> str | None:
    """Return the name of the Nested structure of a column, None if it has none."""
    nested, dot, _ = name.partition(".")
    return nested if dot else None


def _is_of(name: str, column: str) -> bool:
    return name == column or name.startswith(f"{column}.")


def _default_mentions(column: Column, other: Column) -> bool:
    return bool(column.default_kind) and other.name in column.default_expression


def _closure(names: frozenset[str], more: Callable[[frozenset[str]], set[str]]) -> frozenset[str]:
    """Return names with everything that they require, transitively."""
    while (found := names | more(names)) != names:
        names = found
    return names

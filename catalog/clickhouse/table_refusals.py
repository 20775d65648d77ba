"""Refusals of a name that no table of the MergeTree family has."""

from __future__ import annotations

import difflib

from catalog.clickhouse.connection import Connection, texts
from catalog.clickhouse.views import ViewError
from catalog.some import some
from tableformat.clickhouse_codes import NOT_IMPLEMENTED, UNKNOWN_DATABASE, UNKNOWN_TABLE
from tableformat.errors import NotFoundError, UnsupportedError
from tableformat.names import TableName, quote_string

__all__ = ["not_found", "not_merge_tree"]


def not_found(connection: Connection, name: TableName) -> NotFoundError:
    """Return the refusal of a name that no table has; the nearest names are in it.

    Raises:
        SourceError: the source cannot be read.
    """
    databases = texts(connection, "SELECT name FROM system.databases ORDER BY name")
    if name.database not in databases:
        near = _near(name.database, databases)
        message = (
            f"Cannot find the table {name}: there is no database {name.database!r}."
            f"{_nearest(near, databases)}"
        )
        similar = str(TableName(near[0], name.name)) if len(near) == 1 else ""
        return NotFoundError(message, code=UNKNOWN_DATABASE, named=str(name), similar=similar)
    tables = texts(
        connection,
        "SELECT name FROM system.tables"
        f" WHERE database = {quote_string(name.database)} ORDER BY name",
    )
    near = _near(name.name, tables)
    message = (
        f"Cannot find the table {name}: the database {name.database!r} has no such table."
        f"{_nearest(near, tables)}"
    )
    similar = str(TableName(name.database, near[0])) if len(near) == 1 else ""
    return NotFoundError(message, code=UNKNOWN_TABLE, named=str(name), similar=similar)


def _near(wanted: str, names: tuple[str, ...]) -> list[str]:
    return difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)


def _nearest(near: list[str], names: tuple[str, ...]) -> str:
    if near:
        return f" Did you mean {' or '.join(near)}?"
    return f" It holds: {some(names, most=10)}." if names else " There is nothing in it."


def not_merge_tree(name: TableName, kind: str, target: TableName | None) -> UnsupportedError:
    """Return the refusal of a table of another engine; `target` is where a view writes to."""
    way = (
        f"Name the table that it writes to{f', {target}' if target else ''}."
        if kind in ("MaterializedView", "Distributed", "Buffer")
        else "Copy the rows into a MergeTree table first (INSERT INTO ... SELECT)."
    )
    message = (
        f"Cannot read partitions of {name}: its engine is {kind}, and only tables of the "
        f"MergeTree family have partitions and parts. {way}"
    )
    if kind == "MaterializedView":
        return ViewError(message, code=NOT_IMPLEMENTED, target=target)
    return UnsupportedError(message, code=NOT_IMPLEMENTED)

"""Finds the stored columns that parts of a table lack, from the system tables.

ClickHouse lists the columns of parts slowly: half a second for a thousand parts, and always for the
whole table. A part's missing columns change only with the columns of the table. So each connection
looks up each part once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

from catalog.clickhouse.connection import Connection, text, texts, whole
from catalog.clickhouse.table_description import of_table
from tableformat.mergetree.table import Part
from tableformat.names import TableName, quote_string

__all__ = ["with_missing_columns"]

_NAMED: Final = 1000
"""Number of part names in one query."""


@dataclass(frozen=True, slots=True)
class _MissingColumns:
    """The missing columns of a table's parts, by part name, for its stored columns.

    `contents` distinguishes parts from those of an earlier table of the same name.
    """

    columns: tuple[str, ...]
    lacks: Mapping[str, tuple[str, ...]]
    contents: dict[str, str] = field(default_factory=dict)

    def knows(self, parts: Iterable[Part]) -> bool:
        """Whether each of the parts was looked up."""
        return all(
            p.name in self.lacks
            and self.contents.setdefault(p.name, p.hash_of_all_files) == p.hash_of_all_files
            for p in parts
        )


_BY_CONNECTION: Final[WeakKeyDictionary[Connection, dict[TableName, _MissingColumns]]] = (
    WeakKeyDictionary()
)


def with_missing_columns(
    connection: Connection, name: TableName, parts: tuple[Part, ...]
) -> tuple[Part, ...]:
    """Return active parts of a table with the stored columns that they lack.

    Raises:
        SourceError: the source cannot be read.
    """
    if not parts:
        return ()
    stored = (
        f"SELECT name FROM system.columns WHERE {of_table(name)}"
        " AND toString(default_kind) NOT IN ('ALIAS', 'EPHEMERAL')"
    )
    columns = texts(connection, stored)
    by_table = _BY_CONNECTION.setdefault(connection, {})
    missing = by_table.get(name)
    if missing is None or missing.columns != columns or not missing.knows(parts):
        missing = by_table[name] = _look(connection, name, columns)
        missing.knows(parts)
    # A part that no longer exists was merged or dropped; the caller notices it.
    return tuple(replace(p, lacks=missing.lacks.get(p.name, ())) for p in parts)


def _look(connection: Connection, name: TableName, columns: tuple[str, ...]) -> _MissingColumns:
    held = f"FROM system.parts_columns WHERE active AND {of_table(name)}"
    stored = ", ".join(quote_string(column) for column in columns)
    counts = connection.rows(
        f"SELECT name, countIf(column IN ({stored or quote_string('')})) {held} GROUP BY name"
    )
    has: dict[str, set[str]] = {
        text(row[0]): set() for row in counts if whole(row[1]) < len(columns)
    }
    lacking = sorted(has)
    for begin in range(0, len(lacking), _NAMED):
        names = ", ".join(quote_string(one) for one in lacking[begin : begin + _NAMED])
        for row in connection.rows(f"SELECT name, column {held} AND name IN ({names})"):
            has[text(row[0])].add(text(row[1]))
    found: dict[str, tuple[str, ...]] = {text(row[0]): () for row in counts}
    for part, names_held in has.items():
        found[part] = tuple(c for c in columns if c not in names_held)
    return _MissingColumns(columns, found)

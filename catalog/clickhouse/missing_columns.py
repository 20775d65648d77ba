"""Which stored columns of its table a part has no values of, as the system tables show it.

ClickHouse shows the columns of parts slowly, those of a thousand parts in half a second, and of the
whole table however few are asked for. What a part lacks never changes as long as the columns of the
table do not: so each part is looked at once by a connection.
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
"""Names of parts in one query."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was seen of a table: its stored columns, and what each part lacks of them, by name.

    `contents` tells parts from those that a table of the same name had.
    """

    columns: tuple[str, ...]
    lacks: Mapping[str, tuple[str, ...]]
    contents: dict[str, str] = field(default_factory=dict)

    def knows(self, parts: Iterable[Part]) -> bool:
        """Whether each of the parts was looked at."""
        return all(
            p.name in self.lacks
            and self.contents.setdefault(p.name, p.hash_of_all_files) == p.hash_of_all_files
            for p in parts
        )


_LOOKED: Final[WeakKeyDictionary[Connection, dict[TableName, _Looked]]] = WeakKeyDictionary()


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
    known = _LOOKED.setdefault(connection, {})
    looked = known.get(name)
    if looked is None or looked.columns != columns or not looked.knows(parts):
        looked = known[name] = _look(connection, name, columns)
        looked.knows(parts)
    # A part that has gone meanwhile was merged or dropped, which its caller finds out.
    return tuple(replace(p, lacks=looked.lacks.get(p.name, ())) for p in parts)


def _look(connection: Connection, name: TableName, columns: tuple[str, ...]) -> _Looked:
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
    return _Looked(columns, found)

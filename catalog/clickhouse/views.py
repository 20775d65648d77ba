"""Which table a materialized view writes to, so that whoever names the view is told the table.

It stands behind TO in the view's statement; without a TO ClickHouse made one itself, beside the
view: `.inner_id.UUID` of a view with a UUID, else `.inner.NAME`. Those are tables as any other.
"""

from __future__ import annotations

import re
from typing import Final

from catalog.clickhouse.connection import Connection, texts
from tableformat.errors import UnsupportedError
from tableformat.names import TableName, quote_string, split_identifiers

__all__ = ["ViewError", "written_table"]

_WORD: Final = r"(?:`(?:[^`\\]|\\.|``)+`|\w+)"
_NAME: Final = rf"{_WORD}(?:\.{_WORD})?"
# What may stand before TO, such as a schedule, has no parentheses and no quoted name.
_TO: Final = re.compile(
    rf"\ACREATE MATERIALIZED VIEW {_NAME}(?: [^(`]*?)?? TO (?P<to>{_NAME})(?=[ (]|\Z)"
)


class ViewError(UnsupportedError):
    """A view was named, which has no parts; `target` is the table that it writes to, if known."""

    def __init__(self, message: str, *, code: int | None, target: TableName | None) -> None:
        """Remember the table."""
        super().__init__(message, code=code)
        self.target = target


def written_table(
    connection: Connection, view: TableName, statement: str, uuid: str
) -> TableName | None:
    """Return the table that a materialized view writes to, None when it cannot be told.

    Args:
        connection: the source.
        view: its name.
        statement: its `create_table_query`.
        uuid: its own, '' where there is none.

    Raises:
        SourceError: the source cannot be read.
    """
    found = _TO.match(statement)
    if found is not None:
        *database, table = split_identifiers(found["to"])
        return TableName(database[0] if database else view.database, table)
    names = ", ".join(quote_string(one) for one in (f".inner_id.{uuid}", f".inner.{view.name}"))
    inner = texts(
        connection,
        "SELECT name FROM system.tables"
        f" WHERE database = {quote_string(view.database)} AND name IN ({names})",
    )
    return TableName(view.database, inner[0]) if inner else None

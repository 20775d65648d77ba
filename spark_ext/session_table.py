"""`spark_ext.SessionTable`: a table of a ClickHouse that the caller has open in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from catalog.clickhouse.session import ChdbSession, check_session
from catalog.clickhouse.session_source import find_table, open_session
from catalog.sources import SourcePlace
from spark_ext.sql.session_settings import SourceTable
from tableformat.errors import UsageError
from tableformat.names import split_identifiers

__all__ = ["SessionTable"]

_MOST_PARTS: Final = 2


@dataclass(frozen=True, slots=True)
class SessionTable:
    """A table of an open `chdb.session.Session`, as the source of an export.

    `table` is `database.table`, or a table that the session finds without a database: a temporary
    one, else one of its current database. The session stays open, and as it is.
    """

    session: ChdbSession = field(repr=False)
    table: str

    def __post_init__(self) -> None:
        """Check what was given.

        Raises:
            UsageError: it is no open chdb session, or no name of a table.
        """
        check_session(self.session)
        parts = split_identifiers(self.table)
        if len(parts) > _MOST_PARTS:
            message = (
                f"Cannot read the table {self.table!r} of a session: it has {len(parts)} parts. "
                "Write database.table; the session says which ClickHouse it is."
            )
            raise UsageError(message)

    def named(self) -> SourceTable:
        """Return the table as exports take it.

        Raises:
            UsageError: the session is closed.
            SourceError: it does not answer.
        """
        check_session(self.session)
        found = find_table(self.session, split_identifiers(self.table))
        place = SourcePlace("chdb:session", opened=lambda: open_session(self.session, found))
        return SourceTable(place, found.name)

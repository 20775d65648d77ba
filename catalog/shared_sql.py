"""PyIceberg's catalog in a database that several processes may open for the first time at once."""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

__all__ = ["SharedSqlCatalog"]

_SQLITE: Final = "sqlite"


class SharedSqlCatalog(SqlCatalog):
    """A catalog in a database; whoever opens it first makes its tables, also when two are first."""

    def _init_catalog(self) -> None:
        if self.engine.dialect.name == _SQLITE:
            event.listen(self.engine, "connect", _commit_to_disk)
        super()._init_catalog()

    def create_tables(self) -> None:
        """Make the catalog's own tables.

        Raises:
            SQLAlchemyError: the database refused.
        """
        try:
            super().create_tables()
        except (IntegrityError, OperationalError, ProgrammingError):
            # Of two at once, one finds in its way what the other has made since it looked.
            super().create_tables()


def _commit_to_disk(connection: Any, _entry: object) -> None:
    """Let a commit be on the disk when it returns.

    By default the removal of the journal, which is the commit, is not: a power cut would undo it.
    """
    connection.execute("PRAGMA synchronous = EXTRA")

"""PyIceberg's catalog in a database that several processes may open for the first time at once."""

from __future__ import annotations

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

__all__ = ["SharedSqlCatalog"]


class SharedSqlCatalog(SqlCatalog):
    """A catalog in a database; whoever opens it first makes its tables, also when two are first."""

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

"""The lake tables that a session's system tables tell of: those that its ledger's exports go to.

A table is known by its uuid: one that was dropped, or made anew under the name, is not shown, and
neither is one of a catalog that the session does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from catalog.iceberg import OpenedCatalog
from catalog.storage import open_storage
from spark_ext.sql.catalogs import open_named
from tableformat.committer import LakeTableState
from tableformat.errors import NotFoundError
from tableformat.ledger import Row
from tableformat.names import LakeName
from tableformat.storage import Storage

__all__ = ["KnownLake"]


class KnownLake:
    """Lake tables as they are now, each catalog and each table loaded once."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        """Open nothing yet.

        Args:
            conf: the settings of the session.
        """
        self._conf = conf
        self._catalogs: dict[str, OpenedCatalog | None] = {}
        self._states: dict[LakeName, LakeTableState | None] = {}

    def destination(self, row: Row) -> LakeTableState | None:
        """Return the table that a row's export goes to, None when the session has it not.

        Raises:
            DestinationError: the catalog did not answer.
            UnsupportedError: Spark has the catalog with a setting that cannot be translated.
        """
        name = LakeName.parse(row.destination_table)
        if name not in self._states:
            self._states[name] = self._load(name)
        state = self._states[name]
        if state is None or state.layout.table_uuid != row.key.destination:
            return None
        return state

    def storage(self, row: Row, location: str) -> Storage:
        """Return the storage of a location of the table that a row's export goes to.

        Raises:
            UsageError: its scheme is not served, or nothing says how to reach it.
        """
        catalog = self._catalog(LakeName.parse(row.destination_table).catalog)
        return open_storage(location) if catalog is None else catalog.storages(location)

    def tables(
        self, rows: tuple[Row, ...]
    ) -> Iterator[tuple[LakeName, LakeTableState, tuple[Row, ...]]]:
        """Yield each table that rows go to, by name, with its rows.

        Raises:
            DestinationError: a catalog did not answer.
            UnsupportedError: as above.
        """
        by_name: dict[LakeName, list[Row]] = {}
        for row in rows:
            if self.destination(row) is not None:
                by_name.setdefault(LakeName.parse(row.destination_table), []).append(row)
        for name in sorted(by_name):
            state = self._states[name]
            if state is not None:
                yield name, state, tuple(by_name[name])

    def _load(self, name: LakeName) -> LakeTableState | None:
        catalog = self._catalog(name.catalog)
        table = None if catalog is None else catalog.table(name)
        return None if table is None else table.load()

    def _catalog(self, name: str) -> OpenedCatalog | None:
        if name not in self._catalogs:
            try:
                self._catalogs[name] = open_named(name, self._conf)
            except NotFoundError:
                self._catalogs[name] = None
        return self._catalogs[name]

"""The destinations that the rows of a ledger name, each opened once and only looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from catalog.bounded_rest import TimeOuts
from catalog.hive import OpenedTree
from catalog.iceberg import OpenedCatalog
from spark_ext.cli.destination import open_destination
from tableformat.committer import LakeTableState
from tableformat.errors import TableFormatError
from tableformat.ledger import Row
from tableformat.names import LakeName
from tableformat.storage import Storage

__all__ = ["KnownDestinations"]

# Whoever lists exports is not to wait for a lake that is away: then it is not known how far they
# are.
_TIME_OUTS: Final = TimeOuts(connect=5.0, read=10.0, retry_for=0.0)


class KnownDestinations:
    """A `spark_ext.part_progress.DestinationsOfRows` of the catalogs that a command knows."""

    def __init__(self, warehouse: Path) -> None:
        """Open nothing yet; `warehouse` is the directory of the built-in local catalog."""
        self._warehouse = warehouse
        self._opened: dict[LakeName, OpenedCatalog | OpenedTree] = {}
        self._states: dict[LakeName, LakeTableState | None] = {}
        self._failures: dict[LakeName, TableFormatError] = {}

    def look_again(self) -> None:
        """Ask once more what did not answer; until then it is not asked again for every row."""
        self._failures.clear()

    def destination(self, row: Row) -> LakeTableState | None:
        """Return the table that a row's export goes to, None when it is not there any more.

        Raises:
            NotFoundError: its catalog is not configured here.
            DestinationError: the catalog did not answer.
        """
        name = LakeName.parse(row.destination_table)
        if name in self._failures:
            raise self._failures[name]
        if name not in self._states:
            try:
                table = self._open(name).table(name)
                self._states[name] = None if table is None else table.load()
            except TableFormatError as error:
                self._failures[name] = error
                raise
        state = self._states[name]
        if state is None or state.layout.table_uuid != row.key.destination:
            return None
        return state

    def storage(self, row: Row, location: str) -> Storage:
        """Return the storage of a location of the table that a row's export goes to.

        Raises:
            TableFormatError: as above, or nothing says how to reach it.
        """
        return self._open(LakeName.parse(row.destination_table)).storages(location)

    def _open(self, name: LakeName) -> OpenedCatalog | OpenedTree:
        if name not in self._opened:
            self._opened[name] = open_destination(
                name, warehouse=self._warehouse, time_outs=_TIME_OUTS, looks_only=True
            )
        return self._opened[name]

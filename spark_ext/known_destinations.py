"""The destinations that the rows of a ledger name, each opened once and only looked at.

A table is known by its uuid: one that was dropped, or made anew under the name, is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from catalog.hive import OpenedTree
from catalog.iceberg import OpenedCatalog
from catalog.time_outs import TimeOuts
from tableformat.committer import LakeTableState
from tableformat.errors import TableFormatError
from tableformat.export.resuming import stored_receipts
from tableformat.ledger import Row
from tableformat.names import HiveName, LakeName
from tableformat.receipt import Receipt

__all__ = ["LOOKING", "KnownDestinations"]

T = TypeVar("T")

LOOKING: Final = TimeOuts(connect=5.0, read=10.0, retry_for=0.0)
"""Whoever lists exports is not to wait for a lake that is away: then nobody knows how far they
are."""


class KnownDestinations:
    """A `spark_ext.part_progress.DestinationsOfRows` of the catalogs that somebody knows."""

    def __init__(self, open_lake: Callable[[LakeName], OpenedCatalog | OpenedTree]) -> None:
        """Open nothing yet; `open_lake` opens the catalog that has a destination, or its tree."""
        self._open_lake = open_lake
        self._opened: dict[str | LakeName, OpenedCatalog | OpenedTree] = {}
        self._states: dict[LakeName, LakeTableState | None] = {}
        self._failures: dict[LakeName, TableFormatError] = {}
        self._receipts: dict[str, Receipt] = {}

    def look_again(self) -> None:
        """Ask once more what did not answer; until then it is not asked again for every row."""
        for name in self._failures:
            # A catalog lends credentials with a table that is loaded, and they end.
            self._states.pop(name, None)
        self._failures.clear()

    def destination(self, row: Row) -> LakeTableState | None:
        """Return the table that a row's export goes to, None when it is not there any more.

        Raises:
            NotFoundError: its catalog is not known here.
            DestinationError: the catalog did not answer.
            TableFormatError: it cannot be opened.
        """
        name = LakeName.parse(row.destination_table)
        if name not in self._states:
            self._states[name] = self._answer(name, lambda: self._loaded(name))
        state = self._states[name]
        if state is None or state.layout.table_uuid != row.key.destination:
            return None
        return state

    def receipts(self, row: Row, below: str) -> tuple[Receipt, ...]:
        """Return the receipts below a location of the table that a row's export goes to.

        Raises:
            TableFormatError: as above, or the storage cannot be reached.
        """
        name = LakeName.parse(row.destination_table)
        return self._answer(
            name, lambda: stored_receipts(self._lake(name).storages(below), below, self._receipts)
        )

    def _answer(self, name: LakeName, ask: Callable[[], T]) -> T:
        """Ask about a destination, unless it did not answer before."""
        if name in self._failures:
            raise self._failures[name]
        try:
            return ask()
        except TableFormatError as error:
            self._failures[name] = error
            raise

    def _loaded(self, name: LakeName) -> LakeTableState | None:
        table = self._lake(name).table(name)
        return None if table is None else table.load()

    def _lake(self, name: LakeName) -> OpenedCatalog | OpenedTree:
        place = name if isinstance(name, HiveName) else name.catalog
        if place not in self._opened:
            self._opened[place] = self._open_lake(name)
        return self._opened[place]

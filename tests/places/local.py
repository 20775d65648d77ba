"""A world in a directory: the built-in catalog with its warehouse, and a ledger next to it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.iceberg.catalogs import LOCAL_CATALOG, OpenedCatalog, open_catalog
from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import open_ledger
from catalog.storages.schemes import open_storage
from tableformat.ledger import Ledger
from tableformat.storage import Storage

__all__ = ["LocalPlace"]

_LEDGER: Final = "ledger.db"
_NAMED: Final = "ledger"
_QUERIES: Final = (
    "* FROM rows",
    "* FROM events",
    "* FROM counters",
    "* FROM landed",
    "key, host, pid, start, since FROM leases",
)


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A `tests.places.place.Place` in a directory; the ledger may be elsewhere.

    Where a test has written a file `ledger`, it names the ledger.
    """

    directory: Path

    @property
    def warehouse(self) -> str:
        """Where the lake's files are."""
        return self._warehouse.as_uri()

    @property
    def _warehouse(self) -> Path:
        return self.directory / "warehouse"

    @property
    def ledger_uri(self) -> str:
        """The ledger's own, where none is named."""
        return f"sqlite:{self.directory / _LEDGER}"

    def lake(self) -> OpenedCatalog:
        """Return the catalog."""
        return open_catalog(LOCAL_CATALOG, warehouse=self._warehouse)

    def ledger(self, clock: Callable[[], int]) -> Ledger:
        """Open the ledger; one that is named has a clock of its own."""
        named = self.directory / _NAMED
        if named.exists():
            return open_ledger(named.read_text(), local_warehouse=None)
        return SqliteLedger(self.directory / _LEDGER, clock=clock)

    def storage(self, location: str) -> Storage:
        """Open what a location belongs to."""
        return open_storage(location)

    def dies(self, ledger: Ledger) -> None:
        """Close a ledger: what it has is all in its file."""
        ledger.close()

    def outside(self) -> object:
        """Return files and ledger; one without a row is none."""
        found = {
            (str(path), path.stat().st_size, path.stat().st_mtime_ns)
            for path in self.directory.rglob("*")
            if path.is_file() and not path.name.startswith(_LEDGER)
        }
        return found, _recorded(self.directory / _LEDGER)

    def keep(self) -> object:
        """Copy the directory, next to it."""
        kept = self.directory.with_name(f"{self.directory.name}.kept")
        shutil.copytree(self.directory, kept)
        return kept

    def put_back(self, kept: object) -> None:
        """Recreate the directory: a lake's metadata name their files in full."""
        assert isinstance(kept, Path)
        shutil.rmtree(self.directory)
        shutil.copytree(kept, self.directory)


def _recorded(ledger: Path) -> list[list[tuple[object, ...]]]:
    """Return what a ledger has; one that nobody has made yet has nothing."""
    if not ledger.exists():
        return [[] for _ in _QUERIES]
    with contextlib.closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as database:
        made = bool(database.execute("SELECT 1 FROM sqlite_master").fetchall())
        return [database.execute(f"SELECT {what}").fetchall() if made else [] for what in _QUERIES]

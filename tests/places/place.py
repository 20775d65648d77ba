"""Where a world of the tests is: what opens its lake, its ledger and its files, and puts it back.

A directory stands for a world. It holds one (`local.py`), or a file in it says where the services
are that do (`far.py`); `place_at` of `found.py` tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from catalog.iceberg.catalogs import OpenedCatalog
from tableformat.ledger import Ledger
from tableformat.storage import Storage, StoredObject

__all__ = ["Place", "objects_below"]


class Place(Protocol):
    """Where a lake and a ledger are that outlive the processes which act on them."""

    @property
    def warehouse(self) -> str:
        """The location that all files of the lake are below."""
        ...

    def lake(self) -> OpenedCatalog:
        """Return the catalog, for a new process."""
        ...

    def ledger(self, clock: Callable[[], int]) -> Ledger:
        """Open the ledger, for a new process; `clock` tells milliseconds since 1970."""
        ...

    def storage(self, location: str) -> Storage:
        """Open what a location belongs to."""
        ...

    def dies(self, ledger: Ledger) -> None:
        """Let a process die that has a ledger open: others find what it leaves for the moment."""
        ...

    def outside(self) -> object:
        """Return what there is, to compare.

        Left out: when a lease ends, which its holder moves between effects.
        """
        ...

    def keep(self) -> object:
        """Return all there is, for `put_back`. Who died until now did long ago."""
        ...

    def put_back(self, kept: object) -> None:
        """Let there be what was kept, at the same locations, and nothing else."""
        ...


def objects_below(storage: Storage, location: str) -> tuple[StoredObject, ...]:
    """Return what lies below a location: finished, and begun."""
    return (*storage.list(location), *storage.list_unfinished(location))

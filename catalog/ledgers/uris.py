"""Opens a ledger by what stands after --ledger: `sqlite:PATH`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from catalog.ledgers.embedded import SqliteLedger
from tableformat.errors import UnsupportedError, UsageError
from tableformat.ledger import Ledger

__all__ = ["LEDGER_FILE", "open_ledger"]

LEDGER_FILE: Final = "mergeberg-ledger.db"
"""The default ledger's name, beside a local warehouse."""


def open_ledger(uri: str | None, *, local_warehouse: Path | None) -> Ledger:
    """Open a ledger.

    Args:
        uri: `sqlite:PATH`, or None for the default beside a local warehouse.
        local_warehouse: the warehouse's directory when it is the built-in local catalog.

    Raises:
        UsageError: no ledger was named and the warehouse has no place beside it, or the path is
            empty.
        UnsupportedError: another kind of ledger.
        LedgerError: it cannot be opened.
    """
    if uri is None:
        if local_warehouse is None:
            message = (
                "Cannot choose a ledger: the warehouse is not a local directory, so there is no "
                "place beside it. Say where it is, for example --ledger "
                "sqlite:/var/lib/mergeberg/ledger.db, the same in every run."
            )
            raise UsageError(message)
        return SqliteLedger(local_warehouse / LEDGER_FILE)
    kind, _, path = uri.partition(":")
    if kind != "sqlite":
        message = (
            f"Cannot open the ledger {uri!r}: this release knows sqlite:PATH only. Give a local "
            "file."
        )
        raise UnsupportedError(message)
    if not path:
        message = "Cannot open the ledger 'sqlite:': it names no file. Write sqlite:PATH."
        raise UsageError(message)
    return SqliteLedger(Path(path.removeprefix("//")))

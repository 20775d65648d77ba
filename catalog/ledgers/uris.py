"""Opens a ledger by what stands after --ledger: `sqlite:PATH` or `keeper://HOST[:PORT]/CHROOT`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from catalog.ledgers.embedded import SqliteLedger
from catalog.ledgers.keeper.address import is_keeper, parse_keeper
from catalog.network import without_secret
from tableformat.errors import NotFoundError, UnsupportedError, UsageError
from tableformat.ledger import Ledger

__all__ = ["LEDGER_FILE", "ledger_warnings", "open_known_ledger", "open_ledger"]

LEDGER_FILE: Final = "mergeberg-ledger.db"
"""The default ledger's name, beside a local warehouse."""


def open_ledger(uri: str | None, *, local_warehouse: Path | None) -> Ledger:
    """Open a ledger.

    Args:
        uri: `sqlite:PATH`, `keeper://...` (keeper/address.py), or None for the default beside a
            local warehouse.
        local_warehouse: the warehouse's directory when it is the built-in local catalog.

    Raises:
        UsageError: no ledger was named and the warehouse has no place beside it; the path is empty,
            or the address malformed.
        UnsupportedError: another kind of ledger, or kazoo is not installed.
        RefusedError: the address is not over TLS, and that is not allowed.
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
    if is_keeper(uri):
        return _in_keeper(uri)
    kind, _, path = uri.partition(":")
    if kind != "sqlite":
        message = (
            f"Cannot open the ledger {without_secret(uri)!r}: this release knows sqlite:PATH and "
            "keeper://HOST[:PORT][/CHROOT]. Give one of them."
        )
        raise UnsupportedError(message)
    if not path:
        message = "Cannot open the ledger 'sqlite:': it names no file. Write sqlite:PATH."
        raise UsageError(message)
    return SqliteLedger(Path(path.removeprefix("//")))


def open_known_ledger(uri: str | None, what: str, *, local_warehouse: Path | None) -> Ledger:
    """Open a ledger that has to be there, for what only looks at what was exported.

    Args:
        uri: as for `open_ledger`.
        what: cannot be done when there is none, e.g. "list exports".
        local_warehouse: as for `open_ledger`.

    Raises:
        NotFoundError: there is none.
        TableFormatError: as of `open_ledger`.
    """
    ledger = open_ledger(uri, local_warehouse=local_warehouse)
    with contextlib.ExitStack() as unless_made:
        unless_made.callback(ledger.close)
        if ledger.is_made():
            unless_made.pop_all()
            return ledger
    message = (
        f"Cannot {what}: there is no ledger at {without_secret(ledger.uri)}. Check --warehouse and "
        "--ledger; the first export makes one, and one that is lost is made again by "
        "`mergeberg exports rebuild`."
    )
    raise NotFoundError(message)


def ledger_warnings(uri: str | None) -> tuple[str, ...]:
    """Return sentences for the user about how a ledger that `open_ledger` opens is spoken to."""
    is_there = uri is not None and is_keeper(uri)
    return parse_keeper(uri, environment=os.environ).warnings if is_there and uri else ()


def _in_keeper(uri: str) -> Ledger:
    address = parse_keeper(uri, environment=os.environ)
    try:
        from catalog.ledgers.keeper import KeeperLedger
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "kazoo":
            raise
        message = (
            f"Cannot open the ledger {address.shown}: kazoo is not installed. Run: pip install "
            "'mergeberg[keeper]'."
        )
        raise UnsupportedError(message) from error
    return KeeperLedger(address)

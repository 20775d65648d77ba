"""Opens a ledger by the value of --ledger: `sqlite:PATH` or `keeper://HOST[:PORT]/CHROOT`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from catalog.ledgers.keeper.address import is_keeper, parse_keeper
from catalog.ledgers.sqlite import SqliteLedger
from catalog.network import shown_address, without_secret
from tableformat.errors import NotFoundError, UnsupportedError, UsageError
from tableformat.ledger import Ledger
from tableformat.messages import Command, Option

__all__ = ["LEDGER_FILE", "ledger_warnings", "open_known_ledger", "open_ledger"]

LEDGER_FILE: Final = "mergeberg-ledger.db"
"""The default ledger's file name, in the directory of a local warehouse."""


def open_ledger(uri: str | None, *, local_warehouse: Path | None) -> Ledger:
    """Open a ledger.

    Args:
        uri: `sqlite:PATH`, `keeper://...` (keeper/address.py), or None for the default file in a
            local warehouse.
        local_warehouse: the directory of the built-in local catalog's warehouse, else None.

    Raises:
        UsageError: there is neither a URI nor a local warehouse; the path is empty; or the address
            is malformed.
        UnsupportedError: the scheme is unknown, or kazoo is not installed.
        RefusedError: the address is not over TLS, and that is not allowed.
        LedgerError: the ledger cannot be opened.
    """
    if uri is None:
        if local_warehouse is None:
            message = (
                "Cannot choose a ledger: the warehouse is not a local directory, so the ledger has "
                f"no default place. Name it, for example {Option.LEDGER} "
                "sqlite:/var/lib/mergeberg/ledger.db, the same in every run."
            )
            raise UsageError(message)
        return SqliteLedger(local_warehouse / LEDGER_FILE)
    if is_keeper(uri):
        return _in_keeper(uri)
    kind, _, path = uri.partition(":")
    if kind != "sqlite":
        message = (
            f"Cannot open the ledger {shown_address(uri)!r}: this release knows sqlite:PATH and "
            "keeper://HOST[:PORT][/CHROOT]. Give one of them."
        )
        raise UnsupportedError(message)
    if not path:
        message = "Cannot open the ledger 'sqlite:': it names no file. Write sqlite:PATH."
        raise UsageError(message)
    return SqliteLedger(Path(path.removeprefix("//")))


def open_known_ledger(uri: str | None, what: str, *, local_warehouse: Path | None) -> Ledger:
    """Open a ledger that must exist, for commands that only read it.

    Args:
        uri: as for `open_ledger`.
        what: the action as it follows "Cannot " in the message, e.g. "list exports".
        local_warehouse: as for `open_ledger`.

    Raises:
        NotFoundError: the ledger does not exist.
        TableFormatError: as for `open_ledger`.
    """
    ledger = open_ledger(uri, local_warehouse=local_warehouse)
    with contextlib.ExitStack() as unless_made:
        unless_made.callback(ledger.close)
        if ledger.is_made():
            unless_made.pop_all()
            return ledger
    message = (
        f"Cannot {what}: there is no ledger at {without_secret(ledger.uri)}. Check "
        f"{Option.WAREHOUSE} and {Option.LEDGER}; the first export creates one, and "
        f"{Command.REBUILD} recreates a lost one."
    )
    raise NotFoundError(message)


def ledger_warnings(uri: str | None) -> tuple[str, ...]:
    """Return warnings for the user about the connection to a ledger."""
    is_there = uri is not None and is_keeper(uri)
    return parse_keeper(uri, environment=os.environ).warnings if is_there and uri else ()


def _in_keeper(uri: str) -> Ledger:
    address = parse_keeper(uri, environment=os.environ)
    try:
        from catalog.ledgers.keeper.ledger import KeeperLedger
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "kazoo":
            raise
        message = (
            f"Cannot open the ledger {address.shown}: kazoo is not installed. Run: pip install "
            "'mergeberg[keeper]'."
        )
        raise UnsupportedError(message) from error
    return KeeperLedger(address)

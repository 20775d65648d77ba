"""Ledgers that cannot be used, and what a command says of them (docs/reference/errors.md)."""

from __future__ import annotations

import contextlib
import sqlite3
from functools import partial

import pytest

from catalog.ledgers import sqlite as file_systems
from catalog.ledgers import uris
from catalog.ledgers.sqlite import SqliteLedger
from tableformat.ledger import Claim, Key, Owner, Row, State
from tests.support.errors_page import Refusal, refusal_of
from tests.wrong.places import Places

__all__ = [
    "damaged_row",
    "forget_running",
    "locked_ledger",
    "network_ledger",
    "no_ledger_file",
    "other_format",
]


def network_ledger(_: Places, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    patch.setattr(file_systems, "_file_system", lambda *_: "nfs4")
    return ("export", "db.events", "--all", "--to", "lake.n.new")


def no_ledger_file(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    file = places.root / "notes.txt"
    file.write_text("no ledger" * 1000)
    ledger = ("--ledger", f"sqlite:{file}")
    return ("export", "db.events", "--all", *ledger, "--to", "lake.n.new")


def other_format(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    return ("exports", "list", "--ledger", _ledger(places, "UPDATE ledger SET format = 99"))


def damaged_row(places: Places, _: pytest.MonkeyPatch) -> tuple[str, ...]:
    damage = "UPDATE rows SET body = replace(body, 'RUNNING', 'COMPLETED')"
    return ("exports", "list", "--ledger", _ledger(places, damage))


def _ledger(places: Places, damage: str) -> str:
    """Make a ledger with a row, and damage it."""
    file = places.root / "damaged.db"
    file.unlink(missing_ok=True)
    with contextlib.closing(SqliteLedger(file)) as ledger:
        ledger.write(
            Row(Key("s", "1", "d"), "db.t", "l.n.t", State.RUNNING, Claim(1, "7", "f", 1), 1, 1)
        )
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(damage)
    return f"sqlite:{file}"


def locked_ledger(places: Places, patch: pytest.MonkeyPatch) -> Refusal:
    patch.setattr(uris, "SqliteLedger", partial(SqliteLedger, busy_seconds=0.05))
    file = places.root / "locked.db"
    SqliteLedger(file).next_epoch()
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        return refusal_of(places, ("exports", "list", "--ledger", f"sqlite:{file}"))


def forget_running(places: Places, _: pytest.MonkeyPatch) -> Refusal:
    words = ("export", "db.events", "--partition-id", "202401", "--to", "lake.n.running")
    places.run(*words)
    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        (row,) = (r for r in ledger.rows() if r.destination_table == "lake.n.running")
        ledger.take_lease(row.key.hash, Owner("other-host", 7, "1"), 60.0)
    forget = ("exports", "forget", "202401", "--table", "db.events")
    return refusal_of(places, (*forget, "--to", "lake.n.running"))

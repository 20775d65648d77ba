"""A ledger file that this user may only read is readable at any moment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.ledgers import sqlite as file_ledger
from catalog.ledgers.sqlite import SqliteLedger
from tableformat.errors import LedgerError
from tableformat.history import Event, EventKind
from tableformat.ledger import Claim, Key, Lease, Owner, Row, State
from tests.support.another_user import as_another_user, open_to_others

ROW = Row(Key("s", "202401", "d"), "db.t", "lake.n.t", State.RUNNING, Claim(1, "7", "f", 1), 1, 1)
EVENT = Event(1, EventKind.EXPORT_PARTITION, "db.t", "lake.n.t", "202401", "", "committed")
OWNER = Owner("host", 1, "now")


@pytest.fixture
def path() -> Iterator[Path]:
    """Return where a ledger is that others may read."""
    with open_to_others() as shared:
        directory = shared / "ledger"
        directory.mkdir()
        yield directory / "ledger.db"
        directory.chmod(0o755)


@contextlib.contextmanager
def reader(path: Path) -> Iterator[SqliteLedger]:
    """Open the ledger as a user who may write neither the file nor its directory."""
    own = path.parent.with_name("own")
    own.mkdir()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    with as_another_user(own), contextlib.closing(SqliteLedger(path)) as ledger:
        yield ledger
    path.parent.chmod(0o755)
    path.chmod(0o644)


def filled(path: Path) -> SqliteLedger:
    ledger = SqliteLedger(path)
    ledger.write(ROW)
    ledger.note((EVENT,))
    assert isinstance(ledger.take_lease(ROW.key.hash, OWNER, 600), Lease)
    ledger.next_epoch()
    return ledger


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_everything_can_be_read(path: Path, *, is_open: bool) -> None:
    """Harm prevented: reading requires the right to write."""
    written = filled(path)
    if not is_open:
        written.close()
    before = sorted(p.name for p in path.parent.iterdir())

    with reader(path) as ledger:
        (row,) = ledger.rows()
        assert (row.version, row.source_table) == (1, "db.t")
        assert ledger.read(ROW.key.hash) == row
        assert ledger.events(None, 10) == (EVENT,)
        assert (ledger.highest_epoch(), ledger.highest_landed("d")) == (1, 0)
        held = ledger.holder(ROW.key.hash)
        assert (ledger.is_made(), held is not None and held.owner) == (True, OWNER)
        assert set(ledger.counters()) >= {"Export"}
        identity = ledger.identity

    assert sorted(p.name for p in path.parent.iterdir()) == before
    assert identity == written.identity
    written.close()


def test_nothing_can_be_written_and_the_error_says_so(path: Path) -> None:
    filled(path).close()
    with reader(path) as ledger:
        for write in (
            lambda: ledger.write(ROW),
            ledger.next_epoch,
            lambda: ledger.take_lease("k", OWNER, 60),
            lambda: ledger.note((EVENT,)),
        ):
            with pytest.raises(LedgerError, match="this user may only read it"):
                write()


def test_what_is_written_meanwhile_is_seen_by_the_next_look(path: Path) -> None:
    """Harm prevented: `exports list --watch` shows its first state for ever."""
    filled(path).close()
    with reader(path) as ledger:
        assert ledger.highest_epoch() == 1
        _as_owner(path)
        assert ledger.highest_epoch() == 2


def test_a_file_that_changes_while_it_is_read_is_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: pages of two states of the file are read as one."""
    filled(path).close()
    copied, copies = file_ledger._copy_in_memory, list[int]()

    def once(at: Path) -> object:
        copy = copied(at)
        if not copies:
            _as_owner(path)
        copies.append(1)
        return copy

    with reader(path) as ledger:
        monkeypatch.setattr(file_ledger, "_copy_in_memory", once)
        assert ledger.highest_epoch() == 2
    assert len(copies) == 2


def _as_owner(path: Path) -> None:
    """Draw an epoch as the user who may write the file."""
    user, group = os.geteuid(), os.getegid()
    if not os.getuid():
        os.seteuid(0)
        os.setegid(0)
    path.parent.chmod(0o755)
    path.chmod(0o644)
    with contextlib.closing(SqliteLedger(path)) as ledger:
        ledger.next_epoch()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    os.setegid(group)
    os.seteuid(user)

"""What only a ledger in a file can get wrong: formats, other files, network disks, processes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.ledgers.embedded import SqliteLedger
from tableformat.errors import LedgerError, RefusedError
from tableformat.ledger import Claim, Key, Row, Stale, State

_ROW = Row(Key("s", "202401", "d"), "db.t", "lake.n.t", State.RUNNING, Claim(1, "7", "f", 1), 1, 1)


def test_a_ledger_keeps_its_identity_and_rows_when_it_is_opened_again(tmp_path: Path) -> None:
    """Harm prevented: an export that is forgotten is exported twice."""
    first = SqliteLedger(tmp_path / "deep" / "ledger.db")
    written = first.write(_ROW)
    first.close()

    again = SqliteLedger(tmp_path / "deep" / "ledger.db")

    assert again.identity == first.identity
    assert again.read(_ROW.key.hash) == written
    assert written == replace(_ROW, version=1)


def test_an_emptied_ledger_has_another_identity(tmp_path: Path) -> None:
    """Harm prevented: an emptied ledger is trusted by the table that it does not know."""
    path = tmp_path / "ledger.db"
    first = SqliteLedger(path)
    identity = first.identity
    first.close()
    path.unlink()

    assert SqliteLedger(path).identity != identity


def test_a_ledger_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    """Harm prevented: an older release misreads what a newer one wrote."""
    path = tmp_path / "ledger.db"
    SqliteLedger(path).next_epoch()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE ledger SET format = 99")

    with pytest.raises(LedgerError, match="format 99, this release reads 2"):
        SqliteLedger(path)


def test_reading_never_makes_a_ledger(tmp_path: Path) -> None:
    """Harm prevented: a mistyped --ledger leaves an empty ledger behind."""
    path = tmp_path / "deep" / "ledger.db"
    ledger = SqliteLedger(path)

    assert (ledger.is_made(), ledger.highest_epoch(), list(ledger.rows())) == (False, 0, [])
    assert ledger.read(_ROW.key.hash) is None
    assert ledger.holder(_ROW.key.hash) is None
    assert not path.parent.exists()
    assert ledger.identity
    assert ledger.is_made()
    assert path.exists()


def test_a_row_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    """Harm prevented: a field of a newer release is dropped silently."""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.write(_ROW)
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        body = json.loads(db.execute("SELECT body FROM rows").fetchone()[0])
        db.execute("UPDATE rows SET body = ?", (json.dumps({**body, "format_version": 7}),))

    with pytest.raises(LedgerError, match="row of format 7"):
        ledger.read(_ROW.key.hash)


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    """Harm prevented: somebody's file is overwritten."""
    path = tmp_path / "notes.txt"
    path.write_text("these are not the rows you are looking for" * 100)

    with pytest.raises(LedgerError, match="Cannot open the ledger"):
        SqliteLedger(path)

    assert path.read_text().startswith("these are not")


def test_a_ledger_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    """Harm prevented: file locks that do not lock let two exports claim one key."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")

    with pytest.raises(RefusedError, match=r"network file system \(nfs4\)"):
        SqliteLedger(tmp_path / "ledger.db", mounts=mounts)

    assert not (tmp_path / "ledger.db").exists()


def test_of_many_processes_one_claims_a_row(tmp_path: Path) -> None:
    """Harm prevented: two exports of one key both believe that they own it."""
    SqliteLedger(tmp_path / "ledger.db").close()
    code = (
        "import sys; from pathlib import Path; from catalog.ledgers.embedded import SqliteLedger;"
        "from tableformat.ledger import *;"
        "ledger = SqliteLedger(Path(sys.argv[1])); epoch = ledger.next_epoch();"
        "row = Row(Key('s', '1', 'd'), 'a', 'b', State.RUNNING, Claim(epoch, '7', 'f', 1), 1, 1);"
        "print(epoch, not isinstance(ledger.write(row), Stale))"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "ledger.db")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    answers = [child.communicate()[0].split() for child in children]

    assert sorted(int(epoch) for epoch, _ in answers) == [1, 2, 3, 4, 5, 6]
    assert [won for _, won in answers].count("True") == 1
    assert isinstance(
        SqliteLedger(tmp_path / "ledger.db").write(replace(_ROW, key=Key("s", "1", "d"))),
        Stale,
    )

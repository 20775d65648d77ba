"""Risks of a ledger in a file: formats, other files, network disks, processes."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.ledgers import sqlite as file_systems
from catalog.ledgers.sqlite import LEDGER_FORMAT, SqliteLedger, network_file_system
from catalog.processes import this_process
from tableformat.errors import LedgerError, RefusedError
from tableformat.history import RUNNING_EXPORTS, Counter, Event, EventKind
from tableformat.ledger import Claim, Key, Lease, Row, Stale, State
from tableformat.ledger_text import ROW_FORMAT, manifest, render_row

EVENT = Event(
    1, EventKind.EXPORT_PARTITION, "db.t", "lake.n.t", "202401", "", "committed",
    counter=Counter.EXPORTS, parts=2,
)  # fmt: skip
_ROW = Row(Key("s", "202401", "d"), "db.t", "lake.n.t", State.RUNNING, Claim(1, "7", "f", 1), 1, 1)


def change(path: Path, sql: str, *values: object) -> None:
    """Change the file without the ledger."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(sql, values)


def test_a_ledger_keeps_its_identity_and_rows_when_it_is_opened_again(tmp_path: Path) -> None:
    """Harm prevented: an export that is forgotten is exported twice."""
    first = SqliteLedger(tmp_path / "deep" / "ledger.db")
    written = first.write(_ROW)
    first.close()

    again = SqliteLedger(tmp_path / "deep" / "ledger.db")

    assert again.identity == first.identity
    assert again.read(_ROW.key.hash) == written
    assert written == replace(_ROW, version=1)


def test_an_export_whose_process_was_killed_runs_no_more(tmp_path: Path) -> None:
    """Harm prevented: an alarm on the load of exports, for a minute after each that died."""
    code = "from catalog.processes import this_process as p; print(p().pid, p().start)"
    pid, start = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    me = this_process()
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.write(replace(_ROW, claim=replace(_ROW.claim, recipe="r")))
    key = _ROW.key.hash

    assert isinstance(ledger.take_lease(key, replace(me, pid=int(pid), start=start), 60), Lease)
    assert ledger.counters()[RUNNING_EXPORTS] == 0
    holder = ledger.holder(key)
    assert holder is not None
    assert isinstance(ledger.take_lease(key, me, 60, instead_of=holder.owner), Lease)
    assert ledger.counters()[RUNNING_EXPORTS] == 1


def test_an_emptied_ledger_has_another_identity(tmp_path: Path) -> None:
    """Harm prevented: an emptied ledger is trusted by the table that it does not know."""
    path = tmp_path / "ledger.db"
    first = SqliteLedger(path)
    identity = first.identity
    first.close()
    path.unlink()

    assert SqliteLedger(path).identity != identity


@pytest.mark.parametrize("found", [1, LEDGER_FORMAT - 2, 99])
def test_a_ledger_of_another_format_is_refused_by_name(tmp_path: Path, found: int) -> None:
    """Harm prevented: a release misreads a ledger of an older or newer one."""
    path = tmp_path / "ledger.db"
    SqliteLedger(path).next_epoch()
    change(path, "UPDATE ledger SET format = ?", found)

    with pytest.raises(LedgerError, match=f"format {found}, this release reads {LEDGER_FORMAT}"):
        SqliteLedger(path)


def manifests_in(path: Path) -> dict[str, str]:
    """Return the documents that the file has, by key."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT key, body FROM manifests").fetchall())


def test_the_manifest_is_stored_and_removed_with_the_row(tmp_path: Path) -> None:
    """As it is printed, so that people and tools find the layout in the file itself."""
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    first = ledger.write(_ROW)
    assert isinstance(first, Row)
    assert manifests_in(path) == {_ROW.key.hash: manifest(_ROW)}
    assert isinstance(ledger.write(replace(_ROW, last_error="of another")), Stale)
    assert manifests_in(path) == {_ROW.key.hash: manifest(_ROW)}

    second = ledger.write(replace(first, last_error="it failed"))

    assert isinstance(second, Row)
    assert manifests_in(path) == {_ROW.key.hash: manifest(second)}
    assert ledger.remove(second) is None
    assert manifests_in(path) == {}


def test_a_ledger_of_the_format_before_gets_the_manifests_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    written = ledger.write(_ROW)
    ledger.close()
    change(path, "DROP TABLE manifests")
    change(path, "UPDATE ledger SET format = ?", LEDGER_FORMAT - 1)

    again = SqliteLedger(path)

    assert again.read(_ROW.key.hash) == written
    assert manifests_in(path) == {_ROW.key.hash: manifest(_ROW)}


def test_a_ledger_that_a_newer_release_takes_over_is_not_written_any_more(tmp_path: Path) -> None:
    """Harm prevented: two releases that have the file open write rows the other misreads."""
    path = tmp_path / "ledger.db"
    ours = SqliteLedger(path)
    written = ours.write(_ROW)
    assert isinstance(written, Row)
    change(path, "UPDATE ledger SET format = 99")

    with pytest.raises(LedgerError, match="it has format 99"):
        ours.write(replace(written, last_error="too late"))
    with pytest.raises(LedgerError, match="it has format 99"):
        ours.read(_ROW.key.hash)

    change(path, "UPDATE ledger SET format = ?", LEDGER_FORMAT)
    assert ours.read(_ROW.key.hash) == written


def test_reading_never_makes_a_ledger(tmp_path: Path) -> None:
    """Harm prevented: a mistyped --ledger creates an empty ledger."""
    path = tmp_path / "deep" / "ledger.db"
    ledger = SqliteLedger(path)

    assert (ledger.is_made(), ledger.highest_epoch(), list(ledger.rows())) == (False, 0, [])
    assert ledger.read(_ROW.key.hash) is None
    assert ledger.holder(_ROW.key.hash) is None
    assert (ledger.events(None, 10), set(ledger.counters().values())) == ((), {0})
    assert not path.parent.exists()
    assert ledger.identity
    assert ledger.is_made()
    assert path.exists()


@pytest.mark.parametrize("found", [1, ROW_FORMAT - 12, ROW_FORMAT + 1, 99])
def test_a_row_of_another_format_is_refused_by_name(tmp_path: Path, found: int) -> None:
    """Harm prevented: a field of another release is dropped silently, or made up."""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.write(_ROW)
    body = {**json.loads(render_row(_ROW)), "format_version": found}
    change(tmp_path / "ledger.db", "UPDATE rows SET body = ?", json.dumps(body))

    with pytest.raises(LedgerError, match=f"{_ROW.key.hash} of the ledger .* format {found}"):
        ledger.read(_ROW.key.hash)


@pytest.mark.parametrize(
    ("state", "damaged"),
    [
        ("a state", '"state":"COMPLETED"'),
        ("a member that is gone", ""),
        ("no JSON", '"state":'),
        ("another kind of value", '"state":7'),
    ],
)
def test_a_damaged_row_is_refused_and_never_read_as_another_state(
    tmp_path: Path, state: str, damaged: str
) -> None:
    """Harm prevented: a flipped bit turns into COMPLETED, and rows are lost or doubled."""
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    ledger.write(_ROW)
    member = '"state":"RUNNING"' if damaged else '"state":"RUNNING",'
    body = render_row(_ROW)
    assert member in body, state
    change(path, "UPDATE rows SET body = ?", body.replace(member, damaged))

    with pytest.raises(LedgerError, match=f"Cannot read the row {_ROW.key.hash} of the ledger"):
        ledger.read(_ROW.key.hash)
    with pytest.raises(LedgerError, match="damaged; restore it from a copy"):
        list(ledger.rows())


def test_a_row_under_the_name_of_another_key_is_refused(tmp_path: Path) -> None:
    """Harm prevented: one partition's record is used for another."""
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    ledger.write(_ROW)
    other = Key("s", "202402", "d")
    change(path, "UPDATE rows SET key = ?", other.hash)

    with pytest.raises(LedgerError, match=f"it holds the row of another key, {_ROW.key.hash}"):
        ledger.read(other.hash)


def test_a_damaged_event_is_refused_by_name_and_exports_continue(tmp_path: Path) -> None:
    """Harm prevented: an unreadable log stops exports, or shows false events."""
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    ledger.note((EVENT,))
    change(path, "UPDATE events SET body = '{}'")

    with pytest.raises(LedgerError, match="Cannot read an event of the ledger"):
        ledger.events(None, 10)
    assert isinstance(ledger.write(_ROW), Row)


def test_rows_wait_for_the_disk_also_after_an_event_that_did_not(tmp_path: Path) -> None:
    """Harm prevented: a claim that a power cut undoes, because a line of a log was in a hurry."""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.note((EVENT,))
    assert ledger._db is not None
    assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)

    change(tmp_path / "ledger.db", "DROP TABLE events")
    with pytest.raises(LedgerError, match="no such table: events"):
        ledger.note((EVENT,))
    assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_locked_ledger_names_the_process_to_look_for(tmp_path: Path) -> None:
    """Harm prevented: an export waits for ever, or reports a busy ledger as damaged."""
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path, busy_seconds=0.05)
    ledger.write(_ROW)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(LedgerError, match=r"another process has had it locked for 0\.05 s. Run"):
        ledger.read(_ROW.key.hash)
    with pytest.raises(LedgerError, match=r"Cannot open the ledger .* another process"):
        SqliteLedger(path, busy_seconds=0.05)

    other.execute("ROLLBACK")
    other.close()
    assert ledger.read(_ROW.key.hash) is not None


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    """Harm prevented: a user's file is overwritten."""
    path = tmp_path / "notes.txt"
    path.write_text("these are not the rows you are looking for" * 100)

    with pytest.raises(LedgerError, match="Cannot open the ledger"):
        SqliteLedger(path)

    assert path.read_text().startswith("these are not")


@pytest.mark.parametrize("kind", ["nfs4", "fuse.gcsfuse", "fuse.mount-s3", "virtiofs", "9p"])
def test_a_ledger_on_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    """Harm prevented: file locks that do not lock let two exports claim one key."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} {kind} rw 0 0\n")

    with pytest.raises(RefusedError, match=rf"network file system \({kind}\)"):
        SqliteLedger(tmp_path / "ledger.db", mounts=mounts)

    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize("kind", ["smbfs", "nfs", "apfs"])
def test_without_a_mount_table_the_program_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Harm prevented: on macOS a ledger on a share, whose locks do not keep two exports apart."""
    program = tmp_path / "mount"
    program.write_text(
        f"""#!/bin/sh
echo '/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)'
echo '//me@nas/a share on {tmp_path}/a share ({kind}, nodev, nosuid, mounted by me)'
echo 'map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)'
"""
    )
    program.chmod(0o700)
    monkeypatch.setattr(file_systems, "_MOUNT_PROGRAM", program)
    shared, local = tmp_path / "a share" / "ledger.db", tmp_path / "b" / "ledger.db"
    none = tmp_path / "no-mounts"

    assert network_file_system(shared, none) == ("" if kind == "apfs" else kind)
    assert network_file_system(local, none) == ""


def test_without_a_list_of_mounts_the_ledger_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems, "_MOUNT_PROGRAM", tmp_path / "no-program")

    with contextlib.closing(SqliteLedger(tmp_path / "l.db", mounts=tmp_path / "none")) as ledger:
        assert ledger.identity


def test_of_many_processes_one_claims_a_row_and_all_are_counted(tmp_path: Path) -> None:
    """Harm prevented: two exports of one key both believe that they own it; counts get lost."""
    SqliteLedger(tmp_path / "ledger.db").close()
    code = (
        "import sys; from pathlib import Path; from catalog.ledgers.sqlite import SqliteLedger;"
        "from tableformat.ledger import *; from tableformat.history import *;"
        "ledger = SqliteLedger(Path(sys.argv[1])); epoch = ledger.next_epoch();"
        "row = Row(Key('s', '1', 'd'), 'a', 'b', State.RUNNING, Claim(epoch, '7', 'f', 1), 1, 1);"
        "print(epoch, not isinstance(ledger.write(row), Stale));"
        "event = Event(epoch, EventKind.EXPORT_PARTITION, 't', 'd', '1', '', 'committed',"
        " counter=Counter.EXPORTS, parts=2); [ledger.note((event,)) for _ in range(5)]"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "ledger.db")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    outputs = [child.communicate()[0].split() for child in children]

    assert sorted(int(epoch) for epoch, _ in outputs) == [1, 2, 3, 4, 5, 6]
    assert [won for _, won in outputs].count("True") == 1
    assert isinstance(
        SqliteLedger(tmp_path / "ledger.db").write(replace(_ROW, key=Key("s", "1", "d"))),
        Stale,
    )
    ledger = SqliteLedger(tmp_path / "ledger.db")
    assert ledger.counters()[Counter.EXPORTS] == 6 * 5 * 2
    assert len(ledger.events(None, 100)) == 6 * 5

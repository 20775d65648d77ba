"""`mergeberg gc`: what the person who cleans up sees, and what stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.export.slices import SliceTask, WritePlan
from tests.wrong.places import Places

JANUARY = ("export", "db.events", "--partition-id", "202401")


def gc(places: Places, name: str, *words: str) -> tuple[int, str, str]:
    return places.run("gc", "--to", f"lake.n.{name}", "--warehouse", str(places.warehouse), *words)


def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
    raise KeyboardInterrupt


def interrupted(places: Places, name: str) -> Path:
    """Leave an export that did not end, with a finished file; return that."""
    places.before = interrupt
    places.run(*JANUARY, "--to", f"lake.n.{name}")
    places.before = lambda *_: None
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    (row,) = (r for r in ledger.rows() if r.destination_table == f"lake.n.{name}")
    data = places.warehouse / "n" / name / "data"
    data.mkdir()
    file = data / f"{row.key.hash}-{row.claim.transaction_id}-0-x.parquet"
    file.write_bytes(b"rows")
    return file


def cancelled(places: Places, name: str) -> Path:
    """Leave an export that was cancelled, and a file that its worker finished afterwards."""
    file = interrupted(places, name)
    words = ("--table", "db.events", "--to", f"lake.n.{name}")
    assert places.run("exports", "cancel", "202401", *words)[0] == 0
    assert not file.exists()
    file.write_bytes(b"rows")
    return file


def test_without_yes_garbage_is_listed_and_nothing_is_removed(places: Places) -> None:
    """Harm prevented: somebody who only looks loses files."""
    file = cancelled(places, "looked")

    code, out, _ = gc(places, "looked")

    assert code == 0
    assert str(file) in out
    assert "its export was given up (KILLED)" in out
    assert out.endswith("1 leftover (4 B) can be deleted; 0 kept. Run again with --yes.\n")
    assert file.exists()


def test_with_yes_it_goes_and_then_nothing_is_left(places: Places) -> None:
    """Nothing unexplained stays behind."""
    file = cancelled(places, "cleaned")

    code, out, _ = gc(places, "cleaned", "--yes")

    assert (code, out.endswith("removed 1 leftover, 4 B; 0 kept\n")) == (0, True)
    assert not file.exists()
    assert gc(places, "cleaned") == (0, "nothing to remove, 0 kept\n", "")


def test_what_was_dropped_is_deleted_after_the_age_that_is_given(places: Places) -> None:
    """As ClickHouse does by itself; listed first, and nothing is removed without a request."""
    assert places.run(*JANUARY, "--to", "lake.n.dropped")[0] == 0
    dropped = ("drop", "lake.n.dropped", "--partition-id", "202401", "--yes")
    assert places.run(*dropped, "--warehouse", str(places.warehouse))[0] == 0
    files = set((places.warehouse / "n" / "dropped").rglob("*.parquet"))
    assert files

    assert gc(places, "dropped", "--expire-dropped", "1h", "--yes")[1].startswith("nothing")
    code, out, _ = gc(places, "dropped", "--expire-dropped", "0s")
    assert (code, "which DROP PARTITION ID '202401' dropped" in out) == (0, True)
    assert set((places.warehouse / "n" / "dropped").rglob("*.parquet")) == files
    assert gc(places, "dropped", "--expire-dropped", "0s", "--yes")[0] == 0

    assert not set((places.warehouse / "n" / "dropped").rglob("*.parquet"))


@pytest.mark.parametrize("where", [("--to", "hive:file:///nowhere"), ("--source", "chdb:/nowhere")])
def test_of_what_has_no_snapshots_nothing_dropped_is_expired(
    places: Places, where: tuple[str, str]
) -> None:
    """Harm prevented: a schedule that does nothing, and says that all is well."""
    code, _, err = places.run("gc", *where, "--expire-dropped", "10m")

    assert (code, "only Iceberg tables have any. Name one by --to" in err) == (2, True)


def test_files_of_a_resumable_export_are_kept_with_a_reason(places: Places) -> None:
    """Harm prevented: finished files of an interrupted export are written again."""
    file = interrupted(places, "kept")

    code, out, _ = gc(places, "kept", "--yes", "--json")

    assert code == 0
    (garbage,) = [json.loads(line) for line in out.splitlines()]
    assert garbage == {
        "action": "keep",
        "kind": "data file",
        "partition_id": "202401",
        "bytes": 4,
        "location": f"file://{file}",
        "why": "its export can be resumed or cancelled",
    }
    assert file.exists()


@pytest.mark.parametrize(("age", "goes"), [("1d", False), ("0s", True)])
def test_age_only_keeps(places: Places, age: str, *, goes: bool) -> None:
    """What is proved to be of no use stays as long as somebody asks for."""
    name = f"aged_{age}"
    file = cancelled(places, name)

    code, out, _ = gc(places, name, "--older-than", age, "--yes")

    assert (code, file.exists()) == (0, not goes)
    assert goes or "younger than --older-than" in out


def test_exported_files_are_not_listed(places: Places) -> None:
    """Nothing lies around after an export that went well."""
    places.run(*JANUARY, "--to", "lake.n.exported")

    assert gc(places, "exported", "--yes") == (0, "nothing to remove, 0 kept\n", "")


def test_a_source_is_looked_at_when_it_is_named(places: Places) -> None:
    """Staging tables of living runs stay; here there is none."""
    places.run(*JANUARY, "--to", "lake.n.staged")

    code, out, _ = gc(places, "staged", "--source", f"chdb:{places.clickhouse}", "--yes")

    assert (code, out) == (0, "nothing to remove, 0 kept\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--older-than", "soon"), 2, "Cannot read --older-than 'soon'"),
        (
            ("--to", "lake.n.nowhere"),
            3,
            "Cannot clean up lake.n.nowhere: there is no such lake table.",
        ),
        (
            ("--ledger", "sqlite:/nowhere/ledger.db"),
            3,
            "there is no ledger at sqlite:/nowhere/ledger.db",
        ),
    ],
)
def test_an_impossible_request_is_refused_and_changes_nothing(
    places: Places, words: tuple[str, ...], code: int, message: str
) -> None:
    """A message that says what to do, and the exit code of a refusal."""
    places.run(*JANUARY, "--to", "lake.n.refused")
    before = places.files()

    found, out, err = gc(places, "refused", *words)

    assert (found, out) == (code, "")
    assert message in err
    assert places.files() == before

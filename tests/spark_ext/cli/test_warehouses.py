"""Warehouses from the command line: of any name, and of configured catalogs on a local disk."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from spark_ext.cli.main import main
from spark_ext.cli.next_command import next_command
from tableformat.export.outcome import IN_PROGRESS
from tests.wrong.places import Places

WHERE = ("--partition-id", "202401", "--to")


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a #b"])
def test_a_warehouse_may_have_any_name(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    places.reads_parts = True
    words, there = (*WHERE, "lake.n.named"), ("--warehouse", f"./{name}")

    (first,) = places.outcomes("export", "db.events", *words, *there)
    (again,) = places.outcomes("export", "db.events", *words, *there)
    (listed,) = places.outcomes("exports", "list", *there)
    (equal,) = places.outcomes("verify", "db.events", *words, *there)

    assert (first["status"], again["status"]) == ("committed", "already_exported")
    assert (listed["status"], equal["verdict"]) == ("COMPLETED", "equal")
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Configure a SQL catalog with a warehouse on a local disk; return the warehouse."""
    warehouse = tmp_path / "mine"
    warehouse.mkdir()
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"sqlite:///{tmp_path}/mine.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__WAREHOUSE", warehouse.as_uri())
    return warehouse


def test_a_configured_catalog_on_a_local_disk_needs_no_ledger_named(
    places: Places, mine: Path
) -> None:
    places.reads_parts = True
    words = (*WHERE, "mine.n.events")
    dry = places.run("export", "db.events", *words, "--dry-run")

    (first,) = places.outcomes("export", "db.events", *words)
    (again,) = places.outcomes("export", "db.events", *words)
    (equal,) = places.outcomes("verify", "db.events", *words)
    (listed,) = places.outcomes("exports", "list", "--warehouse", str(mine))
    swept = places.outcomes("gc", "--to", "mine.n.events")
    forgotten = places.run(
        "exports", "forget", "202401", "--table", "db.events", "--to", "mine.n.events"
    )

    assert dry[0] == 0, dry[2]
    assert (mine / "mergeberg-ledger.db").is_file()
    assert (first["status"], again["status"]) == ("committed", "already_exported")
    assert (listed["status"], equal["verdict"], swept) == ("COMPLETED", "equal", [])
    assert forgotten[0] == 0, forgotten[2]


def test_the_next_command_finds_that_ledger(mine: Path) -> None:
    def after(line: str) -> str:
        return next_command(shlex.split(line), IN_PROGRESS, group=main)

    verify = "verify db.t --all --to"
    assert after(f"{verify} mine.n.t") == f"mergeberg exports list --warehouse {mine}"
    assert after(f"{verify}=mine.n.t") == f"mergeberg exports list --warehouse {mine}"
    assert after(f"{verify} mine.n.t --ledger l") == "mergeberg exports list --ledger l"
    assert after(f"{verify} lake.n.t --warehouse w") == "mergeberg exports list --warehouse w"

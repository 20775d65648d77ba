"""Commands that look at a ledger which is not there, or which may only be read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from spark_ext.cli.main import invoke
from tests.support.another_user import as_another_user, open_to_others
from tests.wrong.places import Places

TABLE = ("--table", "db.events")
TO = ("--to", "lake.n.looked")
COMMANDS = (
    ("exports", "list"),
    ("exports", "show", "202401"),
    ("exports", "log"),
    ("exports", "events"),
    ("exports", "watermark", *TABLE, *TO),
    ("exports", "cancel", "202401", *TABLE),
    ("exports", "cancel", "--all"),
    ("exports", "forget", "202401", *TABLE),
    ("exports", "unarchive", "202401", *TABLE, *TO, "--dry-run"),
    ("verify", "db.events", "--all", *TO),
    ("gc", *TO),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_typo_in_the_name_of_the_ledger_is_no_empty_list(
    places: Places, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Harm prevented: a monitor that sees no failed export, for ever."""
    places.run("export", "db.events", "--all", *TO)
    ledger = f"sqlite:{tmp_path}/typo.db"
    of = ("--source", f"chdb:{places.clickhouse}") if "watermark" in words else ()

    code, out, err = places.run(*words, *of, "--ledger", ledger)

    assert (code, out) == (3, ""), err
    assert f"there is no ledger at {ledger}" in err
    assert "mergeberg exports rebuild" in err
    assert not (tmp_path / "typo.db").exists()


@pytest.mark.parametrize(
    "words", [w for w in COMMANDS if w[0] == "exports" and "watermark" not in w], ids=" ".join
)
def test_a_typo_in_the_name_of_the_warehouse_is_no_empty_list(
    places: Places, tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, out, err = places.run(*words, "--warehouse", str(tmp_path / "typo"))

    assert (code, out) == (3, ""), err
    assert f"there is no ledger at sqlite:{tmp_path}/typo/mergeberg-ledger.db" in err
    assert not (tmp_path / "typo").exists()


def test_a_user_who_may_only_read_a_warehouse_can_list_exports(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a user who watches exports needs the right to change them."""
    with open_to_others() as shared:
        warehouse, own = shared / "warehouse", shared / "own"
        own.mkdir()
        given = ("--warehouse", str(warehouse))
        words = ("export", "db.events", "--all", *TO)
        assert places.run(*words, *given)[0] == 0
        _close(warehouse)
        monkeypatch.setenv("PYICEBERG_HOME", str(own))
        try:
            with as_another_user(own):
                found = {w: _run(*w, *given) for w in COMMANDS[:4]}
                changing = _run("exports", "forget", "202401", *TABLE, *given)
        finally:
            _open(warehouse)

    assert {w: code for w, (code, _, _) in found.items()} == dict.fromkeys(found, 0), found
    assert "2 exports: 2 COMPLETED" in found["exports", "list"][1]
    assert changing[0] == 4
    assert "this user may only read it" in changing[2]


def _run(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return invoke(words, out, err), out.getvalue(), err.getvalue()


def _close(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    directory.chmod(0o555)


def _open(directory: Path) -> None:
    directory.chmod(0o755)
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)

"""What takes rows out of a lake table says so, asks on a terminal, and names what undoes it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.export.outcome import Status
from tableformat.names import LakeName
from tests.support.terminal import at_terminal
from tests.support.time_bounds import ENDS_WITHIN
from tests.wrong.places import Places

_NUMBERS = count(1)
_CHANGES = {
    "drop": "drop {t} --partition-id 1",
    "drop-all": "drop {t} --all",
    "detach": "detach {t} --partition-id 1",
    "delete": "delete {t} --partition-id 1 --where 'id = 1'",
    "update": "update {t} --partition-id 1 --set \"s = 'x'\" --where 'id < 3'",
    "clear-column": "clear-column {t} --partition-id 1 --column s",
    "replace": "replace {t} --partition-id 1 --from {u}",
    "move": "move {t} --partition-id 1 --to {u}",
}
"""Commands on a table of 3 rows in partition 1 and 2 in partition 2."""


def made(places: Places, rows: str) -> str:
    """Make a table of ClickHouse, and export it; return its name."""
    name = f"leaving{next(_NUMBERS)}"
    places.reads_parts = True
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p UInt8, id Int64, s String DEFAULT 'd') ENGINE = MergeTree"
        " PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{name} VALUES {rows}",
    )
    code, _, err = places.run("export", f"db.{name}", "--all", "--to", f"lake.n.{name}")
    assert code == 0, err
    return name


@pytest.fixture
def table(places: Places) -> str:
    return made(places, "(1, 1, 'a'), (1, 2, 'b'), (1, 3, 'c'), (2, 4, 'd'), (2, 5, 'e')")


def rows_of(places: Places, name: str) -> list[tuple[object, ...]]:
    lake = open_catalog("lake", warehouse=places.warehouse).table(LakeName.parse(f"lake.n.{name}"))
    assert lake is not None
    return sorted(tuple(row.values()) for row in lake.loaded.scan().to_arrow().to_pylist())


def words_of(places: Places, change: str, name: str) -> list[str]:
    other = ""
    if "{u}" in change:
        other = made(places, "(1, 9, 'z')" if "--from" in change else "(3, 9, 'z')")
    words = shlex.split(change.format(t=f"lake.n.{name}", u=f"lake.n.{other}"))
    return [*words, "--warehouse", str(places.warehouse)]


def undone(places: Places, out: str) -> None:
    """Run the command that the result names."""
    (command,) = re.findall(r"^  Undo: mergeberg (.*)$", out, re.MULTILINE)
    code, stdout, err = places.run(*shlex.split(command))
    assert code == 0, stdout + err


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(text, id=name, marks=[pytest.mark.representative] if name == "drop" else [])
        for name, text in _CHANGES.items()
    ],
)
def test_leaving_rows_are_listed_before_and_after_and_come_back_as_shown(
    places: Places, table: str, change: str
) -> None:
    """Harm prevented: 300,000 rows are gone at once, and nobody knows how they come back."""
    words, before = words_of(places, change, table), rows_of(places, table)
    figures = re.compile(
        r"^  \d rows?, [\d,]+ bytes, leave main; \d rows?[^;]* come$", re.MULTILINE
    )

    dry, out_dry, _ = places.run(*words, "--dry-run")
    assert rows_of(places, table) == before
    code, out, err = places.run(*words)

    assert (dry, code) == (0, 0), err
    for text in (out_dry, out):
        assert figures.search(text), text
    assert rows_of(places, table) != before
    undone(places, out)
    assert rows_of(places, table) == before


def test_a_replacing_export_reports_what_leaves_and_how_it_comes_back(
    places: Places, table: str
) -> None:
    places.clickhouse_run(f"ALTER TABLE db.{table} DELETE WHERE id < 3 SETTINGS mutations_sync = 2")
    before = rows_of(places, table)
    words = ("export", f"db.{table}", "--partition-id", "1", "--to", f"lake.n.{table}", "--force")

    _, out_dry, _ = places.run(*words, "--dry-run", "--json")
    code, out, err = places.run(*words)

    forecast = json.loads(out_dry.splitlines()[0])
    assert (forecast["action"], forecast["left_rows"], forecast["rows"]) == ("replace", 3, 1)
    assert forecast["left_bytes"] > 0
    assert code == 0, err
    assert re.search(r"  3 rows, [\d,]+ bytes, leave main; 1 row, [\d,]+ bytes, come", out), out
    assert len(rows_of(places, table)) == 3
    undone(places, out)
    assert rows_of(places, table) == before


_SHELL = 'mergeberg() {{ {} -c "from spark_ext.cli.main import run; run()" "$@"; }}; {}'


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["options", "--config", "alter"])
def test_the_printed_undo_works_on_the_lake_and_the_ledger_of_the_statement(
    places: Places, table: str, place: str, tmp_path: Path
) -> None:
    """Harm prevented: rows of a lake table of the same name elsewhere come or go."""
    before, (file, decoy) = rows_of(places, table), (tmp_path / "m.toml", tmp_path / "elsewhere")
    ledger = f"sqlite:{places.warehouse / LEDGER_FILE}"
    given = {"warehouse": str(places.warehouse), "ledger": ledger}
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    if place == "options":
        words = options
    elif place == "--config":
        file.write_text("\n".join(["[detach]", *(f"{k} = '{v}'" for k, v in given.items())]))
        words = ["--config", str(file)]
    else:
        file.write_text(f"[alter]\nwarehouse = '{decoy}'\nledger = 'sqlite:{decoy}'\n")
        words = [*options, "--config", str(file)]

    code, out, err = places.run("detach", f"lake.n.{table}", "--partition-id", "1", *words)

    assert code == 0, err
    assert rows_of(places, table) != before
    (command,) = re.findall(r"^  Undo: (.*)$", out, re.MULTILINE)
    ended = subprocess.run(
        ["sh", "-c", _SHELL.format(shlex.quote(sys.executable), command)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_WITHIN,
    )
    assert ended.returncode == 0, ended.stderr
    assert rows_of(places, table) == before
    assert not decoy.exists()


def test_programs_get_figures_and_the_statement_that_undoes_it(places: Places, table: str) -> None:
    words = words_of(places, _CHANGES["drop"], table)

    code, out, err = places.run(*words, "--json")

    assert code == 0, err
    found = json.loads(out.splitlines()[0])
    assert (found["left_rows"], found["came_rows"]) == (3, 0)
    assert found["undo"].startswith(f"ALTER TABLE lake.n.{table} ATTACH PARTITION ID '1' FROM ")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(text, id=name, marks=[] if name in {"drop", "update"} else pytest.mark.nightly)
        for name, text in _CHANGES.items()
    ],
)
def test_programs_get_the_same_figures_before_and_after(
    places: Places, table: str, change: str
) -> None:
    """Harm prevented: a program that decides by the dry run gets a sentence."""
    words = [*words_of(places, change, table), "--json"]
    names = ("partition_id", "left_files", "left_rows", "left_bytes", "came_rows")

    dry, out_dry, _ = places.run(*words, "--dry-run")
    code, out, err = places.run(*words)

    assert (dry, code) == (0, 0), err
    (would,), (did,) = (map(json.loads, text.splitlines()) for text in (out_dry, out))
    assert would.keys() == did.keys()
    assert {name: would[name] for name in names} == {name: did[name] for name in names}
    assert would["left_rows"] > 0
    assert would["status"] == Status(did["status"]).planned
    assert would["snapshot_id"] is None


def test_a_dry_run_prints_the_format_and_writes_no_file(places: Places, table: str) -> None:
    """A file of the dry run would be there already when the statement is run."""
    path = places.root / f"{table}.json"
    drop = f"ALTER TABLE lake.n.{table} DROP PARTITION 1"
    at = ("--dry-run", "--warehouse", str(places.warehouse))

    code, out, err = places.run("alter", f"{drop} FORMAT JSONEachRow", *at)
    kept, shown, note = places.run("alter", f"{drop} INTO OUTFILE '{path}' FORMAT Parquet", *at)
    both, too, _ = places.run(
        "alter", f"{drop} INTO OUTFILE '{path}' AND STDOUT FORMAT JSONEachRow", *at
    )

    assert (code, kept, both, path.exists()) == (0, 0, 0, False), err
    (row,) = map(json.loads, out.splitlines())
    assert (row["partition_id"], row["status"]) == ("1", "drop")
    assert "3 rows" in row["message"]
    assert shown.startswith("dry run: partition 1 would be dropped (3 rows")
    assert f"a dry run writes no result to {path}" in note
    assert too == out
    assert len(rows_of(places, table)) == 5


@pytest.mark.parametrize(
    ("reply", "more", "code", "left"),
    [
        pytest.param("n\n", [], 3, 5, marks=pytest.mark.representative),
        ("\n", [], 3, 5),
        ("y\n", [], 0, 2),
        ("", ["--yes"], 0, 2),
    ],
    ids=["no", "nothing", "yes", "--yes"],
)
def test_on_a_terminal_it_asks_before_rows_leave(
    places: Places, table: str, reply: str, more: list[str], code: int, left: int
) -> None:
    words = [*words_of(places, _CHANGES["drop"], table), *more]

    ended, output = at_terminal(words, reply, cwd=places.root)

    assert ended == code, output
    assert len(rows_of(places, table)) == left
    assert ("Continue?" in output) == (not more)
    assert ("3 rows" in output, "it was not confirmed" in output) == (True, code == 3)


def test_on_a_terminal_an_export_asks_before_it_replaces(
    places: Places, table: str, tmp_path: Path
) -> None:
    places.clickhouse_run(f"INSERT INTO db.{table} VALUES (1, 9, 'more')")
    words = ["export", f"db.{table}", "--all", "--to", f"lake.n.{table}", "--force"]
    where = ["--source", f"chdb:{places.clickhouse}", "--warehouse", str(places.warehouse)]

    ended, output = at_terminal([*words, *where], "n\n", cwd=places.root)

    assert ended == 3, output
    assert "2 partitions of" in output
    assert "5 rows" in output
    assert "6 rows come" in output
    assert len(rows_of(places, table)) == 5
    assert not list(tmp_path.iterdir())


def test_on_a_terminal_an_archive_asks_before_it_replaces(places: Places, table: str) -> None:
    """Harm prevented: a changed source takes rows out of the lake, and then leaves itself."""
    places.clickhouse_run(f"INSERT INTO db.{table} VALUES (1, 9, 'more')")
    at = ("--table", f"db.{table}", "--to", f"lake.n.{table}")
    # Within the manifest TTL of its export the partition would be refused.
    assert places.run("exports", "forget", "1", *at)[0] == 0
    words = ["archive", f"db.{table}", "--all", "--to", f"lake.n.{table}"]
    where = ["--source", f"chdb:{places.clickhouse}", "--warehouse", str(places.warehouse)]

    ended, output = at_terminal([*words, *where], "n\n", cwd=places.root)

    assert ended == 3, output
    assert f"1 partition of lake.n.{table} would be replaced (1): 3 rows" in output
    assert "4 rows come" in output
    assert f"Cannot archive db.{table} to lake.n.{table}: it was not confirmed" in output
    assert len(rows_of(places, table)) == 5
    found = places.outcomes("partitions", f"db.{table}")
    assert sorted(str(one["partition_id"]) for one in found) == ["1", "2"]


def test_on_a_terminal_an_archive_of_equal_rows_does_not_ask(places: Places, table: str) -> None:
    words = ["archive", f"db.{table}", "--all", "--to", f"lake.n.{table}"]
    where = ["--source", f"chdb:{places.clickhouse}", "--warehouse", str(places.warehouse)]

    ended, output = at_terminal([*words, *where], "", cwd=places.root)

    assert (ended, "Continue?" in output) == (0, False), output


def test_nobody_is_asked_where_nothing_leaves(places: Places, table: str) -> None:
    words = ["attach", f"lake.n.{table}", "--all", "--warehouse", str(places.warehouse)]

    ended, output = at_terminal(words, "", cwd=places.root)

    assert (ended, "Continue?" in output) == (0, False), output


def test_an_update_of_random_rows_reports_those_that_it_changed(places: Places) -> None:
    """Harm prevented: 40 rows are reported, others are counted than are changed."""
    table = made(places, ", ".join(f"(1, {n}, 'a')" for n in range(300)))
    words = shlex.split(f"update lake.n.{table} --partition-id 1 --set \"s = 'x'\"")
    at = ("--warehouse", str(places.warehouse))

    code, out, err = places.run(*words, "--where", "rand() % 2 = 0", "--json", *at)

    assert code == 0, err
    changed = [row for row in rows_of(places, table) if row[2] == "x"]
    assert json.loads(out.splitlines()[0])["rows"] == len(changed) > 0

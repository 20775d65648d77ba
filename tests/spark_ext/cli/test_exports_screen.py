"""`exports list` and `exports show` as a person reads them, on a terminal of 80 columns."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys

import pytest

from tests.wrong.places import Places

HEAD = ["table", "partition", "status", "rows in the lake", "since (UTC)"]


@pytest.fixture
def words(places: Places, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the export of a table of the test's own, of two partitions of 1 and 2 rows."""
    name = f"t{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (ts DateTime('UTC'), id Int64) ENGINE = MergeTree"
        " PARTITION BY toYYYYMM(ts) ORDER BY id",
        f"INSERT INTO db.{name} SELECT toDateTime('2024-01-31', 'UTC') + number * 86400, number"
        " FROM numbers(3)",
    )
    return ("export", f"db.{name}", "--to", f"lake.n.{name}")


def listed(places: Places, words: tuple[str, ...], *more: str) -> list[str]:
    """Return the lines of the list of the test's own table."""
    return places.run("exports", "list", "--table", words[1], *more)[1].splitlines()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_list_says_what_is_in_the_lake_and_what_it_comes_to(
    places: Places, words: tuple[str, ...]
) -> None:
    assert places.run(*words, "--all")[0] == 0

    head, *rows, total = listed(places, words)

    assert [name for name in HEAD if name not in head] == []
    assert sorted(row.split()[:4] for row in rows) == [
        [words[3], "202401", "COMPLETED", "1"],
        [words[3], "202402", "COMPLETED", "2"],
    ]
    assert total == "2 exports: 2 COMPLETED · 3 rows in the lake"


@pytest.mark.parametrize("cancelled", [False, True])
def test_an_export_that_did_not_land_says_what_the_lake_still_has(
    places: Places, words: tuple[str, ...], *, cancelled: bool
) -> None:
    """Harm prevented: INTERRUPTED … rows 0, while the lake has every row of the one before."""
    (done,) = places.outcomes(*words, "--partition-id", "202402")
    places.before = interrupt
    assert places.run(*words, "--partition-id", "202402", "--force")[0] == 130
    if cancelled:
        places.run("exports", "cancel", "202402", "--table", words[1])

    _, row, *why, total = listed(places, words)

    status = "KILLED" if cancelled else "INTERRUPTED"
    assert row.split()[1:4] == ["202402", status, "2"]
    assert f"the lake still has 2 rows of snapshot {done['snapshot_id']}" in " ".join(why)
    assert total == f"1 export: 1 {status} · 2 rows in the lake"


def test_filters_and_a_limit_choose_and_the_total_says_what_is_left_out(
    places: Places, words: tuple[str, ...]
) -> None:
    places.run(*words, "--all")

    limited = listed(places, words, "--limit", "1")
    into = places.run("exports", "list", "--to", words[3], "--json")[1].splitlines()
    nothing = places.run("exports", "list", "--to", "lake.n.nothing")[1]

    assert limited[-1].endswith("in the lake · 1 more not shown")
    assert {json.loads(one)["source_table"] for one in into} == {words[1]}
    assert nothing.startswith("No exports into lake.n.nothing in the ledger sqlite:")


def test_wide_has_all_columns(places: Places, words: tuple[str, ...]) -> None:
    places.run(*words, "--partition-id", "202401")

    head, row = listed(places, words, "--wide")

    assert head.split()[:3] == ["source_table", "destination_table", "partition_id"]
    assert "COMPLETED" in row


def on_terminal(places: Places, *words: str) -> str:
    """Run a command on a terminal of 80 columns; return what it printed."""
    main, terminal = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", "from spark_ext.cli.main import run; run()", *words],
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,
            check=True,
            timeout=120,
            cwd=places.root,
            env=os.environ | {"COLUMNS": "80", "NO_COLOR": "1"},
        )
        return os.read(main, 100_000).decode()
    finally:
        os.close(main)
        os.close(terminal)


@pytest.mark.representative
def test_no_line_of_the_list_is_wider_than_the_terminal(
    places: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: 14 columns and 216 characters, which wrap on every terminal."""
    long = f"lake.n.{words[3][7:]}_{'long' * 20}"
    to = (*words[:2], "--to", long)
    assert places.run(*to, "--partition-id", "202402")[0] == 0
    places.before = interrupt
    places.run(*to, "--all", "--force")

    out = on_terminal(places, "exports", "list", "--warehouse", str(places.warehouse))

    lines = out.replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80, "\n".join(lines)
    assert any("INTERRUPTED" in line and "…" in line for line in lines)


def test_show_is_a_page_for_people_with_times_files_and_parts(
    places: Places, words: tuple[str, ...]
) -> None:
    (done,) = places.outcomes(*words, "--partition-id", "202402")

    out = places.run("exports", "show", "202402", "--table", words[1])[1]

    lines = dict(line.split("  ", 1) for line in out.splitlines() if not line.startswith(" ")
                 and "  " in line)  # fmt: skip
    fields = {name: text.strip() for name, text in lines.items()}
    assert fields["export of"] == f"partition 202402 of {words[1]}"
    assert fields["into"] == words[3]
    assert fields["in the lake"] == "2 rows"
    assert fields["snapshot"] == str(done["snapshot_id"])
    assert fields["exported"].startswith("2 rows, 1 file, ")
    assert " UTC, after " in fields["completed"]
    assert fields["exported again"].startswith("only with --force, until ")
    assert "202402_2_2_0  2 rows, " in out
    assert ".parquet" in out
    assert "{" not in out

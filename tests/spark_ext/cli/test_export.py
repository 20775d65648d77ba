"""`mergeberg export` says in words what the SQL command says, and `exports` what became of it.

SRS-016 SQLCommand, Restrictions.SourcePartition, EmptyPartition, SystemTables.Exports.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from catalog.iceberg.catalogs import open_catalog
from catalog.ledgers import uris
from tableformat.errors import SourceError
from tableformat.ledger import Owner
from tests.wrong.places import Places

EVENTS = "(ts DateTime('UTC'), id Int64, s String) ENGINE = MergeTree PARTITION BY toYYYYMM(ts)"


def table(places: Places, name: str) -> None:
    """Make a table with a row in 202401 and two in 202402."""
    places.clickhouse_run(
        f"CREATE TABLE db.{name} {EVENTS} ORDER BY id",
        f"INSERT INTO db.{name} SELECT toDateTime('2024-01-31', 'UTC') + number * 86400, number, ''"
        " FROM numbers(3)",
    )


def listed(places: Places, source: str, *words: str) -> list[dict[str, Any]]:
    found = places.outcomes("exports", "list", *words)
    return sorted(
        (row for row in found if row["source_table"] == source),
        key=lambda row: str(row["partition_id"]),
    )


def append_by_hand(places: Places, name: str, day: str) -> None:
    """Append a row to a lake table as another engine does."""
    lake = open_catalog("lake", warehouse=places.warehouse).catalog.load_table(f"n.{name}")
    row = {"ts": [datetime.fromisoformat(f"{day}T00:00:00+00:00")], "id": [1], "s": ["x"]}
    lake.append(pa.Table.from_pydict(row, lake.schema().as_arrow()))


@pytest.mark.representative
def test_a_whole_lake_partition_is_rehearsed_and_replaced(places: Places) -> None:
    """Harm prevented: no message says what was lost, or what will be."""
    table(places, "whole")
    words = ("export", "db.whole", "--partition-id", "202401", "--to", "lake.n.whole")
    whole = (*words, "--force", "--replace-partition")
    places.outcomes(*words)
    append_by_hand(places, "whole", "2024-01-05")
    append_by_hand(places, "whole", "2024-02-05")

    forecast, *_ = places.outcomes(*whole, "--dry-run")
    (replaced,) = places.outcomes(*whole)
    _, stdout, _ = places.run(*whole)

    assert (forecast["action"], forecast["message"]) == (
        "replace",
        "would remove 2 files with 2 rows from main, 1 of them with 1 row that other writers wrote",
    )
    message = "with what it replaced 1 file with 1 row that others wrote left main"
    assert (replaced["status"], replaced["message"]) == ("replaced", message)
    assert "partition 202401: replaced · 1 row · 1 file" in stdout
    lake = open_catalog("lake", warehouse=places.warehouse).catalog.load_table("n.whole")
    assert sum(t.file.record_count for t in lake.scan().plan_files()) == 2


@pytest.mark.parametrize(
    ("words", "partitions"),
    [
        (("--partition-id", "202401"), ["202401"]),
        (("--partition", "202401"), ["202401"]),
        (("--partition", "tuple(202402)"), ["202402"]),
        (("--partition", "ID '202401'"), ["202401"]),
        (("--all", "--where", "rows > 1"), ["202402"]),
        (("--all",), ["202401", "202402"]),
    ],
    ids=" ".join,
)
def test_partitions_are_chosen_in_every_form(
    places: Places, words: tuple[str, ...], partitions: list[str]
) -> None:
    to = f"lake.n.`{' '.join(words)}`".replace("'", "").replace(" ", "_").replace(">", "_")

    found = places.outcomes("export", "db.events", *words, "--to", to)
    again = places.outcomes("export", "db.events", *words, "--to", to)

    assert [(o["partition_id"], o["status"]) for o in found] == [
        (p, "committed") for p in partitions
    ]
    assert [(o["partition_id"], o["status"]) for o in again] == [
        (p, "already_exported") for p in partitions
    ]


def test_a_partition_that_is_only_detached_is_unknown(places: Places) -> None:
    """Harm prevented: "exported" of rows that no SELECT shows."""
    table(places, "aside")
    places.clickhouse_run("ALTER TABLE db.aside DETACH PARTITION ID '202401'")
    before = places.files()

    words = ("export", "db.aside", "--partition-id", "202401", "--to", "lake.n.aside")
    code, out, err = places.run(*words)

    assert (code, out) == (3, "")
    assert "partition 202401 of db.aside: it has no active parts and was never exported" in err
    assert places.files() == before


def test_a_partition_that_was_exported_and_dropped_is_still_exported(places: Places) -> None:
    """Harm prevented: an archive is emptied, or an error, after the source made room."""
    table(places, "moved")
    words = ("export", "db.moved", "--partition-id", "202402", "--to", "lake.n.moved")
    (done,) = places.outcomes(*words)
    places.clickhouse_run("ALTER TABLE db.moved DROP PARTITION ID '202402'")
    before = {p: s for p, s in places.files().items() if p.startswith("warehouse/n/moved")}

    (again,) = places.outcomes(*words)

    assert (again["status"], again["rows"]) == ("already_exported", 2)
    assert "the source partition no longer exists" in str(again["message"])
    assert again["snapshot_id"] == done["snapshot_id"]
    after = {p: s for p, s in places.files().items() if p.startswith("warehouse/n/moved")}
    assert after == before != {}


def test_what_is_gone_in_the_source_goes_in_the_lake_only_with_two_words(places: Places) -> None:
    """Harm prevented: a retention job at the source empties the archive; or nothing ever can."""
    table(places, "ended")
    words = ("export", "db.ended", "--partition-id", "202402", "--to", "lake.n.ended")
    places.outcomes(*words)
    places.clickhouse_run("ALTER TABLE db.ended DROP PARTITION ID '202402'")

    (kept,) = places.outcomes(*words, "--force")
    planned, *_ = places.outcomes(*words, "--force", "--allow-empty", "--dry-run")
    (gone,) = places.outcomes(*words, "--force", "--allow-empty")
    (again,) = places.outcomes(*words, "--force", "--allow-empty")
    places.clickhouse_run(
        "INSERT INTO db.ended SELECT toDateTime('2024-02-01', 'UTC'), number, '' FROM numbers(2)"
    )
    (back,) = places.outcomes(*words, "--force")

    assert (kept["status"], kept["rows"]) == ("already_exported", 2)
    assert "would remove 2 rows from main" in str(planned["message"])
    assert (gone["status"], gone["rows"], gone["data_files"]) == ("replaced", 0, 0), gone["message"]
    assert (again["status"], again["rows"]) == ("already_exported", 0)
    assert (back["status"], back["rows"]) == ("committed", 2)


def test_a_partition_whose_rows_are_all_deleted_is_empty_and_makes_no_export(
    places: Places,
) -> None:
    table(places, "hollow")
    places.clickhouse_run("DELETE FROM db.hollow WHERE id = 0")

    words = ("export", "db.hollow", "--partition-id", "202401", "--to", "lake.n.hollow")
    code, out, _ = places.run(*words, "--json")

    outcome = json.loads(out)
    assert (code, outcome["status"], outcome["rows"], outcome["data_files"]) == (0, "empty", 0, 0)
    assert listed(places, "db.hollow") == []


def test_the_list_shows_finished_failed_and_running_exports(places: Places) -> None:
    """Harm prevented: nobody can tell a failed export from one that still works."""
    table(places, "told")
    words = ("export", "db.told", "--to", "lake.n.told")
    (done,) = places.outcomes(*words, "--partition-id", "202402")

    def fail(*_: object) -> None:
        message = "Cannot read db.told: the disk is on fire. Call for help."
        raise SourceError(message)

    places.before = fail
    (failed,) = places.outcomes(*words, "--partition-id", "202401")
    assert failed["status"] == "failed"
    first, second = listed(places, "db.told")
    assert (first["partition_id"], first["status"], first["snapshot_id"]) == (
        "202401", "FAILED", None,
    )  # fmt: skip
    assert "the disk is on fire" in first["last_error"]
    assert (second["status"], second["rows"], second["data_files"], second["snapshot_id"]) == (
        "COMPLETED", 2, done["data_files"], str(done["snapshot_id"]),
    )  # fmt: skip
    assert second["destination_table"] == "lake.n.told"

    with contextlib.closing(uris.open_ledger(None, local_warehouse=places.warehouse)) as ledger:
        (row,) = (r for r in ledger.rows() if r.source_table == "db.told" and not r.done)
        ledger.take_lease(row.key.hash, Owner("other-host", 7, "1"), 60.0)
    assert [r["status"] for r in listed(places, "db.told")] == ["IN_PROGRESS", "COMPLETED"]
    assert [r["partition_id"] for r in listed(places, "db.told", "--status", "completed")] == [
        "202402"
    ]
    text = places.run("exports", "show", "202402", "--table", "db.told")[1]
    assert str(done["transaction_id"]) in text
    assert "202402_2_2_0  2 rows" in text


@pytest.mark.parametrize(
    "words",
    [
        ("export", "db.events", "--all", "--to", "lake.n.closed"),
        ("check", "db.events", "--to", "lake.n.closed"),
        ("exports", "list"),
        ("exports", "show", "202401"),
        ("exports", "log"),
        ("exports", "events"),
        ("exports", "forget", "202401", "--table", "db.events", "--to", "lake.n.closed"),
    ],
    ids=" ".join,
)
def test_a_command_leaves_no_open_ledger_behind(places: Places, words: tuple[str, ...]) -> None:
    """A copy of the ledger's file is then a whole ledger: nothing waits in a side file."""
    places.run("export", "db.events", "--partition-id", "202401", "--to", "lake.n.closed")

    assert places.run(*words)[0] == 0

    assert not list(places.warehouse.glob("*-wal"))


def test_the_manifest_ttl_ends_the_refusal_and_zero_never_ends_it(places: Places) -> None:
    """Harm prevented: a schedule that replaces what was just exported, or can never replace."""
    table(places, "kept")
    words = ("export", "db.kept", "--partition-id", "202402", "--to", "lake.n.kept")
    places.outcomes(*words, "--manifest-ttl", "7")
    places.clickhouse_run("INSERT INTO db.kept SELECT toDateTime('2024-02-03', 'UTC'), 9, ''")
    (young,) = places.outcomes(*words)
    places.outcomes(*words, "--force", "--manifest-ttl", "0")
    places.clickhouse_run("INSERT INTO db.kept SELECT toDateTime('2024-02-04', 'UTC'), 10, ''")
    (for_ever,) = places.outcomes(*words)
    (default,) = places.outcomes(*words, "--force")
    places.clickhouse_run("INSERT INTO db.kept SELECT toDateTime('2024-02-05', 'UTC'), 11, ''")
    (again,) = places.outcomes(*words)

    assert "younger than its manifest TTL of 7 s" in str(young["message"])
    assert "with the manifest TTL 0, never again. Use --force" in str(for_ever["message"])
    assert (default["status"], default["rows"]) == ("replaced", 4)
    assert "younger than its manifest TTL of 180 s" in str(again["message"])


def test_a_selection_that_holds_nothing_says_so_and_what_there_was(places: Places) -> None:
    """Harm prevented: a condition with a mistake in it, and no word for months."""
    table(places, "seldom")
    to = ("--to", "lake.n.seldom")
    where = ("--all", "--where", "max_time < '1999-01-01'")
    message = (
        "no partition is selected: of 2 partitions of db.seldom (202401 to 202402, ts from "
        "2024-01-31 00:00:00 to 2024-02-02 00:00:00) none fulfils max_time < '1999-01-01'"
    )

    for words in (("export",), ("export", "--dry-run"), ("archive",), ("archive", "--dry-run")):
        code, out, err = places.run(words[0], "db.seldom", *where, *words[1:], *to)
        assert (code, out.splitlines()[0]) == (0, message), err
        assert places.outcomes(words[0], "db.seldom", *where, *words[1:], *to)[0] == {
            "message": message
        }


def test_a_table_without_partitions_says_so_in_every_command(places: Places) -> None:
    places.clickhouse_run(f"CREATE TABLE db.seldom_filled {EVENTS} ORDER BY id")
    to = ("--to", "lake.n.seldom_filled")
    message = "no partition is selected: db.seldom_filled has no partition with active parts"

    for command in ("export", "archive"):
        code, out, err = places.run(command, "db.seldom_filled", "--all", *to)
        assert (code, out.splitlines()) == (0, [message]), err
    table(places, "gone")
    places.outcomes("export", "db.gone", "--partition-id", "202401", "--to", "lake.n.gone")
    places.clickhouse_run("CREATE TABLE db.empty AS db.gone")
    code, out, err = places.run("verify", "db.empty", "--all", "--to", "lake.n.gone")
    message = message.replace("seldom_filled", "empty")
    assert (code, out) == (0, f"{message}, and none was exported to lake.n.gone\n"), err

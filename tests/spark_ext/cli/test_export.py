"""`mergeberg export` says in words what the SQL command says, and `exports` what became of it.

SRS-016 SQLCommand, Restrictions.SourcePartition, EmptyPartition, SystemTables.Exports.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalog.ledgers import uris
from tableformat.errors import SourceError
from tableformat.ledger import Owner
from tests.wrong_places import Places

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
    assert "the source partition is gone" in str(again["message"])
    assert again["snapshot_id"] == done["snapshot_id"]
    after = {p: s for p, s in places.files().items() if p.startswith("warehouse/n/moved")}
    assert after == before != {}


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


def test_exports_tell_what_was_exported_what_failed_and_what_runs(places: Places) -> None:
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

    ledger = uris.open_ledger(None, local_warehouse=places.warehouse)
    (row,) = (r for r in ledger.rows() if r.source_table == "db.told" and not r.done)
    ledger.take_lease(row.key.hash, Owner("other-host", 7, "1"), 60.0)
    assert [r["status"] for r in listed(places, "db.told")] == ["IN_PROGRESS", "COMPLETED"]
    assert [r["partition_id"] for r in listed(places, "db.told", "--status", "completed")] == [
        "202402"
    ]
    text = places.run("exports", "show", "202402", "--table", "db.told")[1]
    assert str(done["transaction_id"]) in text
    assert '"name": "202402_2_2_0"' in text


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

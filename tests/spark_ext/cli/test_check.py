"""What is known before an export, and that knowing it changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog.iceberg.catalogs import open_catalog
from catalog.storages.local import LocalStorage
from spark_ext.actions.export_ports import SparkWhenNeeded
from tests.wrong.places import Places


@pytest.fixture
def idle(places: Places, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Return the places, in a surrounding where starting Spark is an error."""

    def start(_: SparkWhenNeeded) -> None:
        message = "Spark was started"
        raise AssertionError(message)

    monkeypatch.setattr(SparkWhenNeeded, "begin", start)
    return places


def test_a_dry_run_reports_files_rows_and_space_and_changes_nothing(idle: Places) -> None:
    before = idle.files()
    code, out, err = idle.run(
        "export", "db.events", "--all", "--to", "lake.n.dry", "--dry-run", "--json"
    )
    first, second, source, destination = (json.loads(line) for line in out.splitlines())

    assert (code, err) == (0, "")
    assert [first["partition_id"], second["partition_id"]] == ["202401", "202402"]
    assert {first["action"], second["action"]} == {"export"}
    assert [(f["files"], f["rows"]) for f in (first, second)] == [(1, 1), (1, 2)]
    assert (source["side"], destination["side"]) == ("source", "destination")
    assert source["needed"] == destination["needed"] == first["bytes"] + second["bytes"]
    assert source["free"] > 0
    assert destination["free"] > 0
    assert idle.files() == before


def test_a_dry_run_without_room_ends_as_check_does(
    idle: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a rehearsal that says yes, and an export that fills the disk."""
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda *_: 7)
    words = ("db.events", "--to", "lake.n.small")

    checked = idle.run("check", *words)
    code, out, err = idle.run("export", *words, "--all", "--dry-run")

    assert (code, checked[0]) == (3, 3)
    assert "destination" in out.splitlines()[-1]
    assert out.endswith(" - NOT ENOUGH\n")
    assert "· Cannot export db.events: not enough space: destination" in err
    assert "not enough space" in checked[1]
    assert idle.run("export", *words, "--all", "--dry-run", "--json")[0] == 3


def test_a_dry_run_reports_what_the_run_would(places: Places) -> None:
    """Harm prevented: a dry run that promises what the run then refuses."""
    words = ("export", "db.other", "--all", "--to", "lake.n.rehearsed", "--json")
    places.run(*words[:2], "--partition-id", "202401", *words[3:])

    for options in ([], ["--manifest-ttl", "0"]):
        dry = places.run(*words, *options, "--dry-run")
        real = places.run("export", "db.other", "--partition-id", "202401", *words[3:], *options)
        forecast, outcome = json.loads(dry[1].splitlines()[0]), json.loads(real[1])
        assert (forecast["action"], forecast["message"]) == (outcome["status"], outcome["message"])
        assert dry[0] == real[0]

    forced = places.run(*words, "--force", "--dry-run")
    assert json.loads(forced[1].splitlines()[0])["action"] == "replace"


def test_a_dry_run_refuses_what_the_run_refuses(idle: Places) -> None:
    words = ("export", "db.events", "--all", "--to", "lake.n.structure")

    dry, real = idle.run(*words, "--dry-run"), idle.run(*words)
    assert dry[:2] == real[:2]
    assert dry[2].partition("Next:")[0] == real[2].partition("Next:")[0]


def test_check_shows_how_everything_is_mapped(idle: Places) -> None:
    before = idle.files()
    code, out, _ = idle.run("check", "db.events", "--to", "lake.n.new", "--json")
    found = json.loads(out)

    assert (code, found["works"], found["reasons"]) == (0, True, [])
    assert [(c["column"], c["iceberg"], c["kind"]) for c in found["columns"]] == [
        ("ts", "timestamptz", "A"),
        ("id", "long", "A"),
        ("s", "string", "C"),
    ]
    assert (found["partition_key"], found["partition_spec"]) == ("toYYYYMM(ts)", "month(ts)")
    assert (found["sorting_key"], found["sort_order"]) == ("id", "id")
    assert found["destination"] == "lake.n.new: does not exist yet, it will be created"
    assert {"ClickHouse", "chdb-core", "pyspark", "pyarrow", "pyiceberg", "Java"} == set(
        found["versions"]
    )
    assert idle.files() == before


@pytest.mark.parametrize(
    ("words", "reasons"),
    [
        (("db.odd",), ["column a: ", "column v: "]),
        (("db.odd", "--strict"), ["column a: ", "column v: ", "column e: "]),
        (("db.berlin",), ["follows the time zone Europe/Berlin"]),
        (("db.events", "--to", "lake.n.structure"), ["column id ", "column s ", "column more "]),
        (("db.events", "--to", "lake.n.v1"), ["format version 1"]),
        (("db.events", "--convert", "x=binary", "--partition-spec", "day(y)"), ["column x", "y"]),
    ],
)
def test_check_gives_every_reason_at_once(
    idle: Places, words: tuple[str, ...], reasons: list[str]
) -> None:
    code, out, err = idle.run("check", *words)
    lines = out[out.index(f"{words[0]} cannot be exported") :].splitlines()

    assert code == 3
    number = "1 problem" if len(reasons) == 1 else f"{len(reasons)} problems"
    assert lines[0] == f"{words[0]} cannot be exported ({number}):"
    assert [r for r, line in zip(reasons, lines[1:], strict=True) if r not in line] == []
    assert err == ""


def test_check_says_that_java_is_missing(idle: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ext.engine.java._from_extra", lambda _: _NoJava())
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")
    code, out, _ = idle.run("check", "db.events")

    assert code == 3
    assert "Cannot find Java 17 or 21" in out


class _NoJava:
    reason = "the extra 'java' is not installed"


@pytest.mark.parametrize("words", [("check",), ("export", "--all", "--dry-run")])
def test_additions_to_the_destination_are_reported_and_not_made(
    idle: Places, words: tuple[str, ...]
) -> None:
    """Harm prevented: a look at an export that changes a table of others."""
    before = idle.files()
    command, *options = words
    given = (command, "db.events", *options, "--to", "lake.n.lacking", "--evolve-schema")

    code, out, err = idle.run(*given)
    refused, *_ = idle.run(*given[:-1])

    assert (code, refused) == (0, 3)
    assert "would be added to lake.n.lacking: s (string)" in out + err
    assert idle.files() == before


def test_check_uses_the_conversions_that_the_destination_remembers(idle: Places) -> None:
    """Harm prevented: a check that refuses what the export does, or the other way round."""
    words = ("check", "db.events", "--to", "lake.n.bytes", "--json")

    code, out, _ = idle.run(*words)
    _, other, _ = idle.run(*words, "--convert", "s=string")

    assert (code, json.loads(out)["columns"][2]["iceberg"]) == (0, "binary")
    (reason,) = json.loads(other)["reasons"]
    assert "--convert s=string was given, but the destination's column s was created with" in reason


def test_check_says_what_can_be_chosen_only_before_the_lake_table_is_there(places: Places) -> None:
    """Harm prevented: sums of Decimals for ever, for lack of a message that it could be a long."""
    places.clickhouse_run(
        "CREATE TABLE db.hinted (id UInt64, `spans.name` Array(String)) ENGINE = MergeTree"
        " ORDER BY id",
        "INSERT INTO db.hinted VALUES (1, ['a'])",
    )
    words = ("db.hinted", "--to", "lake.n.hinted")
    long, nested = "id: UInt64 becomes decimal(20, 0)", "spans.name: a name with a point is quoted"

    before = places.run("check", *words)[1]
    converted = places.run("check", *words, "--convert", "id=long")[1]
    assert places.run("export", words[0], "--all", *words[1:])[0] == 0
    after = places.run("check", *words)[1]

    assert "--convert id=long makes it a long" in before
    assert ("kinds          A the same values" in before, nested in before) == (True, True)
    assert (long in converted, nested in converted) == (False, True)
    assert (long in after, "OK: db.hinted can be exported." in after) == (False, True)


def test_check_of_a_far_catalog_needs_no_ledger(
    idle: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: a look that asks for what only the export needs."""
    properties = {"uri": f"sqlite:///{tmp_path}/far.db", "warehouse": "s3://nowhere/wh"}
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__FAR__{name.upper()}", value)
    there = (tmp_path / "there").as_uri()
    made = open_catalog("lake", warehouse=idle.warehouse).catalog.load_table("n.ours")
    far = open_catalog("far", warehouse=idle.warehouse).catalog
    far.create_namespace("n")
    far.create_table("n.there", made.schema(), location=there, partition_spec=made.spec())
    words = ("check", "db.events", "--to")
    unchecked = "note: no ledger is named, so it is not checked"

    new, old = idle.run(*words, "far.n.new"), idle.run(*words, "far.n.there")
    named = idle.run(*words, "far.n.there", "--ledger", f"sqlite:{tmp_path}/ledger.db")
    refused = idle.run("export", "db.events", "--all", "--to", "far.n.there", "--dry-run")

    assert (new[0], old[0], named[0]) == (0, 0, 0), new[2] + old[2] + named[2]
    assert [unchecked in out for _, out, _ in (new, old, named)] == [True, True, False]
    assert "far.n.new: does not exist yet, it will be created" in new[1]
    assert f"far.n.there: there, at {there}" in old[1]
    assert (refused[0], "Cannot choose a ledger" in refused[2]) == (2, True)

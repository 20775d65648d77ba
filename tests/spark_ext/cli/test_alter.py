"""`mergeberg alter`: ClickHouse's statements from the command line, and where their result goes."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalog.ledgers.sqlite import SqliteLedger
from catalog.ledgers.uris import LEDGER_FILE
from tableformat.export.slices import SliceTask, WritePlan
from tableformat.ledger import Row, State
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

ALLOWED = "SETTINGS allow_experimental_export_merge_tree_part = 1"


def run(places: Places, statement: str, *more: str) -> tuple[int, str, str]:
    where = ("--source", f"chdb:{places.clickhouse}", "--source-wait", "0.3")
    return places.run("alter", statement, *where, "--warehouse", str(places.warehouse), *more)


def export(places: Places, name: str, ending: str, *more: str) -> tuple[int, str, str]:
    statement = f"ALTER TABLE ch.db.events EXPORT PARTITION ALL TO TABLE lake.n.{name} {ending}"
    return run(places, statement, *more)


def test_an_export_runs_and_prints_as_the_command_export(places: Places) -> None:
    """A bare name is of the source, too."""
    code, out, err = run(
        places,
        f"ALTER TABLE db.events EXPORT PARTITION ID '202401' TO TABLE lake.n.altered {ALLOWED}",
    )

    assert (code, out.splitlines()[0][:40]) == (0, "partition 202401: exported · 1 row · 1 f"), err


def test_without_the_setting_it_is_refused(places: Places) -> None:
    code, _, err = export(places, "gate", "")

    assert code == 3
    assert "Exporting merge tree part is experimental" in err


def test_the_session_settings_of_spark_allow_it_too(places: Places) -> None:
    setting = "spark.mergeberg.allow_experimental_export_merge_tree_part=1"

    assert export(places, "conf", "", "--conf", setting)[0] == 0


def test_a_dry_run_does_nothing(places: Places) -> None:
    code, out, err = export(places, "dry", ALLOWED, "--dry-run")

    assert (code, "this was a dry run" in err) == (0, True)
    assert "202401" in out


def test_the_result_is_written_to_the_file_in_the_format(places: Places) -> None:
    path = places.root / "answer.json"

    code, out, err = export(places, "filed", f"INTO OUTFILE '{path}' FORMAT JSONEachRow {ALLOWED}")

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert (code, out) == (0, ""), err
    assert [(r["partition_id"], r["status"], r["rows"]) for r in rows] == [
        ("202401", "committed", 1),
        ("202402", "committed", 2),
    ]


def test_a_file_that_is_there_is_kept_unless_the_statement_says_else(places: Places) -> None:
    """And nothing is exported before that is known."""
    path = places.root / "there.tsv"
    path.write_text("mine\n")

    code, _, err = export(places, "kept", f"INTO OUTFILE '{path}' {ALLOWED}")
    assert (code, path.read_text()) == (3, "mine\n")
    assert "Write TRUNCATE or APPEND" in err
    assert (
        run(
            places,
            f"ALTER TABLE ch.db.events EXPORT PARTITION ALL TO TABLE lake.n.kept "
            f"INTO OUTFILE '{path}' APPEND AND STDOUT {ALLOWED}",
        )[0]
        == 0
    )
    assert [line.split("\t")[0] for line in path.read_text().splitlines()] == [
        "mine", "202401", "202402",
    ]  # fmt: skip
    assert export(places, "kept", f"INTO OUTFILE '{path}' TRUNCATE {ALLOWED}")[0] == 0
    assert "mine" not in path.read_text()


def test_the_file_is_compressed_as_its_name_says(places: Places) -> None:
    """The result is also printed, and not compressed there."""
    path = places.root / "answer.tsv.gz"

    code, out, err = export(places, "zipped", f"INTO OUTFILE '{path}' AND STDOUT {ALLOWED}")

    assert (code, out[:17]) == (0, "202401\tcommitted\t"[:17]), err
    assert gzip.decompress(path.read_bytes()).startswith(b"202401\tcommitted\t1\t1\t")


def test_a_format_alone_shapes_what_is_printed(places: Places) -> None:
    code, out, _ = export(places, "printed", f"FORMAT CSVWithNames {ALLOWED}")

    rows = [*csv.reader(out.splitlines())]
    assert code == 0
    assert rows[0][:3] == ["partition_id", "status", "rows"]
    assert [row[:3] for row in rows[1:]] == [
        ["202401", "committed", "1"],
        ["202402", "committed", "2"],
    ]


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("JSON", '{\n\t"meta":\n'),
        ("JSONCompact", '{\n\t"meta":\n'),
        ("JSONCompactEachRow", '["202401", "committed", 1, 1, '),
        ("Vertical", "Row 1:\n──────\npartition_id:   202401\n"),
        ("PrettyCompact", "   ┌─partition_id─┬─status"),
        ("Markdown", "| partition_id | status | rows"),
        ("Null", ""),
    ],
)
def test_any_format_of_clickhouse_shapes_the_result(places: Places, form: str, begins: str) -> None:
    code, out, err = export(places, f"as_{form.lower()}", f"FORMAT {form} {ALLOWED}")

    assert (code, out[: len(begins)]) == (0, begins), err
    assert bool(out) == (form != "Null")
    if form == "JSON":
        rows = json.loads(out)["data"]
        assert [(row["partition_id"], row["rows"]) for row in rows] == [
            ("202401", 1),
            ("202402", 2),
        ]
        assert all(isinstance(row["snapshot_id"], str) for row in rows), "it has too many digits"


def test_a_format_that_is_no_text_goes_to_a_file(places: Places) -> None:
    path = places.root / "answer.parquet"

    code, _, err = export(places, "binary", f"FORMAT Parquet {ALLOWED}")
    assert (code, "is not text. Write it to a file: INTO OUTFILE" in err) == (3, True), err
    code, out, err = export(places, "binary", f"INTO OUTFILE '{path}' FORMAT Parquet {ALLOWED}")

    assert (code, out) == (0, ""), err
    assert pq.read_table(path).column("status").to_pylist() == ["committed", "committed"]


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (
            "FORMAT Jsonn",
            "in the format Jsonn: ClickHouse has no such format for output. Did you mean",
        ),
        ("INTO OUTFILE 'x' COMPRESSION 'zip'", "with the compression zip"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_done(
    places: Places, ending: str, message: str
) -> None:
    code, _, err = export(places, "refused", f"{ending} {ALLOWED}")

    assert (code, message in err) == (3, True), err


def test_a_statement_about_a_clickhouse_table_needs_a_permission(places: Places) -> None:
    statement = "ALTER TABLE ch.db.other DETACH PARTITION 202402"

    code, _, err = run(places, statement)
    assert (code, "Allow it with --allow-alter" in err) == (3, True), err
    code, _, stderr = run(places, statement, "--dry-run")
    assert (code, stderr.splitlines()[0]) == (3, err.splitlines()[0]), "as the run itself"
    code, out, err = run(places, statement, "--dry-run", "--allow-alter")
    assert (code, out) == (0, "it would be run by ClickHouse on db.other; nothing was done\n"), err
    code, out, err = run(places, statement, "--allow-alter")
    assert (code, out) == (0, "run by ClickHouse on db.other\n"), err
    assert [one["partition_id"] for one in places.outcomes("partitions", "db.other")] == ["202401"]
    assert run(places, "ALTER TABLE ch.db.other ATTACH PARTITION 202402", "--allow-alter")[0] == 0


@pytest.mark.parametrize("statement", ["SELECT 1", "ALTER TABLE ch.db.t EXPORT NONSENSE"])
def test_what_cannot_be_read_is_a_wrong_use(places: Places, statement: str) -> None:
    code, _, err = run(places, statement)

    assert (code, "Cannot read the statement" in err) == (2, True)


def interrupted(places: Places, to: str) -> str:
    """Leave an export of two partitions that did not end; return the name of its statement."""

    def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise KeyboardInterrupt

    places.before = interrupt
    assert places.run("export", "db.keyed", "--all", "--to", to)[0] == 130
    (query_id,) = {row.claim.query_id for row in rows_to(places, to)}
    return query_id


def rows_to(places: Places, to: str) -> list[Row]:
    ledger = SqliteLedger(places.warehouse / LEDGER_FILE)
    found = [
        row
        for row in ledger.rows()
        if row.destination_table.endswith(to.rsplit(":", maxsplit=1)[-1])
    ]
    ledger.close()
    return found


@pytest.fixture
def keyed(places: Places) -> Iterator[Places]:
    """Return the places with a table that goes into a catalog as well as into directories."""
    places.clickhouse_run(
        "CREATE TABLE db.keyed (k UInt8, id Int64) ENGINE = MergeTree PARTITION BY k ORDER BY id",
        "INSERT INTO db.keyed VALUES (1, 1), (2, 2)",
    )
    yield places
    places.clickhouse_run("DROP TABLE db.keyed SYNC")


@pytest.mark.parametrize(("mode", "more"), [("TEST", ()), ("SYNC", ("--dry-run",))])
def test_a_kill_that_only_looks_changes_nothing(
    keyed: Places, mode: str, more: tuple[str, ...]
) -> None:
    """Harm prevented: who asked what would be given up has given it up."""
    to = f"lake.n.looked_{mode.lower()}"
    query_id = interrupted(keyed, to)
    before = rows_to(keyed, to)

    code, out, err = run(keyed, f"KILL QUERY WHERE query_id = '{query_id}' {mode}", *more)

    assert (code, out.count("it would be given up")) == (0, 2), err
    assert rows_to(keyed, to) == before
    assert {row.state for row in before} == {State.RUNNING}


def test_the_result_of_a_kill_has_the_format_too(keyed: Places) -> None:
    query_id = interrupted(keyed, "lake.n.kill_format")

    code, out, err = run(keyed, f"KILL QUERY WHERE query_id = '{query_id}' TEST FORMAT JSONEachRow")

    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, {row["query_id"] for row in rows}) == (0, {query_id}), err
    assert [*rows[0]] == ["kill_status", "query_id", "partition_id", "message"]


@pytest.mark.parametrize("interface", ["command line", "session"])
@pytest.mark.parametrize("kind", ["catalog", "tree"])
def test_a_kill_gives_up_what_goes_to_a_table_and_to_directories(
    keyed: Places, tmp_path: Path, kind: str, interface: str
) -> None:
    """Harm prevented: its run is stopped and the row says for ever that it goes on."""
    name = interface.replace(" ", "_")
    to = f"hive:{tmp_path}/tree" if kind == "tree" else f"lake.n.{name}"
    statement = f"KILL QUERY WHERE query_id = '{interrupted(keyed, to)}' SYNC"

    if interface == "session":
        session = NoSpark({"spark.mergeberg.warehouse": str(keyed.warehouse)})
        statuses = [row["status"] for row in session.call("execute_alter", statement=statement)]
    else:
        _, out, _ = run(keyed, statement, "--json")
        statuses = [json.loads(line)["kill_status"] for line in out.splitlines()]

    assert statuses == ["finished", "finished"]
    assert {row.state for row in rows_to(keyed, to)} == {State.KILLED}


@pytest.mark.parametrize(
    ("statement", "at", "meant"),
    [
        ("ALTER TABLE lake.n.t DROP PARTITON 202401", "PARTITON", "PARTITION"),
        ("ALTER TABLE lake.n.t DETACH PARTITON 202401", "PARTITON", "PARTITION"),
        ("ALTER TABLE lake.n.t DETATCH PARTITION 202401", "DETATCH", "DETACH"),
        ("ALTR TABLE lake.n.t DETACH PARTITION 202401", "ALTR", "ALTER"),
        ("ALTER TBLE lake.n.t DETACH PARTITION 202401", "TBLE", "TABLE"),
    ],
)
def test_a_word_that_is_misspelt_is_pointed_at_and_corrected(
    keyed: Places, statement: str, at: str, meant: str
) -> None:
    """Harm prevented: "none of ClickHouse's about partitions", and nothing about where."""
    code, out, err = run(keyed, statement)

    _, line, caret, advice, *_ = err.splitlines()
    assert (code, out) == (2, "")
    assert line[caret.index("^") :].startswith(at)
    assert advice.startswith(f"Did you mean {meant}? ")


def test_what_is_no_statement_about_partitions_says_where_they_are_listed(keyed: Places) -> None:
    code, _, err = run(keyed, "SELECT 1")

    assert code == 2
    assert "it is not about partitions of ClickHouse's or of the lake. `mergeberg --help`" in err

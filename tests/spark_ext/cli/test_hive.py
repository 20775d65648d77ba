"""`--to hive:URI` and `mergeberg read`, as people run them."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.cli.main import invoke
from tableformat.export.slices import SliceTask, WritePlan
from tests.wrong.places import Places

COLUMNS = "(d Date, k UInt8, s String, n Nullable(Decimal(9, 2)))"
EXPORT = ("export", "db.keyed", "--all", "--to")


@pytest.fixture
def keyed(places: Places) -> Places:
    """Return the places with a table of two partitions, written by real tasks."""
    with EmbeddedConnection(places.clickhouse) as connection:
        connection.command(
            f"CREATE OR REPLACE TABLE db.keyed {COLUMNS} ENGINE = MergeTree PARTITION BY (d, k) "
            "ORDER BY s"
        )
        connection.command(
            "INSERT INTO db.keyed VALUES ('2024-01-31', 1, 'x', 1.5), ('2024-01-31', 2, 'y', NULL)"
        )
    places.reads_parts = True
    return places


def tree(tmp_path: Path) -> str:
    return f"hive:{tmp_path}/tree"


def read(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return invoke(["read", *words], out, err), out.getvalue(), err.getvalue()


@pytest.mark.representative
def test_partitions_are_exported_listed_read_and_verified(keyed: Places, tmp_path: Path) -> None:
    to = tree(tmp_path)

    code, out, _ = keyed.run(*EXPORT, to)
    again, stdout, _ = keyed.run(*EXPORT, to)

    assert (code, out.count(": exported")) == (0, 2)
    assert (again, stdout.count(": already exported")) == (0, 2)
    listed = [json.loads(line) for line in read(to, "--check", "--json")[1].splitlines()]
    assert [
        f["path"].removeprefix(f"file://{tmp_path}/tree/").rsplit("/", 1)[0] for f in listed
    ] == [
        "d=2024-01-31/k=1",
        "d=2024-01-31/k=2",
    ]
    assert all(f["path"].rsplit("/", 1)[-1].startswith(f"{f['transaction_id']}-") for f in listed)
    code, rows, _ = read(to, "--rows", "--partition-id", listed[0]["partition_id"])
    assert (code, [json.loads(line) for line in rows.splitlines()]) == (
        0,
        [{"d": "2024-01-31", "k": 1, "s": "x", "n": "1.50"}],
    )
    code, out, _ = keyed.run("verify", "db.keyed", "--all", "--to", to)
    assert (code, out.count(": equal")) == (0, 2)
    code, out, _ = keyed.run("exports", "list", "--json")
    assert code == 0
    assert f"hive:file://{tmp_path}/tree" in out


def test_a_number_that_json_has_not_is_text(keyed: Places, tmp_path: Path) -> None:
    """Harm prevented: what reads the rows stops at NaN, which is no JSON."""
    keyed.clickhouse_run(
        "CREATE OR REPLACE TABLE db.floats (k UInt8, f Float64, a Array(Float32)) "
        "ENGINE = MergeTree PARTITION BY k ORDER BY k",
        "INSERT INTO db.floats VALUES (1, nan, [inf, -inf, 1.5])",
    )
    assert keyed.run("export", "db.floats", "--all", "--to", tree(tmp_path))[0] == 0

    code, rows, err = read(tree(tmp_path), "--rows")

    assert code == 0, err
    assert json.loads(rows, parse_constant=pytest.fail) == {
        "k": 1,
        "f": "nan",
        "a": ["inf", "-inf", 1.5],
    }


def test_a_completed_export_is_forgotten_by_the_name_that_was_given(
    keyed: Places, tmp_path: Path
) -> None:
    """Harm prevented: a tree's name has its whole location in the ledger, and is not found."""
    assert keyed.run(*EXPORT, tree(tmp_path))[0] == 0
    (partition_id, *_) = (
        json.loads(line)["partition_id"] for line in read(tree(tmp_path), "--json")[1].splitlines()
    )
    relative = f"hive:{os.path.relpath(tmp_path)}/tree"

    code, out, err = keyed.run(
        "exports", "forget", partition_id, "--table", "db.keyed", "--to", relative
    )

    assert (code, partition_id in out) == (0, True), err


def test_directories_of_expressions_are_named_and_read(keyed: Places, tmp_path: Path) -> None:
    """`--hive-column`, and then without it: the tree remembers."""
    to = tree(tmp_path)
    keyed.clickhouse_run(
        "CREATE OR REPLACE TABLE db.months (d Date, k UInt8, s String) ENGINE = MergeTree "
        "PARTITION BY (toYYYYMM(d), k % 2 = 1, toMonday(d)) ORDER BY s",
        "INSERT INTO db.months VALUES ('2024-01-31', 1, 'x'), ('2024-03-01', 2, 'y')",
    )
    names = (
        *("--hive-column", "month=toYYYYMM(d)", "--hive-column", "odd=k % 2 = 1"),
        *("--hive-column", "week=toMonday(d)"),
    )
    export = ("export", "db.months", "--all", "--to", to)

    code, _, err = keyed.run(*export, *names)
    again, stdout, _ = keyed.run(*export)

    assert (code, again, stdout.count(": already exported")) == (0, 0, 2), err
    code, rows, _ = read(to, "--rows")
    assert (code, [json.loads(line) for line in rows.splitlines()]) == (
        0,
        [
            {"d": "2024-01-31", "k": 1, "s": "x", "month": 202401, "odd": 1, "week": "2024-01-29"},
            {"d": "2024-03-01", "k": 2, "s": "y", "month": 202403, "odd": 0, "week": "2024-02-26"},
        ],
    )
    assert read(to, "--check")[1].count("/month=2024") == 2
    assert keyed.run("verify", "db.months", "--all", "--to", to)[1].count(": equal") == 2
    one, _ = sorted((tmp_path / "tree").rglob("*.parquet"))
    twice = one.with_name(f"{one.stem}b.parquet")
    twice.write_bytes(one.read_bytes())
    assert keyed.run("gc", "--to", to, "--yes")[0] == 0
    assert (one.exists(), twice.exists()) == (True, False)
    code, out, err = keyed.run(*export, "--hive-column", "ym=toYYYYMM(d)", "--json")
    assert (code, out, json.loads(err.splitlines()[-1])["code"]) == (3, "", 36)


def test_a_dry_run_writes_nothing(keyed: Places, tmp_path: Path) -> None:
    code, out, _ = keyed.run(*EXPORT, tree(tmp_path), "--dry-run", "--json")

    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [r["action"] for r in records if "action" in r] == ["export", "export"]
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_export_is_cancelled_and_exported_again(
    keyed: Places, tmp_path: Path
) -> None:
    to = tree(tmp_path)
    keyed.reads_parts = False

    def interrupt(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        raise KeyboardInterrupt

    keyed.before = interrupt
    one = ("export", "db.keyed", "--partition", "('2024-01-31', 1)", "--to", to)
    assert keyed.run(*one)[0] == 130
    keyed.before = lambda *_: None
    _, listed, _ = keyed.run("exports", "list", "--json")
    (partition_id,) = {
        row["partition_id"]
        for row in map(json.loads, listed.splitlines())
        if str(tmp_path) in str(row)
    }

    code, out, _ = keyed.run("exports", "cancel", partition_id, "--table", "db.keyed", "--to", to)

    assert (code, out) == (0, f"partition {partition_id}: KILLED\n")
    assert read(to, "--json") == (0, "", "")
    assert keyed.run(*one)[0] == 0
    assert read(to)[1].count(".parquet") == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("export", "db.events", "--all", "--to", "{tree}"), 48, "toYYYYMM(ts) is an expression"),
        ((*EXPORT, "{tree}", "--partition-spec", "d"), None, "Cannot use --partition-spec"),
        ((*EXPORT, "{tree}", "--hive-column", "d"), None, "it is not NAME=VALUE"),
        ((*EXPORT, "{tree}", "--hive-column", "day=d"), 36, "d is a column, and its directory"),
        ((*EXPORT, "lake.n.t", "--hive-column", "day=d"), None, "only trees of Hive directories"),
        ((*EXPORT, "hive:"), None, "it names no directory"),
    ],
)
def test_what_a_tree_cannot_do_is_refused_before_anything_is_written(
    keyed: Places, tmp_path: Path, words: tuple[str, ...], code: int | None, text: str
) -> None:
    ended, out, err = keyed.run(*(w.format(tree=tree(tmp_path)) for w in words), "--json")

    assert ended in (2, 3)
    assert out == ""
    error = json.loads(err.splitlines()[-1])
    assert (error["code"], text in error["error"]) == (code, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [("lake.n.t", "it is no tree of Hive directories"), ("hive:/nowhere", "there is no such tree")],
)
def test_what_is_no_tree_cannot_be_read(name: str, text: str) -> None:
    code, out, err = read(name)

    assert code in (2, 3)
    assert (out, text in err) == ("", True)


def test_a_partition_that_nobody_can_see_is_not_equal(keyed: Places, tmp_path: Path) -> None:
    """Harm prevented: `verify` is content, and every reader lacks the partition."""
    to = tree(tmp_path)
    assert keyed.run(*EXPORT, to)[0] == 0
    gone, damaged = sorted((tmp_path / "tree" / "_mergeberg" / "commits").iterdir())
    content = damaged.read_bytes()
    gone.unlink()
    damaged.write_bytes(content[:1])

    code, out, _ = keyed.run("verify", "db.keyed", "--all", "--to", to)

    assert code == 1
    assert f"its commit file file://{gone} is not there; the next export writes it" in out
    assert "remove it: the next export writes it again" in out
    damaged.unlink()
    assert keyed.run(*EXPORT, to)[0] == 0
    assert damaged.read_bytes() == content
    code, out, _ = keyed.run("verify", "db.keyed", "--all", "--to", to)
    assert (code, out.count(": equal")) == (0, 2)


def test_what_dead_exports_left_in_a_tree_goes_by_gc(keyed: Places, tmp_path: Path) -> None:
    """Harm prevented: an export says that `mergeberg gc` removes it, and gc knows no trees."""
    to = tree(tmp_path)
    assert keyed.run(*EXPORT, to)[0] == 0
    one, other = sorted((tmp_path / "tree").rglob("*.parquet"))
    twice = one.with_name(f"{one.stem}b.parquet")
    twice.write_bytes(one.read_bytes())
    theirs = one.with_name("theirs.parquet")
    theirs.write_bytes(b"rows")

    code, stdout, _ = keyed.run("gc", "--to", to, "--json")
    assert code == 0
    assert [json.loads(line)["location"] for line in stdout.splitlines()] == [f"file://{twice}"]
    assert keyed.run("gc", "--to", to, "--yes")[0] == 0

    assert sorted((tmp_path / "tree").rglob("*.parquet")) == sorted([one, other, theirs])
    assert read(to, "--check")[0] == 0
    assert keyed.run("verify", "db.keyed", "--all", "--to", to)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("check", "db.keyed"),
        ("exports", "watermark", "--table", "db.keyed"),
    ],
)
def test_what_knows_no_trees_says_so(keyed: Places, words: tuple[str, ...], tmp_path: Path) -> None:
    _, out, err = keyed.run(*words, "--to", tree(tmp_path), "--json")

    error = json.loads(err.splitlines()[-1])
    assert (out, error["code"]) == ("", 48)
    assert "only export, archive, verify, read" in error["error"]


def archived(out: str) -> list[str]:
    records = [json.loads(line) for line in out.splitlines()]
    return [one["source"] for one in records if "source" in one]


def test_partitions_are_archived_into_a_tree_and_only_what_everybody_sees(
    keyed: Places, tmp_path: Path
) -> None:
    """Harm prevented: a partition that leaves ClickHouse, and no reader finds it in the tree."""
    to = tree(tmp_path)
    assert keyed.run(*EXPORT, to)[0] == 0
    gone, _ = sorted((tmp_path / "tree" / "_mergeberg" / "commits").iterdir())
    damaged, _ = sorted((tmp_path / "tree").rglob("*.parquet"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    archive = ("archive", "db.keyed", "--all", "--to", to, "--json")

    code, out, _ = keyed.run(*archive)
    assert (code, archived(out)) == (3, ["kept", "detached"])
    damaged.write_bytes(content)
    gone.unlink()
    code, out, err = keyed.run(*archive)

    assert (code, archived(out)) == (0, ["detached"]), err
    assert gone.exists()
    assert keyed.run("partitions", "db.keyed", "--json")[1] == ""
    assert len(read(to, "--rows")[1].splitlines()) == 2


def test_a_lost_ledger_is_rebuilt_from_the_tree(keyed: Places, tmp_path: Path) -> None:
    """Harm prevented: all of a tree is exported into it a second time."""
    to = tree(tmp_path)
    lost = ("--ledger", f"sqlite:{tmp_path}/lost.db")
    new = ("--ledger", f"sqlite:{tmp_path}/new.db")
    assert keyed.run(*EXPORT, to, *lost)[0] == 0
    before = sorted((tmp_path / "tree").rglob("*.parquet"))
    assert keyed.run(*EXPORT, to, *new)[0] != 0

    code, out, err = keyed.run("exports", "rebuild", "--to", to, *new, "--json")

    assert code == 0, err
    assert {(r["status"], r["rows"]) for r in map(json.loads, out.splitlines())} == {
        ("COMPLETED", 1)
    }
    code, out, _ = keyed.run(*EXPORT, to, *new)
    assert (code, out.count(": already exported")) == (0, 2)
    assert sorted((tmp_path / "tree").rglob("*.parquet")) == before
    assert keyed.run("verify", "db.keyed", "--all", "--to", to, *new)[1].count(": equal") == 2
    assert keyed.run(*EXPORT, to, *lost)[0] != 0


def test_a_table_of_a_catalog_that_is_called_hive_is_no_tree(keyed: Places) -> None:
    _, out, err = keyed.run(*EXPORT, "hive.analytics.events")

    assert out == ""
    assert "Cannot find the catalog 'hive': it is not configured" in err


def test_a_file_that_differs_from_what_was_written_is_named(keyed: Places, tmp_path: Path) -> None:
    to = tree(tmp_path)
    assert keyed.run(*EXPORT, to)[0] == 0
    damaged, _ = sorted((tmp_path / "tree").rglob("*.parquet"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    assert read(to)[0] == 0
    for words in (("--check",), ("--rows",)):
        code, _, err = read(to, *words)
        assert (code, damaged.name in err) == (4, True)
    damaged.unlink()
    assert read(to)[0] == 4

"""`--to hive:URI` and `mergeberg read`, as people run them."""

from __future__ import annotations

import io
import json
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


def test_partitions_are_exported_listed_read_and_verified(keyed: Places, tmp_path: Path) -> None:
    to = tree(tmp_path)

    code, out, _ = keyed.run(*EXPORT, to)
    again, told, _ = keyed.run(*EXPORT, to)

    assert (code, out.count("exported")) == (0, 2)
    assert (again, told.count("already exported")) == (0, 2)
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
    assert (code, out.count("equal")) == (0, 2)
    code, out, _ = keyed.run("exports", "list", "--json")
    assert code == 0
    assert f"hive:file://{tmp_path}/tree" in out


def test_a_dry_run_writes_nothing(keyed: Places, tmp_path: Path) -> None:
    code, out, _ = keyed.run(*EXPORT, tree(tmp_path), "--dry-run", "--json")

    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [r["action"] for r in records if "action" in r] == ["export", "export"]
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_export_is_cancelled_and_exported_anew(
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
        ((*EXPORT, "{tree}", "--force", "--replace-partition"), 48, "never replaced"),
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


def test_a_file_that_is_not_what_was_written_is_told_by_name(keyed: Places, tmp_path: Path) -> None:
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

"""No secret of a command line is printed, whichever part of the command cannot use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wrong.places import Places

HIDDEN = "pa55-w0rd-of-mine"
TREE = f"hive:s3://AK:{HIDDEN}@bucket/x"
OF_SLASHES = f"hive:s3://AK:a/{HIDDEN}@bucket/x"
EXPORT = ("export", "db.events", "--all", "--to")
FETCH = ("fetch", "lake.n.fetched", "--partition-id", "202401", "--from")


@pytest.mark.parametrize(
    "words",
    [
        ("partitions", "db.t", "--source", f"u:{HIDDEN}@ch1.example:8123"),
        ("partitions", "db.t", "--source", f"https:u:{HIDDEN}@ch1.example"),
        ("partitions", "db.t", "--source", f"ch1.example:8123?password={HIDDEN}"),
        ("gc", "--source", f"u:{HIDDEN}@ch1.example:8123", "--cluster", "main"),
        ("exports", "list", "--ledger", f"zookeeper:u:{HIDDEN}@h/x"),
        ("exports", "list", "--ledger", f"keeper:u:{HIDDEN}@h/x"),
        ("exports", "list", "--ledger", f"h:2181/x?password={HIDDEN}"),
        ("read", TREE),
        ("read", OF_SLASHES),
        ("read", f"hive:file://u:{HIDDEN}@h/x"),
        ("exports", "list", "--to", TREE),
        ("exports", "rebuild", "--to", TREE),
        ("gc", "--to", TREE),
        ("verify", "db.events", "--all", "--to", TREE),
        ("check", "db.events", "--to", TREE),
        ("archive", "db.events", "--all", "--to", TREE),
        (*EXPORT, TREE),
        (*EXPORT, TREE, "--dry-run"),
        (*EXPORT, TREE.removeprefix("hive:")),
        ("read", TREE.removeprefix("hive:")),
        (*EXPORT, TREE, "--conf", f"spark.hadoop.fs.s3a.secret.key={HIDDEN}"),
        (*EXPORT, "lake.n.t", "--conf", f"spark.hadoop.fs.s3a.secret.key:{HIDDEN}"),
        (*EXPORT, "lake.n.t", "--source-setting", f"password{HIDDEN}"),
        ("alter", f"ALTER TABLE ch.db.events EXPORT PARTITION 1 TO TABLE hive.`{TREE[5:]}`"),
        (*FETCH, f"s3://AK:{HIDDEN}@bucket/x"),
        (*FETCH, f"s3://AK:a/{HIDDEN}@bucket/x"),
        (*FETCH, f"s3://AK:{HIDDEN}@bucket/x", "--dry-run"),
        (*FETCH, f"https://u:{HIDDEN}@h/x"),
        (*FETCH, f"file://u:{HIDDEN}@h/x"),
        (
            "alter",
            f"ALTER TABLE lake.n.fetched FETCH PARTITION ID '1' FROM 's3://AK:{HIDDEN}@bucket/x'",
        ),
    ],
)
@pytest.mark.parametrize("more", [(), ("--debug",), ("--json",)])
def test_no_secret_of_a_command_line_is_printed(
    places: Places, words: tuple[str, ...], more: tuple[str, ...]
) -> None:
    if words[0] in ("fetch", "alter"):
        exported = places.run(*EXPORT, "lake.n.fetched")
        assert exported[0] == 0, exported
        words = (*words, "--warehouse", str(places.warehouse))

    code, out, err = places.run(*words, *more)

    assert code in (2, 3, 4), err
    assert HIDDEN not in out + err


def test_a_failed_export_has_no_secret_in_its_next_command(places: Places, tmp_path: Path) -> None:
    tmp_path.joinpath("lake.db").write_text("no database")
    conf = ("--conf", f"spark.hadoop.fs.s3a.secret.key={HIDDEN}", "--warehouse", str(tmp_path))

    code, out, err = places.run(*EXPORT, "lake.n.t", *conf)

    assert code == 4, err
    assert "spark.hadoop.fs.s3a.secret.key=…" in err
    assert HIDDEN not in out + err

"""No secret of a command line is printed, whichever part of the command cannot use it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tableformat.errors import TableFormatError
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

HIDDEN = "pa55-w0rd-of-mine"
TREE = f"hive:s3://AK:{HIDDEN}@bucket/x"
OF_SLASHES = f"hive:s3://AK:a/{HIDDEN}@bucket/x"
EXPORT = ("export", "db.events", "--all", "--to")
SIGNED = f"abfss://c@a.dfs.core.windows.net/x?sv=2024-11-04&sig={HIDDEN}"
LINK = f"s3://bucket/x?X-Amz-Credential=AK&X-Amz-Signature={HIDDEN}"
WEB = f"https://b.s3.amazonaws.com/x?X-Amz-Signature={HIDDEN}"
ALTER = "ALTER TABLE lake.n.fetched"
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
        (*EXPORT, f"hive:{SIGNED}"),
        (*EXPORT, f"hive:{LINK}"),
        (*EXPORT, f"hive:{SIGNED}", "--dry-run"),
        ("read", f"hive:{SIGNED}"),
        ("gc", "--to", f"hive:{SIGNED}"),
        ("verify", "db.events", "--all", "--to", f"hive:{LINK}"),
        ("exports", "list", "--to", f"hive:{SIGNED}"),
        ("alter", f"ALTER TABLE ch.db.events EXPORT PARTITION 1 TO TABLE hive.`{SIGNED}`"),
        (*FETCH, SIGNED),
        (*FETCH, LINK, "--dry-run"),
        (*FETCH, WEB),
        ("alter", f"{ALTER} FETCH PARTITION ID '1' FROM '{LINK}'"),
        ("alter", f"{ALTER} FETCH PARTITION ID '1' FROM '{WEB}'"),
        ("alter", f"FETCH FROM 's3://AK:{HIDDEN}@b/x'"),
        ("alter", f"FETCH FROM '{WEB}'"),
        ("alter", f"{ALTER} FETCH PARTITON 1 FROM '{LINK}'"),
        ("alter", f"{ALTER} FETCH PARTITION ID '1' FROM '{SIGNED}' AND '2'"),
        ("alter", f"{ALTER} FETCH PARTITION ID '1' '{SIGNED}'"),
        ("alter", f"{ALTER} FETCH PARTITION ID '1' FROM '{LINK}"),
        ("alter", f"{ALTER} FETCH PARTITION ID '1' FROM 's3://AK:a {HIDDEN}@b/x' AND"),
        ("alter", f"{ALTER} FETCH PARTITION ID '1' FROM s3('https://b/x', 'AK', '{HIDDEN}')"),
        ("alter", f"{ALTER} DROP PARTITION 1 SETTINGS s3_secret_access_key = '{HIDDEN}', 2"),
        ("alter", f"{ALTER} DROP PARTITION 1 SETTINGS s3_secret_access_key = '{HIDDEN}'"),
        ("alter", f"{ALTER} DROP PARTITION 1 SETTINGS a = 's3://AK:{HIDDEN}@b/x' AND"),
        ("alter", f"SELECT 1 SETTINGS password = '{HIDDEN}'"),
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


@pytest.mark.parametrize("statement", [f"{ALTER} FETCH PARTITION ID '1' FROM '{LINK}' AND x"])
def test_a_syntax_error_behind_a_secret_still_points_at_its_word(
    places: Places, statement: str
) -> None:
    _, _, err = places.run("alter", statement)

    line, caret = next((one, two) for one, two in pairwise(err.splitlines()) if two.strip() == "^")
    assert line[caret.index("^") :].startswith("AND x"), err


def test_the_log_has_no_secret_of_a_location(places: Places, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    refused = (*EXPORT, f"hive:{SIGNED}"), ("alter", f"FETCH FROM '{WEB}'")
    for words in ((*EXPORT, "lake.n.logged"), *refused):
        places.run(*words, "--log", f"json:{log}", "--log-level", "debug")

    assert log.read_text()
    assert HIDDEN not in log.read_text()


@pytest.mark.parametrize(
    "statement",
    [
        f"FETCH FROM '{WEB}'",
        f"{ALTER} FETCH PARTITON 1 FROM '{LINK}'",
        f"{ALTER} FETCH PARTITION ID '1' FROM '{LINK}'",
        f"ALTER TABLE ch.db.events EXPORT PARTITION 1 TO TABLE hive.`{SIGNED}`",
    ],
)
def test_no_secret_of_a_statement_is_printed_in_a_session(
    places: Places, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CALL and Spark SQL raise the same error, which Spark logs and shows."""
    assert places.run(*EXPORT, "lake.n.fetched")[0] == 0
    of = {"warehouse": str(places.warehouse), "source.ch": f"chdb:{places.clickhouse}"}
    session = NoSpark({f"spark.mergeberg.{name}": value for name, value in of.items()})

    with pytest.raises(TableFormatError) as refused:
        session.call("execute_alter", statement=statement)

    assert HIDDEN not in f"{refused.value} {refused.value.message} {caplog.text}"

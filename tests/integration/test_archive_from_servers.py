"""`mergeberg archive` from a server: what is in the lake and equal leaves the table, no more."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog.iceberg.catalogs import open_catalog
from spark_ext.actions import export_ports
from spark_ext.cli.main import invoke
from tests.services.clickhouse_front import ClickHouseFront, clickhouse_front
from tests.services.clickhouse_http.faults import LOST
from tests.support.child_writer import ChildWriter
from tests.support.real_export import Rows

TABLE = "db.events"
TO = "lake.n.events"
COLUMNS = "p UInt8, k UInt64, s String"
LATE = f"INSERT INTO {TABLE} SELECT 1, 1000 + number, 'late' FROM numbers(500)"


class Archiver:
    """A user of a server with a table of 2 x 50 rows, and a warehouse."""

    def __init__(self, front: ClickHouseFront, root: Path) -> None:
        self.front, self._root = front, root
        self.before: Callable[[], None] = lambda: None
        """Called when the source is frozen, before the first file."""

    def writer(self, _: object, server: Any, __: object) -> ChildWriter:
        return ChildWriter(lambda *_: self.before(), server)

    def run(self, *words: str, table: str = TABLE, allow: bool = True) -> tuple[int, str]:
        """Run a command as the user; return the exit code and the output."""
        source = self.front.url.replace("//", "//archiver@")
        given = [*words, "--source", source, "--allow-insecure", "--sync-timeout", "0"]
        given[1:1] = [table]
        if words[0] in ("archive", "export", "verify"):
            given += ["--to", TO, "--warehouse", str(self._root / "w")]
        if words[0] == "archive" and allow:
            given.append("--allow-alter")
        out, err = io.StringIO(), io.StringIO()
        return invoke(given, out, err), out.getvalue() + err.getvalue()

    def archive(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """Archive; return exit code, and what is printed for each partition."""
        code, output = self.run("archive", *(words or ("--all",)), "--json")
        return code, [json.loads(line) for line in output.splitlines() if '"source"' in line]

    def in_source(self) -> tuple[int, int]:
        """Return rows of the table, and the number of its detached parts."""
        ((rows,),) = self.front.rows(f"SELECT count() FROM {TABLE}")
        ((parts,),) = self.front.rows(
            "SELECT count() FROM system.detached_parts WHERE database = 'db'"
        )
        return int(str(rows)), int(str(parts))

    def in_lake(self) -> Rows:
        """Return the rows of the lake table, sorted."""
        catalog = open_catalog("lake", warehouse=self._root / "w").catalog
        found = catalog.load_table("n.events").scan().to_arrow().to_pylist()
        return sorted((row["p"], row["k"], row["s"]) for row in found)


ROWS: Rows = sorted((n % 2, n, str(n)) for n in range(100))
SETUP = (
    "CREATE DATABASE db",
    f"CREATE TABLE {TABLE} ({COLUMNS}) ENGINE = MergeTree PARTITION BY p ORDER BY k",
    f"INSERT INTO {TABLE} SELECT number % 2, number, toString(number) FROM numbers(100)",
    "CREATE USER archiver",
    "GRANT ALL ON *.* TO archiver",
)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[ClickHouseFront], Archiver]:
    """Make the table and its user at a server; exports need no Spark."""

    def archiver(front: ClickHouseFront) -> Archiver:
        front.commands(*SETUP)
        found = Archiver(front, tmp_path)
        monkeypatch.setattr(export_ports, "SparkWriter", found.writer)
        return found

    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(export_ports, "_back_off", lambda _: None)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.delenv("MERGEBERG_ALLOW_ALTER", raising=False)
    return archiver


@pytest.fixture
def archiver(
    newest_server: ClickHouseFront, made: Callable[[ClickHouseFront], Archiver]
) -> Archiver:
    return made(newest_server)


def test_a_server_is_changed_only_where_that_was_allowed(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent to it before; with the variable it is as with the option."""
    asked = len(archiver.front.requests())

    code, output = archiver.run("archive", "--all", "--drop", allow=False)

    assert code == 3
    assert (
        "that runs ALTER TABLE `db`.`events` DETACH PARTITION ID '...', and DROP DETACHED" in output
    )
    assert "Give --allow-alter; the user needs GRANT ALTER DELETE, INSERT ON db.events TO" in output
    assert len(archiver.front.requests()) == asked
    monkeypatch.setenv("MERGEBERG_ALLOW_ALTER", "1")
    code, output = archiver.run("archive", "--partition-id", "7", allow=False)
    assert (code, "Cannot archive partition 7" in output) == (3, True)


def test_a_missing_right_is_named_before_anything_is_exported(archiver: Archiver) -> None:
    archiver.front.commands(f"REVOKE ALTER DELETE, INSERT ON {TABLE} FROM archiver")

    code, output = archiver.run("archive", "--all")

    assert code == 3
    assert (
        "Cannot archive partitions of db.events as the user 'archiver': a right is missing. Run "
        "GRANT ALTER DELETE, INSERT ON db.events TO archiver;" in output
    )
    assert archiver.front.requests("REPLACE PARTITION") == ()


@pytest.mark.parametrize("drop", [False, True], ids=["detach", "drop"])
def test_partitions_leave_a_server_for_the_lake(archiver: Archiver, *, drop: bool) -> None:
    """And rows that come into an archived partition later never take their place."""
    code, found = archiver.archive("--all", *(["--drop"] if drop else []))

    assert (code, [one["source"] for one in found]) == (0, ["dropped" if drop else "detached"] * 2)
    assert archiver.in_source() == (0, 0 if drop else 2)
    assert archiver.in_lake() == ROWS
    archiver.front.command(LATE)
    code, output = archiver.run("export", "--all")
    assert code == 3
    assert "it is archived since" in output
    assert archiver.in_lake() == ROWS


@pytest.mark.parametrize(
    "change",
    [
        LATE,
        f"ALTER TABLE {TABLE} UPDATE s = 'x' WHERE p = 1 SETTINGS mutations_sync = 2",
        f"ALTER TABLE {TABLE} DROP PARTITION ID '1'",
    ],
    ids=["insert", "mutation", "drop"],
)
def test_a_partition_that_changes_while_it_is_written_stays_as_it_is(
    archiver: Archiver, change: str
) -> None:
    """Harm prevented: rows that came after the snapshot go with it."""
    archiver.before = lambda: archiver.front.command(change)

    code, found = archiver.archive("--all", "--drop")

    assert (code, {one["partition_id"]: one["source"] for one in found}) == (
        3,
        {"0": "dropped", "1": "kept"},
    )
    ((shown,),) = archiver.front.rows(f"SELECT count() FROM {TABLE}")
    assert shown == {"INSERT": 550, "ALTER ": 50}[change[:6]] * ("DROP" not in change)
    assert archiver.in_lake() == ROWS


def test_a_detach_without_a_response_reports_where_the_rows_are(archiver: Archiver) -> None:
    """They are attached again by the statement that is printed, and archived by the next run."""
    archiver.front.fail_next(LOST, containing="DETACH PARTITION")

    code, found = archiver.archive("--partition-id", "1", "--drop")

    assert (code, archiver.in_source()) == (3, (50, 1))
    assert "It is unknown whether it was detached" in found[0]["message"]
    statement = "ALTER TABLE `db`.`events` ATTACH PARTITION ID '1'"
    assert statement in found[0]["message"]
    archiver.front.command(statement)
    assert archiver.archive("--all", "--drop")[0] == 0
    assert archiver.in_source() == (0, 0)
    assert archiver.in_lake() == ROWS


def test_a_replica_that_is_read_only_keeps_its_partitions(
    made: Callable[[ClickHouseFront], Archiver],
) -> None:
    """It may lack what the others have, and can tell them nothing."""
    macros = "<macros><shard>1</shard><replica>r1</replica></macros>"
    with clickhouse_front(config=macros) as front:
        archiver = made(front)
        front.command(f"DETACH TABLE {TABLE}")
        front.command(f"ATTACH TABLE {TABLE} AS REPLICATED")

        code, output = archiver.run("archive", "--all", "--drop")

        assert (code, archiver.in_source()) == (3, (100, 0))
        assert "read-only" in output


def test_a_table_of_a_cluster_is_archived_shard_by_shard(
    made: Callable[[ClickHouseFront], Archiver],
) -> None:
    """A Distributed table itself has no partitions: ClickHouse refuses to detach them (48)."""
    shard = "<shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard>"
    nobody = shard.replace("9000", "9001")
    config = f"<remote_servers><pair>{shard}{nobody}</pair></remote_servers>"
    with clickhouse_front(config=config) as front:
        archiver = made(front)
        over = "ENGINE = Distributed(pair, db, events)"
        front.command(f"CREATE TABLE db.everywhere AS {TABLE} {over}")
        places = ["--cluster-host", f"127.0.0.1:9000=127.0.0.1:{front.port}"]
        places += ["--cluster-host", "127.0.0.1:9001=127.0.0.1:1"]

        code, output = archiver.run("archive", "--all", "--drop", *places, table="db.everywhere")

        assert code == 4
        assert output.count(": dropped · 50 rows in lake.n.events") == 2
        assert "Cannot archive from 1 of 2 shards: shard 2: Cannot reach ClickHouse" in output
        assert archiver.in_source() == (0, 0)
        assert archiver.in_lake() == ROWS
        with pytest.raises(RuntimeError, match=r"Code: 48.*Distributed"):
            front.command("ALTER TABLE db.everywhere DETACH PARTITION ID '1'")

"""FETCH on a lake table from a path in ZooKeeper: the table that is replicated there is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog import sources as replicated_tables
from catalog.sources import SourcePlace, pass_on
from spark_ext.actions import export_ports
from spark_ext.operations import fetch as fetching_from
from tableformat.errors import NotFoundError, RefusedError, SourceError
from tableformat.mergetree.table import KeeperNode
from tableformat.names import TableName
from tests.services.old_clickhouse import OldPair
from tests.support.child_writer import ChildWriter
from tests.support.session_lake import ALLOWED, alter, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

PATH = "/tables/fetched/{}"


def made(pair: OldPair, name: str) -> None:
    """Make a replicated table on both servers, filled at the first."""
    for number in (1, 2):
        pair.query(number, "CREATE DATABASE IF NOT EXISTS fetched")
        pair.query(number, f"DROP TABLE IF EXISTS fetched.{name}")
        pair.query(
            number,
            f"CREATE TABLE fetched.{name} (p UInt8, k UInt64, s String) ENGINE ="
            f" ReplicatedMergeTree('{PATH.format(name)}', 'r{number}') PARTITION BY p ORDER BY k",
        )
    pair.query(1, f"INSERT INTO fetched.{name} SELECT 1, number, 'a' FROM numbers(3)")
    pair.query(1, f"INSERT INTO fetched.{name} SELECT 2, number, 'b' FROM numbers(2)")
    pair.query(2, f"SYSTEM SYNC REPLICA fetched.{name}")


@pytest.fixture
def session(old_servers: OldPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NoSpark:
    """Return a session with the first replica as its source, and a writer without Spark."""
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(export_ports.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(
        export_ports, "SparkWriter", lambda _, server, *__: ChildWriter(lambda *___: None, server)
    )
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    return NoSpark(
        {
            "spark.mergeberg.source.ch": old_servers.url(1),
            "spark.mergeberg.source.ch.allow-insecure": "true",
            "spark.mergeberg.warehouse": str(tmp_path / "warehouse"),
        }
    )


def rows(tmp_path: Path, name: str) -> list[tuple[int, int, str]]:
    found = opened(Places(tmp_path), name).scan().to_arrow().to_pylist()
    return sorted((r["p"], int(r["k"]), r["s"]) for r in found)


def test_a_partition_comes_from_the_table_that_is_replicated_under_the_path(
    old_servers: OldPair, session: NoSpark, tmp_path: Path
) -> None:
    made(old_servers, "kept")
    alter(
        session, f"ALTER TABLE ch.fetched.kept EXPORT PARTITION ALL TO TABLE lake.n.kept {ALLOWED}"
    )
    before = rows(tmp_path, "kept")
    alter(session, "ALTER TABLE lake.n.kept DROP PARTITION 1")

    (row,) = alter(
        session, f"ALTER TABLE lake.n.kept FETCH PARTITION 1 FROM '{PATH.format('kept')}'"
    )

    assert (row["status"], row["rows"]) == ("fetched", 3)
    assert [r for r in rows(tmp_path, "kept") if r[0] == 1] == []
    alter(session, "ALTER TABLE lake.n.kept ATTACH PARTITION 1")
    assert rows(tmp_path, "kept") == before
    assert len(before) == 5
    left = "SELECT count() FROM system.tables WHERE database LIKE 'mergeberg%'"
    assert old_servers.query(1, left) == "0"


def test_a_path_of_no_table_is_refused_with_the_code_of_clickhouse(
    old_servers: OldPair, session: NoSpark, tmp_path: Path
) -> None:
    made(old_servers, "there")
    alter(
        session, f"ALTER TABLE ch.fetched.there EXPORT PARTITION 2 TO TABLE lake.n.there {ALLOWED}"
    )
    statement = "FETCH PARTITION 2 FROM '/tables/fetched/nowhere'"

    with pytest.raises(
        NotFoundError, match=r"no source of the session \(ch\) has a table"
    ) as refused:
        alter(session, f"ALTER TABLE lake.n.there {statement}")

    place = SourcePlace(old_servers.url(1), allow_insecure=True, allow_alter=True)
    table = TableName("fetched", "there")
    with pytest.raises((SourceError, RefusedError)) as theirs:
        pass_on(place, table, f"ALTER TABLE {table.sql} {statement}")
    assert refused.value.code == theirs.value.code
    assert len(rows(tmp_path, "there")) == 2


def also_at(session: NoSpark, name: str, url: str) -> None:
    """Give the session one more source."""
    session.settings[f"spark.mergeberg.source.{name}"] = url
    session.settings[f"spark.mergeberg.source.{name}.allow-insecure"] = "true"


@pytest.mark.parametrize("behind", [1, 2])
def test_of_two_replicas_the_one_that_is_behind_the_least_is_read(
    old_servers: OldPair, session: NoSpark, tmp_path: Path, behind: int
) -> None:
    """Harm prevented: rows that the better replica has are left behind."""
    name, ahead = f"behind{behind}", 3 - behind
    made(old_servers, name)
    also_at(session, "another", old_servers.url(2))
    alter(
        session,
        f"ALTER TABLE ch.fetched.{name} EXPORT PARTITION 2 TO TABLE lake.n.{name} {ALLOWED}",
    )
    old_servers.query(behind, f"SYSTEM STOP FETCHES fetched.{name}")
    try:
        filled = f"INSERT INTO fetched.{name} SELECT 1, 10 + number, 'c' FROM numbers(4)"
        old_servers.query(ahead, filled)

        (row,) = alter(
            session, f"ALTER TABLE lake.n.{name} FETCH PARTITION 1 FROM '{PATH.format(name)}'"
        )
    finally:
        old_servers.query(behind, f"SYSTEM START FETCHES fetched.{name}")

    assert (row["status"], row["rows"]) == ("fetched", 7)
    assert len(rows(tmp_path, name)) == 2


def test_a_part_comes_from_the_table_that_is_replicated_under_the_path(
    old_servers: OldPair, session: NoSpark, tmp_path: Path
) -> None:
    """FETCH PART brings that part and no other, and ATTACH PARTITION what was fetched."""
    made(old_servers, "in_parts")
    old_servers.query(1, "INSERT INTO fetched.in_parts SELECT 1, 10 + number, 'c' FROM numbers(4)")
    name = "lake.n.in_parts"
    alter(session, f"ALTER TABLE ch.fetched.in_parts EXPORT PARTITION 2 TO TABLE {name} {ALLOWED}")

    (row,) = alter(
        session, f"ALTER TABLE {name} FETCH PART '1_0_0_0' FROM '{PATH.format('in_parts')}'"
    )

    assert (row["status"], row["rows"]) == ("fetched", 3)
    assert [r for r in rows(tmp_path, "in_parts") if r[0] == 1] == []
    alter(session, f"ALTER TABLE {name} ATTACH PARTITION 1")
    assert [r for r in rows(tmp_path, "in_parts") if r[0] == 1] == [(1, n, "a") for n in range(3)]


def test_tables_of_two_zookeepers_under_one_path_are_refused(
    old_servers: OldPair, session: NoSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: rows of another table that happens to have the same path elsewhere."""
    made(old_servers, "twice")
    alter(
        session, f"ALTER TABLE ch.fetched.twice EXPORT PARTITION 2 TO TABLE lake.n.twice {ALLOWED}"
    )
    also_at(session, "other", old_servers.url(2))
    # One ensemble serves both servers; another one would have made its node by another change.
    numbers, found = iter(range(2)), replicated_tables.replica_at
    monkeypatch.setattr(
        fetching_from,
        "replica_at",
        lambda *of: replace(found(*of), node=KeeperNode(next(numbers), 1)),
    )

    both = r"ch\.fetched\.twice, other\.fetched\.twice are"
    with pytest.raises(RefusedError, match=both) as twice:
        alter(session, f"ALTER TABLE lake.n.twice FETCH PARTITION 1 FROM '{PATH.format('twice')}'")
    assert twice.value.code == 36
    assert len(rows(tmp_path, "twice")) == 2

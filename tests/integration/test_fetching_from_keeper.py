"""FETCH on a lake table from a path in ZooKeeper: the table that is replicated there is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.altering import pass_on
from catalog.sources import SourcePlace
from spark_ext import wiring
from tableformat.errors import NotFoundError, RefusedError, SourceError
from tableformat.names import TableName
from tests.child_writer import ChildWriter
from tests.services.old_clickhouse import OldPair
from tests.session_lake import ALLOWED, alter, opened
from tests.session_without_spark import NoSpark
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
    monkeypatch.setattr(wiring.SparkWhenNeeded, "begin", lambda _: None)
    monkeypatch.setattr(wiring.SparkWhenNeeded, "done", lambda _: True)
    monkeypatch.setattr(wiring.SparkWhenNeeded, "result", lambda _: None)
    monkeypatch.setattr(
        wiring, "SparkWriter", lambda _, server, *__: ChildWriter(lambda *___: None, server)
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


def test_a_path_of_no_table_or_of_two_is_refused_the_first_with_the_code_of_clickhouse(
    old_servers: OldPair, session: NoSpark, tmp_path: Path
) -> None:
    made(old_servers, "there")
    alter(
        session, f"ALTER TABLE ch.fetched.there EXPORT PARTITION 2 TO TABLE lake.n.there {ALLOWED}"
    )
    statement = "FETCH PARTITION 2 FROM '/tables/fetched/nowhere'"

    with pytest.raises(NotFoundError, match=r"no source of the session \(ch\) has a table") as told:
        alter(session, f"ALTER TABLE lake.n.there {statement}")

    place = SourcePlace(old_servers.url(1), allow_insecure=True, allow_alter=True)
    table = TableName("fetched", "there")
    with pytest.raises((SourceError, RefusedError)) as theirs:
        pass_on(place, table, f"ALTER TABLE {table.sql} {statement}")
    assert told.value.code == theirs.value.code
    assert len(rows(tmp_path, "there")) == 2

    # Another ZooKeeper may have another table under the same path.
    session.settings["spark.mergeberg.source.other"] = old_servers.url(2)
    session.settings["spark.mergeberg.source.other.allow-insecure"] = "true"
    both = r"ch\.fetched\.there, other\.fetched\.there are"
    with pytest.raises(RefusedError, match=both) as twice:
        alter(session, f"ALTER TABLE lake.n.there FETCH PARTITION 1 FROM '{PATH.format('there')}'")
    assert twice.value.code == 36
    assert len(rows(tmp_path, "there")) == 2

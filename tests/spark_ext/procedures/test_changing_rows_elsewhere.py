"""Statements that rewrite files on hosts that share nothing but the lake's storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_ext.engine import jobs as files_in_tasks
from spark_ext.operations import rewrite as changing_in_tasks
from tableformat.committer import BranchFile
from tests.support.other_hosts import Hosts, OfCluster, hosts_for
from tests.support.session_lake import ALLOWED, alter, export_all, opened
from tests.support.session_without_spark import NoSpark
from tests.wrong.places import Places

_NUMBERS = iter(range(1_000))


@pytest.fixture(autouse=True)
def hosts(places: Places, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Return the hosts that tasks run on."""
    places.reads_parts = True
    return hosts_for(places.warehouse, monkeypatch)


@pytest.fixture
def cluster(session: NoSpark) -> OfCluster:
    """Return a session of a cluster, on the same places."""
    return OfCluster(session.settings)


@pytest.fixture
def source(places: Places) -> Iterator[str]:
    """Make a table of three partitions; return its name."""
    name = f"elsewhere_{next(_NUMBERS)}"
    places.clickhouse_run(
        f"CREATE TABLE db.{name} (p UInt8, id Int64, n Nullable(Int64), at DateTime, s String"
        " DEFAULT 'none', up String MATERIALIZED upper(s)) ENGINE = MergeTree PARTITION BY p"
        " ORDER BY id SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1,"
        " max_bytes_to_merge_at_min_space_in_pool = 1",
        f"INSERT INTO db.{name} SELECT number % 3, number, if(number % 4 = 0, NULL, number),"
        " toDateTime('2024-03-31 00:30:00', 'UTC') + number, toString(number) FROM numbers(30)",
    )
    yield name
    places.clickhouse_run(f"DROP TABLE db.{name} SYNC")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE n = n + 1, s = concat(s, 'x') WHERE id % 2 = 0",
        pytest.param("UPDATE at = at + 3600 WHERE n IS NULL", marks=pytest.mark.soak),
        pytest.param("DELETE WHERE p = 1 OR id > 20", marks=pytest.mark.soak),
        pytest.param("CLEAR COLUMN s IN PARTITION 2, CLEAR COLUMN s", marks=pytest.mark.soak),
    ],
)
def test_what_one_host_looked_at_another_writes(
    places: Places,
    session: NoSpark,
    cluster: OfCluster,
    source: str,
    hosts: Hosts,
    statement: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: an UPDATE that works on one machine, and finds nothing on a cluster."""
    export_all(session, source, source)
    export_all(session, source, f"{source}_here")

    rows = alter(cluster, f"ALTER TABLE lake.n.{source} {statement}")

    assert hosts.asked[-2:] == ["FileLooker", "_Writing"]
    assert hosts.between != []
    assert hosts.left() == []
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 1_000)
    here = alter(session, f"ALTER TABLE lake.n.{source}_here {statement}")
    same = ("partition_id", "status", "rows", "data_files")
    assert [[row[one] for one in same] for row in rows] == [
        [row[one] for one in same] for row in here
    ]
    found = [
        opened(places, name).scan().to_arrow().sort_by("id").to_pylist()
        for name in (source, f"{source}_here")
    ]
    assert found[0] == found[1] != []


@pytest.mark.soak
def test_what_was_looked_at_here_is_written_here(
    places: Places,
    session: NoSpark,
    cluster: OfCluster,
    source: str,
    hosts: Hosts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Harm prevented: executors are asked for what only the driver's disk has."""
    export_all(session, source, source)
    worth = iter([False, True])
    monkeypatch.setattr(changing_in_tasks, "is_worth_tasks", lambda *_: next(worth))

    alter(cluster, f"ALTER TABLE lake.n.{source} UPDATE n = 5 WHERE 1")

    assert next(worth, None) is None
    assert hosts.asked == []
    assert set(opened(places, source).scan().to_arrow()["n"].to_pylist()) == {5}


@pytest.mark.parametrize(
    ("command", "asked"),
    [("", ["HostMerger"]), pytest.param(" FINAL DEDUPLICATE", [], marks=pytest.mark.soak)],
)
def test_groups_of_files_are_merged_elsewhere_unless_rows_go(
    places: Places,
    session: NoSpark,
    cluster: OfCluster,
    source: str,
    hosts: Hosts,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    asked: list[str],
) -> None:
    """Which rows others leave is found out here, and need not be found out again."""
    small = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 200"
    again = f"INSERT INTO db.{source} SELECT p, id + 100, n, at, s FROM db.{source}"
    places.clickhouse_run(again, again)
    exports = f"ALTER TABLE ch.db.{source} EXPORT PARTITION ALL TO TABLE lake.n."
    for name in (source, f"{source}_here"):
        alter(session, f"{exports}{name} {small}")
    before = opened(places, source).scan().to_arrow().num_rows
    assert len(files_of(places, source)) > 3

    rows = alter(cluster, f"OPTIMIZE TABLE lake.n.{source}{command}")

    assert hosts.asked == asked
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 1_000)
    here = alter(session, f"OPTIMIZE TABLE lake.n.{source}_here{command}")
    assert [row["status"] for row in rows] == [row["status"] for row in here] == ["optimized"]
    assert files_of(places, source) == files_of(places, f"{source}_here")
    assert len(files_of(places, source)) == 3
    assert (opened(places, source).scan().to_arrow().num_rows == before) is not bool(command)


def files_of(places: Places, name: str) -> list[list[int]]:
    """Return the rows of each file of a lake table, in their order."""
    files = (task.file.file_path for task in opened(places, name).scan().plan_files())
    tables = (pq.read_table(file.removeprefix("file://")) for file in files)
    return sorted(table.column("id").to_pylist() for table in tables)


@pytest.mark.parametrize(
    ("files", "size", "slots", "worth"),
    [
        (64, 1, 2, True),
        (63, 1, 2, False),
        (2, 64 << 20, 2, True),
        (1, 1 << 40, 2, False),
        (64, 1, 1, False),
    ],
)
def test_many_files_or_large_ones_are_worth_tasks(
    session: NoSpark,
    monkeypatch: pytest.MonkeyPatch,
    files: int,
    size: int,
    slots: int,
    worth: bool,  # noqa: FBT001
) -> None:
    """Harm prevented: a statement about three rows waits for executors to start."""
    monkeypatch.setattr(files_in_tasks, "LEAST_FILES", 64)
    spark: Any = OfCluster(session.settings, defaultParallelism=slots)
    data = [BranchFile(f"{number}.parquet", 1, size, 0) for number in range(files)]

    assert files_in_tasks.is_worth_tasks(spark, data) is worth

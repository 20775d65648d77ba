"""`check`, `partitions`, `parts`, `verify` and `archive` of a Distributed table, shard by shard."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.services.old_clickhouse import OldPair
from tests.support.shards import Shards


def test_what_is_listed_says_of_which_shard_it_is(shards: Callable[[str], Shards]) -> None:
    table = shards("listed")

    code, partitions = table.records("partitions")
    _, parts = table.records("parts", "--partition-id", "1")
    _, checks = table.records("check")

    assert code == 0
    assert [(p["shard"], p["partition_id"], p["rows"]) for p in partitions] == [
        (1, "0", 50),
        (1, "1", 50),
        (2, "0", 50),
        (2, "1", 50),
    ]
    assert [(p["shard"], p["rows"]) for p in parts] == [(1, 50), (2, 50)]
    assert [(c["shard"], c["works"], len(c["partitions"])) for c in checks] == [
        (1, True, 2),
        (2, True, 2),
    ]
    code, output = table.run("check")
    assert code == 0
    assert "shard 1: db.listed at 127.0.0.1:" in output
    assert output.count(" can be exported.") == 2


def test_every_shard_is_compared_with_the_lake(
    old_servers: OldPair, shards: Callable[[str], Shards]
) -> None:
    """A difference on one shard is not hidden by the other, nor by one that is down."""
    table = shards("compared")
    assert table.export()[0] == 0

    code, found = table.records("verify", "--all")
    assert code == 0
    assert [(c["shard"], c["partition_id"], c["verdict"], c["rows"]) for c in found] == [
        (1, "0", "equal", 50),
        (1, "1", "equal", 50),
        (2, "0", "equal", 50),
        (2, "1", "equal", 50),
    ]
    old_servers.query(2, "INSERT INTO db.compared VALUES (1, 1000, 'late')")
    old_servers.query(2, "INSERT INTO db.compared VALUES (7, 7, 'elsewhere')")
    code, found = table.records("verify", "--partition-id", "1")
    assert code == 3
    assert [c["verdict"] for c in found] == ["equal", "not_comparable"]
    code, output = table.run("verify", "--partition-id", "7")
    assert code == 3
    assert "shard 1: Cannot verify partition 7 of db.compared: it has no active parts" in output
    assert "partition 7: not exported" in output
    code, output = table.run("verify", "--partition-id", "8")
    assert code == 3
    assert "Cannot verify partition 8 of db.compared: it has no active parts" in output


def test_a_shard_that_is_down_is_reported_and_the_others_are_done(
    old_servers: OldPair, shards: Callable[[str], Shards]
) -> None:
    table = shards("half_down")
    assert table.export()[0] == 0
    old_servers.kill(2)

    for command, words, doing in (
        ("partitions", (), "read from"),
        ("parts", (), "read from"),
        ("check", (), "check"),
        ("verify", ("--all",), "verify"),
        ("export", ("--all", "--where", "rows > 1"), "export from"),
    ):
        code, output = table.run(command, *words)

        assert code == 4, output
        assert f"Cannot {doing} 1 of 2 shards: shard 2: Cannot reach ClickHouse at" in output
        assert "Connection refused" in output
        assert "shard 1: db.half_down at 127.0.0.1:" in output
        assert "next: mergeberg" in output.lower()
    code, found = table.records("verify", "--all")
    assert (code, [c["verdict"] for c in found]) == (4, ["equal", "equal"])


def test_archive_asks_for_leave_and_keeps_what_it_cannot_compare(
    old_servers: OldPair, shards: Callable[[str], Shards]
) -> None:
    """The oldest version does not show what it detached: exported and compared, it stays."""
    table = shards("kept")

    code, output = table.run("archive", "--all", "--drop")
    assert code == 3
    assert "Give --allow-alter; the user needs GRANT ALTER DELETE, INSERT" in output
    code, found = table.records("archive", "--all", "--drop", "--allow-alter")
    assert code == 3
    assert [(a["shard"], a["source"]) for a in found] == [(1, "kept")] * 2 + [(2, "kept")] * 2
    assert {"does not show detached parts" in a["message"] for a in found} == {True}
    assert [old_servers.query(n, "SELECT count() FROM db.kept") for n in (1, 2)] == ["100", "100"]
    assert len(table.in_lake()) == 200


@pytest.fixture(scope="module")
def dead() -> str:
    """Return the name of a staging table of a job of this host whose process has ended."""
    code = "from catalog.processes import new_job; print(new_job())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return f"{done.stdout.strip()}_1"


def leave(pair: OldPair, name: str) -> None:
    """Leave a staging table on both servers, as a run that died does."""
    for number in (1, 2):
        pair.query(number, "CREATE DATABASE IF NOT EXISTS mergeberg_staging")
        table = f"CREATE TABLE mergeberg_staging.`{name}` (k UInt8) ENGINE = MergeTree ORDER BY k"
        pair.query(number, table)


def staged(pair: OldPair) -> list[list[str]]:
    """Return the staging tables of each server."""
    tables = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
    return [pair.query(number, tables).split() for number in (1, 2)]


def test_gc_looks_on_every_shard_of_a_cluster_and_of_a_distributed_table(
    old_servers: OldPair, shards: Callable[[str], Shards], dead: str
) -> None:
    """Harm prevented: parts of a dead export that keep the disks of the other shards full."""
    table = shards("cleaned")
    assert table.export()[0] == 0
    leave(old_servers, dead)

    alone = table.clean_up()
    listed = table.clean_up("--cluster", "shards")
    removed = table.clean_up("--table", "db.cleaned_everywhere", "--yes")

    assert [one[0] for one in (alone, listed, removed)] == [0, 0, 0], (alone, listed, removed)
    assert [one[1].count("its run has ended") for one in (alone, listed, removed)] == [1, 2, 2]
    for number in (1, 2):
        assert f"{dead} at {old_servers.url(number)}" in listed[1]
    assert staged(old_servers) == [[], []]
    code, output = table.clean_up("--cluster", "shrads")
    assert code == 3
    assert "Cannot find the cluster 'shrads'" in output


def test_gc_says_which_shard_is_down_and_does_the_others(
    old_servers: OldPair, shards: Callable[[str], Shards], dead: str
) -> None:
    table = shards("half_cleaned")
    assert table.export()[0] == 0
    leave(old_servers, dead)
    old_servers.kill(2)

    code, output = table.clean_up("--cluster", "shards", "--yes")

    assert code == 4, output
    assert "Cannot clean up staging tables at 1 of 2 hosts: Cannot reach ClickHouse at" in output
    assert old_servers.url(2) in output
    assert "Next: mergeberg gc --to lake.n.half_cleaned" in output
    old_servers.start(2)
    assert staged(old_servers) == [[], [dead]]
    assert table.clean_up("--cluster", "shards", "--yes")[0] == 0
    assert staged(old_servers) == [[], []]

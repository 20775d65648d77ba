"""The pair of old servers that other tests are run against is what it says it is."""

from __future__ import annotations

import pytest

from tests.services.old_clickhouse import PASSWORD, OldPair

_TABLE = "(d Date, k UInt64) ENGINE = {} PARTITION BY toYYYYMM(d) ORDER BY k"
_ROWS = "SELECT toDate('2024-01-01'), number FROM numbers(10)"


def test_what_one_replica_takes_the_other_one_has(old_servers: OldPair) -> None:
    """A row inserted through replica 1 is read from replica 2."""
    engine = _TABLE.format("ReplicatedMergeTree('/t/{shard}/pair_took', '{replica}')")
    for number in (1, 2):
        assert old_servers.query(number, "SELECT version()") == "18.16.1"
        old_servers.query(number, f"CREATE TABLE default.pair_took {engine}")
    old_servers.query(1, f"INSERT INTO default.pair_took {_ROWS}")
    old_servers.query(2, "SYSTEM SYNC REPLICA default.pair_took")
    assert old_servers.query(2, "SELECT count() FROM default.pair_took") == "10"


def test_a_replica_that_is_killed_comes_back_with_its_rows(old_servers: OldPair) -> None:
    """Killing a replica loses nothing; the other one goes on meanwhile."""
    old_servers.query(1, f"CREATE TABLE default.kept {_TABLE.format('MergeTree')}")
    old_servers.query(1, f"INSERT INTO default.kept {_ROWS}")
    old_servers.kill(1)
    assert old_servers.query(2, "SELECT 1") == "1"
    old_servers.start(1)
    assert old_servers.query(1, "SELECT count() FROM default.kept") == "10"


def test_a_paused_replica_responds_when_it_continues(old_servers: OldPair) -> None:
    """A replica that stands still keeps its connections open and responds late."""
    old_servers.pause(2)
    with pytest.raises(OSError, match="timed out"):
        old_servers.replica(2).query("SELECT 1", seconds=0.3)
    old_servers.resume(2)
    assert old_servers.query(2, "SELECT 1") == "1"


def test_without_zookeeper_a_replicated_table_takes_no_rows(old_servers: OldPair) -> None:
    """When ZooKeeper is gone inserts are refused, and taken when it is back."""
    engine = _TABLE.format("ReplicatedMergeTree('/t/{shard}/refused', '{replica}')")
    old_servers.query(1, f"CREATE TABLE default.refused {engine}")
    old_servers.zookeeper.kill()
    with pytest.raises(
        RuntimeError, match=r"(?i)zookeeper|readonly|connection loss|session expired"
    ):
        old_servers.query(1, f"INSERT INTO default.refused {_ROWS}")
    old_servers.mend()
    old_servers.query(1, "SYSTEM RESTART REPLICA default.refused")
    old_servers.query(1, f"INSERT INTO default.refused {_ROWS}")
    assert old_servers.query(1, "SELECT count() FROM default.refused") == "10"


def test_clusters_reach_both_servers(old_servers: OldPair) -> None:
    """In the cluster `shards` each server is a shard; a statement ON CLUSTER reaches both."""
    statement = f"CREATE TABLE default.on_both ON CLUSTER shards {_TABLE.format('MergeTree')}"
    old_servers.query(1, statement)
    for number in (1, 2):
        old_servers.query(number, f"INSERT INTO default.on_both {_ROWS}")
    counted = "SELECT count() FROM remote('127.0.0.1:{}', default, on_both)"
    ports = (old_servers.replica(number).tcp_port for number in (1, 2))
    assert [old_servers.query(1, counted.format(port)) for port in ports] == ["10", "10"]
    clusters = "SELECT count() FROM cluster('{}', default, on_both)"
    assert old_servers.query(1, clusters.format("shards")) == "20"
    assert old_servers.query(1, clusters.format("pair")) == "10"


def test_a_wrong_password_is_refused(old_servers: OldPair) -> None:
    """The user `exporter` has a password, and only with it a query is run."""
    replica = old_servers.replica(1)
    assert replica.query("SELECT 1", user="exporter", password=PASSWORD) == "1"
    with pytest.raises(RuntimeError, match="Wrong password"):
        replica.query("SELECT 1", user="exporter", password=PASSWORD[1:])

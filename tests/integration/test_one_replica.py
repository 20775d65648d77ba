"""A job stays with one replica: what it made there is given back there, and read there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.clickhouse.server.source import ServerSource
from catalog.sources import SourcePlace, open_source
from tableformat.names import PartitionId, TableName
from tests.services.old_clickhouse import OldPair

NAME = TableName("db", "stays")


@pytest.fixture
def pair(old_servers: OldPair) -> Iterator[OldPair]:
    """Yield a pair with a table that is on both."""
    for number in (1, 2):
        old_servers.make_room(number, NAME.name)
        old_servers.query(
            number,
            f"CREATE TABLE {NAME.sql} (p UInt8, k UInt64) ENGINE ="
            f" ReplicatedMergeTree('/tables/stays', 'r{number}') PARTITION BY p ORDER BY k",
        )
    old_servers.query(1, f"INSERT INTO {NAME.sql} SELECT 0, number FROM numbers(10)")
    old_servers.query(2, f"SYSTEM SYNC REPLICA {NAME.sql}")
    yield old_servers
    old_servers.mend()
    for number in (1, 2):
        old_servers.query(number, f"DROP TABLE {NAME.sql}")


def staged(pair: OldPair, number: int) -> list[str]:
    """Return the staging tables at a replica."""
    tables = "SELECT name FROM system.tables WHERE database = 'mergeberg_staging'"
    return pair.query(number, tables).split()


def both(pair: OldPair) -> SourcePlace:
    others = pair.url(2).removeprefix("http://")
    return SourcePlace(f"{pair.url(1)},{others}", allow_insecure=True)


def test_what_was_frozen_is_given_back_where_it_was_frozen(pair: OldPair) -> None:
    """Between the two nobody is connected; the address names another host first."""
    pair.kill(1)
    with open_source(both(pair)) as source:
        snapshot = source.snapshot(source.describe(NAME), (PartitionId("0"),), job="job")
        assert staged(pair, 2) == list(snapshot.handle)
        source.close()
        pair.start(1)

        source.release(snapshot)

        assert staged(pair, 2) == []


def test_a_job_goes_on_at_another_replica_when_its_own_is_gone(pair: OldPair) -> None:
    with open_source(both(pair)) as source:
        source.describe(NAME)
        source.close()
        pair.kill(1)

        snapshot = source.snapshot(source.describe(NAME), (PartitionId("0"),), job="job")
        source.release(snapshot)

    assert [str(one.partition_id) for one in snapshot.partitions] == ["0"]
    assert staged(pair, 2) == []


def test_the_exporting_user_is_checked_again_at_another_replica(pair: OldPair) -> None:
    """Harm prevented: rows that only this replica's policies hide are left out without a word."""
    with open_source(both(pair), is_exporting=True) as source:
        assert isinstance(source, ServerSource)
        source.describe(NAME)
        source.close()
        source._user = "whoever it was at the first"
        pair.kill(1)

        source.describe(NAME)

        assert source.host is not None
        assert source.host.place == pair.url(2).removeprefix("http://")
        assert source._user == "default"

"""Statements about a ClickHouse table are its ClickHouse's: real servers do as they always do.

The 18.16 pair: what one replica does both have, and its refusals are shown with their codes.
"""

from __future__ import annotations

import pytest

from catalog.sources import SourcePlace, pass_on
from tableformat.errors import RefusedError, SourceError
from tableformat.names import TableName
from tests.services.old_clickhouse import OldPair
from tests.services.server_process import wait_until

_KEYS = "PARTITION BY p ORDER BY k"


def at(pair: OldPair, number: int) -> SourcePlace:
    """Return a replica as a source that may be changed."""
    return SourcePlace(pair.url(number), allow_insecure=True, allow_alter=True)


def made(pair: OldPair, name: str, rows: str = "") -> TableName:
    """Make a replicated table on both servers, filled at the first."""
    for number in (1, 2):
        pair.query(number, "CREATE DATABASE IF NOT EXISTS passed")
        pair.query(
            number,
            f"CREATE TABLE passed.{name} (p UInt8, k UInt64) ENGINE ="
            f" ReplicatedMergeTree('/tables/passed/{name}', 'r{number}') {_KEYS}",
        )
    if rows:
        pair.query(1, f"INSERT INTO passed.{name} {rows}")
        pair.query(2, f"SYSTEM SYNC REPLICA passed.{name}")
    return TableName("passed", name)


def rows_at(pair: OldPair, number: int, table: TableName) -> str:
    """Return what a replica shows of a table, when it has caught up."""
    pair.query(number, f"SYSTEM SYNC REPLICA {table.sql}")
    return pair.query(number, f"SELECT p, k FROM {table.sql} ORDER BY p, k FORMAT CSV")


def test_a_replaced_partition_of_a_replicated_table_changes_on_both_replicas(
    old_servers: OldPair,
) -> None:
    table = made(old_servers, "replaced", "SELECT 1, number FROM numbers(3)")
    made(old_servers, "of_replacement", "SELECT 1, number + 10 FROM numbers(2)")

    statement = "ALTER TABLE passed.replaced REPLACE PARTITION 1 FROM passed.of_replacement"
    pass_on(at(old_servers, 1), table, statement)

    assert [rows_at(old_servers, number, table) for number in (1, 2)] == ["1,10\n1,11"] * 2


def test_a_partition_is_attached_from_a_table_that_another_replica_filled(
    old_servers: OldPair,
) -> None:
    """Filled through the first, attached through the second, seen through both."""
    table = made(old_servers, "attached")
    made(old_servers, "of_attached", "SELECT 2, number FROM numbers(2)")

    statement = "ALTER TABLE passed.attached ATTACH PARTITION 2 FROM passed.of_attached"
    pass_on(at(old_servers, 2), table, statement)

    assert [rows_at(old_servers, number, table) for number in (1, 2)] == ["2,0\n2,1"] * 2


def test_a_partition_is_fetched_from_a_path_in_keeper_and_attached(old_servers: OldPair) -> None:
    """ClickHouse itself takes the replica that is least behind."""
    table = made(old_servers, "fetched")
    made(old_servers, "of_fetched", "SELECT 3, number FROM numbers(2)")
    place = at(old_servers, 1)

    pass_on(
        place,
        table,
        "ALTER TABLE passed.fetched FETCH PARTITION 3 FROM '/tables/passed/of_fetched'",
    )
    pass_on(place, table, "ALTER TABLE passed.fetched ATTACH PARTITION 3")

    assert [rows_at(old_servers, number, table) for number in (1, 2)] == ["3,0\n3,1"] * 2


def test_a_part_is_fetched_by_servers_that_can_and_refused_by_the_others(
    old_servers: OldPair,
) -> None:
    """FETCH PART came after this oldest release: it says so itself, and nothing is changed."""
    table = made(old_servers, "in_part")
    made(old_servers, "of_in_part", "SELECT 3, number FROM numbers(2)")

    with pytest.raises(SourceError, match="Syntax error") as refused:
        pass_on(
            at(old_servers, 1),
            table,
            "ALTER TABLE passed.in_part FETCH PART '3_0_0_0' FROM '/tables/passed/of_in_part'",
        )

    assert refused.value.code == 62
    assert [rows_at(old_servers, number, table) for number in (1, 2)] == ["", ""]


def test_on_cluster_is_done_on_every_server_of_the_cluster(old_servers: OldPair) -> None:
    for number in (1, 2):
        old_servers.query(number, "CREATE DATABASE IF NOT EXISTS passed")
        old_servers.query(
            number, f"CREATE TABLE passed.everywhere (p UInt8, k UInt64) ENGINE = MergeTree {_KEYS}"
        )
        old_servers.query(number, "INSERT INTO passed.everywhere VALUES (4, 1), (5, 2)")

    statement = "ALTER TABLE passed.everywhere ON CLUSTER shards DROP PARTITION 4"
    pass_on(at(old_servers, 1), TableName("passed", "everywhere"), statement)

    left = "SELECT p FROM passed.everywhere"
    # The response may come before a server has done it.
    wait_until(lambda: "4" not in old_servers.query(2, left), "the other server has done it")
    assert [old_servers.query(number, left) for number in (1, 2)] == ["5", "5"]


@pytest.mark.parametrize("what", ["REPLACE PARTITION 1 FROM passed.local", "DROP PARTITION 1"])
def test_a_distributed_table_reports_that_it_has_no_partitions(
    old_servers: OldPair, what: str
) -> None:
    for table in ("local", "spread"):
        old_servers.query(1, "CREATE DATABASE IF NOT EXISTS passed")
        engine = f"MergeTree {_KEYS}" if table == "local" else "Distributed(shards, passed, local)"
        columns = "(p UInt8, k UInt64)"
        old_servers.query(
            1, f"CREATE TABLE IF NOT EXISTS passed.{table} {columns} ENGINE = {engine}"
        )

    with pytest.raises(SourceError, match="Distributed") as refused:
        pass_on(
            at(old_servers, 1), TableName("passed", "spread"), f"ALTER TABLE passed.spread {what}"
        )

    assert refused.value.code == 48


def test_a_servers_refusal_is_shown_in_its_words(old_servers: OldPair) -> None:
    table = made(old_servers, "refusing")

    with pytest.raises(SourceError, match="nowhere") as refused:
        pass_on(
            at(old_servers, 1),
            table,
            "ALTER TABLE passed.refusing ATTACH PARTITION 1 FROM passed.nowhere",
        )

    assert refused.value.code == 60


def test_a_source_that_does_not_allow_it_is_not_asked(old_servers: OldPair) -> None:
    table = made(old_servers, "kept", "SELECT 6, 1")
    place = SourcePlace(old_servers.url(1), allow_insecure=True)

    with pytest.raises(RefusedError, match="its source does not allow that"):
        pass_on(place, table, "ALTER TABLE passed.kept DROP PARTITION 6")

    assert rows_at(old_servers, 1, table) == "6,1"

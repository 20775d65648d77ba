"""CALL of a table on two shards, in one session of a user: `cluster`, and a Distributed table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession

from catalog.clickhouse.server import client
from spark_ext.set_up import enable, settings
from tests.services.old_clickhouse import OldPair
from tests.support.iceberg_spark import catalog_settings, iceberg_spark
from tests.support.local_spark import SPARK_MARKS
from tests.support.shards import Shards

pytestmark = SPARK_MARKS

EXPORT = "CALL lake.system.export_partitions(table => 'n.{0}', source => 'ch.db.{0}'{1})"
OF_CLUSTER = ", cluster => 'shards', manifest_ttl => 0, max_retries => 0"


@pytest.fixture(scope="module")
def spark(
    tmp_path_factory: pytest.TempPathFactory, old_pair_of_session: OldPair
) -> Iterator[SparkSession]:
    """Start a session whose source is the first server, and which knows where the others are."""
    root, pair = tmp_path_factory.mktemp("session"), old_pair_of_session
    lake = catalog_settings(
        "lake",
        type="jdbc",
        uri=f"jdbc:sqlite:{root}/lake.db",
        jdbc__schema_version="V1",
        warehouse=f"file:{root}/warehouse",
    )
    hosts = (pair.replica(number) for number in (1, 2))
    over_http = [f"127.0.0.1:{one.tcp_port}=127.0.0.1:{one.http_port}" for one in hosts]
    conf = {
        **settings(),
        **lake,
        "spark.mergeberg.source.ch": pair.url(1),
        "spark.mergeberg.source.ch.allow-insecure": "true",
        "spark.mergeberg.source.ch.cluster-hosts": ",".join(over_http),
        "spark.mergeberg.ledger": f"sqlite:{root}/ledger.db",
    }
    with pytest.MonkeyPatch.context() as patch, iceberg_spark(root, conf) as session:
        patch.setenv("PYICEBERG_HOME", str(root))
        # A server that is down is soon known to be.
        patch.setattr(client, "_PAUSES", (0.0, 0.0, 0.0))
        enable(session)
        yield session


def exported(spark: SparkSession, table: str, how: str = "") -> list[tuple[str, str, int]]:
    """Export a table; return partition, status and rows of each result."""
    rows = spark.sql(EXPORT.format(table, how)).collect()
    return [(row.partition_id, row.status, row.rows) for row in rows]


def in_lake(spark: SparkSession, table: str) -> list[Row]:
    """Return the rows of each lake partition, how many are different, and their sum."""
    question = f"SELECT p, count(*), count(DISTINCT k), sum(k) FROM lake.n.{table}"
    return spark.sql(f"{question} GROUP BY p ORDER BY p").collect()


def test_both_shards_land_in_the_same_partitions_once(
    old_servers: OldPair, spark: SparkSession, tmp_path: Path
) -> None:
    """By the cluster's name, and again by the Distributed table: that is the same export."""
    Shards(old_servers, tmp_path, "called")

    first = exported(spark, "called", OF_CLUSTER)
    snapshots = spark.sql("SELECT snapshot_id FROM lake.n.called.snapshots").collect()
    again = exported(spark, "called", OF_CLUSTER)
    (distributed,) = {
        (row.status, row.rows)
        for row in spark.sql(
            """CALL lake.system.export_partitions(table => 'n.called',
               source => 'ch.db.called_everywhere', manifest_ttl => 0)"""
        ).collect()
    }

    assert first == [(p, "committed", 50) for p in ("0", "1", "0", "1")]
    assert again == [(p, "already_exported", 50) for p in ("0", "1", "0", "1")]
    assert distributed == ("already_exported", 50)
    whole = [[*range(p, 200, 2)] for p in (0, 1)]
    assert in_lake(spark, "called") == [(p, 100, 100, sum(k)) for p, k in enumerate(whole)]
    assert spark.sql("SELECT snapshot_id FROM lake.n.called.snapshots").collect() == snapshots


def test_a_shard_that_is_down_is_named_and_the_other_one_lands(
    old_servers: OldPair, spark: SparkSession, tmp_path: Path
) -> None:
    """Once it is back the same statement exports what it lacks, and nothing twice."""
    Shards(old_servers, tmp_path, "halved")
    old_servers.kill(2)

    with pytest.raises(AnalysisException) as caught:
        exported(spark, "halved", OF_CLUSTER)
    half = in_lake(spark, "halved")
    with pytest.raises(AnalysisException) as of_gc:
        spark.sql("CALL lake.system.gc('n.halved', source => 'ch', cluster => 'shards')")
    old_servers.start(2)
    rest = exported(spark, "halved", OF_CLUSTER)

    message = str(caught.value)
    assert message.count("\n") == 0
    assert "Cannot export from 1 of 2 shards: shard 2: Cannot reach ClickHouse at" in message
    assert old_servers.url(2) in message
    assert half == [(0, 50, 50, sum(range(0, 100, 2))), (1, 50, 50, sum(range(1, 100, 2)))]
    assert f"at 1 of 2 hosts: Cannot reach ClickHouse at {old_servers.url(2)}" in str(of_gc.value)
    assert [status for _, status, _ in rest] == ["already_exported"] * 2 + ["committed"] * 2
    assert [row[1:3] for row in in_lake(spark, "halved")] == [(100, 100), (100, 100)]


def test_the_partitions_of_every_shard_are_listed(
    old_servers: OldPair, spark: SparkSession, tmp_path: Path
) -> None:
    Shards(old_servers, tmp_path, "listed_by_call")

    listed = spark.sql(
        "CALL lake.system.partitions(table => 'ch.db.listed_by_call', cluster => 'shards')"
    ).collect()

    assert [(row.shard, row.partition_id, row.rows) for row in listed] == [
        (shard, partition, 50) for shard in (1, 2) for partition in ("0", "1")
    ]

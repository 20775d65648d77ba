"""`spark_ext` in Python, in a real Spark without our jar: exports, statements, and cancelling."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import FrozenInstanceError

import pytest
from pyspark.sql import SparkSession

import spark_ext
from catalog.clickhouse.embedded import EmbeddedConnection
from tableformat.errors import NotFoundError, StoppedError, UsageError
from tests.support.local_spark import SPARK_MARKS, local_spark

pytestmark = SPARK_MARKS

KEY = "ENGINE = MergeTree PARTITION BY p ORDER BY k"
ALLOWED = "SETTINGS allow_experimental_export_merge_tree_part = 1"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("python")
    with EmbeddedConnection(directory / "clickhouse", create=True) as connection:
        connection.command("CREATE DATABASE db")
        connection.command(
            f"CREATE TABLE db.t {KEY} AS SELECT toUInt8(number % 2) AS p, number AS k"
            " FROM numbers(10)"
        )
        connection.command(
            f"CREATE TABLE db.large {KEY} AS SELECT toUInt8(1) AS p, number AS k,"
            " repeat(toString(cityHash64(number)), 10) AS s FROM numbers(2000000)"
        )
    with local_spark() as session:
        session.conf.set("spark.mergeberg.source.ch", f"chdb:{directory / 'clickhouse'}")
        session.conf.set("spark.mergeberg.warehouse", str(directory / "warehouse"))
        yield session


def test_an_export_returns_frozen_values(spark: SparkSession) -> None:
    (one,) = spark_ext.export_partition(spark, "lake.n.one", "ch.db.t", partition_id="1")
    every = spark_ext.export_partitions(spark, "lake.n.one", "db.t", wait=True)

    assert (one.partition_id, one.status, one.rows) == ("1", "committed", 5)
    assert sorted((e.partition_id, e.status) for e in every) == [
        ("0", "committed"),
        ("1", "already_exported"),
    ]
    with pytest.raises(FrozenInstanceError):
        one.rows = 6  # type: ignore[misc]


def test_what_is_wrong_is_an_error_in_words_of_python(spark: SparkSession) -> None:
    with pytest.raises(NotFoundError, match="77"):
        spark_ext.export_partition(spark, "lake.n.wrong", "ch.db.t", partition_id="77")
    with pytest.raises(UsageError, match="`allow_empty=True` alone: it only adds to `force=True`"):
        spark_ext.export_partitions(spark, "lake.n.wrong", "ch.db.t", allow_empty=True)
    with pytest.raises(UsageError, match="force is 'yes', and BOOLEAN is expected"):
        spark_ext.export_partitions(spark, "lake.n.wrong", "ch.db.t", force="yes")  # type: ignore[arg-type]


@pytest.mark.representative
def test_a_statement_of_clickhouse_runs_without_the_jar(spark: SparkSession) -> None:
    """The package `spark_ext.sql` is also the function."""
    frame = spark_ext.sql(
        spark, f"ALTER TABLE ch.db.t EXPORT PARTITION ALL TO TABLE lake.n.two {ALLOWED}"
    )

    assert [(r.partition_id, r.status, r.rows) for r in frame.collect()] == [
        ("0", "committed", 5),
        ("1", "committed", 5),
    ]
    assert spark_ext.sql.__name__ == "spark_ext.sql"


def test_anything_else_is_sparks(spark: SparkSession) -> None:
    assert [tuple(r) for r in spark_ext.sql(spark, "SELECT 1 + 1").collect()] == [(2,)]


def test_a_statement_that_cannot_be_read_is_pointed_at(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="found 'PARTITON' at line 1, column 24"):
        spark_ext.sql(spark, "ALTER TABLE t EXPORT   PARTITON ID '1' TO TABLE lake.n.t")


def test_a_job_that_is_cancelled_from_outside_ends_the_export_at_once(
    spark: SparkSession,
) -> None:
    """Not a failure that is tried again; what became visible is nothing, and again is safe."""
    cancelled = threading.Event()
    context = spark.sparkContext

    def cancel() -> None:
        until = time.monotonic() + 60
        while not context.statusTracker().getActiveJobsIds() and time.monotonic() < until:
            cancelled.wait(0.05)
        context.cancelAllJobs()
        cancelled.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    began = time.monotonic()

    with pytest.raises(
        StoppedError, match=r"its Spark job was cancelled: Job .* cancelled"
    ) as refused:
        spark_ext.export_partitions(spark, "lake.n.large", "ch.db.large")

    canceller.join()
    assert cancelled.is_set()
    assert "Nothing of it is in the lake" in refused.value.message
    assert time.monotonic() - began < 60
    (again,) = spark_ext.export_partitions(spark, "lake.n.large", "ch.db.large")
    assert (again.status, again.rows) == ("committed", 2_000_000)

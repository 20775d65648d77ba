"""The system tables in a Spark session: filtered and joined like any table, and always current.

RQ…SystemTables.Exports, RQ…Logging, RQ…Metrics.Export.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_ext.sql.dispatch import TABLES
from tableformat.errors import StoppedError
from tableformat.export.slices import SliceTask, WritePlan
from tests.support.local_spark import SPARK_MARKS
from tests.support.real_export import RealExport
from tests.support.spark_application import ICEBERG, MERGEBERG, SparkApplication
from tests.support.system_tables import session_of

pytestmark = SPARK_MARKS
EXPORTS = "mergeberg.system.replicated_partition_exports"


@pytest.fixture(scope="module")
def spark(spark_application: SparkApplication, exports: RealExport) -> Iterator[SparkSession]:
    """Return a session whose exports go into the built-in catalog."""
    conf = session_of(exports.warehouse)
    with spark_application.session(conf, (MERGEBERG, ICEBERG)) as session:
        yield session


def test_every_table_is_listed_and_has_the_columns_that_are_declared(spark: SparkSession) -> None:
    listed = spark.sql("SHOW TABLES IN mergeberg.system").collect()

    # A JVM that other tests share may know theirs, too.
    assert TABLES.keys() <= {row["tableName"] for row in listed}
    for name, table in TABLES.items():
        schema = spark.table(f"mergeberg.system.{name}").schema
        found = [(f.name, f.dataType.simpleString().upper()) for f in schema.fields]
        assert found == [(column.name, column.type) for column in table.columns]


def test_what_is_exported_is_there_at_once_in_the_same_session(
    spark: SparkSession, exports: RealExport
) -> None:
    """Harm prevented: Spark shows what it read before the export."""
    name = exports.clickhouse.filled()
    question = f"SELECT partition_id FROM {EXPORTS} WHERE source_table = '{name}' ORDER BY 1"
    frame = spark.sql(question)
    assert frame.collect() == []

    exports.run(name)
    assert [row[0] for row in spark.sql(question).collect()] == ["0", "1"]
    first = spark.sql(
        f"SELECT count(*) FROM mergeberg.system.parts WHERE `table` LIKE '%{name.name}'"
    )
    assert first.collect()[0][0] == 2

    other = exports.clickhouse.copy(name)
    exports.run(other)
    asked = question.replace(str(name), str(other))
    assert [row[0] for row in spark.sql(asked).collect()] == ["0", "1"]


def test_the_query_of_the_requirement_shows_what_is_under_way(
    spark: SparkSession, exports: RealExport
) -> None:
    name = exports.clickhouse.filled()
    seen: list[tuple[object, ...]] = []

    def look(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        rows = spark.sql(
            f"""
            SELECT source_table, destination_table, partition_id, status,
                   parts_total, parts_processed, parts_failed, create_time, update_time
            FROM {EXPORTS}
            WHERE status = 'IN_PROGRESS'
            """
        )
        seen.extend(tuple(row) for row in rows.collect())
        metric = spark.sql("SELECT value FROM mergeberg.system.metrics WHERE metric = 'Export'")
        assert metric.collect()[0][0] == 2

    exports.before = look
    try:
        exports.run(name)
    finally:
        exports.before = lambda *_: None

    assert sorted(row[:7] for row in seen) == [
        (str(name), f"lake.n.{name.name}", partition, "IN_PROGRESS", 1, 0, 0)
        for partition in ("0", "1")
    ]
    assert all(isinstance(at, datetime) for row in seen for at in row[7:])


def test_the_query_of_the_requirement_shows_every_outcome_of_an_export(
    spark: SparkSession, exports: RealExport
) -> None:
    """SRS-016 asks in these words: `system.part_log`, and columns named `table` and `partition`.

    Harm prevented: the queries of ClickHouse's dashboards have to be written again.
    """
    name = exports.clickhouse.filled()
    exports.run(name)
    exports.run(name)
    spark.sql("USE mergeberg")
    try:
        found = spark.sql(
            """
            SELECT event_time, event_type, table, partition, rows, bytes_read, bytes_written
            FROM system.part_log
            WHERE event_type = 'EXPORT_PARTITION'
            ORDER BY event_time DESC
            """
        ).collect()
    finally:
        spark.sql("USE spark_catalog")

    times = [row[0] for row in found]
    assert times == sorted(times, reverse=True)
    ours = [tuple(row)[1:] for row in found if row["table"] == str(name)]
    again, first = ours[:2], ours[2:]
    assert sorted(row[:4] for row in first) == [
        ("EXPORT_PARTITION", str(name), partition, 50) for partition in ("0", "1")
    ]
    assert all(read > 0 and written > 0 for *_, read, written in first)
    assert sorted(again) == [
        ("EXPORT_PARTITION", str(name), partition, 50, 0, 0) for partition in ("0", "1")
    ]


def test_tables_are_joined_with_each_other_and_with_others(
    spark: SparkSession, exports: RealExport
) -> None:
    """What was exported, how, and by which statement, in one question."""
    name = exports.clickhouse.filled()
    exports.clickhouse.insert(name, first=100, rows=20)
    exports.run(name)
    spark.createDataFrame(
        [(str(name), "us")], "source_table STRING, team STRING"
    ).createOrReplaceTempView("teams")

    rows = spark.sql(
        f"""
        SELECT team, e.partition_id, count(*) AS parts, sum(l.rows) AS rows,
               count_if(array_contains(p.source_parts, l.part_name)) AS there
        FROM {EXPORTS} e
        JOIN teams USING (source_table)
        JOIN mergeberg.system.part_log l USING (transaction_id)
        JOIN mergeberg.system.parts p
          ON p.`table` = e.destination_table AND p.partition_id = e.partition_id
        WHERE l.event_type = 'EXPORT_PARTITION' AND l.event_time >= e.create_time
        GROUP BY ALL ORDER BY ALL
        """
    ).collect()

    assert [tuple(row) for row in rows] == [("us", "0", 2, 60, 2), ("us", "1", 2, 60, 2)]
    held = spark.sql(
        f"SELECT sum(rows) FROM mergeberg.system.partitions WHERE `table` LIKE '%{name.name}'"
    )
    assert held.collect()[0][0] == 120


def test_a_query_that_the_table_shows_can_be_killed(
    spark: SparkSession, exports: RealExport
) -> None:
    """From any session that has the ledger, wherever the export runs."""
    name = exports.clickhouse.filled()
    result: list[tuple[object, object]] = []

    def kill(_plan: WritePlan, _tasks: tuple[SliceTask, ...]) -> None:
        ids = f"SELECT DISTINCT query_id FROM {EXPORTS} WHERE source_table = '{name}'"
        ((query_id,),) = spark.sql(ids).collect()
        killed = spark.sql(f"KILL QUERY WHERE query_id = '{query_id}' SYNC").collect()
        result.extend((row["partition_id"], row["status"]) for row in killed)

    exports.before = kill
    try:
        with pytest.raises(StoppedError, match="was killed"):
            exports.run(name)
    finally:
        exports.before = lambda *_: None

    assert sorted(result) == [("0", "finished"), ("1", "finished")]
    stands = f"SELECT DISTINCT status FROM {EXPORTS} WHERE source_table = '{name}'"
    assert [row[0] for row in spark.sql(stands).collect()] == ["KILLED"]
    assert exports.in_lake(name) == []


def test_nothing_can_be_written_into_them(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="does not support"):
        spark.sql(f"DELETE FROM {EXPORTS}")
    with pytest.raises(Exception, match="only shows what mergeberg knows"):
        spark.sql(f"DROP TABLE {EXPORTS}")

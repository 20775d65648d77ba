"""The procedures in a real session with the real Iceberg: what they did is what it shows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.storages.schemes import Storages
from spark_ext.operations.spark_views import SparkView
from spark_ext.sql.dispatch import PROCEDURES, respond
from tableformat.file_names import RECEIPTS
from tests.support.iceberg_spark import catalog_settings
from tests.support.local_spark import SPARK_MARKS
from tests.support.spark_application import SparkApplication

pytestmark = SPARK_MARKS


@pytest.fixture(scope="module")
def spark(
    spark_application: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Start a session that keeps tables as it once read them, as Iceberg does by default."""
    root = tmp_path_factory.mktemp("session")
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        for sql in (
            "CREATE DATABASE db",
            "CREATE TABLE db.t (p UInt8, id Int64) ENGINE = MergeTree PARTITION BY p ORDER BY id",
            "INSERT INTO db.t VALUES (1, 1), (1, 2), (1, 3), (2, 4), (2, 5)",
            "CREATE TABLE db.u (p UInt8, id Int64) ENGINE = MergeTree PARTITION BY p ORDER BY id",
            "INSERT INTO db.u SELECT * FROM db.t",
            (
                "CREATE TABLE db.bad (p UInt8, s String) ENGINE = MergeTree PARTITION BY p"
                " ORDER BY p"
            ),
            "INSERT INTO db.bad SELECT 1, unhex('FF')",
        ):
            connection.command(sql)
    conf = {
        **catalog_settings(
            "lake",
            type="jdbc",
            uri=f"jdbc:sqlite:{root}/lake.db",
            jdbc__schema_version="V1",
            warehouse=f"file:{root}/warehouse",
        ),
        "spark.mergeberg.source.ch": f"chdb:{root}/clickhouse",
        "spark.mergeberg.source.ch.allow-alter": "true",
        "spark.mergeberg.ledger": f"sqlite:{root}/ledger.db",
    }
    with pytest.MonkeyPatch.context() as patch, spark_application.session(conf) as session:
        patch.setenv("PYICEBERG_HOME", str(root))
        yield session


_VALUES: dict[str, object] = {"NULL": None, "false": False, "true": True, "map()": {}}


def call(spark: SparkSession, name: str, **arguments: object) -> list[list[object]]:
    """Call a procedure; return its rows."""
    response = called(spark, name, **arguments)
    assert "error" not in response, response
    rows: list[list[object]] = response["rows"]
    return rows


def called(spark: SparkSession, name: str, **arguments: object) -> dict[str, Any]:
    """Call a procedure as the jar does, which sends every parameter; return what it answers."""
    declared = [one for one in PROCEDURES[name].parameters if one.default is not None]
    defaults = {one.name: _VALUES.get(str(one.default), one.default) for one in declared}
    asked = {"call": name, "catalog": "lake", "arguments": defaults | arguments}
    result: dict[str, Any] = json.loads(respond(json.dumps(asked), spark))
    return result


@pytest.mark.representative
def test_a_table_is_made_filled_and_looked_at_in_one_session(
    spark: SparkSession,
) -> None:
    """Harm prevented: a SELECT after the statement shows the table as it was before."""
    made = call(
        spark,
        "create_table_like",
        source="ch.db.t",
        table="n.t",
        convert={},
        partition_spec=None,
        strict=False,
        dry_run=False,
    )
    assert made[0][:4] == ["lake.n.t", "created", 2, "p"]
    assert spark.sql("SELECT * FROM lake.n.t").collect() == []

    archived = call(
        spark,
        "archive_partition",
        source="ch.db.t",
        partition_id="1",
        table="n.t",
    )

    assert archived[0][:5] == ["1", "detached", "committed", 3, 1]
    shown = spark.sql("SELECT id FROM lake.n.t ORDER BY id").collect()
    assert [row.id for row in shown] == [1, 2, 3]
    left = call(spark, "partitions", table="ch.db.t")
    assert [row[0] for row in left] == ["2"]
    in_lake = call(spark, "partitions", table="n.t")
    assert [(row[1], row[4]) for row in in_lake] == [("p=1", 3)]
    (listed,) = call(spark, "exports", table="lake.n.t")
    assert (listed[3], listed[7]) == ("ARCHIVED", archived[0][5])


def test_an_error_has_the_words_of_sql(spark: SparkSession) -> None:
    asked = {"source": "ch.db.t", "partition_id": "9", "table": "n.t"}
    request = {"call": "forget_export", "catalog": "lake", "arguments": asked}

    error = json.loads(respond(json.dumps(request), spark))["error"]

    assert error["sqlstate"] == "42P01"
    assert error["message"].endswith("List what it has with `CALL system.exports()`.")


@pytest.mark.parametrize(
    ("verb", "procedure", "arguments"),
    [
        (
            "archive",
            "archive_partition",
            {"source": "ch.db.bad", "partition_id": "1", "table": "n.bad"},
        ),
        ("attach", "execute_alter", {"statement": "ATTACH PARTITION 1 FROM ch.db.bad"}),
        ("replace", "execute_alter", {"statement": "REPLACE PARTITION 1 FROM ch.db.bad"}),
    ],
)
def test_what_a_task_refuses_has_the_verb_of_the_command(
    spark: SparkSession, verb: str, procedure: str, arguments: dict[str, str]
) -> None:
    """Harm prevented: who archives or attaches reads that something cannot be exported."""
    made = {"source": "ch.db.bad", "table": "n.bad", "partition_spec": None}
    call(spark, "create_table_like", **made, convert={}, strict=False, dry_run=False)
    named = {k: f"ALTER TABLE lake.n.bad {v}" for k, v in arguments.items() if k == "statement"}

    message = called(spark, procedure, **arguments | named)["error"]["message"]

    assert f"annot {verb} partition 1 of db.bad" in message
    assert "column s: not valid UTF-8 in 1 row, for example FF" in message
    assert "annot export" not in message
    assert "--" not in message


def ids(spark: SparkSession, version: str = "") -> list[int]:
    """Return what Spark reads of the table, or of a version of it."""
    of = f" VERSION AS OF '{version}'" if version else ""
    return [row.id for row in spark.sql(f"SELECT id FROM lake.n.u{of} ORDER BY id").collect()]


def alter(spark: SparkSession, command: str, table: str = "lake.n.u") -> list[object]:
    """Run a statement; return the status of each partition."""
    rows = call(spark, "execute_alter", statement=f"ALTER TABLE {table} {command}")
    return [row[1] for row in rows]


def test_what_is_detached_or_frozen_is_read_by_spark_and_outlives_its_expiry(
    spark: SparkSession,
) -> None:
    allowed = "SETTINGS allow_experimental_export_merge_tree_part = 1"
    alter(spark, f"EXPORT PARTITION ALL TO TABLE lake.n.u {allowed}", "ch.db.u")
    assert ids(spark) == [1, 2, 3, 4, 5]

    assert alter(spark, "FREEZE WITH NAME 'whole', DETACH PARTITION 1") == ["frozen", "detached"]
    assert (ids(spark), ids(spark, "detached")) == ([4, 5], [1, 2, 3])
    spark.sql(
        "CALL lake.system.expire_snapshots(table => 'n.u', retain_last => 1,"
        " older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )
    (location,) = spark.sql("SELECT file_path FROM lake.n.u.files LIMIT 1").first() or ("",)
    directory = next(d for d in Path(urlparse(location).path).parents if d.name == "u")
    orphan = directory / "data" / "orphan.parquet"
    orphan.write_bytes(b"nobody refers to it")
    for path in directory.rglob("*"):
        os.utime(path, (0, 0))
    spark.sql("CALL lake.system.remove_orphan_files(table => 'n.u')")
    assert not orphan.exists()
    assert (ids(spark, "detached"), ids(spark, "whole")) == ([1, 2, 3], [1, 2, 3, 4, 5])

    assert alter(spark, "DROP PARTITION 2, ATTACH PARTITION ALL") == ["dropped", "attached"]
    assert (ids(spark), ids(spark, "detached"), ids(spark, "whole")) == (
        [1, 2, 3],
        [],
        [1, 2, 3, 4, 5],
    )


def test_a_partition_comes_from_a_temporary_view_as_spark_names_it(spark: SparkSession) -> None:
    """Harm prevented: a view that has other rows each time is half of one and half of another."""
    export = "EXPORT PARTITION ALL TO TABLE lake.n.w"
    alter(spark, f"{export} SETTINGS allow_experimental_export_merge_tree_part = 1", "ch.db.t")
    spark.range(0, 40, 1, 4).selectExpr(
        "CAST(id % 2 + 1 AS SHORT) AS p", "id * 10 + CAST(rand() * 10 AS INT) AS id"
    ).repartition(3).createOrReplaceTempView("`new rows`")
    spark.sql("SELECT 1 AS p, 7L AS id").createOrReplaceGlobalTempView("shared")
    spark.sql("SELECT 1 AS p, 'x' AS id").createOrReplaceTempView("odd")

    def seen() -> list[tuple[int, int]]:
        return [(r.p, r.id) for r in spark.sql("SELECT p, id FROM lake.n.w ORDER BY id").collect()]

    before = seen()
    for view, message in (("odd", "its column id is string"), ("nowhere", "nowhere")):
        statement = f"ALTER TABLE lake.n.w REPLACE PARTITION 1 FROM {view}"
        asked = {"call": "execute_alter", "catalog": "lake", "arguments": {"statement": statement}}
        assert message in json.loads(respond(json.dumps(asked), spark))["error"]["message"]
    assert seen() == before

    assert alter(spark, "REPLACE PARTITION 1 FROM `new rows`", "lake.n.w") == ["replaced"]
    assert [(p, number // 10) for p, number in seen() if p == 1] == [
        (1, i) for i in range(0, 40, 2)
    ]
    assert [one for one in seen() if one[0] == 2] == [(2, 4), (2, 5)]
    alter(spark, "DROP PARTITION 1", "lake.n.w")
    assert alter(spark, "ATTACH PARTITION 1 FROM global_temp.shared", "lake.n.w") == ["attached"]
    assert seen() == [(2, 4), (2, 5), (1, 7)]


def test_for_tasks_on_other_hosts_a_view_lies_below_the_table_for_a_moment(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "master", "spark://elsewhere:7077")
    spark.range(0, 5, 1, 3).createOrReplaceTempView("five")

    with SparkView(spark, "`five`").written(str(tmp_path), Storages()) as files:
        below = {str(Path(one.location).parent.parent) for one in files}
        found = [pq.read_table(one.location).column("id").to_pylist() for one in files]
        assert below == {str(tmp_path / RECEIPTS / "views")}
        assert sorted(number for rows in found for number in rows) == [*range(5)]
        assert [one.rows for one in files] == [len(rows) for rows in found]

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

"""Partitions of a real ClickHouse in Hive directories: what lies there, and who reads it."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tableformat.errors import UnsupportedError
from tableformat.export.outcome import Status
from tableformat.names import TableName
from tests.readers.engines import environment_python
from tests.support.local_spark import SPARK_MARKS
from tests.support.real_export import RealExport
from tests.support.real_tree import RealTree
from tests.support.spark_application import SparkApplication

COLUMNS = "eventDate Date, retention UInt8, name String, id UInt64, price Nullable(Decimal(9, 2))"
KEY = "PARTITION BY (eventDate, retention, name) ORDER BY id"
NAMES = ("plain", "a b", "a/b=c", "ü-ñ", "50%", "it's", "a:b{x}", "a?b#c", "a%20b", "007", "~`<t>|")
DAY = dt.date(2024, 3, 1)


@pytest.fixture(scope="module")
def trees(exports: RealExport) -> RealTree:
    return RealTree.alongside(exports)


@pytest.fixture(scope="module")
def exported(trees: RealTree) -> TableName:
    """A table with one partition for each name, of two rows, in a tree."""
    table = trees.clickhouse.table(f"ENGINE = MergeTree {KEY}", COLUMNS)
    for number, name in enumerate(NAMES):
        quoted = name.replace("'", "\\'")
        trees.clickhouse.command(
            f"INSERT INTO {table.sql} VALUES"
            f" ('2024-03-01', 7, '{quoted}', {number}, 1.5), ('2024-03-01', 7, '{quoted}', "
            f"{number + 100}, NULL)"
        )
    outcomes = trees.run(table)
    assert {o.status for o in outcomes} == {Status.COMMITTED}
    assert len(outcomes) == len(NAMES)
    return table


def expected() -> list[tuple[Any, ...]]:
    return sorted((name, number + more) for number, name in enumerate(NAMES) for more in (0, 100))


def test_files_lie_in_directories_of_the_key_and_begin_with_the_transaction(
    trees: RealTree, exported: TableName
) -> None:
    """N-18, N-42: PARTITION BY (eventDate, retention) is eventDate=.../retention=..."""
    commits = {c.transaction_id for c in trees.destination_of(exported).commit_files()}
    paths = trees.on_disk(exported)

    assert trees.committed(exported) == paths
    assert {p.rsplit("/", 1)[-1].partition("-")[0] for p in paths} == commits
    assert {p.rsplit("/", 1)[0] for p in paths} == {
        f"eventDate=2024-03-01/retention=7/name={escaped}"
        for escaped in (
            "plain", "a%20b", "a%2Fb%3Dc", "ü-ñ", "50%25", "it%27s", "a%3Ab%7Bx%7D", "a%3Fb%23c",
            "a%2520b", "007", "%7E%60%3Ct%3E%7C",
        )
    }  # fmt: skip


def test_duckdb_reads_the_tree(trees: RealTree, exported: TableName) -> None:
    found = duckdb.sql(
        f"SELECT name, id FROM read_parquet('{trees.root(exported)}/**/*.parquet', "
        "hive_partitioning = true) WHERE eventDate = DATE '2024-03-01' AND retention = 7"
    ).fetchall()

    assert sorted(found) == expected()


def test_pyarrow_reads_the_tree_by_typed_directories(trees: RealTree, exported: TableName) -> None:
    keys = pa.schema([("eventDate", pa.date32()), ("retention", pa.int32()), ("name", pa.string())])
    found = ds.dataset(
        trees.root(exported), format="parquet", partitioning=ds.partitioning(keys, flavor="hive")
    )
    table = found.to_table(columns=["name", "id"], filter=ds.field("eventDate") == DAY)

    assert sorted((r["name"], int(r["id"])) for r in table.to_pylist()) == expected()


def test_polars_reads_the_tree(trees: RealTree, exported: TableName) -> None:
    program = (
        "import json, sys, polars as pl\n"
        "found = pl.scan_parquet(sys.argv[1] + '/**/*.parquet', hive_partitioning=True)\n"
        "found = found.filter(pl.col('retention') == 7).select('name', pl.col('id').cast(int))\n"
        "print(json.dumps(sorted(found.collect().rows())))"
    )
    ended = subprocess.run(
        [str(environment_python()), "-c", program, str(trees.root(exported))],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert [tuple(row) for row in json.loads(ended.stdout)] == expected()


@pytest.mark.spark
@pytest.mark.filterwarnings(*(mark.args[0] for mark in SPARK_MARKS if mark.name != "spark"))
def test_spark_reads_the_tree_from_its_root(
    trees: RealTree, exported: TableName, spark_application: SparkApplication
) -> None:
    """Harm prevented: a commit file, or the log, that Spark takes for data."""
    with spark_application.session() as spark:
        rows = spark.read.parquet(str(trees.root(exported))).where(
            "eventDate = DATE '2024-03-01' AND retention = 7"
        )
        found = [(row["name"], int(row["id"])) for row in rows.select("name", "id").collect()]

    assert sorted(found) == expected()


def test_clickhouse_reads_the_tree_by_the_columns_in_the_files(
    trees: RealTree, exported: TableName
) -> None:
    """Its own directory columns are not decoded, so that they are switched off."""
    program = (
        "import os, sys, chdb\n"
        "os.chdir(sys.argv[1])\n"
        "sql = \"SELECT name, toUInt64(id) AS id FROM file('**/*.parquet', Parquet)\"\n"
        "sql += ' SETTINGS use_hive_partitioning = 0'\n"
        "print(chdb.query(sql, 'JSONCompactEachRow'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(trees.root(exported))],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert (
        sorted(tuple(json.loads(line)) for line in ended.stdout.split("\n") if line) == expected()
    )


def test_every_column_is_in_the_files_and_texts_are_plain_strings(
    trees: RealTree, exported: TableName
) -> None:
    """A directory read with a typed schema fails where the file says large_string."""
    for path in trees.on_disk(exported):
        schema = pa.parquet.read_schema(trees.root(exported) / path)
        assert schema.names == ["eventDate", "retention", "name", "id", "price"]
        assert schema.field("name").type == pa.string()


def test_a_run_again_exports_nothing(trees: RealTree, exported: TableName) -> None:
    before = trees.on_disk(exported)

    outcomes = trees.run(exported)

    assert {o.status for o in outcomes} == {Status.ALREADY_EXPORTED}
    assert trees.on_disk(exported) == before


def test_an_expression_in_the_key_is_refused_with_the_codes_name(trees: RealTree) -> None:
    """N-30, N-41."""
    table = trees.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY (toYYYYMM(d), u) ORDER BY k", "d Date, u UUID, k Int64"
    )

    with pytest.raises(UnsupportedError) as refused:
        trees.run(table)

    assert refused.value.code == 48
    assert "toYYYYMM(d) is an expression" in refused.value.message
    assert "u is a uuid" in refused.value.message
    assert not trees.root(table).exists()


def test_a_table_without_a_key_has_no_directories(trees: RealTree) -> None:
    plain = trees.clickhouse.table("ENGINE = MergeTree ORDER BY k", "k Int64")
    trees.clickhouse.command(f"INSERT INTO {plain.sql} VALUES (1), (2)")

    assert [o.rows for o in trees.run(plain)] == [2]

    assert ["/" in path for path in trees.committed(plain)] == [False]


WORDS = ("NULL", "null", "nUlL", "Null ", "nullable", "NaN", "None", "__hive_default_partition__")
NULL_WORD = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture(scope="module")
def worded(trees: RealTree) -> TableName:
    """A table whose key is NULL, or a text that a reader might take for NULL."""
    table = trees.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY s ORDER BY k SETTINGS allow_nullable_key = 1",
        "s Nullable(String), k Int64",
    )
    texts = ", ".join(f"('{word}', {n})" for n, word in enumerate(WORDS))
    trees.clickhouse.command(f"INSERT INTO {table.sql} VALUES {texts}, (NULL, 100)")
    assert {o.status for o in trees.run(table)} == {Status.COMMITTED}
    return table


WORDED = [*enumerate(WORDS), (100, None)]


def test_texts_that_mean_null_to_some_reader_differ_from_null(
    trees: RealTree, worded: TableName
) -> None:
    """Harm prevented: DuckDB takes the directory s=NULL, in any case of letters, for NULL."""
    root = trees.root(worded)
    found = duckdb.sql(
        f"SELECT k, s FROM read_parquet('{root}/**/*.parquet', hive_partitioning = true) ORDER BY k"
    ).fetchall()
    keys = ds.partitioning(pa.schema([("s", pa.string())]), flavor="hive")
    table = ds.dataset(root, format="parquet", partitioning=keys).to_table(columns=["k", "s"])
    in_files = duckdb.sql(
        f"SELECT k, s FROM read_parquet('{root}/**/*.parquet', hive_partitioning = 0) ORDER BY k"
    ).fetchall()

    assert found == WORDED
    assert [(r["k"], r["s"]) for r in table.sort_by("k").to_pylist()] == WORDED
    assert in_files == WORDED


@pytest.mark.spark
@pytest.mark.filterwarnings(*(mark.args[0] for mark in SPARK_MARKS if mark.name != "spark"))
def test_spark_distinguishes_texts_that_mean_null_from_null(
    trees: RealTree, worded: TableName, spark_application: SparkApplication
) -> None:
    with spark_application.session() as spark:
        rows = spark.read.parquet(str(trees.root(worded))).select("k", "s").collect()

    assert sorted((r["k"], r["s"]) for r in rows) == WORDED


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "is the empty text"), (NULL_WORD, f"is the text {NULL_WORD}")],
    ids=["empty", "the word"],
)
def test_only_texts_that_a_directory_reads_as_null_are_refused(
    trees: RealTree, text: str, why: str
) -> None:
    """Harm prevented: rows of the text that readers of directories show as NULL.

    Spark reads no tree at all that has a directory `s=`, and PyArrow takes the word for NULL
    however it is spelled.
    """
    table = trees.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY s ORDER BY k SETTINGS allow_nullable_key = 1",
        "s Nullable(String), k Int64",
    )
    trees.clickhouse.command(f"INSERT INTO {table.sql} VALUES (NULL, 1), ('{text}', 2), ('x', 3)")

    outcomes = trees.run(table)

    (refused,) = (o for o in outcomes if o.status is Status.REFUSED)
    assert sorted(o.status.value for o in outcomes) == ["committed", "committed", "refused"]
    assert f"its s {why}" in refused.message
    assert "Iceberg table" in refused.message
    found = duckdb.sql(
        f"SELECT s, k FROM read_parquet('{trees.root(table)}/**/*.parquet', "
        "hive_partitioning = true) ORDER BY k"
    ).fetchall()
    assert found == [(None, 1), ("x", 3)]


def test_texts_of_digits_are_texts_where_the_reader_does_not_guess_types(trees: RealTree) -> None:
    """Harm prevented: '007' that a reader shows as the number 7, with no word of how to stop it."""
    table = trees.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY s ORDER BY k", "s String, k Int64"
    )
    trees.clickhouse.command(f"INSERT INTO {table.sql} VALUES ('007', 1), ('10', 2)")
    trees.run(table)

    found = duckdb.sql(
        f"SELECT k, s FROM read_parquet('{trees.root(table)}/**/*.parquet', "
        "hive_partitioning = true, hive_types_autocast = false) ORDER BY k"
    ).fetchall()

    assert found == [(1, "007"), (2, "10")]

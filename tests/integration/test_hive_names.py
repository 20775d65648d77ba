"""Columns of a tree of Hive directories have the table's names, in files and for readers."""

from __future__ import annotations

import json
import subprocess
import sys

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from catalog.clickhouse.rows.digests import FileDigests
from tableformat.errors import UnsupportedError
from tableformat.export.outcome import Status
from tableformat.export.verification import Verdict
from tableformat.hive.documents import TreeIdentity
from tableformat.names import TableName
from tests.support.local_spark import SPARK_MARKS
from tests.support.real_export import RealExport
from tests.support.real_tree import RealTree
from tests.support.spark_application import SparkApplication

COLUMNS = (
    "k Int64, `two words` Int32, `n.x` Int32, `größe` String, `a=b %` String, n Nested(a UInt8, b "
    "String), t Tuple(`x y` Int32, `ü` String), m Map(String, Tuple(`p.q` Int32))"
)
KEY = "PARTITION BY (`two words`, `n.x`, `größe`) ORDER BY k"
NAMES = ["k", "two words", "n.x", "größe", "a=b %", "n.a", "n.b", "t", "m"]
KEYS = [(1, 7, 8, "L"), (2, 7, 9, "M")]


@pytest.fixture(scope="module")
def trees(exports: RealExport) -> RealTree:
    return RealTree.alongside(exports)


def filled(trees: RealTree) -> TableName:
    table = trees.clickhouse.table(f"ENGINE = MergeTree {KEY}", COLUMNS)
    for k, two, n, size in KEYS:
        trees.clickhouse.command(
            f"INSERT INTO {table.sql} VALUES ({k}, {two}, {n}, '{size}', 'v', [1, 2], ['x', 'y'], "
            "(3, 'z'), {'key': (5)})"
        )
    return table


@pytest.fixture(scope="module")
def exported(trees: RealTree) -> TableName:
    table = filled(trees)
    assert {o.status for o in trees.run(table)} == {Status.COMMITTED}
    return table


def test_files_have_the_names_of_the_table_at_every_depth(
    trees: RealTree, exported: TableName
) -> None:
    """Harm prevented: n_x2Ex and two_x20words, which no reader of the tree can know."""
    for path in trees.on_disk(exported):
        schema = pq.read_schema(trees.root(exported) / path)
        assert schema.names == NAMES
        assert [f.name for f in schema.field("t").type.fields] == ["x y", "ü"]
        assert schema.field("m").type.item_type.field(0).name == "p.q"
        assert path.startswith("two words=7/n.x=")


def test_verify_finds_what_was_exported(trees: RealTree, exported: TableName) -> None:
    """Harm prevented: a verify that does not find a column whose name has a dot or a space."""
    with FileDigests() as digests:
        found = [(c.verdict, c.message) for c in trees.verify(exported, digests)]

    assert found == [(Verdict.EQUAL, found[0][1])] * 2


def test_duckdb_and_pyarrow_see_the_columns_of_the_table(
    trees: RealTree, exported: TableName
) -> None:
    root = trees.root(exported)
    found = duckdb.sql(
        f"SELECT * FROM read_parquet('{root}/**/*.parquet', hive_partitioning = true) ORDER BY k"
    )
    by_key = ds.dataset(root, format="parquet", partitioning=None).to_table()

    assert found.columns == NAMES
    assert [row[:4] for row in found.fetchall()] == KEYS
    assert by_key.schema.names == NAMES
    assert sorted(zip(*(by_key[n].to_pylist() for n in NAMES[:4]), strict=True)) == KEYS


@pytest.mark.parametrize("hive", [0, 1])
def test_clickhouse_sees_the_columns_of_the_table(
    trees: RealTree, exported: TableName, hive: int
) -> None:
    program = (
        "import os, sys, chdb\n"
        "os.chdir(sys.argv[1])\n"
        "sql = \"SELECT * FROM file('**/*.parquet', Parquet) ORDER BY k\"\n"
        f"sql += ' SETTINGS use_hive_partitioning = {hive}'\n"
        "print(chdb.query(sql, 'JSONCompactEachRowWithNames'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(trees.root(exported))],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    names, *rows = (json.loads(line) for line in ended.stdout.splitlines() if line)
    assert names == NAMES
    assert [(int(r[0]), *r[1:4]) for r in rows] == KEYS


@pytest.mark.spark
@pytest.mark.filterwarnings(*(mark.args[0] for mark in SPARK_MARKS if mark.name != "spark"))
def test_spark_sees_the_columns_of_the_table(
    trees: RealTree, exported: TableName, spark_application: SparkApplication
) -> None:
    with spark_application.session() as spark:
        rows = spark.read.parquet(str(trees.root(exported)))
        found = [tuple(r)[:4] for r in rows.select(*(f"`{n}`" for n in NAMES)).collect()]

    assert sorted(found) == KEYS


def test_a_tree_of_escaped_names_is_read_and_verified_and_takes_no_more(trees: RealTree) -> None:
    """Harm prevented: a tree of an earlier release whose new files have other columns."""
    table = filled(trees)
    trees.run(table)
    _forget_rules(trees, table)
    before = trees.on_disk(table)
    trees.clickhouse.command(
        f"INSERT INTO {table.sql} VALUES (9, 1, 1, 'S', 'v', [], [], (3, 'z'), map())"
    )

    with pytest.raises(UnsupportedError, match=r"n\.x as n_x2Ex") as refused:
        trees.run(table)

    assert refused.value.code == 48
    assert trees.on_disk(table) == before
    with FileDigests() as digests:
        verdicts = [c.verdict for c in trees.verify(table, digests)]
    assert sorted(v.value for v in verdicts) == ["equal", "equal", "not_exported"]


def _forget_rules(trees: RealTree, table: TableName) -> None:
    """Make the identity of a tree one of a release that had no rules."""
    opened = trees.destination_of(table)
    identity = opened.identity()
    assert identity is not None
    metadata = identity.metadata
    properties = {k: v for k, v in metadata.properties.items() if k != "mergeberg.tree.rules"}
    assert properties != metadata.properties
    older = TreeIdentity(metadata.model_copy(update={"properties": properties}))
    opened.storage.put(opened.paths.identity, older.to_bytes())

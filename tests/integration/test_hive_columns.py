"""Directories of expressions, which the user names: where rows lie, and what readers see."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.clickhouse.rows.digests import FileDigests
from tableformat.errors import RefusedError, TableFormatError, UnsupportedError, UsageError
from tableformat.export.outcome import Status
from tableformat.export.verification import Verdict
from tableformat.file_names import directory_values
from tableformat.names import TableName, quote_string
from tests.readers.engines import environment_python
from tests.support.local_spark import SPARK_MARKS
from tests.support.real_export import RealExport
from tests.support.real_tree import RealTree
from tests.support.spark_application import SparkApplication

COLUMNS = "d Date, region String, id UInt32"
KEY = "PARTITION BY (toYYYYMM(d), region, intDiv(id, 100) - 1) ORDER BY id"
NAMES = {"month": "toYYYYMM(d)", "block": "intDiv(id, 100) - 1"}
ROWS = [
    ("2024-01-05", "eu", 7, 202401, -1),
    ("2024-01-31", "eu", 99, 202401, -1),
    ("2024-02-01", "a b", 100, 202402, 0),
    ("2025-12-31", "eu", 250, 202512, 1),
]


@pytest.fixture(scope="module")
def trees(exports: RealExport) -> RealTree:
    return RealTree.alongside(exports)


def filled(trees: RealTree) -> TableName:
    table = trees.clickhouse.table(f"ENGINE = MergeTree {KEY}", COLUMNS)
    values = ", ".join(f"('{d}', '{region}', {n})" for d, region, n, *_ in ROWS)
    trees.clickhouse.command(f"INSERT INTO {table.sql} VALUES {values}")
    return table


@pytest.fixture(scope="module")
def exported(trees: RealTree) -> TableName:
    """A table of three partitions in a tree with named directories."""
    table = filled(trees)
    outcomes = trees.run(table, directories=NAMES)
    assert [o.status for o in outcomes] == [Status.COMMITTED] * 3
    return table


def test_a_named_expression_has_a_directory_and_no_column_in_the_files(
    trees: RealTree, exported: TableName
) -> None:
    """N-30, N-41: what the key is made of stays in the files."""
    paths = trees.on_disk(exported)

    assert trees.committed(exported) == paths
    assert {p.rsplit("/", 1)[0] for p in paths} == {
        "month=202401/region=eu/block=-1",
        "month=202402/region=a%20b/block=0",
        "month=202512/region=eu/block=1",
    }
    for path in paths:
        assert pq.read_schema(trees.root(exported) / path).names == ["d", "region", "id"]


def expected() -> list[tuple[Any, ...]]:
    return sorted((n, month, block) for _, _, n, month, block in ROWS)


def test_duckdb_reads_named_directories(trees: RealTree, exported: TableName) -> None:
    found = duckdb.sql(
        f"SELECT id, month, block FROM read_parquet('{trees.root(exported)}/**/*.parquet', "
        "hive_partitioning = true) WHERE month >= 202401"
    ).fetchall()

    assert sorted(found) == expected()


def test_pyarrow_reads_named_directories(trees: RealTree, exported: TableName) -> None:
    keys = pa.schema([("month", pa.int64()), ("region", pa.string()), ("block", pa.int64())])
    found = ds.dataset(
        trees.root(exported), format="parquet", partitioning=ds.partitioning(keys, flavor="hive")
    )
    table = found.to_table(columns=["id", "month", "block"], filter=ds.field("month") == 202401)

    assert sorted(tuple(row.values()) for row in table.to_pylist()) == [
        row for row in expected() if row[1] == 202401
    ]


def test_polars_reads_named_directories(trees: RealTree, exported: TableName) -> None:
    program = (
        "import json, sys, polars as pl\n"
        "found = pl.scan_parquet(sys.argv[1] + '/**/*.parquet', hive_partitioning=True)\n"
        "found = found.filter(pl.col('month') == 202401).select('id', 'month', 'block')\n"
        "print(json.dumps(sorted(found.collect().rows())))"
    )
    ended = subprocess.run(
        [str(environment_python()), "-c", program, str(trees.root(exported))],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    found = [tuple(row) for row in json.loads(ended.stdout)]
    assert found == [row for row in expected() if row[1] == 202401]


@pytest.mark.spark
@pytest.mark.filterwarnings(*(mark.args[0] for mark in SPARK_MARKS if mark.name != "spark"))
def test_spark_reads_named_directories(
    trees: RealTree, exported: TableName, spark_application: SparkApplication
) -> None:
    with spark_application.session() as spark:
        rows = spark.read.parquet(str(trees.root(exported))).where("month = 202401")
        found = [
            (int(row["id"]), row["month"], row["block"])
            for row in rows.select("id", "month", "block").collect()
        ]

    assert sorted(found) == [row for row in expected() if row[1] == 202401]


def test_clickhouse_reads_named_directories(trees: RealTree, exported: TableName) -> None:
    """Of directories that are numbers nothing has to be decoded: its own columns are right."""
    program = (
        "import os, sys, chdb\n"
        "os.chdir(sys.argv[1])\n"
        "sql = \"SELECT toUInt32(id), toInt32(month), toInt32(block) FROM file('**/*.parquet')\"\n"
        "sql += ' SETTINGS use_hive_partitioning = 1'\n"
        "print(chdb.query(sql, 'JSONCompactEachRow'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(trees.root(exported))],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    found = sorted(tuple(json.loads(line)) for line in ended.stdout.split("\n") if line)
    assert found == expected()


def test_a_tree_remembers_its_names_and_takes_no_others(trees: RealTree) -> None:
    """Harm prevented: two exports of one tree in directories of different names."""
    table = filled(trees)
    trees.run(table, directories=NAMES)
    before = trees.on_disk(table)
    trees.clickhouse.command(f"INSERT INTO {table.sql} VALUES ('2026-01-01', 'eu', 300)")

    with pytest.raises(RefusedError, match="month=toYYYYMM") as refused:
        trees.run(table, directories={**NAMES, "ym": "toYYYYMM(d)"})
    assert refused.value.code == 36
    assert trees.on_disk(table) == before
    outcomes = trees.run(table)

    assert sorted(o.status.value for o in outcomes) == [
        *["already_exported"] * 3,
        "committed",
    ]
    assert {p.rsplit("/", 1)[0] for p in trees.on_disk(table) - before} == {
        "month=202601/region=eu/block=2"
    }
    assert {o.status for o in trees.run(table, directories=NAMES)} == {Status.ALREADY_EXPORTED}


def test_partitions_are_verified_and_what_died_is_resumed(trees: RealTree) -> None:
    table = filled(trees)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    trees.before = die
    with pytest.raises(KeyboardInterrupt):
        trees.run(table, directories=NAMES)
    trees.before = lambda *_: None

    outcomes = trees.run(table)

    assert {o.status for o in outcomes} == {Status.COMMITTED}
    assert trees.committed(table) == trees.on_disk(table)
    with FileDigests() as digests:
        found = [c.verdict for c in trees.verify(table, digests)]
    assert found == [Verdict.EQUAL] * 3


def test_what_changed_is_not_replaced_in_named_directories_either(trees: RealTree) -> None:
    table = filled(trees)
    trees.run(table, directories=NAMES)
    before = trees.on_disk(table)
    trees.clickhouse.command(f"INSERT INTO {table.sql} VALUES ('2024-01-06', 'eu', 8)")

    outcomes = trees.run(table)

    assert sorted(o.status.value for o in outcomes) == [
        *["already_exported"] * 2,
        "refused",
    ]
    assert trees.committed(table) == before


@pytest.mark.parametrize(
    ("names", "kind", "code", "why"),
    [
        ({"month": "toYYYYMM(d)"}, UnsupportedError, 48, "intDiv(id, 100) - 1 is an expression"),
        ({**NAMES, "r": "region"}, RefusedError, 36, "region is a column"),
        ({**NAMES, "w": "toISOWeek(d)"}, RefusedError, 36, "names no member"),
        ({**NAMES, "m": "toYYYYMM(d)"}, RefusedError, 36, "toYYYYMM(d) is named twice"),
        ({**NAMES, "_w": "toISOWeek(d)"}, RefusedError, 36, "_w begins with _"),
        ({"month": "toYYYYMM(d)", "ID": NAMES["block"]}, RefusedError, 36, "the table's column id"),
        (
            {"month": "toYYYYMM(d)", "a=b": NAMES["block"]},
            RefusedError,
            36,
            "a=b has = in its name",
        ),
        ({**NAMES, "Month": "toISOWeek(d)"}, RefusedError, 36, "Month is given twice"),
        ({**NAMES, "w": "toISOWeek("}, UsageError, None, "--hive-column w"),
    ],
)
def test_names_that_cannot_be_used_are_refused_before_anything_is_written(
    trees: RealTree, names: dict[str, str], kind: type[TableFormatError], code: int, why: str
) -> None:
    table = filled(trees)

    with pytest.raises(kind) as refused:
        trees.run(table, directories=names)

    assert (refused.value.code, why in str(refused.value)) == (code, True), refused.value
    assert not trees.root(table).exists()


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("(k, k + 1)", "is a struct"),
        ("toUUID(s)", "is a uuid"),
    ],
)
def test_an_expression_of_a_type_without_directories_is_refused(
    trees: RealTree, expression: str, why: str
) -> None:
    table = trees.clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY (k % 3, {expression}) ORDER BY k",
        "t DateTime('UTC'), k UInt32, s String",
    )

    with pytest.raises(UnsupportedError) as refused:
        trees.run(table, directories={"a": "k % 3", "b": expression})

    assert (refused.value.code, why in refused.value.message) == (48, True), refused.value
    assert not trees.root(table).exists()


def test_an_empty_text_that_no_file_has_is_refused_alone(
    trees: RealTree,
) -> None:
    """Harm prevented: readers would take it for NULL, and nothing would say otherwise."""
    table = trees.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY lower(s) ORDER BY k SETTINGS allow_nullable_key = 1",
        "s Nullable(String), k UInt32",
    )
    trees.clickhouse.command(f"INSERT INTO {table.sql} VALUES ('A', 1), ('', 2), (NULL, 3)")

    outcomes = trees.run(table, directories={"low": "lower(s)"})

    assert sorted(o.status.value for o in outcomes) == ["committed", "committed", "refused"]
    (refused,) = (o for o in outcomes if o.status is Status.REFUSED)
    assert "its low is the empty text" in refused.message
    assert {p.rsplit("/", 1)[0] for p in trees.committed(table)} == {
        "low=a", "low=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip


def test_names_are_for_trees_only(exports: RealExport) -> None:
    table = exports.clickhouse.table("ENGINE = MergeTree PARTITION BY k % 3 ORDER BY k", "k UInt32")

    with pytest.raises(UsageError, match="only trees of Hive directories have such"):
        exports.run(table, directories={"m": "k % 3"}, partition_spec="unpartitioned")


MEMBERS = (
    "toYYYYMM(d)",
    "toMonday(d)",
    "toDayOfWeek(d)",
    "intDiv(n, 7) * -1",
    "n % 5",
    "n % 5 > 2",
    "cityHash64(s) % 3",
    "upper(s)",
    "if(n % 4 = 0, NULL, n % 4)",
    "toDecimal64(n, 2) / 4",
    "concat(s, '/=%')",
    "CAST(n % 3 = 0, 'Bool')",
)
"""Expressions of every type that directories have."""


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, int, str]]]:
    """A key of named expressions, and rows: days since 1970, a number, a text."""
    key = draw(st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=3, unique=True))
    text = st.text(st.sampled_from("aB é=/%'."), min_size=1, max_size=4)
    row = st.tuples(st.integers(0, 40_000), st.integers(-30, 30), text)
    return key, draw(st.lists(row, min_size=1, max_size=6))


@settings(max_examples=10, deadline=None)
@example((["toDecimal64(n, 2) / 4", "concat(s, '/=%')"], [(0, 6, "é"), (1, -5, "%"), (2, 0, "a")]))
@given(keyed_rows())
def test_every_row_is_in_exactly_the_directory_of_clickhouses_value(
    trees: RealTree, case: tuple[list[str], list[tuple[int, int, str]]]
) -> None:
    key, rows = case
    names = {f"c{i}": expression for i, expression in enumerate(key)}
    table = trees.clickhouse.table(
        f"ENGINE = MergeTree PARTITION BY ({', '.join(key)}) ORDER BY id SETTINGS "
        "allow_nullable_key = 1",
        "id UInt32, d Date32, n Int32, s String",
    )
    values = ", ".join(
        f"({i}, {day}, {n}, {quote_string(text)})" for i, (day, n, text) in enumerate(rows)
    )
    trees.clickhouse.command(f"INSERT INTO {table.sql} VALUES {values}")

    outcomes = trees.run(table, directories=names)

    assert {o.status for o in outcomes} == {Status.COMMITTED}
    found = {
        row: tuple(directory_values(path).values())
        for path in trees.committed(table)
        for row in pq.ParquetFile(trees.root(table) / path).read(["id"])["id"].to_pylist()
    }
    shown = ", ".join(
        f"if(isNull(tupleElement(_partition_value, {i})), '', "
        f"assumeNotNull(toString(tupleElement(_partition_value, {i}))))"
        for i in range(1, len(key) + 1)
    )
    kept = trees.clickhouse.rows(f"SELECT id, {shown} FROM {table.sql}")
    texts = {row: tuple(v or None for v in values) for row, *values in kept}
    assert found == {
        # The zeros at the end of a decimal are its type's, which a text leaves out.
        row: tuple(
            f"{Decimal(str(v)):.2f}" if v and "Decimal" in names[c] else v
            for c, v in zip(names, values, strict=True)
        )
        for row, values in texts.items()
    }
    assert sum(o.rows for o in outcomes) == len(rows)

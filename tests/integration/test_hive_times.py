"""Hive directories of times and of fixed texts: how they are named, and what readers take them for.

The rule of a tree is remembered by it (`mergeberg.tree.spelling`): times in UTC, as ClickHouse
writes them; fixed texts as text, or in hex where they are none.
"""

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

from tableformat.export.outcome import Status
from tableformat.names import TableName
from tests.readers.engines import environment_python
from tests.support.local_spark import SPARK_MARKS
from tests.support.real_export import RealExport
from tests.support.real_tree import RealTree
from tests.support.spark_application import SparkApplication

COLUMNS = (
    "t DateTime, u DateTime('UTC'), z DateTime('Europe/Berlin'), m DateTime64(3, 'UTC'),"
    " n DateTime64(9, 'America/New_York'), f FixedString(4), k UInt32"
)
KEY = "PARTITION BY (t, u, z, m, n, f) ORDER BY k"
SECONDS = (1706695200, 1729987200, 1729990800, 0)
"""2024-01-31 10:00:00, both times that Berlin calls 2024-10-27 02:00:00, and 1970."""
FIXED = ("'eu'", "unhex('fffe')", "'a/b '", "'ab'")
SPELLED = ("eu", "fffe0000", "a%2Fb%20", "ab")
READ_AS = ("eu", "fffe0000", "a/b ", "ab")
BYTES = (b"eu\0\0", b"\xff\xfe\0\0", b"a/b ", b"ab\0\0")


@pytest.fixture(scope="module")
def trees(exports: RealExport) -> RealTree:
    return RealTree.alongside(exports)


@pytest.fixture(scope="module")
def exported(trees: RealTree) -> TableName:
    """A table with a partition for each moment, in a tree."""
    table = trees.clickhouse.table(f"ENGINE = MergeTree {KEY}", COLUMNS)
    for number, (at, fixed) in enumerate(zip(SECONDS, FIXED, strict=True)):
        trees.clickhouse.command(
            f"INSERT INTO {table.sql} SELECT toDateTime({at}), toDateTime({at}), toDateTime({at}),"
            f" fromUnixTimestamp64Milli(toInt64({at}250)),"
            f" fromUnixTimestamp64Nano(toInt64({at}000250000)), {fixed}, {number}"
        )
    outcomes = trees.run(table)
    assert {o.status for o in outcomes} == {Status.COMMITTED}, outcomes
    return table


def moments(more: int = 0) -> list[dt.datetime]:
    return [
        dt.datetime.fromtimestamp(at, dt.UTC).replace(tzinfo=None) + dt.timedelta(microseconds=more)
        for at in SECONDS
    ]


def pattern(trees: RealTree, table: TableName) -> str:
    return f"{trees.root(table)}/**/*.parquet"


def test_directories_are_named_as_clickhouse_writes_times_in_utc(
    trees: RealTree, exported: TableName
) -> None:
    """Both hours that a zone calls by one name have a directory of their own."""
    shown = [f"{m:%Y-%m-%d}%20{m:%H}%3A{m:%M}%3A{m:%S}" for m in moments()]

    assert {p.rsplit("/", 1)[0] for p in trees.on_disk(exported)} == {
        f"t={s}/u={s}/z={s}/m={s}.250/n={s}.000250/f={f}"
        for s, f in zip(shown, SPELLED, strict=True)
    }
    identity = trees.destination_of(exported).identity()
    assert identity is not None
    properties = identity.metadata.properties
    assert properties["mergeberg.tree.rules"] == "3"
    assert json.loads(properties["mergeberg.tree.spelling"]) == {
        "t": "UTC", "u": "UTC", "z": "UTC", "m": "UTC.3", "n": "UTC.6", "f": "text-or-hex",
    }  # fmt: skip


def test_the_columns_are_in_the_files_as_in_every_tree(
    trees: RealTree, exported: TableName
) -> None:
    found = duckdb.sql(
        "SELECT k, epoch_us(t), epoch_us(z), epoch_us(m), epoch_us(n), f::BLOB FROM"
        f" read_parquet('{pattern(trees, exported)}', hive_partitioning = false) ORDER BY k"
    ).fetchall()

    assert found == [
        (n, at * 10**6, at * 10**6, at * 10**6 + 250_000, at * 10**6 + 250, of)
        for n, (at, of) in enumerate(zip(SECONDS, BYTES, strict=True))
    ]


def test_duckdb_takes_times_of_directories_for_utc(trees: RealTree, exported: TableName) -> None:
    types = ", ".join(f"'{c}': TIMESTAMP" for c in "tzmn")
    found = duckdb.sql(
        f"SELECT k, t, z, m, n, f FROM read_parquet('{pattern(trees, exported)}', hive_types ="
        f" {{{types}, 'f': VARCHAR}}) ORDER BY k"
    ).fetchall()
    of_one = duckdb.sql(
        f"SELECT k FROM read_parquet('{pattern(trees, exported)}', hive_types = {{'t': TIMESTAMP}})"
        " WHERE t = TIMESTAMP '2024-01-31 10:00:00'"
    ).fetchall()

    assert found == [
        (n, *row)
        for n, row in enumerate(
            zip(moments(), moments(), moments(250_000), moments(250), READ_AS, strict=True)
        )
    ]
    assert of_one == [(0,)]


def test_pyarrow_reads_times_of_directories_where_the_whole_schema_is_given(
    trees: RealTree, exported: TableName
) -> None:
    """Without it a fixed text of a directory is no bytes of the file's type."""
    moment = pa.timestamp("us", "UTC")
    keys = pa.schema([*((c, moment) for c in "tuzmn"), ("f", pa.string())])
    found = ds.dataset(
        trees.root(exported),
        format="parquet",
        schema=pa.schema([*keys, pa.field("k", pa.int64())]),
        partitioning=ds.partitioning(keys, flavor="hive"),
    )
    day = dt.datetime(2024, 1, 31, 10, tzinfo=dt.UTC)

    rows = found.to_table(columns=["k", "t", "n", "f"]).sort_by("k").to_pylist()
    of_one = found.to_table(columns=["k"], filter=ds.field("t") == day).to_pylist()

    assert [
        (r["t"].replace(tzinfo=None), r["n"].replace(tzinfo=None), r["f"]) for r in rows
    ] == list(zip(moments(), moments(250), READ_AS, strict=True))
    assert of_one == [{"k": 0}]


def test_polars_reads_times_of_directories_by_their_types(
    trees: RealTree, exported: TableName
) -> None:
    program = (
        "import json, sys, polars as pl\n"
        "types = {**dict.fromkeys('tuzmn', pl.Datetime('us', 'UTC')), 'f': pl.String}\n"
        "found = pl.scan_parquet(sys.argv[1], hive_partitioning=True, hive_schema=types)\n"
        "found = found.select(pl.col('k').cast(int), pl.col('t').dt.epoch('us'), 'f')\n"
        "print(json.dumps(sorted(found.collect().rows())))"
    )
    ended = subprocess.run(
        [str(environment_python()), "-c", program, pattern(trees, exported)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert json.loads(ended.stdout) == [
        [n, at * 10**6, of] for n, (at, of) in enumerate(zip(SECONDS, READ_AS, strict=True))
    ]


@pytest.mark.spark
@pytest.mark.filterwarnings(*(mark.args[0] for mark in SPARK_MARKS if mark.name != "spark"))
def test_spark_takes_times_of_directories_for_those_of_its_zone(
    trees: RealTree, exported: TableName, spark_application: SparkApplication
) -> None:
    """In a session whose time zone is UTC they are right."""
    with spark_application.session() as spark:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        rows = spark.read.parquet(str(trees.root(exported)))
        found = rows.selectExpr(
            "int(k)", *(f"unix_micros(timestamp({c})) AS {c}" for c in "tzmn"), "string(f)"
        ).collect()
        of_one = rows.where("t = TIMESTAMP '2024-01-31 10:00:00'").selectExpr("int(k)").collect()

    assert sorted(tuple(row) for row in found) == [
        (n, at * 10**6, at * 10**6, at * 10**6 + 250_000, at * 10**6 + 250, of)
        for n, (at, of) in enumerate(zip(SECONDS, READ_AS, strict=True))
    ]
    assert [tuple(row) for row in of_one] == [(0,)]


def test_clickhouse_reads_the_columns_in_the_files(trees: RealTree, exported: TableName) -> None:
    program = (
        "import os, sys, chdb\n"
        "os.chdir(sys.argv[1])\n"
        'sql = "SELECT toUInt32(k), toUnixTimestamp64Micro(t), toUnixTimestamp64Micro(n), hex(f)"\n'
        "sql += \" FROM file('**/*.parquet', Parquet) ORDER BY k\"\n"
        "sql += ' SETTINGS use_hive_partitioning = 0'\n"
        "sql += ', output_format_json_quote_64bit_integers = 0'\n"
        "print(chdb.query(sql, 'JSONCompactEachRow'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(trees.root(exported))],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    found: list[Any] = [json.loads(line) for line in ended.stdout.split("\n") if line]
    assert found == [
        [n, at * 10**6, at * 10**6 + 250, of.hex().upper()]
        for n, (at, of) in enumerate(zip(SECONDS, BYTES, strict=True))
    ]


def test_named_directories_are_times_and_fixed_texts_too(trees: RealTree) -> None:
    table = trees.clickhouse.table(
        "ENGINE = MergeTree PARTITION BY (toStartOfHour(t), toFixedString(s, 3)) ORDER BY k",
        "t DateTime('Europe/Berlin'), s String, k UInt32",
    )
    trees.clickhouse.command(
        f"INSERT INTO {table.sql} VALUES (1706697000, 'eu', 1), (1706697001, unhex('ff'), 2)"
    )
    names = {"hour": "toStartOfHour(t)", "fixed": "toFixedString(s, 3)"}

    outcomes = trees.run(table, directories=names, conversions={"s": "binary"})

    assert {o.status for o in outcomes} == {Status.COMMITTED}, outcomes
    identity = trees.destination_of(table).identity()
    assert identity is not None
    found = {p.rsplit("/", 1)[0]: identity.values_of(p) for p in trees.on_disk(table)}
    hour = "hour=2024-01-31%2010%3A00%3A00"
    at = "2024-01-31 10:00:00+00:00"
    assert found == {
        f"{hour}/fixed=eu": {"hour": at, "fixed": b"eu\0".hex()},
        f"{hour}/fixed=ff0000": {"hour": at, "fixed": "ff0000"},
    }
    assert {o.status for o in trees.run(table)} == {Status.ALREADY_EXPORTED}

"""Tables whose partition spec was changed between exports, read by Spark, PyIceberg and DuckDB.

Main has files of both specs. After each export and statement the readers find the same rows, by the
same conditions, and open no file of another partition: the files that a condition has no need of
are not there while they read.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

import spark_ext
from catalog.clickhouse.embedded import EmbeddedConnection
from tests.properties.duckdb_reader import DuckDBReader
from tests.support.local_spark import SPARK_MARKS
from tests.support.session_lake import ALLOWED
from tests.support.spark_application import SparkApplication, session_below

pytestmark = SPARK_MARKS

SMALL: Final = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 100"
MINUTE: Final = 60_000_000
MONTHS: Final = ("2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01")
BEGIN: Final = [int(datetime.fromisoformat(f"{m}T00Z").timestamp()) * 1_000_000 for m in MONTHS]
"""The first instants of four months, in microseconds; all rows of one have one value of `p`."""
_NUMBERS = itertools.count()


@dataclass(frozen=True, order=True)
class Row:
    """A row of the table."""

    id: int
    p: int
    ts: int
    s: str
    v: int | None = None


def row(number: int, p: int, v: int | None = None) -> Row:
    """Return a row as it is inserted."""
    return Row(number, p, BEGIN[p] + number * MINUTE, f"s{number}", v)


def inserted(name: str, rows: list[Row]) -> str:
    """Return the statement that inserts rows."""
    values = ", ".join(
        f"({r.id}, {r.p}, {r.ts // 1_000_000}, '{r.s}'{'' if r.v is None else f', {r.v}'})"
        for r in rows
    )
    columns = "id, p, ts, s, v" if rows[0].v is not None else "id, p, ts, s"
    return f"INSERT INTO db.{name} ({columns}) VALUES {values}"


@dataclass(frozen=True)
class Case:
    """A partition key, how the table's owner changes the spec, and what exports are given then."""

    name: str
    key: str
    change: str
    spec: str

    def partition(self, p: int) -> str:
        """Return the id of the partition of rows with a value of `p`."""
        ids = {"p": str(p), "toYYYYMM(ts)": f"2024{p + 1:02}"}
        return "-".join(ids[member] for member in self.key.split(", "))


CASES: Final = (
    Case("bucket", "p", "REPLACE PARTITION FIELD p WITH bucket(4, p)", "bucket(4, p)"),
    Case("year", "toYYYYMM(ts)", "REPLACE PARTITION FIELD ts_month WITH years(ts)", "year(ts)"),
    Case("fewer", "p, toYYYYMM(ts)", "DROP PARTITION FIELD ts_month", "p"),
    Case("more", "p", "ADD PARTITION FIELD months(ts)", "p, month(ts)"),
    Case("none", "p", "DROP PARTITION FIELD p", "unpartitioned"),
)


@dataclass(frozen=True)
class Condition:
    """A condition of readers, with instants as `@number@`, and for which rows it holds.

    `prunes`: no reader opens a file of which it holds for no row, whatever the spec.
    """

    text: str
    holds: Callable[[Row], bool]
    prunes: bool = True

    def of(self, literal: Callable[[int], str]) -> str:
        """Return it for a reader."""
        return re.sub(r"@(\d)@", lambda found: literal(int(found[1])), self.text)


def with_value(p: int) -> Condition:
    return Condition(f"p = {p}", lambda r: r.p == p)


CONDITIONS: Final = (
    Condition("id >= 0", lambda _: True),
    *map(with_value, range(4)),
    Condition("p != 1", lambda r: r.p != 1, prunes=False),
    Condition("p = 1 AND id > 9", lambda r: r.p == 1 and r.id > 9),
    Condition("ts < @1@", lambda r: r.ts < BEGIN[1]),
    Condition("ts >= @1@ AND ts < @2@", lambda r: BEGIN[1] <= r.ts < BEGIN[2]),
    Condition("ts >= @2@", lambda r: r.ts >= BEGIN[2]),
    Condition("p = 0 AND ts >= @1@", lambda _: False),
)


def local_path(location: str) -> Path:
    return Path(urlparse(location).path)


@dataclass
class Lake:
    """A lake table, and the rows that it must have."""

    root: Path
    spark: SparkSession
    duckdb: DuckDBReader
    case: Case
    name: str
    rows: dict[int, Row] = field(default_factory=dict)

    def clickhouse(self, *statements: str) -> None:
        with EmbeddedConnection(self.root / "clickhouse") as connection:
            for sql in statements:
                connection.command(sql)

    def run(self, statement: str) -> list[str]:
        """Run a statement of mergeberg; return the status of each partition."""
        return [one.status for one in spark_ext.sql(self.spark, statement).collect()]

    def alter(self, command: str) -> list[str]:
        return self.run(f"ALTER TABLE lake.n.{self.name} {command}")

    def insert(self, *rows: Row) -> None:
        self.clickhouse(inserted(self.name, list(rows)))
        self.rows |= {one.id: one for one in rows}

    def table(self) -> StaticTable:
        """Return the table as another engine opens it."""
        with closing(sqlite3.connect(self.root / "lake.db")) as catalog:
            ((location,),) = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", [self.name]
            )
        return StaticTable.from_metadata(location)

    def files(self) -> list[DataFile]:
        return [task.file for task in self.table().scan().plan_files()]

    def specs(self, p: int) -> set[bool]:
        """Return of the files with a value of `p` whether they are of the current spec."""
        current = self.table().spec().spec_id
        return {f.spec_id == current for f in self.files() if self.of(f)[0].p == p}

    def of(self, file: DataFile) -> list[Row]:
        """Return the rows of a file."""
        ids = pq.read_table(local_path(file.file_path), columns=["id"]).column("id").to_pylist()
        return [self.rows[number] for number in ids]

    def check(self, *, prunes: bool = True) -> None:
        """Check that all readers find the same rows, and where files lie.

        With `prunes` files that a condition has no need of are not there while they read.
        """
        of_file = {f.file_path: self.of(f) for f in self.files()}
        for one in CONDITIONS:
            wanted = sorted(filter(one.holds, self.rows.values()))
            others = [path for path, held in of_file.items() if not any(map(one.holds, held))]
            with away(others if prunes and one.prunes else []):
                found = {
                    "Spark": self.by_spark(one),
                    "PyIceberg": self.by_pyiceberg(one),
                    "DuckDB": self.by_duckdb(one),
                }
            assert found == dict.fromkeys(found, wanted), one.text
        self.check_counts()
        self.check_partitions(of_file)

    def by_spark(self, condition: Condition, version: str = "") -> list[Row]:
        text = condition.of(lambda month: f"TIMESTAMP '{MONTHS[month]} 00:00:00 UTC'")
        columns = "id, p, unix_micros(ts) AS ts, s"
        held = self.spark.table(f"lake.n.{self.name}").columns
        selected = f"{columns}, v" if "v" in held else columns
        found = self.spark.sql(f"SELECT {selected} FROM lake.n.{self.name}{version} WHERE {text}")
        return sorted(Row(*one) for one in found.collect())

    def by_pyiceberg(self, condition: Condition) -> list[Row]:
        text = condition.of(lambda month: f"'{MONTHS[month]}T00:00:00+00:00'")
        return rows_in(self.table().scan(row_filter=text).to_arrow())

    def by_duckdb(self, condition: Condition) -> list[Row]:
        table = self.table()
        text = condition.of(lambda month: f"TIMESTAMPTZ '{MONTHS[month]} 00:00:00+00'")
        names = [one.name for one in table.schema().fields]
        return rows_in(self.duckdb.read(table, names, text))

    def check_counts(self) -> None:
        """Check what readers answer from manifests alone."""
        ids = sorted(self.rows)
        said = self.spark.sql(f"SELECT count(*), min(id), max(id) FROM lake.n.{self.name}").first()
        assert said is not None
        assert tuple(said) == (len(ids), ids[0], ids[-1])
        assert self.table().scan().count() == len(ids)
        snapshot = self.table().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["total-records"] == str(len(ids))
        assert snapshot.summary["total-data-files"] == str(len(self.files()))

    def check_partitions(self, of_file: dict[str, list[Row]]) -> None:
        """Check that each file has the partition of its rows, by its spec, in both libraries."""
        table = self.table()
        expected = {}
        for file in self.files():
            (values,) = {
                tuple(
                    f.transform.transform(table.schema().find_field(f.source_id).field_type)(
                        getattr(one, table.schema().find_field(f.source_id).name)
                    )
                    for f in table.specs()[file.spec_id].fields
                )
                for one in of_file[file.file_path]
            }
            names = [f.name for f in table.specs()[file.spec_id].fields]
            expected[file.file_path] = (file.spec_id, dict(zip(names, values, strict=True)))
            assert tuple(file.partition[i] for i in range(len(values))) == values
        told = self.spark.sql(f"SELECT * FROM lake.n.{self.name}.files").collect()
        shown = {one.file_path: (one.spec_id, known(one)) for one in told}
        assert shown == expected


def known(of: Any) -> dict[str, object]:
    """Return the values of the partition of a file that Spark shows."""
    values = of.partition.asDict() if "partition" in of else {}
    return {name: value for name, value in values.items() if value is not None}


def rows_in(found: pa.Table) -> list[Row]:
    """Return the rows of an answer."""
    columns = {one: found.column(one) for one in ("id", "p", "ts", "s")}
    columns["ts"] = columns["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    values = [one.to_pylist() for one in columns.values()]
    if "v" in found.column_names:
        values.append(found.column("v").to_pylist())
    return sorted(Row(*one) for one in zip(*values, strict=True))


@contextmanager
def away(locations: list[str]) -> Iterator[None]:
    """Let files not be there for a while."""
    paths = [local_path(one) for one in locations]
    for path in paths:
        path.rename(path.with_suffix(".away"))
    try:
        yield
    finally:
        for path in paths:
            path.with_suffix(".away").rename(path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("specs")
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        connection.command("CREATE DATABASE db")
    return root


@pytest.fixture(scope="module")
def spark(spark_application: SparkApplication, root: Path) -> Iterator[SparkSession]:
    with session_below(spark_application, root, f"file:{root}/warehouse") as session:
        yield session


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDBReader]:
    reader = DuckDBReader()
    yield reader
    reader.close()


@pytest.fixture(params=CASES, ids=[one.name for one in CASES])
def lake(
    request: pytest.FixtureRequest, root: Path, spark: SparkSession, duckdb: DuckDBReader
) -> Lake:
    """Have two files in each of three partitions, of the spec that an export chooses."""
    name = f"{request.param.name}_{next(_NUMBERS)}"
    lake = Lake(root, spark, duckdb, request.param, name)
    lake.clickhouse(
        f"CREATE TABLE db.{lake.name} (id Int64, p UInt8, ts DateTime('UTC'), s String)"
        f" ENGINE = MergeTree PARTITION BY ({lake.case.key}) ORDER BY id"
    )
    for numbers in (range(9), range(9, 18)):
        lake.insert(*(row(number, number % 3) for number in numbers))
    lake.run(
        f"ALTER TABLE ch.db.{lake.name} EXPORT PARTITION ALL TO TABLE lake.n.{lake.name} {SMALL}"
    )
    lake.check()
    assert len(lake.files()) >= 6
    return lake


def change_spec(lake: Lake) -> None:
    """Change the spec as the owner; then a new partition comes, and one that is there grows."""
    lake.spark.sql(f"ALTER TABLE lake.n.{lake.name} {lake.case.change}")
    lake.check()
    assert [lake.specs(p) for p in range(3)] == [{False}] * 3
    lake.clickhouse(f"ALTER TABLE db.{lake.name} ADD COLUMN v Nullable(Int32)")
    lake.insert(*(row(number, 3, number) for number in range(18, 24)))
    lake.insert(row(24, 0, 24))
    for p, force in ((3, False), (0, True)):
        (found,) = spark_ext.export_partition(
            lake.spark,
            f"lake.n.{lake.name}",
            f"ch.db.{lake.name}",
            partition_id=lake.case.partition(p),
            partition_spec=lake.case.spec,
            evolve_schema=True,
            force=force,
        )
        assert found.status == ("replaced" if force else "committed")
    assert [lake.specs(p) for p in range(4)] == [{True}, {False}, {False}, {True}]
    lake.check()


def test_all_readers_find_the_same_rows_in_files_of_both_specs(lake: Lake) -> None:
    """Harm prevented: a reader that prunes by one spec hides the rows of the other."""
    change_spec(lake)
    one, two = (f"PARTITION ID '{lake.case.partition(p)}'" for p in (1, 2))

    assert lake.alter(f"UPDATE s = 'u', v = 7 IN {one} WHERE id = 4") == ["changed"]
    lake.rows[4] = replace(lake.rows[4], s="u", v=7)
    assert lake.specs(1) == {True, False}
    lake.check()

    assert lake.alter(f"DETACH {one}, DETACH {two}") == ["detached", "detached"]
    taken = {number: r for number, r in lake.rows.items() if r.p in (1, 2)}
    lake.rows = {number: r for number, r in lake.rows.items() if number not in taken}
    lake.check()
    detached = lake.by_spark(CONDITIONS[0], " VERSION AS OF 'detached'")
    assert detached == sorted(taken.values())
    assert lake.alter(f"ATTACH {one}, ATTACH {two}") == ["attached", "attached"]
    lake.rows |= taken
    assert (lake.specs(1), lake.specs(2)) == ({True, False}, {False})
    lake.check()

    assert lake.run(f"OPTIMIZE TABLE lake.n.{lake.name} {one}") == ["optimized"]
    assert (lake.specs(1), lake.specs(2)) == ({True}, {False})
    lake.check()
    assert lake.alter(f"DELETE IN {two} WHERE id = 5") == ["changed"]
    del lake.rows[5]
    # Rows that stay as they were stay in the spec of their file.
    assert lake.specs(2) == {False}
    lake.check()


def test_statements_of_spark_and_of_mergeberg_take_turns_on_both_specs(lake: Lake) -> None:
    """Harm prevented: what one of them writes in a spec the other puts elsewhere."""
    change_spec(lake)
    two = f"PARTITION ID '{lake.case.partition(2)}'"

    lake.spark.sql(f"CALL lake.system.rewrite_manifests('n.{lake.name}')")
    lake.check()
    lake.spark.sql(f"DELETE FROM lake.n.{lake.name} WHERE p = 1")
    lake.rows = {number: r for number, r in lake.rows.items() if r.p != 1}
    lake.check()
    lake.spark.sql(f"DELETE FROM lake.n.{lake.name} WHERE id = 8")
    del lake.rows[8]
    lake.check()

    assert lake.alter(f"UPDATE s = 'u' IN {two} WHERE id = 14") == ["changed"]
    lake.rows[14] = replace(lake.rows[14], s="u")
    lake.check()
    assert lake.alter(f"DETACH {two}, ATTACH {two}") == ["detached", "attached"]
    lake.check()
    lake.spark.sql(
        f"CALL lake.system.rewrite_data_files(table => 'n.{lake.name}',"
        " options => map('rewrite-all', 'true'))"
    )
    # Rows of several partitions lie in one file where the spec allows that.
    lake.check(prunes=False)
    assert all(f.spec_id == lake.table().spec().spec_id for f in lake.files())

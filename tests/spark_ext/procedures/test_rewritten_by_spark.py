"""Iceberg's own rewrite of data files in Spark, and what exports and comparisons say afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

import spark_ext
from catalog.clickhouse.embedded import EmbeddedConnection
from catalog.iceberg.catalogs import open_catalog
from tableformat.errors import RefusedError
from tests.support.local_spark import SPARK_MARKS
from tests.support.session_lake import ALLOWED
from tests.support.spark_application import SparkApplication, session_below

pytestmark = SPARK_MARKS

SMALL: Final = f"{ALLOWED}, export_merge_tree_part_max_bytes_per_file = 100"
_NUMBERS = itertools.count()


@dataclass
class Lake:
    """A lake table with three partitions of ten rows, each in several files."""

    root: Path
    spark: SparkSession
    name: str

    def clickhouse(self, *statements: str) -> None:
        with EmbeddedConnection(self.root / "clickhouse") as connection:
            for sql in statements:
                connection.command(sql)

    def export(self) -> dict[str, str]:
        """Export each partition; return what became of each."""
        return {one: self.export_one(one) for one in ("0", "1", "2")}

    def export_one(self, partition_id: str) -> str:
        statement = (
            f"ALTER TABLE ch.db.{self.name} EXPORT PARTITION ID '{partition_id}'"
            f" TO TABLE lake.n.{self.name} {SMALL}, export_merge_tree_partition_manifest_ttl = 1"
        )
        try:
            (found,) = spark_ext.sql(self.spark, statement).collect()
        except RefusedError:
            return "refused"
        return str(found.status)

    def verdicts(self) -> dict[str, str]:
        found = spark_ext.verify(
            self.spark, f"lake.n.{self.name}", f"ch.db.{self.name}", all_partitions=True
        )
        return {one.partition_id: one.status for one in found}

    def rewrite(self, more: str = "") -> None:
        """Rewrite all data files, as a schedule of the table's owner does."""
        (found,) = self.spark.sql(
            f"CALL lake.system.rewrite_data_files(table => 'n.{self.name}'{more},"
            " options => map('rewrite-all', 'true'))"
        ).collect()
        assert found.rewritten_data_files_count > 0

    def rows(self) -> int:
        return self.spark.table(f"lake.n.{self.name}").count()

    def read(self) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
        """Return the rows that Spark and PyIceberg read, each sorted."""
        table = open_catalog("lake", warehouse=self.root).catalog.load_table(f"n.{self.name}")
        found = table.scan().to_arrow().to_pylist()
        by_spark = self.spark.table(f"lake.n.{self.name}").collect()
        return sorted(map(tuple, by_spark)), sorted(tuple(row.values()) for row in found)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rewritten")
    with EmbeddedConnection(root / "clickhouse", create=True) as connection:
        connection.command("CREATE DATABASE db")
    return root


@pytest.fixture(scope="module")
def spark(spark_application: SparkApplication, root: Path) -> Iterator[SparkSession]:
    with session_below(spark_application, root, f"file:{root}/warehouse") as session:
        yield session


@pytest.fixture
def lake(root: Path, spark: SparkSession) -> Lake:
    lake = Lake(root, spark, f"t{next(_NUMBERS)}")
    lake.clickhouse(
        f"CREATE TABLE db.{lake.name} (p UInt8, id Int64, s String)"
        " ENGINE = MergeTree PARTITION BY p ORDER BY id",
        f"INSERT INTO db.{lake.name} SELECT number % 3, number, toString(number) FROM numbers(15)",
        f"INSERT INTO db.{lake.name} SELECT number % 3, 15 + number, '' FROM numbers(15)",
    )
    assert set(lake.export().values()) == {"committed"}
    return lake


def of_all(status: str) -> dict[str, str]:
    return dict.fromkeys(("0", "1", "2"), status)


@pytest.mark.parametrize(
    "more",
    [
        "",
        ", strategy => 'sort', sort_order => 's DESC'",
        ", strategy => 'sort', sort_order => 'zorder(id, s)'",
    ],
    ids=["binpack", "sort", "zorder"],
)
def test_exports_stay_in_force_and_their_rows_are_compared(lake: Lake, more: str) -> None:
    """Harm prevented: the guarantees end when a platform compacts the table."""
    if more:
        # Iceberg sorts in another order only if the table once had none.
        lake.spark.sql(f"ALTER TABLE lake.n.{lake.name} WRITE UNORDERED")
    lake.rewrite(more)

    assert lake.export() == of_all("unchanged")
    assert lake.verdicts() == of_all("equal")
    lake.rewrite(more)
    assert lake.export() == of_all("unchanged")
    assert lake.verdicts() == of_all("equal")
    rows = sorted((n % 3, n, str(n) if n < 15 else "") for n in range(30))
    assert lake.read() == (rows, rows)


def test_other_content_replaces_the_rewritten_files_of_its_partition(lake: Lake) -> None:
    lake.rewrite()
    lake.clickhouse(f"INSERT INTO db.{lake.name} VALUES (1, 100, 'late')")

    assert lake.export() == of_all("unchanged") | {"1": "replaced"}
    assert lake.rows() == 31
    assert lake.verdicts() == of_all("equal")


def test_rows_that_were_deleted_before_or_after_are_changed_by_others(lake: Lake) -> None:
    """Harm prevented: a partition without a row is called exported and unchanged."""
    name = f"lake.n.{lake.name}"
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    lake.spark.sql(f"DELETE FROM {name} WHERE id = 3")
    lake.rewrite()
    lake.spark.sql(f"DELETE FROM {name} WHERE id = 4")

    assert lake.export() == {"0": "refused", "1": "refused", "2": "unchanged"}
    wrong = "partition 0: not_comparable.* partition 1: not_comparable"
    with pytest.raises(RefusedError, match=f"(?s){wrong}") as refused:
        lake.verdicts()
    assert "partition 2" not in str(refused.value)


def test_rewritten_delete_files_change_nothing_of_other_partitions(lake: Lake) -> None:
    """Harm prevented: a deleted row counts as exported once its delete file was rewritten."""
    name = f"lake.n.{lake.name}"
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    # In a small file all rows are deleted with it, without a delete file.
    lake.rewrite()
    lake.spark.sql(f"DELETE FROM {name} WHERE id IN (3, 18)")
    before = lake.read()
    (found,) = lake.spark.sql(
        f"CALL lake.system.rewrite_position_delete_files(table => 'n.{lake.name}',"
        " options => map('rewrite-all', 'true'))"
    ).collect()

    assert found.rewritten_delete_files_count > 0
    assert lake.export() == of_all("unchanged") | {"0": "refused"}
    assert lake.read() == before
    assert len(before[0]) == 28


def test_metadata_that_another_engine_compresses_is_read_and_goes_on(lake: Lake) -> None:
    """Harm prevented: an owner sets a property of Iceberg, and no export is possible any more."""
    name = f"lake.n.{lake.name}"
    gzip = "'write.metadata.compression-codec' = 'gzip'"
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({gzip})")
    lake.rewrite()
    table = open_catalog("lake", warehouse=lake.root).catalog.load_table(f"n.{lake.name}")
    assert table.metadata_location.endswith(".gz.metadata.json")
    lake.clickhouse(f"INSERT INTO db.{lake.name} VALUES (1, 100, 'late')")

    assert lake.export() == of_all("unchanged") | {"1": "replaced"}
    assert lake.verdicts() == of_all("equal")
    lake.rewrite()
    assert lake.export() == of_all("unchanged")
    by_spark, by_pyiceberg = lake.read()
    assert by_spark == by_pyiceberg
    assert len(by_spark) == 31


def test_statements_work_on_rewritten_files(lake: Lake) -> None:
    """Harm prevented: after a compaction an export is refused because of a statement before it."""
    name = f"lake.n.{lake.name}"
    lake.rewrite()
    statements = {
        f"ALTER TABLE {name} REPLACE PARTITION ID '0' FROM ch.db.{lake.name}": "unchanged",
        f"ALTER TABLE {name} DETACH PARTITION ID '1'": "detached",
        f"ALTER TABLE {name} ATTACH PARTITION ID '1'": "attached",
        f"ALTER TABLE {name} UPDATE s = 'new' IN PARTITION ID '2' WHERE id = 2": "changed",
    }

    for statement, status in statements.items():
        (found,) = spark_ext.sql(lake.spark, statement).collect()
        assert found.status == status

    assert lake.export() == of_all("unchanged")
    assert lake.rows() == 30
    with pytest.raises(RefusedError, match="partition 2: not_comparable: UPDATE s") as refused:
        lake.verdicts()
    assert "partition 0" not in str(refused.value)
    assert "partition 1" not in str(refused.value)

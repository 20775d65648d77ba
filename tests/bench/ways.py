"""The ways of rows from ClickHouse into a lake that `make bench` compares, one process for each.

python -m tests.bench.ways WAY CLICKHOUSE DATASET DIRECTORY

For every line of its input the process transfers the whole table into a new directory and prints
what that took, or why it cannot. What is counted as written is neither the writer's nor the
catalog's word: the newest metadata file says which data files there are, and their footers say how
many rows they have. The peak is the sum of the peaks of the process and of all that it started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final

import chdb
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

from spark_ext.actions.export_ports import SparkWhenNeeded
from spark_ext.engine.java import find_java
from spark_ext.engine.session import SparkSettings
from tableformat.names import quote_string
from tableformat.parquet.writer import FileFormat
from tests.bench.committed import committed_files, rows_of
from tests.bench.data import DATASETS, Dataset
from tests.bench.figures import Figures, cannot, measured
from tests.bench.whole_export import export
from tests.support.iceberg_runtime import check_runtime, runtime_settings
from tests.support.processes import family_peak

__all__ = ["WAYS", "Way"]

Way = Callable[[str, Dataset, Path], None]
"""Transfers a table of a ClickHouse directory into a new directory."""

_MASTER: Final = "local[2]"
_PLAIN: Final = "plain"
"""The directory of files that belong to no table."""
# What a user of Spark gives it; the default of 1 GB is for trying it out.
_SPARK_MEMORY: Final = "4g"
_FORMAT: Final = FileFormat()
_WRITING: Final = (
    "max_threads = 2, max_insert_threads = 1, output_format_parquet_write_bloom_filter = 0,"
    f" output_format_parquet_compression_method = {quote_string(_FORMAT.codec)},"
    f" output_format_compression_level = {_FORMAT.level}"
)
# The least that a process of ClickHouse alone can be.
_QUERY: Final = "import sys, chdb; c = chdb.connect(sys.argv[1]); c.query(sys.argv[2]); c.close()"
_LAKE_TYPES: Final = {
    "UInt8": "Int32",
    "UInt16": "Int32",
    "UInt32": "Int64",
    "UInt64": "Decimal(20, 0)",
    "Date": "Date32",
    "DateTime": "DateTime64(6, 'UTC')",
    "LowCardinality(String)": "String",
}
"""What users cast to, because Iceberg has no such type: the types of an export."""
# ClickHouse writes no Iceberg table with a boolean.
_CLICKHOUSE_LAKE_TYPES: Final = _LAKE_TYPES | {"Bool": "Int32"}


def clickhouse_parquet(clickhouse: str, dataset: Dataset, directory: Path) -> None:
    """Write one Parquet file with ClickHouse: no table, no commit, no order."""
    path = directory / _PLAIN / "rows.parquet"
    path.parent.mkdir()
    _query(clickhouse, _parquet_insert(dataset, path))


def clickhouse_iceberg(clickhouse: str, dataset: Dataset, directory: Path) -> None:
    """Insert into a table of ClickHouse's engine IcebergLocal."""
    columns = ", ".join(
        f"{name} {_CLICKHOUSE_LAKE_TYPES.get(kind, kind)}" for name, kind, _ in dataset.columns
    )
    path = quote_string(str(directory / "table"))
    # ClickHouse writes tables below its working directory only.
    os.chdir("/")
    _query(
        clickhouse,
        f"CREATE TABLE bench.lake ({columns}) ENGINE = IcebergLocal({path}) PARTITION BY p",
        f"INSERT INTO bench.lake SELECT {_cast(dataset, _CLICKHOUSE_LAKE_TYPES)} FROM"
        f" {dataset.table} SETTINGS allow_insert_into_iceberg = 1, {_WRITING}",
        "DROP TABLE bench.lake",
    )


def pyiceberg_append(clickhouse: str, dataset: Dataset, directory: Path) -> None:
    """Read an Arrow table from ClickHouse, and append it with PyIceberg."""
    connection = chdb.connect(clickhouse)  # type: ignore[no-untyped-call]
    select = f"SELECT {_cast(dataset, _LAKE_TYPES)} FROM {dataset.table} SETTINGS max_threads = 2"
    rows = connection.query(select, "ArrowTable")
    connection.close()
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}"
    )
    catalog.create_namespace("bench")
    table = catalog.create_table(("bench", dataset.name), rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("p")
    table.append(rows)


def spark_parquet(clickhouse: str, dataset: Dataset, directory: Path) -> None:
    """Write Parquet files with Spark from the Parquet file that ClickHouse wrote."""
    frame = _in_spark(clickhouse, dataset, directory)
    frame.write.option("compression", _FORMAT.codec).partitionBy("p").parquet(
        str(directory / _PLAIN)
    )


def spark_iceberg(clickhouse: str, dataset: Dataset, directory: Path) -> None:
    """Append to an Iceberg table with Spark from the Parquet file that ClickHouse wrote."""
    frame = _in_spark(clickhouse, dataset, directory)
    # The catalog's warehouse is the directory's parent.
    name = f"lake.{directory.name}.{dataset.name}"
    columns = frame.schema.toDDL()
    frame.sparkSession.sql(f"CREATE TABLE {name} ({columns}) USING iceberg PARTITIONED BY (p)")
    frame.writeTo(name).append()


def mergeberg(spark: SparkWhenNeeded, clickhouse: str, dataset: Dataset, directory: Path) -> None:
    """Export every partition, each with a commit of its own."""
    export(f"chdb:{clickhouse}", dataset.table, spark, directory)


WAYS: Final[dict[str, Way]] = {
    "mergeberg": partial(mergeberg, SparkWhenNeeded(SparkSettings(_MASTER))),
    "clickhouse-parquet": clickhouse_parquet,
    "clickhouse-iceberg": clickhouse_iceberg,
    "pyiceberg-append": pyiceberg_append,
    "spark-parquet": spark_parquet,
    "spark-iceberg": spark_iceberg,
}


def main(way: str, clickhouse: str, name: str, directory: Path) -> None:
    """Transfer once for every line of the input, and print what that took."""
    (dataset,) = (d for d in DATASETS if d.name == name)
    for number, _ in enumerate(sys.stdin):
        into = directory / f"n{number}"
        into.mkdir()
        try:
            wall, cpu = measured(partial(WAYS[way], clickhouse, dataset, into))
        except Exception as error:  # noqa: BLE001  the reason why it cannot be compared here
            line = cannot(error)
        else:
            files = committed_files(into)
            if files is None:
                files = [*(into / _PLAIN).rglob("*.parquet")]
            size = sum(path.stat().st_size for path in files)
            line = Figures(wall, cpu, family_peak(), size, rows_of(files)).to_json()
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        shutil.rmtree(into)
    # Past the ending of the threads of ClickHouse and Spark.
    os._exit(0)


def _cast(dataset: Dataset, types: dict[str, str]) -> str:
    return ", ".join(
        f"CAST({name}, {quote_string(types[kind])}) AS {name}" if kind in types else name
        for name, kind, _ in dataset.columns
    )


def _query(clickhouse: str, *statements: str) -> None:
    connection = chdb.connect(clickhouse)  # type: ignore[no-untyped-call]
    for statement in statements:
        connection.query(statement)
    connection.close()


def _in_spark(clickhouse: str, dataset: Dataset, directory: Path) -> DataFrame:
    """Let ClickHouse write a Parquet file in a process of its own, and open it with Spark."""
    path = directory / "read" / "rows.parquet"
    path.parent.mkdir()
    insert = _parquet_insert(dataset, path)
    subprocess.run([sys.executable, "-c", _QUERY, clickhouse, insert], check=True)
    return _spark(directory.parent).read.parquet(str(path))


def _parquet_insert(dataset: Dataset, path: Path) -> str:
    return (
        f"INSERT INTO FUNCTION file({quote_string(str(path))}, 'Parquet') SELECT * FROM"
        f" {dataset.table} SETTINGS {_WRITING}"
    )


@cache
def _spark(warehouse: Path) -> SparkSession:
    """Start Spark as a user does, with both compilers of Java, and with Iceberg."""
    os.environ["JAVA_HOME"] = str(find_java(os.environ).home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    check_runtime()
    settings: dict[str, bool | float | int | str | None] = {
        **runtime_settings(_SPARK_MEMORY),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
    }
    return SparkSession.builder.master(_MASTER).config(map=settings).getOrCreate()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]).absolute())

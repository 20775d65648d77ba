"""Every value arrives: ClickHouse -> Arrow -> Parquet -> two readers, and PyIceberg on a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import sanitize_column_names
from pyiceberg.typedef import Record

from tableformat.export.slice_sql import select_list
from tableformat.iceberg.arrow_schema import file_schema, to_file
from tableformat.iceberg.properties import TABLE_SETTINGS
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.mergetree.types import Array, Simple
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tests.strategies.conversions import converted_samples
from tests.strategies.mapping import Sample, column_of, samples, table_of
from tests.support.embedded_clickhouse import EmbeddedClickHouse

EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[EmbeddedClickHouse]:
    with EmbeddedClickHouse() as started:
        started.run(
            "SET allow_suspicious_low_cardinality_types = 1", "SET enable_time_time64_type = 1"
        )
        yield started


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    directory = tmp_path_factory.mktemp("lake")
    catalog = SqlCatalog("lake", uri="sqlite://", warehouse=directory.as_uri())
    catalog.create_namespace("n")
    yield catalog
    catalog.close()


def selected(
    clickhouse: EmbeddedClickHouse, columns: list[Sample]
) -> tuple[MappedColumns, pa.Table]:
    """Select the samples as an export selects a table's columns."""
    table = table_of(*(column_of(f"c{i}", s.type) for i, s in enumerate(columns)))
    rows = range(len(columns[0].sql))
    # One array per column: a UNION of rows would find common types of its own.
    inner = ", ".join(
        f"arrayElement([{', '.join(s.sql)}], number + 1) AS c{i}" for i, s in enumerate(columns)
    )
    conversions = {f"c{i}": s.conversion for i, s in enumerate(columns) if s.conversion}
    wire = select_list(table.columns, conversions)
    query = f"SELECT {wire} FROM (SELECT {inner} FROM numbers({len(rows)})) AS __src"
    settings = f" SETTINGS {WIRE_SETTINGS}"
    return map_columns(table, conversions), clickhouse.arrow(query + settings)


def seen(value: Any) -> Any:
    """Convert a reader's result to the form of `Sample.seen`."""
    match value:
        case datetime():
            return _micros(value)
        case dict():
            return {k: seen(v) for k, v in value.items()}
        case list():
            return [seen(v) for v in value]
        case tuple():
            return tuple(seen(v) for v in value)
        case float() if math.isnan(value):
            return "nan"
        case float():
            return repr(value)
        case _:
            return value


def _micros(value: datetime) -> int:
    delta = value - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def escaped(value: Any) -> Any:
    """Restore the names of struct members, which files escape for Avro."""
    names = {"b_x20b": "b b", "x_x2Ey": "x.y"}
    match value:
        case dict():
            return {names.get(k, k): escaped(v) for k, v in value.items()}
        case list():
            return [escaped(v) for v in value]
        case tuple():
            return tuple(escaped(v) for v in value)
        case _:
            return value


COLUMNS = st.lists(samples(), min_size=1, max_size=6)
PROPERTY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@PROPERTY
@given(columns=COLUMNS)
def test_every_value_of_every_type_is_the_same_in_the_file(
    clickhouse: EmbeddedClickHouse, tmp_path_factory: pytest.TempPathFactory, columns: list[Sample]
) -> None:
    """A wrong cast, a lost NULL or a wrapped number would be a wrong value in the lake."""
    mapped, given_by_clickhouse = selected(clickhouse, columns)
    # A name of its own each time: DuckDB remembers the footers of files that it has read.
    path = tmp_path_factory.mktemp("written") / "file.parquet"

    table = to_file(given_by_clickhouse, mapped.schema)
    table.validate(full=True)
    pq.write_table(table, path)

    assert table.schema.equals(file_schema(mapped.schema), check_metadata=True)
    by_pyarrow = pq.read_table(path)
    by_duckdb = duckdb.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()
    for i, sample in enumerate(columns):
        wanted = [seen(v) for v in sample.seen]
        assert [escaped(seen(v)) for v in by_pyarrow.column(i).to_pylist()] == wanted
        assert [escaped(seen(_plain(v))) for v in by_duckdb.column(i).to_pylist()] == [
            seen(_plain(v)) for v in sample.seen
        ]


@PROPERTY
@given(columns=st.lists(converted_samples(), min_size=1, max_size=4))
def test_every_converted_value_is_the_same_in_the_file(
    clickhouse: EmbeddedClickHouse, columns: list[Sample]
) -> None:
    """A conversion applies at any depth, loses no NULL and skips other types."""
    mapped, given_by_clickhouse = selected(clickhouse, columns)

    table = to_file(given_by_clickhouse, mapped.schema)
    table.validate(full=True)

    for i, sample in enumerate(columns):
        wanted = [seen(v) for v in sample.seen]
        assert [escaped(seen(v)) for v in _rows(table.column(i))] == wanted


def _rows(column: pa.ChunkedArray) -> list[Any]:
    """Return the values with instants as microseconds, which may exceed Python's calendar."""
    return list(column.cast(_counted(column.type)).to_pylist())


def _counted(of: pa.DataType) -> pa.DataType:
    match of:
        case pa.TimestampType():
            return pa.int64()
        case pa.ListType():
            return pa.list_(of.value_field.with_type(_counted(of.value_type)))
        case pa.MapType():
            key = of.key_field.with_type(_counted(of.key_type))
            return pa.map_(key, of.item_field.with_type(_counted(of.item_type)))
        case pa.StructType():
            return pa.struct([f.with_type(_counted(f.type)) for f in of.fields])
        case _:
            return of


def _plain(value: Any) -> Any:
    """Normalise the values that a plain Parquet reader returns differently: UUIDs as text."""
    match value:
        case UUID():
            return str(value)
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case list():
            return [_plain(v) for v in value]
        case tuple():
            return tuple(_plain(v) for v in value)
        case _:
            return value


@settings(parent=PROPERTY, max_examples=20)
@given(columns=COLUMNS)
def test_every_value_is_the_same_when_pyiceberg_reads_the_table(
    clickhouse: EmbeddedClickHouse, lake: SqlCatalog, columns: list[Sample]
) -> None:
    """The files are found by field id and their escaped names do not show."""
    mapped, given_by_clickhouse = selected(clickhouse, columns)
    if lake.table_exists("n.t"):
        lake.drop_table("n.t")
    table = lake.create_table("n.t", mapped.schema, properties=dict(TABLE_SETTINGS))
    data = to_file(given_by_clickhouse, table.schema())
    path = Path(table.location().removeprefix("file://")) / "data" / "file.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(path, data.schema, metadata_collector=footers) as writer:
        writer.write_table(data)
    written = sanitize_column_names(table.schema())
    statistics = data_file_statistics_from_parquet_metadata(
        footers[0],
        stats_columns=compute_statistics_plan(written, table.metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(written),
    )
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=path.stat().st_size,
        **statistics.to_serialized_dict(),
    )
    file.spec_id = 0
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)

    read = table.scan().to_arrow()

    for i, sample in enumerate(columns):
        assert [seen(v) for v in read.column(f"c{i}").to_pylist()] == [seen(v) for v in sample.seen]


def test_bytes_that_are_no_text_are_found_when_the_file_is_written(
    clickhouse: EmbeddedClickHouse,
) -> None:
    """ClickHouse hands any bytes over as a string; a reader of the lake would stumble."""
    column = Sample(Array(Simple("String")), ("[unhex('ff')]",), (None,))
    mapped, data = selected(clickhouse, [column])

    with pytest.raises(pa.ArrowInvalid, match="Invalid UTF8"):
        to_file(data, mapped.schema).validate(full=True)

"""Rows of files in the order of their numbers, and how many of them are held."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from catalog.clickhouse.rows.files import FILE_NUMBER, ROW_NUMBER
from catalog.rewriting.numbered_rows import NumberedRows, in_order
from tableformat.iceberg.arrow_schema import file_schema
from tableformat.parquet.writer import FileFormat

SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=True), NestedField(2, "s", StringType(), required=True)
)
LONG = "x" * 1_000_000
ROWS = 50


def written(path: Path, first: int) -> pq.ParquetFile:
    """Write a file whose long values come often, as our files are: few rows in a row group."""
    schema = file_schema(SCHEMA)
    with pq.ParquetWriter(path, schema) as writer:
        for begin in range(first, first + ROWS, 10):
            numbers = pa.array(range(begin, begin + 10), pa.int64())
            writer.write_table(pa.table([numbers, [LONG] * 10], schema=schema))
    return pq.ParquetFile(path)


@pytest.mark.parametrize("ascending", [True, False])
def test_no_more_rows_are_held_than_a_row_group_may_have(
    tmp_path: Path, *, ascending: bool
) -> None:
    """Harm prevented: documents of 40 KB that nothing can merge, because 65,536 are held."""
    opened = [NumberedRows(written(tmp_path / f"{i}", ROWS * i), SCHEMA) for i in range(2)]
    order = range(ROWS) if ascending else range(ROWS - 1, -1, -1)
    numbers = pa.table(
        {
            FILE_NUMBER: pa.array([f for _ in order for f in (0, 1)], pa.uint64()),
            ROW_NUMBER: pa.array([r for r in order for _ in (0, 1)], pa.uint64()),
        }
    )

    batches = list(in_order(opened, numbers))

    found = [n for batch in batches for n in batch.column("n").to_pylist()]
    assert found == [n for r in order for n in (r, ROWS + r)]
    assert max(batch.nbytes for batch in batches) <= FileFormat().row_group_bytes

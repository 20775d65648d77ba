"""Rows of a data file under the table's columns: a column that is not the file's is not taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tableformat.errors import UnsupportedError
from tableformat.iceberg.arrow_schema import columns_of_file, file_schema


def pair(second: int) -> StructType:
    """Return a struct whose second member has this field id."""
    return StructType(
        NestedField(20, "a", IntegerType(), required=True),
        NestedField(second, "b", IntegerType(), required=False),
    )


SHAPES: dict[str, tuple[Any, Any]] = {
    "a struct": (pair, {"a": 1, "b": 2}),
    "a list": (lambda i: ListType(10, pair(i), element_required=True), [{"a": 1, "b": 2}]),
    "a map": (
        lambda i: MapType(10, StringType(), 11, pair(i), value_required=True),
        [("k", {"a": 1, "b": 2})],
    ),
}


def schema_of(of: IcebergType) -> Schema:
    return Schema(NestedField(1, "c", of, required=False))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_member_that_was_dropped_is_not_that_of_its_name_which_came_later(
    tmp_path: Path, shape: str
) -> None:
    """Harm prevented: dropped values return when the file is rewritten."""
    make, value = SHAPES[shape]
    written = file_schema(schema_of(make(21)))
    pq.write_table(pa.table([pa.array([value], written.field(0).type)], written), tmp_path / "f")
    there = pq.read_table(tmp_path / "f")

    same = columns_of_file(there, schema_of(make(21)))

    assert same.column("c").to_pylist() == [value]
    with pytest.raises(UnsupportedError, match=r"the column c: .*members of other field ids"):
        columns_of_file(there, schema_of(make(22)))

"""Rows of a data file under the table's columns: a column that is not the file's is not taken."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tableformat.errors import UnsupportedError
from tableformat.iceberg.arrow_schema import columns_of_file, file_schema, to_file


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
WITHOUT: dict[str, Any] = {
    "a struct": {"a": 1, "b": None},
    "a list": [{"a": 1, "b": None}],
    "a map": [("k", {"a": 1, "b": None})],
}


def schema_of(of: IcebergType) -> Schema:
    return Schema(NestedField(1, "c", of, required=False))


def in_file(path: Path, of: IcebergType, values: list[Any]) -> pa.Table:
    """Return values of a column as a file of a table has them."""
    written = file_schema(schema_of(of))
    pq.write_table(pa.table([pa.array(values, written.field(0).type)], written), path / "f")
    return pq.read_table(path / "f")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_member_that_was_dropped_is_not_that_of_its_name_which_came_later(
    tmp_path: Path, shape: str
) -> None:
    """Harm prevented: dropped values return when the file is rewritten."""
    make, value = SHAPES[shape]
    there = in_file(tmp_path, make(21), [value])

    same = columns_of_file(there, schema_of(make(21)))

    assert same.column("c").to_pylist() == [value]
    now = columns_of_file(there, schema_of(make(22)))
    assert now.column("c").to_pylist() == [WITHOUT[shape]]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_element_of_another_field_id_is_refused(tmp_path: Path, shape: str) -> None:
    """Harm prevented: the values of another column are taken for those of this one."""
    make, value = SHAPES[shape]
    there = in_file(tmp_path, make(21), [value])
    of: IcebergType
    match make(21):
        case ListType(element_type=inner):
            of = ListType(12, inner, element_required=True)
        case MapType(value_type=inner):
            of = MapType(10, StringType(), 12, inner, value_required=True)
        case _:
            plain = there.schema.field(0)
            bare = pa.struct([pa.field(f.name, f.type) for f in plain.type.fields])
            there = pa.table([there.column(0).cast(bare)], pa.schema([plain.with_type(bare)]))
            of = make(21)

    with pytest.raises(UnsupportedError, match=r"column c: .*members (of|without)"):
        columns_of_file(there, schema_of(of))


INNER = StructType(
    NestedField(30, "x", IntegerType(), required=True),
    NestedField(31, "f", FloatType(), required=False),
    NestedField(32, "d", DecimalType(5, 2), required=False),
)
WIDER = StructType(
    NestedField(31, "f", DoubleType(), required=False),
    NestedField(30, "renamed", LongType(), required=False),
    NestedField(32, "d", DecimalType(12, 2), required=False),
    NestedField(33, "later", StringType(), required=False),
)
ONE: Any = {"x": 2**31 - 1, "f": 0.1, "d": Decimal("-1.25")}
AS_FLOAT = 0.10000000149011612
WIDE: Any = {"f": AS_FLOAT, "renamed": 2**31 - 1, "d": Decimal("-1.25"), "later": None}
NOTHING: Any = {"x": -1, "f": None, "d": None}
WIDE_NOTHING: Any = {"f": None, "renamed": -1, "d": None, "later": None}


def nested(of: IcebergType, numbers: IcebergType) -> dict[str, tuple[IcebergType, ...]]:
    return {
        "a struct": (of,),
        "a list of structs": (ListType(10, of, element_required=True),),
        "a map of structs": (MapType(10, StringType(), 11, of, value_required=True),),
        "a list of lists": (
            ListType(10, ListType(11, numbers, element_required=False), element_required=False),
        ),
        "a map of lists": (
            MapType(
                10,
                StringType(),
                11,
                ListType(12, numbers, element_required=False),
                value_required=True,
            ),
        ),
    }


VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "a struct": ([ONE, None, NOTHING], [WIDE, None, WIDE_NOTHING]),
    "a list of structs": ([[ONE, NOTHING], None, []], [[WIDE, WIDE_NOTHING], None, []]),
    "a map of structs": ([[("k", ONE)], None, []], [[("k", WIDE)], None, []]),
    "a list of lists": ([[[1, None], None], None, []],) * 2,
    "a map of lists": ([[("k", [1, None])], None, [("a", []), ("b", [2])]],) * 2,
}


@pytest.mark.parametrize("shape", VALUES)
def test_what_is_inside_of_a_column_is_widened_by_field_ids(tmp_path: Path, shape: str) -> None:
    """Harm prevented: a file from before a column was widened can never be rewritten."""
    (before,), (now,) = nested(INNER, IntegerType())[shape], nested(WIDER, LongType())[shape]
    values, wide = VALUES[shape]
    there = in_file(tmp_path, before, values * 3)

    found = columns_of_file(there, schema_of(now))

    assert found.column("c").to_pylist() == wide * 3
    # Rows are taken out of the middle of what was read, too.
    part = columns_of_file(there.slice(1, 4), schema_of(now))
    assert part.column("c").to_pylist() == (wide * 3)[1:5]
    part.validate(full=True)
    assert to_file(found, schema_of(now)).schema.equals(file_schema(schema_of(now)))


def test_a_required_member_that_a_file_lacks_is_refused(tmp_path: Path) -> None:
    there = in_file(tmp_path, INNER, [ONE])
    more = NestedField(34, "needed", LongType(), required=True)

    with pytest.raises(UnsupportedError, match="the file has no value of needed"):
        columns_of_file(there, schema_of(StructType(*WIDER.fields, more)))

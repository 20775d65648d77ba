"""The remembered ClickHouse table, with types as wide as the columns of its lake table."""

from __future__ import annotations

from dataclasses import replace

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

from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.schema_evolution import as_wide_as
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import parse_type
from tests.strategies.mapping import table_of

_WIDE: dict[IcebergType, IcebergType] = {IntegerType(): LongType(), FloatType(): DoubleType()}


def widened(of: IcebergType) -> IcebergType:
    """Return a type whose every part is as wide as Iceberg lets it become."""
    match of:
        case DecimalType():
            return DecimalType(38, of.scale)
        case ListType():
            inner = widened(of.element_type)
            return ListType(of.element_id, inner, element_required=of.element_required)
        case MapType():
            value = widened(of.value_type)
            return MapType(
                of.key_id, of.key_type, of.value_id, value, value_required=of.value_required
            )
        case StructType():
            fields = (f.model_copy(update={"field_type": widened(f.field_type)}) for f in of.fields)
            return StructType(*fields)
        case _:
            return _WIDE.get(of, of)


def wide(text: str, key: str = "") -> str:
    """Return the type that a column has when its lake column was widened."""
    table = table_of(Column("c", parse_type(text), text))
    table = replace(table, engine=replace(table.engine, partition_by=key))
    source = RememberedSource(table, {})
    schema = map_columns(table).schema
    assert as_wide_as(source, schema) == source
    now = Schema(
        *(f.model_copy(update={"field_type": widened(f.field_type)}) for f in schema.fields)
    )
    return as_wide_as(source, now).table.columns[0].type_text


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("UInt8", "Int64"),
        ("Int32", "Int64"),
        ("Nullable(Int16)", "Nullable(Int64)"),
        ("LowCardinality(Nullable(Int32))", "LowCardinality(Nullable(Int64))"),
        ("Float32", "Float64"),
        ("Decimal(5, 2)", "Decimal(38, 2)"),
        ("Array(Tuple(a Float32, b String))", "Array(Tuple(a Float64, b String))"),
        ("Tuple(Int32, Decimal(9, 3))", "Tuple(Int64, Decimal(38, 3))"),
        ("Map(Int32, Array(Int32))", "Map(Int32, Array(Int64))"),
        ("Nested(a Int32, b UInt64)", "Nested(a Int64, b UInt64)"),
        ("UInt32", "UInt32"),
        ("String", "String"),
        ("DateTime64(3, 'UTC')", "DateTime64(3, 'UTC')"),
        ("Enum8('x' = 1)", "Enum8('x' = 1)"),
    ],
)
def test_a_type_is_as_wide_as_that_of_the_lake(text: str, now: str) -> None:
    assert wide(text) == now


def test_a_column_of_the_partition_key_keeps_its_type() -> None:
    """Harm prevented: a hash of a wider number puts rows into another partition."""
    assert wide("Int32", key="cityHash64(c) % 4") == "Int32"


def test_a_column_and_a_member_that_the_lake_lacks_keep_their_types() -> None:
    columns = [Column(n, parse_type(t), t) for n, t in (("a", "Int32"), ("t", "Tuple(x Int32)"))]
    member = StructType(NestedField(3, "other", StringType(), required=False))
    source = RememberedSource(table_of(*columns), {})

    assert as_wide_as(source, Schema(NestedField(2, "t", member, required=False))) == source

"""An existing lake table is taken as it is, or refused with every difference."""

from __future__ import annotations

import re

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tableformat.iceberg.existing import check_existing, existing_refusal
from tableformat.iceberg.partition_spec import derive_spec
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.table import Column
from tableformat.mergetree.type_text import parse_type
from tests.strategies_mapping import table_of

INTS = ListType(9, IntegerType(), element_required=True)
ONLY_A = StructType(NestedField(9, "a", IntegerType(), required=False))


def differences(
    columns: dict[str, str], *lake: NestedField, version: int = 2, key: str = ""
) -> tuple[str, ...]:
    table = table_of(*(Column(n, parse_type(t), t) for n, t in columns.items()), partition_by=key)
    mapped = map_columns(table)
    return check_existing(
        Schema(*lake), UNPARTITIONED_PARTITION_SPEC, version, mapped, derive_spec(table, mapped)
    )


def field(number: int, name: str, of: IcebergType, *, required: bool = False) -> NestedField:
    return NestedField(number, name, of, required=required)


def test_columns_are_matched_by_name_in_any_order_and_optional_ones_of_the_lake_stay_null() -> None:
    found = differences(
        {"a": "Int32", "b": "String"},
        field(1, "more", StringType()),
        field(2, "b", StringType()),
        field(3, "a", IntegerType(), required=True),
    )

    assert found == ()


@pytest.mark.parametrize(
    ("clickhouse", "lake"),
    [
        ("Int32", LongType()),
        ("Float32", DoubleType()),
        ("Decimal(9, 2)", DecimalType(20, 2)),
        ("Array(UInt8)", ListType(9, LongType(), element_required=False)),
        ("Tuple(a Int8)", StructType(NestedField(9, "a", LongType(), required=False))),
        ("Map(Int8, Int8)", MapType(8, LongType(), 9, IntegerType(), value_required=False)),
    ],
)
def test_a_wider_column_of_the_lake_takes_every_value(clickhouse: str, lake: IcebergType) -> None:
    assert differences({"c": clickhouse}, field(1, "c", lake)) == ()


@pytest.mark.parametrize(
    ("clickhouse", "lake", "required", "why"),
    [
        ("Int64", IntegerType(), False, "c is long for ClickHouse and int in the destination"),
        ("String", BinaryType(), False, "--convert c=binary"),
        ("UInt64", LongType(), False, "--convert c=long"),
        ("Decimal(9, 2)", DecimalType(20, 3), False, r"decimal\(9, 2\)"),
        ("Nullable(Int32)", IntegerType(), True, "c may be NULL in the source"),
        ("Array(Nullable(Int32))", INTS, False, r"c\.element may be NULL"),
        ("Tuple(a Int8, b Int8)", ONLY_A, False, r"c\.b \(int\) is missing"),
        ("Tuple(a Int8)", IntegerType(), False, "struct<.*> for ClickHouse and int"),
    ],
)  # fmt: skip
def test_a_column_that_would_not_hold_every_value_is_a_difference(
    clickhouse: str,
    lake: IcebergType,
    required: bool,  # noqa: FBT001  a column of the table above
    why: str,
) -> None:
    (found,) = differences({"c": clickhouse}, field(1, "c", lake, required=required))

    assert re.search(why, found)
    assert found.startswith("Tables have different structure: column c")


def test_all_differences_are_listed_at_once() -> None:
    found = differences(
        {"a": "Int32", "b": "String"},
        field(1, "a", StringType()),
        field(2, "extra", StringType(), required=True),
        version=1,
        key="a",
    )

    assert len(found) == 5
    assert "format version 1" in found[0]
    assert "column a is int" in found[1]
    assert "column b (string) is missing" in found[2]
    assert "extra is required in the destination" in found[3]
    assert found[4].startswith("Tables have different partition key")


@pytest.mark.parametrize(
    ("version", "key", "lake", "code"),
    [
        (1, "", IntegerType(), 48),
        (3, "a", IntegerType(), 48),
        (2, "a", IntegerType(), 36),
        (2, "a", StringType(), 122),
    ],
)
def test_the_refusal_has_clickhouses_code_for_the_first_difference(
    version: int, key: str, lake: IcebergType, code: int
) -> None:
    table = table_of(Column("a", parse_type("Int32"), "Int32"), partition_by=key)
    mapped = map_columns(table)

    refused = existing_refusal(
        "export to lake.n.t",
        Schema(field(1, "a", lake)),
        UNPARTITIONED_PARTITION_SPEC,
        version,
        mapped,
        derive_spec(table, mapped),
    )

    assert refused is not None
    assert refused.code == code
    assert refused.message.startswith("Cannot export to lake.n.t: ")


def test_a_table_that_fits_is_not_refused() -> None:
    table = table_of(Column("a", parse_type("Int32"), "Int32"))
    mapped = map_columns(table)

    assert (
        existing_refusal(
            "export",
            mapped.schema,
            UNPARTITIONED_PARTITION_SPEC,
            2,
            mapped,
            derive_spec(table, mapped),
        )
        is None
    )

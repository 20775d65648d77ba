"""The single Iceberg partition that the rows of a file belong to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, MonthTransform
from pyiceberg.transforms import TruncateTransform as Truncate
from pyiceberg.types import (
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from tableformat.errors import UnsupportedError
from tableformat.iceberg.arrow_schema import file_schema
from tableformat.iceberg.file_partition import OnePartition, SeveralPartitionsError

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "ts", TimestamptzType(), required=False),
    NestedField(3, "s", StringType(), required=False),
    NestedField(4, "t", StructType(NestedField(5, "x", LongType()))),
    NestedField(6, "u", UUIDType(), required=False),
)


def spec(*fields: tuple[int, Any, str]) -> PartitionSpec:
    return PartitionSpec(
        *(PartitionField(source, 1000 + i, by, name) for i, (source, by, name) in enumerate(fields))
    )


def columns(**values: list[object]) -> pa.Table:
    """Return these columns in the order of the schema."""
    schema = file_schema(SCHEMA)
    names = [name for name in schema.names if name in values]
    return pa.table(
        [pa.array(values[n], schema.field(n).type) for n in names],
        pa.schema([schema.field(n) for n in names]),
    )


def test_values_are_those_that_receipts_carry() -> None:
    by = spec((2, MonthTransform(), "ts_month"), (3, IdentityTransform(), "s"))
    one = OnePartition(by, SCHEMA)
    for day in (1, 29):
        one.add(columns(ts=[datetime(2024, 2, day, tzinfo=UTC)] * 2, s=[None, None]))

    assert (one.columns, one.texts()) == ((1, 2), ("649", None))
    assert one.directory() == "ts_month=2024-02/s=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(("before", "rows"), [(1, [2]), (1, [1, 2]), (None, [1]), (1, [None])])
def test_rows_of_several_are_refused(before: object, rows: list[object]) -> None:
    one = OnePartition(spec((1, IdentityTransform(), "id")), SCHEMA)
    one.add(columns(id=[before]))

    with pytest.raises(SeveralPartitionsError, match="its rows have several values of id"):
        one.add(columns(id=rows))


def test_the_buckets_of_uuids_are_suggested() -> None:
    """Harm prevented: a table that is divided as is advised for a UUID takes no files of others."""
    numbers = [UUID(int=7), UUID(int=8)]
    buckets = [BucketTransform(16).transform(UUIDType())(one) for one in numbers]
    assert buckets[0] != buckets[1]
    one = OnePartition(spec((6, BucketTransform(16), "u_bucket")), SCHEMA)
    one.add(columns(u=[numbers[0].bytes] * 2))

    assert one.texts() == (str(buckets[0]),)
    with pytest.raises(SeveralPartitionsError, match="several values of u_bucket"):
        one.add(columns(u=[numbers[1].bytes]))


def test_a_time_that_iceberg_has_no_month_for_is_refused() -> None:
    one = OnePartition(spec((2, MonthTransform(), "ts_month")), SCHEMA)
    beyond = pa.table([pa.array([2**62], pa.timestamp("us", "UTC"))], ["ts"])

    with pytest.raises(SeveralPartitionsError, match="Iceberg has no ts_month"):
        one.add(beyond)


def test_a_long_value_has_no_directory_of_its_own() -> None:
    one = OnePartition(spec((3, IdentityTransform(), "s")), SCHEMA)
    one.add(columns(s=["x" * 201]))

    assert (one.directory(), one.texts()) == ("", ("x" * 201,))


def test_a_member_of_a_column_is_no_field() -> None:
    one = OnePartition(spec((5, IdentityTransform(), "x")), SCHEMA)

    with pytest.raises(UnsupportedError, match="is made of what is inside of a column"):
        assert one.columns


@given(
    st.lists(st.text("ab", max_size=3), min_size=1, max_size=4),
    st.sampled_from([Truncate(1), Truncate(2), BucketTransform(2), IdentityTransform()]),
)
def test_every_row_has_the_reported_value(texts: list[str], by: Any) -> None:
    """By the least and the greatest, as by each."""
    each = {by.transform(StringType())(text) for text in texts}
    one = OnePartition(spec((3, by, "s_by")), SCHEMA)

    if len(each) == 1:
        one.add(columns(s=list(texts)))
        assert one.texts() == (str(each.pop()),)
    else:
        with pytest.raises(SeveralPartitionsError):
            one.add(columns(s=list(texts)))

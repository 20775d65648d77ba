"""Conversion to a file loses nothing: errors that Arrow misses are found."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from tableformat.errors import InternalError, UnsupportedError
from tableformat.iceberg.arrow_schema import columns_of_file, file_schema, to_file

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(
        2,
        "s",
        StructType(
            NestedField(3, "a b", IntegerType(), required=True),
            NestedField(4, "note", StringType(), required=False),
        ),
        required=True,
    ),
    NestedField(5, "n.l", ListType(6, UUIDType(), element_required=True), required=True),
    NestedField(7, "only in the lake", StringType(), required=False),
)


def handed_over(
    *, member: str = "a b", identity: Any = None, element_nullable: bool = False
) -> pa.Table:
    struct = pa.struct([pa.field(member, pa.uint8(), nullable=False)])
    elements = pa.list_(pa.field("item", pa.uuid(), nullable=element_nullable))
    fields = [
        pa.field("n.l", elements, nullable=False),
        pa.field("s", struct, nullable=False),
        pa.field("id", identity or pa.uint32(), nullable=False),
    ]
    columns = [
        pa.array([[b"0123456789abcdef"], []], pa.list_(pa.binary(16))).cast(elements),
        pa.array([{member: 1}, {member: 255}], struct),
        pa.array([2**32 - 1, 0], identity or pa.uint32()),
    ]
    return pa.table(columns, schema=pa.schema(fields))


def test_columns_and_members_match_by_name_and_the_lakes_alone_are_null() -> None:
    table = to_file(handed_over(), SCHEMA)

    table.validate(full=True)
    assert table.schema.equals(file_schema(SCHEMA), check_metadata=True)
    assert table.column("id").to_pylist() == [2**32 - 1, 0]
    assert table.column("s").to_pylist() == [
        {"a_x20b": 1, "note": None},
        {"a_x20b": 255, "note": None},
    ]
    assert table.column("only_x20in_x20the_x20lake").null_count == 2


def test_a_member_of_another_name_is_found_and_not_filled_with_null() -> None:
    """Arrow casts such a struct to NULLs without a word."""
    with pytest.raises(InternalError, match="s, other is not in the schema"):
        to_file(handed_over(member="other"), SCHEMA)


def test_an_element_that_may_be_null_cannot_become_a_required_one() -> None:
    """Arrow casts such a list without looking for NULLs."""
    with pytest.raises(InternalError, match=r"n\.l, element, it may be NULL"):
        to_file(handed_over(element_nullable=True), SCHEMA)


def test_a_required_column_that_is_missing_is_found() -> None:
    with pytest.raises(InternalError, match="the required id is missing"):
        to_file(handed_over().drop_columns(["id"]), SCHEMA)


def test_a_column_that_the_lake_does_not_have_is_not_dropped() -> None:
    more = handed_over().append_column("more", pa.array([1, 2]))

    with pytest.raises(InternalError, match="more is not in the schema"):
        to_file(more, SCHEMA)


def test_a_number_that_does_not_fit_names_its_column() -> None:
    data = handed_over(identity=pa.uint64())
    data = data.set_column(
        2, pa.field("id", pa.uint64(), nullable=False), pa.array([2**64 - 1, 0], pa.uint64())
    )

    with pytest.raises(pa.ArrowInvalid, match=r"column id: .*18446744073709551615"):
        to_file(data, SCHEMA)


def test_no_column_is_written_in_a_large_form() -> None:
    """Typed Hive readers refuse large strings."""
    text = str(file_schema(SCHEMA))

    assert "large" not in text
    assert "extension<arrow.uuid>" in text


def test_a_table_of_other_tools_with_other_types_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"column t: .*timestamp"):
        file_schema(Schema(NestedField(1, "t", TimestampType(), required=False)))


def test_a_file_without_field_ids_is_refused() -> None:
    """Harm prevented: none of its columns is found by id, and all values become NULL."""
    schema = Schema(NestedField(1, "note", StringType(), required=False))

    with pytest.raises(UnsupportedError, match="the file has no field ids"):
        columns_of_file(pa.table({"note": ["a"]}), schema)

"""Values of a data file that ClickHouse would read as empty ones, although they are NULL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from tableformat.iceberg.arrow_schema import file_schema
from tableformat.iceberg.read_columns import has_composed_null, with_mapped_ids
from tableformat.iceberg.schema_evolution import evolved_mapping
from tableformat.mergetree.types import parse_type

_STRUCT = pa.struct(
    [("a", pa.int32()), ("l", pa.list_(pa.int32())), ("more", pa.list_(pa.int32()))]
)
_MAP = pa.map_(pa.string(), pa.list_(pa.int32()))
_PAIRS = "Array(Tuple(key Nullable(String), value Array(Nullable(Int32))))"
_TUPLE = "Tuple(a Nullable(Int32), l Array(Nullable(Int32)))"


@pytest.mark.parametrize(
    ("text", "of", "value", "is_found"),
    [
        ("Nullable(Int32)", pa.int32(), None, False),
        ("Array(Nullable(Int32))", pa.list_(pa.int32()), None, True),
        ("Array(Nullable(Int32))", pa.list_(pa.int32()), [None], False),
        ("Array(Array(Nullable(Int32)))", pa.large_list(pa.list_(pa.int32())), [[1], None], True),
        ("Array(Array(Nullable(Int32)))", pa.list_(pa.list_(pa.int32())), [[None], []], False),
        (_PAIRS, _MAP, None, True),
        (_PAIRS, _MAP, [("k", None)], True),
        (_PAIRS, _MAP, [("k", [None])], False),
        (_TUPLE, _STRUCT, None, True),
        (_TUPLE, _STRUCT, {"a": None, "l": [1], "more": None}, False),
        (_TUPLE, _STRUCT, {"a": 1, "l": None, "more": []}, True),
        (_TUPLE, pa.struct([("a", pa.int32())]), {"a": 1}, True),
        ("Tuple(a Nullable(Int32))", pa.struct([("b", pa.int32())]), {"b": 1}, False),
        (f"Array({_TUPLE})", pa.list_(_STRUCT), [{"a": 1, "l": None, "more": []}], True),
    ],
)
def test_a_null_is_found_where_clickhouse_has_none(
    text: str, of: pa.DataType, value: Any, *, is_found: bool
) -> None:
    """Harm prevented: NULL becomes an empty array in rows that a statement does not set."""
    read = parse_type(text)
    values = pa.array([value, value, value], of)

    assert has_composed_null(read, values) is is_found
    assert has_composed_null(read, values[1:2]) is is_found
    assert not has_composed_null(read, values[3:])


def without_ids(of: pa.DataType) -> pa.DataType:
    """Return a type without field ids, with the names of its members as a writer chooses them."""
    if pa.types.is_struct(of):
        return pa.struct([pa.field(one.name, without_ids(one.type)) for one in of])
    if pa.types.is_list(of):
        return pa.list_(pa.field("item", without_ids(of.value_type)))
    if pa.types.is_map(of):
        return pa.map_(without_ids(of.key_type), without_ids(of.item_type))
    return of


def test_a_name_mapping_gives_ids_at_every_level() -> None:
    """Harm prevented: a copy of a file is refused, or loses members, because they have no ids."""
    inner = StructType(NestedField(5, "x", LongType()), NestedField(6, "y", StringType()))
    schema = Schema(
        NestedField(1, "l", ListType(4, inner, element_required=False)),
        NestedField(2, "m", MapType(7, StringType(), 8, inner_of(9), value_required=False)),
    )
    wanted = file_schema(schema)
    written = pa.schema([pa.field(one.name, without_ids(one.type)) for one in wanted])

    mapped = with_mapped_ids(written, schema.name_mapping.root)

    assert found_ids(mapped) == found_ids(wanted) == [1, 4, 5, 6, 2, 7, 8, 9]


def inner_of(number: int) -> StructType:
    return StructType(NestedField(number, "z", LongType()))


def found_ids(fields: Any) -> list[int | None]:
    """Return the field ids of fields and of everything inside, None for one without."""
    found: list[int | None] = []
    for field in fields:
        of, number = field.type, (field.metadata or {}).get(b"PARQUET:field_id")
        found.append(None if number is None else int(number))
        if pa.types.is_struct(of):
            found += found_ids(of)
        elif pa.types.is_list(of):
            found += found_ids([of.value_field])
        elif pa.types.is_map(of):
            found += found_ids([of.key_field, of.item_field])
    return found


def test_new_fields_come_to_a_name_mapping_at_every_level() -> None:
    """Harm prevented: a new member of a struct is NULL in files without field ids."""

    def schema(*more: NestedField, columns: tuple[NestedField, ...] = ()) -> Schema:
        inner = StructType(NestedField(5, "x", LongType()), *more)
        listed = ListType(4, inner, element_required=False)
        mapped = MapType(7, StringType(), 8, inner_of(9), value_required=False)
        return Schema(NestedField(1, "l", listed), NestedField(2, "m", mapped), *columns)

    before = schema()
    new = NestedField(12, "s", StructType(NestedField(13, "z", ListType(14, LongType()))))
    after = schema(NestedField(11, "y", inner_of(15)), columns=(new,))

    assert evolved_mapping(before.name_mapping, before, after) == after.name_mapping

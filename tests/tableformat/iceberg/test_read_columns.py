"""Values of a data file that ClickHouse would read as empty ones, although they are NULL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tableformat.iceberg.read_columns import has_composed_null
from tableformat.mergetree.type_text import parse_type

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

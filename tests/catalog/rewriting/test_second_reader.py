"""The second reader of verification counts and sums what a file holds."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.rewriting import second_reader
from catalog.rewriting.second_reader import ColumnTally, FileTally, tally_file
from tableformat.iceberg.read_columns import FileColumn
from tableformat.mergetree.types import Array, Decimal, Nullable, Simple, Tuple

ID = Nullable(Simple("UUID"))


@pytest.mark.parametrize(
    ("values", "tally"),
    [
        ([None, None], ColumnTally(nulls=2)),
        ([None, {"a": b"\1" * 16}], ColumnTally(nulls=1, values=1, total=16)),
    ],
)
def test_structs_of_ids_are_counted_also_where_all_of_them_are_null(
    tmp_path: Path, values: list[dict[str, bytes] | None], tally: ColumnTally
) -> None:
    """A right export of `Nullable(Tuple(a UUID))` was reported as unreadable."""
    path = tmp_path / "file.parquet"
    plain = pa.array(values, pa.struct([("a", pa.binary(16))]))
    ids = pa.ExtensionArray.from_storage(pa.uuid(), plain.field(0))
    structs = pa.StructArray.from_arrays([ids], names=["a"], mask=plain.is_null())
    pq.write_table(pa.table({"c": structs}), path)

    found = tally_file(path, [FileColumn("c", "c", Tuple((("a", ID),)))])

    assert found == FileTally(len(values), (tally,))


INT = Nullable(Simple("Int64"))
TEXT = Nullable(Simple("String"))
NUMBER = Nullable(Decimal(38, 2))
NARROW = Nullable(Simple("Int32"))
INT64S = st.none() | st.integers(-(2**63), 2**63 - 1)
UNSCALED = st.none() | st.integers(-(10**38) + 1, 10**38 - 1)


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(
            INT64S,
            st.none() | st.integers(-(2**31), 2**31 - 1),
            st.none() | st.text(max_size=3),
            UNSCALED,
            st.none() | st.lists(INT64S, max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    cut=st.integers(0, 19),
)
def test_sums_are_those_of_the_numbers_wherever_an_array_begins(
    rows: list[tuple[Any, ...]], cut: int
) -> None:
    """Harm prevented: a readable file is called damaged, because a sum overflowed."""
    longs, ints, texts, unscaled, lists = zip(*rows, strict=True)
    with decimal.localcontext(prec=40):
        numbers = [None if n is None else decimal.Decimal(n).scaleb(-2) for n in unscaled]
    arrays = (
        (pa.array(longs, pa.int64()), INT, longs),
        (pa.array(ints, pa.int32()), NARROW, ints),
        (pa.array(texts, pa.string()), TEXT, [_length(t) for t in texts]),
        (pa.array(numbers, pa.decimal128(38, 2)), NUMBER, unscaled),
    )
    begin = min(cut, len(rows) - 1)

    for array, of, values in arrays:
        there = [v for v in values[begin:] if v is not None]
        nulls = len(rows) - begin - len(there)
        found = second_reader._tally(array[begin:], of, len(rows) - begin)
        assert found == ColumnTally(nulls, len(there), sum(there) % 2**64)
    inside = [v for one in lists[begin:] if one is not None for v in one]
    found = second_reader._tally(
        pa.array(lists, pa.list_(pa.int64()))[begin:], Array(INT), len(rows) - begin
    )
    assert found.values == sum(v is not None for v in inside)
    assert found.total == sum(v for v in inside if v is not None) % 2**64


def _length(text: str | None) -> int | None:
    return None if text is None else len(text.encode())

"""Columns of files that other programs wrote, as those of a table."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tableformat.iceberg.arrow_schema import file_schema
from tableformat.iceberg.read_columns import ForeignColumns, foreign_columns

TABLE = Schema(
    NestedField(1, "n", LongType(), required=True),
    NestedField(2, "s", StringType(), required=False),
)


def matched(written: pa.Schema, schema: Schema = TABLE) -> ForeignColumns:
    found = foreign_columns(written, schema)
    assert isinstance(found, ForeignColumns), found
    return found


def differences(written: pa.Schema, schema: Schema = TABLE) -> tuple[str, ...]:
    found = foreign_columns(written, schema)
    assert not isinstance(found, ForeignColumns)
    return found


def with_ids(*fields: tuple[str, pa.DataType, int]) -> pa.Schema:
    return pa.schema(
        [pa.field(n, t, metadata={"PARQUET:field_id": str(number)}) for n, t, number in fields]
    )


def test_columns_are_found_by_name_in_any_order() -> None:
    data = pa.table({"s": ["a", None], "n": pa.array([1, 2], pa.int32())})

    taken = matched(data.schema).taken(data)

    assert taken.schema.equals(file_schema(TABLE), check_metadata=True)
    assert taken.to_pylist() == [{"n": 1, "s": "a"}, {"n": 2, "s": None}]


def test_a_column_of_another_name_is_found_by_its_id() -> None:
    """As in a file that the same table wrote before a column was renamed."""
    data = pa.table([[1], ["a"]], with_ids(("old", pa.int64(), 1), ("s", pa.string(), 2)))

    assert matched(data.schema).taken(data).to_pylist() == [{"n": 1, "s": "a"}]


def test_names_and_ids_that_contradict_each_other_are_refused() -> None:
    """Harm prevented: the values of two columns are exchanged, without a word."""
    both = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    written = with_ids(("b", pa.int64(), 1), ("a", pa.int64(), 2))

    assert differences(written, both) == (
        "its column a has the field id 2, and the table's has 1, which is that of b there",
        "its column b has the field id 1, and the table's has 2, which is that of a there",
    )


def test_ids_that_the_table_does_not_have_count_for_nothing() -> None:
    """Another lake numbers its columns otherwise."""
    data = pa.table([[1], ["a"]], with_ids(("n", pa.int64(), 8), ("s", pa.string(), 9)))

    assert matched(data.schema).taken(data).to_pylist() == [{"n": 1, "s": "a"}]


def test_all_differences_are_listed() -> None:
    assert differences(pa.schema([("n", pa.string()), ("more", pa.int8())])) == (
        "its column n is string, and the table's is int64",
        "it has no column s",
        "it has a column more, and the table none",
    )
    assert differences(pa.schema([("n", pa.int64()), ("s", pa.string()), ("s", pa.string())])) == (
        "it has several columns of one name",
    )


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (pa.timestamp("us"), TimestamptzType()),
        (pa.timestamp("ns", "UTC"), TimestamptzType()),
        (pa.int64(), IntegerType()),
        (pa.uint32(), IntegerType()),
        (pa.float64(), LongType()),
        (pa.uint64(), DecimalType(19, 0)),
        (pa.binary(), StringType()),
        (pa.string(), BinaryType()),
        (pa.decimal128(12, 2), DecimalType(9, 2)),
        (pa.decimal128(9, 3), DecimalType(9, 2)),
        (pa.list_(pa.string()), ListType(2, LongType(), element_required=False)),
        (pa.struct([("y", pa.int64())]), StructType(NestedField(2, "x", LongType()))),
        (pa.int64(), ListType(2, LongType(), element_required=False)),
    ],
)
def test_a_type_that_may_mean_other_values_is_a_difference(have: pa.DataType, want: Any) -> None:
    table = Schema(NestedField(1, "n", want, required=False))

    (difference,) = differences(pa.schema([("n", have)]), table)

    assert difference.startswith("its column n")


@pytest.mark.parametrize(
    ("have", "want", "value"),
    [
        (pa.uint8(), IntegerType(), 255),
        (pa.uint32(), LongType(), 2**32 - 1),
        (pa.uint64(), LongType(), 2**63 - 1),
        (pa.uint64(), DecimalType(20, 0), 2**64 - 1),
        (pa.float32(), DoubleType(), 0.1),
        (pa.decimal128(5, 2), DecimalType(9, 2), None),
        (pa.large_string(), StringType(), "x"),
        (pa.dictionary(pa.int32(), pa.string()), StringType(), "x"),
    ],
)
def test_a_type_of_fewer_values_is_widened(have: pa.DataType, want: Any, value: Any) -> None:
    table = Schema(NestedField(1, "n", want, required=False))
    data = pa.table([pa.array([value], have)], ["n"])

    taken = matched(data.schema, table).taken(data)

    assert taken.column("n").to_pylist() == pa.array([value], have).to_pylist()


def test_a_value_that_does_not_fit_names_its_column() -> None:
    data = pa.table({"n": pa.array([2**63], pa.uint64()), "s": ["a"]})
    found = matched(data.schema)

    assert found.checked == {0}
    with pytest.raises(pa.ArrowInvalid, match="column n: "):
        found.taken(data)


NESTED = Schema(
    NestedField(1, "l", ListType(2, LongType(), element_required=True), required=True),
    NestedField(
        3,
        "t",
        StructType(
            NestedField(4, "x", LongType(), required=True),
            NestedField(5, "y", StringType(), required=False),
        ),
        required=False,
    ),
    NestedField(
        6, "m", MapType(7, StringType(), 8, LongType(), value_required=True), required=True
    ),
)
COLUMNS = [
    pa.field("m", pa.map_(pa.string(), pa.int32())),
    pa.field("l", pa.large_list(pa.int64())),
    pa.field("t", pa.struct([("x", pa.int16()), ("y", pa.string())])),
]
NUMBERS = st.none() | st.integers(-(2**15), 2**15 - 1)
ROW = st.fixed_dictionaries(
    {
        "m": st.none() | st.lists(st.tuples(st.text(max_size=2), NUMBERS), max_size=3),
        "l": st.none() | st.lists(NUMBERS, max_size=3),
        "t": st.none()
        | st.fixed_dictionaries({"x": NUMBERS, "y": st.none() | st.text(max_size=2)}),
    }
)


def lacks_nothing(row: dict[str, Any]) -> bool:
    """Whether a row has every value that the table requires."""
    entries, numbers, pair = row["m"], row["l"], row["t"]
    if entries is None or numbers is None:
        return False
    inner = [*numbers, *(value for _, value in entries)]
    return None not in inner and (pair is None or pair["x"] is not None)


@given(st.lists(ROW, max_size=5), st.integers(0, 5))
def test_values_inside_of_others_arrive_or_are_refused(
    rows: list[dict[str, Any]], begin: int
) -> None:
    """Harm prevented: a NULL, or a value of another row, where the table requires one."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(COLUMNS)), file)
    # Slices of what is read, as batches are.
    data = pq.read_table(file).slice(begin)
    kept = rows[begin:]
    found = matched(data.schema, NESTED)

    if all(lacks_nothing(row) for row in kept):
        wanted = [{"l": r["l"], "t": r["t"], "m": r["m"]} for r in kept]
        taken = found.taken(data)
        taken.validate(full=True)
        assert taken.to_pylist() == wanted
    else:
        with pytest.raises(pa.ArrowInvalid, match="it has NULLs, and the table requires a value"):
            found.taken(data)

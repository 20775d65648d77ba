"""The one Parquet writer: every row in, in order, in bounded groups; a whole file or none."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableformat.errors import InternalError
from tableformat.parquet.writer import FileFormat, WrittenFile, write_file


def field(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, nullable=True, metadata={"PARQUET:field_id": str(field_id)})


SCHEMA = pa.schema(
    [
        field("tags", pa.list_(field("element", pa.string(), 5)), 1),
        field("id", pa.int64(), 2),
        field("text", pa.string(), 3),
    ]
)


class MemorySink:
    """A sink that records its state."""

    def __init__(self) -> None:
        self.data = io.BytesIO()
        self.ended: list[str] = []

    def write(self, data: bytes, /) -> None:
        assert not self.ended, "nothing may be written to a sink that has ended"
        self.data.write(data)

    def commit(self) -> None:
        self.ended.append("commit")

    def abort(self) -> None:
        self.ended.append("abort")


class FullSink(MemorySink):
    """A sink on a disk that is full."""

    def write(self, _data: bytes, /) -> None:
        raise OSError(28, "No space left on device")


def batch(start: int, rows: int, text: str = "x") -> pa.RecordBatch:
    numbers = range(start, start + rows)
    columns = [[["a", None]] * rows, list(numbers), [f"{text}{n}" for n in numbers]]
    arrays = [pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def unchanged(table: pa.Table) -> pa.Table:
    return table


def write(
    batches: list[pa.RecordBatch] | Iterator[pa.RecordBatch],
    sink: MemorySink,
    fmt: FileFormat | None = None,
    convert: Callable[[pa.Table], pa.Table] = unchanged,
) -> WrittenFile:
    sort = [(2, False, True), (3, True, False)]
    return write_file(batches, sink, SCHEMA, fmt or FileFormat(), sort, convert=convert)


def footer(sink: MemorySink) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(sink.data.getvalue()))


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), max_size=8),
    most_rows=st.integers(1, 50),
    most_bytes=st.integers(1, 3000),
)
def test_every_row_arrives_once_and_in_order_whatever_the_bounds(
    sizes: list[int], most_rows: int, most_bytes: int
) -> None:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    batches = [batch(start, rows) for start, rows in zip(starts, sizes, strict=True)]
    sink = MemorySink()

    fmt = FileFormat(row_group_rows=most_rows, row_group_bytes=most_bytes)
    written = write(batches, sink, fmt)

    table = pq.read_table(pa.BufferReader(sink.data.getvalue()))
    assert table.column("id").to_pylist() == list(range(sum(sizes)))
    assert written.rows == sum(sizes)
    groups = [footer(sink).row_group(i) for i in range(footer(sink).num_row_groups)]
    assert all(group.num_rows <= most_rows for group in groups)
    assert len(written.split_offsets) == len(groups)


@settings(deadline=None)
@given(rows=st.integers(1, 200), most_bytes=st.integers(64, 4096))
def test_a_row_group_holds_no_more_arrow_memory_than_allowed(rows: int, most_bytes: int) -> None:
    """Memory must not grow with the width of the rows; only a single row may exceed the bound."""
    seen: list[pa.Table] = []

    def convert(table: pa.Table) -> pa.Table:
        seen.append(table)
        return table

    # The last piece of a batch is cut by rows, so it may exceed by the uneven width of rows.
    slack = batch(0, 1, "w" * 20).nbytes * 2
    write([batch(0, rows, "w" * 20)], MemorySink(), FileFormat(row_group_bytes=most_bytes), convert)

    assert all(t.num_rows == 1 or t.nbytes <= most_bytes + slack for t in seen)


def test_the_receipt_describes_the_bytes() -> None:
    sink = MemorySink()
    written = write([batch(0, 10), batch(10, 10)], sink, FileFormat(row_group_rows=10))

    data = sink.data.getvalue()
    assert written.bytes == len(data)
    assert written.sha256 == hashlib.sha256(data).hexdigest()
    assert sink.ended == ["commit"]
    assert written.split_offsets[0] == 4
    assert written.split_offsets[1] > 4


def test_field_ids_sorting_columns_and_indexes_are_in_the_file() -> None:
    """Readers match columns by id and prune by index; the order counts leaf columns."""
    sink = MemorySink()
    write([batch(0, 10)], sink, FileFormat(bloom_columns=("text",)))

    group = footer(sink).row_group(0)
    order = [(c.column_index, c.descending, c.nulls_first) for c in group.sorting_columns]
    assert order == [(1, False, True), (2, True, False)]
    read = pq.ParquetFile(pa.BufferReader(sink.data.getvalue())).schema_arrow
    assert [read.field(n).metadata[b"PARQUET:field_id"] for n in read.names] == [b"1", b"2", b"3"]
    assert group.column(1).has_column_index
    assert group.column(1).has_offset_index
    assert group.column(1).compression == "ZSTD"
    assert b"ARROW:schema" not in (footer(sink).metadata or {})


@pytest.mark.parametrize(
    ("kind", "value", "in_dictionary"),
    [
        (pa.int64(), lambda n: n, False),
        (pa.int64(), lambda n: n % 100, True),
        (pa.string(), lambda n: f"value {n}", False),
        (pa.string(), lambda n: f"value {n % 7}", True),
        (pa.decimal128(20, 0), Decimal, False),
        (pa.float64(), lambda n: None if n % 2 else n / 3, False),
        (pa.float64(), lambda _: None, True),
        (pa.binary(16), lambda n: n.to_bytes(16), False),
        (pa.uuid(), lambda n: UUID(int=n), False),
        (pa.uuid(), lambda n: UUID(int=n % 9), True),
        (pa.list_(field("element", pa.string(), 9)), lambda n: [f"{n}", f"{-n}"], False),
        (pa.list_(field("element", pa.string(), 9)), lambda n: ["a", None, f"{n % 5}"], True),
        (pa.struct([field("a", pa.int64(), 9)]), lambda n: {"a": n}, False),
    ],
)
def test_a_column_has_a_dictionary_if_its_values_repeat(
    kind: pa.DataType,
    value: Callable[[int], object],
    in_dictionary: bool,  # noqa: FBT001  a column of the table above
) -> None:
    """Harm prevented: a dictionary of distinct values costs time and bytes, and saves nothing."""
    rows = 30_000
    schema = pa.schema([field("c", kind, 2)])
    batch = pa.record_batch([pa.array(map(value, range(rows)), kind)], schema=schema)
    sink = MemorySink()

    write_file([batch], sink, schema, FileFormat(row_group_rows=10_000), [], convert=unchanged)

    chunks = [footer(sink).row_group(i).column(0) for i in range(3)]
    assert [chunk.has_dictionary_page for chunk in chunks] == [in_dictionary] * 3
    assert pq.read_table(pa.BufferReader(sink.data.getvalue()))["c"].to_pylist() == [
        value(n) for n in range(rows)
    ]


def test_no_rows_make_a_valid_file_of_no_rows() -> None:
    sink = MemorySink()
    written = write([], sink)

    assert written.rows == 0
    assert footer(sink).num_rows == 0
    assert sink.ended == ["commit"]


def test_text_that_is_not_utf8_is_refused_and_leaves_no_file() -> None:
    """Every reader stumbles over such a file, so it must never exist."""
    raw = pa.array([b"good", b"\xff"], pa.binary())
    text = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    columns = [pa.nulls(2, SCHEMA.types[0]), pa.array([1, 2]), text]
    sink = MemorySink()

    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        write([batch(0, 5), pa.RecordBatch.from_arrays(columns, schema=SCHEMA)], sink)

    assert sink.ended == ["abort"]


def test_the_least_decimal_of_128_bits_is_refused_as_of_too_many_digits() -> None:
    """Arrow's validation lets it pass, and Parquet then keeps some of its bytes: another number."""
    least = (-(2**127)).to_bytes(16, "little", signed=True)
    decimals = pa.decimal128(25, 12)
    values = pa.Array.from_buffers(decimals, 1, [None, pa.py_buffer(least)])
    schema = pa.schema([field("d", decimals, 1)])
    sink = MemorySink()

    with pytest.raises(pa.ArrowInvalid, match=r"-170141183460469231731687303\.7.* does not fit"):
        write_file(
            [pa.RecordBatch.from_arrays([values], schema=schema)],
            sink,
            schema,
            FileFormat(),
            (),
            convert=unchanged,
        )

    assert sink.ended == ["abort"]


def test_a_source_that_breaks_in_the_middle_leaves_no_file() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(0, 5)
        message = "the part is damaged"
        raise ValueError(message)

    sink = MemorySink()
    with pytest.raises(ValueError, match="the part is damaged"):
        write(broken(), sink, FileFormat(row_group_rows=2))

    assert sink.ended == ["abort"]


def test_a_full_disk_is_reported_and_leaves_no_file() -> None:
    sink = FullSink()
    with pytest.raises(OSError, match="No space left on device"):
        write([batch(0, 5)], sink)

    assert sink.ended == ["abort"]


def test_a_conversion_that_loses_rows_is_caught() -> None:
    sink = MemorySink()
    with pytest.raises(InternalError, match="Cannot write"):
        write([batch(0, 5)], sink, convert=lambda table: table.slice(1))

    assert sink.ended == ["abort"]

"""Iceberg's write properties of a lake table, each read back from a file that was written by it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import RefusedError
from tableformat.parquet.writer import FileFormat, SortField, file_format, write_file
from tests.readers.parquet_pages import data_pages
from tests.tableformat.parquet.test_writer import MemorySink

ROWS = 60_000
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("word", pa.string(), metadata={"PARQUET:field_id": "2"}),
    ]
)
TABLE = "lake.n.t"
MODES = "none, counts, truncate(LENGTH) or full"
CODECS = ("brotli", "gzip", "lz4", "snappy", "uncompressed", "zstd")


def words(number: int) -> str:
    return f"the word number {number % 3000:05}"


def written(fmt: FileFormat) -> bytes:
    """Write rows of which one column repeats; return the file."""
    sink = MemorySink()
    columns = [pa.array(range(ROWS)), pa.array([words(n) for n in range(ROWS)])]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    write_file([batch], sink, SCHEMA, fmt, (), convert=lambda table: table)
    return sink.data.getvalue()


def by(**properties: object) -> FileFormat:
    """Return the settings of a table with these write properties, `_` for `-` and `__` for `.`."""
    texts = {
        f"write.{name.replace('__', '.').replace('_', '-')}": str(value)
        for name, value in properties.items()
    }
    return file_format(FileFormat(), texts, TABLE)


def footer(fmt: FileFormat) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(written(fmt)))


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        ("zstd", "ZSTD"),
        ("ZSTD", "ZSTD"),
        ("gzip", "GZIP"),
        ("snappy", "SNAPPY"),
        ("lz4", "LZ4_RAW"),
        ("brotli", "BROTLI"),
        ("uncompressed", "UNCOMPRESSED"),
    ],
)
def test_files_have_the_codec_of_the_table(codec: str, stored: str, tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(written(by(parquet__compression_codec=codec)))

    found = duckdb.sql(f"SELECT DISTINCT compression FROM parquet_metadata('{path}')").fetchall()

    assert found == [(stored,)]
    assert pq.read_table(path).column("word").to_pylist() == [words(n) for n in range(ROWS)]


def test_a_level_makes_files_smaller_if_the_codec_has_levels() -> None:
    sizes = [len(written(by(parquet__compression_level=level))) for level in (1, 19)]
    assert sizes[1] < sizes[0]
    plain = by(parquet__compression_codec="snappy", parquet__compression_level=7)
    assert plain == by(parquet__compression_codec="snappy")
    assert by(parquet__compression_codec="gzip").level is None
    assert by(parquet__compression_codec="zstd").level == FileFormat().level


def test_row_groups_are_as_small_as_the_table_wants_and_no_larger() -> None:
    by_rows = footer(by(parquet__row_group_limit=25_000))
    assert [by_rows.row_group(i).num_rows for i in range(by_rows.num_row_groups)] == [20_000] * 3
    by_bytes = footer(by(parquet__row_group_size_bytes=500_000))
    assert by_bytes.num_row_groups > 3
    assert by(parquet__row_group_size_bytes=1 << 40) == FileFormat()
    assert by(parquet__row_group_limit=1 << 40) == FileFormat()


def test_pages_are_as_small_as_the_table_wants(tmp_path: Path) -> None:
    def rows_of_pages(fmt: FileFormat) -> list[int]:
        path = tmp_path / "file.parquet"
        path.write_bytes(written(fmt))
        return [page.rows for page in data_pages(path) if page.column == "id"]

    assert rows_of_pages(FileFormat()) == [ROWS]
    assert max(rows_of_pages(by(parquet__page_row_limit=500))) <= 500
    assert max(rows_of_pages(by(parquet__page_size_bytes=4_000))) < 2_000


def test_a_dictionary_ends_at_the_size_of_the_table() -> None:
    def dictionary_bytes(fmt: FileFormat) -> int:
        of = footer(fmt).row_group(0).column(1)
        assert of.dictionary_page_offset is not None
        return int(of.data_page_offset - of.dictionary_page_offset)

    assert dictionary_bytes(by(parquet__dict_size_bytes=1_000)) < dictionary_bytes(FileFormat()) / 2


def test_bloom_filters_have_at_most_the_bytes_of_the_table() -> None:
    def filter_bytes(most: int) -> int:
        fmt = by(parquet__bloom_filter_max_bytes=most)
        with_filter = FileFormat(bloom_columns=("id",), bloom_bytes=fmt.bloom_bytes)
        return int(footer(with_filter).row_group(0).column(0).bloom_filter_length)

    header = 64
    lengths = [filter_bytes(most) for most in (32, 1_000, 5_000, 40_000)]
    assert lengths == sorted(set(lengths))
    limits = (32, 1_000, 5_000, 40_000)
    assert all(length <= most + header for length, most in zip(lengths, limits, strict=True))
    assert all(2 * smaller < larger for smaller, larger in pairwise(lengths))


def test_the_size_of_a_file_is_the_user_s_else_the_table_s_else_the_default() -> None:
    properties = {"write.target-file-size-bytes": "1000"}
    assert file_format(FileFormat(), properties, TABLE).target_bytes == 1000
    assert file_format(FileFormat(target_file_bytes=7), properties, TABLE).target_bytes == 7
    assert file_format(FileFormat(), {}, TABLE).target_bytes == 512 * 1024 * 1024


NESTED = pa.schema(
    [
        *SCHEMA,
        pa.field(
            "inner",
            pa.struct([pa.field("text", pa.string(), metadata={"PARQUET:field_id": "4"})]),
            metadata={"PARQUET:field_id": "3"},
        ),
        pa.field(
            "many",
            pa.list_(pa.field("element", pa.int64(), metadata={"PARQUET:field_id": "6"})),
            metadata={"PARQUET:field_id": "5"},
        ),
    ]
)


def metrics(fmt: FileFormat, sort: tuple[SortField, ...] = ()) -> dict[int, object]:
    """Return what each column has: None for counts alone, else its bounds; by field id."""
    texts = ["b" * 40, "a" * 40]
    columns = [pa.array([1, 2]), pa.array(texts), pa.array([{"text": t} for t in texts])]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array([[1], [2]])], schema=NESTED)
    found = write_file([batch], MemorySink(), NESTED, fmt, sort, convert=lambda table: table)
    assert all(column.values == 2 and column.size for column in found.columns)
    return {
        c.field_id: (bytes.fromhex(c.lower), bytes.fromhex(c.upper))
        if c.lower and c.upper
        else None
        for c in found.columns
    }


def test_columns_have_the_metrics_of_the_table() -> None:
    ids = (bytes([1, *[0] * 7]), bytes([2, *[0] * 7]))
    cut = (b"a" * 16, b"b" * 15 + b"c")

    assert metrics(FileFormat()) == {1: ids, 2: cut, 4: cut, 6: None}
    assert metrics(by(metadata__metrics__default="none")) == {}
    assert metrics(by(metadata__metrics__default="Counts")) == {1: None, 2: None, 4: None, 6: None}
    assert metrics(by(metadata__metrics__default="full"))[2] == (b"a" * 40, b"b" * 40)
    assert metrics(by(metadata__metrics__default="truncate(3)"))[4] == (b"aaa", b"bbc")
    assert by(metadata__metrics__max_inferred_column_defaults=1) == FileFormat()


def test_a_column_has_its_own_metrics_and_those_of_the_order_bounds() -> None:
    of_columns = {
        "metadata__metrics__default": "counts",
        "metadata__metrics__column__inner__text": "truncate(1)",
        "metadata__metrics__column__many__element": "none",
    }
    sort = ((1, False, True), (2, False, True))
    cut = (b"a" * 16, b"b" * 15 + b"c")

    found = metrics(by(**of_columns, metadata__metrics__column__word="none"), sort)

    assert found == {1: (bytes([1, *[0] * 7]), bytes([2, *[0] * 7])), 4: (b"a", b"c")}
    assert metrics(by(**of_columns), sort)[2] == cut


@given(st.lists(st.text(max_size=6), min_size=1, max_size=5), st.integers(1, 4))
def test_bounds_of_any_length_hold_all_texts(texts: list[str], length: int) -> None:
    schema = pa.schema([SCHEMA.field("word")])
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=schema)
    fmt = by(metadata__metrics__default=f"truncate({length})")

    (column,) = write_file(
        [batch], MemorySink(), schema, fmt, (), convert=lambda table: table
    ).columns

    assert column.lower is not None
    lower = bytes.fromhex(column.lower)
    assert all(lower <= text.encode() for text in texts)
    assert len(lower.decode()) <= length
    if column.upper is not None:
        upper = bytes.fromhex(column.upper)
        assert all(text.encode() <= upper for text in texts)
        assert len(upper.decode()) <= length


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("parquet.compression-codec", "lzo", f"one of {', '.join(CODECS)}"),
        ("parquet.compression-level", "23", "a level of zstd, -131072 to 22"),
        ("parquet.compression-level", "fast", "a level of zstd, -131072 to 22"),
        ("parquet.row-group-size-bytes", "0", "a number above 0"),
        ("parquet.row-group-limit", "many", "a number above 0"),
        ("parquet.page-size-bytes", "-1", "a number above 0"),
        ("parquet.page-row-limit", "1.5", "a number above 0"),
        ("parquet.dict-size-bytes", "", "a number above 0"),
        ("parquet.bloom-filter-max-bytes", "1MB", "a number above 0"),
        ("target-file-size-bytes", "512MiB", "a number above 0"),
        ("metadata.metrics.default", "truncate(0)", MODES),
        ("metadata.metrics.column.word", "all", MODES),
    ],
)
def test_a_value_that_a_property_cannot_have_is_refused(
    name: str, text: str, expected: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        file_format(FileFormat(), {f"write.{name}": text}, TABLE)

    assert str(refused.value) == (
        f"Cannot write files of lake.n.t: its property write.{name} is {text!r}, and not "
        f"{expected}. Set such a value, or remove the property."
    )

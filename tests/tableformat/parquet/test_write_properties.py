"""Iceberg's write properties of a lake table, each read back from a file that was written by it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableformat.errors import RefusedError
from tableformat.parquet.writer import FileFormat, file_format, write_file
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

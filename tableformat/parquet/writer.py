"""Writes record batches to one finished Parquet file, or to none after an error.

`write_file` decides the bounds of row groups, the settings of the file, the digest of its bytes
and the figures that only the writer knows (NaN counts). docs/spec/files.md lists the settings.
The caller passes the Arrow schema with field ids.

`FileFormat` holds the settings and can be pickled for Spark tasks. `file_format` takes those that
the owner of an Iceberg table has set.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableformat.errors import InternalError, RefusedError
from tableformat.parquet.statistics import (
    COUNTS,
    FULL,
    NO_METRICS,
    TRUNCATE_16,
    GroupFacts,
    Leaf,
    MetricsMode,
    column_statistics,
    group_facts,
    in_footer,
    leaf_values,
    leaves,
)
from tableformat.receipt import ColumnStatistics

__all__ = ["FileFormat", "FileSink", "SortField", "WrittenFile", "file_format", "write_file"]


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The settings of files. Sizes are in bytes.

    The planner uses `target_bytes` and `parts_apart`: each part of a partition with at most
    `parts_apart` parts gets its own files. A row group ends at `row_group_bytes` (Arrow memory) or
    `row_group_rows`, whichever comes first. The bloom filters of `bloom_columns` are sized for
    `bloom_values` distinct values in a row group, and have at most `bloom_bytes`.

    `metrics` is the mode of the columns that `column_metrics` does not name.

    `target_file_bytes` is None for the default, and so are `page_rows`, `page_bytes` and
    `dictionary_bytes`; `level` is None for that of the codec.
    """

    target_file_bytes: int | None = None
    row_group_bytes: int = 64 * 1024 * 1024
    row_group_rows: int = 1_000_000
    page_rows: int | None = None
    page_bytes: int | None = None
    dictionary_bytes: int | None = None
    codec: str = "zstd"
    level: int | None = 3
    bloom_columns: tuple[str, ...] = ()
    bloom_values: int = 1_000_000
    bloom_bytes: int = 1024 * 1024
    parts_apart: int = 0
    metrics: MetricsMode = TRUNCATE_16
    column_metrics: tuple[tuple[str, MetricsMode], ...] = ()

    @property
    def target_bytes(self) -> int:
        """The expected size of a file."""
        return self.target_file_bytes or _TARGET_FILE_BYTES


_TARGET_FILE_BYTES: Final = 512 * 1024 * 1024
_PAGE_ROWS: Final = 20_000
_CODECS: Final = {
    "brotli": "brotli",
    "gzip": "gzip",
    "lz4": "lz4",
    "snappy": "snappy",
    "uncompressed": "none",
    "zstd": "zstd",
}
"""PyArrow's names of the codecs, by Iceberg's."""
_CODECS_WITH_LEVEL: Final = frozenset({"brotli", "gzip", "zstd"})
_CODEC: Final = "write.parquet.compression-codec"
_LEVEL: Final = "write.parquet.compression-level"
_METRICS_DEFAULT: Final = "write.metadata.metrics.default"
_METRICS_COLUMN: Final = "write.metadata.metrics.column."
_MODES: Final = {"none": NO_METRICS, "counts": COUNTS, "full": FULL}
_TRUNCATE: Final = re.compile(r"truncate\((0*[1-9][0-9]*)\)")


def file_format(fmt: FileFormat, properties: Mapping[str, str], name: object) -> FileFormat:
    """Return the settings of the data files of a lake table.

    They are those of the table's properties, else those of `fmt` (Iceberg's configuration, "Write
    properties"; docs/spec/table-properties.md). A target size in `fmt` is one that the user gave,
    and is kept. Row groups never become larger: the memory of a task is planned for those of `fmt`.

    Args:
        fmt: the settings so far.
        properties: of the table.
        name: of the table, for an error.

    Raises:
        RefusedError: a property has a value that it cannot have.
    """

    def number(key: str) -> int | None:
        text = properties.get(key)
        if text is None:
            return None
        if text.isdecimal() and int(text):
            return int(text)
        raise _no_setting(name, key, text, "a number above 0")

    codec, level = fmt.codec, fmt.level
    if (text := properties.get(_CODEC)) is not None:
        if text.lower() not in _CODECS:
            raise _no_setting(name, _CODEC, text, f"one of {', '.join(_CODECS)}")
        codec = _CODECS[text.lower()]
        level = fmt.level if codec == fmt.codec else None
    if (text := properties.get(_LEVEL)) is not None and codec in _CODECS_WITH_LEVEL:
        level = _level(codec, text)
        if level is None:
            least, most = _levels(codec)
            raise _no_setting(name, _LEVEL, text, f"a level of {codec}, {least} to {most}")
    modes = {
        key: _mode(name, key, text)
        for key, text in properties.items()
        if key == _METRICS_DEFAULT or key.startswith(_METRICS_COLUMN)
    }
    group_bytes = number("write.parquet.row-group-size-bytes")
    group_rows = number("write.parquet.row-group-limit")
    return replace(
        fmt,
        target_file_bytes=fmt.target_file_bytes or number("write.target-file-size-bytes"),
        row_group_bytes=min(group_bytes or fmt.row_group_bytes, fmt.row_group_bytes),
        row_group_rows=min(group_rows or fmt.row_group_rows, fmt.row_group_rows),
        page_rows=number("write.parquet.page-row-limit") or fmt.page_rows,
        page_bytes=number("write.parquet.page-size-bytes") or fmt.page_bytes,
        dictionary_bytes=number("write.parquet.dict-size-bytes") or fmt.dictionary_bytes,
        codec=codec,
        level=level,
        bloom_bytes=number("write.parquet.bloom-filter-max-bytes") or fmt.bloom_bytes,
        metrics=modes.get(_METRICS_DEFAULT, fmt.metrics),
        column_metrics=tuple(
            (key.removeprefix(_METRICS_COLUMN), mode)
            for key, mode in sorted(modes.items())
            if key.startswith(_METRICS_COLUMN)
        ),
    )


def _mode(name: object, key: str, text: str) -> MetricsMode:
    if (truncated := _TRUNCATE.fullmatch(text.lower())) is not None:
        return min(int(truncated[1]), FULL)
    if text.lower() in _MODES:
        return _MODES[text.lower()]
    raise _no_setting(name, key, text, "none, counts, truncate(LENGTH) or full")


def _levels(codec: str) -> tuple[int, int]:
    return pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)


def _level(codec: str, text: str) -> int | None:
    """Return the level that a text names; None if the codec has no such level."""
    least, most = _levels(codec)
    is_number = text.removeprefix("-").isdecimal()
    return int(text) if is_number and least <= int(text) <= most else None


def _no_setting(name: object, key: str, text: str, expected: str) -> RefusedError:
    message = (
        f"Cannot write files of {name}: its property {key} is {text!r}, and not {expected}. Set "
        "such a value, or remove the property."
    )
    return RefusedError(message)


_NARROW_ROW_BYTES: Final = 50
_NARROW_PAGE_ROWS: Final = 100_000
# Larger than any row group, so that PyArrow never splits one.
_ONE_GROUP: Final = 1 << 40
_DIGITS_OF_64_BITS: Final = 18
# A dictionary of values that rarely repeat costs CPU time and bytes. Measured on page views: with
# less than half distinct values the dictionary is smaller, with more than half plain values are.
_SAMPLE: Final = 8192
_GREATEST_DISTINCT_SHARE: Final = 0.55
# The default of ClickHouse's `bloom_filter`.
_FALSE_POSITIVES: Final = 0.025
_LEAST_FILTER_BYTES: Final = 32
_LEAST: Final = -(1 << 127)
_EXACT: Final = Context(prec=39)

SortField = tuple[int, bool, bool]
"""Field id, descending, nulls first: an element of `WritePlan.sort_fields`."""


class FileSink(Protocol):
    """The output of one file. Nothing is visible under the file's name before `commit`."""

    def write(self, data: bytes, /) -> None:
        """Append bytes."""
        ...

    def commit(self) -> None:
        """Make the file durable and visible under its name."""
        ...

    def abort(self) -> None:
        """Remove the written bytes; no file is left."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One finished file. `rows` comes from the footer and was compared with the input."""

    rows: int
    bytes: int
    sha256: str
    split_offsets: tuple[int, ...]
    columns: tuple[ColumnStatistics, ...]


def write_file(
    batches: Iterable[pa.RecordBatch],
    sink: FileSink,
    schema: pa.Schema,
    fmt: FileFormat,
    sort: Sequence[SortField],
    *,
    convert: Callable[[pa.Table], pa.Table],
    on_rows: Callable[[int], None] = lambda _: None,
) -> WrittenFile:
    """Write all rows to `sink` and commit it; after any error the sink is aborted.

    Args:
        batches: the rows in file order; consumed as a stream.
        sink: takes the bytes; committed once the footer is written and checked.
        schema: of the file, every leaf with its `PARQUET:field_id`.
        fmt: codec, bounds of row groups and pages, bloom filters.
        sort: the declared order of the rows; it is written to the file, but rows are not sorted.
        convert: converts input tables to `schema`; loses nothing or raises `pa.ArrowInvalid`.
        on_rows: gets the number of rows so far, after each row group.

    Raises:
        pa.ArrowInvalid: a value does not fit the schema, or a string is not UTF-8.
        InternalError: the converted columns do not have `schema`, or rows are missing.
        OSError: the sink cannot be written.
    """
    stream = _HashingStream(sink)
    file = _File(schema, leaves(schema), fmt, sort)
    try:
        rows, facts, footer = _write_groups(batches, stream, file, convert, on_rows)
        _check_rows(rows, footer)
        written = WrittenFile(
            rows=rows,
            bytes=stream.tell(),
            sha256=stream.hexdigest(),
            split_offsets=tuple(_offset(footer.row_group(i)) for i in range(footer.num_row_groups)),
            columns=column_statistics(footer, file.leaves, facts, _metrics_modes(fmt, sort)),
        )
        sink.commit()
    except BaseException:
        # PyArrow may close its file late and must not write a footer to the aborted sink.
        stream.close()
        sink.abort()
        raise
    return written


@dataclass(frozen=True, slots=True)
class _File:
    """The description of a file: its schema with the leaves of it, its format and its order."""

    schema: pa.Schema
    leaves: tuple[Leaf, ...]
    format: FileFormat
    sort: Sequence[SortField]


def _metrics_modes(fmt: FileFormat, sort: Sequence[SortField]) -> Callable[[Leaf], MetricsMode]:
    """Return the metrics mode of each column: columns of the sort order have bounds by default."""
    named, is_sorted = dict(fmt.column_metrics), {field_id for field_id, _, _ in sort}

    def mode(leaf: Leaf) -> MetricsMode:
        least = TRUNCATE_16 if leaf.field_id in is_sorted and fmt.metrics <= COUNTS else fmt.metrics
        return named.get(leaf.name, least)

    return mode


def _check_rows(rows: int, footer: pq.FileMetaData) -> None:
    if footer.num_rows != rows:
        message = (
            f"Cannot finish a file: {rows} rows were written, but its footer has {footer.num_rows}."
        )
        raise InternalError(f"{message} This is a bug, please report it.")


def _write_groups(
    batches: Iterable[pa.RecordBatch],
    stream: _HashingStream,
    file: _File,
    convert: Callable[[pa.Table], pa.Table],
    on_rows: Callable[[int], None],
) -> tuple[int, list[GroupFacts], pq.FileMetaData]:
    """Write one row group after the other; each is freed before the next is collected."""
    schema = file.schema
    collected: list[pq.FileMetaData] = []
    facts: list[GroupFacts] = []
    rows = 0
    writer: pq.ParquetWriter | None = None
    groups = _groups(iter(batches), file.format)
    while (group := next(groups, None)) is not None:
        handed_in = group.num_rows
        table = convert(group)
        del group
        if table.num_rows != handed_in or not table.schema.equals(schema):
            message = f"Cannot write {table.schema} to a file of {schema}."
            raise InternalError(f"{message} This is a bug, please report it.")
        # Strings arrive unchecked, and readers fail on one that is not UTF-8.
        table.validate(full=True)
        _check_decimals(table, file.leaves)
        if writer is None:
            narrow = table.nbytes < _NARROW_ROW_BYTES * table.num_rows
            options = _options(file, narrow=narrow)
            step = handed_in // _SAMPLE
            sample = table.take(pa.arange(0, handed_in, step)) if step > 1 else table
            repeating = [leaf for leaf in file.leaves if _repeats(leaf_values(sample, leaf))]
            options["use_dictionary"] = _paths(file, repeating)
            writer = pq.ParquetWriter(stream, schema, metadata_collector=collected, **options)
        writer.write_table(table, row_group_size=_ONE_GROUP)
        facts.append(group_facts(table, file.leaves))
        rows += handed_in
        del table
        on_rows(rows)
    if writer is None:
        options = _options(file, narrow=False)
        writer = pq.ParquetWriter(stream, schema, metadata_collector=collected, **options)
    writer.close()
    return rows, facts, collected[0]


def _check_decimals(table: pa.Table, file_leaves: Sequence[Leaf]) -> None:
    """Refuse the one decimal that Arrow's validation misses, regardless of the type's digits.

    The least 128-bit number has no absolute value in 128 bits and counts as a small one.
    """
    for leaf in file_leaves:
        if pa.types.is_decimal128(leaf.type) and leaf.type.precision > _DIGITS_OF_64_BITS:
            least = pc.min(leaf_values(table, leaf)).as_py()
            if least is not None and least.scaleb(leaf.type.scale, _EXACT) == _LEAST:
                message = f"Decimal value {least} does not fit in precision of {leaf.type}"
                raise pa.ArrowInvalid(message)


def _groups(batches: Iterator[pa.RecordBatch], fmt: FileFormat) -> Iterator[pa.Table]:
    """Collect batches into tables within both bounds of a row group."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in _pieces(batches, fmt):
        too_many = rows + piece.num_rows > fmt.row_group_rows
        if held and (too_many or size + piece.nbytes > fmt.row_group_bytes):
            table = pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
            yield table
            del table
        held.append(piece)
        rows += piece.num_rows
        size += piece.nbytes
        del piece
    if held:
        yield pa.Table.from_batches(held)


def _pieces(batches: Iterator[pa.RecordBatch], fmt: FileFormat) -> Iterator[pa.RecordBatch]:
    """Split batches that alone exceed a bound; a single row is never split."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        cuts = max(
            -(-batch.num_rows // fmt.row_group_rows), -(-batch.nbytes // fmt.row_group_bytes)
        )
        step = max(1, -(-batch.num_rows // max(1, cuts)))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def _options(file: _File, *, narrow: bool) -> dict[str, Any]:
    """Return the settings of the file (docs/spec/files.md)."""
    fmt = file.format
    index = {leaf.field_id: leaf.index for leaf in file.leaves}
    options: dict[str, Any] = {
        "compression": fmt.codec,
        "write_statistics": _paths(file, [leaf for leaf in file.leaves if in_footer(leaf)]),
        "write_page_index": True,
        "write_page_checksum": True,
        "max_rows_per_page": fmt.page_rows or (_NARROW_PAGE_ROWS if narrow else _PAGE_ROWS),
        "data_page_size": fmt.page_bytes,
        # Iceberg requires the integer types for small decimals.
        "store_decimal_as_integer": True,
        # With the Arrow schema in the footer PyArrow would read other types than other readers.
        "store_schema": False,
        "sorting_columns": [
            pq.SortingColumn(index[field_id], descending=descending, nulls_first=nulls_first)
            for field_id, descending, nulls_first in file.sort
        ]
        or None,
    }
    if fmt.level is not None:
        options["compression_level"] = fmt.level
    if fmt.dictionary_bytes is not None:
        options["dictionary_pagesize_limit"] = fmt.dictionary_bytes
    if fmt.bloom_columns:
        missing = [name for name in fmt.bloom_columns if name not in file.schema.names]
        if missing:
            message = f"Cannot write bloom filters: the file has no column {missing[0]!r}."
            raise InternalError(f"{message} This is a bug, please report it.")
        values = max(1, min(fmt.bloom_values, fmt.row_group_rows, _most_values(fmt.bloom_bytes)))
        size = {"ndv": values, "fpp": _FALSE_POSITIVES}
        options["bloom_filter_options"] = dict.fromkeys(fmt.bloom_columns, size)
    return options


def _most_values(most_bytes: int) -> int:
    """Return for how many distinct values a bloom filter may have at most so many bytes.

    PyArrow rounds the bits that a filter needs up to a power of two (Parquet's specification, split
    block bloom filters).
    """
    bits = 1 << (max(most_bytes, _LEAST_FILTER_BYTES) * 8).bit_length() - 1
    return int(bits * -math.log1p(-(_FALSE_POSITIVES ** (1 / 8))) / 8)


def _repeats(sample: pa.ChunkedArray) -> bool:
    """Whether the values of a column repeat often enough for a dictionary.

    The sample is spread over a row group, so that the runs of a sorted column count as distinct
    values: they compress better without a dictionary.
    """
    values = sample.drop_null()
    if isinstance(values.type, pa.BaseExtensionType):
        # The functions of Arrow take no UUIDs, only their bytes.
        values = values.cast(values.type.storage_type)
    # This takes half the time of `count_distinct`.
    return len(pc.unique(values)) <= _GREATEST_DISTINCT_SHARE * len(values)


def _paths(file: _File, some: Sequence[Leaf]) -> bool | list[str]:
    """Return leaves of a file as PyArrow's options take them: True for all, or their paths."""
    if len(some) == len(file.leaves):
        return True
    if all(len(leaf.path) == 1 for leaf in some):
        return [leaf.name for leaf in some]
    empty = io.BytesIO()
    pq.ParquetWriter(empty, file.schema).close()
    paths = pq.read_metadata(empty).schema
    return [paths.column(leaf.index).path for leaf in some]


def _offset(group: pq.RowGroupMetaData) -> int:
    """Return the start of a row group: its first dictionary or data page."""
    first = group.column(0)
    dictionary = first.dictionary_page_offset
    return int(first.data_page_offset if dictionary is None else dictionary)


class _HashingStream:
    """The file object for PyArrow: it passes bytes on, counts and hashes them."""

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink
        self._digest = hashlib.sha256()
        self._size = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        if not self.closed:
            self._sink.write(data)
            self._digest.update(data)
            self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: `FileSink.commit` makes the file durable."""

    def close(self) -> None:
        self.closed = True

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

"""Reads data files a second time, with pyarrow: counts and sums to compare with ClickHouse's.

Two readers without common code do not misread a file in the same way. docs/spec/digest.md lists
what is counted and summed for each type. Only this reader counts NULLs inside arrays, tuples and
maps, because ClickHouse reads a NULL array as an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableformat.iceberg.read_columns import FileColumn
from tableformat.mergetree.types import (
    Array,
    DataType,
    DateTime64,
    Decimal,
    FixedString,
    Nullable,
    Simple,
    Tuple,
)

__all__ = ["ColumnTally", "FileTally", "tally_file"]

_BATCH_ROWS: Final = 16_384
_MODULUS: Final = 1 << 64
_NAN: Final = 0x7FF8000000000000
_WORDS: Final = 2
_NARROW: Final = (pa.bool_(), pa.int8(), pa.int16(), pa.int32())


@dataclass(frozen=True, slots=True)
class ColumnTally:
    """The NULLs of a column at every depth, its other values, and their sum modulo 2 ** 64."""

    nulls: int = 0
    values: int = 0
    total: int = 0

    def __add__(self, other: ColumnTally) -> ColumnTally:
        """Return the sum of both."""
        total = (self.total + other.total) % _MODULUS
        return ColumnTally(self.nulls + other.nulls, self.values + other.values, total)


@dataclass(frozen=True, slots=True)
class FileTally:
    """The rows of a file, and the figures of its columns in the requested order."""

    rows: int
    columns: tuple[ColumnTally, ...]


def tally_file(
    path: Path, columns: Sequence[FileColumn], on_rows: Callable[[int], None] = lambda _: None
) -> FileTally:
    """Count and sum the columns of a file, batch by batch.

    Args:
        path: the file.
        columns: the columns, as they are to be read.
        on_rows: called with the number of rows of each batch. An error that it raises ends the
            reading.

    Raises:
        OSError: the file cannot be read.
        pa.ArrowException: it is no Parquet file, is damaged, or a column has another type.
    """
    found = [ColumnTally() for _ in columns]
    rows = 0
    wanted = [c.written for c in columns if c.written is not None]
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=_paths(file, wanted)):
            rows += batch.num_rows
            on_rows(batch.num_rows)
            for i, column in enumerate(columns):
                array = None if column.written is None else batch.column(column.written)
                found[i] += _tally(array, column.type, batch.num_rows)
        if not wanted:
            rows = file.metadata.num_rows
            found = [_tally(None, c.type, rows) for c in columns]
    return FileTally(rows, tuple(found))


def _paths(file: pq.ParquetFile, wanted: list[str]) -> list[str]:
    """Return the columns to read: all if a name has a dot, because such a column cannot be named.

    Iceberg's writers use no dots in names.
    """
    return wanted if not any("." in name for name in wanted) else file.schema_arrow.names


def _tally(array: pa.Array | None, of: DataType, rows: int) -> ColumnTally:
    """Count and sum one array; a column that the file lacks is NULL in every row."""
    if array is None:
        return ColumnTally(nulls=rows)
    tally = ColumnTally(nulls=array.null_count)
    # Not drop_null(): if all values are NULL it creates an empty array, which pyarrow does not
    # support for every type.
    valid = array.filter(array.is_valid()) if tally.nulls else array
    match of:
        case Array(Tuple(elements)) if pa.types.is_map(valid.type):
            (_, keys), (_, values) = elements
            pairs = pc.list_flatten(
                valid.cast(pa.list_(pa.struct([valid.type.key_field, valid.type.item_field])))
            )
            return tally + _member(pairs, 0, keys) + _member(pairs, 1, values)
        case Array(inner):
            flat = pc.list_flatten(valid)
            return tally + _tally(flat, inner, len(flat))
        case Tuple(elements):
            for name, inner in elements:
                position = valid.type.get_field_index(str(name))
                tally += (
                    _member(valid, position, inner)
                    if position >= 0
                    else _tally(None, inner, len(valid))
                )
            return tally
        case Nullable(inner):
            return tally + ColumnTally(values=len(valid), total=_total(valid, inner))
        case _:
            message = f"a value is read as {of!r}"
            raise pa.ArrowNotImplementedError(message)


def _member(structs: pa.Array, position: int, of: DataType) -> ColumnTally:
    return _tally(pc.struct_field(structs, [position]), of, len(structs))


def _total(values: pa.Array, of: DataType) -> int:
    """Return the sum of the values that are not NULL, modulo 2 ** 64."""
    match of:
        case Simple("String"):
            return _sum(pc.binary_length(values))
        case FixedString(length):
            return length * len(values)
        case Simple("UUID"):
            return 16 * len(values)
        case Decimal(_, scale):
            is_read_so = pa.types.is_decimal128(values.type) and values.type.scale == scale
            wide = values if is_read_so else values.cast(pa.decimal128(38, scale))
            return _sum(_low_words(wide))
        case Simple("Float32" | "Float64"):
            wide = values.cast(pa.float64())
            bits = wide.view(pa.int64())
            return _sum(pc.if_else(pc.is_nan(wide), pa.scalar(_NAN, pa.int64()), bits))
        case DateTime64():
            return _sum(values.cast(pa.timestamp("us", tz="UTC")).view(pa.int64()))
        case Simple("Date32"):
            return _sum(values.cast(pa.date32()).view(pa.int32()))
        case _:
            return _sum(values)


def _low_words(decimals: pa.Array) -> pa.Array:
    """Return the lower 64 bits of the unscaled numbers."""
    words = pa.Array.from_buffers(
        pa.int64(),
        _WORDS * len(decimals),
        [None, decimals.buffers()[1]],
        offset=_WORDS * decimals.offset,
    )
    return pc.list_element(pa.FixedSizeListArray.from_arrays(words, _WORDS), 0)


def _sum(numbers: pa.Array) -> int:
    """Return the exact sum modulo 2 ** 64."""
    # pyarrow adds unsigned numbers modulo 2 ** 64, and narrow ones in 64 bits.
    addends = numbers if numbers.type in _NARROW else numbers.cast(pa.int64()).view(pa.uint64())
    total: int = pc.sum(addends).as_py() or 0
    return total % _MODULUS

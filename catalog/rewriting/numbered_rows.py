"""Reads rows of one data file by their numbers, in batches."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.clickhouse.rows.files import FILE_NUMBER, ROW_NUMBER
from tableformat.iceberg.arrow_schema import columns_of_file
from tableformat.parquet.writer import FileFormat

__all__ = ["NumberedRows", "in_order", "set_values", "with_values"]

_MOST_ROWS: Final = 65_536
_GROUP_BYTES: Final = FileFormat().row_group_bytes


class NumberedRows:
    """Reads a file once if the numbers ascend; otherwise it holds the whole file in memory."""

    def __init__(
        self, parquet: pq.ParquetFile, schema: Schema, held_bytes: int = _GROUP_BYTES
    ) -> None:
        """Start before the first row.

        Args:
            parquet: the file; closed by `close`.
            schema: the lake table's schema, which the returned rows have.
            held_bytes: about how many bytes of the file to hold in memory while the numbers ascend.
        """
        self.parquet, self._schema = parquet, schema
        self.row_bytes = _row_bytes(parquet.metadata)
        batch = _within(held_bytes, self.row_bytes)
        self._batches: Iterator[pa.RecordBatch] = parquet.iter_batches(batch)
        self._begin = self._end = 0
        self._batch: pa.Table | None = None
        self._whole: pa.Table | None = None

    def close(self) -> None:
        """Close the file."""
        self.parquet.close()

    def take(self, numbers: pa.Array) -> pa.Table:
        """Return rows, in the form of `tableformat.iceberg.arrow_schema.columns_of_file`.

        Args:
            numbers: of the rows, from 0; at least one.

        Raises:
            OSError: the file has no such row, or cannot be read.
            UnsupportedError: another engine wrote a column in a form that cannot be kept.
        """
        numbers = numbers.cast(pa.int64())
        if self._whole is None and not self._is_ahead(numbers):
            self._batch, self._whole = None, self._shown(self.parquet.read())
        if self._whole is not None:
            return self._whole.take(numbers)
        found, at = [], 0
        while at < len(numbers):
            upto = _below(numbers, self._end, at)
            if upto > at and self._batch is not None:
                found.append(self._batch.take(pc.subtract(numbers[at:upto], self._begin)))
            at = upto
            if at < len(numbers):
                self._read_next()
        return pa.concat_tables(found)

    def _is_ahead(self, numbers: pa.Array) -> bool:
        """Whether the numbers ascend and none is before the current batch."""
        ascend = pc.all(pc.less(numbers[:-1], numbers[1:]), min_count=0).as_py()
        return bool(ascend) and numbers[0].as_py() >= self._begin

    def _read_next(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            message = f"it has {self._end:,} rows, and one more was requested"
            raise OSError(message)
        self._begin, self._end = self._end, self._end + batch.num_rows
        self._batch = self._shown(pa.Table.from_batches([batch]))

    def _shown(self, table: pa.Table) -> pa.Table:
        return columns_of_file(table, self._schema)


def _below(numbers: pa.Array, end: int, at: int) -> int:
    """Return how many of ascending numbers are less than `end`, but at least `at`."""
    below: int = pc.sum(pc.less(numbers, end), min_count=0).as_py()
    return max(at, below)


def in_order(
    opened: Sequence[NumberedRows], numbers: pa.Table
) -> Generator[pa.RecordBatch, None, None]:
    """Yield rows of files in a given order, in batches that fit into memory.

    Args:
        opened: the files.
        numbers: of the rows: `FILE_NUMBER` is an index of `opened`, `ROW_NUMBER` is in that file.

    Raises:
        OSError: as `NumberedRows.take`.
        UnsupportedError: as `NumberedRows.take`.
    """
    most = _within(_GROUP_BYTES, max((one.row_bytes for one in opened), default=1))
    for chunk in numbers.to_batches(max_chunksize=most):
        files, rows = chunk.column(FILE_NUMBER), chunk.column(ROW_NUMBER)
        # A stable sort, so that the rows of a file keep their order.
        by_file = pc.array_sort_indices(files)
        found = pa.concat_tables(_by_file(opened, files.take(by_file), rows.take(by_file)))
        back = pc.inverse_permutation(by_file.cast(pa.int64()))
        yield from found.take(back).combine_chunks().to_batches()


def with_values(
    rows: Iterable[pa.RecordBatch], values: pa.Table, names: Sequence[str]
) -> Generator[pa.RecordBatch, None, None]:
    """Yield rows with the values of some columns replaced.

    Args:
        rows: in order.
        values: of the same rows, as ClickHouse exports them.
        names: the columns to replace.
    """
    begin = 0
    for batch in rows:
        replacing = values.slice(begin, batch.num_rows)
        begin += batch.num_rows
        yield from set_values(pa.Table.from_batches([batch]), replacing, names).to_batches()


def set_values(rows: pa.Table, values: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows as one chunk, with the values of some columns replaced."""
    for name in names:
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, values.schema.field(name), values.column(name))
    return rows.combine_chunks()


def _by_file(opened: Sequence[NumberedRows], files: pa.Array, rows: pa.Array) -> Iterable[pa.Table]:
    runs = pc.run_end_encode(files)
    begin = 0
    for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield opened[number].take(rows.slice(begin, end - begin))
        begin = end


def _row_bytes(of: pq.FileMetaData) -> int:
    """Return an upper estimate of the bytes of a row in memory.

    The sizes in a file are without compression, but with repeated values stored once. Files that we
    write have row groups of bounded memory (`FileFormat`), so a row group is assumed to be full.
    """
    groups = [g for i in range(of.num_row_groups) if (g := of.row_group(i)).num_rows]
    encoded = max((g.total_byte_size // g.num_rows for g in groups), default=0)
    return max(1, encoded, _GROUP_BYTES // max((g.num_rows for g in groups), default=1))


def _within(most_bytes: int, row_bytes: int) -> int:
    return max(1, min(_MOST_ROWS, most_bytes // row_bytes))

"""Rows of one data file by their numbers, as they are asked for one batch after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from tableformat.iceberg.arrow_schema import columns_of_file

__all__ = ["NumberedRows"]

_CHUNK: Final = 65_536


class NumberedRows:
    """Reads a file once while the numbers ascend; where they do not, it is held as a whole."""

    def __init__(self, parquet: pq.ParquetFile, schema: Schema) -> None:
        """Begin before the first row.

        Args:
            parquet: the file; closed by `close`.
            schema: the lake table's, in whose form rows are returned.
        """
        self.parquet, self._schema = parquet, schema
        self._batches: Iterator[pa.RecordBatch] = parquet.iter_batches(_CHUNK)
        self._begin = self._end = 0
        self._here: pa.Table | None = None
        self._whole: pa.Table | None = None

    def close(self) -> None:
        """Close the file."""
        self.parquet.close()

    def take(self, numbers: pa.Array) -> pa.Table:
        """Return rows, in the form of `tableformat.iceberg.arrow_schema.columns_of_file`.

        Args:
            numbers: of the rows, from 0, at least one.

        Raises:
            OSError: the file has no such row, or cannot be read.
            UnsupportedError: another engine wrote a column in a form that cannot be kept.
        """
        numbers = numbers.cast(pa.int64())
        if self._whole is None and not self._is_ahead(numbers):
            self._here, self._whole = None, self._shown(self.parquet.read())
        if self._whole is not None:
            return self._whole.take(numbers)
        found, at = [], 0
        while at < len(numbers):
            upto = _below(numbers, self._end, at)
            if upto > at and self._here is not None:
                found.append(self._here.take(pc.subtract(numbers[at:upto], self._begin)))
            at = upto
            if at < len(numbers):
                self._go_on()
        return pa.concat_tables(found)

    def _is_ahead(self, numbers: pa.Array) -> bool:
        """Whether none of the numbers is behind what was read, and each is above the one before."""
        ascend = pc.all(pc.less(numbers[:-1], numbers[1:]), min_count=0).as_py()
        return bool(ascend) and numbers[0].as_py() >= self._begin

    def _go_on(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            message = f"it has {self._end:,} rows, and another one is asked for"
            raise OSError(message)
        self._begin, self._end = self._end, self._end + batch.num_rows
        self._here = self._shown(pa.Table.from_batches([batch]))

    def _shown(self, table: pa.Table) -> pa.Table:
        return columns_of_file(table, self._schema)


def _below(numbers: pa.Array, end: int, at: int) -> int:
    """Return how many of ascending numbers are below an end, no fewer than `at`."""
    below: int = pc.sum(pc.less(numbers, end), min_count=0).as_py()
    return max(at, below)

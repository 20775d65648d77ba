"""Which rows of data files are left when they are merged, and in which order, by ClickHouse.

A ClickHouse of our own, empty and gone afterwards, gets the columns of a merge from each file
(`file_rows.py`), and the number of each row in its file. The engine that a lake table remembers
merges them; what it leaves is told by these numbers, so that no other column is read at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema

from catalog.clickhouse.connection import ClickHouseError, whole
from catalog.clickhouse.file_rows import FILE_NUMBER, ROW_NUMBER, FileRows, numbered
from catalog.clickhouse.own import OwnClickHouse
from catalog.clickhouse.partition_values import KeyTables
from catalog.closing import Closing
from catalog.storages.opening import Opens
from tableformat.branches import BranchFile
from tableformat.errors import RefusedError, SourceError
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.row_change_limits import refuse_merged_columns
from tableformat.mergetree.row_change import without_default
from tableformat.mergetree.row_merge import RowMerge, columns_of_merge, refuse_merge, unclear_rows
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_string
from tableformat.parquet.wire import order_by

__all__ = ["MergedRows"]

_AS_IS: Final = "default.as_is"
_ROWS: Final = "default.rows"
_MERGED: Final = "default.merged"
# Numbers of more rows are sorted on disk.
_SORT: Final = "max_bytes_before_external_sort = 1073741824"


class MergedRows(Closing):
    """Says which rows of files a merge leaves, and keeps their numbers until `close`.

    A `tableformat.operations.optimize.RowsLeft`, and a `catalog.merged_files.OrderedRows`. The
    ClickHouse is started by the first question; a context manager: leaving it closes.
    """

    def __init__(
        self,
        source: RememberedSource,
        storages: Opens,
        schema: Schema,
        merge: RowMerge,
        *,
        threads: int = 0,
    ) -> None:
        """Look at the merge; nothing is started yet.

        Args:
            source: what the lake table remembers.
            storages: open what locations belong to.
            schema: of the table, as which the files are read.
            merge: what becomes of the rows.
            threads: of the ClickHouse, 0 for as many as there are processors.

        Raises:
            UnsupportedError: the engine's merges, or a column that they need, cannot be had.
        """
        self._source, self._storages, self._merge = source, storages, merge
        self._columns = columns_of_merge(merge, source.table)
        self._schema, self._threads = schema, threads
        refuse_merge(merge, source.table.engine)
        refuse_merged_columns(merge, self._columns, source, self._schema)
        self._held: OwnClickHouse | None = None
        self._found: dict[tuple[BranchFile, ...], tuple[int, Path]] = {}

    def close(self) -> None:
        """End the ClickHouse, if it was started. Closing twice is the same as once."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def __call__(self, files: tuple[BranchFile, ...]) -> int:
        """Return how many rows of files are left.

        Raises:
            RefusedError: ClickHouse refuses the statement (its code and text), or which rows are
                left cannot be told.
            DestinationError: a file cannot be read.
            SourceError: ClickHouse does not start.
        """
        return self._asked(files)[0]

    @contextmanager
    def ordered(self, files: tuple[BranchFile, ...]) -> Iterator[pa.Table]:
        """Lend the numbers of the rows that are left: `FILE_NUMBER` in `files`, `ROW_NUMBER` in it.

        In the sorting order; mapped, not read.

        Raises:
            TableFormatError: as when it is asked how many there are.
        """
        _, path = self._asked(files)
        with pa.memory_map(str(path)) as left, pa.ipc.open_stream(left) as stream:
            yield stream.read_all()

    def _asked(self, files: tuple[BranchFile, ...]) -> tuple[int, Path]:
        if files not in self._found:
            held = self._opened()
            self._fill(held, files)
            try:
                merged = self._merged(held)
                self._found[files] = (self._count(held, merged), self._numbers(held, merged))
            except ClickHouseError as error:
                message = f"Cannot run {self._merge.command}: {error.reason.rstrip('.')}."
                raise SourceError(message, code=error.code) from error
        return self._found[files]

    def _opened(self) -> OwnClickHouse:
        """Start the ClickHouse, and let a table without rows take the statement."""
        if self._held is not None:
            return self._held
        table = self._source.table
        self._held = OwnClickHouse("merge", zone=table.server_zone or "UTC")
        self._held.command(f"SET max_threads = {self._threads}")
        tables = KeyTables(self._held, table)
        numbers = numbered(FILE_NUMBER, ROW_NUMBER)
        every = tuple(without_default(c) for c in table.columns if c.stored)
        try:
            tables.make_as_is(_AS_IS, every)
            self._held.command(f"OPTIMIZE TABLE {_AS_IS} {self._merge.words}")
            # By file, so that what is read of one is not all of them.
            tables.make(_ROWS, (*self._columns, *numbers), FILE_NUMBER)
            if not self._merge.leaves_all:
                tables.make_as_is(_MERGED, (*self._columns, *numbers), merges=self._merge.merges)
        except ClickHouseError as error:
            message = f"Cannot run {self._merge.command}: {error.reason.rstrip('.')}."
            raise RefusedError(message, code=error.code) from error
        return self._held

    def _fill(self, held: OwnClickHouse, files: tuple[BranchFile, ...]) -> None:
        held.command(f"TRUNCATE TABLE {_ROWS}")
        rows = FileRows(
            held, self._storages, self._source, self._schema, self._columns, self._merge.command
        )
        for number, file in enumerate(files):
            rows.insert(file, _ROWS, number)

    def _merged(self, held: OwnClickHouse) -> str:
        """Return the table that has the rows that are left."""
        if self._merge.leaves_all:
            return _ROWS
        unclear = unclear_rows(self._merge, self._source.table.engine, _ROWS)
        if unclear and held.rows(f"{unclear} SETTINGS {_SORT}"):
            message = (
                f"Cannot run {self._merge.command}: rows of one sorting key are alike to "
                f"{self._source.table.engine.family}, and which of them was inserted last its data "
                "files do not say. Run it in ClickHouse and export the partition again; where such "
                "rows are the same in all columns, run OPTIMIZE TABLE … DEDUPLICATE first."
            )
            raise RefusedError(message)
        held.command(f"TRUNCATE TABLE {_MERGED}")
        # So that of rows that are the same the first in the order of the files stays.
        held.command(
            f"INSERT INTO {_MERGED} SELECT * FROM {_ROWS} ORDER BY {FILE_NUMBER}, {ROW_NUMBER}"
            f" SETTINGS {_SORT}, max_threads = 1, max_insert_threads = 1,"
            " max_partitions_per_insert_block = 0"
        )
        # What ClickHouse did not merge, for want of room or time, it would pass over in silence.
        held.command(
            f"OPTIMIZE TABLE {_MERGED} {self._merge.words} SETTINGS optimize_throw_if_noop = 1"
        )
        return _MERGED

    def _count(self, held: OwnClickHouse, table: str) -> int:
        ((found,),) = held.rows(f"SELECT count() FROM {table}")
        return whole(found)

    def _numbers(self, held: OwnClickHouse, table: str) -> Path:
        """Keep the numbers of the rows of a table in the source's order."""
        path = held.directory / f"order-{len(self._found)}.arrow"
        keys = order_by(self._source.table.engine)
        numbers = f"{SOURCE_ALIAS}.{FILE_NUMBER}, {SOURCE_ALIAS}.{ROW_NUMBER}"
        held.command(
            f"INSERT INTO FUNCTION file({quote_string(str(path))}, ArrowStream)"
            f" SELECT {FILE_NUMBER}, {ROW_NUMBER} FROM {table} AS {SOURCE_ALIAS}"
            f" ORDER BY {', '.join(part for part in (keys, numbers) if part)}"
            f" SETTINGS {_SORT}, {WIRE_SETTINGS}, engine_file_truncate_on_insert = 1"
        )
        return path

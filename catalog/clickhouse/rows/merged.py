"""Merges rows of data files in our own ClickHouse, and returns the remaining rows in order.

The temporary ClickHouse gets the columns of a merge from each file (`files.py`), and the number of
each row in its file. It merges them with the engine of the lake table's source. The result has the
numbers of the remaining rows, so that no other column is read, and the values that the merge
computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema

from catalog.clickhouse.connection import ClickHouseError, whole
from catalog.clickhouse.embedded import LEAST_SECONDS, OwnClickHouse
from catalog.clickhouse.rows.files import FILE_NUMBER, ROW_NUMBER, FileRows, numbered
from catalog.clickhouse.rows.partitions import KeyTables
from catalog.processes import Closing
from catalog.storages.schemes import Opens
from tableformat.committer import BranchFile
from tableformat.errors import InternalError, RefusedError, SourceError
from tableformat.export.data_checks import broken, checks_sql, data_checks
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.definition_sql import evaluated_zone
from tableformat.mergetree.final_merge import (
    OrderCheck,
    RowMerge,
    ambiguous_rows,
    ambiguous_values,
    columns_of_merge,
    deduplication_advice,
    merged_columns,
    order_checks,
    refuse_merge,
    row_hash,
)
from tableformat.mergetree.row_change import without_default
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import Simple, Tuple
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string
from tableformat.operations.rewrite import Left
from tableformat.parquet.columns import order_by, select_list

__all__ = ["MergedRows"]

_AS_IS: Final = "default.as_is"
_ROWS: Final = "default.rows"
_MERGED: Final = "default.merged"
# A tuple: merges never compute with this type, and both numbers always come from one row.
_PLACE: Final = Column(
    "mergeberg_place",
    Tuple(((None, Simple("UInt64")), (None, Simple("UInt64")))),
    "Tuple(UInt64, UInt64)",
)
_LEFT: Final = (
    f"(SELECT *, tupleElement({_PLACE.name}, 1) AS {FILE_NUMBER},"
    f" tupleElement({_PLACE.name}, 2) AS {ROW_NUMBER} FROM {_MERGED})"
)
# Larger sorts use the disk.
_SORT: Final = "max_bytes_before_external_sort = 1073741824"
_GROUP: Final = "max_bytes_before_external_group_by = 1073741824"


class MergedRows(Closing):
    """Merges rows of files, and keeps the numbers of the remaining rows until `close`.

    It implements `tableformat.operations.rewrite.RowsLeft` and
    `catalog.rewriting.merged_files.OrderedRows`. The first call starts the ClickHouse; leaving the
    context closes it. The merge computes the values of the columns `computed`.
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
        """Check the merge; nothing is started yet.

        Args:
            source: the ClickHouse table, as the lake table stores it.
            storages: open the storages of locations.
            schema: of the table, for reading the files.
            merge: the merge.
            threads: of the ClickHouse, 0 for the number of processors.

        Raises:
            UnsupportedError: the engine's merges are not supported.
        """
        self._source, self._storages, self._merge = source, storages, merge
        self._schema, self._threads = schema, threads
        refuse_merge(merge, source.table.engine)
        self._columns = columns_of_merge(merge, source.table)
        self._values = merged_columns(source.table) if merge.merges else ()
        self.computed = tuple(one.column for one in self._values if one.computed)
        self._held: OwnClickHouse | None = None
        self._rows: FileRows | None = None
        self._found: dict[tuple[BranchFile, ...], tuple[Left, Path]] = {}

    @property
    def sets(self) -> tuple[str, ...]:
        """The columns whose values may differ from the files'."""
        return tuple(c.name for c in self.computed)

    def close(self) -> None:
        """End the ClickHouse, if it runs. Closing again does nothing."""
        held, self._held, self._rows = self._held, None, None
        if held is not None:
            held.close()

    def __call__(self, files: tuple[BranchFile, ...]) -> Left:
        """Return the counts of the remaining rows of files.

        Raises:
            RefusedError: ClickHouse refuses the statement (its code and text), the result depends
                on the order of rows, or a value does not fit the lake's types.
            DestinationError: a file cannot be read.
            SourceError: ClickHouse does not start.
        """
        return self._merged_files(files)[0]

    @contextmanager
    def ordered(self, files: tuple[BranchFile, ...]) -> Iterator[pa.Table]:
        """Open the numbers of the remaining rows: `FILE_NUMBER` in `files`, `ROW_NUMBER` in it.

        The table also has the values of `sets`, as ClickHouse exports them. It is in the sorting
        order, and memory-mapped.

        Raises:
            TableFormatError: as `__call__`.
        """
        _, path = self._merged_files(files)
        with pa.memory_map(str(path)) as left, pa.ipc.open_stream(left) as stream:
            yield stream.read_all()

    def _merged_files(self, files: tuple[BranchFile, ...]) -> tuple[Left, Path]:
        if files not in self._found:
            held = self._opened()
            self._fill(held, files)
            try:
                merged = self._merged(held)
                self._found[files] = (self._left(held, merged), self._numbers(held, merged))
            except ClickHouseError as error:
                message = f"Cannot run {self._merge.command}: {error.reason.rstrip('.')}."
                raise SourceError(message, code=error.code) from error
        return self._found[files]

    def _opened(self) -> OwnClickHouse:
        """Start the ClickHouse, and run the statement on an empty table."""
        if self._held is not None:
            return self._held
        table = self._source.table
        zone = evaluated_zone(table.server_zone) or "UTC"
        self._held = OwnClickHouse("merge", zone=zone, seconds=LEAST_SECONDS)
        self._held.command(f"SET max_threads = {self._threads}")
        tables = KeyTables(self._held, table)
        numbers = numbered(FILE_NUMBER, ROW_NUMBER)
        every = tuple(without_default(c) for c in table.columns if c.stored)
        try:
            tables.make_as_is(_AS_IS, every)
            self._held.command(f"OPTIMIZE TABLE {_AS_IS} {self._merge.words}")
            # Partitioned by file, so that reading one file's rows does not scan the others.
            tables.make(_ROWS, (*self._columns, *numbers), FILE_NUMBER)
            if not self._merge.leaves_all:
                tables.make_merging(_MERGED, (*self._columns, _PLACE), merges=self._merge.merges)
        except ClickHouseError as error:
            message = f"Cannot run {self._merge.command}: {error.reason.rstrip('.')}."
            raise RefusedError(message, code=error.code) from error
        return self._held

    def _fill(self, held: OwnClickHouse, files: tuple[BranchFile, ...]) -> None:
        held.allow(sum(file.rows for file in files), sum(file.bytes for file in files))
        if self._rows is None:
            table, tables = self._source.table, (_ROWS, _MERGED)[: 1 + (not self._merge.leaves_all)]
            alone = columns_of_merge(replace(self._merge, duplicates=()), table)
            optional = frozenset(c.name for c in self._columns) - {c.name for c in alone}
            of_table = held, self._storages, self._source, self._schema, self._columns
            self._rows = FileRows(*of_table, self._merge.command, tables, optional)
        rows = self._rows
        rows.begin()
        for number, file in enumerate(files):
            rows.insert(file, _ROWS, number)

    def _merged(self, held: OwnClickHouse) -> str:
        """Return the table with the remaining rows."""
        if self._merge.leaves_all:
            return _ROWS
        engine = self._source.table.engine
        unclear = ambiguous_rows(self._merge, engine, _ROWS, self._columns)
        if unclear and held.rows(f"{unclear} SETTINGS {_SORT}"):
            message = (
                f"Cannot run {self._merge.command}: rows of one sorting key are alike to "
                f"{engine.family}, and which of them was inserted last its data files do not say. "
                "Run it in ClickHouse and export the partition again"
                f"{deduplication_advice(engine)}."
            )
            raise RefusedError(message)
        self._refuse_unclear_values(held)
        held.command(f"TRUNCATE TABLE {_MERGED}")
        names = ", ".join(quote_identifier(c.name) for c in self._columns)
        # Sorted, so that of equal rows the first one in the order of the files is kept.
        held.command(
            f"INSERT INTO {_MERGED} SELECT {names}, tuple({FILE_NUMBER}, {ROW_NUMBER}) FROM {_ROWS}"
            f" ORDER BY {FILE_NUMBER}, {ROW_NUMBER}"
            f" SETTINGS {_SORT}, max_threads = 1, max_insert_threads = 1, optimize_on_insert = 0,"
            " max_partitions_per_insert_block = 0"
        )
        # By default ClickHouse silently skips a merge for which it lacks space or time.
        held.command(
            f"OPTIMIZE TABLE {_MERGED} {self._merge.words} SETTINGS optimize_throw_if_noop = 1"
        )
        return _LEFT

    def _refuse_unclear_values(self, held: OwnClickHouse) -> None:
        """Refuse values that depend on the order in which rows were inserted.

        Raises:
            RefusedError: some do; the message names the columns.
        """
        unclear = self._unclear(held, order_checks(self._values))
        if not unclear:
            return
        by_column = self._unclear(held, tuple(one for q in unclear for one in q.by_column))
        reasons_by_column = "; ".join(
            f"{', '.join(one.names)}: {one.dependence.value}" for one in by_column
        )
        message = (
            f"Cannot run {self._merge.command}: what {self._source.table.engine.family} leaves of "
            "rows of one sorting key depends on the order in which they were inserted, which data "
            f"files do not say ({reasons_by_column}). Run it in ClickHouse and export the "
            "partition again."
        )
        raise RefusedError(message)

    def _unclear(self, held: OwnClickHouse, checks: Sequence[OrderCheck]) -> tuple[OrderCheck, ...]:
        if not checks:
            return ()
        sql = ambiguous_values(checks, self._source.table.engine, _ROWS)
        (found,) = held.rows(f"{sql} SETTINGS {_SORT}")
        return tuple(one for one, is_unclear in zip(checks, found, strict=True) if is_unclear)

    def _left(self, held: OwnClickHouse, table: str) -> Left:
        """Count the remaining rows, and those of them that are unchanged.

        Raises:
            RefusedError: a value does not fit the lake's types.
            InternalError: a column has changed that the merge does not compute.
        """
        ((found,),) = held.rows(f"SELECT count() FROM {table}")
        rows = whole(found)
        if not self._values or not rows:
            return Left(rows, rows)
        self._refuse_values(held, table)
        as_before, in_others = held.rows(self._compared(table))[0]
        if whole(in_others) != rows:
            message = (
                f"Cannot run {self._merge.command}: ClickHouse computed values of other columns "
                f"than ({', '.join(self.sets)}); this is a bug, please report it."
            )
            raise InternalError(message)
        return Left(rows, whole(as_before))

    def _compared(self, table: str) -> str:
        """Return a query that counts unchanged rows, and rows unchanged except for `sets`."""
        every = [c.name for c in self._columns]
        others = [name for name in every if name not in self.sets]
        numbers = f"{FILE_NUMBER}, {ROW_NUMBER}"
        hashes = f"{row_hash(every)} AS every, {row_hash(others) if others else '0'} AS others"
        both = " UNION ALL ".join(
            f"SELECT {numbers}, {hashes} FROM {one} AS {SOURCE_ALIAS}" for one in (_ROWS, table)
        )
        return (
            "SELECT countIf(n = 2 AND as_is), countIf(n = 2 AND but_sets) FROM"
            " (SELECT count() AS n, min(every) = max(every) AS as_is,"
            " min(others) = max(others) AS but_sets"
            f" FROM ({both}) GROUP BY {numbers}) SETTINGS {_GROUP}"
        )

    def _refuse_values(self, held: OwnClickHouse, table: str) -> None:
        """Refuse values that do not fit the lake's types, as an export does.

        Raises:
            RefusedError: the merge computed some.
        """
        mapped = map_columns(self._source.table, self._source.conversions)
        checks = tuple(c for c in data_checks(mapped) if c.column in self.sets)
        if not checks:
            return
        (found,) = held.rows(f"SELECT {checks_sql(checks)} FROM {table} AS {SOURCE_ALIAS}")
        if reasons := broken(checks, found):
            raise RefusedError(f"Cannot run {self._merge.command}: {reasons}")

    def _numbers(self, held: OwnClickHouse, table: str) -> Path:
        """Write the numbers of a table's rows in the source's order, and the computed values."""
        path = held.directory / f"order-{len(self._found)}.arrow"
        keys = order_by(self._source.table.engine)
        numbers = f"{SOURCE_ALIAS}.{FILE_NUMBER}, {SOURCE_ALIAS}.{ROW_NUMBER}"
        values = select_list(self.computed, self._source.conversions)
        shown = ", ".join(part for part in (FILE_NUMBER, ROW_NUMBER, values) if part)
        held.command(
            f"INSERT INTO FUNCTION file({quote_string(str(path))}, ArrowStream)"
            f" SELECT {shown} FROM {table} AS {SOURCE_ALIAS}"
            f" ORDER BY {', '.join(part for part in (keys, numbers) if part)}"
            f" SETTINGS {_SORT}, {WIRE_SETTINGS}, engine_file_truncate_on_insert = 1"
        )
        return path

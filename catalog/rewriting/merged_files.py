"""Merges rows of several data files, and writes the remaining rows into new files, in order.

`MergedRows` merges the rows in our own ClickHouse, with the engine of the lake table's source. It
gets the columns of a merge from each file (`catalog/clickhouse/rows/files.py`), and the number of
each row in its file. The result has the numbers of the remaining rows, so that no other column is
read, and the values that the merge computes.

`MergedFiles` writes the rows in the order of these numbers. Columns without computed values are
copied from file to file without a conversion. Each new file has a receipt, like a file of an
export, before it can be committed (docs/spec/files.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.clickhouse.connection import ClickHouseError, whole
from catalog.clickhouse.embedded import LEAST_SECONDS, OwnClickHouse
from catalog.clickhouse.rows.files import FILE_NUMBER, ROW_NUMBER, FileRows, numbered
from catalog.clickhouse.rows.partitions import KeyTables
from catalog.processes import Closing, ScratchDirectory
from catalog.rewriting.file_partitions import OwnPartitions
from catalog.rewriting.new_files import FilePlace, NewFile, TableFiles, carry_digest, store_receipts
from catalog.rewriting.numbered_rows import NumberedRows, in_order, with_values
from catalog.storages.schemes import Opens, Storages
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import DestinationError, InternalError, RefusedError, SourceError
from tableformat.export.slice_sql import broken, checks_sql, data_checks, order_by, select_list
from tableformat.iceberg.arrow_schema import file_schema, to_file
from tableformat.iceberg.copied_files import Rewritten, rewritten_receipts
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
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
from tableformat.operations.statement import Claimed, Rewrite
from tableformat.parquet.statistics import filters_kept
from tableformat.parquet.writer import FileFormat, SortField, write_file
from tableformat.receipt import Receipt

__all__ = [
    "HostMerger",
    "MergeWriter",
    "Merged",
    "MergedFiles",
    "MergedRows",
    "MergesElsewhere",
    "OrderedRows",
    "RowOrder",
]

_HELD_BYTES: Final = 256 * 1024 * 1024
"""Bytes in memory of all files that are merged together, while each is read in order."""


class OrderedRows(Protocol):
    """Provides the remaining rows of files, and their order."""

    @property
    def sets(self) -> tuple[str, ...]:
        """The columns whose values may differ from the files'."""
        ...

    def ordered(self, files: tuple[BranchFile, ...]) -> AbstractContextManager[pa.Table]:
        """Open, for each row in order, the index of its file, its number in it, and `sets`."""
        ...


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The declared order of files: the columns, and the id of the table's sort order."""

    columns: tuple[SortField, ...] = ()
    sort_order_id: int | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """Files that are merged together, and the places of the new files."""

    of: Rewrite
    places: tuple[FilePlace, ...]


@dataclass(frozen=True, slots=True)
class MergeWriter:
    """Merges files of a table, here or on another host; `schema` is the table's."""

    storages: Opens
    rows: OrderedRows
    schema: Schema
    format: FileFormat
    order: RowOrder

    def __call__(
        self, one: Merged, look: Callable[[], None] = lambda: None
    ) -> tuple[Rewritten, ...]:
        """Write the new files of a merge; return their descriptions.

        Raises:
            StoppedError: `look`, called before each file, stopped the statement.
            UnsupportedError: another engine wrote a file in a form that cannot be kept.
            DestinationError: a storage failed, or a file's rows differ from the scanned ones.
        """
        try:
            return tuple(self._merged(one, look))
        except (OSError, pa.ArrowException) as error:
            message = (
                f"Cannot merge {one.of.files[0].path} and {len(one.of.files) - 1:,} more: {error}. "
                "Run it again."
            )
            raise DestinationError(message) from error

    def _merged(self, one: Merged, look: Callable[[], None]) -> Generator[Rewritten, None, None]:
        of = one.of
        with ExitStack() as stack:
            scratch = stack.enter_context(ScratchDirectory("merge")).path
            numbers = stack.enter_context(self.rows.ordered(of.files))
            if len(numbers) != of.rows:
                message = f"{len(numbers):,} rows are left where {of.rows:,} were"
                raise OSError(message)
            each = _HELD_BYTES // len(of.files)
            opened = [stack.enter_context(self._opened(f, scratch, each)) for f in of.files]
            begin = 0
            for place, rows in zip(one.places, of.made, strict=True):
                look()
                yield self._one(place.new(), opened, numbers.slice(begin, rows))
                begin += rows

    def _opened(self, file: BranchFile, scratch: Path, held_bytes: int) -> closing[NumberedRows]:
        local = self.storages(file.path).fetch(file.path, scratch)
        parquet = pq.ParquetFile(local, memory_map=True)
        return closing(NumberedRows(parquet, self.schema, held_bytes))

    def _one(self, new: NewFile, opened: list[NumberedRows], numbers: pa.Table) -> Rewritten:
        written_as = file_schema(self.schema)
        kept = filters_kept([one.parquet for one in opened], written_as)
        with closing(with_values(in_order(opened, numbers), numbers, self.rows.sets)) as rows:
            written = write_file(
                rows,
                self.storages(new.path).create(new.path),
                written_as,
                replace(self.format, bloom_columns=kept, bloom_values=len(numbers)),
                self.order.columns,
                convert=lambda table: to_file(table, self.schema),
            )
        if written.rows != len(numbers):
            message = f"{written.rows:,} rows were written of {len(numbers):,} that are left"
            raise OSError(message)
        return new.rewritten(written)


@dataclass(frozen=True, slots=True)
class HostMerger:
    """Merges files on another host with its own ClickHouse, like `MergeWriter` here."""

    source: RememberedSource
    merge: RowMerge
    storages: Opens
    schema: Schema
    format: FileFormat
    order: RowOrder

    def __call__(self, merges: Iterable[Merged]) -> Iterator[tuple[Rewritten, ...]]:
        """Merge groups of files, one after the other.

        Raises:
            TableFormatError: as `MergeWriter`, or ClickHouse does not start.
        """
        of = self.source, self.storages, self.schema, self.merge
        # One thread: as many merges run on this host as it has processors.
        with MergedRows(*of, threads=1) as rows:
            write = MergeWriter(self.storages, rows, self.schema, self.format, self.order)
            for one in merges:
                yield write(one)


MergesElsewhere = Callable[
    [MergeWriter, tuple[Merged, ...], Callable[[], None]],
    tuple[tuple[Rewritten, ...], ...] | None,
]
"""Merges files on other hosts; returns None if it is better done here.

It calls its last argument about every second; an exception of that stops it.
"""


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """Merges files of a table; a `tableformat.operations.statement.Rewrites`.

    `elsewhere` may merge the files of all keys on other hosts beforehand. `partitions` finds the
    partitions of files with earlier partition specs; None if there are no such files.
    """

    storages: Storages
    rows: OrderedRows
    format: FileFormat
    order: RowOrder
    elsewhere: MergesElsewhere | None = None
    partitions: OwnPartitions | None = None
    _made: dict[Merged, tuple[Rewritten, ...]] = field(default_factory=dict, init=False, repr=False)

    def ahead(
        self, claims: tuple[Claimed, ...], state: LakeTableState, look: Callable[[str], None]
    ) -> None:
        """Merge the files of all claims on other hosts, if that is worth it.

        Raises:
            StoppedError: `look` stopped one of the keys.
            UnsupportedError: another engine wrote a file in a form that cannot be kept.
            TableFormatError: another host failed, or a file's rows differ from the scanned ones.
        """
        if self.elsewhere is None:
            return
        every = tuple(one for row, rewrites in claims for one in _merged(row, rewrites, state))
        keys = cycle(row.key.hash for row, _ in claims)
        made = self.elsewhere(self._writer(state), every, lambda: look(next(keys)))
        if made is not None:
            self._made.update(zip(every, made, strict=True))

    def __call__(
        self,
        row: Row,
        rewrites: tuple[Rewrite, ...],
        state: LakeTableState,
        look: Callable[[], None],
    ) -> tuple[Receipt, ...]:
        """Write files for the claim of a row, unless `ahead` did; return their receipts.

        Raises:
            StoppedError: `look`, called before each file, stopped the statement.
            UnsupportedError: another engine wrote a file in a form that cannot be kept.
            DestinationError: a storage failed, or a file's rows differ from the scanned ones.
        """
        made: list[tuple[str, Rewritten]] = []
        write = self._writer(state)
        for one in _merged(row, rewrites, state):
            written = self._made.pop(one, None)
            if written is None:
                written = write(one, look)
            made.extend((one.of.files[0].path, new) for new in written)
        partitions = None
        if self.partitions is not None:
            first = (one.files[0] for one in rewrites)
            partitions = self.partitions.of_earlier_specs(first, state)
        receipts = tuple(
            replace(receipt, sort_order_id=self.order.sort_order_id)
            for receipt in rewritten_receipts(state, row, made, partitions=partitions)
        )
        store_receipts(row, receipts, state.location, self.storages)
        table = TableFiles(state.location, self.storages)
        carry_digest(row, (f for r in rewrites for f in r.files), table, table)
        return receipts

    def _writer(self, state: LakeTableState) -> MergeWriter:
        schema = table_of(state).schema()
        return MergeWriter(self.storages, self.rows, schema, self.format, self.order)


def _merged(row: Row, rewrites: tuple[Rewrite, ...], state: LakeTableState) -> tuple[Merged, ...]:
    """Return the merges for the claim of a row; the new files are numbered consecutively."""
    numbers = count()
    return tuple(
        Merged(
            one,
            tuple(
                FilePlace.in_directory_of(one.files[0], row, next(numbers), state) for _ in one.made
            ),
        )
        for one in rewrites
    )


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
                f"Cannot run {self._merge.command}: {engine.family} treats rows with the same "
                "sorting key as equal, and data files do not record which of them was inserted "
                "last. Run it in ClickHouse and export the partition "
                f"again{deduplication_advice(engine)}."
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
            f"Cannot run {self._merge.command}: the rows that {self._source.table.engine.family} "
            "keeps of one sorting key depend on the order of insertion, which data files do not "
            f"record ({reasons_by_column}). Run it in ClickHouse and export the partition again."
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

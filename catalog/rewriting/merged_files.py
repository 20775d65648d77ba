"""Writes the rows of several data files into new files, in an order given by row numbers.

Columns without computed values are copied from file to file without a conversion. Each new file has
a receipt, like a file of an export, before it can be committed (docs/spec/files.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.clickhouse.rows.merged import MergedRows
from catalog.processes import ScratchDirectory
from catalog.rewriting.file_partitions import OwnPartitions
from catalog.rewriting.new_files import FilePlace, NewFile, TableFiles, carry_digest, store_receipts
from catalog.rewriting.numbered_rows import NumberedRows, in_order, with_values
from catalog.storages.schemes import Opens, Storages
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import DestinationError
from tableformat.iceberg.arrow_schema import file_schema, to_file
from tableformat.iceberg.copied_files import Rewritten, rewritten_receipts
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.mergetree.final_merge import RowMerge
from tableformat.operations.statement import Claimed, Rewrite
from tableformat.parquet.columns import filters_kept
from tableformat.parquet.writer import FileFormat, SortField, write_file
from tableformat.receipt import Receipt

__all__ = [
    "HostMerger",
    "MergeWriter",
    "Merged",
    "MergedFiles",
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
                "Run the statement again."
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

"""Writes the rows of several data files as others, in an order that was told by their numbers.

The columns go from file to file as they are: nothing reads them as another type. Each new file has
a receipt like any file that an export wrote, before it can be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.carried_digest import TableFiles, carry_digest
from catalog.file_copies import store_receipt
from catalog.listed_files import list_files
from catalog.new_files import FilePlace, NewFile
from catalog.numbered_rows import NumberedRows, in_order
from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Storages
from tableformat.branches import BranchFile
from tableformat.committer import LakeTableState
from tableformat.errors import DestinationError
from tableformat.iceberg.arrow_schema import file_schema, to_file
from tableformat.iceberg.copies import Rewritten, rewritten_receipts
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.operations.planned import Rewrite
from tableformat.parquet.bloom_filters import filters_kept
from tableformat.parquet.file_format import FileFormat
from tableformat.parquet.writer import SortField, write_file
from tableformat.receipt import Receipt

__all__ = ["MergedFiles", "OrderedRows", "RowOrder"]

_HELD_BYTES: Final = 256 * 1024 * 1024
"""Of all files that are merged together, while each is read in its order."""


class OrderedRows(Protocol):
    """Says which rows of files come, and in which order."""

    def ordered(self, files: tuple[BranchFile, ...]) -> AbstractContextManager[pa.Table]:
        """Lend, row by row, the number of its file in `files` and its own number in that."""
        ...


@dataclass(frozen=True, slots=True)
class RowOrder:
    """How files are declared to be sorted: by columns, and as the table's order of this id."""

    columns: tuple[SortField, ...] = ()
    sort_order_id: int | None = None


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """Writes files of a table anew; a `tableformat.operations.statement.Rewrites`."""

    storages: Storages
    rows: OrderedRows
    format: FileFormat
    order: RowOrder

    def __call__(
        self,
        row: Row,
        rewrites: tuple[Rewrite, ...],
        state: LakeTableState,
        look: Callable[[], None],
    ) -> tuple[Receipt, ...]:
        """Write files for the claim of a row; return their receipts.

        Raises:
            StoppedError: it is not needed any more, as `look`, called before each file, says.
            UnsupportedError: another engine wrote a file in a form that cannot be kept.
            DestinationError: a storage failed, or a file has not the rows that were looked at.
        """
        made: list[tuple[str, Rewritten]] = []
        for one in rewrites:
            made.extend(
                (one.files[0].path, new) for new in self._written(row, len(made), one, state, look)
            )
        receipts = tuple(
            replace(receipt, sort_order_id=self.order.sort_order_id)
            for receipt in rewritten_receipts(state, row, made)
        )
        for receipt in receipts:
            store_receipt(receipt, state.location, self.storages)
        list_files(row, receipts, state.location, self.storages)
        table = TableFiles(state.location, self.storages)
        carry_digest(row, (f for r in rewrites for f in r.files), table, table)
        return receipts

    def _written(
        self, row: Row, number: int, of: Rewrite, state: LakeTableState, look: Callable[[], None]
    ) -> tuple[Rewritten, ...]:
        """Write the files that come in the place of some, the first of which has a number."""
        try:
            return tuple(self._merged(row, number, of, state, look))
        except (OSError, pa.ArrowException) as error:
            message = (
                f"Cannot merge {of.files[0].path} and {len(of.files) - 1:,} more: {error}. Run "
                "the statement again."
            )
            raise DestinationError(message) from error

    def _merged(
        self, row: Row, number: int, of: Rewrite, state: LakeTableState, look: Callable[[], None]
    ) -> Generator[Rewritten, None, None]:
        schema = table_of(state).schema()
        with ExitStack() as stack:
            scratch = stack.enter_context(ScratchDirectory("merge")).path
            numbers = stack.enter_context(self.rows.ordered(of.files))
            if len(numbers) != of.rows:
                message = f"{len(numbers):,} rows are left where {of.rows:,} were"
                raise OSError(message)
            each = _HELD_BYTES // len(of.files)
            opened = [stack.enter_context(self._opened(f, scratch, schema, each)) for f in of.files]
            begin = 0
            for at, rows in enumerate(of.made, number):
                look()
                new = FilePlace.beside(of.files[0], row, at, state).new()
                yield self._one(new, opened, numbers.slice(begin, rows), schema)
                begin += rows

    def _opened(
        self, file: BranchFile, scratch: Path, schema: Schema, held_bytes: int
    ) -> closing[NumberedRows]:
        local = self.storages(file.path).fetch(file.path, scratch)
        return closing(NumberedRows(pq.ParquetFile(local, memory_map=True), schema, held_bytes))

    def _one(
        self, new: NewFile, opened: list[NumberedRows], numbers: pa.Table, schema: Schema
    ) -> Rewritten:
        written_as = file_schema(schema)
        kept = filters_kept([one.parquet for one in opened], written_as)
        with closing(in_order(opened, numbers)) as rows:
            written = write_file(
                rows,
                self.storages(new.path).create(new.path),
                written_as,
                replace(self.format, bloom_columns=kept),
                self.order.columns,
                convert=lambda table: to_file(table, schema),
            )
        if written.rows != len(numbers):
            message = f"{written.rows:,} rows were written of {len(numbers):,} that are left"
            raise OSError(message)
        return new.told(written)

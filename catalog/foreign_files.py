"""Writes rows of Parquet files that another program wrote as data files of a table.

They go through the one Parquet writer, so that what lands has the table's field ids and statistics,
whoever wrote the rows. Each new file has a receipt like any file that an export wrote, before it
can be committed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.parquet_directory import ForeignFile, sha256_of
from catalog.scratch import ScratchDirectory
from catalog.storages.opening import Storages
from catalog.stored_receipts import store_receipts
from tableformat.branches import BranchFile
from tableformat.committer import LakeTableState
from tableformat.errors import DestinationError
from tableformat.file_names import data_file_name
from tableformat.iceberg.arrow_schema import file_schema
from tableformat.ledger import Row
from tableformat.parquet.file_format import FileFormat
from tableformat.parquet.writer import WrittenFile, write_file
from tableformat.receipt import Receipt

__all__ = ["ForeignFiles"]

_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """A `tableformat.operations.statement.Copies` of files that were looked at, by their paths."""

    seen: Mapping[str, ForeignFile]
    state: LakeTableState
    storages: Storages

    def __call__(self, row: Row, files: tuple[BranchFile, ...]) -> tuple[Receipt, ...]:
        """Write files for the claim of a row; return their receipts, which are stored.

        Raises:
            DestinationError: a storage failed, or a file is not what was looked at any more.
        """
        with ScratchDirectory("fetch") as scratch:
            receipts = tuple(
                self._written(row, number, self.seen[file.path], scratch.path)
                for number, file in enumerate(files)
            )
        store_receipts(row, receipts, self.state.location, self.storages)
        return receipts

    def _written(self, row: Row, number: int, of: ForeignFile, scratch: Path) -> Receipt:
        began, attempt = time.monotonic(), f"0-{uuid.uuid4().hex[:12]}"
        name = data_file_name(row.key.hash, row.claim.transaction_id, number, attempt)
        place = (self.state.data_location, of.directory, name)
        path = "/".join(part for part in place if part)
        file = of.file
        local = self.storages(file.path).fetch(file.path, scratch)
        try:
            written = self._copied(of, local, path)
        except (OSError, pa.ArrowException) as error:
            message = f"Cannot copy {file.path}: {error}. Run the statement again."
            raise DestinationError(message) from error
        finally:
            if local.is_relative_to(scratch):
                local.unlink()
        return Receipt(
            key=row.key.hash,
            transaction_id=row.claim.transaction_id,
            epoch=row.claim.epoch,
            slice_number=number,
            attempt=attempt,
            ranges=(),
            file_path=path,
            file_bytes=written.bytes,
            sha256=written.sha256,
            rows=written.rows,
            rows_expected=file.rows,
            partition=of.values,
            spec_id=file.spec_id,
            # Nobody knows in which order they stand.
            sort_order_id=None,
            split_offsets=written.split_offsets,
            columns=written.columns,
            seconds=time.monotonic() - began,
            peak_memory=0,
        )

    def _copied(self, of: ForeignFile, local: Path, path: str) -> WrittenFile:
        """Write a file, and prove that it is all of what was looked at.

        Raises:
            OSError: it is not, or cannot be read.
            pa.ArrowException: it cannot be read.
        """
        with pq.ParquetFile(local) as parquet:
            written = write_file(
                _batches(parquet),
                self.storages(path).create(path),
                file_schema(of.columns.schema),
                FileFormat(),
                (),
                convert=of.columns.taken,
            )
        if written.rows != of.file.rows or sha256_of(local) != of.sha256:
            message = (
                f"it was changed while it was copied ({written.rows:,} rows of {of.file.rows:,} "
                "arrived)"
            )
            raise OSError(message)
        return written


def _batches(parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    yield from parquet.iter_batches(_CHUNK)

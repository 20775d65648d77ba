"""Copies data files to other tables or other places, by the storage itself where it can.

- `CopiedBytes` copies one file: the storage copies it if it can, else the bytes pass through
  this host. The size of the copy must match.
- `CopiedFiles` copies files of one lake table into another one, under new names.
- `MovedFiles` copies files to other locations of the same table, as a plan names them.
- `RewrittenCopies` rewrites files of one lake table for another one, whose columns have other field
  ids, or which has another name mapping for files without ids. The new files have the same rows in
  the same order, with the declared order and the bloom filters of the old ones.

Each copy has a receipt, like a file of an export, before it can be committed
(docs/spec/files.md).
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.processes import ScratchDirectory
from catalog.rewriting.changed_rows import declared_order
from catalog.rewriting.file_partitions import EarlierFiles, OwnPartitions
from catalog.rewriting.integrity import (
    Checks,
    hashes_of,
    refuse_changed_files,
    refuse_other_bytes,
    refuse_unreadable,
)
from catalog.rewriting.new_files import NewFile, TableFiles, carry_digest, store_receipts
from catalog.storages.schemes import Storages
from tableformat.clickhouse_codes import NOT_IMPLEMENTED
from tableformat.committer import BranchFile, LakeTableState
from tableformat.disks import Disks
from tableformat.errors import DestinationError, UnsupportedError
from tableformat.file_names import data_file_name
from tableformat.iceberg.arrow_schema import file_schema, has_field_ids, relabelled
from tableformat.iceberg.copied_files import (
    Copy,
    Rewritten,
    column_differences,
    copied_receipts,
    has_dropped,
    originals,
    reads_names_alike,
    receipts_for_other_table,
    with_ids_of,
)
from tableformat.iceberg.file_partition import FilePartition
from tableformat.iceberg.read_columns import with_mapped_ids
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.operations.statement import Copies, Rewrite
from tableformat.parquet.statistics import filters_kept
from tableformat.parquet.writer import FileFormat, WrittenFile, file_format, write_file
from tableformat.receipt import Receipt
from tableformat.storage import Storage

__all__ = ["CopiedBytes", "CopiedFiles", "MovedFiles", "RewrittenCopies", "copies_between"]

_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class CopiedBytes:
    """Copies files between storages; `hashes` has the known SHA-256 of files.

    If the storage copies a file itself, the copy keeps its known SHA-256; an unknown one is
    computed from the copy.
    """

    source: Storages
    to: Storages
    hashes: Mapping[str, str]
    scratch: Path

    def copy(self, file: BranchFile, path: str, attempt: str) -> Copy:
        """Copy a file to an unused name.

        Raises:
            DestinationError: a storage failed, or the copy has another size.
        """
        began, source, to = time.monotonic(), self.source(file.path), self.to(path)
        if to.copy(source, file.path, path):
            sha256, written = self.hashes.get(file.path) or to.sha256(path), to.size(path)
        else:
            sha256, written = self._through_here(file, path, source, to)
        if written != file.bytes:
            message = (
                f"Cannot copy {file.path}: {written:,} bytes of {file.bytes:,} arrived. Run "
                "it again."
            )
            raise DestinationError(message)
        return Copy(path, attempt, sha256, time.monotonic() - began)

    def _through_here(
        self, file: BranchFile, path: str, source: Storage, to: Storage
    ) -> tuple[str, int]:
        local = source.fetch(file.path, self.scratch)
        try:
            return _written(local, path, to)
        finally:
            if local.is_relative_to(self.scratch):
                local.unlink()


def _written(local: Path, path: str, to: Storage) -> tuple[str, int]:
    """Write a file under its name; return its SHA-256 and its size in bytes."""
    digest, written, sink = hashlib.sha256(), 0, to.create(path)
    try:
        with local.open("rb") as read:
            while block := read.read(_BLOCK):
                digest.update(block)
                written += len(block)
                sink.write(block)
        sink.commit()
    except BaseException:
        sink.abort()
        raise
    return digest.hexdigest(), written


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """Copies files of the snapshot `source` into the table of `destination`.

    `checks` refuses changed files of `source`. `partitions` returns a file's partition there, None
    if it is that in `source`. `without_ids` copies the files if one of them has no field ids; None
    if both tables read such a file alike.
    """

    source: LakeTableState
    source_storages: Storages
    destination: LakeTableState
    storages: Storages
    checks: Checks = refuse_changed_files
    partitions: Callable[[BranchFile], FilePartition | None] = lambda _: None
    without_ids: Copies | None = None

    def __call__(self, row: Row, files: tuple[BranchFile, ...]) -> tuple[Receipt, ...]:
        """Copy files for the claim of a row; return their stored receipts.

        Raises:
            RefusedError: a file has changed since it was written, or has other columns.
            UnsupportedError: a file is not a plain Parquet file.
            DestinationError: a storage failed.
        """
        location, storages = self.source.location, self.source_storages
        of = originals(self.source, [file.path for file in files])
        self.checks(storages, location, _ignore_missing, files)
        if self.without_ids is not None and _any_without_ids(storages, files):
            return self.without_ids(row, files)
        refuse_unreadable(storages, self.source, table_of(self.destination).schema(), files)
        hashes = hashes_of(storages, location, (file.path for file in files))
        in_partitions = {f.path: one for f in files if (one := self.partitions(f)) is not None}
        with ScratchDirectory("copy") as scratch:
            by = CopiedBytes(storages, self.storages, hashes, scratch.path)
            copies = {
                file.path: self._copied(row, number, file, in_partitions.get(file.path), by)
                for number, file in enumerate(files)
            }
        refuse_other_bytes(files, hashes, {path: copy.sha256 for path, copy in copies.items()})
        values = {path: one.values for path, one in in_partitions.items()}
        receipts = copied_receipts(of, row, copies, self.destination, values)
        store_receipts(row, receipts, self.destination.location, self.storages)
        source = TableFiles(self.source.location, self.source_storages)
        carry_digest(row, files, source, TableFiles(self.destination.location, self.storages))
        return receipts

    def _copied(
        self,
        row: Row,
        number: int,
        file: BranchFile,
        in_partition: FilePartition | None,
        by: CopiedBytes,
    ) -> Copy:
        attempt = f"0-{uuid.uuid4().hex[:12]}"
        name = data_file_name(row.key.hash, row.claim.transaction_id, number, attempt)
        of_source = Disks.of(self.source).directory_of(file.path)
        directory = of_source if in_partition is None else in_partition.directory
        return by.copy(file, Disks.of(self.destination).new_path(directory, name), attempt)


def _any_without_ids(storages: Storages, files: tuple[BranchFile, ...]) -> bool:
    """Whether a file has no field ids. No name says so: earlier copies have those of exports.

    Raises:
        DestinationError: a file cannot be read.
    """
    with ScratchDirectory("ids") as scratch:
        return any(not _has_ids(storages(one.path), one.path, scratch.path) for one in files)


def _has_ids(storage: Storage, path: str, scratch: Path) -> bool:
    local = storage.fetch(path, scratch)
    try:
        return has_field_ids(pq.read_schema(local))
    except (OSError, pa.ArrowException) as error:
        message = f"Cannot read the columns of {path}: {error}. Nothing was changed."
        raise DestinationError(message) from error
    finally:
        if local.is_relative_to(scratch):
            local.unlink()


def _ignore_missing(_: str) -> None:
    """Do nothing about missing receipts, because the copy gets its own."""


@dataclass(frozen=True, slots=True)
class MovedFiles:
    """Copies files to other locations of a table; a `tableformat.operations.statement.Rewrites`.

    `note` receives the number of files that could not be compared byte for byte; `checks` refuses
    changed ones. `partitions` finds the partitions of files with earlier partition specs, with
    which the copies are committed; None if there are no such files.
    """

    storages: Storages
    note: Callable[[str], None]
    checks: Checks = refuse_changed_files
    partitions: OwnPartitions | None = None

    def __call__(
        self,
        row: Row,
        rewrites: tuple[Rewrite, ...],
        state: LakeTableState,
        look: Callable[[], None],
    ) -> tuple[Receipt, ...]:
        """Copy files for the claim of a row; return their stored receipts.

        Raises:
            StoppedError: `look`, called before each file, stopped the statement.
            RefusedError: a file has changed since it was written.
            UnsupportedError: a file is not a plain Parquet file.
            DestinationError: a storage failed.
        """
        files = tuple(file for one in rewrites for file in one.files)
        of = originals(state, [file.path for file in files])
        self.checks(self.storages, state.location, self.note, files)
        hashes = hashes_of(self.storages, state.location, (file.path for file in files))
        disks = Disks.of(state)
        with ScratchDirectory("move") as scratch:
            by = CopiedBytes(self.storages, self.storages, hashes, scratch.path)
            copies = dict[str, Copy]()
            for number, one in enumerate(rewrites):
                look()
                copies[one.files[0].path] = _copied(row, number, one, by, disks)
        refuse_other_bytes(files, hashes, {path: copy.sha256 for path, copy in copies.items()})
        partitions = self.partitions.of_earlier_specs(files, state) if self.partitions else None
        receipts = copied_receipts(of, row, copies, state, partitions)
        store_receipts(row, receipts, state.location, self.storages)
        table = TableFiles(state.location, self.storages)
        carry_digest(row, files, table, table)
        return receipts


def _copied(row: Row, number: int, one: Rewrite, by: CopiedBytes, disks: Disks) -> Copy:
    (file,) = one.files
    attempt = f"0-{uuid.uuid4().hex[:12]}"
    name = data_file_name(row.key.hash, row.claim.transaction_id, number, attempt)
    below = one.place or disks.place_for_replacement(file.path)
    return by.copy(file, disks.new_path(disks.directory_of(file.path), name, below), attempt)


_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class RewrittenCopies:
    """Rewrites files of the snapshot `source` for the table of `destination`.

    `checks` refuses changed files of `source`. `partitions` returns a file's partition there, None
    if it is that in `source`.
    """

    source: LakeTableState
    source_storages: Storages
    destination: LakeTableState
    storages: Storages
    checks: Checks = refuse_changed_files
    partitions: Callable[[BranchFile], FilePartition | None] = lambda _: None

    def __call__(self, row: Row, files: tuple[BranchFile, ...]) -> tuple[Receipt, ...]:
        """Rewrite files for the claim of a row; return their stored receipts.

        Raises:
            RefusedError: a file has changed since it was written, or has other columns.
            UnsupportedError: another engine wrote a file in a form that cannot be kept.
            DestinationError: a storage failed, or the new file has another number of rows.
        """
        location, storages = self.source.location, self.source_storages
        of = originals(self.source, [file.path for file in files])
        self.checks(storages, location, _ignore_missing, files)
        refuse_unreadable(storages, self.source, table_of(self.source).schema(), files)
        in_partitions = {f.path: one for f in files if (one := self.partitions(f)) is not None}
        made, read = {}, {}
        with ScratchDirectory("copy") as scratch:
            for number, file in enumerate(files):
                of_source = Disks.of(self.source).directory_of(file.path)
                below = (
                    in_partitions[file.path].directory if file.path in in_partitions else of_source
                )
                new = self._new(row, number, below)
                made[file.path], read[file.path] = self._made(file, new, scratch.path)
        hashes = hashes_of(storages, location, (file.path for file in files))
        refuse_other_bytes(files, hashes, read)
        values = {path: one.values for path, one in in_partitions.items()}
        receipts = receipts_for_other_table(of, row, made, self.destination, values)
        store_receipts(row, receipts, self.destination.location, self.storages)
        source = TableFiles(location, storages)
        carry_digest(row, files, source, TableFiles(self.destination.location, self.storages))
        return receipts

    def _new(self, row: Row, number: int, below: str) -> NewFile:
        attempt = f"0-{uuid.uuid4().hex[:12]}"
        name = data_file_name(row.key.hash, row.claim.transaction_id, number, attempt)
        return NewFile(Disks.of(self.destination).new_path(below, name), attempt)

    def _made(self, file: BranchFile, new: NewFile, scratch: Path) -> tuple[Rewritten, str]:
        """Rewrite a file; return its description, and the SHA-256 of the old file."""
        local = self.source_storages(file.path).fetch(file.path, scratch)
        try:
            with local.open("rb") as read:
                sha256 = hashlib.file_digest(read, "sha256").hexdigest()
            return new.rewritten(self._written(file, local, new.path)), sha256
        except (OSError, pa.ArrowException) as error:
            message = f"Cannot rewrite {file.path}: {error}. Run it again."
            raise DestinationError(message) from error
        finally:
            if local.is_relative_to(scratch):
                local.unlink()

    def _written(self, file: BranchFile, local: Path, path: str) -> WrittenFile:
        old_schema, new_schema = (table_of(one).schema() for one in (self.source, self.destination))
        written_as, there = file_schema(new_schema), self.destination
        with pq.ParquetFile(local) as parquet, closing(_rows(parquet)) as rows:
            labels = self._labels(file.path, parquet.schema_arrow)
            ids = {f.field_id: new_schema.find_field(f.name).field_id for f in old_schema.fields}
            written = write_file(
                rows,
                self.storages(path).create(path),
                written_as,
                # Both tables have the same column names, but other field ids.
                replace(
                    file_format(FileFormat(), there.properties, there.location),
                    bloom_columns=filters_kept((parquet,), file_schema(old_schema)),
                    bloom_values=file.rows,
                ),
                [
                    (ids[i], down, first)
                    for i, down, first in declared_order(parquet, file.path, ids)
                ],
                convert=lambda table: with_ids_of(
                    relabelled(table, labels), old_schema, new_schema
                ),
            )
        if written.rows != file.rows:
            message = f"{written.rows:,} rows were written of {file.rows:,} that it had"
            raise OSError(message)
        return written

    def _labels(self, path: str, written: pa.Schema) -> pa.Schema:
        """Return the schema of a file with field ids, its own or those of the name mapping.

        Raises:
            UnsupportedError: it has none, and neither has the mapping (code 48).
        """
        mapping = None if has_field_ids(written) else table_of(self.source).name_mapping()
        labels = with_mapped_ids(written, mapping.root if mapping is not None else ())
        if not has_field_ids(labels):
            message = (
                f"Cannot copy {path}: it has no field ids, and its table no name mapping for its "
                "columns, so which column is which is not known. Set the property "
                "'schema.name-mapping.default' of that table, or let an Iceberg writer rewrite "
                "the file, and run it again. Nothing was changed."
            )
            raise UnsupportedError(message, code=NOT_IMPLEMENTED)
        return labels


def copies_between(
    source: LakeTableState,
    source_storages: Storages,
    destination: LakeTableState,
    storages: Storages,
    checks: Checks = refuse_changed_files,
    partitions: Callable[[BranchFile], FilePartition] | None = None,
) -> Copies:
    """Return the copier of files of one table to another: by bytes if possible, else by rows.

    Args:
        source: the snapshot with the files.
        source_storages: open the locations of `source`.
        destination: the table that gets them.
        storages: open the locations of `destination`.
        checks: refuses changed files.
        partitions: returns a file's partition there, if the partition specs differ; by default only
            files of earlier partition specs are read for it.
    """
    places = partitions or EarlierFiles(source, source_storages, destination)
    between = (source, source_storages, destination, storages, checks, places)
    if column_differences(source, destination, divides=partitions is None) or has_dropped(
        source, destination
    ):
        return RewrittenCopies(*between)
    alike = reads_names_alike(source, destination)
    return CopiedFiles(*between, without_ids=None if alike else RewrittenCopies(*between))


def _rows(parquet: pq.ParquetFile) -> Generator[pa.RecordBatch, None, None]:
    yield from parquet.iter_batches(_CHUNK)

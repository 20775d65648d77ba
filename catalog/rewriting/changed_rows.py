"""Rewrites data files with the rows that an UPDATE or DELETE statement leaves.

- A column that the statement does not set is copied from the old file without a conversion.
- `ChangedFiles` implements `tableformat.operations.statement.Rewrites`. Each new file has a
  receipt, like a file of an export, before it can be committed (docs/spec/files.md).
- `LookedFiles` implements `tableformat.operations.rewrite.RowsOfFiles`. It determines once what a
  statement changes in a file, and stores the remaining rows at a location, so that one host can
  scan a file and another one rewrite it.
- `FilteredFiles` finds the files that have bloom filters of some columns, by their footers, and
  keeps all rows (CLEAR INDEX).
- `RowChanges` runs the statement in our own ClickHouse, which has two tables. The first is an empty
  copy of the lake table's source, with its keys. The statement runs there first, so that ClickHouse
  refuses what it refuses on the source, such as a change of a key column (code 420). The second
  table gets the columns that the statement reads and sets, from one data file after the other
  (`catalog/clickhouse/rows/files.py`), and the statement runs on them.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import ClassVar, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.clickhouse.connection import ClickHouseError, whole
from catalog.clickhouse.embedded import LEAST_SECONDS, OwnClickHouse
from catalog.clickhouse.rows.files import ROW_NUMBER, FileRows, numbered
from catalog.clickhouse.rows.partitions import KeyTables
from catalog.processes import Closing, ScratchDirectory
from catalog.rewriting.file_partitions import OwnPartitions
from catalog.rewriting.new_files import FilePlace, TableFiles, carry_digest, store_receipts
from catalog.rewriting.numbered_rows import set_values
from catalog.storages.schemes import Opens, Storages
from tableformat.committer import BranchFile, LakeTableState
from tableformat.errors import DestinationError, RefusedError
from tableformat.export.slice_sql import broken, checks_sql, data_checks, select_list
from tableformat.file_names import exported_by
from tableformat.iceberg.arrow_schema import FIELD_ID_KEY, columns_of_file, file_schema, to_file
from tableformat.iceberg.copied_files import Rewritten, rewritten_receipts
from tableformat.iceberg.properties import RememberedSource
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.snapshot import table_of
from tableformat.ledger import Row
from tableformat.mergetree.definition_sql import evaluated_zone
from tableformat.mergetree.row_change import (
    RowChange,
    columns_of_change,
    columns_read,
    columns_set,
    without_default,
)
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_string
from tableformat.operations.statement import Claimed, Rewrite
from tableformat.parquet.statistics import filtered_columns, filters_kept
from tableformat.parquet.writer import FileFormat, SortField, WrittenFile, write_file
from tableformat.receipt import Receipt

__all__ = [
    "ROW_NUMBER",
    "ChangedFiles",
    "FileLooker",
    "FileRewrite",
    "FileWriter",
    "FilteredFiles",
    "KeptRows",
    "LeftOfFiles",
    "Looked",
    "LookedFiles",
    "LooksElsewhere",
    "RowChanges",
    "WritesElsewhere",
    "declared_order",
]

_CHUNK: Final = 65_536


class LeftOfFiles(Protocol):
    """Provides the rows that a statement leaves in files."""

    @property
    def sets(self) -> tuple[str, ...]:
        """The columns whose values may have changed."""
        ...

    def left(self, path: str) -> AbstractContextManager[pa.Table]:
        """Open the remaining rows of a file: ascending `ROW_NUMBER`, and the columns of `sets`."""
        ...


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """A rewrite of files, and the place of the new file."""

    of: Rewrite
    place: FilePlace


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Rewrites one file of a table, here or on another host; `schema` is the table's."""

    storages: Opens
    changes: LeftOfFiles
    schema: Schema
    format: FileFormat
    without: frozenset[int] = frozenset()

    def __call__(self, one: FileRewrite, scratch: Path) -> Rewritten:
        """Rewrite a file; return the description of the new file.

        Args:
            one: the rewrite.
            scratch: a directory of this host.

        Raises:
            UnsupportedError: another engine wrote the file in a form that cannot be kept.
            DestinationError: a storage failed, or the file's rows differ from the scanned ones.
        """
        (file,) = one.of.files
        new = one.place.new()
        local = self.storages(file.path).fetch(file.path, scratch)
        try:
            return new.rewritten(self._rewritten(one.of, local, new.path))
        except (OSError, pa.ArrowException) as error:
            message = f"Cannot rewrite {file.path}: {error}. Run it again."
            raise DestinationError(message) from error
        finally:
            if local.is_relative_to(scratch):
                local.unlink()

    def _rewritten(self, of: Rewrite, local: Path, path: str) -> WrittenFile:
        schema = self.schema
        with pq.ParquetFile(local) as parquet:
            ids = {f.field_id for f in schema.fields if f.name not in self.changes.sets}
            sort = declared_order(parquet, of.files[0].path, ids)
            written_as = file_schema(schema)
            kept = filters_kept((parquet,), written_as, self.without)
            with closing(self._rows(of, parquet)) as rows:
                written = write_file(
                    rows,
                    self.storages(path).create(path),
                    written_as,
                    replace(self.format, bloom_columns=kept, bloom_values=of.rows),
                    sort,
                    convert=lambda table: to_file(table, schema),
                )
        if written.rows != of.rows:
            message = f"{written.rows:,} rows were written of {of.rows:,} that are left"
            raise OSError(message)
        return written

    def _rows(self, of: Rewrite, parquet: pq.ParquetFile) -> Generator[pa.RecordBatch, None, None]:
        """Yield the remaining rows of a file in order, with the new values."""
        sets = self.changes.sets
        with self.changes.left(of.files[0].path) as left:
            numbers = left.column(ROW_NUMBER)
            begin = at = 0
            for batch in parquet.iter_batches(_CHUNK):
                end = begin + batch.num_rows
                upto = bisect_left(range(len(numbers)), end, at, key=lambda i: numbers[i].as_py())
                here = pc.subtract(numbers[at:upto].cast(pa.int64()), begin)
                table = columns_of_file(pa.Table.from_batches([batch]), self.schema).take(here)
                yield from set_values(table, left[at:upto], sets).to_batches()
                begin, at = end, upto


WritesElsewhere = Callable[
    [FileWriter, tuple[FileRewrite, ...], Callable[[], None]], tuple[Rewritten, ...] | None
]
"""Rewrites files on other hosts; returns None if it is better done here.

It calls its last argument about every second; an exception of that stops it.
"""


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Rewrites files of a table; a `tableformat.operations.statement.Rewrites`.

    The new files have the bloom filters of the old ones, except those of the columns `without`, by
    id. `elsewhere` may rewrite the files of all keys on other hosts beforehand. `partitions` finds
    the partitions of files with earlier partition specs; None if there are no such files.
    """

    storages: Storages
    changes: LeftOfFiles
    format: FileFormat
    without: frozenset[int] = frozenset()
    elsewhere: WritesElsewhere | None = None
    partitions: OwnPartitions | None = None
    _written: dict[FileRewrite, Rewritten] = field(default_factory=dict, init=False, repr=False)

    def ahead(
        self, claims: tuple[Claimed, ...], state: LakeTableState, look: Callable[[str], None]
    ) -> None:
        """Rewrite the files of all claims on other hosts, if that is worth it.

        Raises:
            StoppedError: `look` stopped one of the keys.
            UnsupportedError: another engine wrote a file in a form that cannot be kept.
            TableFormatError: another host failed, or a file's rows differ from the scanned ones.
        """
        every = tuple(one for row, rewrites in claims for one in _rewrites(row, rewrites, state))
        if self.elsewhere is None:
            return
        keys = cycle(row.key.hash for row, _ in claims)
        made = self.elsewhere(self._writer(state), every, lambda: look(next(keys)))
        if made is not None:
            self._written.update(zip(every, made, strict=True))

    def __call__(
        self,
        row: Row,
        rewrites: tuple[Rewrite, ...],
        state: LakeTableState,
        look: Callable[[], None],
    ) -> tuple[Receipt, ...]:
        """Rewrite files for the claim of a row; return the receipts of files with rows.

        Raises:
            StoppedError: `look`, called before each file, stopped the statement.
            UnsupportedError: another engine wrote a file in a form that cannot be kept.
            DestinationError: a storage failed, or a file's rows differ from the scanned ones.
        """
        made: list[tuple[str, Rewritten]] = []
        write = self._writer(state)
        with ScratchDirectory("change") as scratch:
            for one in _rewrites(row, rewrites, state):
                look()
                written = self._written.pop(one, None) or write(one, scratch.path)
                made.append((one.of.files[0].path, written))
        partitions = None
        if self.partitions is not None:
            first = (one.files[0] for one in rewrites)
            partitions = self.partitions.of_earlier_specs(first, state)
        sets = frozenset(self.changes.sets)
        receipts = rewritten_receipts(state, row, made, sets, partitions)
        store_receipts(row, receipts, state.location, self.storages)
        table = TableFiles(state.location, self.storages)
        carry_digest(row, (f for r in rewrites for f in r.files), table, table)
        return receipts

    def _writer(self, state: LakeTableState) -> FileWriter:
        schema = table_of(state).schema()
        return FileWriter(self.storages, self.changes, schema, self.format, self.without)


def _rewrites(
    row: Row, rewrites: tuple[Rewrite, ...], state: LakeTableState
) -> tuple[FileRewrite, ...]:
    """Return the files to write for the claim of a row."""
    return tuple(
        FileRewrite(one, FilePlace.in_directory_of(one.files[0], row, number, state))
        for number, one in enumerate(r for r in rewrites if r.rows)
    )


def declared_order(
    parquet: pq.ParquetFile, path: str, ids: Collection[int]
) -> tuple[SortField, ...]:
    """Return the declared sorting columns of a file, up to the first one that is not in `ids`.

    Parquet declares the order of each row group. Across row groups, only files that we wrote are
    known to be sorted, and the new file has other row groups.
    """
    metadata, schema = parquet.metadata, parquet.schema_arrow
    declared = {metadata.row_group(i).sorting_columns for i in range(metadata.num_row_groups)}
    if len(declared) != 1 or (metadata.num_row_groups > 1 and exported_by(path) is None):
        return ()
    ids_by_name = {f.name: int((f.metadata or {}).get(FIELD_ID_KEY, 0)) for f in schema}
    (columns,) = declared
    found: list[SortField] = []
    for column in columns:
        field_id = ids_by_name.get(metadata.schema.column(column.column_index).path, 0)
        if field_id not in ids:
            break
        found.append((field_id, column.descending, column.nulls_first))
    return tuple(found)


_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Looked:
    """The change of a file, None for none, and the location of its remaining rows."""

    rewrite: Rewrite | None
    left: str


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Opens the stored remaining rows of files; a `LeftOfFiles`.

    `sets` are the columns whose values may have changed, `at` the locations by path of the file.
    """

    sets: tuple[str, ...]
    at: Mapping[str, str]
    storages: Opens

    @contextmanager
    def left(self, path: str) -> Iterator[pa.Table]:
        """Open the remaining rows of a changed file in order, with `ROW_NUMBER`.

        The other columns are `sets`, as ClickHouse exports them. The table is memory-mapped.
        """
        location = self.at[path]
        with ScratchDirectory("left") as scratch:
            local = self.storages(location).fetch(location, scratch.path)
            with pa.memory_map(str(local)) as left, pa.ipc.open_stream(left) as stream:
                yield stream.read_all()


@dataclass(frozen=True, slots=True)
class FileLooker:
    """Scans files for a statement, here or on another host.

    `schema` is the table's. The remaining rows are stored below the location `kept`. With `at_hand`
    that is a directory which all hosts share.
    """

    source: RememberedSource
    schema: Schema
    change: RowChange
    storages: Opens
    kept: str = ""
    at_hand: bool = True

    def __call__(self, files: Iterable[BranchFile]) -> Iterator[Looked]:
        """Scan files, one after the other.

        Raises:
            RefusedError: ClickHouse refuses a value, or a file's values do not fit the source's
                types.
            DestinationError: a file cannot be read, or the storage failed.
            SourceError: ClickHouse does not start.
        """
        of = self.source, self.storages, self.schema, self.change
        # One thread: as many scans run on this host as it has processors.
        with RowChanges(*of, threads=1) as rows:
            directory = Path(self.kept) if self.at_hand else rows.directory
            for file in files:
                looked = look(rows, file, directory)
                if self.at_hand or looked.rewrite is None:
                    yield looked
                else:
                    yield Looked(looked.rewrite, self._stored(Path(looked.left)))

    def _stored(self, local: Path) -> str:
        location = f"{self.kept}/{local.name}"
        sink = self.storages(location).create(location)
        try:
            with local.open("rb") as left:
                while piece := left.read(_PIECE):
                    sink.write(piece)
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        local.unlink()
        return location


def look(rows: RowChanges, file: BranchFile, directory: Path) -> Looked:
    """Scan a file, and store its remaining rows in a local directory.

    Raises:
        TableFormatError: as `FileLooker`.
    """
    left = directory / f"{uuid.uuid4().hex}.arrow"
    return Looked(rows(file, left), str(left))


LooksElsewhere = Callable[[tuple[BranchFile, ...]], tuple[Looked, ...] | None]
"""Scans files on other hosts; returns None if it is better done here."""


@dataclass(frozen=True, slots=True)
class LookedFiles:
    """Scans each file once, and remembers the result.

    A `tableformat.operations.rewrite.RowsOfFiles` and a `LeftOfFiles`. `rows` scans files here.
    """

    rows: RowChanges
    storages: Opens
    elsewhere: LooksElsewhere | None = None
    _found: dict[str, Looked] = field(default_factory=dict, init=False, repr=False)

    @property
    def sets(self) -> tuple[str, ...]:
        """The columns whose values may have changed."""
        return self.rows.sets

    def __call__(self, files: tuple[BranchFile, ...]) -> tuple[Rewrite | None, ...]:
        """Return the changes of files, None for none; repeated calls return the same.

        Raises:
            TableFormatError: as `FileLooker`, for the first file that fails.
        """
        new = tuple({f.path: f for f in files if f.path not in self._found}.values())
        found = self.elsewhere(new) if self.elsewhere is not None and new else None
        if found is None:
            found = tuple(look(self.rows, file, self.rows.directory) for file in new)
        self._found.update(zip((f.path for f in new), found, strict=True))
        return tuple(self._found[f.path].rewrite for f in files)

    @property
    def kept(self) -> KeptRows:
        """The remaining rows of files, for a rewrite on another host."""
        at = {path: one.left for path, one in self._found.items() if one.rewrite is not None}
        return KeptRows(self.sets, at, self.storages)

    @contextmanager
    def left(self, path: str) -> Iterator[pa.Table]:
        """Open the remaining rows of a changed file, as `KeptRows` does."""
        kept = KeptRows(self.sets, {path: self._found[path].left}, self.storages)
        with kept.left(path) as table:
            yield table


@dataclass(frozen=True, slots=True)
class FilteredFiles:
    """Finds files with bloom filters by their footers; a `LeftOfFiles` that keeps all rows.

    `storages` opens files, `columns` are field ids.
    """

    storages: Opens
    columns: frozenset[int]
    sets: ClassVar[tuple[str, ...]] = ()
    _rows: dict[str, int] = field(default_factory=dict)
    _found: dict[str, bool] = field(default_factory=dict)

    def __call__(self, file: BranchFile) -> bool:
        """Return whether a file has bloom filters of any of the columns.

        Raises:
            DestinationError: it cannot be read.
        """
        self._rows[file.path] = file.rows
        if file.path not in self._found:
            with ScratchDirectory("filters") as scratch:
                try:
                    local = self.storages(file.path).fetch(file.path, scratch.path)
                    with pq.ParquetFile(local) as read:
                        self._found[file.path] = bool(filtered_columns(read) & self.columns)
                except (OSError, pa.ArrowException) as error:
                    message = f"Cannot read {file.path}: {error}. Run it again."
                    raise DestinationError(message) from error
        return self._found[file.path]

    @contextmanager
    def left(self, path: str) -> Iterator[pa.Table]:
        """Yield the numbers of all rows of a file that was checked."""
        yield pa.table({ROW_NUMBER: pa.array(range(self._rows[path]), pa.uint64())})


_AS_IS: Final = "default.as_is"
_ROWS: Final = "default.rows"
_CHANGED: Final = "mergeberg_changed"
"""The column that an UPDATE sets to 1 in the rows that it changes."""
_NOW: Final = "mutations_sync = 2, allow_nondeterministic_mutations = 1"


class RowChanges(Closing):
    """Computes the changes of a statement in data files, one after the other.

    Leaving the context closes it.
    """

    def __init__(
        self,
        source: RememberedSource,
        storages: Opens,
        schema: Schema,
        change: RowChange,
        *,
        threads: int = 0,
    ) -> None:
        """Start a ClickHouse, and run the statement on an empty table.

        Args:
            source: the ClickHouse table, as the lake table stores it.
            storages: open the storages of locations.
            schema: of the table, for reading the files.
            change: the statement.
            threads: of the ClickHouse, 0 for the number of processors.

        Raises:
            RefusedError: ClickHouse refuses the statement (its code and text), or the statement
                reads more than its rows, or runs longer than allowed.
            SourceError: ClickHouse does not start.
        """
        self._source, self._change = source, change
        self._columns = columns_of_change(change, source.table.columns)
        self._stored = tuple(c for c in self._columns if c.stored)
        self.sets: Final = columns_set(change, self._columns)
        mapped = map_columns(source.table, source.conversions)
        self._checks = tuple(c for c in data_checks(mapped) if c.column in self.sets)
        zone = evaluated_zone(source.table.server_zone) or "UTC"
        self._held = OwnClickHouse("change", zone=zone, seconds=LEAST_SECONDS)
        what = self._change.command
        names = frozenset(c.name for c in self._stored)
        of_table = self._held, storages, source, schema, self._stored
        matter = names if change.condition else columns_read(change, self._columns)
        replaced = frozenset(self.sets) - matter
        self._rows = FileRows(*of_table, what, (_ROWS,), names, replaced)
        try:
            self._held.command(f"SET max_threads = {threads}")
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> Path:
        """A directory for temporary files, removed by `close`."""
        return self._held.directory

    def close(self) -> None:
        """End the ClickHouse, and remove its directory. Closing again does nothing."""
        self._held.close()

    def __call__(self, file: BranchFile, left: Path) -> Rewrite | None:
        """Return the changes in a file, None for none.

        Args:
            file: the data file.
            left: the file to write the remaining rows of a changed file to, as an Arrow stream in
                order: `ROW_NUMBER`, and the columns that it sets, as ClickHouse exports them.

        Raises:
            RefusedError: ClickHouse refuses a value, or the file's values do not fit the source's
                types.
            DestinationError: the file cannot be read.
        """
        self._held.allow(file.rows, file.bytes)
        try:
            self._rows.begin()
        except ClickHouseError as error:
            raise self._refused(error) from error
        self._rows.insert(file, _ROWS)
        try:
            return self._changed(file, left)
        except ClickHouseError as error:
            raise self._refused(error) from error

    def _begin(self) -> None:
        tables = KeyTables(self._held, self._source.table)
        needed = {c.name: c for c in self._columns}
        columns = (needed.get(c.name, without_default(c)) for c in self._source.table.columns)
        try:
            tables.make_as_is(_AS_IS, tuple(columns))
            self._held.command(f"ALTER TABLE {_AS_IS} {self._change.command} SETTINGS {_NOW}")
            tables.make(_ROWS, (*self._columns, *numbered(ROW_NUMBER, _CHANGED)), "")
        except ClickHouseError as error:
            raise self._refused(error) from error

    def _refused(self, error: ClickHouseError) -> RefusedError:
        message = f"Cannot run {self._change.command}: {error.reason.rstrip('.')}."
        return RefusedError(message, code=error.code)

    def _changed(self, file: BranchFile, left: Path) -> Rewrite | None:
        """Run the statement on the loaded rows, and write the result."""
        condition = self._change.condition
        where = f" WHERE {condition}" if condition else ""
        # A column that need not exist (IF EXISTS), or is not stored, changes nothing.
        sets_nothing = bool(self._change.sets) and not self.sets
        changed = 0 if sets_nothing else self._count(where)
        if not changed:
            return None
        self._held.command(f"ALTER TABLE {_ROWS} {self._marking} SETTINGS {_NOW}")
        rows = self._count("")
        # The condition may be nondeterministic, so the earlier count may be wrong.
        if not self._change.sets:
            changed = file.rows - rows
        elif condition:
            changed = self._count(f" WHERE {_CHANGED} = 1")
        self._refuse_values()
        columns = [c for c in self._rows.shown if c.name in self.sets]
        values = select_list(columns, self._source.conversions)
        number = f"{SOURCE_ALIAS}.{ROW_NUMBER} AS {ROW_NUMBER}"
        self._held.command(
            f"INSERT INTO FUNCTION file({quote_string(str(left))}, ArrowStream)"
            f" SELECT {', '.join(part for part in (number, values) if part)}"
            f" FROM {_ROWS} AS {SOURCE_ALIAS} ORDER BY {SOURCE_ALIAS}.{ROW_NUMBER}"
            f" SETTINGS {WIRE_SETTINGS}, engine_file_truncate_on_insert = 1"
        )
        return Rewrite((file,), changed, (rows,) if rows else ()) if changed else None

    @property
    def _marking(self) -> str:
        """The command; an UPDATE also marks the rows that it changes, in the same evaluation."""
        change = self._change
        if not change.sets or not change.condition:
            return change.command
        return change.command.replace("UPDATE ", f"UPDATE {_CHANGED} = 1, ", 1)

    def _refuse_values(self) -> None:
        """Refuse values that do not fit the lake's types, as an export does.

        Raises:
            RefusedError: the statement set some.
        """
        if not self._checks:
            return
        (found,) = self._held.rows(
            f"SELECT {checks_sql(self._checks)} FROM {_ROWS} AS {SOURCE_ALIAS}"
        )
        if reasons := broken(self._checks, found):
            raise RefusedError(f"Cannot run {self._change.command}: {reasons}")

    def _count(self, where: str) -> int:
        ((found,),) = self._held.rows(f"SELECT count() FROM {_ROWS}{where}")
        return whole(found)

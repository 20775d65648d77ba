"""Runs the digest's query over the parts of a snapshot, and over the lake's data files.

`FileDigests` reads files in any process: in that of a command, and in Spark's tasks.

Our own empty ClickHouse in a temporary directory reads the files. It sees each file under a plain
name, because a data file's name may have any character, and ClickHouse would read some of them as
a pattern. Nothing is inferred: columns and types are given (`file_columns`), and the settings below
fix everything else that could change the result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, Row, text, whole
from catalog.clickhouse.embedded import OwnClickHouse
from catalog.clickhouse.server.embedded_query import computed_rows
from catalog.clickhouse.snapshot.comparison import within
from catalog.processes import Closing
from catalog.rewriting.second_reader import FileTally, tally_file
from catalog.storages.schemes import Opens, Storages
from tableformat.digest import Digest, KeptDigest, joined
from tableformat.errors import DeniedError, DestinationError, MissingError
from tableformat.iceberg.read_columns import FileColumn, FilesToDigest, file_columns
from tableformat.mergetree.digest_sql import (
    DigestColumn,
    Tally,
    digest_sql,
    empty_digest,
    read_digest,
    rows_sql,
)
from tableformat.mergetree.types import render_type
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import (
    SOURCE_ALIAS,
    PartitionId,
    TableName,
    quote_identifier,
    quote_string,
)

__all__ = ["READ_SETTINGS", "FileDigests", "as_read", "digest_partitions"]

READ_SETTINGS: Final = (
    "input_format_null_as_default = 0, input_format_parquet_allow_missing_columns = 1, "
    "input_format_parquet_case_insensitive_column_matching = 0, "
    "optimize_count_from_files = 0, use_cache_for_count_from_files = 0, "
    # The read-ahead; by default it grows with the file, up to 4 GiB.
    "input_format_parquet_memory_high_watermark = 268435456"
)
"""Settings for reading data files without inference."""
_OF_A_QUERY: Final = 200
"""Columns of one query: ClickHouse's time to analyze it is quadratic in their number."""
_GROUP: Final = f"{SOURCE_ALIAS}._partition_id"


def digest_partitions(
    connection: Connection,
    capabilities: Capabilities,
    table: TableName,
    partition_ids: Sequence[PartitionId],
    columns: Sequence[DigestColumn],
) -> dict[str, Digest]:
    """Return the digest of each partition of a table, by id: of the rows that a SELECT returns.

    Raises:
        ClickHouseError: a part cannot be read.
        SourceError: ClickHouse does not respond.
    """
    where = within(tuple(partition_ids))

    def run(query: Callable[[str], str]) -> dict[str, Row]:
        rows = computed_rows(
            connection, capabilities, table, where, WIRE_SETTINGS, query, lambda row: whole(row[1])
        )
        return {text(group): tuple(row) for group, *row in rows}

    batches = _batches(columns)
    each = [(batch, run(partial(_sql, batch))) for batch in batches]
    counted = run(partial(_rows_sql, columns)) if len(batches) > 1 else None
    found = {str(one): empty_digest(columns) for one in partition_ids}
    for one in each[0][1]:
        parts = [read_digest(batch, rows[one], tallies=False)[0] for batch, rows in each]
        found[one] = parts[0] if counted is None else _joined(counted[one], parts)
    return found


def _batches(columns: Sequence[DigestColumn]) -> tuple[tuple[DigestColumn, ...], ...]:
    """Return the columns of each query of a digest; a single one for ordinary tables.

    If there are several, the checksum over whole rows needs its own query.
    """
    starts = range(0, len(columns), _OF_A_QUERY)
    return tuple(tuple(columns[start : start + _OF_A_QUERY]) for start in starts)


def _sql(columns: Sequence[DigestColumn], shown: str) -> str:
    return digest_sql(columns, shown, group=_GROUP, tallies=False)


def _rows_sql(columns: Sequence[DigestColumn], shown: str) -> str:
    return rows_sql(columns, shown, group=_GROUP)


def _ignore(_rows: int) -> None:
    """Report no progress."""


class FileDigests(Closing):
    """Reads data files twice: the digest by ClickHouse, its counts and sums by a second reader.

    Both readers work at the same time. It implements
    `tableformat.export.verification.LakeDigests`. The first file, or entering the context, starts
    the ClickHouse; `close`, or leaving the context, ends it.
    """

    def __init__(
        self,
        storages: Opens | None = None,
        *,
        threads: int = 0,
        on_rows: Callable[[int], None] = _ignore,
    ) -> None:
        """Keep the storages of locations, None for local files; nothing is started yet.

        Args:
            storages: open the storage of a location.
            threads: of the ClickHouse, 0 for the number of processors.
            on_rows: called, on any thread, with the number of rows digested since the last call.
        """
        self._storages: Opens = Storages() if storages is None else storages
        self._threads, self._on_rows = threads, on_rows
        self._held: OwnClickHouse | None = None
        self._links = 0
        self.seconds = 0.0

    def close(self) -> None:
        """End the ClickHouse, if it runs. Closing again does nothing."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def __enter__(self) -> Self:
        self._opened()
        return self

    def read_ahead(self, wanted: Iterable[FilesToDigest]) -> None:
        """Do nothing: this process reads one file after the other."""

    def digest(self, wanted: FilesToDigest) -> Digest:
        """Return the digest of all rows of data files.

        Raises:
            UnsupportedError: the storage of a file is not supported.
            DestinationError: a file cannot be read, or its two readers disagree.
        """
        begun = time.monotonic()
        found = empty_digest(wanted.columns)
        for file in wanted.files:
            found += self._of_file(file.path, wanted.schema, wanted.columns)
        self.seconds = time.monotonic() - begun
        return found

    def keep(self, location: str, kept: KeptDigest) -> None:
        """Store a digest.

        Raises:
            DestinationError: it cannot be stored.
        """
        self._storages(location).put(location, kept.to_json().encode())

    def kept(self, location: str) -> KeptDigest | None:
        """Return the digest that is stored there, None if there is none.

        S3 denies a request for an absent object to an account that may not list objects.

        Raises:
            DestinationError: it cannot be read.
        """
        try:
            stored = self._storages(location).read(location)
        except (MissingError, DeniedError):
            return None
        return KeptDigest.from_json(stored.decode())

    def _opened(self) -> OwnClickHouse:
        """Return the ClickHouse that reads files."""
        if self._held is None:
            self._held = OwnClickHouse("verify")
            self._held.command(f"SET max_threads = {self._threads}")
        return self._held

    def _of_file(self, location: str, schema: Schema, columns: Sequence[DigestColumn]) -> Digest:
        scratch = self._opened().directory
        path = self._storages(location).fetch(location, scratch)
        progress = _FileProgress(self._on_rows)
        try:
            written = pq.read_schema(path)
            read_as = file_columns(columns, schema, written)
            with _tallying(path, read_as, progress) as second_reader:
                digest, tallies = self._file_digest(path, columns, read_as)
                second = second_reader.result()
        except (OSError, pa.ArrowException, ClickHouseError) as error:
            reason = error.reason if isinstance(error, ClickHouseError) else str(error)
            message = (
                f"Cannot verify {location}: the file cannot be read: {reason}. Restore it from a "
                "copy, or export its partition again."
            )
            raise DestinationError(message) from error
        finally:
            if path.parent == scratch:
                path.unlink(missing_ok=True)
        progress.reached(digest.rows)
        return _agreed(location, digest, tallies, second)

    def _file_digest(
        self, path: Path, columns: Sequence[DigestColumn], read_as: Sequence[FileColumn]
    ) -> tuple[Digest, tuple[Tally, ...]]:
        """Return ClickHouse's digest of one file."""
        clickhouse = self._opened()
        self._links += 1
        link = clickhouse.directory / f"{self._links}.parquet"
        link.symlink_to(path)
        read, structure = as_read(columns, read_as)
        table = f"file({quote_string(str(link))}, Parquet, {quote_string(structure)})"
        batches = _batches(read)
        queries = [digest_sql(batch, table, group="0", tallies=True) for batch in batches]
        if len(batches) > 1:
            queries.append(rows_sql(read, table, group="0"))
        found = [clickhouse.rows(f"{sql} SETTINGS {READ_SETTINGS}") for sql in queries]
        link.unlink()
        if not found[0]:
            return empty_digest(columns), tuple(Tally(0, 0) for _ in columns)
        figures = [rows[0][1:] for rows in found]
        parts = [read_digest(b, f, tallies=True) for b, f in zip(batches, figures, strict=False)]
        if len(parts) == 1:
            return parts[0]
        tallies = tuple(tally for _, some in parts for tally in some)
        return _joined(figures[-1], [digest for digest, _ in parts]), tallies


@dataclass(slots=True)
class _FileProgress:
    """The rows of a file that count as digested: half of those that the second reader has read.

    The other half counts when both readers have read the file.
    """

    on_rows: Callable[[int], None]
    reported: int = 0
    read: int = 0

    def counted(self, rows: int) -> None:
        """Add rows that the second reader has read."""
        self.read += rows
        self.reached(self.read // 2)

    def reached(self, rows: int) -> None:
        """Report the rows up to this number."""
        more, self.reported = rows - self.reported, rows
        if more > 0:
            self.on_rows(more)


class _StoppedReadingError(Exception):
    """The file is not needed any more, because the other reader has failed or was interrupted."""


@contextmanager
def _tallying(
    path: Path, columns: Sequence[FileColumn], progress: _FileProgress
) -> Iterator[Future[FileTally]]:
    """Read a file with the second reader on a thread; leaving the context stops it."""
    is_left = threading.Event()

    def on_rows(rows: int) -> None:
        if is_left.is_set():
            raise _StoppedReadingError
        progress.counted(rows)

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="second-reader") as thread:
        try:
            yield thread.submit(tally_file, path, columns, on_rows)
        finally:
            is_left.set()


def as_read(
    columns: Sequence[DigestColumn], read_as: Sequence[FileColumn]
) -> tuple[tuple[DigestColumn, ...], str]:
    """Return the digest columns of a file, and the structure to read it with."""
    read = tuple(
        DigestColumn(c.name, quote_identifier(_written(i, r)), r.type, c.canonical)
        for i, (c, r) in enumerate(zip(columns, read_as, strict=True))
    )
    structure = ", ".join(f"{c.sql} {render_type(c.type)}" for c in read)
    return read, structure


def _joined(counted: Sequence[object], batches: Sequence[Digest]) -> Digest:
    rows, checksum = counted
    return joined(whole(rows), whole(checksum), batches)


def _agreed(location: str, digest: Digest, tallies: Sequence[Tally], second: FileTally) -> Digest:
    """Return the digest, with the NULLs that only the second reader sees, if both readers agree.

    Raises:
        DestinationError: they disagree; the message has every figure.
    """
    wrong = [] if digest.rows == second.rows else [("rows", digest.rows, second.rows)]
    columns = []
    for column, first, other in zip(digest.columns, tallies, second.columns, strict=True):
        composed = column.type.startswith(("Array(", "Map(", "Tuple("))
        figures = [("values", first.values, other.values), ("sum", first.total, other.total)]
        if not composed:
            figures.append(("NULLs", column.nulls, other.nulls))
        wrong += [(f"{what} of column {column.name}", a, b) for what, a, b in figures if a != b]
        columns.append(replace(column, nulls=other.nulls))
    if wrong:
        differences = ", ".join(
            f"{what}: {a} by ClickHouse, {b} by pyarrow" for what, a, b in wrong
        )
        message = (
            f"Cannot verify {location}: its two readers do not agree ({differences}). Report it "
            "with the file; the other files can be verified by partition."
        )
        raise DestinationError(message)
    return replace(digest, columns=tuple(columns))


def _written(number: int, column: FileColumn) -> str:
    """Return the name to read a column as; a name of no column if the file lacks it."""
    return column.written if column.written is not None else f"mergeberg_absent_{number}"

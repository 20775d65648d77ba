"""Opens the frozen parts of slices as files, in an in-memory ClickHouse, and streams them.

This module owns the read-only disk over a private directory of hard links, the proof that exactly
the planned parts were opened, and the stream (docs/reference/source-parts.md). Small slices share a
table, because creating one takes longer than reading them. Only tasks import this module: it loads
chdb, and a process that has loaded chdb must not fork.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import adbc_driver_chdb

# chdb comes first: without it in the process, closing an ADBC connection hangs.
import chdb  # noqa: F401
import pyarrow as pa
from adbc_driver_manager import Error as AdbcError
from adbc_driver_manager.dbapi import Connection, Cursor

from catalog.clickhouse.connection import large_query_settings
from catalog.clickhouse.part_directories import (
    PartFiles,
    files_sql,
    parts_directory,
    plain_disk_sql,
    unread,
)
from catalog.clickhouse.slice_reader import OpenSlice, OpenTogether, SliceReader, condition_of
from catalog.processes import Closing
from tableformat.errors import InternalError, SourceError
from tableformat.export.slices import Slice, WritePlan
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_string
from tableformat.source import PartsLayout

__all__ = ["allow_size", "open_slice", "open_slices", "reading", "running"]

_NUMBERS: Final = itertools.count(1)
# Settings of the staging table that name a place; here the disk in the DDL replaces them.
_PLACE_SETTINGS: Final = frozenset({"disk", "storage_policy", "table_disk"})
_READ_SETTINGS: Final = (
    "max_threads = 1, optimize_read_in_order = 1, max_block_size = 16384, "
    f"prefer_column_name_to_alias = 1, {WIRE_SETTINGS}"
)
_NOT_MAPPED: Final = "local_filesystem_read_method = 'pread', min_bytes_to_use_mmap_io = 0"
"""ClickHouse counts bytes that it reads from files, but not those that it maps into memory."""


@dataclass(slots=True)
class _Connections(Closing):
    """Connections to the ClickHouse of this process. Opening one takes as long as a small query.

    A new stream ends an earlier one of its connection, so each stream has a connection for itself.
    """

    idle: list[Connection] = field(default_factory=list)

    @contextlib.contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """Lend a cursor of a connection that nobody uses; after an error nobody uses it again."""
        connection = self.idle.pop() if self.idle else adbc_driver_chdb.connect("chdb://")
        try:
            with connection.cursor() as cursor:
                yield cursor
        except BaseException:
            connection.close()
            raise
        self.idle.append(connection)

    def close(self) -> None:
        """Close the connections, of which none is used any more."""
        while self.idle:
            self.idle.pop().close()


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A `SliceReader` whose parts are files of this host."""

    plan: WritePlan
    slice: Slice
    table: str
    where: str
    connections: _Connections

    @property
    def rows(self) -> int | None:
        """The number of rows that it must return, None if the plan does not have it."""
        return self.slice.rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the plan's SELECT list in the order of the plan's key.

        Raises:
            SourceError: a part cannot be read; the stream never ends early without an error.
        """
        order = f" ORDER BY {self.plan.order_by}" if self.plan.order_by else ""
        settings = f"{_READ_SETTINGS}{self._zone}{self._pace}"
        sql = f"SELECT {self.plan.select} {self._from}{order} SETTINGS {settings}"
        with self.connections.cursor() as cursor:
            try:
                allow_size(cursor, sql)
                cursor.execute(sql)
                reader = cursor.fetch_record_batch()
            except (AdbcError, OSError, pa.ArrowException) as error:
                raise self._unreadable(error) from error
            with contextlib.closing(reader):
                while (batch := self._next(reader)) is not None:
                    yield batch

    def row(self, select: str) -> tuple[Any, ...]:
        """Return the one row of an aggregating SELECT list over the slice.

        Raises:
            SourceError: a part cannot be read.
        """
        with self.connections.cursor() as cursor:
            try:
                settings = f"max_threads = 1, {WIRE_SETTINGS}{self._zone}{self._pace}"
                sql = f"SELECT {select} {self._from} SETTINGS {settings}"
                allow_size(cursor, sql)
                cursor.execute(sql)
                found: tuple[Any, ...] = cursor.fetchone() or ()
            except (AdbcError, OSError, pa.ArrowException) as error:
                raise self._unreadable(error) from error
        return found

    @property
    def _from(self) -> str:
        return f"FROM {self.table} AS {SOURCE_ALIAS}{self.where}"

    @property
    def _zone(self) -> str:
        # Keys, and defaults that old parts lack, are computed as on the server.
        zone = self.plan.layout.zone
        return f", session_timezone = {quote_string(zone)}" if zone else ""

    @property
    def _pace(self) -> str:
        """Return settings that limit the bytes per second (RQ…ServerSettings.MaxBandwidth)."""
        rate = self.plan.share.bytes_per_second if self.plan.share is not None else None
        return "" if rate is None else f", max_local_read_bandwidth = {rate}, {_NOT_MAPPED}"

    def _next(self, reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
        try:
            return reader.read_next_batch()
        except StopIteration:
            return None
        except (AdbcError, OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> SourceError:
        return SourceError(
            f"Cannot read {_parts_text(self.slice)} of {self.plan.table}: {_first_line(error)} "
            "Check the table with CHECK TABLE, repair or drop the damaged part, and run again."
        )


@dataclass(frozen=True, slots=True)
class _Table:
    """A table over a directory of parts: the planned slices, and the parts that ClickHouse loaded.

    `loaded` is rows and hash by part name; `unread` is, by part name, the reason why a part is not
    read as it was written; `private` as in `PartsDirectory`.
    """

    name: str
    slices: tuple[Slice, ...]
    loaded: Mapping[str, tuple[int, str]]
    unread: Mapping[str, str]
    private: bool


def allow_size(cursor: Cursor, sql: str) -> None:
    """Raise the limits for the size of a query, for example over thousands of columns."""
    if settings := large_query_settings(sql):
        cursor.execute(f"SET {', '.join(f'{name} = {value}' for name, value in settings)}")


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Keep ClickHouse running: it stops with its last connection, and starting takes 20 ms."""
    with adbc_driver_chdb.connect("chdb://"):
        yield


@contextlib.contextmanager
def reading(plan: WritePlan) -> Iterator[OpenTogether]:
    """Yield a function that opens slices of a plan."""
    with running(), _Connections() as connections:
        yield partial(open_slices, plan, connections=connections)


@contextlib.contextmanager
def open_slices(
    plan: WritePlan, slices: tuple[Slice, ...], *, connections: _Connections | None = None
) -> Iterator[OpenSlice]:
    """Open small slices of one disk in one table; yield a function that returns each of them.

    If that fails, each slice is opened alone, so only a damaged one fails, with its own reason.
    """
    with contextlib.ExitStack() as stack:
        shared = connections or stack.enter_context(_Connections())
        together: _Table | None = None
        if len(slices) > 1:
            with contextlib.suppress(SourceError):
                together = stack.enter_context(_table(plan, slices))
        yield partial(_open_one, plan, together, shared)


@contextlib.contextmanager
def open_slice(plan: WritePlan, slice_: Slice) -> Iterator[FileSlice]:
    """Open exactly the parts of a slice read-only, and prove them before anything is read.

    Raises:
        SourceError: the parts cannot be read here, or differ from the plan.
    """
    with _Connections() as connections, _open_alone(plan, connections, slice_) as opened:
        yield opened


@contextlib.contextmanager
def _open_alone(plan: WritePlan, connections: _Connections, slice_: Slice) -> Iterator[FileSlice]:
    with _table(plan, (slice_,)) as table:
        if wrong := _wrong_parts(plan, slice_, table):
            raise SourceError(wrong)
        yield FileSlice(plan, slice_, table.name, _where(slice_, table), connections)


@contextlib.contextmanager
def _open_one(
    plan: WritePlan, together: _Table | None, connections: _Connections, slice_: Slice
) -> Iterator[SliceReader]:
    if together is not None and not _wrong_parts(plan, slice_, together):
        yield FileSlice(plan, slice_, together.name, _where(slice_, together), connections)
        return
    with _open_alone(plan, connections, slice_) as opened:
        yield opened


@contextlib.contextmanager
def _table(plan: WritePlan, slices: tuple[Slice, ...]) -> Iterator[_Table]:
    """Create a table over the parts of slices of one disk.

    Raises:
        SourceError: the parts cannot be read here.
    """
    name = f"slices_{next(_NUMBERS)}"
    with (
        parts_directory(plan.job, slices) as directory,
        adbc_driver_chdb.connect("chdb://") as connection,
        connection.cursor() as cursor,
    ):
        try:
            loaded, wrong = _load(cursor, name, plan, slices, directory.path)
            yield _Table(name, slices, loaded, wrong, directory.private)
        finally:
            cursor.execute(f"DROP TABLE IF EXISTS {name} SYNC")


def _load(
    cursor: Cursor, table: str, plan: WritePlan, slices: tuple[Slice, ...], directory: Path
) -> tuple[dict[str, tuple[int, str]], dict[str, str]]:
    """Create the table over `directory`.

    Returns:
        Rows and hash of each loaded part; and the reason for each part that is not read as it was
            written.
    """
    layout = _files(plan)
    this_table = f"database = currentDatabase() AND table = {quote_string(table)}"
    try:
        if plan.layout.zone:
            # A DateTime without a zone gets the session's zone when its table is created.
            cursor.execute(f"SET session_timezone = {quote_string(plan.layout.zone)}")
        sql = _create_sql(table, layout, directory)
        allow_size(cursor, sql)
        cursor.execute(sql)
        cursor.execute(
            f"SELECT name, rows, hash_of_all_files FROM system.parts WHERE active AND {this_table}"
        )
        loaded = {name: (rows, digest) for name, rows, digest in cursor.fetchall()}
        cursor.execute(files_sql(this_table))
        opened = [PartFiles.of(*row) for row in cursor.fetchall()]
        return loaded, unread(directory, opened, layout.settings)
    except (AdbcError, OSError) as error:
        message = (
            f"Cannot open {_parts_text(slices[0])} of {plan.table} in {directory}: "
            f"{_first_line(error)} Check that the directory is readable on this host."
        )
        raise SourceError(message) from error


def _files(plan: WritePlan) -> PartsLayout:
    if isinstance(plan.layout, PartsLayout):
        return plan.layout
    message = "Cannot open the parts of a server as files. This is a bug, please report it."
    raise InternalError(message)


def _create_sql(table: str, layout: PartsLayout, path: Path) -> str:
    """Return the DDL of a read-only table over a directory of parts."""
    settings = "".join(
        f", {name} = {value}" for name, value in layout.settings if name not in _PLACE_SETTINGS
    )
    clauses = (
        ("PARTITION BY", layout.partition_by),
        ("PRIMARY KEY", layout.primary_key),
        ("ORDER BY", layout.order_by or "tuple()"),
    )
    keys = "".join(f" {word} {text}" for word, text in clauses if text)
    return (
        f"CREATE TABLE {table} ({layout.columns}) ENGINE = MergeTree{keys} "
        f"SETTINGS table_disk = 1, disk = {plain_disk_sql(path)}{settings}"
    )


def _wrong_parts(plan: WritePlan, slice_: Slice, table: _Table) -> str:
    """Return how the loaded parts differ from the plan of a slice, '' if they do not.

    With a wrong clause or a broken part ClickHouse loads nothing, without an error.
    """
    for part in slice_.ranges:
        found = table.loaded.get(part.name)
        if found is None:
            return (
                f"Cannot read part {part.name} of {plan.table}: ClickHouse did not load it from "
                f"{part.path}, so it is broken, covered by another part, or not of this table. "
                "Check the table with CHECK TABLE and run again."
            )
        if found != (part.rows, part.hash_of_all_files):
            return (
                f"Cannot read part {part.name} of {plan.table}: it holds {found[0]} rows with hash "
                f"{found[1]}, planned were {part.rows} rows with hash {part.hash_of_all_files}. "
                "The frozen part was changed; run it again."
            )
        if part.name in table.unread:
            return (
                f"Cannot read part {part.name} of {plan.table}: {table.unread[part.name]}. Report "
                "it with the settings of the table (SHOW CREATE TABLE)."
            )
    foreign = sorted(table.loaded.keys() - _names(*table.slices))
    if table.private and foreign:
        return (
            f"Cannot read {_parts_text(slice_)} of {plan.table}: ClickHouse also loaded "
            f"{', '.join(foreign)}, which was not planned. Run it again."
        )
    return ""


def _names(*slices: Slice) -> frozenset[str]:
    return frozenset(part.name for slice_ in slices for part in slice_.ranges)


def _where(slice_: Slice, table: _Table) -> str:
    """Return the WHERE clause that selects the slice's rows, '' if the table has no others."""
    alone = table.private and _names(*table.slices) == _names(slice_)
    if alone and all(part.start is None for part in slice_.ranges):
        return ""
    return f" WHERE {condition_of(slice_)}"


def _parts_text(slice_: Slice) -> str:
    first, *others = (part.name for part in slice_.ranges)
    return f"part {first}" + (f" and {len(others)} more" if others else "")


def _first_line(error: Exception) -> str:
    """Return the first line of ClickHouse's error as a sentence, without its version."""
    text = str(error).strip().split("\n", 1)[0].split(" (version ", 1)[0].rstrip(". ")
    text = text.rpartition("[chdb] ")[2]
    return f"{text}."

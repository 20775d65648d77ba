"""Reads slices over HTTP from the server that keeps their frozen parts.

Each slice is one query, whose id begins with the job's prefix. A slice with a copy is read from the
server that has the copy. A task sends nothing more to a server that is gone. A server with every
wire setting computes the wire values itself and sends Arrow. From any other server the columns come
as Native, which every version has, and a ClickHouse in this process computes the values.

A stream counts only if it ends cleanly and has the planned rows. An error at the end of a response,
a missing part or a proxy that truncates fails the slice, which is then written again.

`native_batches` computes wire values from a response in the format Native, which goes through a
named pipe: ClickHouse reads it as a file while it arrives, and nothing is stored. This module loads
chdb, and a process that has loaded chdb must not fork. So only tasks import it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import adbc_driver_chdb

# chdb comes first: without it in the process, closing an ADBC connection hangs.
import chdb  # noqa: F401
import pyarrow as pa
from adbc_driver_manager import Error as AdbcError

from catalog.clickhouse.capabilities import PERMISSIONS
from catalog.clickhouse.connection import ClickHouseError, advice
from catalog.clickhouse.parts import allow_size, running
from catalog.clickhouse.server.client import ServerClient
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.replicas import query_prefix
from catalog.clickhouse.server.settings import Host, ServerSettings
from catalog.clickhouse.server.streams import (
    DECODING_SETTINGS,
    Feeding,
    OpenStream,
    arrow_batches,
    named_pipe,
)
from catalog.clickhouse.slice_reader import OpenSlice, OpenTogether, SliceReader, condition_of
from catalog.network import some
from tableformat.clickhouse_codes import UNKNOWN_DATABASE, UNKNOWN_SETTING, UNKNOWN_TABLE
from tableformat.errors import InternalError, SourceError, SourceGoneError
from tableformat.export.slices import Slice, WritePlan, at_copy
from tableformat.mergetree.wire_types import WIRE_SETTINGS, qualified
from tableformat.messages import Option
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string
from tableformat.source import ServedLayout

__all__ = ["ServedSlice", "native_batches", "reading"]

# max_network_bandwidth does not apply to HTTP responses.
_BANDWIDTHS: Final = ("max_local_read_bandwidth", "max_remote_read_network_bandwidth")
_NO_TABLE: Final = (UNKNOWN_TABLE, UNKNOWN_DATABASE)


@contextlib.contextmanager
def reading(plan: WritePlan, settings: ServerSettings) -> Iterator[OpenTogether]:
    """Yield a function that opens slices of a plan, with one connection to each server.

    Raises:
        SourceError: the server of the plan's layout is none of the settings'.
    """
    layout = _layout(plan)
    with _Servers(plan, settings) as servers:
        servers.client(layout.host)
        with running() if not layout.typed else contextlib.nullcontext():
            yield partial(_open_slices, plan, servers)


class _Servers(contextlib.ExitStack):
    """The connections of a task by address; it sends nothing more to the servers in `gone`."""

    def __init__(self, plan: WritePlan, settings: ServerSettings) -> None:
        """Prepare; no connection is opened yet."""
        super().__init__()
        self._plan, self._settings = plan, settings
        self._clients: dict[str, ServerClient] = {}
        self.gone: set[str] = set()

    def client(self, address: str) -> ServerClient:
        """Return the client of a server.

        Raises:
            SourceError: the settings do not have the server, or it does not respond.
        """
        if address not in self._clients:
            plan, settings = self._plan, self._settings
            host = next((host for host in settings.hosts if host.url == address), None)
            if host is None:
                message = (
                    f"Cannot read {plan.table} from {address}: the source is {settings.shown} "
                    "here. Run it again."
                )
                raise SourceError(message)
            client = ServerClient(_paced(plan, settings, host), host)
            self._clients[address] = self.enter_context(contextlib.closing(client))
        return self._clients[address]


@contextlib.contextmanager
def _open_slices(
    plan: WritePlan, servers: _Servers, slices: tuple[Slice, ...]
) -> Iterator[OpenSlice]:
    """Yield a function that opens each of the slices; they share only the connections."""
    del slices
    yield partial(_open_slice, plan, servers)


@contextlib.contextmanager
def _open_slice(plan: WritePlan, servers: _Servers, slice_: Slice) -> Iterator[SliceReader]:
    """Open a slice at the server that has its copy, else at the server of the snapshot.

    Raises:
        SourceError: the staging table does not have its parts, or the server does not respond.
    """
    layout, copy = _layout(plan), slice_.copy
    if copy is not None:
        layout, slice_ = replace(layout, host=copy.host), at_copy(slice_, copy)
    if layout.host in servers.gone:
        message = (
            f"Cannot read {plan.table} from {layout.host}: it no longer responds. Run it again."
        )
        raise SourceGoneError(message)
    try:
        client = servers.client(layout.host)
        opened = ServedSlice(plan, layout, client, slice_, None)
        rows = opened.counted() if slice_.rows is None else slice_.rows
        yield ServedSlice(plan, layout, client, slice_, rows)
    except SourceGoneError:
        if copy is not None:
            servers.gone.add(layout.host)
        raise


@dataclass(frozen=True, slots=True)
class ServedSlice:
    """An `OpenedSlice` that a server reads."""

    plan: WritePlan
    layout: ServedLayout
    client: ServerClient
    slice: Slice
    rows: int | None

    def counted(self) -> int:
        """Return the number of rows that the server reports for the slice.

        Raises:
            SourceError: the server does not respond.
        """
        try:
            ((rows,),) = ServerConnection(self.client).rows(f"SELECT count() {self._from}")
        except SourceError as error:
            raise self._unreadable(error) from error
        return int(str(rows))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the plan's SELECT list in the order of the plan's key.

        Raises:
            SourceError: the server does not return all rows; the stream never ends early without an
                error.
        """
        order = f" ORDER BY {self.plan.order_by}" if self.plan.order_by else ""
        return self._batches(self.plan.select, order)

    def row(self, select: str) -> tuple[Any, ...]:
        """Return the one row of an aggregating SELECT list over the slice.

        Raises:
            SourceError: the server does not respond.
        """
        table = pa.Table.from_batches(self._batches(select, ""))
        # By position, because two of its columns may have the same name.
        return tuple(column[0].as_py() for column in table.columns)

    def _batches(self, select: str, order: str) -> Iterator[pa.RecordBatch]:
        try:
            if self.layout.typed:
                sql = f"SELECT {select} {self._from}{order} FORMAT ArrowStream"
                yield from arrow_batches(partial(self._stream, sql))
            else:
                # The reader refuses a column that its query does not need, like one with another
                # name.
                used = tuple(c for c in self.layout.columns if qualified(c[0]) in select)
                columns = ", ".join(f"{qualified(n)} AS {quote_identifier(n)}" for n, _ in used)
                sql = f"SELECT {columns} {self._from}{order} FORMAT Native"
                layout = replace(self.layout, columns=used)
                yield from native_batches(partial(self._stream, sql), select, layout)
        except SourceError as error:
            raise self._unreadable(error) from error

    def _stream(self, sql: str) -> Any:
        settings = (*self.layout.settings, *self.client.settings.reading)
        query_id = f"{query_prefix(self.plan.job)}{self.slice.number}-{uuid.uuid4().hex}"
        return self.client.stream(sql, settings=settings, query_id=query_id)

    @property
    def _from(self) -> str:
        return f"FROM {self.slice.place} AS {SOURCE_ALIAS} WHERE {condition_of(self.slice)}"

    def _unreadable(self, error: SourceError) -> SourceError:
        names = [part.source_name for part in self.slice.ranges]
        reason = self._reason(error)
        way = advice(error.code, reason) or "Run it again."
        if error.code == UNKNOWN_SETTING and self.client.settings.reading:
            way = f"Correct {Option.SOURCE_SETTING}, or leave it out."
        message = (
            f"Cannot read {some(names)} of {self.plan.table} from "
            f"{self.layout.host}: {reason}. {way} Finished files are kept."
        )
        kind = SourceGoneError if isinstance(error, SourceGoneError) else SourceError
        return kind(message, code=error.code)

    def _reason(self, error: SourceError) -> str:
        """Return the reason without the words of the message around it."""
        if error.code in _NO_TABLE:
            return f"its staging table {self.slice.place} was dropped meanwhile"
        return error.why


def _paced(plan: WritePlan, settings: ServerSettings, host: Host) -> ServerSettings:
    """Return settings with which queries read no faster than the plan's share.

    A lower limit of the user is kept. Without the setting, or for a user who may not change it, the
    server is read as fast as files are written; the same applies to servers too old to compute the
    values, whose system.settings do not show it.

    Raises:
        SourceError: the server does not respond.
    """
    rate = plan.share.bytes_per_second if plan.share is not None else None
    if rate is None or not _layout(plan).typed:
        return settings
    names = ", ".join(map(quote_string, _BANDWIDTHS))
    sql = f"SELECT name FROM system.settings WHERE name IN ({names}) AND NOT readonly"
    reading = dict(settings.reading)
    with contextlib.closing(ServerClient(settings, host)) as client:
        for (found,) in ServerConnection(client).rows(sql):
            given = reading.get(str(found), "")
            most = min(rate, int(given)) if given.isdecimal() and int(given) else rate
            reading[str(found)] = str(most)
    return replace(settings, reading=tuple(reading.items()))


def _layout(plan: WritePlan) -> ServedLayout:
    if isinstance(plan.layout, ServedLayout):
        return plan.layout
    message = "Cannot request parts that are files from a server. This is a bug, please report it."
    raise InternalError(message)


# One thread keeps the rows in order.
_SETTINGS: Final = (
    "max_threads = 1, max_block_size = 16384, prefer_column_name_to_alias = 1, "
    f"{DECODING_SETTINGS}, {WIRE_SETTINGS}"
)
_ALLOWED: Final = ", ".join(quote_string(name) for name in PERMISSIONS)


def native_batches(
    open_stream: OpenStream, select: str, layout: ServedLayout
) -> Iterator[pa.RecordBatch]:
    """Stream a SELECT list over the rows of a response, in order.

    Args:
        open_stream: queries the server for the layout's columns, in the format Native.
        select: over the columns, each qualified by `SOURCE_ALIAS`.
        layout: of the table that is read.

    Raises:
        SourceError: the response is incomplete, or has a value that cannot be cast.
    """
    with named_pipe() as pipe, Feeding(open_stream, pipe) as feeding:
        try:
            yield from _batches(_sql(pipe, select, layout))
        except (AdbcError, OSError, pa.ArrowException) as error:
            # An incomplete response is the reason.
            feeding.end(well=False)
            raise _unreadable(error) from error
        feeding.end(well=True)


def _sql(pipe: Path, select: str, layout: ServedLayout) -> str:
    structure = ", ".join(f"{quote_identifier(name)} {of}" for name, of in layout.columns)
    zone = f", session_timezone = {quote_string(layout.zone)}" if layout.zone else ""
    return (
        f"SELECT {select} FROM file({quote_string(str(pipe))}, 'Native', {quote_string(structure)})"
        f" AS {quote_identifier(SOURCE_ALIAS)} SETTINGS {_SETTINGS}{zone}"
    )


def _batches(sql: str) -> Iterator[pa.RecordBatch]:
    # A new stream ends an earlier one of its connection, so each has its own.
    with adbc_driver_chdb.connect("chdb://") as connection, connection.cursor() as cursor:
        # The types of the server's table may need permission here, too.
        cursor.execute(f"SELECT name FROM system.settings WHERE name IN ({_ALLOWED})")
        allowed = ", ".join(f"{name} = 1" for (name,) in cursor.fetchall())
        # A Nested column is one column of the response, not one for each member.
        cursor.execute(f"SET flatten_nested = 0, {allowed}")
        allow_size(cursor, sql)
        cursor.execute(sql)
        with contextlib.closing(cursor.fetch_record_batch()) as reader:
            yield from reader


def _unreadable(error: Exception) -> SourceError:
    """Return the error for values that cannot be computed; ClickHouse's code shows a data error."""
    refusal = ClickHouseError(str(error).strip().rpartition("[chdb] ")[2])
    message = f"Cannot read a response of ClickHouse: {refusal.reason}. Run it again."
    return SourceError(message, code=refusal.code, why=refusal.reason)

"""Turns columns as a server keeps them into wire values, in a ClickHouse of this process.

For servers without Arrow, or with other casts than ours. The answer, in the format Native, goes
through a named pipe: ClickHouse reads it as a file while it arrives, and nothing is kept of it.
Loads chdb, so it is imported inside tasks only.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Self

import adbc_driver_chdb

# chdb comes first: without it in the process, closing an ADBC connection hangs.
import chdb  # noqa: F401
import pyarrow as pa
from adbc_driver_manager import Error as AdbcError

from catalog.clickhouse.server.client import ServerStream
from tableformat.errors import SourceError
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string
from tableformat.source import ServedLayout

__all__ = ["native_batches", "running"]

OpenStream = Callable[[], AbstractContextManager[ServerStream]]

# One thread keeps the rows in their order.
_SETTINGS: Final = (
    "max_threads = 1, input_format_parallel_parsing = 0, max_block_size = 16384, "
    f"prefer_column_name_to_alias = 1, {WIRE_SETTINGS}"
)


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Keep ClickHouse running: it stops with its last connection, and starting takes 20 ms."""
    with adbc_driver_chdb.connect("chdb://"):
        yield


def native_batches(
    open_stream: OpenStream, select: str, layout: ServedLayout
) -> Iterator[pa.RecordBatch]:
    """Stream a SELECT list over the rows of an answer, in their order.

    Args:
        open_stream: asks the server for the layout's columns; the answer is in the format Native.
        select: over the columns, each qualified by `SOURCE_ALIAS`.
        layout: of the table that was asked.

    Raises:
        SourceError: the answer is not whole, or has a value that cannot be cast.
    """
    with tempfile.TemporaryDirectory(prefix="mergeberg-native-") as directory:
        pipe = Path(directory, "rows.native")
        os.mkfifo(pipe, 0o600)
        with _Feeding(open_stream, pipe) as feeding:
            try:
                yield from _batches(_sql(pipe, select, layout))
            except (AdbcError, OSError, pa.ArrowException) as error:
                # Where the answer was not whole, that is the reason.
                feeding.end(well=False)
                message = (
                    f"Cannot read an answer of ClickHouse: {_first_line(error)}. Run the same "
                    "command again."
                )
                raise SourceError(message) from error
            feeding.end(well=True)


class _Feeding:
    """Writes an answer into a pipe, in a thread of its own."""

    def __init__(self, open_stream: OpenStream, pipe: Path) -> None:
        self._open_stream, self._pipe = open_stream, pipe
        self._failed: SourceError | None = None
        self._said: SourceError | None = None
        self._thread = threading.Thread(target=self._run, name="native-answer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def end(self, *, well: bool) -> None:
        """Wait until all of the answer was read.

        Args:
            well: whether ClickHouse could make values of it; else its end may say why not.

        Raises:
            SourceError: it was not whole.
        """
        self._let_go()
        failed = self._failed or (None if well else self._said)
        if failed is not None:
            raise failed

    def _let_go(self) -> None:
        """End the thread, also when nobody ever opened the pipe."""
        while self._thread.is_alive():
            with contextlib.suppress(OSError):
                os.close(os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK))
            self._thread.join(0.05)

    def _run(self) -> None:
        try:
            with self._pipe.open("wb", buffering=0) as sink, self._open_stream() as stream:
                for chunk in stream.chunks():
                    _write_all(sink.fileno(), chunk)
                self._said = stream.said_at_end
        except BrokenPipeError:
            # The reader stopped first, and says why itself.
            return
        except SourceError as error:
            self._failed = error


def _write_all(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sql(pipe: Path, select: str, layout: ServedLayout) -> str:
    structure = ", ".join(f"{quote_identifier(name)} {of}" for name, of in layout.columns)
    zone = f", session_timezone = {quote_string(layout.zone)}" if layout.zone else ""
    return (
        f"SELECT {select} FROM file({quote_string(str(pipe))}, 'Native', {quote_string(structure)})"
        f" AS {quote_identifier(SOURCE_ALIAS)} SETTINGS {_SETTINGS}{zone}"
    )


def _batches(sql: str) -> Iterator[pa.RecordBatch]:
    # A stream ends the one before it on the same connection, so it has a connection of its own.
    with adbc_driver_chdb.connect("chdb://") as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        with contextlib.closing(cursor.fetch_record_batch()) as reader:
            yield from reader


def _first_line(error: Exception) -> str:
    text = str(error).strip().split("\n", 1)[0].split(" (version ", 1)[0].rstrip(". ")
    return text.rpartition("[chdb] ")[2]

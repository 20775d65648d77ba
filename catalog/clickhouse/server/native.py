"""Computes wire values from a server's columns, in a ClickHouse of this process.

It serves servers without Arrow, or with other casts. The response, in the format Native, goes
through a named pipe: ClickHouse reads it as a file while it arrives, and nothing is stored. This
module loads chdb, so only tasks import it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import adbc_driver_chdb

# chdb comes first: without it in the process, closing an ADBC connection hangs.
import chdb  # noqa: F401
import pyarrow as pa
from adbc_driver_manager import Error as AdbcError

from catalog.clickhouse.capabilities import PERMISSIONS
from catalog.clickhouse.connection import ClickHouseError
from catalog.clickhouse.parts import allow_size
from catalog.clickhouse.server.streams import DECODING_SETTINGS, Feeding, OpenStream, named_pipe
from tableformat.errors import SourceError
from tableformat.mergetree.wire_types import WIRE_SETTINGS
from tableformat.names import SOURCE_ALIAS, quote_identifier, quote_string
from tableformat.source import ServedLayout

__all__ = ["native_batches"]

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
    message = f"Cannot read an answer of ClickHouse: {refusal.reason}. Run the same command again."
    return SourceError(message, code=refusal.code, why=refusal.reason)

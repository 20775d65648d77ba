"""Runs queries over an old server's rows that only a new ClickHouse can compute.

Iceberg's transforms and digests are SQL of the newest engine. If a server lacks its casts, the
columns are sent unchanged in the format Native to an empty ClickHouse of our own, which runs the
query as if it had the table. The rows are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from catalog.clickhouse.capabilities import Capabilities, probe_capabilities
from catalog.clickhouse.connection import ClickHouseError, Connection, Row, text, whole
from catalog.clickhouse.embedded import OwnClickHouse
from catalog.clickhouse.server.connection import ServerConnection
from catalog.clickhouse.server.streams import DECODING_SETTINGS, Feeding, named_pipe
from catalog.clickhouse.table_description import of_table
from tableformat.errors import SourceError
from tableformat.mergetree.wire_types import qualified
from tableformat.names import SOURCE_ALIAS, TableName, quote_identifier, quote_string

__all__ = ["computed_rows"]

# The values of a partition's key, which may be stored in no column.
_VALUE: Final = "_partition_value"


def computed_rows(
    connection: Connection,
    capabilities: Capabilities,
    table: TableName,
    where: str,
    settings: str,
    sql: Callable[[str], str],
    rows_of: Callable[[Row], int],
) -> tuple[Row, ...]:
    """Return the rows of a query over a table, computed by the server or by a ClickHouse here.

    Args:
        connection: to the source.
        capabilities: of the source.
        table: the table, which is read once.
        where: a condition on `_partition_id`, `_part` and columns, in the server's SQL.
        settings: the text after SETTINGS, '' for none.
        sql: returns the query for a text after FROM; its columns are qualified.
        rows_of: returns the number of source rows behind a row of the result.

    Raises:
        ClickHouseError: the query failed.
        SourceError: the server no longer responds, or its response lacks rows.
    """
    shown = f"{table.sql} AS {SOURCE_ALIAS} WHERE {where}"
    if capabilities.makes_wire_values or not isinstance(connection, ServerConnection):
        return connection.rows(sql(shown) + (f" SETTINGS {settings}" if settings else ""))
    ((least,),) = connection.rows(f"SELECT count() FROM {shown}")
    columns = _used_columns(connection, table, sql(shown))
    names = ", ".join(f"{qualified(name)} AS {quote_identifier(name)}" for name, _ in columns)
    column_query = f"SELECT {names} FROM {shown} FORMAT Native"
    open_stream = partial(connection.client.stream, column_query, settings=connection.settings)
    with OwnClickHouse("decoded") as ours, named_pipe() as pipe:
        if capabilities.server_zone:
            ours.command(f"SET session_timezone = {quote_string(capabilities.server_zone)}")
        _allow_types(ours)
        under = f"{DECODING_SETTINGS}{settings and f', {settings}'}"
        query = f"{sql(_from(pipe, columns))} SETTINGS {under}"
        with Feeding(open_stream, pipe) as feeding:
            try:
                rows = ours.rows(query)
            except ClickHouseError:
                # An incomplete response is the reason.
                feeding.end(well=False)
                raise
            feeding.end(well=True)
    # Native has no end mark, so a response that lost its last blocks looks complete.
    came = sum(rows_of(row) for row in rows)
    if came < whole(least):
        message = (
            f"Cannot read {table} from {connection.address}: {came} rows were returned, it has "
            f"{least}. Check proxies in between, and run again."
        )
        raise SourceError(message)
    return rows


def _allow_types(ours: Connection) -> None:
    """Allow the types of the server's table here, too."""
    permissions = probe_capabilities(ours).permissions
    allowed = ", ".join(f"{name} = {value}" for name, value in permissions)
    # A Nested column is one column of the response, not one for each member.
    ours.command(f"SET flatten_nested = 0, {allowed}")


def _used_columns(
    connection: Connection, table: TableName, sql: str
) -> tuple[tuple[str, str], ...]:
    """Return the names and types of the columns that a query may read."""
    found = connection.rows(f"SELECT name, type FROM system.columns WHERE {of_table(table)}")
    stored = ((text(row[0]), text(row[1])) for row in found)
    used = [(name, of) for name, of in stored if qualified(name) in sql]
    if qualified(_VALUE) in sql:
        ((_, of_value, *_),) = connection.rows(f"DESCRIBE TABLE (SELECT {_VALUE} FROM {table.sql})")
        used.append((_VALUE, text(of_value)))
    return (("_partition_id", "String"), *used)


def _from(pipe: Path, columns: Iterable[tuple[str, str]]) -> str:
    structure = ", ".join(f"{quote_identifier(name)} {of}" for name, of in columns)
    return f"file({quote_string(str(pipe))}, 'Native', {quote_string(structure)}) AS {SOURCE_ALIAS}"

"""The stand-in of a temporary table: a table of the same statement, with the same parts.

Only the session that made a temporary table can name it. So that session attaches its parts (hard
links, `ATTACH PARTITION ALL FROM`) to a table that every session sees, in the staging database. Of
what is attached nothing is believed: system.parts shows all sessions the temporary table's own
parts, under a database and a name of ClickHouse's (measured with 26.9), and the stand-in is used
only when it holds exactly those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import Connection, Row, text, texts
from catalog.clickhouse.describe import describe, list_parts, of_table
from catalog.clickhouse.lacked import with_lacked
from catalog.clickhouse.preflight import foreign_columns
from catalog.clickhouse.session import ChdbSession, rows_in, run_in
from catalog.clickhouse.staging import create_database, drop_staging, staging_table
from catalog.processes import new_job
from catalog.some import some
from tableformat.clickhouse_codes import UNKNOWN_TABLE
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    SourceError,
    TableFormatError,
    UnsupportedError,
)
from tableformat.mergetree.parts import Part
from tableformat.names import TableName, quote_identifier, quote_string

__all__ = ["TEMPORARY", "StandIn", "make_stand_in", "only_row"]

TEMPORARY: Final = "_temporary_and_external_tables"
"""The database of ClickHouse's own in which temporary tables are; nobody else can name it."""
_ATTEMPTS: Final = 5
_START: Final = re.compile(
    r"CREATE TEMPORARY TABLE (?:`(?:[^`\\]|\\.)*`|[^\s(`]+)(?: UUID '[^']*')? \(", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class StandIn:
    """A stand-in: its name, the UUID of the temporary table, and whose part each of its parts is.

    `originals` are the temporary table's own parts by the names that they have here.
    """

    name: TableName
    uuid: str
    originals: Mapping[str, Part]

    def renamed(self, message: str, table: TableName) -> str:
        """Return a message about the stand-in as one about the temporary table."""
        return _renamed(message, self.name, table)


def only_row(session: ChdbSession, sql: str) -> Row:
    """Return the only row of an answer of the user's session.

    Raises:
        SourceError: it gave none, or more, or does not answer.
    """
    found = rows_in(session, sql)
    if len(found) != 1:
        message = (
            f"Cannot read from the chdb session: it gave {len(found)} rows to {sql!r}. Undo what "
            "was set in it (SET), and call again."
        )
        raise SourceError(message)
    return found[0]


def make_stand_in(
    connection: Connection, capabilities: Capabilities, session: ChdbSession, table: TableName
) -> StandIn:
    """Make the stand-in of a temporary table; whoever asked for it drops it.

    Args:
        connection: beside the session.
        capabilities: of the connection.
        session: that has the table.
        table: its name, in the database `TEMPORARY`.

    Raises:
        NotFoundError: the session has no such table.
        UnsupportedError: it is not of the MergeTree family (code 48).
        RefusedError: it is changing.
        SourceError: the session does not answer, or its parts cannot be attached.
    """
    uuid, statement = _statement(session, table)
    for _ in range(_ATTEMPTS):
        # Like a staging table of a job of this process, so that a leftover is swept.
        name = staging_table(connection, f"{new_job()}_1")
        making = _Making(connection, capabilities, session, table, name)
        try:
            originals = making.run(uuid, statement)
        except BaseException as error:
            drop_staging(connection, capabilities, name)
            if isinstance(error, TableFormatError):
                error.message = _renamed(error.message, name, table)
                error.args = (error.message,)
            raise
        if originals is not None:
            return StandIn(name, uuid, originals)
        drop_staging(connection, capabilities, name)
    message = (
        f"Cannot export {table}: its parts changed in each of {_ATTEMPTS} attempts to freeze them. "
        "Call again when nothing is inserted into it."
    )
    raise SourceError(message)


@dataclass(frozen=True, slots=True)
class _Making:
    """One attempt; `name` is the stand-in's."""

    connection: Connection
    capabilities: Capabilities
    session: ChdbSession
    table: TableName
    name: TableName

    def run(self, uuid: str, statement: str) -> Mapping[str, Part] | None:
        """Make and fill it; return whose part each part is, None when that cannot be told."""
        self._create(statement)
        hidden = TableName(TEMPORARY, f"_tmp_{uuid}")
        self._check_steady(hidden)
        here = f"ALTER TABLE {self.name.sql} ATTACH PARTITION ALL FROM"
        run_in(self.session, f"{here} {quote_identifier(self.table.name)}")
        self._check_steady(hidden)
        copies = with_lacked(self.connection, self.name, self._parts(self.name))
        return _paired(copies, self._parts(hidden))

    def _create(self, statement: str) -> None:
        """Make an empty table of the temporary one's statement, in which nothing merges.

        Raises:
            UnsupportedError: it is not of the MergeTree family.
        """
        if not _START.match(statement):
            message = (
                f"Cannot export {self.table}: its statement cannot be read: {statement[:200]!r}. "
                "Insert its rows into a table that is not temporary, and export that."
            )
            raise UnsupportedError(message)
        create_database(self.connection, self.capabilities)
        # What the user's session was allowed to make, this one has to make again.
        for setting, value in self.capabilities.permissions:
            self.connection.command(f"SET {setting} = {value}")
        start = f"CREATE TABLE {self.name.sql} ("
        self.connection.command(_START.sub(lambda _: start, statement, count=1))
        describe(self.connection, self.capabilities, self.name)
        self.connection.command(f"SYSTEM STOP MERGES {self.name.sql}")
        self.connection.command(f"SYSTEM STOP TTL MERGES {self.name.sql}")

    def _check_steady(self, hidden: TableName) -> None:
        """Refuse what a clone would show otherwise than the table does (`preflight.py`).

        Raises:
            RefusedError: a mutation is not finished.
        """
        pending = f"{of_table(hidden)} AND NOT is_done"
        unfinished = texts(
            self.connection, f"SELECT mutation_id FROM system.mutations WHERE {pending}"
        )
        foreign = foreign_columns(self.connection, hidden, self.name)
        columns = sorted({column for found in foreign.values() for column in found})
        if unfinished or columns:
            what = f"the mutation {some(unfinished)}" if unfinished else f"ALTER of {some(columns)}"
            message = (
                f"Cannot export {self.table}: {what} is not finished, and a snapshot would show "
                "other values than the table. Call again when it is."
            )
            raise RefusedError(message)

    def _parts(self, name: TableName) -> tuple[Part, ...]:
        return list_parts(self.connection, self.capabilities, name)


def _statement(session: ChdbSession, table: TableName) -> tuple[str, str]:
    """Return the UUID of a temporary table, and the statement that makes it.

    Raises:
        NotFoundError: the session has it not.
    """
    # What the user set in the session must not hide the row.
    found = rows_in(
        session,
        "SELECT toString(uuid), create_table_query FROM system.tables WHERE is_temporary"
        f" AND name = {quote_string(table.name)} SETTINGS limit = 0, offset = 0",
    )
    if len(found) != 1:
        message = (
            f"Cannot find the temporary table {table.name}: the session does not have it any more. "
            "Make it again, in the same session."
        )
        raise NotFoundError(message, code=UNKNOWN_TABLE)
    return text(found[0][0]), text(found[0][1])


def _paired(copies: tuple[Part, ...], originals: tuple[Part, ...]) -> dict[str, Part] | None:
    """Return for each copy the part that it is of; None when one of either has no other.

    Equal parts are taken in order, which attaching keeps.
    """
    left: dict[tuple[str, str, int], list[Part]] = {}
    for part in originals:
        left.setdefault(part.content, []).append(part)
    found: dict[str, Part] = {}
    for copy in copies:
        same = left.get(copy.content)
        if not same:
            return None
        # Of the columns of a temporary table system.columns shows other sessions nothing.
        found[copy.name] = replace(same.pop(0), lacks=copy.lacks)
    return None if any(left.values()) else found


def _renamed(message: str, stand_in: TableName, table: TableName) -> str:
    shown = message.replace(stand_in.sql, quote_identifier(table.name))
    return shown.replace(str(stand_in), str(table))

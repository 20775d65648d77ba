"""Reads an open chdb session of this process as a source, including temporary tables.

This process locks the session's directory, so no child process can open it. Queries run in a second
session on the same data, with its own settings and database. The user's settings (`limit`, `final`,
filters) therefore hide no row from an export, and the user's session does not change. Only
statements about temporary tables run in the user's session.

The caller's session has loaded chdb; this module never imports it.

Only its own session can name a temporary table, so an export reads a stand-in:

1. The session creates a table with the same definition in the staging database, where all sessions
   see it.
2. It attaches the parts of the temporary table there (hard links, `ATTACH PARTITION ALL FROM`).
3. In every session, system.parts shows the temporary table's own parts, under an internal database
   and name (measured with 26.9). The stand-in is used only if it has exactly those parts.

Part names and block numbers are always those of the temporary table; its identity is its UUID.
Messages about the stand-in name the temporary table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from catalog.clickhouse.capabilities import Capabilities
from catalog.clickhouse.connection import (
    ClickHouseError,
    Connection,
    Row,
    set_statement,
    text,
    texts,
)
from catalog.clickhouse.snapshot.comparison import differences
from catalog.clickhouse.snapshot.preflight import foreign_columns
from catalog.clickhouse.snapshot.protocol import SnapshotRequest
from catalog.clickhouse.snapshot.staging import Search, create_database, drop_staging, staging_table
from catalog.clickhouse.source import ClickHouseSource
from catalog.clickhouse.table_description import (
    describe,
    list_parts,
    of_table,
    with_missing_columns,
)
from catalog.network import some
from catalog.processes import Closing, new_job
from catalog.source_defaults import STAGING_DATABASE
from tableformat.clickhouse_codes import UNKNOWN_TABLE
from tableformat.errors import (
    NotFoundError,
    RefusedError,
    SourceError,
    TableFormatError,
    Unable,
    UnsupportedError,
    UsageError,
)
from tableformat.mergetree.table import MergeTreeTable, Part, PartitionSummary
from tableformat.mergetree.types import DataType
from tableformat.names import PartitionId, TableName, quote_identifier, quote_string
from tableformat.source import FrozenPartition, Probe, ProbedValue, SourceSnapshot

__all__ = [
    "TEMPORARY",
    "ChdbSession",
    "SessionConnection",
    "SessionName",
    "StandIn",
    "TemporaryTableSource",
    "check_session",
    "find_table",
    "make_stand_in",
    "only_row",
    "open_session",
    "rows_in",
    "run_in",
]

_ROWS: Final = "JSONCompactEachRow"
_CLEAN: Final = "mergeberg clean"
_DRAINS: Final = 3


class ChdbSession(Protocol):
    """The methods of a `chdb.session.Session` that this package uses."""

    def query(self, sql: str, fmt: str = ...) -> Any:
        """Run one statement; its result has `bytes()`."""
        ...

    def close(self) -> None:
        """Release the data directory."""
        ...


def check_session(session: object) -> None:
    """Check that an object is an open chdb session.

    Raises:
        UsageError: it is another object, or it is closed.
    """
    if _class_of(session) is None:
        message = (
            f"Cannot read from {type(session).__name__}: it is no chdb session. Give an open "
            "chdb.session.Session, or the name of a source."
        )
        raise UsageError(message)
    _check_open(session)


def rows_in(session: ChdbSession, sql: str) -> tuple[Row, ...]:
    """Return the rows of a query, which has no FORMAT clause.

    Raises:
        ClickHouseError: ClickHouse refused the query, or it failed.
        SourceError: after an error, results no longer match their statements.
    """
    lines = _result(session, sql, _ROWS).split(b"\n")
    # ClickHouse strings are bytes; surrogates keep those that are not UTF-8.
    return tuple(
        tuple(json.loads(line.decode("utf-8", "surrogateescape"))) for line in lines if line
    )


def run_in(session: ChdbSession, sql: str) -> None:
    """Run a statement without a result.

    Raises:
        ClickHouseError: ClickHouse refused the statement, or it failed.
        SourceError: after an error, results no longer match their statements.
    """
    _result(session, sql, "Null")


class SessionConnection(Closing):
    """A connection to the data of an open session, which does not change the session.

    A context manager that closes the connection, never the session.
    """

    def __init__(self, session: ChdbSession, *, staging_database: str = STAGING_DATABASE) -> None:
        """Open a second session on the data of an open one.

        Args:
            session: the user's session.
            staging_database: the database for staging tables.

        Raises:
            UsageError: it is no chdb session, or it is closed.
            SourceError: a second session cannot be opened.
        """
        check_session(session)
        self._staging_database = staging_database
        self._second_session: ChdbSession | None = _second(session)
        try:
            self.command(set_statement(self.rows))
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """'': tasks read the parts as files, because this ClickHouse serves no other process."""
        return ""

    @property
    def staging_database(self) -> str:
        """The database for staging tables."""
        return self._staging_database

    def rows(self, sql: str) -> tuple[Row, ...]:
        """Return the rows of a query.

        Raises:
            ClickHouseError: ClickHouse refused the query, or it failed.
            SourceError: the connection is closed.
        """
        return rows_in(self._opened(), sql)

    def command(self, sql: str) -> None:
        """Run a statement without a result.

        Raises:
            ClickHouseError: ClickHouse refused the statement, or it failed.
            SourceError: the connection is closed.
        """
        run_in(self._opened(), sql)

    def close(self) -> None:
        """Close the second session."""
        second, self._second_session = self._second_session, None
        if second is not None:
            second.close()

    def _opened(self) -> ChdbSession:
        if self._second_session is None:
            message = "Cannot use ClickHouse: the connection to it is closed. Open it again."
            raise SourceError(message)
        return self._second_session


def _class_of(session: object) -> type[Any] | None:
    """Return chdb's session class of an object, also of a subclass; None for other objects."""
    for kind in type(session).__mro__:
        if kind.__name__ == "Session" and kind.__module__.startswith("chdb.session"):
            return kind
    return None


def _check_open(session: object) -> None:
    # chdb has no function for this; a query would open a closed session again, without the lock.
    if getattr(session, "_conn", None) is None:
        message = "Cannot read from the chdb session: it is closed. Open it, and call again."
        raise UsageError(message)


def _second(session: object) -> ChdbSession:
    """Open a second session on the same data; chdb finds it by the path that opened the first."""
    kind, path = _class_of(session), getattr(session, "_path", None)
    if kind is None or not isinstance(path, str):
        message = (
            f"Cannot read from {type(session).__name__}: this release of chdb does not show its "
            "data directory. Close the session, and give its directory as a source, chdb:DIRECTORY."
        )
        raise SourceError(message)
    try:
        opened: ChdbSession = kind(path)
    except RuntimeError as error:
        message = (
            f"Cannot read from the chdb session on {path!r}: "
            f"{ClickHouseError(str(error)).reason}. A relative path means another directory when "
            "the working directory has changed: open sessions by absolute paths."
        )
        raise SourceError(message) from error
    return opened


def _result(session: ChdbSession, sql: str, output_format: str) -> bytes:
    try:
        result: bytes = session.query(sql, output_format).bytes()
    except RuntimeError as error:
        _drain(session)
        raise ClickHouseError(str(error)) from error
    return result


def _drain(session: ChdbSession) -> None:
    """Discard the rows of a failed query, which chdb would return before the next result.

    Raises:
        SourceError: rows of the failed query remain.
    """
    for _ in range(_DRAINS):
        if session.query(f"SELECT '{_CLEAN}'", "TSV").bytes() == f"{_CLEAN}\n".encode():
            return
    message = (
        "Cannot read from the chdb session: after a failed statement it returns the rest of "
        "that statement's result. Close the session, open it again, and run again."
    )
    raise SourceError(message)


TEMPORARY: Final = "_temporary_and_external_tables"
"""ClickHouse's internal database of temporary tables; users cannot name it."""
_ATTEMPTS: Final = 5
_START: Final = re.compile(
    r"CREATE TEMPORARY TABLE (?:`(?:[^`\\]|\\.)*`|[^\s(`]+)(?: UUID '[^']*')? \(", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class StandIn:
    """A stand-in: its name, the temporary table's UUID, and the original of each of its parts.

    `originals` maps the stand-in's part names to the temporary table's parts.
    """

    name: TableName
    uuid: str
    originals: Mapping[str, Part]

    def renamed(self, message: str, table: TableName) -> str:
        """Return a message with the temporary table's name instead of the stand-in's."""
        return _renamed(message, self.name, table)


def only_row(session: ChdbSession, sql: str) -> Row:
    """Return the only row of a query in the user's session.

    Raises:
        SourceError: it returns no row or several, or the session fails.
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
    """Create the stand-in of a temporary table; the caller drops it.

    Args:
        connection: to the session's data.
        capabilities: of the connection.
        session: the session with the table.
        table: its name, in the database `TEMPORARY`.

    Raises:
        NotFoundError: the session has no such table.
        UnsupportedError: it is not of the MergeTree family (code 48).
        RefusedError: a mutation or ALTER of it is not finished.
        SourceError: the session fails, or its parts change or cannot be attached.
    """
    uuid, statement = _statement(session, table)
    for _ in range(_ATTEMPTS):
        # Named like a staging table of a job of this process, so that a leftover is swept.
        name = staging_table(connection, f"{new_job()}_1")
        attempt = _Attempt(connection, capabilities, session, table, name)
        try:
            originals = attempt.run(uuid, statement)
        except BaseException as error:
            drop_staging(connection, capabilities, name)
            if isinstance(error, TableFormatError):
                error.reword(partial(_renamed, stand_in=name, table=table))
            raise
        if originals is not None:
            return StandIn(name, uuid, originals)
        drop_staging(connection, capabilities, name)
    message = Unable.of(
        str(table),
        f"its parts changed in each of {_ATTEMPTS} attempts to freeze them. Call again when "
        "nothing is inserted into it.",
    )
    raise SourceError(message)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt to create the stand-in `name`."""

    connection: Connection
    capabilities: Capabilities
    session: ChdbSession
    table: TableName
    name: TableName

    def run(self, uuid: str, statement: str) -> Mapping[str, Part] | None:
        """Create and fill the stand-in; return its parts' originals, None if the parts changed."""
        self._create(statement)
        hidden = TableName(TEMPORARY, f"_tmp_{uuid}")
        self._check_steady(hidden)
        attach = f"ALTER TABLE {self.name.sql} ATTACH PARTITION ALL FROM"
        run_in(self.session, f"{attach} {quote_identifier(self.table.name)}")
        self._check_steady(hidden)
        copies = with_missing_columns(self.connection, self.name, self._parts(self.name))
        return _paired(copies, self._parts(hidden))

    def _create(self, statement: str) -> None:
        """Create an empty table with the temporary table's definition, in which nothing merges.

        Raises:
            UnsupportedError: it is not of the MergeTree family.
        """
        if not _START.match(statement):
            message = Unable.of(
                str(self.table),
                f"its statement cannot be read: {statement[:200]!r}. Insert its rows into a table "
                "that is not temporary, and export that.",
            )
            raise UnsupportedError(message)
        create_database(self.connection, self.capabilities)
        # The definition may need settings that the user's session allowed.
        for setting, value in self.capabilities.permissions:
            self.connection.command(f"SET {setting} = {value}")
        start = f"CREATE TABLE {self.name.sql} ("
        self.connection.command(_START.sub(lambda _: start, statement, count=1))
        describe(self.connection, self.capabilities, self.name)
        self.connection.command(f"SYSTEM STOP MERGES {self.name.sql}")
        self.connection.command(f"SYSTEM STOP TTL MERGES {self.name.sql}")

    def _check_steady(self, hidden: TableName) -> None:
        """Refuse unfinished changes, which a clone would lose (`preflight.py`).

        Raises:
            RefusedError: a mutation is not finished, or parts have columns that the table lacks.
        """
        pending = f"{of_table(hidden)} AND NOT is_done"
        unfinished = texts(
            self.connection, f"SELECT mutation_id FROM system.mutations WHERE {pending}"
        )
        foreign = foreign_columns(self.connection, hidden, self.name)
        columns = sorted({column for found in foreign.values() for column in found})
        if unfinished or columns:
            what = f"the mutation {some(unfinished)}" if unfinished else f"ALTER of {some(columns)}"
            message = Unable.of(
                str(self.table),
                f"{what} is not finished, and a snapshot would show other values than the table. "
                "Call again when it is.",
            )
            raise RefusedError(message)

    def _parts(self, name: TableName) -> tuple[Part, ...]:
        return list_parts(self.connection, self.capabilities, name)


def _statement(session: ChdbSession, table: TableName) -> tuple[str, str]:
    """Return the UUID and the CREATE statement of a temporary table.

    Raises:
        NotFoundError: the session does not have it.
    """
    # Settings of the user's session must not hide the row.
    found = rows_in(
        session,
        "SELECT toString(uuid), create_table_query FROM system.tables WHERE is_temporary"
        f" AND name = {quote_string(table.name)} SETTINGS limit = 0, offset = 0",
    )
    if len(found) != 1:
        message = (
            f"Cannot find the temporary table {table.name}: the session no longer has it. Create "
            "it again, in the same session."
        )
        raise NotFoundError(message, code=UNKNOWN_TABLE)
    return text(found[0][0]), text(found[0][1])


def _paired(copies: tuple[Part, ...], originals: tuple[Part, ...]) -> dict[str, Part] | None:
    """Return the original of each copy by content, None if a copy or an original has no pair.

    Equal parts are paired in order, which attaching keeps.
    """
    left: dict[tuple[str, str, int], list[Part]] = {}
    for part in originals:
        left.setdefault(part.content, []).append(part)
    found: dict[str, Part] = {}
    for copy in copies:
        same = left.get(copy.content)
        if not same:
            return None
        # In other sessions, system.columns does not show the columns of a temporary table.
        found[copy.name] = replace(same.pop(0), lacks=copy.lacks)
    return None if any(left.values()) else found


def _renamed(message: str, stand_in: TableName, table: TableName) -> str:
    shown = message.replace(stand_in.sql, quote_identifier(table.name))
    return shown.replace(str(stand_in), str(table))


E = TypeVar("E", bound=TableFormatError)


@dataclass(frozen=True, slots=True)
class SessionName:
    """A table that a session finds; a temporary one is in `TEMPORARY`."""

    name: TableName
    is_temporary: bool = False


def find_table(session: ChdbSession, parts: tuple[str, ...]) -> SessionName:
    """Return the table that a name means in a session: a temporary table first.

    Args:
        session: the session.
        parts: database and table, or the table alone.

    Raises:
        SourceError: the session fails.
    """
    if len(parts) > 1:
        return SessionName(TableName(*parts))
    (name,) = parts
    (exists,) = only_row(session, f"EXISTS TEMPORARY TABLE {quote_identifier(name)}")
    if exists:
        return SessionName(TableName(TEMPORARY, name), is_temporary=True)
    (database,) = only_row(session, "SELECT currentDatabase() SETTINGS limit = 0, offset = 0")
    return SessionName(TableName(text(database), name))


def open_session(session: ChdbSession, found: SessionName) -> ClickHouseSource:
    """Return a table of a session as a source; `close` leaves the session open."""
    if found.is_temporary:
        return TemporaryTableSource(session, found.name)
    return ClickHouseSource(lambda _: SessionConnection(session))


class TemporaryTableSource(ClickHouseSource):
    """A temporary table of a session as a source. A context manager that closes it."""

    def __init__(self, session: ChdbSession, table: TableName) -> None:
        """Keep the session; nothing is opened yet.

        Args:
            session: the session with the table.
            table: its name, in the database `TEMPORARY`.
        """
        super().__init__(lambda _: SessionConnection(session))
        self._session = session
        self._table = table
        self._made: StandIn | None = None

    def describe(self, table: TableName) -> MergeTreeTable:
        """Return the current definition of the table.

        Raises:
            NotFoundError: the session no longer has it (code 60).
            UnsupportedError: it is not of the MergeTree family (code 48).
            RefusedError: a mutation or ALTER of it is not finished.
            SourceError: the session fails.
        """
        made, found = self._stand_in(), self._described()
        return replace(found, name=table, uuid=made.uuid, identity=f"uuid:{made.uuid}")

    def partitions(self, table: TableName) -> tuple[PartitionSummary, ...]:  # noqa: ARG002  one
        """Return the partitions with active parts, sorted by id.

        Raises:
            SourceError: the session fails.
        """
        return super().partitions(self._stand_in().name)

    def with_times(
        self, table: MergeTreeTable, found: tuple[PartitionSummary, ...]
    ) -> tuple[PartitionSummary, ...]:
        """Return partitions with their times, or why these are unknown.

        Raises:
            SourceError: the session fails.
        """
        return super().with_times(replace(table, name=self._stand_in().name), found)

    def parts(self, table: TableName, *partition_ids: PartitionId) -> tuple[Part, ...]:  # noqa: ARG002  one
        """Return the active parts of partitions, with their own names and block numbers.

        Raises:
            SourceError: the session fails.
        """
        # A stand-in's parts get new numbers each time, and would look like merged parts.
        found = self._stand_in().originals.values()
        return tuple(part for part in found if part.partition_id in partition_ids)

    def refusals(
        self,
        table: TableName,  # noqa: ARG002  there is one
        partition_ids: tuple[PartitionId, ...],
    ) -> dict[PartitionId, RefusedError]:
        """Return the partitions that a snapshot would refuse now.

        Raises:
            SourceError: the session fails.
        """
        found = super().refusals(self._stand_in().name, partition_ids)
        return {one: self._renamed(error) for one, error in found.items()}

    def find_partition(self, table: MergeTreeTable, expression: str) -> PartitionId:
        """Return ClickHouse's id of a partition expression.

        Raises:
            UsageError: the expression is not made of literals, or does not fit the partition key.
            NotFoundError: no active part has that value.
            SourceError: the session fails.
        """
        try:
            return super().find_partition(replace(table, name=self._stand_in().name), expression)
        except TableFormatError as error:
            raise self._renamed(error) from error

    def key_types(self, table: MergeTreeTable) -> tuple[DataType, ...]:
        """Return the types of the members of the partition key, in order.

        Raises:
            SourceError: the session fails.
        """
        return super().key_types(replace(table, name=self._stand_in().name))

    def probe(
        self,
        table: TableName,  # noqa: ARG002  there is one
        partition_id: PartitionId,
        probes: tuple[Probe, ...],
    ) -> tuple[ProbedValue, ...] | None:
        """Return the results of probes in a partition, None if it has no visible rows.

        Raises:
            SourceError: the session fails.
        """
        return super().probe(self._stand_in().name, partition_id, probes)

    def close(self) -> None:
        """Drop the stand-in and close the connection; the session stays open."""
        made, self._made = self._made, None
        try:
            if made is not None:
                drop_staging(*self._opened(), made.name)
        finally:
            super().close()

    def _taken(self, request: SnapshotRequest) -> SourceSnapshot:
        """Take a snapshot of the stand-in, with the part names of the temporary table."""
        now = self.describe(request.table.name)
        if different := differences(request.table, now, copy=False):
            message = Unable.of(
                str(request.table.name),
                f"{different} changed since the table was described. Run it again.",
            )
            nothing = super()._taken(replace(request, table=self._described(), partition_ids=()))
            refused = tuple((one, RefusedError(message)) for one in request.partition_ids)
            return replace(nothing, table=request.table, refused=refused)
        taken = super()._taken(replace(request, table=self._described()))
        originals = self._stand_in().originals
        return replace(
            taken,
            table=request.table,
            partitions=tuple(_of_originals(one, originals) for one in taken.partitions),
            refused=tuple((one, self._renamed(error)) for one, error in taken.refused),
        )

    def _found_again(self, search: Search) -> SourceSnapshot:
        """Find nothing: the stand-in of an earlier snapshot is not reused."""
        found = super()._found_again(replace(search, table=self._described(), wanted={}))
        return replace(found, table=search.table)

    def _described(self) -> MergeTreeTable:
        """Return the current definition of the stand-in.

        Raises:
            UnsupportedError: it is not of the MergeTree family (code 48).
            SourceError: the session fails.
        """
        try:
            return super().describe(self._stand_in().name)
        except TableFormatError as error:
            raise self._renamed(error) from error

    def _stand_in(self) -> StandIn:
        """Return the stand-in, created by the first call.

        Raises:
            NotFoundError: the session no longer has the table.
            UnsupportedError: it is not of the MergeTree family (code 48).
            RefusedError: a mutation or ALTER of it is not finished.
            SourceError: the session fails.
        """
        if self._made is None:
            self._made = make_stand_in(*self._opened(), self._session, self._table)
        return self._made

    def _renamed(self, error: E) -> E:
        """Return an error with the temporary table's name instead of the stand-in's."""
        if self._made is not None:
            return error.reword(partial(self._made.renamed, table=self._table))
        return error


def _of_originals(one: FrozenPartition, originals: Mapping[str, Part]) -> FrozenPartition:
    parts = tuple(replace(p, source_name=originals[p.source_name].name) for p in one.parts)
    return replace(one, parts=parts)

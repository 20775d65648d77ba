"""Sources over open chdb sessions, in a process of their own: the tests' one never loads chdb.

    python -m tests.support.session_sources DIRECTORY

What was found at each step is written as one JSON object, by the step's name;
`tests/catalog/clickhouse/test_session_source.py` looks at it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from chdb import session as chdb

from catalog.clickhouse.capabilities import probe_capabilities
from catalog.clickhouse.connection import Row
from catalog.clickhouse.session import (
    TEMPORARY,
    ChdbSession,
    SessionConnection,
    find_table,
    make_stand_in,
    open_session,
)
from tableformat.errors import TableFormatError
from tableformat.mergetree.table import Part
from tableformat.names import PartitionId, TableName
from tests.support.own_process import RESULTS

__all__: list[str] = []

# Without types of its own.
_SESSION: Final[Any] = chdb.Session
_KEY: Final = "ENGINE = MergeTree PARTITION BY p ORDER BY k"
_ROWS: Final = "SELECT 1 AS p, number AS k FROM numbers"
_ONE: Final = PartitionId("1")


def _run(session: ChdbSession, *statements: str) -> None:
    for sql in statements:
        session.query(sql, "Null")


def _error_of(act: Callable[[], object]) -> list[Any]:
    """Return the error that something ends with."""
    try:
        act()
    except TableFormatError as error:
        return [type(error).__name__, error.message]
    return []


def _shown(parts: tuple[Part, ...]) -> list[list[Any]]:
    return [[p.name, p.rows, p.min_block, p.max_block] for p in parts]


def _names(session: ChdbSession, condition: str) -> list[list[str]]:
    result = session.query(
        f"SELECT database, name FROM system.tables WHERE {condition}", "JSONCompactEachRow"
    )
    return [json.loads(line) for line in result.bytes().splitlines()]


def _connection(root: Path) -> dict[str, Any]:
    """Query outside of a session that has settings and a stream of its own."""
    session = _SESSION(str(root / "connection"))
    _run(session, "SET limit = 1, max_threads = 3")
    stream = session.send_query("SELECT number FROM numbers(1000000) SETTINGS limit = 0", "TSV")
    first = len(stream.fetch().bytes())
    connection = SessionConnection(session)
    found: dict[str, Any] = {
        "rows": len(connection.rows("SELECT number FROM numbers(3)")),
        "threads": connection.rows("SELECT getSetting('max_threads') = 3"),
        "wide": [str(value) for value in connection.rows("SELECT toUInt64(-1), 1.5")[0]],
        "bytes": str(connection.rows("SELECT unhex('ff')")[0][0]) == "\udcff",
        "refused": _error_of(lambda: connection.rows("SELECT * FROM nowhere")),
        "failed": _error_of(
            lambda: connection.rows("SELECT throwIf(number = 200000) FROM numbers(300000)")
        ),
        "after": connection.rows("SELECT 'clean'"),
    }
    rest = first
    while (chunk := stream.fetch()) is not None and len(chunk.bytes()):
        rest += len(chunk.bytes())
    found["stream"] = rest
    connection.close()
    connection.close()
    found["closed"] = _error_of(lambda: connection.command("SELECT 1"))
    found["session"] = session.query("SELECT 'open'", "TSV").bytes().decode()
    session.close()
    found["no session"] = _error_of(lambda: SessionConnection(session))
    return found


def _moved(root: Path) -> dict[str, Any]:
    """Open a session by a relative path, and go elsewhere."""
    before = Path.cwd()
    os.chdir(root)
    session = _SESSION("relative")
    os.chdir(before)
    found = {"error": _error_of(lambda: SessionConnection(session))}
    session.close()
    return found


def _temporary() -> dict[str, Any]:
    """Read a temporary table whose parts are merged, and replaced by others of the same shape."""
    session = _SESSION()
    _run(
        session,
        f"CREATE TEMPORARY TABLE t (p UInt8, k UInt64) {_KEY}",
        f"INSERT INTO t {_ROWS}(3)",
        f"INSERT INTO t {_ROWS}(3, 3)",
    )
    named = find_table(session, ("t",))
    found: dict[str, Any] = {}
    with open_session(session, named) as source:
        table = source.describe(named.name)
        found["table"] = [str(table.name), table.identity, [c.name for c in table.columns]]
        found["first"] = _shown(source.parts(named.name, _ONE))
        taken = source.snapshot(table, (_ONE,), job="job")
        parts = [part for one in taken.partitions for part in one.parts]
        found["frozen"] = [
            [p.source_name, p.visible_rows, Path(p.part.path).is_dir()] for p in parts
        ]
        found["staged"] = len(_names(session, "database = 'mergeberg_staging'"))
        source.release(taken)
    found["left"] = _names(session, "database = 'mergeberg_staging'")
    uuid = session.query("SELECT uuid FROM system.tables WHERE is_temporary", "TSV").bytes()
    found["uuid"] = uuid.decode().strip()
    _run(session, "ALTER TABLE t DROP PARTITION ID '1'")
    _run(session, f"INSERT INTO t {_ROWS}(10, 3)", f"INSERT INTO t {_ROWS}(20, 3)")
    with open_session(session, named) as source:
        found["others"] = _shown(source.parts(named.name, _ONE))
    _run(session, "ALTER TABLE t ADD COLUMN c UInt8")
    with open_session(session, named) as source:
        ((one, error),) = source.snapshot(table, (_ONE,), job="job").refused
        found["changed"] = [str(one), type(error).__name__, error.message]
    session.close()
    return found


class _Meanwhile(SessionConnection):
    """A connection next to a session in which something happens when parts are looked at."""

    def __init__(self, session: ChdbSession, happens: Callable[[], None]) -> None:
        super().__init__(session)
        self._happens = happens
        self.mutations: tuple[Row, ...] = ()

    def rows(self, sql: str) -> tuple[Row, ...]:
        """Respond; before the temporary table's parts are shown, let it happen."""
        if "FROM system.mutations" in sql and self.mutations:
            return self.mutations
        if "FROM system.parts AS" in sql and TEMPORARY in sql:
            self._happens()
        return super().rows(sql)


def _changing() -> dict[str, Any]:
    """Make stand-ins of a table that changes once, always, or by a mutation."""
    session = _SESSION()
    _run(
        session, f"CREATE TEMPORARY TABLE t (p UInt8, k UInt64) {_KEY}", f"INSERT INTO t {_ROWS}(3)"
    )
    table = TableName(TEMPORARY, "t")
    times: list[int] = []

    def once() -> None:
        times.append(1)
        if len(times) == 1:
            _run(session, "INSERT INTO t VALUES (2, 9)")

    found: dict[str, Any] = {}
    with _Meanwhile(session, once) as connection:
        capabilities = probe_capabilities(connection)
        made = make_stand_in(connection, capabilities, session, table)
        found["once"] = [sum(p.rows for p in made.originals.values()), len(times)]
        found["kept"] = len(_names(session, "database = 'mergeberg_staging'"))
        connection.command(f"DROP TABLE {made.name.sql} SYNC")
    with _Meanwhile(session, lambda: _run(session, "INSERT INTO t VALUES (2, 9)")) as connection:
        found["always"] = _error_of(lambda: make_stand_in(connection, capabilities, session, table))
    with _Meanwhile(session, lambda: None) as connection:
        connection.mutations = (("mutation_3.txt",),)
        found["mutation"] = _error_of(
            lambda: make_stand_in(connection, capabilities, session, table)
        )
    found["left"] = _names(session, "database = 'mergeberg_staging'")
    session.close()
    return found


def _main(root: Path) -> None:
    found = {
        "connection": _connection(root),
        "moved": _moved(root),
        "temporary": _temporary(),
        "changing": _changing(),
    }
    (root / RESULTS).write_text(json.dumps(found))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))

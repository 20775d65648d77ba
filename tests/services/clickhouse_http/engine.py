"""The newest ClickHouse in this process: sessions with a user's rights, and responses as streams.

Only the server's process loads this. A SELECT is written by the engine itself
into a pipe (INTO OUTFILE), so that every format is one stream, as a server sends it: chdb's own
streaming makes each block a complete file.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from chdb import session

from tests.services.clickhouse_http.access import ADMINISTRATOR, DEFAULT_USER, Access, User, role_of

__all__ = ["MARK", "Engine", "EngineError", "Session"]

MARK: Final = "format_schema_message_name"
"""A setting without effect on the formats here: it carries the query_id to system.processes."""

_PIECE: Final = 1 << 18
_PIPE: Final = 1 << 20
_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 0.2
_DRAINS: Final = 3
_CODE: Final = re.compile(r"Code: (\d+)\.")
_TWICE: Final = re.compile(
    r"Code: \d+\. DB::Exception: (Code: \d+\. DB::Exception: .*) \(version [^)]*\)\. \(\w+\)",
    re.DOTALL,
)
_LITERAL: Final = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_SYSTEM_TABLE: Final = re.compile(r"\bsystem\s*\.\s*[`\"]?(\w+)", re.IGNORECASE)
# As ClickHouse has it; of numbers and zeros, which no server gives to everybody, tests make rows.
_FOR_EVERYBODY: Final = frozenset(
    {
        *("one", "numbers", "numbers_mt", "zeros", "zeros_mt", "contributors", "licenses"),
        *("time_zones", "collations", "formats", "privileges", "functions", "table_functions"),
        *("data_type_families", "database_engines", "table_engines", "settings", "databases"),
        *("aggregate_function_combinators", "tables", "columns", "current_roles"),
        *("enabled_roles", "quota_usage"),
    }
)
# With a check of a right to SHOW of their own.
_CHECKED_BY_THE_ENGINE: Final = frozenset(
    {"users", "roles", "row_policies", "settings_profiles", "quotas", "grants", "role_grants"}
)
_KILLS: Final = re.compile(r"\s*KILL\s+QUERY\b", re.IGNORECASE)
_OWN_GRANTS: Final = re.compile(
    r"\A\s*SHOW\s+GRANTS\b(?:\s+FOR\s+CURRENT_USER\b|(?!\s+FOR\b))", re.IGNORECASE
)
_READS: Final = re.compile(r"\s*\(*\s*(SELECT|WITH)\b", re.IGNORECASE)
_FORMAT: Final = re.compile(r"\bFORMAT\s+(\w+)(\s+SETTINGS\s.*)?\s*\Z", re.IGNORECASE | re.DOTALL)


class EngineError(Exception):
    """The engine refused a statement, or it failed; `text` is as a server says it."""

    def __init__(self, message: str, user: str, version: str) -> None:
        text = message[max(message.find("Code: "), 0) :].strip()
        if found := _TWICE.fullmatch(text):
            text = found[1]
        text = text.replace("DB::Exception: default: ", f"DB::Exception: {user}: ", 1)
        code = _CODE.match(text)
        self.code = int(code[1]) if code else 1002
        self.text = f"{text} (version {version} (official build))"
        super().__init__(self.text)


class Engine:
    """A data directory, open until `close`, with the rights of `access`."""

    def __init__(self, directory: Path, config: str, access: Access) -> None:
        """Open; `config` stands in the server configuration, below the root element."""
        self._directory = directory
        self._users = directory / "config" / "users.xml"
        self._file = directory / "config" / "config.xml"
        self._users.parent.mkdir(exist_ok=True)
        self._file.write_text(
            f"<clickhouse><users_config>{self._users}</users_config>{config}</clickhouse>"
        )
        self._gate = threading.Condition()
        self._running = 0
        self._changing = False
        self._pipes = itertools.count(1)
        self._open(access)

    def _open(self, access: Access) -> None:
        self._users.write_text(access.users_xml())
        self.access = access
        self._granted: dict[str, set[str | None]] = {}
        self._root = self._connected()
        self.version = self._root.query("SELECT version()", "TSV").bytes().decode().strip()

    def _connected(self) -> Any:
        path = f"{self._directory}/data?config-file={self._file}"
        return session.Session(path)  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def running(self, sql: str) -> Iterator[None]:
        """Hold the engine open for the time of a request.

        While a change waits for those that run, others wait for the change: but not one that ends
        a query.
        """
        with self._gate:
            self._gate.wait_for(lambda: not self._changing or _KILLS.match(sql))
            self._running += 1
        try:
            yield
        finally:
            with self._gate:
                self._running -= 1
                self._gate.notify_all()

    def change(self, access: Access, close_sessions: Callable[[], None]) -> None:
        """Give other rights: when no request runs, the engine is closed and opened with them.

        What only an open engine has is lost: temporary tables, stopped merges.
        """
        with self._gate:
            self._changing = True
            try:
                if not self._gate.wait_for(lambda: not self._running, _SECONDS):
                    raise TimeoutError("requests still run, so that the rights cannot be changed")
                close_sessions()
                self._root.close()
                self._open_with(access)
            finally:
                self._changing = False
                self._gate.notify_all()

    def _open_with(self, access: Access) -> None:
        before = self.access
        try:
            self._open(access)
        except Exception:
            self._open(before)
            raise

    def check_system_tables(self, user: User, sql: str) -> None:
        """Refuse a statement that reads a system table for which its user has no grant.

        A server does so where select_from_system_db_requires_grant is set, as its documentation has
        it by default and as ClickHouse Cloud has it; the embedded engine does not read that. The
        server names the columns too.

        Raises:
            EngineError: there is such a table.
        """
        if self.access.system_is_open:
            return
        read = set(_SYSTEM_TABLE.findall(_LITERAL.sub("''", sql)))
        if _KILLS.match(sql):
            read.add("processes")
        for table in sorted(read - _FOR_EVERYBODY - _CHECKED_BY_THE_ENGINE):
            if user.name not in self._granted:
                self._granted[user.name] = self._system_tables_of(user)
            if not self._granted[user.name] & {table, None}:
                message = (
                    "Code: 497. DB::Exception: default: Not enough privileges. To execute this"
                    f" query, it's necessary to have the grant SELECT ON system.{table}."
                    " (ACCESS_DENIED)"
                )
                raise EngineError(message, user.name, self.version)

    def _system_tables_of(self, user: User) -> set[str | None]:
        """Return the system tables of which a user was granted something; None is all of them."""
        with contextlib.closing(self.session(None)) as one:
            lines = one.run(
                f"SELECT table FROM system.grants WHERE role_name = '{role_of(user.name)}'"
                " AND access_type IN ('SELECT', 'ALL') AND NOT is_partial_revoke"
                " AND ifNull(database, 'system') = 'system'",
                "JSONCompactEachRow",
            )
        return {json.loads(line)[0] for line in lines.splitlines()}

    def session(self, user: User | None) -> Session:
        """Open a session of a user, or of the administrator."""
        return Session(self, self._connected(), user)

    def pipe(self) -> Path:
        """Make a named pipe of its own."""
        path = self._directory / f"answer{next(self._pipes)}"
        # A server that was killed leaves its own.
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        return path

    def end_queries(self, containing: str) -> None:
        """End the queries that hold a text."""
        condition = f"position(query, '{containing}') > 0 AND NOT startsWith(query, 'KILL')"
        with contextlib.closing(self.session(None)) as one:
            one.run(f"KILL QUERY WHERE {condition}")

    def close(self) -> None:
        """Close, and give the directory free."""
        self._root.close()


class Session:
    """One session; one statement at a time."""

    def __init__(self, engine: Engine, connection: Any, user: User | None) -> None:
        self._engine, self._connection = engine, connection
        self._name = user.name if user else DEFAULT_USER
        self._role = role_of(user.name) if user else ADMINISTRATOR
        self.run(f"SET ROLE {self._role}")

    def run(self, sql: str, form: str = "Null") -> bytes:
        """Run a statement and return its whole response.

        Raises:
            EngineError: it was refused, or failed.
        """
        try:
            found: bytes = self._connection.query(self._translated(sql), form).bytes() or b""
        except RuntimeError as error:
            self._drain()
            raise EngineError(str(error), self._name, self._engine.version) from error
        return found.replace(b"default_user", b"default") if _OWN_GRANTS.match(sql) else found

    def pour(self, sql: str, form: str, write: Callable[[bytes], None]) -> None:
        """Run a statement and hand its response on while it comes.

        What `write` raises ends the query.

        Raises:
            EngineError: it was refused, or failed; part of the response may be written already.
        """
        if not _READS.match(sql):
            write(self.run(sql, form))
            return
        path = self._engine.pipe()
        reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        with contextlib.suppress(AttributeError):  # only Linux lets a pipe be larger
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE)
        ended, ends = os.pipe()
        failed: list[Exception] = []

        def perform() -> None:
            try:
                self.run(_into(sql, path, form))
            except Exception as error:  # noqa: BLE001  raised again by the other thread
                failed.append(error)
            finally:
                os.close(ends)

        thread = threading.Thread(target=perform)
        thread.start()
        # Not select(): an engine that was opened often has more than a thousand files.
        waiting = select.poll()
        waiting.register(reader, select.POLLIN)
        waiting.register(ended, select.POLLIN)
        try:
            while True:
                ready = {one for one, _ in waiting.poll()}
                if reader in ready:
                    write(os.read(reader, _PIECE))
                elif ended in ready:
                    break
        finally:
            os.close(reader)
            while thread.is_alive():
                # One that has not begun to write waits for a reader, and no KILL QUERY ends that.
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
                # It writes for nobody, and would go on.
                self._engine.end_queries(str(path))
                thread.join(_RETRY_SECONDS)
            os.close(ended)
            path.unlink()
        if failed:
            raise failed[0]

    def _translated(self, sql: str) -> str:
        """Return a statement for the one user of the engine that means the same as on a server."""
        name = f"'{self._name}'"
        sql = re.sub(r"\bcurrentUser\(\)", name, sql, flags=re.IGNORECASE)
        sql = _OWN_GRANTS.sub(f"SHOW GRANTS FOR {self._role}", sql)
        sql = re.sub(r"\bsystem\.row_policies\b", self._engine.access.policies_sql(), sql)
        mark = f"Settings['{MARK}']"
        if _KILLS.match(sql):
            return re.sub(r"\bquery_id\b", mark, sql)
        marked = (
            f"(SELECT * REPLACE (if({mark} != '', {mark}, query_id) AS query_id)"
            " FROM system.processes)"
        )
        return re.sub(r"\bsystem\.processes\b", marked, sql)

    def _drain(self) -> None:
        """Take away the rows of a failed query: chdb gives them out before those of the next."""
        for _ in range(_DRAINS):
            if self._connection.query("SELECT 'clean'", "TSV").bytes() == b"clean\n":
                return

    def close(self) -> None:
        """Close the session."""
        self._connection.close()


def _into(sql: str, path: Path, form: str) -> str:
    """Return a query that writes its response to a pipe; its own FORMAT goes before `form`."""
    text = sql.rstrip().rstrip(";")
    found = _FORMAT.search(text)
    head, rest = (text[: found.start()], found[0]) if found else (text, f"FORMAT {form}")
    return f"{head}\nINTO OUTFILE '{path}' APPEND {rest}"

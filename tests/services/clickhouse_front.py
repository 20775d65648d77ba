"""The newest ClickHouse as a server for tests: the embedded engine behind an HTTP interface.

A process of its own (`tests/services/clickhouse_http/process.py`), which loads the engine; the
test process never does. What is the engine's own: every statement, every format, every setting,
grants and row policies with their messages and codes, KILL QUERY, system tables. What the front
does as a server does: the HTTP interface, users, sessions, compression, how a stream ends. What it
has not: quotas, X-ClickHouse-Summary, external tables, the native protocol. The engine has one
user: messages, `currentUser()` and SHOW GRANTS name the right one, `system.grants` and
`system.users` do not.
System tables need a grant, which the front checks: the embedded engine lets everybody read them.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.services.clickhouse_http.access import Access, is_about_access
from tests.services.clickhouse_http.faults import BrokenStream, Fault
from tests.services.server_process import ServerProcess, free_port

__all__ = [
    "BrokenStream",
    "ClickHouseFront",
    "Fault",
    "FrontTls",
    "Request",
    "clickhouse_front",
]

_ROOT: Final = Path(__file__).parents[2]
_SECONDS: Final = 120.0
_RETRY_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class FrontTls:
    """TLS of the server: its certificate and key, and who signs the certificates of clients."""

    identity: str
    clients: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked; no password is kept."""

    method: str
    sql: str
    query_id: str
    parameters: Mapping[str, str]
    accepts: str


class ClickHouseFront(ServerProcess):
    """A server on a port of the loopback interface; its data outlives its end.

    `start`, `kill` and `start` again is a restart: the same port, data, users and rights.
    """

    def __init__(
        self, directory: Path, *, config: str = "", tls: FrontTls | None = None, port: int = 0
    ) -> None:
        """Prepare; `config` stands in the server configuration, below its root element."""
        self._file = directory / "front.json"
        command = [
            # What the engine leaves when it is killed goes with the directory.
            *("env", f"PYTHONPATH={_ROOT}", f"TMPDIR={directory}"),
            *(
                sys.executable,
                "-P",
                "-m",
                "tests.services.clickhouse_http.process",
                str(self._file),
            ),
        ]
        super().__init__("the ClickHouse front", command, directory, self._responds)
        self._config = config
        self.tls = tls
        """What the next start speaks; it stays https, or http."""
        self.port, self._control = port or free_port(), free_port()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.access = Access()
        self._asking = threading.Lock()

    def start(self) -> None:
        """Start it, unless it runs; return when it responds."""
        self._write_options()
        super().start()

    def command(self, sql: str) -> None:
        """Run a statement as the administrator, also one about users, rights and row policies.

        A change of rights waits for the requests that run, and closes and opens the engine:
        temporary tables and stopped merges are lost with it.
        """
        if not is_about_access(sql):
            self._ask(ask="command", sql=sql)
            return
        self._change(self._after(self.access, sql))

    def commands(self, *statements: str) -> None:
        """Run statements as the administrator; what is about rights becomes one change, last."""
        access = self.access
        for sql in statements:
            if is_about_access(sql):
                access = self._after(access, sql)
            else:
                self.command(sql)
        if access != self.access:
            self._change(access)

    def rows(self, sql: str) -> tuple[tuple[object, ...], ...]:
        """Return the rows of a query of the administrator."""
        return tuple(tuple(row) for row in self._ask(ask="rows", sql=sql))

    def token(self, user: str, token: str) -> None:
        """Let a user in by an access token, and by nothing else."""
        self._change(self.access.with_user(replace(self.access.users[user], token=token)))

    def open_system_tables(self) -> None:
        """Let every user read the system tables, as an own configuration of a server may."""
        self._change(replace(self.access, system_is_open=True))

    def forget_users(self) -> None:
        """Go back to the one user `default`, without a password and with all rights."""
        if self.access != Access():
            self._change(Access())

    def drop_databases(self) -> None:
        """Drop all that tests made."""
        made = "engine = 'Atomic' AND name NOT IN ('default', 'system')"
        for (name,) in self.rows(f"SELECT name FROM system.databases WHERE {made}"):
            self.command(f"DROP DATABASE `{name}` SYNC SETTINGS max_table_size_to_drop = 0")

    def fail_next(self, fault: Fault, *, times: int = 1, containing: str = "") -> None:
        """Meet the next requests whose statement holds a text with a fault."""
        narrowed = replace(fault, containing=containing)
        self._ask(ask="fault", fault=narrowed.to_json(), times=times)

    @property
    def faults_left(self) -> int:
        """How many faults have not happened yet."""
        return len(self._ask(ask="faults"))

    def break_streams(self, how: BrokenStream) -> None:
        """Say how every response ends whose query fails in the middle."""
        self._ask(ask="broken", how=how)

    def requests(self, containing: str = "") -> tuple[Request, ...]:
        """Return what clients asked since the start or `mend`, in order."""
        every = (Request(**read) for read in self._ask(ask="requests"))
        return tuple(one for one in every if containing in one.sql)

    def mend(self) -> None:
        """Run, with the one user, without faults, and with no requests remembered."""
        self.resume()
        self.start()
        self._ask(ask="mend")
        self.forget_users()

    @contextlib.contextmanager
    def revived(self) -> Iterator[None]:
        """Start the server again whenever it dies, as what watches over servers does."""
        ends = threading.Event()

        def watch() -> None:
            while not ends.wait(_RETRY_SECONDS):
                self.start()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
            # One that the thread started has ended with it.
            self.kill()
            self.start()

    def _after(self, access: Access, sql: str) -> Access:
        """Return the rights after a statement that the engine can read."""
        literal = sql.replace("\\", "\\\\").replace("'", "\\'")
        self.rows(f"SELECT formatQuery('{literal}')")
        return access.after(sql)

    def _change(self, access: Access) -> None:
        self._ask(ask="access", access=access.to_json())
        self.access = access
        self._write_options()

    def _write_options(self) -> None:
        """Write what a start reads, so that a restarted server knows the rights that were given."""
        tls: dict[str, str] = {}
        if self.tls is not None:
            tls = {"identity": self.tls.identity, "clients": self.tls.clients}
        for name, text in tls.items():
            path = self._file.with_name(f"{name}.pem")
            self._write(path, text)
            tls[name] = str(path) if text else ""
        options = {
            "port": self.port,
            "control": self._control,
            "config": self._config,
            "access": self.access.to_json(),
            "tls": tls,
        }
        self._write(self._file, json.dumps(options))

    def _write(self, path: Path, content: str) -> None:
        path.write_text(content)
        path.chmod(0o600)

    def _responds(self) -> bool:
        try:
            self._ask(ask="ready")
        except OSError:
            return False
        return True

    def _ask(self, **asked: object) -> Any:
        with self._asking, socket.create_connection(("127.0.0.1", self._control), _SECONDS) as one:
            one.sendall(json.dumps(asked).encode() + b"\n")
            with one.makefile("rb") as responses:
                line = responses.readline()
        if not line:
            message = "the front ended"
            raise ConnectionError(message)
        response = json.loads(line)
        if "error" in response:
            message = f"{response['error']}\nin {asked.get('sql', asked['ask'])}"
            raise RuntimeError(message)
        return response["done"]


@contextlib.contextmanager
def clickhouse_front(*, config: str = "", tls: FrontTls | None = None) -> Iterator[ClickHouseFront]:
    """Run a server for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-front-") as made:
        front = ClickHouseFront(Path(made), config=config, tls=tls)
        front.start()
        try:
            yield front
        finally:
            front.kill()

"""The front's server: ClickHouse's HTTP interface over the engine of this process.

`python -m tests.services.clickhouse_http.process FILE`; the file is written by
`tests.services.clickhouse_front`, which also asks over the control port: one line of JSON each way
in a connection of its own.
"""

from __future__ import annotations

# Loaded before anything else of Arrow, else closing hangs.
import chdb  # noqa: F401

# isort: split
import contextlib
import gzip
import json
import secrets
import socketserver
import ssl
import string
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from catalog.clickhouse.connection import JSON_SETTINGS
from tests.services.clickhouse_http.access import Access, User
from tests.services.clickhouse_http.engine import MARK, Engine, EngineError, Session
from tests.services.clickhouse_http.faults import BrokenStream, Fault, Kind
from tests.services.clickhouse_http.recognition import RefusedError, user_of
from tests.services.clickhouse_http.responses import (
    BUFFER,
    EndedError,
    Response,
    cut_off,
    encoding_of,
)

__all__ = ["main"]

_NOT_SETTINGS: Final = frozenset(
    [
        "query",
        "database",
        "default_format",
        "query_id",
        "session_id",
        "session_timeout",
        "session_check",
        "user",
        "password",
        "quota_key",
        "role",
        "wait_end_of_query",
        "buffer_size",
        "compress",
        "decompress",
        "client_protocol_version",
        "enable_http_compression",
        "http_zlib_compression_level",
    ]
)
_TYPES: Final = {
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "JSON": "application/json; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
}
_LOG: Final = 10_000
Parameters = Mapping[str, str]


class Front(ThreadingHTTPServer):
    """The server, and all that outlives a request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options: dict[str, Any], directory: Path) -> None:
        self.engine = Engine(directory, options["config"], Access.from_json(options["access"]))
        self.faults: list[Fault] = []
        self.broken = BrokenStream.BLOCK
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self._sessions: dict[str, tuple[Session, threading.Lock]] = {}
        self._running: set[str] = set()
        self._tls: ssl.SSLContext | None = None
        if tls := options["tls"]:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls["identity"])
            if authority := tls["clients"]:
                self._tls.verify_mode = ssl.CERT_OPTIONAL
                self._tls.load_verify_locations(authority)
        super().__init__(("127.0.0.1", options["port"]), Exchange)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its own thread; TLS is spoken there too."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        with contextlib.suppress(OSError), self._tls.wrap_socket(request, server_side=True) as safe:
            super().finish_request(safe, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong here; a client that went away is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def take_fault(self, sql: str) -> Fault | None:
        """Take the first fault that is about a statement."""
        with self.lock:
            for fault in self.faults:
                if fault.containing in sql:
                    self.faults.remove(fault)
                    return fault
        return None

    @contextlib.contextmanager
    def named(self, query_id: str) -> Iterator[None]:
        """Hold a query id while its query runs.

        Raises:
            RefusedError: a query of this id runs.
        """
        with self.lock:
            if query_id in self._running:
                name = "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING"
                raise RefusedError(216, name, f"Query with id = {query_id} is already running")
            self._running.add(query_id)
        try:
            yield
        finally:
            with self.lock:
                self._running.discard(query_id)

    @contextlib.contextmanager
    def session(self, user: User, given: Parameters) -> Iterator[Session]:
        """Open a session for a request, or take the one that it names.

        Raises:
            RefusedError: another request is in this session, or there is none.
        """
        if "session_id" not in given:
            one = self.engine.session(user)
            try:
                yield one
            finally:
                one.close()
            return
        key = f"{user.name}/{given['session_id']}"
        with self.lock:
            if key not in self._sessions and given.get("session_check") == "1":
                raise RefusedError(372, "SESSION_NOT_FOUND", "Session not found")
            if key not in self._sessions:
                self._sessions[key] = self.engine.session(user), threading.Lock()
            one, lock = self._sessions[key]
        if not lock.acquire(blocking=False):
            message = f"Session {given['session_id']} is locked by a concurrent client"
            raise RefusedError(373, "SESSION_IS_LOCKED", message)
        try:
            yield one
        finally:
            lock.release()

    def change_access(self, access: Access) -> None:
        """Give other rights."""

        def close_sessions() -> None:
            for one, _ in self._sessions.values():
                one.close()
            self._sessions.clear()

        self.engine.change(access, close_sessions)


class Exchange(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server_version = "ClickHouse"
    disable_nagle_algorithm = True
    server: Front

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  as the base
        """Say nothing: `Front.requests` has what tests ask for."""

    def do_GET(self) -> None:
        """Respond; a GET may only read."""
        self._respond(b"")

    def do_POST(self) -> None:
        """Respond."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().strip() or b"0", 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self._respond(body)

    def _respond(self, body: bytes) -> None:
        place = urlsplit(self.path)
        if place.path in {"/ping", "/replicas_status"}:
            self._say(200, "Ok.\n")
            return
        if place.path != "/":
            self._say(
                404, f"There is no handle {place.path}\n\nUse / or /ping for health checks.\n"
            )
            return
        given = dict(parse_qsl(place.query, keep_blank_values=True))
        statement = body.decode("utf-8", "surrogateescape")
        sql = "\n".join(text for text in (given.get("query", ""), statement) if text)
        query_id = given.get("query_id") or str(uuid.uuid4())
        self._note(sql, given, query_id)
        fault = self.server.take_fault(sql)
        if fault is not None and fault.is_served_at_once:
            self._serve_fault(fault)
            return
        tag = "".join(secrets.choice(string.ascii_lowercase) for _ in range(16))
        form = given.get("default_format") or self.headers.get("X-ClickHouse-Format") or "TSV"
        wants = given.get("enable_http_compression") == "1"
        accepted = self.headers.get("Accept-Encoding", "") if wants else ""
        whole = given.get("wait_end_of_query") == "1"
        response = Response(
            self,
            {
                "Connection": "Keep-Alive",
                "Content-Type": _TYPES.get(form, "application/octet-stream"),
                "X-ClickHouse-Server-Display-Name": "front",
                "X-ClickHouse-Query-Id": query_id,
                "X-ClickHouse-Format": form,
                "X-ClickHouse-Timezone": "UTC",
                "X-ClickHouse-Exception-Tag": tag,
                "Keep-Alive": "timeout=10",
            },
            tag=tag,
            encoding=encoding_of(accepted),
            buffer=None if whole else int(given.get("buffer_size") or BUFFER),
            fault=fault,
            broken=self.server.broken,
        )
        try:
            self._perform(sql, form, given, query_id, response)
            response.finish()
        except EngineError as error:
            response.refuse(error.code, error.text)
        except RefusedError as error:
            version = self.server.engine.version
            response.refuse(error.code, f"{error.text} (version {version} (official build))")
        except EndedError:
            pass

    def _perform(
        self, sql: str, form: str, given: Parameters, query_id: str, response: Response
    ) -> None:
        server = self.server
        users = server.engine.access.users
        headers = {name.lower(): value for name, value in self.headers.items()}
        user = user_of(headers, given, users, self._certified())
        with server.engine.running(sql), server.named(query_id), server.session(user, given) as one:
            server.engine.check_system_tables(user, sql)
            asked = {k: v for k, v in given.items() if k not in _NOT_SETTINGS}
            restored = [name for name in asked if not name.startswith("param_")]
            is_own = "session_id" not in given
            if database := given.get("database") or self.headers.get("X-ClickHouse-Database"):
                one.run(f"USE `{database}`")
            settings = dict(user.settings)
            only_reads = settings.pop("readonly", "2" if self.command == "GET" else None)
            one.run(_set({MARK: query_id} | settings))
            # A session that may only read can never get settings again: not one that is named.
            if only_reads is not None and is_own:
                one.run(_set({"readonly": only_reads}))
            if asked:
                one.run(_set(asked))
            try:
                one.pour(sql, form, response.write)
            finally:
                if not is_own and restored:
                    one.run("SET " + ", ".join(f"{name} = DEFAULT" for name in restored))

    def _certified(self) -> str | None:
        """Return the common name of the client's certificate."""
        if not isinstance(self.connection, ssl.SSLSocket):
            return None
        subject: Any = (self.connection.getpeercert() or {}).get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        return names[0] if names else None

    def _note(self, sql: str, given: Parameters, query_id: str) -> None:
        parameters = {k: v for k, v in given.items() if k not in {"query", "password"}}
        accepted = self.headers.get("Accept-Encoding", "")
        noted = {"sql": sql, "parameters": parameters, "query_id": query_id, "accepts": accepted}
        with self.server.lock:
            self.server.requests.append(noted | {"method": self.command})
            del self.server.requests[:-_LOG]

    def _serve_fault(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.RESPONSE:
                code = fault.code
                more = {} if code is None else {"X-ClickHouse-Exception-Code": str(code)}
                self._say(fault.status, fault.text, {"Content-Type": fault.content_type} | more)
            case Kind.DROP:
                cut_off(self)
            case _:
                # Until the client does not wait any more.
                self.close_connection = True
                self.connection.recv(1)

    def _say(self, status: int, text: str, headers: Mapping[str, object] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (headers or {"Content-Type": "text/html; charset=UTF-8"}).items():
            self.send_header(name, str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Control(socketserver.StreamRequestHandler):
    """One question of the test's handle."""

    front: Front

    def handle(self) -> None:
        """Serve it."""
        asked = json.loads(self.rfile.readline())
        try:
            response: dict[str, Any] = {"done": self._done(asked)}
        except (EngineError, TimeoutError, RuntimeError) as error:
            response = {"error": str(error)}
        self.wfile.write(json.dumps(response).encode() + b"\n")

    def _done(self, asked: dict[str, Any]) -> object:
        front = self.front
        match asked["ask"]:
            case "rows" | "command" as how:
                form = "JSONCompactEachRow" if how == "rows" else "Null"
                with front.engine.running(asked["sql"]):
                    one = front.engine.session(None)
                    try:
                        one.run(_set(dict(JSON_SETTINGS)))
                        lines = one.run(asked["sql"], form).decode("utf-8", "surrogateescape")
                    finally:
                        one.close()
                return [json.loads(line) for line in lines.splitlines()]
            case "access":
                front.change_access(Access.from_json(asked["access"]))
            case "fault":
                with front.lock:
                    front.faults += [Fault.from_json(asked["fault"])] * asked["times"]
            case "faults":
                with front.lock:
                    return [fault.to_json() for fault in front.faults]
            case "broken":
                front.broken = BrokenStream(asked["how"])
            case "requests":
                with front.lock:
                    return list(front.requests)
            case "mend":
                with front.lock:
                    front.faults.clear()
                    front.requests.clear()
                front.broken = BrokenStream.BLOCK
            case "ready":
                pass
            case other:
                message = f"the front is not asked {other}"
                raise AssertionError(message)
        return None


def _set(settings: Parameters) -> str:
    pairs = (f"{name} = {_quoted(value)}" for name, value in settings.items())
    return f"SET {', '.join(pairs)}"


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def main(file: Path) -> None:
    """Serve until the process is ended."""
    options = json.loads(file.read_text())
    front = Front(options, file.parent)
    Control.front = front
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    control = socketserver.ThreadingTCPServer(("127.0.0.1", options["control"]), Control)
    control.daemon_threads = True
    threading.Thread(target=control.serve_forever, daemon=True).start()
    front.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

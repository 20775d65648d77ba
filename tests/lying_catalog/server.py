"""An Iceberg REST catalog on the loopback that lies when a test asks it to.

    with LyingCatalog(directory / "warehouse") as catalog:
        catalog.lie(HONEST, Fault(Kind.CONFLICT, When.AFTER))
        ...  # over catalog.uri
        catalog.held[0].apply()

Its tables are those of the built-in catalog of the same warehouse, so that a test sees through the
direct access what is really there, and others act there. What is true is `truth.py`'s, which lies
there are `faults.py`'s.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyiceberg.catalog.sql import SqlCatalog

from catalog.iceberg.catalogs import LOCAL_CATALOG, OpenedCatalog, open_catalog
from catalog.network import TimeOuts
from tests.lying_catalog.faults import Fault, Kind, When
from tests.lying_catalog.truth import Request, Response, TrueCatalog, refusal

__all__ = ["PATIENT", "Held", "LyingCatalog"]

PATIENT: Final = TimeOuts(connect=10.0, read=20.0)
"""Time-outs of a client that no lie makes wait."""
_PAGE: Final = Response(200, b"<html><body>Down for maintenance</body></html>")
_LONGEST_SILENCE: Final = 60.0


@dataclass(slots=True)
class Held:
    """A request that is still on its way: the client has given up on it, the network has not."""

    request: Request
    _catalog: TrueCatalog = field(repr=False)

    def apply(self) -> bool:
        """Let it arrive, as often as wanted; return whether the catalog applied it."""
        return self._catalog.response_to(self.request).status == 200


class _Server(ThreadingHTTPServer):
    # Waits for the threads at the end, so that nothing of a test goes on after it.
    daemon_threads = False
    catalog: LyingCatalog

    def handle_error(self, request: object, client_address: object) -> None:
        """Leave errors to the catalog, which notes them."""


class LyingCatalog:
    """The server: truthful, but for the faults on its list."""

    def __init__(self, truth: Path | OpenedCatalog) -> None:
        """Serve a catalog in a database.

        Args:
            truth: it, or the warehouse of the built-in one, made when it is missing.
        """
        if isinstance(truth, Path):
            truth = open_catalog(LOCAL_CATALOG, warehouse=truth)
        held = truth.catalog
        assert isinstance(held, SqlCatalog)
        self._sql, self.truth = held, TrueCatalog(held)
        self._script: list[Fault] = []
        self._meanwhile: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self.held: list[Held] = []
        self.served: list[Fault] = []
        self.errors: list[BaseException] = []
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.catalog = self
        # A short poll: the end of every test waits for it.
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; raise what went wrong in the server, unless the test has failed already."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._sql.close()
        if error is None and self.errors:
            raise self.errors[0]

    @property
    def uri(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def opened(self, time_outs: TimeOuts = PATIENT) -> OpenedCatalog:
        """Return it as the product opens it from a configuration."""
        properties = {"type": "rest", "uri": self.uri}
        return OpenedCatalog(LOCAL_CATALOG, None, properties, time_outs)

    def lie(self, *faults: Fault, meanwhile: Callable[[], object] | None = None) -> None:
        """Put faults on the list: each is served once, to the first request of its sort.

        Args:
            faults: in the order in which they are served; the list of before is dropped.
            meanwhile: what somebody else does during the first lie, after the request was applied
                or not, before the client gets a response.
        """
        with self._lock:
            self._script, self._meanwhile = [*faults], meanwhile

    def perform(self, connection: _Connection, request: Request) -> None:
        """Serve one request, truthfully or not."""
        fault, meanwhile = self._take(request)
        response = self.truth.response_to(request) if fault.is_served_now else None
        if fault.kind is Kind.TWICE and fault.when is When.AFTER:
            response = self.truth.response_to(request)
        if meanwhile is not None:
            meanwhile()
        match fault.kind:
            case Kind.NONE | Kind.TWICE if response is not None:
                connection.reply(response)
                if fault.kind is Kind.TWICE and fault.when is When.BEFORE:
                    self.truth.response_to(request)
            case Kind.PAGE:
                connection.reply(_PAGE)
            case Kind.LATE:
                self.held.append(Held(request, self.truth))
                connection.drop()
            case Kind.DROPPED:
                connection.drop()
            case Kind.CUT:
                connection.announce()
            case Kind.HEADERS:
                connection.announce()
                connection.wait_for_the_client_to_give_up()
            case Kind.SILENCE:
                connection.wait_for_the_client_to_give_up()
            case _:
                status = fault.kind.status
                assert status is not None
                connection.reply(refusal(status, "Lie", str(fault)))

    def _take(self, request: Request) -> tuple[Fault, Callable[[], object] | None]:
        """Take the first fault that waits for such a request off the list."""
        with self._lock:
            fault = next((f for f in self._script if f.on is request.asks), None)
            if fault is None:
                return Fault(Kind.NONE, on=request.asks), None
            self._script.remove(fault)
            meanwhile = None
            if fault.kind is not Kind.NONE:
                self.served.append(fault)
                meanwhile, self._meanwhile = self._meanwhile, None
            return fault, meanwhile


class _Connection(BaseHTTPRequestHandler):
    """One request and its response; closed after it."""

    server: _Server
    timeout = _LONGEST_SILENCE

    def respond(self) -> None:
        """Hand the request to the catalog; remember what goes wrong, so that the test fails."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.server.catalog.perform(self, Request(self.command, self.path, body))
        except ConnectionError:
            # The client gave up; that is what some of the tests are about.
            self.close_connection = True
        except BaseException as error:
            self.server.catalog.errors.append(error)
            raise

    do_GET = do_HEAD = do_POST = do_DELETE = respond  # noqa: N815  as http.server names them

    def reply(self, response: Response) -> None:
        """Send a response."""
        self.send_response(response.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def announce(self) -> None:
        """Send the headers of a success, and no body."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "10000")
        self.end_headers()

    def drop(self) -> None:
        """Close the connection without a response."""
        self.connection.shutdown(socket.SHUT_RDWR)

    def wait_for_the_client_to_give_up(self) -> None:
        """Say nothing until the other side closes the connection."""
        self.rfile.read(1)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing about requests."""

"""Serves the metrics of a command over HTTP while it runs, for `--metrics-port`.

The server listens on the loopback address unless the option names another host.
The metrics are in docs/reference/metrics.md.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from catalog.network import is_port
from spark_ext.actions.export_ports import ALLOTMENT
from spark_ext.actions.metrics import Figures, render
from tableformat.errors import RefusedError, UsageError

__all__ = ["MetricsAddress", "counting", "parse_metrics_address", "serving"]

_LOGGER: Final = logging.getLogger("mergeberg")
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LOOPBACK: Final = "127.0.0.1"
_ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%]+\]|[\w.-]+):)?(?P<port>[0-9]{1,5})")
_REQUEST_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """The address of the metrics server."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL for Prometheus."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"


def parse_metrics_address(text: str) -> MetricsAddress:
    """Parse `[HOST:]PORT`; the default host is the loopback address.

    Raises:
        UsageError: the text has another form.
    """
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"]) if found else 0
    if found is None or not is_port(port):
        message = (
            f"Cannot serve metrics on {text!r}: it is not PORT or HOST:PORT. Write for example "
            "9464, or 0.0.0.0:9464 for every network of this host."
        )
        raise UsageError(message)
    return MetricsAddress((found["host"] or _LOOPBACK).strip("[]"), port)


@contextlib.contextmanager
def serving(address: MetricsAddress, text: Callable[[], str]) -> Iterator[None]:
    """Serve `text()` at `/metrics` while the context is open.

    Raises:
        RefusedError: the address is in use, or is not one of this host.
    """
    handler = type("_Bound", (_Scrape,), {"text": staticmethod(text)})
    try:
        server = _server(address, handler)
    except OSError as error:
        reason = error.strerror or str(error)
        message = (
            f"Cannot serve metrics on {address.host}:{address.port}: {reason}. Give another port "
            "with --metrics-port, or leave it out. Nothing was done."
        )
        raise RefusedError(message) from error
    with server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="metrics", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    """A server whose request threads do not keep the process alive."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which could take a DNS query."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log an error of one request, such as a closed connection, and keep serving."""
        del request
        _LOGGER.warning("metrics: no response to %s: %r", client_address, sys.exception())


class _Server6(_Server):
    """The server for IPv6 addresses."""

    address_family = socket.AF_INET6


def _server(address: MetricsAddress, handler: type[BaseHTTPRequestHandler]) -> _Server:
    kind = _Server6 if ":" in address.host else _Server
    return kind((address.host, address.port), handler)


class _Scrape(BaseHTTPRequestHandler):
    """Handles one request."""

    timeout = _REQUEST_SECONDS
    text: Callable[[], str]

    def do_GET(self) -> None:
        """Send the metrics; send 404 for any other path."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, "There is only /metrics.")
            return
        body = self.text().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
        """Log nothing, because standard error belongs to the command."""


@contextlib.contextmanager
def counting(port: str, note: Callable[[str], None]) -> Iterator[Figures]:
    """Serve what is counted, as `[HOST:]PORT` says, as long as the context is open.

    Raises:
        UsageError: the port is malformed.
        RefusedError: the port is in use.
    """
    address = parse_metrics_address(port)
    figures = Figures(lambda: ALLOTMENT.slices)
    with serving(address, partial(render, figures)):
        note(f"metrics at {address.url}")
        yield figures

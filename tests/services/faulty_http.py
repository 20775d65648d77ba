"""An HTTP server that sends, byte by byte, what a test says: every way in which one can be wrong.

Each request takes the next response of the list; the last one is repeated. A response is bytes to
send, or something to do with the connection.
"""

from __future__ import annotations

import gzip
import re
import socket
import socketserver
import ssl
import struct
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from catalog.clickhouse.server.settings import Host

__all__ = [
    "CUT",
    "OURS",
    "RESET",
    "SILENT",
    "FaultyHttp",
    "Request",
    "Response",
    "chunked",
    "response_of",
]

Response = bytes | Callable[[socket.socket], None]

OURS: Final = {"X-ClickHouse-Server-Display-Name": "faulty", "Content-Type": "text/plain"}
"""What tells that a response is ClickHouse's."""


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def parameters(self) -> dict[str, str]:
        return dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))


def SILENT(connection: socket.socket) -> None:  # noqa: N802  it stands where bytes stand
    """Say nothing until the client goes away."""
    connection.recv(1)


def RESET(connection: socket.socket) -> None:  # noqa: N802  as SILENT
    """End the connection as a machine does that knows nothing of it any more."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def CUT(_connection: socket.socket) -> None:  # noqa: N802  as SILENT
    """End the connection without a response."""


def response_of(
    body: bytes = b"",
    *,
    status: str = "200 OK",
    headers: dict[str, str] | None = None,
    compress: bool = False,
    ours: bool = True,
) -> bytes:
    """Return a whole response with the length of its body."""
    sent = gzip.compress(body) if compress else body
    more = {"Content-Length": str(len(sent)), **({"Content-Encoding": "gzip"} if compress else {})}
    return _head(status, {**(OURS if ours else {}), **more, **(headers or {})}) + sent


def chunked(
    pieces: Iterable[bytes], *, headers: dict[str, str] | None = None, end: bool = True
) -> bytes:
    """Return a response of ClickHouse in chunks; without `end` the last one is missing."""
    head = _head("200 OK", {**OURS, "Transfer-Encoding": "chunked", **(headers or {})})
    sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
    return head + sent + (b"0\r\n\r\n" if end else b"")


# With this byte TLS begins.
_HELLO: Final = b"\x16"


class FaultyHttp:
    """The server, on a free port of 127.0.0.1; a context manager."""

    def __init__(self, *responses: Response, tls: ssl.SSLContext | None = None) -> None:
        self.responses = list(responses)
        self.requests: list[Request] = []
        self.connections = 0
        self._tls = tls
        owner = self

        class Talk(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                owner._talk(self.request)

        class Listener(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._listener = Listener(("127.0.0.1", 0), Talk)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def host(self) -> Host:
        """Its address."""
        scheme = "https" if self._tls else "http"
        return Host(scheme, "127.0.0.1", self._listener.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def _talk(self, connection: socket.socket) -> None:
        self.connections += 1
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as received:
                if received.peek(1)[:1] == _HELLO:
                    connection.sendall(_head("400 Bad Request", {"Content-Length": "0"}))
                    return
                while (request := _received(received.readline, received.read)) is not None:
                    self.requests.append(request)
                    next_ = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
                    if callable(next_):
                        next_(connection)
                        return
                    connection.sendall(next_)
                    if not _is_whole(next_):
                        return
        except OSError:
            # The client went away, or did not take our certificate: that is its response.
            return


def _received(line: Callable[[], bytes], read: Callable[[int], bytes]) -> Request | None:
    """Read a whole request; None when the client ended the connection."""
    first = line().decode("latin-1").split()
    if not first:
        return None
    headers = {}
    while (header := line().strip()) != b"":
        name, _, value = header.partition(b":")
        headers[name.decode("latin-1").lower()] = value.strip().decode("utf-8")
    return Request(first[0], first[1], headers, read(int(headers.get("content-length", 0))))


def _is_whole(response: bytes) -> bool:
    """Tell whether a response ends as its head says, so that the connection can go on."""
    head, _, body = response.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    if length is not None:
        return len(body) == int(length[1])
    return b"Transfer-Encoding: chunked" in head and body.endswith(b"0\r\n\r\n")


def _head(status: str, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()

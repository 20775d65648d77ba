"""A TLS proxy before the tests' PostgreSQL, which has no TLS of its own.

A client asks first whether the server speaks TLS (https://www.postgresql.org/docs/current/
protocol-flow.html, SSL session encryption); with a certificate the proxy says so and speaks it,
without one the server itself says that it does not.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.certificates import Identity

__all__ = ["TlsProxy", "tls_proxy"]

_ASKS_FOR_TLS = bytes.fromhex("0000000804d2162f")
_SECONDS = 30.0
_PIECE = 65_536


@dataclass
class TlsProxy:
    """Listens on the loopback interface; `encrypted` counts the connections that spoke TLS."""

    server: Path
    tls: ssl.SSLContext | None
    listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    encrypted: int = 0
    _open: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listening.getsockname()[1])

    def begin(self) -> None:
        """Begin to serve."""
        self._run(self._accept)

    def close(self) -> None:
        """End every connection, and listen no more."""
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self._threads[0].join(_SECONDS)
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_SECONDS)
        for one in self._open:
            one.close()

    def _run(self, act: object, *arguments: object) -> None:
        assert callable(act)
        self._threads.append(threading.Thread(target=act, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                self._run(self._hand_on, client)

    def _hand_on(self, client: socket.socket) -> None:
        self._open.append(client)
        # A client that does not like what it is shown leaves in the middle.
        with contextlib.suppress(OSError):
            if self.tls is not None:
                assert client.recv(len(_ASKS_FOR_TLS), socket.MSG_WAITALL) == _ASKS_FOR_TLS
                client.sendall(b"S")
                client = self.tls.wrap_socket(client, server_side=True)
                self._open.append(client)
                self.encrypted += 1
            server = socket.socket(socket.AF_UNIX)
            self._open.append(server)
            server.connect(str(self.server))
            self._run(_copy, server, client)
            _copy(client, server)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def tls_proxy(server: Path, identity: Identity | None = None) -> Iterator[TlsProxy]:
    """Stand before a server that listens on a unix socket, with a certificate or without."""
    tls = None
    if identity is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(identity.certificate, identity.key)
    made = TlsProxy(server, tls)
    made.begin()
    try:
        yield made
    finally:
        made.close()

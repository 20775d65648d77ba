"""The relay before ZooKeeper continues when its server was away, and loses responses on request."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.keeper_relay import KeeperRelay, keeper_relay
from tests.services.server_process import free_port

_CREATE = 1
_READ = 4


class Echoes(socketserver.StreamRequestHandler):
    """Responds to every message with itself."""

    def handle(self) -> None:
        while head := self.rfile.read(4):
            self.wfile.write(head + self.rfile.read(*struct.unpack(">i", head)))


class Server(socketserver.ThreadingTCPServer):
    """Serves each connection in a thread that nobody waits for."""

    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def serving(port: int) -> Iterator[None]:
    with Server(("127.0.0.1", port), Echoes) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield
        server.shutdown()


def message(number: int, kind: int) -> bytes:
    return struct.pack(">iii", 8, number, kind)


def responses(between: KeeperRelay, *messages: bytes) -> list[bytes]:
    """Send messages one after the other; return what comes, b'' for a connection that ended."""
    with socket.create_connection(("127.0.0.1", between.port), timeout=20) as one:
        found = []
        for each in (message(0, 0), *messages):
            try:
                one.sendall(each)
                found.append(one.recv(100))
            except ConnectionError:
                found.append(b"")
            if not found[-1]:
                break
        return found


def test_a_server_that_was_away_is_reached_again() -> None:
    """Harm prevented: whatever a test shows afterwards is that nobody accepts connections."""
    port = free_port()
    with keeper_relay(port) as between:
        assert responses(between) == [b""]
        assert responses(between) == [b""]
        with serving(port):
            assert responses(between, message(1, _READ)) == [message(0, 0), message(1, _READ)]


def test_the_response_to_the_named_change_is_lost() -> None:
    port = free_port()
    with serving(port), keeper_relay(port) as between:
        between.lose_response(2)

        found = responses(
            between, *(message(n, k) for n, k in enumerate((_CREATE, _READ, _CREATE), 1))
        )

        assert (found[-1], len(found), between.happened) == (b"", 4, True)

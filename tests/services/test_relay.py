"""The relay does to a connection what was asked for, at the byte that was named."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.services.relay import Relay, relay

_RESPONSE = bytes(range(256)) * 400


class Responses(socketserver.StreamRequestHandler):
    """Responds to one line with the same bytes, always."""

    def handle(self) -> None:
        while self.rfile.readline():
            self.wfile.write(_RESPONSE)


@pytest.fixture
def between() -> Iterator[Relay]:
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Responses) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with relay(server.server_address[1]) as made:
            yield made
        server.shutdown()


def asked(between: Relay) -> bytes:
    """Ask and return what comes, until the whole response is there or the connection ends."""
    with socket.create_connection(("127.0.0.1", between.port), timeout=20) as one:
        one.sendall(b"?\n")
        held = b""
        try:
            while len(held) < len(_RESPONSE) and (piece := one.recv(65_536)):
                held += piece
        except ConnectionResetError:
            pass
        return held


def test_bytes_pass_as_they_are(between: Relay) -> None:
    assert asked(between) == _RESPONSE
    assert (between.connections, between.received) == (1, len(_RESPONSE))


def test_a_connection_ends_behind_the_byte_that_was_named(between: Relay) -> None:
    between.cut_after(70_000)

    # A reset may overtake what was sent before it.
    assert len(asked(between)) <= 70_000
    assert asked(between) == _RESPONSE


def test_one_bit_of_one_byte_changes(between: Relay) -> None:
    between.flip_after(70_000)

    found = asked(between)

    changed = [at for at in range(len(_RESPONSE)) if found[at] != _RESPONSE[at]]
    assert changed == [70_000]


def test_a_connection_stands_still_until_it_goes_on(between: Relay) -> None:
    between.stall_after(1000)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(asked(between)))
    thread.start()

    between.wait_until_stalled()
    assert found == []
    between.resume()
    thread.join(20)

    assert found == [_RESPONSE]

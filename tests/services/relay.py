"""A relay between a client and a server that meets the connection with a fault, byte by byte.

What a network does: it ends in the middle, it stands still, it changes a byte. It knows nothing of
the protocol (`postgres_relay.py` does, for PostgreSQL), so it also works in front of TLS.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["Relay", "relay"]

_PIECE: Final = 65_536
_SECONDS: Final = 30.0
_RESETS: Final = struct.pack("ii", 1, 0)


class Relay:
    """Listens on the loopback interface; `port` is where.

    A fault is armed for the bytes that the server sends from then on, over all connections, and
    happens once.
    """

    def __init__(self, server_port: int) -> None:
        """Listen; `close` ends it."""
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Condition()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._cut_at: int | None = None
        self._stall_at: int | None = None
        self._flip_at: int | None = None
        self._stands = False
        self.connections = 0
        """How many connections clients opened."""
        self.received = 0
        """How many bytes the server sent."""
        self._start(self._accept)

    def cut_after(self, size: int) -> None:
        """End the connection, with a reset, when the server has sent so much more."""
        with self._lock:
            self._cut_at = self.received + size

    def stall_after(self, size: int) -> None:
        """Stand still when the server has sent so much more, until `resume`."""
        with self._lock:
            self._stall_at = self.received + size

    def flip_after(self, size: int) -> None:
        """Change a bit of the byte that comes when the server has sent so much more."""
        with self._lock:
            self._flip_at = self.received + size

    def wait_until_stalled(self, seconds: float = _SECONDS) -> None:
        """Return when `stall_after` has happened."""
        with self._lock:
            assert self._lock.wait_for(lambda: self._stands, seconds), "the relay did not stall"

    def resume(self) -> None:
        """Let the bytes flow again."""
        with self._lock:
            self._stands = False
            self._lock.notify_all()

    def cut(self) -> None:
        """End all connections now, with a reset."""
        with self._lock:
            for one in self._open:
                _reset(one)
            self._stands = False
            self._lock.notify_all()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join(_SECONDS)

    def _start(self, serve: object, *arguments: object) -> None:
        assert callable(serve)
        thread = threading.Thread(target=serve, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.connections += 1
                try:
                    server = socket.create_connection(("127.0.0.1", self._server_port), _SECONDS)
                except OSError:
                    _reset(client)
                    continue
                server.settimeout(None)
                with self._lock:
                    self._open += [client, server]
                self._start(self._hand_on, client, server)
                self._start(self._hand_back, server, client)

    def _hand_on(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(_PIECE):
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)
        with self._lock:
            # What stands still would never tell the server that nobody listens any more.
            if self._stands:
                _reset(server)

    def _hand_back(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while piece := server.recv(_PIECE):
                now, later, is_cut = self._met(piece)
                client.sendall(now)
                if is_cut:
                    _reset(client)
                    _reset(server)
                    return
                if later is not None:
                    with self._lock:
                        self._stands = True
                        self._lock.notify_all()
                        self._lock.wait_for(lambda: not self._stands)
                    client.sendall(later)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            # A server that nobody reads would wait for it.
            _reset(client)
            _reset(server)

    def _met(self, piece: bytes) -> tuple[bytes, bytes | None, bool]:
        """Return what is sent now, what after a standstill, and whether the connection ends."""
        with self._lock:
            before = self.received
            self.received += len(piece)
            if self._flip_at is not None and self._flip_at < self.received:
                at, self._flip_at = self._flip_at - before, None
                piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]
            if self._cut_at is not None and self._cut_at <= self.received:
                at, self._cut_at = self._cut_at - before, None
                return piece[:at], None, True
            if self._stall_at is not None and self._stall_at <= self.received:
                at, self._stall_at = self._stall_at - before, None
                return piece[:at], piece[at:], False
            return piece, None, False


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
    with contextlib.suppress(OSError):
        # A thread that waits for something wakes up on this, and not on a mere close.
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextlib.contextmanager
def relay(server_port: int) -> Iterator[Relay]:
    """Relay to a server for the time of a context."""
    made = Relay(server_port)
    try:
        yield made
    finally:
        made.close()

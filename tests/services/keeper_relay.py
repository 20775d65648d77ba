"""A relay before ZooKeeper that loses one response: the request was carried out, and nobody knows.

It reads no more of the protocol than where a message ends, its number, and whether it is a change
(https://zookeeper.apache.org, zookeeper.jute): the length, then the number, then what is asked.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["KeeperRelay", "keeper_relay"]

_CHANGES: Final = frozenset({1, 2, 5, 14, 15, 19})
"""create, delete, setData, multi, create2, createContainer."""
_SECONDS: Final = 30.0
_NUMBER: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ii")


class KeeperRelay:
    """Listens on the loopback interface; `port` is where."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._left = 0
        self.happened = False
        """Whether a response was lost."""
        self._start(self._accept)

    def lose_response(self, number: int) -> None:
        """Lose the response to a later change, and the connection; 1 is the next one."""
        self._left, self.happened = number, False

    def close(self) -> None:
        """Stop listening, and end all connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join(_SECONDS)
        _end(*self._open)
        for thread in self._threads:
            thread.join(_SECONDS)

    def _start(self, serve: object, *arguments: object) -> None:
        assert callable(serve)
        self._threads.append(threading.Thread(target=serve, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._server_port), _SECONDS)
                except OSError:
                    # A server that is down comes back; only the end of the listening ends this.
                    _end(client)
                    continue
                server.settimeout(None)
                self._open += [client, server]
                lost = set[int]()
                self._start(self._hand_on, client, server, lost)
                self._start(self._hand_back, server, client, lost)

    def _hand_on(self, client: socket.socket, server: socket.socket, lost: set[int]) -> None:
        with _ending(client, server):
            # The first message asks for a session, and has no number.
            server.sendall(_message(client))
            while message := _message(client):
                number, asked = _HEAD.unpack_from(message, _NUMBER.size)
                self._left -= asked in _CHANGES
                if self._left == 0 and asked in _CHANGES:
                    lost.add(number)
                server.sendall(message)

    def _hand_back(self, server: socket.socket, client: socket.socket, lost: set[int]) -> None:
        with _ending(client, server):
            client.sendall(_message(server))
            while message := _message(server):
                (number,) = _NUMBER.unpack_from(message, _NUMBER.size)
                if number in lost:
                    self.happened = True
                    return
                client.sendall(message)


@contextlib.contextmanager
def keeper_relay(server_port: int) -> Iterator[KeeperRelay]:
    """Relay for the time of a context."""
    with contextlib.closing(KeeperRelay(server_port)) as made:
        yield made


@contextlib.contextmanager
def _ending(*ends: socket.socket) -> Iterator[None]:
    """End both sides of a connection when one of them has ended."""
    with contextlib.suppress(OSError):
        yield
    _end(*ends)


def _message(source: socket.socket) -> bytes:
    """Return the next message with its length; b'' at the end."""
    head = _exactly(source, _NUMBER.size)
    return head and head + _exactly(source, _NUMBER.unpack(head)[0])


def _exactly(source: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        piece = source.recv(size - len(read))
        if not piece:
            return b""
        read += piece
    return read


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            # A thread that waits for something wakes up on this, and not on a mere close.
            end.shutdown(socket.SHUT_RDWR)
        end.close()

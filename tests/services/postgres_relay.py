"""A relay between clients and a PostgreSQL that knows its messages, and meets one with a fault.

What a network, a pooler or a server does to a client in the wrong moment, done at exactly that
moment. The messages are those of PostgreSQL's protocol 3.0, chapter "Message Formats": a letter,
the length in four bytes, the content; only the very first has no letter.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["Exchange", "Fault", "Relay"]

_QUERY: Final = b"Q"
_READY: Final = b"Z"
_CHUNK: Final = 65_536


@dataclass(slots=True)
class _Stream:
    """What one side has sent; messages are taken off when they are whole."""

    of: socket.socket
    started: bool
    held: bytearray = field(default_factory=bytearray)

    def receive(self) -> bool:
        """Read what is there; False at the end."""
        try:
            got = self.of.recv(_CHUNK)
        except ConnectionError:
            return False
        self.held += got
        return bool(got)

    def take(self) -> bytes | None:
        """Return the next whole message, None when there is none yet."""
        head = 1 if self.started else 0
        if len(self.held) < head + 4:
            return None
        (length,) = struct.unpack_from("!I", self.held, head)
        if len(self.held) < head + length:
            return None
        message = bytes(self.held[: head + length])
        del self.held[: head + length]
        self.started = True
        return message


class Exchange:
    """One connection at the moment of a fault: `statement` is about to be handed on."""

    def __init__(self, client: _Stream, server: _Stream, message: bytes) -> None:
        self._client, self._server, self._message = client, server, message

    def perform(self) -> None:
        """Hand the statement on, and wait for the server's response, which is kept."""
        self.keep()()

    def hand_on(self) -> None:
        """Hand the statement on; the connection goes on as if nothing had happened."""
        with contextlib.suppress(ConnectionError):
            self._server.of.sendall(self._message)

    def keep(self) -> Callable[[], bool]:
        """Hand nothing on; return what does later, and says whether the server responded."""
        server, message = self._server.of.dup(), self._message

        def perform() -> bool:
            with server, contextlib.suppress(ConnectionError):
                server.sendall(message)
                responses = _Stream(server, started=True)
                while responses.receive():
                    while response := responses.take():
                        if response[:1] == _READY:
                            return True
            return False

        return perform


@dataclass(slots=True)
class Fault:
    """What happens, once, to the first statement that holds `text`.

    It stands in a transaction in which `after` was sent before. `act` returns whether the
    connection lives on.
    """

    text: str
    act: Callable[[Exchange], bool]
    after: str = ""
    happened: bool = False


class Relay:
    """Listens on the loopback for the time of a context; `port` is where."""

    def __init__(self, server: Path) -> None:
        self._path = server
        self._stack = contextlib.ExitStack()
        self._fault: Fault | None = None

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._in_thread(self._accept, self._listening)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening, and cut what is still connected."""
        self._stack.close()

    @property
    def happened(self) -> bool:
        """Whether the fault that was armed has happened."""
        return self._fault is not None and self._fault.happened

    def arm(self, fault: Fault) -> None:
        """Do this to the next statement that it is about."""
        self._fault = fault

    def _in_thread(self, serve: Callable[[socket.socket], None], of: socket.socket) -> None:
        thread = threading.Thread(target=serve, args=(of,), daemon=True)
        thread.start()

        def end() -> None:
            # A thread that waits for something wakes up on this, and not on a mere close.
            with contextlib.suppress(OSError):
                of.shutdown(socket.SHUT_RDWR)
            thread.join()
            of.close()

        self._stack.callback(end)

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                self._in_thread(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            client,
            socket.socket(socket.AF_UNIX) as server,
            selectors.DefaultSelector() as ready,
        ):
            server.connect(str(self._path))
            asks, responses = _Stream(client, started=False), _Stream(server, started=True)
            transaction = ""
            for one in (client, server):
                ready.register(one, selectors.EVENT_READ)
            while True:
                for found, _ in ready.select():
                    if found.fileobj is server:
                        if not (got := server.recv(_CHUNK)):
                            return
                        client.sendall(got)
                        continue
                    if not asks.receive():
                        return
                    while message := asks.take():
                        transaction = _statements(transaction, message)
                        if not self._meet(transaction, Exchange(asks, responses, message)):
                            return

    def _meet(self, transaction: str, exchange: Exchange) -> bool:
        """Hand a message on, or let the fault happen; return whether the connection lives on."""
        fault, last = self._fault, transaction.rpartition("\0")[2]
        if (
            fault is None
            or fault.happened
            or fault.text not in last
            or fault.after not in transaction
        ):
            exchange.hand_on()
            return True
        fault.happened = True
        return fault.act(exchange)


def _statements(before: str, message: bytes) -> str:
    """Return the statements of the transaction up to a message, the last one behind a zero."""
    if message[:1] != _QUERY:
        return before
    text = message[5:-1].decode()
    return text if text.startswith("BEGIN") else f"{before}\0{text}"

"""Every fault of the proxy is seen by a real connection, in the direction that was asked for."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.services.server_process import wait_until
from tests.services.toxiproxy import (
    BOTH,
    FROM_SERVER,
    TO_SERVER,
    Proxy,
    Stream,
    Toxiproxy,
    toxiproxy,
)

pytestmark = pytest.mark.nightly

DELAY = 1.0
# That nothing comes is not looked at for longer.
MOMENT = 0.3


class Echo:
    """A server that says back what it hears; `heard` is all of it."""

    def __init__(self) -> None:
        self.heard = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a connection was left open"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._say_back, args=(connection,)))
                self._threads[-1].start()

    def _say_back(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                self.heard += data
                connection.sendall(data)


@pytest.fixture(scope="module")
def server() -> Iterator[Echo]:
    with contextlib.closing(Echo()) as made:
        yield made


@pytest.fixture(scope="module")
def proxies() -> Iterator[Toxiproxy]:
    with toxiproxy() as made:
        yield made


@pytest.fixture
def proxy(proxies: Toxiproxy, server: Echo) -> Iterator[Proxy]:
    made = proxies.before(server.port)
    yield made
    made.down()


@contextlib.contextmanager
def connected(proxy: Proxy) -> Iterator[socket.socket]:
    """Return a connection that has been used."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
        assert round_trip(connection) < DELAY
        yield connection


def round_trip(connection: socket.socket, size: int = 4) -> float:
    """Send and receive, and say how long that took."""
    began = time.monotonic()
    connection.sendall(b"x" * size)
    while size:
        size -= len(heard := connection.recv(size))
        assert heard, "the connection ended"
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("streams", "times"), [(BOTH, 2), (TO_SERVER, 1), (FROM_SERVER, 1)], ids=["both", "to", "from"]
)
def test_latency(proxy: Proxy, streams: tuple[Stream, ...], times: int) -> None:
    with connected(proxy) as connection:
        proxy.latency(DELAY, streams=streams)
        assert times * DELAY <= round_trip(connection) < (times + 1) * DELAY
        proxy.heal()
        assert round_trip(connection) < DELAY


def test_a_fault_takes_the_place_of_one_of_its_kind(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        proxy.latency(10 * DELAY)
        proxy.latency(DELAY, streams=FROM_SERVER)
        assert DELAY <= round_trip(connection) < 2 * DELAY


@pytest.mark.parametrize("streams", [BOTH, TO_SERVER, FROM_SERVER], ids=["both", "to", "from"])
def test_bandwidth(proxy: Proxy, streams: tuple[Stream, ...]) -> None:
    with connected(proxy) as connection:
        assert round_trip(connection, 50_000) < 0.4
        proxy.bandwidth(100, streams=streams)
        assert 0.4 <= round_trip(connection, 50_000) < 5


def test_slow_close(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        proxy.slow_close(DELAY, streams=FROM_SERVER)
        assert round_trip(connection) < DELAY
        began = time.monotonic()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
        assert time.monotonic() - began >= DELAY


@pytest.mark.parametrize("streams", [BOTH, TO_SERVER, FROM_SERVER], ids=["both", "to", "from"])
def test_timeout_that_is_healed(proxy: Proxy, streams: tuple[Stream, ...]) -> None:
    """Harm prevented: a connection continues with a hole in its data."""
    with connected(proxy) as connection:
        proxy.timeout(streams=streams)
        connection.settimeout(MOMENT)
        connection.sendall(b"x")
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(10)
        proxy.heal()
        assert ended(lambda: connection.recv(1))
    with connected(proxy):
        pass


def test_timeout_that_ends_the_connection(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        began = time.monotonic()
        proxy.timeout(DELAY)
        connection.sendall(b"x")
        assert ended(lambda: connection.recv(1))
        assert DELAY <= time.monotonic() - began < 5


@pytest.mark.parametrize("streams", [BOTH, TO_SERVER, FROM_SERVER], ids=["both", "to", "from"])
def test_reset_peer(proxy: Proxy, streams: tuple[Stream, ...]) -> None:
    with connected(proxy) as before:
        proxy.reset_peer(streams=streams)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
            connection.sendall(b"x")
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
        before.sendall(b"x")
        assert ended(lambda: before.recv(1))


def test_limit_of_what_the_server_says(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        proxy.limit_data(5, streams=FROM_SERVER)
        connection.sendall(b"0123456789")
        heard = b""
        while data := connection.recv(10):
            heard += data
        assert heard == b"01234"


def test_limit_of_what_the_server_hears(proxy: Proxy, server: Echo) -> None:
    with connected(proxy) as connection:
        proxy.limit_data(5, streams=TO_SERVER)
        connection.sendall(b"01234after")
        # The end may come after what the server says to what it heard, or instead of it.
        assert any(ended(lambda: connection.recv(1)) for _ in range(6))
    wait_until(lambda: server.heard.endswith(b"01234"), "the server had heard what was let through")


def test_down_and_up_again(proxy: Proxy) -> None:
    with connected(proxy) as connection:
        proxy.down()
        assert ended(lambda: connection.recv(1))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
        proxy.heal()
    with connected(proxy):
        pass


def ended(receive: Callable[[], bytes]) -> bool:
    """Whether a connection is at its end, in order or not."""
    try:
        return receive() == b""
    except ConnectionResetError:
        return True

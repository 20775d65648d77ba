"""A real Toxiproxy for tests: what a network does to connections for as long as a test wants it.

`relay.py` meets one byte of a connection once; this one all connections, until they are healed.
Neither knows the protocol, so both also work in front of TLS.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, Literal

from tests.services.go_programs import program_file
from tests.services.server_process import ServerProcess, free_port

__all__ = ["BOTH", "FROM_SERVER", "TO_SERVER", "Proxy", "Toxiproxy", "toxiproxy"]

Stream = Literal["upstream", "downstream"]
TO_SERVER: Final[tuple[Stream, ...]] = ("upstream",)
FROM_SERVER: Final[tuple[Stream, ...]] = ("downstream",)
BOTH: Final[tuple[Stream, ...]] = (*TO_SERVER, *FROM_SERVER)
_SECONDS: Final = 10


class Toxiproxy(ServerProcess):
    """The program that has the proxies; they end with it."""

    def __init__(self, directory: Path) -> None:
        self._port = free_port()
        program = str(program_file("toxiproxy"))
        command = ["env", "-i", program, "-host", "127.0.0.1", "-port", str(self._port)]
        super().__init__("Toxiproxy", command, directory, self._responds)

    def before(self, port: int) -> Proxy:
        """Listen on a port of its own, and hand on to another one of the loopback interface."""
        made = Proxy(self, free_port())
        ends = {"listen": made.address, "upstream": f"127.0.0.1:{port}"}
        self.ask("POST", "/proxies", {"name": made.name, "enabled": True, **ends})
        return made

    def ask(self, method: str, path: str, what: object = None) -> Any:
        """Return the response to a request of its own interface; fail when it refuses."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, None if what is None else json.dumps(what))
            response = connection.getresponse()
            body = response.read().decode()
        assert response.status < 300, f"Toxiproxy refused {method} {path}: {body}"
        return json.loads(body) if body.startswith(("{", "[")) else body

    def _responds(self) -> bool:
        with contextlib.suppress(OSError):
            self.ask("GET", "/version")
            return True
        return False


class Proxy:
    """Stands in front of a server at `port`; a fault begins at once, for open connections too.

    Faults of different kinds add up; one of a kind takes the place of an earlier one. There are no
    connections that are open in one direction only: what ends one ends both, at both sides.
    """

    def __init__(self, toxiproxy: Toxiproxy, port: int) -> None:
        self._toxiproxy, self.port = toxiproxy, port
        self.name, self.address = f"p{port}", f"127.0.0.1:{port}"

    def latency(self, seconds: float, *, streams: tuple[Stream, ...] = BOTH) -> None:
        """Let everything arrive so much later."""
        self._add("latency", streams, latency=_milliseconds(seconds))

    def bandwidth(self, kilobytes: int, *, streams: tuple[Stream, ...] = BOTH) -> None:
        """Let so much arrive in a second, in units of 1,000 bytes."""
        self._add("bandwidth", streams, rate=kilobytes)

    def slow_close(self, seconds: float, *, streams: tuple[Stream, ...] = BOTH) -> None:
        """Let the end of a connection arrive so much later."""
        self._add("slow_close", streams, delay=_milliseconds(seconds))

    def timeout(self, seconds: float = 0, *, streams: tuple[Stream, ...] = BOTH) -> None:
        """Let nothing arrive, as when cables are cut; end the connection after some seconds.

        What was sent meanwhile is lost, and the connection with it: healed, it ends.

        Args:
            seconds: 0 ends it only when it is healed.
            streams: what is lost, of requests and of responses.
        """
        self._add("timeout", streams, timeout=_milliseconds(seconds))

    def reset_peer(self, seconds: float = 0, *, streams: tuple[Stream, ...] = BOTH) -> None:
        """Reset what is opened from then on, so many seconds after some data; lose that.

        What was open ends in good order; `Relay.cut` resets that too.
        """
        self._add("reset_peer", streams, timeout=_milliseconds(seconds))

    def limit_data(self, size: int, *, streams: tuple[Stream, ...] = BOTH) -> None:
        """End a connection when so many bytes have arrived from then on.

        To the server: it has heard as much, a request, and its response is lost.
        """
        self._add("limit_data", streams, bytes=size)

    def down(self) -> None:
        """End all connections, and refuse new ones."""
        self._set_enabled(is_enabled=False)

    def heal(self) -> None:
        """End all faults."""
        for toxic in self._toxiproxy.ask("GET", f"/proxies/{self.name}")["toxics"]:
            self._toxiproxy.ask("DELETE", f"/proxies/{self.name}/toxics/{toxic['name']}")
        self._set_enabled(is_enabled=True)

    def _set_enabled(self, *, is_enabled: bool) -> None:
        self._toxiproxy.ask("POST", f"/proxies/{self.name}", {"enabled": is_enabled})

    def _add(self, kind: str, streams: tuple[Stream, ...], **attributes: int) -> None:
        toxics = f"/proxies/{self.name}/toxics"
        there = {toxic["name"] for toxic in self._toxiproxy.ask("GET", toxics)}
        for name in there & {f"{kind}_{stream}" for stream in BOTH}:
            self._toxiproxy.ask("DELETE", f"{toxics}/{name}")
        for stream in streams:
            toxic = {"name": f"{kind}_{stream}", "type": kind, "stream": stream}
            self._toxiproxy.ask("POST", toxics, {**toxic, "attributes": attributes})


@contextlib.contextmanager
def toxiproxy() -> Iterator[Toxiproxy]:
    """Run a Toxiproxy for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-tp-") as directory:
        server = Toxiproxy(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)

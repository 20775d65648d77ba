"""A server that tests run as a process of their own, in a directory of its own.

It ends with the process of the tests, whatever ends that (tests/support/tied_processes.py).
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.processes import stands_still
from tests.support.several_processes import ports_of_process
from tests.support.tied_processes import start_tied

__all__ = ["ServerProcess", "free_port", "wait_until"]

_SECONDS_TO_START: Final = 30.0
_RETRY_SECONDS: Final = 0.05
_LOG_BYTES: Final = 4000
_PORTS: Final = range(15000, 32000)
_GIVEN: Final[set[int]] = set()


class ServerProcess:
    """A program that serves until it is ended; what it says goes to a file."""

    def __init__(
        self,
        name: str,
        command: list[str],
        directory: Path,
        is_up: Callable[[], bool],
        *,
        seconds: float = _SECONDS_TO_START,
    ) -> None:
        self._name, self._command, self._directory, self._is_up = name, command, directory, is_up
        self._seconds = seconds
        self._log = directory / "said"
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self.starts = 0
        """How often it began to run, or to go on."""

    def start(self) -> None:
        """Start it, unless it runs; return when it responds."""
        if self._runs:
            return
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = start_tied(self._command, self._directory, log)
        deadline = time.monotonic() + self._seconds
        while not self._is_up():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                self.kill()
                output = self._log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace")
                raise AssertionError(f"{self._name} did not start ({ended}): {output}")
            time.sleep(_RETRY_SECONDS)

    def kill(self) -> None:
        """End it at once, as a loss of power does, if it runs."""
        process, self._process, self._paused = self._process, None, False
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Let it stand still with all connections open."""
        self._signal(signal.SIGSTOP)
        self._paused = True
        wait_until(self._stands_still, f"{self._name} stood still")

    def resume(self) -> None:
        """Let it go on, if it stands still."""
        if self._paused:
            self._signal(signal.SIGCONT)
            self._paused = False
            self.starts += 1

    def mend(self) -> None:
        """Let it run if it was ended or stands still."""
        self.resume()
        self.start()

    @property
    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _stands_still(self) -> bool:
        assert self._process is not None, f"{self._name} does not run"
        return stands_still(self._process.pid)

    def _signal(self, number: int) -> None:
        assert self._process is not None, f"{self._name} does not run"
        self._process.send_signal(number)


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on, another one each time."""
    while True:
        # Below those from which the system takes the ports of connections, which come at any time.
        port = secrets.choice(ports_of_process(_PORTS))
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            if port not in _GIVEN:
                _GIVEN.add(port)
                return port


def wait_until(is_so: Callable[[], bool], what: str, *, seconds: float = _SECONDS_TO_START) -> None:
    """Return when something is so; fail, saying what, when it does not come to be."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(_RETRY_SECONDS)

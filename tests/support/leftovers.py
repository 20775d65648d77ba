"""Finds what a test file leaves behind, and fails that file: threads, processes, sockets, Sparks.

A plugin of pytest, loaded by pyproject.toml. What is left draws from generators, holds ports and
memory and writes into directories while later files run, which then fail by chance. What fixtures
of the whole session start is theirs, and so is what `_OF_PROCESS` lists.
"""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import psutil
import pytest
from pyiceberg.utils.concurrent import ExecutorFactory

from tests.support.tied_processes import WATCHERS

__all__ = ["Leftovers", "Seen", "look"]

_SECONDS: Final = 10.0
"""How long what is about to end has time to."""
_PAUSE: Final = 0.02
_OF_PROCESS: Final = (
    # Starts servers, which end when it does (tied_processes.py).
    "servers",
    # The loop of fsspec, one for a process and without an end.
    "fsspecIO",
)
"""How the names begin of threads that a process has once."""

_SOCKETS: Final[WeakSet[socket.socket]] = WeakSet()


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is in this process at a moment."""

    threads: frozenset[threading.Thread] = frozenset()
    processes: frozenset[psutil.Process] = frozenset()
    sockets: frozenset[socket.socket] = frozenset()

    def plus(self, other: Seen) -> Seen:
        """Return what either has."""
        return Seen(
            self.threads | other.threads,
            self.processes | other.processes,
            self.sockets | other.sockets,
        )

    def without(self, *others: Seen) -> Seen:
        """Return what others have not."""
        return Seen(
            self.threads.difference(*(other.threads for other in others)),
            self.processes.difference(*(other.processes for other in others)),
            self.sockets.difference(*(other.sockets for other in others)),
        )

    def lines(self) -> list[str]:
        """Name each thing."""
        return [
            *(f"thread {one.name}" for one in self.threads),
            *(f"process {one.pid} {_command_of(one)}" for one in self.processes),
            *(f"socket {one!r}" for one in self.sockets),
        ]


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return "(it has ended)"


def look() -> Seen:
    """Return what there is now."""
    threads = (one for one in threading.enumerate() if not one.name.startswith(_OF_PROCESS))
    # PyIceberg plans and deletes with one pool for a process, which it never ends.
    pool = ExecutorFactory._instance
    return Seen(
        frozenset(threads) - frozenset(getattr(pool, "_threads", ())),
        frozenset(one for one in psutil.Process().children(recursive=True) if _runs(one)),
        frozenset(one for one in tuple(_SOCKETS) if one.fileno() != -1),
    )


def _runs(process: psutil.Process) -> bool:
    try:
        return process.pid not in WATCHERS and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


class Leftovers:
    """Compares what there is before and after each file."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._before, self._of_session = look(), Seen()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """Look before the first test of a file."""
        if self._file != item.path:
            self._file, self._before = item.path, look()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Leave to the session what its own fixtures start."""
        if fixturedef.scope not in ("session", "package"):
            return (yield)
        before = look()
        try:
            return (yield)
        finally:
            self._of_session = self._of_session.plus(look().without(before))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, None, None]:
        """Look after the last test of a file, once all its fixtures are gone."""
        result = yield
        if nextitem is None or nextitem.path != item.path:
            left = self._left()
            assert not left, f"this file leaves behind: {'; '.join(sorted(left))}"
        return result

    def _left(self) -> list[str]:
        """Return what is left, after it had time to end."""
        deadline = time.monotonic() + _SECONDS
        while left := look().without(self._before, self._of_session).lines():
            # What a test let go of may be closed by the next search for garbage alone.
            gc.collect()
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE)
        return left


def pytest_configure(config: pytest.Config) -> None:
    """Watch the processes that run tests."""
    if config.getoption("numprocesses", default=None) is None or hasattr(config, "workerinput"):
        _note_sockets()
        config.pluginmanager.register(Leftovers(), "leftovers")


def _note_sockets() -> None:
    """Remember each socket that Python makes from now on, for as long as it is referred to."""
    made = socket.socket.__init__

    @wraps(made)
    def noted(self: socket.socket, *args: Any, **named: Any) -> None:
        made(self, *args, **named)
        _SOCKETS.add(self)

    socket.socket.__init__ = noted  # type: ignore[method-assign]

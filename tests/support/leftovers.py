"""Finds what a test file leaves behind, and fails that file: threads, processes, sockets, Sparks.

A plugin of pytest, loaded by pyproject.toml. What is left draws from generators, holds ports and
memory and writes into directories while later files run, which then fail by chance. What fixtures
of the whole session start belongs to the session, with the processes and connections that it makes
later, as a Spark does, and a server that is started again with the same command. Some resources a
process has once: `_OF_PROCESS`, PyIceberg's pool of threads and the helpers of `multiprocessing`.
Threads and sockets of Py4J end with the Java that they talk to, which is found as a process.
"""

from __future__ import annotations

import gc
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import socket
import sys
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
_PY4J: Final = "py4j."

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
        """Name each resource."""
        return [
            *(f"thread {one.name}" for one in self.threads),
            *(f"process {one.pid} {' '.join(_command_of(one))[:200]}" for one in self.processes),
            *(f"socket {one!r}" for one in self.sockets),
        ]


def _command_of(process: psutil.Process) -> tuple[str, ...]:
    """Return its words, none once it has ended."""
    try:
        return tuple(process.cmdline())
    except psutil.Error:
        return ()


def look() -> Seen:
    """Return what there is now."""
    threads = (
        one
        for one in threading.enumerate()
        if not one.name.startswith(_OF_PROCESS) and not _is_of_py4j(one)
    )
    # PyIceberg plans and deletes with one pool for a process, which it never ends.
    pool = ExecutorFactory._instance
    helpers = WATCHERS | _helpers_of_multiprocessing()
    return Seen(
        frozenset(threads) - frozenset(getattr(pool, "_threads", ())),
        frozenset(
            one
            for one in psutil.Process().children(recursive=True)
            if one.pid not in helpers and _runs(one)
        ),
        frozenset(one for one in tuple(_SOCKETS) if one.fileno() != -1),
    )


def _is_of_py4j(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    return any(getattr(one, "__module__", "").startswith(_PY4J) for one in (thread, target))


def _helpers_of_multiprocessing() -> set[int]:
    """Return the processes that start its children and remove its files, which end with this."""
    server: Any = multiprocessing.forkserver._forkserver
    tracker: Any = multiprocessing.resource_tracker._resource_tracker
    return {server._forkserver_pid, tracker._pid} - {None}


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _listens(one: socket.socket) -> bool:
    return one.fileno() != -1 and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


class Leftovers:
    """Compares what there is before and after each file."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._before, self._of_session = look(), Seen()
        # Also of those that a test ended, and that are started again.
        self._commands: set[tuple[str, ...]] = set()

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
            started = look().without(before)
            self._of_session = self._of_session.plus(started)
            self._commands.update(filter(None, map(_command_of, started.processes)))

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
        _let_clients_go()
        deadline = time.monotonic() + _SECONDS
        while left := self._without_started_later(look()).lines():
            # The next garbage collection alone may close what a test released.
            gc.collect()
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE)
        return left

    def _without_started_later(self, seen: Seen) -> Seen:
        left = seen.without(self._before, self._of_session)
        ports = {one.getsockname() for one in self._of_session.sockets if _listens(one)}
        return left.without(
            Seen(
                processes=frozenset(filter(self._is_of_session, left.processes)),
                # They have the address of the socket that accepted them.
                sockets=frozenset(one for one in left.sockets if one.getsockname() in ports),
            )
        )

    def _is_of_session(self, process: psutil.Process) -> bool:
        """Tell whether the session's processes started it, or it is one that was started again."""
        try:
            started_by = process.parents()
        except psutil.Error:
            return False
        return not self._of_session.processes.isdisjoint(started_by) or (
            _command_of(process) in self._commands
        )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the processes that run tests."""
    if config.getoption("numprocesses", default=None) is None or hasattr(config, "workerinput"):
        _note_sockets()
        config.pluginmanager.register(Leftovers(), "leftovers")


def _let_clients_go() -> None:
    """Release what the product keeps for the life of a process: clients of object stores."""
    for name in ("catalog.storages.s3.requests", "catalog.storages.over_http.requests"):
        # A file that did not load it has none.
        if (module := sys.modules.get(name)) is not None:
            module._client.cache_clear()


def _note_sockets() -> None:
    """Remember each socket that Python makes from now on, for as long as it is referred to."""
    made = socket.socket.__init__

    @wraps(made)
    def noted(self: socket.socket, *args: Any, **named: Any) -> None:
        made(self, *args, **named)
        # A socket that is accepted is made by the module `socket` for the one that listens.
        callers = [sys._getframe(1), sys._getframe(2)]
        if not any(frame.f_globals["__name__"].startswith(_PY4J) for frame in callers):
            _SOCKETS.add(self)

    socket.socket.__init__ = noted  # type: ignore[method-assign]

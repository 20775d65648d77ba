"""What makes the tests lighter for a machine: files in memory, and Javas that start sooner.

A plugin of pytest, loaded by tests/conftest.py. What is durable on a disk is not what any test
shows: a process that is killed keeps what it wrote, in memory as on a disk, so that waiting for one
proves nothing (most effects of an export are two or three fsync). TMPDIR or --basetemp say another
place; a machine without the room takes its usual one.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import tempfile
from collections.abc import Generator, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes import available_memory, has_ended
from tests.support.quick_java import JAVA_VARIABLES

__all__ = ["place_in_memory", "raised"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a directory of its own is made there
_PREFIX: Final = "mergeberg-tests-"
# What all tests have at once is below one of them; two Sparks and two ClickHouses want memory too.
_FREE_BYTES: Final = 4 << 30
_AVAILABLE_BYTES: Final = 10 << 30
_OPEN_FILES: Final = 200
# macOS lets a shell's programs open 256, which a test with an engine and a Spark exceeds.
_MOST_OPEN_FILES: Final = 1024


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without a search for garbage, and leave what is there then out of every later one.

    All tests stay to the end, and the more there are, the longer takes each search.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what is there now out of every later search for garbage: all tests stay to the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close what tests have released: a process with 1,024 open files can serve no Spark.

    Ledgers that a test's crash left open stay so for as long as nothing asks for memory.
    """
    if len(os.listdir("/dev/fd")) > _OPEN_FILES:  # noqa: PTH208  it is asked after every test
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_its_own() -> Iterator[None]:
    """Search for garbage when a file's tests are over: what is open is reported for that file."""
    yield
    gc.collect()


def raised(limits: tuple[int, int], wanted: int = _MOST_OPEN_FILES) -> tuple[int, int] | None:
    """Return the limits of open files that a run sets; None where it may open enough, or no more.

    Args:
        limits: those in force, of which the second is the greatest that the first may become.
        wanted: how many tests open.
    """
    soft, hard = limits
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    # Without a limit is a negative number on some systems.
    return None if soft == resource.RLIM_INFINITY or soft >= most else (most, hard)


def place_in_memory(memory: Path = _MEMORY) -> Path | None:
    """Make a directory in memory for this process's temporary files; None without the room.

    Args:
        memory: where a file system in memory is.
    """
    try:
        there = os.statvfs(memory)
    except FileNotFoundError:
        return None
    roomy = (
        there.f_bavail * there.f_frsize >= _FREE_BYTES and available_memory() >= _AVAILABLE_BYTES
    )
    # Only Linux says which places run no programs.
    no_programs = there.f_flag & getattr(os, "ST_NOEXEC", 0)
    if not roomy or no_programs or not os.access(memory, os.W_OK):
        return None
    _sweep(memory)
    made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=memory))
    # Servers that run as another user have directories of their own below it.
    made.chmod(0o711)
    return made


def _sweep(memory: Path) -> None:
    """Remove what earlier runs left, which stays while there is a process of that number."""
    for left in memory.glob(f"{_PREFIX}*-*"):
        number = left.name.removeprefix(_PREFIX).partition("-")[0]
        if has_ended(int(number)):
            shutil.rmtree(left, ignore_errors=True)


class _Place:
    """The directory of a run: what a run that failed left in it stays until the next begins."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._wanted = directory, True
        # After pytest and multiprocessing (-100), which remove their own directories below it.
        Finalize(None, self._remove, exitpriority=-200)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note whether somebody will want to look at what is left."""
        self._wanted = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where it is, when it stays."""
        if self._wanted:
            terminalreporter.write_line(f"what tests left: {self._directory}")

    def _remove(self) -> None:
        if not self._wanted:
            shutil.rmtree(self._directory, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    """Name the place to this process and all that it starts; two at once get it from the first."""
    if limits := raised(resource.getrlimit(resource.RLIMIT_NOFILE)):
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for name, text in JAVA_VARIABLES.items():
        os.environ.setdefault(name, text)
    if hasattr(config, "workerinput") or "TMPDIR" in os.environ or config.option.basetemp:
        return
    if directory := place_in_memory():
        os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
        config.pluginmanager.register(_Place(directory), "place-in-memory")

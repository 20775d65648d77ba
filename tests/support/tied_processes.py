"""Processes that end with the one that started them, whatever ends that, also SIGKILL.

Linux does it itself, asked by `setpriv`. Where there is no `setpriv`, a watcher does: a process
next to them that gets their numbers, and that kills them when its input ends.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

__all__ = ["WATCHERS", "start_tied"]

WATCHERS: Final[set[int]] = set()
"""The watcher of this process, if it has one, which ends with it."""

# The signal comes when the thread that started a process ends, and one of a test may end early.
_STARTER: Final = ThreadPoolExecutor(1, "servers")
_WATCH: Final = """
import os, signal, sys

for number in map(int, [*sys.stdin]):
    try:
        # Each leads a session; who has its number after its end does hardly.
        if os.getsid(number) == number:
            os.kill(number, signal.SIGKILL)
    except OSError:
        pass
"""


def start_tied(
    command: Sequence[str | Path],
    directory: Path,
    log: IO[bytes],
    *,
    setpriv: str | None = shutil.which("setpriv"),
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, which ends with this process at the latest.

    Args:
        command: the program and its words.
        directory: where it works.
        log: gets what it says.
        setpriv: the program that asks Linux for it, None where there is none.
    """

    def started(words: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    if setpriv is not None:
        return _STARTER.submit(started, [setpriv, "--pdeathsig", "KILL", *command]).result()
    watcher = _watcher()
    process = started(command)
    watcher.write(b"%d\n" % process.pid)
    return process


@functools.cache
def _watcher() -> IO[bytes]:
    """Start the watcher of this process; return what tells it numbers, one a line."""
    words = [sys.executable, "-S", "-c", _WATCH]
    # In a session of its own, as Ctrl-C goes to every process of one.
    watcher = subprocess.Popen(words, bufsize=0, stdin=subprocess.PIPE, start_new_session=True)
    assert watcher.stdin is not None
    WATCHERS.add(watcher.pid)

    def end() -> None:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()

    atexit.register(end)
    return watcher.stdin

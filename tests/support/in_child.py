"""A piece of Python that a test runs in another process, with real values there and back.

What loads chdb runs so: a process that has loaded it does not survive a later fork. The processes
are forked from one that has loaded the code of tasks, which takes longer than most pieces do; on
macOS, whose own libraries do not survive a fork, each is a new process.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import sys
import time
import traceback
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, Final

import pytest

__all__ = ["in_child"]

_LINUX: Final = "linux"
_SECONDS: Final = 120


def in_child(code: str, *values: Any, platform: str = sys.platform) -> Any:
    """Run `code` in another Python; it finds `values` and calls `answer` once.

    It has this process's environment as it is now.

    Args:
        code: the piece.
        values: what it gets, which can be pickled.
        platform: says whether it may be forked.
    """
    starter = _starter(platform)
    results, theirs = starter.Pipe(duplex=False)
    child = starter.Process(target=_run, args=(code, values, dict(os.environ), theirs), daemon=True)
    child.start()
    theirs.close()
    try:
        result, error = _received(results)
        child.join(_SECONDS)
        ended = child.exitcode
    finally:
        child.kill()
        results.close()
    if error is None and ended != 0:
        error = f"it answered, and ended with {ended} within {_SECONDS} s"
    if error is not None:
        pytest.fail(f"the child process: {error}")
    return result


@functools.cache
def _starter(platform: str) -> ForkServerContext | SpawnContext:
    if platform != _LINUX:
        return multiprocessing.get_context("spawn")
    starter = multiprocessing.get_context("forkserver")
    # Without chdb, whose threads a fork would lose.
    starter.set_forkserver_preload(["spark_ext.engine.tasks", "pytest"])
    return starter


def _received(results: Connection) -> tuple[Any, str | None]:
    if not results.poll(_SECONDS):
        return None, f"no answer within {_SECONDS} s"
    with contextlib.suppress(EOFError):
        result, error = results.recv()
        return result, error
    return None, "it ended without an answer"


def _run(code: str, values: tuple[Any, ...], environ: dict[str, str], theirs: Connection) -> None:
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    results: list[Any] = []
    try:
        exec(compile(code, "<child>", "exec"), {"values": values, "answer": results.append})  # noqa: S102  the test's own
        (result,) = results
    except BaseException:  # the test tells it
        theirs.send((None, traceback.format_exc()))
        raise
    theirs.send((result, None))

"""Named pipes through which answers are read as files, each in a private directory.

A process that is killed leaves its directory behind. It holds no rows, and the next pipe that is
made on this host takes it away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from catalog.processes import job_may_be_alive, new_job

__all__ = ["named_pipe"]

_PREFIX: Final = "mergeberg-pipe-"


@contextlib.contextmanager
def named_pipe() -> Iterator[Path]:
    """Make a pipe that only this user can open, and remove it afterwards."""
    below = Path(tempfile.gettempdir())
    _sweep(below)
    directory = below / f"{_PREFIX}{new_job()}"
    directory.mkdir(mode=0o700)
    try:
        pipe = directory / "rows.native"
        os.mkfifo(pipe, 0o600)
        yield pipe
    finally:
        shutil.rmtree(directory)


def _sweep(below: Path) -> None:
    for path in sorted(below.glob(f"{_PREFIX}*")):
        if not job_may_be_alive(path.name.removeprefix(_PREFIX)):
            # Another process may sweep the same directory at this moment, or own it.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                shutil.rmtree(path)

"""Named pipes through which answers are read as files, each in a private directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from catalog.scratch import ScratchDirectory

__all__ = ["named_pipe"]


@contextlib.contextmanager
def named_pipe() -> Iterator[Path]:
    """Make a pipe that only this user can open, and remove it afterwards."""
    with ScratchDirectory("pipe") as made:
        pipe = made.path / "rows.native"
        os.mkfifo(pipe, 0o600)
        yield pipe

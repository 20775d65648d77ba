"""Commands on a terminal, at which somebody types."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["at_terminal"]


def at_terminal(
    words: Sequence[str], reply: str, *, cwd: Path, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command as a process on a terminal; return its exit code and its output.

    Args:
        words: the command line.
        reply: what somebody has typed before the command reads it.
        cwd: its working directory.
        env: its environment; None for that of this process.
    """
    keyboard, terminal = pty.openpty()
    output = ""
    try:
        os.write(keyboard, reply.encode())
        ended = subprocess.run(
            [sys.executable, "-c", "from spark_ext.cli.main import run; run()", *words],
            stdin=terminal,
            stderr=terminal,
            stdout=subprocess.PIPE,
            check=False,
            timeout=300,
            cwd=cwd,
            env=env,
        )
        os.set_blocking(keyboard, False)
        with contextlib.suppress(BlockingIOError):
            output = os.read(keyboard, 100_000).decode()
        return ended.returncode, output + ended.stdout.decode()
    finally:
        os.close(keyboard)
        os.close(terminal)

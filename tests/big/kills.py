"""The export, killed again and again at random moments before it is left alone."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["finished_files", "kill_again_and_again"]

_MOST_FILES: Final = 5
"""Files after which a kill comes, at the latest."""
_MOST_SECONDS: Final = 2.0


def kill_again_and_again(
    begin: Callable[[], subprocess.Popen[str]], warehouse: Path, times: int, seed: int
) -> int:
    """Begin an export and kill it and its workers, so often.

    Args:
        begin: starts it in a process group of its own.
        warehouse: of its lake.
        times: how often.
        seed: of the moments.

    Returns:
        How many were killed; the others had come to their end.
    """
    chance = random.Random(seed)  # noqa: S311  moments, not secrets
    killed = 0
    for _ in range(times):
        wanted = len(finished_files(warehouse)) + chance.randint(0, _MOST_FILES)
        with begin() as process:
            _wait(process, lambda: len(finished_files(warehouse)) >= wanted)  # noqa: B023  at once
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=chance.uniform(0, _MOST_SECONDS))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                killed += 1
            process.communicate()
    return killed


def finished_files(warehouse: Path) -> set[str]:
    """Return the names of the files that are finished: they have a receipt."""
    receipts = warehouse.rglob("mergeberg/*/*/*.json")
    found = (json.loads(path.read_text()) for path in receipts)
    return {str(receipt["file_path"]).rsplit("/", 1)[-1] for receipt in found}


def _wait(process: subprocess.Popen[str], is_time: Callable[[], bool]) -> None:
    """Wait until an export has begun to write and it is time, or until it ended."""
    assert process.stderr is not None
    for line in process.stderr:
        if "writing" in line:
            break
    while process.poll() is None and not is_time():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)

"""Directories of this process for a moment: private, gone afterwards, swept when it was killed.

What lies in them may be secret, or large, so that a process that could not remove its own leaves it
to the next one on this host that makes one for the same purpose.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from catalog.closing import Closing
from catalog.processes import job_may_be_alive, new_job

__all__ = ["ScratchDirectory"]


class ScratchDirectory(Closing):
    """A directory that only this user can open. A context manager: leaving it removes it."""

    def __init__(self, purpose: str) -> None:
        """Make it, and remove those that dead processes made for the same purpose.

        Args:
            purpose: a word for its name.
        """
        prefix = f"mergeberg-{purpose}-"
        _sweep(Path(tempfile.gettempdir()), prefix)
        self._made = tempfile.TemporaryDirectory(prefix=f"{prefix}{new_job()}-")

    @property
    def path(self) -> Path:
        """The directory."""
        return Path(self._made.name)

    def close(self) -> None:
        """Remove it with all that lies in it. Closing twice is the same as once."""
        self._made.cleanup()


def _sweep(below: Path, prefix: str) -> None:
    for path in sorted(below.glob(f"{prefix}*")):
        if not job_may_be_alive(path.name.removeprefix(prefix).rpartition("-")[0]):
            # Another process may sweep it at this moment, or own it; or one that it started still
            # writes there, and the next sweep removes it.
            with contextlib.suppress(OSError):
                shutil.rmtree(path)

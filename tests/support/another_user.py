"""This process as a user without rights, for a while, for the messages to such a user."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["as_another_user", "closed_to_all", "open_to_others"]

_NOBODY: Final = 65_534


@contextlib.contextmanager
def open_to_others() -> Iterator[Path]:
    """Make a directory that other users may change; that of pytest is its own user's."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-shared-") as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


@contextlib.contextmanager
def as_another_user(root: Path) -> Iterator[None]:
    """Act as a user who owns everything below `root`, and nothing else; root may read all files.

    Who is not root has no rights to files that are closed, and stays who they are.
    """
    if os.geteuid():
        yield
        return
    for path in (root, *root.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)
    before, tempfile.tempdir = tempfile.tempdir, str(root)
    os.setegid(_NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        tempfile.tempdir = before


@contextlib.contextmanager
def closed_to_all(path: Path) -> Iterator[None]:
    """Take the rights to a file from everybody, for a while."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(mode)

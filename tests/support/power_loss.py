"""What a power cut leaves of a directory: what this process brought to the disk, and no more.

Seen is what goes through `os.fsync`. What code in C++ writes is lost here, whether it waits for the
disk or not. SQLite does, for its databases: they are left as they are, where the directory is left
that they are in.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Engine, event

from tableformat.effects import Step

__all__ = ["Disk", "Left", "recorded"]

T = TypeVar("T")
Left = dict[str, bytes]
"""Bytes by path, from the directory."""
_DATABASE = ".db"
_OF_DATABASES = (_DATABASE, f"{_DATABASE}-wal", f"{_DATABASE}-shm", f"{_DATABASE}-journal")


@dataclass
class Disk:
    """The disk below a directory, which is on it from the beginning; also effects of a job.

    `moments` are what power cuts would leave after each effect, and after each commit of a catalog
    in a database with the files as they were when it was sent; `each`: also whenever a directory
    was brought to the disk.
    """

    root: Path
    each: bool = False
    moments: list[Left] = field(default_factory=list)
    _bytes: dict[int, bytes] = field(default_factory=dict)
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    _open: list[int] = field(default_factory=list)
    _sent: Left | None = None
    _acting: bool = False

    def synced(self, number: int) -> None:
        """Note that a file or directory is on the disk as it is now."""
        found = os.fstat(number)
        # No other file gets the number of this one as long as it is open.
        self._open.append(os.dup(number))
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = {e.name: e.inode() for e in os.scandir(number)}
            if self.each:
                self.moments.append({**self.left(), **self.databases()})
            return
        for path in self.root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == found.st_ino:
                    self._bytes[found.st_ino] = path.read_bytes()

    def left(self) -> Left:
        """Return the files that a power cut would leave now."""
        return dict(self._below(self.root.stat().st_ino, ""))

    def _below(self, directory: int, at: str) -> Iterator[tuple[str, bytes]]:
        for name, inode in self._names.get(directory, {}).items():
            if inode in self._bytes:
                yield f"{at}{name}", self._bytes[inode]
            yield from self._below(inode, f"{at}{name}/")

    def _directories(self, directory: int, at: str = "") -> Iterator[str]:
        yield at
        for name, inode in self._names.get(directory, {}).items():
            if inode not in self._bytes:
                yield from self._directories(inode, f"{at}{name}/")

    def databases(self) -> Left:
        """Return the databases as they are, where their directories would be left."""
        there = set(self._directories(self.root.stat().st_ino))
        found = {}
        for path in self.root.rglob(f"*{_DATABASE}"):
            at = path.relative_to(self.root)
            if at.parent == Path() or f"{at.parent}/" in there:
                with contextlib.closing(sqlite3.connect(path)) as opened:
                    found[str(at)] = opened.serialize()
        return found

    def __call__(self, step: Step, act: Callable[[], T], /) -> T:  # noqa: ARG002  all of them
        """Perform an effect, and note what power cuts in it and after it would leave."""
        self._acting = True
        try:
            result = act()
            self._committed()
        finally:
            self._acting, self._sent = False, None
        self.moments.append({**self.left(), **self.databases()})
        return result

    def sending(self, _connection: object) -> None:
        """Note what there is when a catalog in a database is about to commit."""
        if self._acting:
            self._committed()
            self._sent = self.left()

    def _committed(self) -> None:
        """Note what a power cut just after the last commit of a catalog would leave."""
        if self._sent is not None:
            self.moments.append({**self._sent, **self.databases()})

    def cut(self, left: Left) -> None:
        """Let there be what a power cut has left."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        for at, data in left.items():
            path = self.root / at
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def written(self) -> Left:
        """Return all files that there are, without databases."""
        paths = (p for p in self.root.rglob("*") if p.is_file())
        return {
            str(p.relative_to(self.root)): p.read_bytes()
            for p in paths
            if not p.name.endswith(_OF_DATABASES)
        }

    def close(self) -> None:
        """Let the numbers of files be used again."""
        for number in self._open:
            os.close(number)


@contextmanager
def recorded(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Yield the disk below an empty directory, which sees what this process does."""
    disk, sync = Disk(root), os.fsync

    def fsync(number: int) -> None:
        sync(number)
        disk.synced(number)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        event.listen(Engine, "commit", disk.sending)
        try:
            yield disk
        finally:
            event.remove(Engine, "commit", disk.sending)
            disk.close()

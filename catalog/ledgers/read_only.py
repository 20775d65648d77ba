"""Reads a ledger's SQLite file as a user who may write neither it nor its directory.

SQLite reads a file with a write-ahead log only where the log is there, or can be made. While
somebody has the file open it is there, and the user reads as everybody does. Else the file alone
has everything: it is read into memory, and once more when somebody has opened it meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["ChangingError", "is_read_only", "reading"]

_TRIES: Final = 100


class ChangingError(Exception):
    """The file changed again and again while it was read."""


def is_read_only(path: Path) -> bool:
    """Whether this user may read a file, and may not write it or beside it."""
    ours = os.access in os.supports_effective_ids
    return not all(os.access(one, os.W_OK, effective_ids=ours) for one in (path, path.parent))


@contextlib.contextmanager
def reading(path: Path, seconds: float) -> Iterator[sqlite3.Connection]:
    """Lend a connection that shows the file as it is now, in one transaction.

    Args:
        path: the file.
        seconds: how long to wait for others that have it locked.

    Raises:
        sqlite3.Error: it cannot be read.
        ChangingError: it never was quiet.
    """
    with contextlib.closing(_opened(path, seconds)) as db:
        db.execute("BEGIN")
        yield db


def _opened(path: Path, seconds: float) -> sqlite3.Connection:
    log = path.with_name(f"{path.name}-wal")
    for _ in range(_TRIES):
        if log.exists():
            with contextlib.suppress(sqlite3.OperationalError):
                return _with_log(path, seconds)
        before = _stamp(path)
        copy = _copied(path)
        if not log.exists() and _stamp(path) == before:
            return copy
        copy.close()
    raise ChangingError(f"it changed {_TRIES} times while it was read")


def _with_log(path: Path, seconds: float) -> sqlite3.Connection:
    """Open the file with its log, which may be gone by now.

    Raises:
        sqlite3.OperationalError: it is.
    """
    db = _connected(path, "mode=ro", seconds)
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.OperationalError:
        db.close()
        raise
    return db


def _copied(path: Path) -> sqlite3.Connection:
    """Return a copy in memory; it is worth nothing when the file changed meanwhile."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with contextlib.closing(_connected(path, "immutable=1", 0)) as db:
        db.backup(copy)
    return copy


def _connected(path: Path, how: str, seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?{how}",
        uri=True,
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,
    )


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns

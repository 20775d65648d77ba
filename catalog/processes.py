"""Identifies this process and checks whether the owner of a lease or leftover may still run.

- A process is a host, a process number and the start time, because process numbers are reused. The
  start time comes from /proc, or from `ps` where there is no /proc, as on macOS.
- The owner of a lease is a job of a process, so that two sessions of one application exclude each
  other as two processes do. A job releases its leases, or leaves them until they expire.
- `job_may_be_alive` reads the owner from the name of a job. A name of another form counts as
  running.
- `ScratchDirectory` is a private directory that is removed on exit. Its content may be secret or
  large: after a crash, the next process on this host that creates one for the same purpose removes
  it.
- `Closing` is the base class of objects that release a resource: leaving `with` closes them.
- `at_end` registers a call for the end of the process, also for an end that `atexit` does not see:
  the command line skips the interpreter's shutdown, and calls `finish` before.
"""

from __future__ import annotations

import atexit
import calendar
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from email.utils import parsedate
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tableformat.ledger import Owner

__all__ = [
    "Closing",
    "ScratchDirectory",
    "at_end",
    "can_judge",
    "finish",
    "job_may_be_alive",
    "may_be_alive",
    "new_job",
    "new_owner",
    "this_process",
]

_BETWEEN: Final = "n"
_JOB: Final = re.compile(r"(?P<host>[0-9a-f]{8})_(?P<pid>\d+)_(?P<start>[^_]+)_[0-9a-f]{8}")
_STARTED: Final = 21
"""The position of the start time in /proc/<pid>/stat, counted from 0."""
_UNKNOWN: Final = "unknown"
"""The start time if the system does not report it."""
_PROC: Final = Path("/proc")
_PS: Final = Path("/bin/ps")


def this_process() -> Owner:
    """Return this process, without a job."""
    return Owner(socket.gethostname(), os.getpid(), _start_of(os.getpid()) or _UNKNOWN)


def new_owner() -> Owner:
    """Return a new owner of leases: a job of this process that is no other job of it."""
    me = this_process()
    return replace(me, start=f"{me.start}{me.JOB_MARK}{secrets.token_hex(4)}")


def may_be_alive(owner: Owner) -> bool:
    """Whether an owner may still run: False only if its process ran on this host and has ended."""
    owner = replace(owner, start=owner.start.partition(owner.JOB_MARK)[0])
    if owner.host != socket.gethostname():
        return True
    # Containers may share a host's name but not its process numbers.
    if _table_of(owner.start) != _process_table():
        return True
    start = _start_of(owner.pid)
    if start is None or owner.start == _UNKNOWN:
        return _exists(owner.pid)
    return _is_same(start, owner.start)


def new_job() -> str:
    """Return a name for a job's staging tables and directories; it identifies this process."""
    me = this_process()
    return f"{_host_mark(me.host)}_{me.pid}_{me.start}_{secrets.token_hex(4)}"


def job_may_be_alive(job: str) -> bool:
    """Whether the process that named a job may still run; True for a name of another form."""
    fields = job.split("_")
    if len(fields) != len(("host", "pid", "start", "tail")) or not fields[1].isdecimal():
        return True
    host = socket.gethostname()
    if fields[0] != _host_mark(host):
        return True
    return may_be_alive(Owner(host, int(fields[1]), fields[2]))


def can_judge(job: str) -> bool | None:
    """Whether this process could see the process that named a job; None for another form of name.

    It cannot if that process ran on another host, in another container, or before the last boot.
    """
    found = _JOB.fullmatch(job)
    if found is None:
        return None
    me = this_process()
    same = _table_of(found["start"]) == _table_of(me.start)
    return found["host"] == _host_mark(me.host) and same


def _host_mark(host: str) -> str:
    """Return a short hash of a host's name, fit for table and directory names."""
    return hashlib.sha256(host.encode()).hexdigest()[:8]


def _table_of(start: str) -> str:
    """Return the process namespace in a start time, '' if there is none."""
    # `_UNKNOWN` contains the separator, too.
    return "" if start == _UNKNOWN else start.partition(_BETWEEN)[2]


def _process_table() -> str:
    """Return a short hash of this boot and this process namespace, '' without /proc."""
    boot = _PROC / "sys/kernel/random/boot_id"
    space = _PROC / "self/ns/pid"
    if not (boot.exists() and space.is_symlink()):
        return ""
    return hashlib.sha256((boot.read_text() + str(space.readlink())).encode()).hexdigest()[:8]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _start_of(pid: int) -> str | None:
    """Return the start time of a process with its namespace, None if it ended or is unknown.

    The time is in clock ticks since boot from /proc, in seconds since 1970 elsewhere.
    """
    if not (_PROC / "self/stat").exists():
        return _start_by_ps(pid)
    try:
        stat = (_PROC / f"{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses, which may contain blanks and parentheses.
    fields = ["", "", *stat[stat.rindex(")") + 1 :].split()]
    return f"{fields[_STARTED]}{_BETWEEN}{_process_table()}"


def _start_by_ps(pid: int) -> str | None:
    # A fixed language and time zone, because the process that compares may have others.
    fixed = {"LC_ALL": "C", "TZ": "UTC0"}
    command = [str(_PS), "-o", "lstart=", "-p", str(pid)]
    try:
        result = subprocess.run(command, env=fixed, capture_output=True, text=True, check=False)
    except OSError:
        return None
    date = parsedate(result.stdout.strip())
    return None if date is None else f"{calendar.timegm(date)}{_BETWEEN}"


def _is_same(one: str, other: str) -> bool:
    """Whether two start times are equal."""
    if _process_table():
        return one == other
    # Some `ps` compute the time from two clocks, and may be a second off.
    seconds = [start.partition(_BETWEEN)[0] for start in (one, other)]
    if not all(map(str.isdecimal, seconds)):
        return one == other
    return abs(int(seconds[0]) - int(seconds[1])) <= 1


class Closing(ABC):
    """A context manager that calls `close` on exit, also after an error."""

    @abstractmethod
    def close(self) -> None:
        """Release the resource; closing again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ScratchDirectory(Closing):
    """A temporary directory that only this user can open, removed on close."""

    def __init__(self, purpose: str) -> None:
        """Create it, and remove those of ended processes with the same purpose.

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
        """Remove the directory with its content; closing again does nothing."""
        self._made.cleanup()


_AT_END: Final[list[Callable[[], object]]] = []


def at_end(call: Callable[[], object]) -> None:
    """Register a call for the end of this process; the same call is registered once."""
    if not _AT_END:
        atexit.register(finish)
    if call not in _AT_END:
        _AT_END.append(call)


def finish() -> None:
    """Run the calls that are registered, the latest first; calling again does nothing."""
    while _AT_END:
        # What a call cannot do at the end, a later process does: remove files, write an archive.
        with contextlib.suppress(OSError):
            _AT_END.pop()()


def _sweep(below: Path, prefix: str) -> None:
    for path in sorted(below.glob(f"{prefix}*")):
        if not job_may_be_alive(path.name.removeprefix(prefix).rpartition("-")[0]):
            # Another process may remove or own it, or a child process may still write there; then
            # the next sweep removes it.
            with contextlib.suppress(OSError):
                shutil.rmtree(path)

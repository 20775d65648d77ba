"""Identifies this process and checks whether the owner of a lease or leftover may be alive.

- An owner is a host, a process number and the start time, because process numbers are reused.
  The start time comes from /proc, or from `ps` where there is no /proc, as on macOS.
- `job_may_be_alive` reads the owner from the name of a job. A name of another form counts as
  alive.
- `ScratchDirectory` is a private directory that is removed on exit. Its content may be secret or
  large: after a crash, the next process on this host that creates one for the same purpose
  removes it.
- `Closing` is the base class of objects that release a resource: leaving `with` closes them.
"""

from __future__ import annotations

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
from email.utils import parsedate
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tableformat.ledger import Owner

__all__ = [
    "Closing",
    "ScratchDirectory",
    "can_judge",
    "job_may_be_alive",
    "may_be_alive",
    "new_job",
    "this_process",
]

_BETWEEN: Final = "n"
_JOB: Final = re.compile(r"(?P<host>[0-9a-f]{8})_(?P<pid>\d+)_(?P<start>[^_]+)_[0-9a-f]{8}")
_STARTED: Final = 21
"""The position of the start time in /proc/<pid>/stat, counted from 0."""
_UNKNOWN: Final = "unknown"
"""Stands for the start time where the system does not say it."""
_PROC: Final = Path("/proc")
_PS: Final = Path("/bin/ps")


def this_process() -> Owner:
    """Return the owner that this process is."""
    return Owner(socket.gethostname(), os.getpid(), _start_of(os.getpid()) or _UNKNOWN)


def may_be_alive(owner: Owner) -> bool:
    """Whether an owner may still work: False only for a process of this host that is gone."""
    if owner.host != socket.gethostname():
        return True
    # Containers may share a host's name and still count their processes apart.
    if _table_of(owner.start) != _process_table():
        return True
    start = _start_of(owner.pid)
    if start is None or owner.start == _UNKNOWN:
        return _exists(owner.pid)
    return _is_same(start, owner.start)


def new_job() -> str:
    """Return a name for what a job makes in the source and on disks; it says who made it."""
    me = this_process()
    return f"{_host_mark(me.host)}_{me.pid}_{me.start}_{secrets.token_hex(4)}"


def job_may_be_alive(job: str) -> bool:
    """Whether the process that named a job may still work; another form says nothing: True."""
    fields = job.split("_")
    if len(fields) != len(("host", "pid", "start", "tail")) or not fields[1].isdecimal():
        return True
    host = socket.gethostname()
    if fields[0] != _host_mark(host):
        return True
    return may_be_alive(Owner(host, int(fields[1]), fields[2]))


def can_judge(job: str) -> bool | None:
    """Whether this process would see the one that named a job; None for another form of name.

    What it would not see is on another host, in another container, or before the host's last start:
    such a job may be alive for ever, as far as anybody here can tell.
    """
    found = _JOB.fullmatch(job)
    if found is None:
        return None
    me = this_process()
    same = _table_of(found["start"]) == _table_of(me.start)
    return found["host"] == _host_mark(me.host) and same


def _host_mark(host: str) -> str:
    """Return letters and digits that stand for a host, fit for table and directory names."""
    return hashlib.sha256(host.encode()).hexdigest()[:8]


def _table_of(start: str) -> str:
    """Return the space of process numbers that a start time names, '' where it names none."""
    # The word for an unknown time has the letter that separates the two, too.
    return "" if start == _UNKNOWN else start.partition(_BETWEEN)[2]


def _process_table() -> str:
    """Return letters and digits that stand for this boot and this space of process numbers."""
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
    """Return when and where a process started; None when it is gone, or nothing says it.

    In clock ticks since boot where there is /proc, in seconds since 1970 elsewhere.
    """
    if not (_PROC / "self/stat").exists():
        return _start_by_ps(pid)
    try:
        stat = (_PROC / f"{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses, which may itself hold blanks and parentheses.
    fields = ["", "", *stat[stat.rindex(")") + 1 :].split()]
    return f"{fields[_STARTED]}{_BETWEEN}{_process_table()}"


def _start_by_ps(pid: int) -> str | None:
    # In a fixed language and time zone: whoever judges the process may have others.
    fixed = {"LC_ALL": "C", "TZ": "UTC0"}
    asked = [str(_PS), "-o", "lstart=", "-p", str(pid)]
    try:
        said = subprocess.run(asked, env=fixed, capture_output=True, text=True, check=False)
    except OSError:
        return None
    date = parsedate(said.stdout.strip())
    return None if date is None else f"{calendar.timegm(date)}{_BETWEEN}"


def _is_same(one: str, other: str) -> bool:
    """Whether two start times are those of one process."""
    if _process_table():
        return one == other
    # Some `ps` compute the time from two clocks, and may be a second off.
    seconds = [start.partition(_BETWEEN)[0] for start in (one, other)]
    if not all(map(str.isdecimal, seconds)):
        return one == other
    return abs(int(seconds[0]) - int(seconds[1])) <= 1


class Closing(ABC):
    """A context manager that closes itself, whatever happened meanwhile."""

    @abstractmethod
    def close(self) -> None:
        """Let go. Closing twice is the same as once."""

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

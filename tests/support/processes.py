"""What tests ask the system of processes, on Linux and on macOS alike.

Two figures the library does not give: whether every thread of a process stands still, and the most
memory that it had. Linux says them in /proc, and elsewhere the nearest result is taken. No other
file in tests/ reads /proc (tests/repository/test_portability.py).
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Final

import psutil

__all__ = [
    "PROC",
    "available_memory",
    "command_line",
    "descendants",
    "environment",
    "family_peak",
    "has_ended",
    "own_peak",
    "parent",
    "processes",
    "reset_peaks",
    "stands_still",
]

PROC: Final = Path("/proc")
_STOPPED: Final = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def processes() -> list[int]:
    """Return the numbers of all processes of this machine."""
    return list(psutil.pids())


def descendants(number: int) -> set[int]:
    """Return all processes that a process started, directly or not, and that are still there."""
    try:
        return {one.pid for one in psutil.Process(number).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def parent(number: int) -> int:
    """Return the parent of a process; 0 when it is gone."""
    try:
        return int(psutil.Process(number).ppid())
    except psutil.NoSuchProcess:
        return 0


def has_ended(number: int) -> bool:
    """Tell whether a process has, also when its parent has not taken note of it."""
    return _status(number) in ("", psutil.STATUS_ZOMBIE)


def stands_still(number: int, proc: Path = PROC) -> bool:
    """Tell whether every thread of a process does: a signal takes its time to reach them all.

    Where there is no /proc the process is known as a whole alone.

    Args:
        number: the process.
        proc: where Linux tells of threads.
    """
    if _status(number) not in _STOPPED:
        return False
    threads = (proc / str(number) / "task").glob("*/stat")
    # The name in parentheses may hold anything, also blanks and parentheses.
    return all(t.read_text().rpartition(")")[2].split()[0] in ("T", "t") for t in threads)


def command_line(number: int) -> tuple[str, ...]:
    """Return the words of a process; none when it is gone, or another user's who hides them."""
    try:
        return tuple(psutil.Process(number).cmdline())
    except psutil.Error:
        return ()


def environment(number: int) -> dict[str, str]:
    """Return the variables of a process; none when it is gone, or another user's."""
    try:
        return dict(psutil.Process(number).environ())
    # On macOS a process that is about to end shows as errors of the system.
    except (psutil.Error, OSError):
        return {}


def own_peak(proc: Path = PROC) -> int:
    """Return the greatest resident memory that this process ever had, in bytes.

    Where there is no /proc, that of the program that was here before counts, too.
    """
    status = proc / "self" / "status"
    if status.exists():
        return _peak_of(status)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used << 10


def family_peak(proc: Path = PROC) -> int:
    """Return the sum of the peaks of this process and of all that it started, in bytes.

    A process that has ended is not counted, and pages that several share are counted for each.
    Linux only: elsewhere, the others' peaks are not known.
    """
    others = 0
    for number in descendants(os.getpid()):
        # One that ended since it was listed.
        with contextlib.suppress(OSError):
            others += _peak_of(proc / str(number) / "status")
    return own_peak(proc) + others


def reset_peaks(proc: Path = PROC) -> None:
    """Reset the peaks of this process and of all that it started.

    Does nothing where there is no /proc.
    """
    for number in (os.getpid(), *descendants(os.getpid())):
        # One that ended since it was listed, or no Linux.
        with contextlib.suppress(OSError):
            (proc / str(number) / "clear_refs").write_text("5")


def _peak_of(status: Path) -> int:
    """Return the peak in a process's file; 0 for a process without memory of its own."""
    lines = status.read_text().splitlines()
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found[0]) << 10 if found else 0


def available_memory() -> int:
    """Return the bytes that new programs can have."""
    return int(psutil.virtual_memory().available)


def _status(number: int) -> str:
    """Return the library's word for the state of a process, '' when it is gone."""
    try:
        return str(psutil.Process(number).status())
    except psutil.NoSuchProcess:
        return ""

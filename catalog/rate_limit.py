"""Limits the bytes per second that are written, and what all processes of a host read and write.

ClickHouse itself limits the rate of reading, where the parts are opened (`catalog/clickhouse`).

`PacedSink` waits for the tokens of a bucket. The bucket performs no I/O: its caller passes the time
and waits. It starts empty and holds the tokens of one second at most, so that a pause for reading
is not lost. In any period it passes at most the bytes of that period and of one second more
(RQ…ServerSettings.MaxBandwidth).

`RatePool` divides a limit among the processes of a user on a host. A process reads and writes a
file at a fixed rate. Before it begins, it takes this rate from what the processes that name the
same limit have left, and it gives the rate back after the file. So their rates together are never
above the limit.

* Whoever holds a rate has a file in a directory of the limit, named by the rate, and an exclusive
  flock on it. The kernel ends the lock with the process. The next process that takes a rate removes
  a file without a lock.
* Nothing is written to the files, and no clock is read.
* Processes take rates one after the other: the one that waits has an flock on the directory. So a
  large rate is not overtaken again and again by small ones.
* If the directory cannot be used, a process writes at its rate as if it were alone, and says so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from catalog.processes import Closing
from tableformat.parquet.writer import FileSink

__all__ = ["HeldRate", "Pace", "PacedSink", "RatePool", "TokenBucket", "sharing_note"]

_LOGGER: Final = logging.getLogger(__name__)
_HELD_SECONDS: Final = 1.0
# Small pieces give a steady flow on the network, instead of a row group after each long wait.
_PIECE_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.1
_PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE_FILE: Final = 0o600
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class TokenBucket:
    """A bucket with `rate` new tokens per second, above 0.

    `now` is the time of the last call, in seconds; `tokens` is below 0 for borrowed tokens.
    """

    rate: float
    now: float
    tokens: float = 0.0

    def take(self, amount: int, now: float) -> float:
        """Take tokens, borrowing missing ones; return the seconds to wait for the borrowed tokens.

        Args:
            amount: the number of tokens.
            now: the time in seconds, not before that of the last call.
        """
        held = self.tokens + (now - self.now) * self.rate
        self.now = now
        self.tokens = min(held, self.rate * _HELD_SECONDS) - amount
        return max(0.0, -self.tokens / self.rate)


@dataclass(slots=True)
class Pace:
    """A rate in bytes per second, which all sinks with the same pace share."""

    bytes_per_second: float
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    _bucket: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        """Start with an empty bucket."""
        self._bucket = TokenBucket(self.bytes_per_second, self.clock())

    @property
    def piece(self) -> int:
        """The most bytes of one write."""
        return max(1, int(self.bytes_per_second * _PIECE_SECONDS))

    def pass_on(self, size: int) -> None:
        """Wait until so many bytes may be written."""
        seconds = self._bucket.take(size, self.clock())
        if seconds > 0:
            self.wait(seconds)


@dataclass(frozen=True, slots=True)
class PacedSink:
    """A `FileSink` that writes to another one at the rate of a pace."""

    sink: FileSink
    pace: Pace

    def write(self, data: bytes, /) -> None:
        """Append bytes in pieces, each after the wait for its tokens."""
        piece = self.pace.piece
        for begin in range(0, len(data), piece):
            some = data[begin : begin + piece] if len(data) > piece else data
            self.pace.pass_on(len(some))
            self.sink.write(some)

    def commit(self) -> None:
        """Make the file durable and visible under its name."""
        self.sink.commit()

    def abort(self) -> None:
        """Remove the unfinished file."""
        self.sink.abort()


def _temporary() -> Path:
    return Path(tempfile.gettempdir())


@functools.cache
def _warn(text: str) -> None:
    """Log a warning, once in a process: each of a thousand files would give it."""
    _LOGGER.warning("%s", text)


@dataclass(slots=True)
class HeldRate(Closing):
    """A rate that this process holds until it is closed."""

    path: Path
    descriptor: int | None

    def close(self) -> None:
        """Give the rate back; closing again does nothing."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(descriptor)
        with contextlib.suppress(OSError):
            # Others hold a rate, or removed it.
            self.path.parent.rmdir()


@dataclass(frozen=True, slots=True)
class RatePool:
    """A limit of bytes per second that all processes of a user on a host share if they name it.

    `wait` is called between two looks at what is left.
    """

    limit: int
    below: Path = field(default_factory=_temporary)
    wait: Callable[[float], None] = time.sleep

    @property
    def directory(self) -> Path:
        """The directory of the limit; it exists while somebody holds or takes a rate."""
        return self.below / f"mergeberg-rate-{os.getuid()}-{self.limit}"

    @contextlib.contextmanager
    def hold(self, rate: int) -> Iterator[None]:
        """Hold a rate in a context; wait for it first.

        If it cannot be shared, a warning is logged, once, and the context begins at once.
        """
        held: contextlib.AbstractContextManager[object]
        try:
            held = self.take(min(rate, self.limit))
        except OSError as error:
            _warn(self.alone(error))
            held = contextlib.nullcontext()
        with held:
            yield

    def take(self, rate: int) -> HeldRate:
        """Take a rate, at most the limit; wait until so much is left.

        Raises:
            OSError: the directory cannot be used.
        """
        while True:
            with self._turn() as directory:
                while self._taken(directory, sweep=True) + rate > self.limit:
                    self.wait(_LOOK_SECONDS)
                if (held := self._hold(directory, rate)) is not None:
                    return held

    def taken(self) -> int:
        """Return the sum of the rates that are held now.

        Raises:
            OSError: the directory cannot be used.
        """
        if not self.directory.exists():
            return 0
        with self._opened() as directory:
            return self._taken(directory, sweep=False)

    def probe(self) -> None:
        """Check that rates can be taken, without waiting.

        Raises:
            OSError: the directory cannot be used.
        """
        created = None
        while created is None:
            with self._opened() as directory:
                created = self._hold(directory, 0)
        created.close()

    def alone(self, error: OSError) -> str:
        """Return the note that a process does not share the limit."""
        reason = error.strerror or str(error)
        return (
            f"this command does not share its limit of {self.limit:,} bytes per second: it cannot "
            f"use {self.directory} ({reason}). Set TMPDIR to another directory"
        )

    @contextlib.contextmanager
    def _turn(self) -> Iterator[int]:
        """Yield the directory, with an flock on it: nobody else takes a rate."""
        while True:
            with self._opened() as directory:
                fcntl.flock(directory, fcntl.LOCK_EX)
                if self._is_there(directory):
                    yield directory
                    return

    def _is_there(self, directory: int) -> bool:
        """Whether an open directory is still the one of the limit: the last holder removes it."""
        try:
            now = self.directory.lstat()
        except FileNotFoundError:
            return False
        return os.path.samestat(now, os.fstat(directory))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Yield the directory, made if it is missing.

        Raises:
            OSError: it cannot be made, or belongs to another user.
        """
        while True:
            with contextlib.suppress(FileExistsError):
                self.directory.mkdir(_PRIVATE_DIRECTORY)
            with contextlib.suppress(FileNotFoundError):
                directory = os.open(self.directory, _OPEN_DIRECTORY)
                break
        try:
            if os.fstat(directory).st_uid != os.getuid():
                raise PermissionError(errno.EPERM, "it belongs to another user")
            yield directory
        finally:
            os.close(directory)

    def _taken(self, directory: int, *, sweep: bool) -> int:
        """Return the sum of the rates that are held; remove the files of ended processes."""
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            # The last holder has removed it since it was opened.
            return 0
        total = 0
        for name in names:
            rate = name.partition("-")[0]
            if not rate.isdecimal():
                continue
            try:
                holder = os.open(name, _OPEN_FILE, dir_fd=directory)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(holder, fcntl.LOCK_NB | (fcntl.LOCK_EX if sweep else fcntl.LOCK_SH))
                if sweep:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=directory)
            except BlockingIOError:
                total += int(rate)
            finally:
                os.close(holder)
        return total

    def _hold(self, directory: int, rate: int) -> HeldRate | None:
        """Hold a rate, in one's turn; return None if the directory was removed meanwhile."""
        name = f"{rate}-{secrets.token_hex(8)}"
        try:
            holder = os.open(
                name, _OPEN_FILE | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE, dir_fd=directory
            )
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(holder, fcntl.LOCK_EX)
        except OSError:
            os.unlink(name, dir_fd=directory)
            os.close(holder)
            raise
        return HeldRate(self.directory / name, holder)


def sharing_note(limit: int) -> str:
    """Return what a user should know of a limit before an export; '' for nothing."""
    pool = RatePool(limit)
    try:
        pool.probe()
        taken = pool.taken()
    except OSError as error:
        return pool.alone(error)
    if not taken:
        return ""
    return f"other exports on this host share the limit of {limit:,} bytes per second"

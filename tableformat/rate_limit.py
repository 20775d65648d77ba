"""Writes no faster than so many bytes per second: a token bucket, and a sink that waits for it.

What is read is bounded by ClickHouse itself, where the parts are opened (`catalog/clickhouse`).

The bucket is pure: it is told the time and says how long to wait. It begins empty and holds what
comes in within a second, so that time spent reading is not lost: in no time of any length more goes
than its share and one second's (RQ…ServerSettings.MaxBandwidth).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tableformat.parquet.writer import FileSink

__all__ = ["Pace", "PacedSink", "TokenBucket"]

_HELD_SECONDS: Final = 1.0
# Whoever shares the network with it sees an even flow, not a row group at once after a long wait.
_PIECE_SECONDS: Final = 0.1


@dataclass(slots=True)
class TokenBucket:
    """Fills with `rate` tokens per second, above 0; `now` is the time, in seconds, it was told."""

    rate: float
    now: float
    tokens: float = 0.0

    def take(self, amount: int, now: float) -> float:
        """Take tokens, also those that are still to come; return the seconds until they are there.

        Args:
            amount: how many.
            now: the time in seconds; never earlier than the last one.
        """
        held = self.tokens + (now - self.now) * self.rate
        self.now = now
        self.tokens = min(held, self.rate * _HELD_SECONDS) - amount
        return max(0.0, -self.tokens / self.rate)


@dataclass(slots=True)
class Pace:
    """Lets bytes go at a rate: everything that is written by one pace shares it."""

    bytes_per_second: float
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    _bucket: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing to spend."""
        self._bucket = TokenBucket(self.bytes_per_second, self.clock())

    @property
    def piece(self) -> int:
        """The most bytes that go at once."""
        return max(1, int(self.bytes_per_second * _PIECE_SECONDS))

    def pass_on(self, size: int) -> None:
        """Return when so many bytes may go."""
        seconds = self._bucket.take(size, self.clock())
        if seconds > 0:
            self.wait(seconds)


@dataclass(frozen=True, slots=True)
class PacedSink:
    """A `FileSink` before another one: bytes reach that one at a pace."""

    sink: FileSink
    pace: Pace

    def write(self, data: bytes, /) -> None:
        """Append bytes, each piece when its time has come."""
        piece = self.pace.piece
        for begin in range(0, len(data), piece):
            some = data[begin : begin + piece] if len(data) > piece else data
            self.pace.pass_on(len(some))
            self.sink.write(some)

    def commit(self) -> None:
        """Make the file durable and visible under its name."""
        self.sink.commit()

    def abort(self) -> None:
        """Remove what was written; afterwards there is no file."""
        self.sink.abort()

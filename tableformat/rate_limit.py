"""Limits the rate of writing: a token bucket, and a sink that waits for its tokens.

ClickHouse itself limits the rate of reading, where the parts are opened (`catalog/clickhouse`).

The bucket performs no I/O: its caller passes the time and waits. It starts empty and holds the
tokens of one second at most, so that a pause for reading is not lost. In any period it passes at
most the bytes of that period and of one second more (RQ…ServerSettings.MaxBandwidth).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tableformat.parquet.writer import FileSink

__all__ = ["Pace", "PacedSink", "TokenBucket"]

_HELD_SECONDS: Final = 1.0
# Small pieces give a steady flow on the network, instead of a row group after each long wait.
_PIECE_SECONDS: Final = 0.1


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

"""The line that says how far an export is: never wider than the terminal.

████████▌        3/19 partitions · 41 % · 1.2 GiB · 130 k rows/s · 2 min left
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from tableformat.quantities import human_bytes, human_count, left_text

__all__ = ["ProgressLine"]

_LEAST_BAR: Final = 8
_MOST_BAR: Final = 24
_USUAL_TEXT: Final = 62
_SECONDS_BEFORE_A_RATE: Final = 1.0
_LEAST_WINDOW: Final = 30.0
_SECONDS_BETWEEN_SAMPLES: Final = 0.5
_FEWEST_SAMPLES: Final = 2
_PAUSE: Final = 10.0
_PARTIAL: Final = " ▏▎▍▌▋▊▉"


@dataclass(slots=True)
class ProgressLine:
    """How far the files are that are being written, by times of a monotonic clock.

    The rate is that of the last half of the time, at least of 30 seconds: files end in bursts, and
    what tasks needed to start says nothing about what comes.

    `partitions`, `rows` and `size` are in all, the bytes those of the source; `finished` are the
    partitions that have their outcome.
    """

    partitions: int
    rows: int
    size: int
    began: float
    finished: int = 0
    written: int = 0
    shown: float = 0.0
    grown: float = 0.0
    samples: deque[tuple[float, int]] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def moved(self, written: int, now: float) -> None:
        """Note how many rows are written by now."""
        if written > self.written:
            self.grown = now
        self.written = written
        samples = self.samples
        if not samples or now - samples[-1][0] >= _SECONDS_BETWEEN_SAMPLES:
            samples.append((now, written))
        window = max(_LEAST_WINDOW, (now - self.began) / 2)
        while len(samples) > _FEWEST_SAMPLES and samples[0][0] < now - window:
            samples.popleft()

    def rate(self, now: float) -> float | None:
        """Return rows per second, None where nothing can be said yet.

        A pause between two bursts is no slower rate; one of more than ten seconds is.
        """
        since, before = self.samples[0] if self.samples else (now, self.written)
        rows, seconds = self.written - before, max(self.grown, now - _PAUSE) - since
        return rows / seconds if rows > 0 and seconds >= _SECONDS_BEFORE_A_RATE else None

    def text(self, now: float) -> str:
        """Return the line without its bar."""
        return " · ".join(self._pieces(now))

    def line(self, now: float, width: int) -> str:
        """Return the line for a terminal of that many columns; its last column stays free.

        What does not fit is left out: the bar first, then the bytes, the rate, the partitions.
        """
        room = max(width - 1, 1)
        pieces = self._pieces(now)
        for left_out in (None, "B", "rows/s", "partition"):
            if left_out is not None:
                pieces = [p for p in pieces if left_out not in p]
            if len(" · ".join(pieces)) <= room:
                break
        text = " · ".join(pieces)[:room]
        # What the text is as long as in the end: the bar keeps its length.
        columns = min(room - max(len(text), _USUAL_TEXT) - 2, _MOST_BAR)
        return f"{_bar(self._share, columns)}  {text}" if columns >= _LEAST_BAR else text

    @property
    def _share(self) -> float:
        return min(self.written / self.rows, 1.0) if self.rows else 1.0

    def _pieces(self, now: float) -> list[str]:
        of = f"{self.finished}/{self.partitions} partition{'' if self.partitions == 1 else 's'}"
        pieces = [of, f"{int(self._share * 100)} %", human_bytes(int(self._share * self.size))]
        rate = self.rate(now)
        if rate is None:
            return pieces
        left = left_text((self.rows - self.written) / rate)
        return [*pieces, f"{human_count(rate)} rows/s", left]


def _bar(share: float, columns: int) -> str:
    """Return a bar of so many columns, filled to a share."""
    eighths = int(share * columns * 8)
    whole, part = divmod(eighths, 8)
    return f"{'█' * whole}{_PARTIAL[part] if part else ''}".ljust(columns)

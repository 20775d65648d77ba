"""How much an application writes at a time: so many slices, so many bytes per second.

ClickHouse has both as settings of a server, `background_move_pool_size` and
`max_exports_bandwidth_for_server`; here they are an application's, the process that exports (DESIGN
10). Its exports share one `Allotment`: each takes a share before its tasks begin and gives it back
when they have ended. A share says how many slices are written at a time, and how many bytes per
second each of them may read, and may write: the rate divided by their number, so that together they
never exceed it, on however many hosts they run.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from tableformat.errors import UsageError
from tableformat.export.slices import Share

__all__ = ["MAX_SLICES", "Allotment", "Limits"]

MAX_SLICES: Final = 8
"""ClickHouse's default of `background_move_pool_size`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an application, as one export was told them.

    `bandwidth` is bytes per second, 0 for no limit; `slices` are written at a time by all exports
    together, at least 1. With `in_turn` this export writes one after the other, and reads each
    whole before it writes it (RQ…ParallelFormatting).
    """

    bandwidth: int = 0
    slices: int = MAX_SLICES
    in_turn: bool = False

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            UsageError: nothing could ever be written.
        """
        if self.slices < 1:
            message = (
                f"Cannot write {self.slices} files at a time (max_slices, "
                "background_move_pool_size): nothing would ever be exported. Give 1 or more."
            )
            raise UsageError(message)
        if self.bandwidth < 0:
            message = (
                f"Cannot write {self.bandwidth} bytes per second (max_bandwidth, "
                "max_exports_bandwidth_for_server). Give 1 or more, or 0 for no limit."
            )
            raise UsageError(message)

    def at_once(self, slots: int) -> int:
        """Return how many slices this export may write at a time where Spark could so many."""
        return 1 if self.in_turn else min(slots, self.slices)


class Allotment:
    """What the exports of an application that run now have taken; for any number of threads."""

    def __init__(self) -> None:
        """Begin with nothing taken."""
        self._changed = threading.Condition()
        self._slices = 0
        self._rate = 0

    @property
    def slices(self) -> int:
        """How many slices may be being written now."""
        return self._slices

    def take(self, limits: Limits, wanted: int) -> Share | None:
        """Take what is free, None when nothing is.

        Exports with a bandwidth follow one another: the first has all of it.

        Args:
            limits: those of the export, of which others have taken their share.
            wanted: how many slices it would write at a time.
        """
        with self._changed:
            number = min(wanted, limits.slices - self._slices)
            rate = limits.bandwidth - self._rate if limits.bandwidth else 0
            if limits.bandwidth:
                number = min(number, rate)
            if number < 1:
                return None
            share = Share(number, rate, limits.in_turn)
            self._slices += number
            self._rate += share.bandwidth
            return share

    def give_back(self, share: Share) -> None:
        """Give back what was taken."""
        with self._changed:
            self._slices -= share.slices
            self._rate -= share.bandwidth
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Return when something was given back, at the latest after so many seconds."""
        with self._changed:
            self._changed.wait(seconds)

"""Retries requests to a storage while the storage is away, with random pauses.

- `repeated` sends one request after the other, until one succeeds, is refused, or `retry_for`
  has passed. No client retries by itself: only this function knows the time limit and allows for
  an earlier attempt that was applied.
- `Failed` is the caller's verdict: whether the request may succeed later, and the error to
  raise.
- `jitter` draws a random pause, so that two waiting processes do not collide again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Final, TypeVar

from tableformat.errors import DestinationError

__all__ = ["Failed", "jitter", "repeated"]

# A separate generator, so that a program that has seeded `random` is not affected.
_RANDOM: Final = random.Random()  # noqa: S311  nothing secret


def jitter(most: float) -> float:
    """Return a random number of seconds from 0 to `most`."""
    return _RANDOM.uniform(0, most)


T = TypeVar("T")
_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 20.0
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed request: whether a retry may succeed, and the error to raise otherwise.

    `reason` is the failure in one line, without secrets.
    """

    reason: str
    is_transient: bool
    error: DestinationError


def repeated(
    request: Callable[[], T],
    *,
    doing: str,
    failures: tuple[type[Exception], ...],
    failed: Callable[[Exception], Failed],
    retry_for: float,
    stopped: Event,
) -> T:
    """Send a request until it succeeds, is refused or the time is over; return its result.

    Args:
        request: sends the request; may be called more than once.
        doing: the action and its object, for the log.
        failures: the exceptions that mean a failed request.
        failed: classifies such an exception.
        retry_for: the time limit in seconds for starting another attempt.
        stopped: an event that ends the retries.

    Raises:
        DestinationError: the request was refused, or the storage was unavailable for too long.
    """
    until, tried = time.monotonic() + retry_for, 0
    while True:
        try:
            return request()
        except failures as error:
            wait = jitter(_pause(tried))
            found = failed(error)
            too_late = time.monotonic() + wait > until
            if not found.is_transient or too_late or stopped.is_set():
                raise found.error from error
            if not tried:
                _LOGGER.warning("trying again to %s: %s", doing, found.reason)
        tried += 1
        stopped.wait(wait)


def _pause(tried: int) -> float:
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(tried, 10))

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

# Its own: a program that has seeded `random` draws what it would draw without us.
_RANDOM: Final = random.Random()  # noqa: S311  nothing secret


def jitter(most: float) -> float:
    """Return seconds between none and `most`, in which each call differs."""
    return _RANDOM.uniform(0, most)


T = TypeVar("T")
_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 20.0
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that failed: whether it may succeed later, and what to raise when it does not.

    `said` is what it failed with, in one line; nothing in it is secret.
    """

    said: str
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
    """Return what a request returns; it may be sent more than once.

    Args:
        request: sends it.
        doing: what is tried, and with which object, for the log.
        failures: what it raises when it fails.
        failed: judges what it raised.
        retry_for: for how many seconds it goes on.
        stopped: once it is set, nothing is tried again.

    Raises:
        DestinationError: it is refused, or the storage stays away for too long.
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
                _LOGGER.warning("trying again to %s: %s", doing, found.said)
        tried += 1
        stopped.wait(wait)


def _pause(tried: int) -> float:
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(tried, 10))

"""How long to wait before something is tried again, so that two who wait do not meet again."""

from __future__ import annotations

import random
from typing import Final

__all__ = ["jitter"]

# Its own: a program that has seeded `random` draws what it would draw without us.
_RANDOM: Final = random.Random()  # noqa: S311  nothing secret


def jitter(most: float) -> float:
    """Return seconds between none and `most`, in which each call differs."""
    return _RANDOM.uniform(0, most)

"""With what a command ends, by name, and which of several ends is told (docs/reference/errors.md).

0, which has no name here, is done, or nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = [
    "DIFFERS",
    "FAILED",
    "INTERRUPTED",
    "IN_PROGRESS",
    "REFUSED",
    "UNKNOWN",
    "USAGE",
    "WORSE_THAN_FAILED",
    "worst",
]

DIFFERS: Final = 1
"""The lake has something else than it was said to have."""
USAGE: Final = 2
"""The command cannot be read."""
REFUSED: Final = 3
"""It would be wrong or unsafe; nothing was changed."""
FAILED: Final = 4
"""Safe to run again."""
UNKNOWN: Final = 5
"""Whether it landed is not known yet; the next run settles it."""
IN_PROGRESS: Final = 6
"""Another process does it."""
INTERRUPTED: Final = 130

WORSE_THAN_FAILED: Final = (DIFFERS, UNKNOWN)
"""What was found wrong in the lake says more than that something could not be done."""
_WORST_FIRST: Final = (*WORSE_THAN_FAILED, FAILED, IN_PROGRESS, REFUSED)


def worst(codes: Iterable[int]) -> int:
    """Return the first of 1, 5, 4, 6, 3 that is among the codes, else 0."""
    there = set(codes)
    return next((code for code in _WORST_FIRST if code in there), 0)

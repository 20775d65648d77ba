"""The first of many names, and how many more there are: for a message, which is one line."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["some"]


def some(names: Iterable[str], *, most: int = 3) -> str:
    """Return the first names, and the number of the others."""
    held = list(names)
    more = f" and {len(held) - most} more" if len(held) > most else ""
    return ", ".join(held[:most]) + more

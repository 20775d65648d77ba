"""Follows what the ledger says of exports, until nothing runs any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Records", "follow"]

Records = Mapping[str, Mapping[str, Any]]
"""Records by a name that stays; in the order in which they are shown."""


def follow(
    look: Callable[[], Records],
    *,
    is_running: Callable[[], bool],
    show: Callable[[Records, Records], None],
    pause: Callable[[], None],
) -> None:
    """Show records at first, and whenever one of them has changed; end when nothing runs.

    Args:
        look: returns them as they are now.
        is_running: whether, at the last look, there was something that may still change.
        show: is given all of them, and those that changed since it was called last.
        pause: waits until the next look.
    """
    shown: Records | None = None
    while True:
        now = look()
        if shown is None or now != shown:
            before = shown or {}
            show(now, {name: one for name, one in now.items() if before.get(name) != one})
            shown = now
        if not is_running():
            return
        pause()

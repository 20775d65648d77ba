"""How times are shown and durations are read: the same in every command."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from tableformat.errors import UsageError

__all__ = ["parse_duration", "shown_time"]

_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def shown_time(milliseconds: int) -> str:
    """Return a time since 1970 as people read it, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def parse_duration(option: str, text: str) -> int:
    """Read `30s`, `15m`, `1h` or `7d`; return milliseconds.

    Args:
        option: that it was given with, for the error.
        text: what was given.

    Raises:
        UsageError: it is something else.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        message = (
            f"Cannot read {option} {text!r}: it is no number of seconds, minutes, hours or days. "
            f"Write for example {option} 30s, 15m, 1h or 7d."
        )
        raise UsageError(message)
    number, unit = found.groups()
    return int(number) * _SECONDS[unit] * 1000

"""Formats and parses numbers in messages and options: counts, sizes, durations, rates."""

from __future__ import annotations

import re
from typing import Final

from tableformat.errors import UsageError

__all__ = [
    "counted",
    "duration_text",
    "human_bytes",
    "human_count",
    "left_text",
    "parse_duration",
    "parse_size",
    "rate_text",
]

_STEP: Final = 1024
_THOUSAND: Final = 1000
_SHORT: Final = 10
"""Smaller numbers are shown with one decimal place."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_SIZE: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,6})?)\s*([kmgtp]?)(i?)(b?)", re.IGNORECASE)
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": _MINUTE, "h": _HOUR, "d": _DAY}
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MOST_BYTES: Final = 2**63 - 1


def counted(number: int, noun: str) -> str:
    """Return "1 file", "2 files"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def human_bytes(size: int) -> str:
    """Return a size with its unit, in powers of 1,024, such as `1.5 MiB`."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= _STEP and len(units) > 1:
        value /= _STEP
        units.pop(0)
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def parse_size(option: str, text: str, *, unit: int = 1) -> int:
    """Parse a size with or without a unit, such as `50MB`, `128MiB`, `1.5 GB`; return bytes.

    kB, MB and GB are powers of 1,000, KiB, MiB and GiB of 1,024; the B may be left out.

    Args:
        option: the name of the option, for the error.
        text: the value of the option.
        unit: the bytes of one unit if the text has no unit.

    Raises:
        UsageError: the text is not a size, or more than 2^63 - 1 bytes.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is not None:
        number, prefix, binary, letter = found.groups()
        alone = not (prefix or letter)
        if prefix or not binary:
            factor = unit if alone else (_STEP if binary else _THOUSAND) ** _POWERS[prefix.lower()]
            size = round(float(number) * factor) if "." in number else int(number) * factor
            if size <= _MOST_BYTES:
                return size
    message = (
        f"Cannot read {option} {text!r}: it is not a size. Write for example {option} 50MB, "
        f"{option} 128MiB or {option} 1GB."
    )
    raise UsageError(message)


def parse_duration(option: str, text: str) -> int:
    """Parse a duration such as `30s`, `15m`, `1h` or `7d`; return milliseconds.

    Args:
        option: the name of the option, for the error.
        text: the value of the option.

    Raises:
        UsageError: the text has another form.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        message = (
            f"Cannot read {option} {text!r}: it is not a number of seconds, minutes, hours or "
            f"days. Write for example {option} 30s, 15m, 1h or 7d."
        )
        raise UsageError(message)
    number, unit = found.groups()
    return int(number) * _SECONDS[unit] * 1000


def rate_text(rows: int, seconds: float) -> str:
    """Return a rate such as `130 k rows/s`; '' if there are too few rows or seconds for one."""
    if seconds < 1 or rows < _THOUSAND:
        return ""
    return f"{human_count(rows / seconds)} rows/s"


def human_count(number: float) -> str:
    """Return a rounded number, such as `950`, `1.3 k`, `130 k`, `4.5 M`."""
    value, units = number, ["", " k", " M", " G"]
    while value >= _THOUSAND and len(units) > 1:
        value /= _THOUSAND
        units.pop(0)
    shown = f"{value:.1f}" if value < _SHORT and units[0] else f"{value:.0f}"
    return f"{shown}{units[0]}"


def duration_text(seconds: float) -> str:
    """Return a duration, such as `3.9 s`, `73 s`, `12 min 5 s`, `1 h 12 min`."""
    if seconds < _SHORT:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 2 * _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two(whole, (_MINUTE, "min"), (1, "s"))
    return _two(whole, (_HOUR, "h"), (_MINUTE, "min"))


def left_text(seconds: float) -> str:
    """Return the remaining time, rounded, because it is an estimate."""
    if seconds < _MINUTE - 5:
        return f"{max(5 * round(seconds / 5), 5)} s left"
    minutes = max(round(seconds / _MINUTE), 1)
    if minutes < _MINUTE:
        return f"{minutes} min left"
    if minutes * _MINUTE < _DAY:
        return f"{_two(minutes * _MINUTE, (_HOUR, 'h'), (_MINUTE, 'min'))} left"
    return f"{_two(minutes * _MINUTE, (_DAY, 'd'), (_HOUR, 'h'))} left"


def _two(seconds: int, first: tuple[int, str], second: tuple[int, str]) -> str:
    """Return seconds in two units, without the second unit if it is 0."""
    whole, rest = divmod(seconds, first[0])
    more = rest // second[0]
    return f"{whole} {first[1]}{f' {more} {second[1]}' if more else ''}"

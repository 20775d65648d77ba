"""What fits a terminal, and which words have a colour there."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final, TextIO

__all__ = ["coloured", "fitting", "has_colours", "in_colour", "shortened", "terminal_width"]

_DEFAULT_WIDTH: Final = 80
_LEAST_COLUMN: Final = 8
_GREEN, _YELLOW, _RED, _FAINT = "32", "33", "31", "2"
_COLOURS: Final = {
    **dict.fromkeys(("exported", "replaced", "equal", "verified", "COMPLETED"), _GREEN),
    **dict.fromkeys(("archived", "detached", "dropped", "attached", "moved", "fetched"), _GREEN),
    **dict.fromkeys(("updated", "deleted", "cleared", "optimized", "ARCHIVED"), _GREEN),
    **dict.fromkeys(("refused", "kept", "in progress elsewhere", "not comparable"), _YELLOW),
    **dict.fromkeys(("IN_PROGRESS", "INTERRUPTED"), _YELLOW),
    **dict.fromkeys(("stopped", "stopped before it began", "stopped when"), _YELLOW),
    **dict.fromkeys(("failed", "killed", "differs", "not known", "not verified"), _RED),
    **dict.fromkeys(("FAILED", "KILLED"), _RED),
    **dict.fromkeys(("unchanged", "already exported", "empty", "not exported"), _FAINT),
}
_OF_PARTITION: Final = re.compile(r"(partition \S+: )([a-z]+(?: [a-z]+)*)")


def terminal_width(stream: TextIO) -> int:
    """Return how many columns a stream's terminal has: COLUMNS, its own, or 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except (OSError, ValueError):
        return _DEFAULT_WIDTH


def fitting(widths: Sequence[int], fixed: Sequence[bool], room: int) -> list[int]:
    """Return the widths of columns, two apart, so that a line fits: the widest give way first.

    Args:
        widths: as the columns would have them.
        fixed: which of them keep theirs.
        room: how many columns the terminal has.
    """
    found = [*widths]
    while sum(found) + 2 * (len(found) - 1) > room:
        width, at = max(
            (0 if keeps else w, i) for i, (w, keeps) in enumerate(zip(found, fixed, strict=True))
        )
        if width <= _LEAST_COLUMN:
            break
        found[at] -= 1
    return found


def shortened(text: str, width: int) -> str:
    """Return a text that fits a width, without its beginning where it does not."""
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def has_colours(stream: TextIO) -> bool:
    """Whether words are coloured: on a terminal, unless NO_COLOR is set; FORCE_COLOR: always."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def in_colour(text: str, word: str) -> str:
    """Return a text in the colour of a word, as it is where the word has none."""
    code = _COLOURS.get(word.strip())
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def coloured(line: str) -> str:
    """Return a line about a partition with its word in colour."""
    found = _OF_PARTITION.match(line)
    if found is None:
        return line
    return f"{found[1]}{in_colour(found[2], found[2])}{line[found.end() :]}"

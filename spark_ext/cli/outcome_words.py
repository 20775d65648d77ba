"""Words for the status of a partition in text output, and commands for copying."""

from __future__ import annotations

import shlex
from typing import Final

from tableformat.export.outcome import Status

__all__ = ["OF_FILES", "quoted", "status_word", "undo_command"]

_WORDS: Final = {
    Status.COMMITTED: "exported",
    Status.REPLACED: "replaced",
    Status.UNCHANGED: "unchanged",
    Status.ALREADY_EXPORTED: "already exported",
    Status.EMPTY: "empty",
    Status.IN_PROGRESS: "in progress elsewhere",
    Status.REFUSED: "refused",
    Status.KILLED: "killed",
    Status.FAILED: "failed",
    Status.STOPPED: "stopped",
    Status.UNKNOWN: "not known",
    Status.DIFFERS: "differs",
    Status.UNVERIFIED: "not verified",
    Status.DROPPED: "dropped",
    Status.DETACHED: "detached",
    Status.ATTACHED: "attached",
    Status.MOVED: "moved",
    Status.FETCHED: "fetched",
    Status.CHANGED: "changed",
    Status.OPTIMIZED: "optimized",
    Status.FROZEN: "frozen",
    Status.UNFROZEN: "unfrozen",
    Status.FORGOTTEN: "forgotten",
}
OF_FILES: Final = (
    Status.DROPPED,
    Status.DETACHED,
    Status.ATTACHED,
    Status.MOVED,
    Status.FETCHED,
    Status.CHANGED,
    Status.OPTIMIZED,
    Status.FROZEN,
)
"""Statuses of statements that move, write or remove files."""


def status_word(status: Status) -> str:
    """Return the word for a status in text output."""
    return _WORDS[status]


def undo_command(statement: str) -> str:
    """Return the command that runs an undo statement."""
    return f"mergeberg alter {quoted(statement)}"


def quoted(word: str) -> str:
    """Return a word quoted for a shell, in double quotes if it contains single quotes."""
    plain = shlex.quote(word)
    in_double = "'" in word and not any(c in word for c in '"$`\\!')
    return f'"{word}"' if in_double else plain

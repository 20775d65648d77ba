"""What to run next after a command that did not end with 0: always something that can be typed.

The options that a user gave are kept where the next command knows them.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from tableformat.errors import NotFoundError, RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tableformat.errors import TableFormatError

__all__ = ["exit_code_of", "next_command"]

_USAGE: Final = 2
_REFUSED: Final = 3
_FAILED: Final = 4
_IN_PROGRESS: Final = 6
_UNKNOWN_NAMES: Final = (60, 81)
_SOURCE: Final = ("--source", "--source-wait")
_LEDGER: Final = ("--warehouse", "--ledger")
_CHECK: Final = (*_SOURCE, *_LEDGER, "--to", "--partition-spec", "--convert", "--strict")
_FLAGS: Final = ("--all", "--strict", "--force", "--dry-run", "--json", "--debug")


def exit_code_of(error: TableFormatError) -> int:
    """Return the exit code of an error that ended a command: 2, 3 or 4."""
    match error:
        case RefusedError():
            return _REFUSED
        case UsageError():
            return _USAGE
        case _:
            return _FAILED


def next_command(
    arguments: Sequence[str], code: int, *, error: TableFormatError | None = None
) -> str:
    """Return what a user runs next.

    Args:
        arguments: what stood after `mergeberg`.
        code: what the command ended with; not 0.
        error: why it ended, when that was an error of the whole command.
    """
    command = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if code == _USAGE:
        return " ".join(word for word in ("mergeberg", command, "--help") if word)
    if code == _IN_PROGRESS:
        return _joined("exports", "list", *_kept(arguments, _LEDGER))
    if code != _REFUSED:
        return f"{_joined(*arguments)} (again; it is safe)"
    table = next(_operands(arguments[1:]), "")
    if error is not None and error.code in _UNKNOWN_NAMES:
        return f"{_joined(*arguments)} (with a name that is there)"
    if isinstance(error, NotFoundError) and "mergeberg partitions" in error.message:
        return _joined("partitions", table, *_kept(arguments, _SOURCE))
    if command == "export" and table:
        return _joined("check", table, *_kept(arguments, _CHECK))
    return f"{_joined(*arguments)} (when the reason is gone)"


def _joined(*words: str) -> str:
    return shlex.join(("mergeberg", *words))


def _kept(arguments: Iterable[str], options: tuple[str, ...]) -> Iterator[str]:
    """Yield those of the given options, with their values, that another command knows."""
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if not name.startswith("--"):
            continue
        value = [] if equals or name in _FLAGS else [next(words, "")]
        if name in options:
            yield from (word, *value)


def _operands(arguments: Iterable[str]) -> Iterator[str]:
    """Yield the words that are neither an option nor its value."""
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            yield word
        elif "=" not in word and word not in _FLAGS:
            next(words, "")

"""What to run next after a command that did not end with 0: always something that can be typed.

The options that a user gave are kept where the next command knows them.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from spark_ext.demo.errors import DemoError
from tableformat.errors import NotFoundError, RefusedError, TableFormatError, UsageError

__all__ = ["exit_code_of", "next_command"]

_DIFFERS: Final = 1
_USAGE: Final = 2
_REFUSED: Final = 3
_FAILED: Final = 4
_IN_PROGRESS: Final = 6
_DOTS: Final = 2
_SOURCE: Final = ("--source", "--source-wait")
_LEDGER: Final = ("--warehouse", "--ledger")
_MAPPING: Final = ("--partition-spec", "--convert", "--evolve-schema", "--strict")
_CHECK: Final = (*_SOURCE, *_LEDGER, "--to", *_MAPPING)
_FLAGS: Final = (
    *("--all", "--evolve-schema", "--strict", "--force", "--verify", "--dry-run", "--json"),
    "--debug",
)


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
    arguments: Sequence[str],
    code: int,
    *,
    commands: Collection[str],
    error: TableFormatError | None = None,
) -> str:
    """Return what a user runs next.

    Args:
        arguments: what stood after `mergeberg`.
        code: what the command ended with; not 0.
        commands: all that there are.
        error: why it ended, when that was an error of the whole command.
    """
    if isinstance(error, DemoError):
        return error.next_command
    command = arguments[0] if arguments and arguments[0] in commands else ""
    if code == _USAGE:
        return " ".join(word for word in ("mergeberg", command, "--help") if word)
    if code in (_IN_PROGRESS, _DIFFERS):
        return _joined("exports", "list", *_kept(arguments, _LEDGER))
    if code != _REFUSED:
        return f"{_joined(*arguments)} (again; it is safe)"
    table = next(_operands(arguments[1:]), "")
    if isinstance(error, NotFoundError):
        if "mergeberg partitions" in error.message:
            return _joined("partitions", table, *_kept(arguments, _SOURCE))
        return f"{_joined(*arguments)} (when what is missing is there)"
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
        # A destination that is no Iceberg table would be refused again.
        short = name == "--to" and "".join(value).count(".") < _DOTS
        if name in options and not short:
            yield from (word, *value)


def _operands(arguments: Iterable[str]) -> Iterator[str]:
    """Yield the words that are neither an option nor its value."""
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            yield word
        elif "=" not in word and word not in _FLAGS:
            next(words, "")

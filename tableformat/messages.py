"""Names options and commands in messages as values, so that each interface uses its own names.

A message is text. An option in it is a mark: `f"Use {Option.FORCE} to replace it."` The command
line shows `--force`, CALL `force => true`, a statement its setting. `written` replaces the marks;
nothing else in a message is changed, such as the name of a column that is spelled like an option.

Every text for users may have marks until an interface writes it. Logs, tracebacks and the ledger
have the names of the command line (`plain`).
"""

from __future__ import annotations

import re
import shlex
from enum import Enum
from typing import Final, Protocol

__all__ = [
    "Command",
    "CommandLine",
    "Option",
    "Words",
    "convert",
    "named_in",
    "plain",
    "together",
    "written",
]

# Unicode reserves these characters for the internal use of programs; no text for people has them.
_BEGIN, _NEXT, _END = "\ufdd0", "\ufdd1", "\ufdd2"
_WORD: Final = re.compile(r"[\w.]+")
_MARK: Final = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_END}")


class Option(Enum):
    """An option of the product; the value is how it is given on the command line."""

    ALL = "--all"
    ALLOW_ALTER = "--allow-alter"
    ALLOW_EMPTY = "--allow-empty"
    ALLOW_INSECURE = "--allow-insecure"
    BACKFILL = "--backfill"
    CATALOG = "--catalog"
    CHECK_ROWS = "--check-rows"
    CLUSTER = "--cluster"
    CLUSTER_HOST = "--cluster-host"
    CONVERT = "--convert"
    DROP = "--drop"
    EVOLVE_SCHEMA = "--evolve-schema"
    FORCE = "--force"
    HIVE_COLUMN = "--hive-column"
    IGNORE_ROW_POLICIES = "--ignore-row-policies"
    INCREMENTAL = "--incremental"
    LATE_ROWS = "--late-rows append"
    LATE_ROWS_ALL = "--late-rows append-all"
    LEDGER = "--ledger"
    MAX_REPLACE = "--max-replace"
    MAX_SLICES = "--max-slices"
    NO_PARALLEL_FORMATTING = "--no-parallel-formatting"
    OLDER_THAN = "--older-than"
    OVERWRITE_FILE_IF_EXISTS = "--overwrite-file-if-exists"
    PARTITION_ID = "--partition-id"
    PARTITION_SPEC = "--partition-spec"
    REPLACE_PARTITION = "--replace-partition"
    RETRY_FOR = "--retry-for"
    SAME_AS = "--same-as"
    SAME_TABLE = "--same-table"
    SOURCE = "--source"
    SOURCE_SETTING = "--source-setting"
    SOURCE_WAIT = "--source-wait"
    STRICT = "--strict"
    SYNC_TIMEOUT = "--sync-timeout"
    TARGET_FILE_SIZE = "--target-file-size"
    TO = "--to"
    VERIFY = "--verify"
    WAREHOUSE = "--warehouse"

    @property
    def flag(self) -> str:
        """The name of the option on the command line, without a value."""
        return self.value.partition(" ")[0]

    @property
    def given(self) -> str:
        """The value with which it is given, '' for none."""
        return self.value.partition(" ")[2]

    def __str__(self) -> str:
        """Return the mark of the option."""
        return together(self)


class Command(Enum):
    """A command that a message advises; the value is its name on the command line."""

    ARCHIVE = "archive"
    CANCEL = "exports cancel"
    EXPORT = "export"
    EXPORTS = "exports list"
    GC = "gc"
    PARTITIONS = "partitions"
    PARTS = "parts"
    REBUILD = "exports rebuild"
    SHOW = "exports show"
    UNARCHIVE = "exports unarchive"
    VERIFY = "verify"
    WATERMARK = "exports watermark"

    def __str__(self) -> str:
        """Return the mark of the command."""
        return self.on("")

    def on(self, arguments: str) -> str:
        """Return the mark of the command with arguments, as the command line takes them."""
        return _mark("command", self.name, arguments)


class Words(Protocol):
    """The names of options and commands at one interface."""

    def options(self, named: tuple[Option, ...]) -> str:
        """Return options that are given together."""
        ...

    def convert(self, column: str, conversion: str) -> str:
        """Return the option that converts a column, with its value."""
        ...

    def command(self, command: Command, arguments: str) -> str:
        """Return a command, with arguments as the command line takes them, or ''."""
        ...


def together(*named: Option) -> str:
    """Return the mark of options that are given together."""
    return _mark("options", *(one.name for one in named))


def convert(column: str, conversion: str) -> str:
    """Return the mark of the conversion of a column.

    Args:
        column: its name, as `option_name` writes it.
        conversion: a value of `--convert`.
    """
    return _mark("convert", column, conversion)


def written(text: str, words: Words) -> str:
    """Return a message in the words of an interface."""

    def one(found: re.Match[str]) -> str:
        match _named(found[1]):
            case ("options", *named):
                return words.options(tuple(Option[name] for name in named))
            case ("convert", column, conversion):
                return words.convert(column, conversion)
            case ("command", name, arguments):
                return words.command(Command[name], arguments)
            case _:
                return found[0]

    return _MARK.sub(one, text)


def named_in(text: str) -> tuple[Option | Command, ...]:
    """Return the options and commands that a message names, each once, in order."""
    found: list[Option | Command] = []
    for mark in _MARK.findall(text):
        match _named(mark):
            case ("options", *named):
                found += (Option[name] for name in named)
            case ("convert", *_):
                found.append(Option.CONVERT)
            case ("command", name, _):
                found.append(Command[name])
            case _:
                pass
    return tuple(dict.fromkeys(found))


def _named(mark: str) -> tuple[str, ...]:
    """Return the kind and the values of a mark; () for a text that only looks like one."""
    kind, *values = mark.split(_NEXT)
    match kind, values:
        case "options", [_, *_]:
            is_mark = all(one in Option.__members__ for one in values)
        case "command", [name, _]:
            is_mark = name in Command.__members__
        case _:
            is_mark = (kind, len(values)) == ("convert", 2)
    return (kind, *values) if is_mark else ()


class CommandLine:
    """The names of the command line."""

    def options(self, named: tuple[Option, ...]) -> str:
        """Return options as they are given together."""
        return " ".join(one.value for one in named)

    def convert(self, column: str, conversion: str) -> str:
        """Return the option with its value, quoted for a shell unless the column is a word."""
        value = f"{column}={conversion}"
        return f"{Option.CONVERT.value} {value if _WORD.fullmatch(column) else shlex.quote(value)}"

    def command(self, command: Command, arguments: str) -> str:
        """Return the command as it is typed."""
        return f"`mergeberg {command.value}{arguments and f' {arguments}'}`"


def plain(text: str) -> str:
    """Return a message in the words of the command line."""
    return written(text, CommandLine())


def _mark(kind: str, *values: str) -> str:
    return f"{_BEGIN}{_NEXT.join((kind, *values))}{_END}"

"""Reports the error of a command, its exit code, and the command to run next.

The next command can be run as printed. It keeps the options of `mergeberg` itself, and the user's
other options if the next command has them. The declared parameters of the commands determine which
words are options, which options take a value, and which values are addresses or settings: these are
shown without their secrets, and every other word as it was typed. No command is printed for a
statement or for words of another program that have a secret.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from catalog.iceberg.catalogs import open_catalog
from catalog.network import holds_secret, without_secret
from catalog.source_defaults import DEFAULT_DATABASE
from spark_ext.cli.options import carried_options, shown_value
from spark_ext.cli.output import JsonOutput, Output, TextOutput, quoted
from spark_ext.cli.sections import Invocation
from spark_ext.demo.directory import DemoError
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.statement_reader import DottedName, shown_statement
from spark_ext.sql.statements import Alter, Fetch, KillQuery
from tableformat.errors import Advice, NotFoundError, RefusedError, TableFormatError, UsageError
from tableformat.export.outcome import DIFFERS, FAILED, IN_PROGRESS, INTERRUPTED, REFUSED, USAGE
from tableformat.names import HiveName, LakeName, secret_in

__all__ = [
    "changed_command",
    "command_of",
    "exit_code_of",
    "following_command",
    "next_command",
    "say_failure",
    "say_next",
    "say_unprinted",
]

_SOURCE: Final = (
    "--source",
    "--source-wait",
    "--source-config",
    "--allow-insecure",
    "--sync-timeout",
    "--staging-database",
    "--source-setting",
    "--ignore-row-policies",
    "--cluster",
    "--cluster-host",
)
_LEDGER: Final = ("--warehouse", "--ledger")
_MAPPING: Final = ("--partition-spec", "--convert", "--evolve-schema", "--strict")
_CHECK: Final = (*_SOURCE, *_LEDGER, "--to", *_MAPPING)
_INTERRUPTED_TEXT: Final = (
    "Interrupted. Finished partitions are in the lake; unfinished ones are not visible. Run the "
    "same command again to finish them, or discard them with `mergeberg exports cancel`."
)
_ONLY_PRINT: Final = frozenset(
    (
        ("partitions",),
        ("parts",),
        ("read",),
        *(("exports", name) for name in ("list", "show", "log", "events", "watermark")),
    )
)
"""Commands that only print: if they cannot print, they have failed."""


def say_failure(
    arguments: Sequence[str],
    error: BaseException,
    *,
    group: click.Group,
    running: Invocation,
) -> int:
    """Report the error that ended a command; return the exit code. --debug adds the traceback.

    Args:
        arguments: the words after `mergeberg`.
        error: the error.
        group: `mergeberg` with its commands.
        running: the command line.
    """
    output = _output_of(arguments)
    following = partial(next_command, group=group, landed=running.landed, context=running.context)
    match error:
        case click.Abort() | KeyboardInterrupt():
            after = following(arguments, INTERRUPTED)
            output.error(_INTERRUPTED_TEXT, after)
            code = INTERRUPTED
        case click.ClickException():
            message = f"Cannot run the command: {error.format_message()}"
            output.error(message, following(arguments, USAGE))
            code = USAGE
        case TableFormatError():
            code = exit_code_of(error)
            after = following(arguments, code, error=error)
            output.error(error.message, after, code=error.code)
        case _:
            summary = f"{type(error).__name__}: {error}".splitlines()[0]
            message = (
                f"Cannot continue: an unexpected error, {summary}. This is a bug, please report it "
                "with the output of --debug."
            )
            output.error(message, following([*arguments, "--debug"], FAILED))
            code = FAILED
    if "--debug" in arguments:
        traceback.print_exception(error)
    return code


def say_next(
    arguments: Sequence[str], code: int, *, group: click.Group, running: Invocation
) -> None:
    """Report the next command after a command with a nonzero exit code."""
    command = next_command(
        arguments, code, group=group, landed=running.landed, context=running.context
    )
    if command:
        _output_of(arguments).next(command)


def say_unprinted(arguments: Sequence[str], why: OSError, code: int, *, group: click.Group) -> int:
    """Report that results were not printed; return the exit code.

    A command that only prints has failed then. Any other command keeps its exit code.
    """
    only_prints = command_of(arguments, group) in _ONLY_PRINT
    if only_prints and isinstance(why, BrokenPipeError):
        # The reader, such as `head`, has read enough.
        return code
    output = _output_of(arguments)
    what = f"Cannot write all results to standard output: {why.strerror}."
    if only_prints:
        message = f"{what} Nothing was changed. Write them elsewhere."
        output.error(message, next_command(arguments, FAILED, group=group))
        return code or FAILED
    output.error(f"{what} The command itself has finished; its exit code shows the result.", "")
    return code


def _output_of(arguments: Sequence[str]) -> Output:
    return JsonOutput() if "--json" in arguments else TextOutput()


def exit_code_of(error: TableFormatError) -> int:
    """Return the exit code of an error that ended a command: 2, 3 or 4."""
    match error:
        case RefusedError():
            return REFUSED
        case UsageError():
            return USAGE
        case _:
            return FAILED


def next_command(
    arguments: Sequence[str],
    code: int,
    *,
    group: click.Group,
    error: TableFormatError | None = None,
    landed: Collection[str] = (),
    context: click.Context | None = None,
) -> str:
    """Return the command that a user should run next; '' if none helps.

    Args:
        arguments: the words after `mergeberg`.
        code: the exit code of the command; not 0.
        group: `mergeberg` with its commands.
        error: the error that ended the whole command; None if there was none.
        landed: the ids of partitions that the command has exported.
        context: that of the command, with the options of the environment and of the configuration
            file; None if the options were not read.
    """
    if isinstance(error, DemoError):
        return error.next_command
    line = _line(arguments, group, context)
    if code == USAGE:
        return _joined(*line.command, "--help")
    if code in (IN_PROGRESS, DIFFERS):
        return _following(line)
    if code != REFUSED:
        return _joined(*(line.without(landed) or line.words)) if line.is_repeatable else ""
    if isinstance(error, NotFoundError):
        return _where_not_found(line, error)
    if error is None or line.command != ("export",) or not line.operand:
        # The message of a refused partition has its own advice.
        return ""
    if Advice.EVOLVE_SCHEMA in error.advice and not line.value("--evolve-schema"):
        return _joined(*line.words, "--evolve-schema")
    return _joined(*line.before, "check", line.operand, *line.kept(_CHECK, "check"))


def following_command(arguments: Sequence[str], context: click.Context) -> str:
    """Return the command that lists the exports of the ledger of a command line.

    Args:
        arguments: the words after `mergeberg`.
        context: that of the command.
    """
    group = context.find_root().command
    if not isinstance(group, click.Group):
        raise TypeError(group)
    return _following(_line(arguments, group, context))


def changed_command(
    arguments: Sequence[str], context: click.Context, *, adds: str, without: str
) -> str:
    """Return a command line with one more flag and without another; each is there at most once.

    Args:
        arguments: the words after `mergeberg`.
        context: that of the command.
        adds: the flag to add.
        without: the flag to leave out.
    """
    group = context.find_root().command
    if not isinstance(group, click.Group):
        raise TypeError(group)
    words = [w for w in _line(arguments, group, context).words if w not in (adds, without)]
    return _joined(*words, adds)


def _following(line: _Line) -> str:
    return _joined(*line.before, "exports", "list", *_ledger_of(line))


def _where_not_found(line: _Line, error: NotFoundError) -> str:
    """Return the command with a similar name that exists, or a command that lists names."""
    if error.similar and error.named in line.words and line.is_repeatable:
        return _joined(*(error.similar if word == error.named else word for word in line.words))
    if Advice.LIST_PARTITIONS in error.advice:
        return _joined(
            *line.before, "partitions", line.source_table, *line.kept(_SOURCE, "partitions")
        )
    return ""


def command_of(arguments: Sequence[str], group: click.Group) -> tuple[str, ...]:
    """Return the name of the command in a command line, as words."""
    return _line(arguments, group).command


@dataclass(frozen=True, slots=True)
class _Line:
    """A parsed command line: options of `mergeberg` itself, name of the command, and pieces.

    A piece is an operand, or an option with its value, without the secret of an address or of a
    setting. `context` has the values of the options that are not on the command line.
    """

    before: tuple[str, ...]
    command: tuple[str, ...]
    pieces: tuple[tuple[str, ...], ...]
    context: click.Context | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words after `mergeberg`."""
        return (*self.before, *self.command, *(word for piece in self.pieces for word in piece))

    @property
    def is_repeatable(self) -> bool:
        """Whether the command can be shown: no statement or word of another program has a secret.

        A statement is not changed, because every text in it may mean something. In one that can be
        read, only locations of files are addresses.
        """
        if self.command == ("alter",):
            read = parse_statement(self.operand)
            if read is None:
                return shown_statement(self.operand) == self.operand
            commands = read.commands if isinstance(read, Alter) else ()
            return not any(secret_in(one.path) for one in commands if isinstance(one, Fetch))
        if self.command == ("spark",):
            given = [piece[0] for piece in self.pieces if len(piece) == 1]
            return not any(holds_secret(one) or without_secret(one) != one for one in given)
        return True

    @property
    def operand(self) -> str:
        """The first operand; '' if there is none."""
        return next((piece[0] for piece in self.pieces if not piece[0].startswith("-")), "")

    @property
    def source_table(self) -> str:
        """The ClickHouse table of the command: its operand, or the table of its statement."""
        statement = parse_statement(self.operand) if self.command == ("alter",) else None
        if statement is None or isinstance(statement, KillQuery):
            return self.operand
        *database, name = statement.table.parts
        default = self.value("--database") or DEFAULT_DATABASE
        return str(DottedName((database[-1] if database else default, name)))

    def without(self, landed: Collection[str]) -> tuple[str, ...]:
        """Return a forced export without the partitions that it has exported already.

        The same command would replace these once more. Empty if it is no forced export of all
        partitions.
        """
        is_forced = self.value("--force") and self.value("--all")
        if not (landed and is_forced) or self.command != ("export",):
            return ()
        named = ", ".join(f"'{one}'" for one in sorted(landed))
        where, given = f"partition_id NOT IN ({named})", self.value("--where")
        if given is not None:
            where = f"({given}) AND {where}"
        pieces = (one for one in self.pieces if one[0].partition("=")[0] != "--where")
        words = (word for piece in pieces for word in piece)
        return (*self.before, *self.command, *words, "--where", where)

    def value(self, name: str) -> Any:
        """Return the value of an option, that of the command line first; None if it has none."""
        for piece in reversed(self.pieces):
            option, equals, value = piece[0].partition("=")
            if option == name:
                return value if equals else piece[1] if len(piece) > 1 else True
        params = () if self.context is None else self.context.command.params
        named = (str(one.name) for one in params if name in one.opts)
        return next((self.context.params.get(one) for one in named if self.context), None)

    def kept(self, options: tuple[str, ...], *to: str) -> Iterator[str]:
        """Yield the options that are in `options`, with their values, for another command.

        The configuration file may give some to this command and not to the other one, `to`.
        """
        pieces = [*self.pieces]
        if self.context is not None:
            typed = {piece[0].partition("=")[0] for piece in pieces}
            others = [name for name in options if name not in typed]
            pieces += carried_options(self.context, others, to)
        for piece in pieces:
            name, _, value = piece[0].partition("=")
            # The next command would refuse a destination that is not an Iceberg table.
            if name in options and (name != "--to" or _is_iceberg(value or piece[-1])):
                yield from piece


def _ledger_of(line: _Line) -> tuple[str, ...]:
    """Return the options for the command's ledger, for a command without --to."""
    given, to = tuple(line.kept(_LEDGER, "exports", "list")), line.value("--to")
    if to is None or not _is_iceberg(to) or line.value("--ledger") is not None:
        return given
    name = LakeName.parse(to)
    lake = open_catalog(name.catalog, warehouse=Path())
    if lake.local_warehouse is not None or lake.ledger_directory is None:
        return given
    return ("--warehouse", str(lake.ledger_directory))


def _line(
    arguments: Sequence[str], group: click.Group, context: click.Context | None = None
) -> _Line:
    """Parse a command line by the declared parameters of the commands."""
    before: list[str] = []
    names: list[str] = []
    inside: click.Command = group
    left = tuple(arguments)
    while left and isinstance(inside, click.Group):
        piece = next(_pieces(left, inside))
        if piece[0] in inside.commands:
            names.append(piece[0])
            inside = inside.commands[piece[0]]
        elif piece[0].startswith("-"):
            before.extend(piece)
        else:
            break
        left = left[len(piece) :]
    return _Line(tuple(before), tuple(names), tuple(_pieces(left, inside)), context)


def _pieces(words: Sequence[str], command: click.Command) -> Iterator[tuple[str, ...]]:
    """Yield the words of a command, each option together with its value."""
    named = {
        name: one
        for one in command.params
        if isinstance(one, click.Option)
        for name in (*one.opts, *one.secondary_opts)
    }
    operands = [one for one in command.params if isinstance(one, click.Argument)]
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--" or not word.startswith("-"):
            yield (word if word == "--" or not operands else shown_value(operands[0], word),)
            if word == "--":
                yield from ((one,) for one in left)
                return
            continue
        name, equals, value = word.partition("=")
        option = named.get(name)
        if equals:
            yield (word if option is None else f"{name}={shown_value(option, value)}",)
        elif _is_alone(option, left):
            yield (word,)
        else:
            value = left.pop(0)
            yield (word, value if option is None else shown_value(option, value))


def _is_alone(option: click.Option | None, left: Sequence[str]) -> bool:
    """Whether an option has no value among the words after it."""
    if not left or (option is not None and option.is_flag):
        return True
    # An option such as --watch, which has a value of its own if none follows.
    is_optional = option is not None and isinstance(option.flag_value, int | float | str)
    return is_optional and left[0].startswith("-")


def _is_iceberg(to: str) -> bool:
    try:
        return not isinstance(LakeName.parse(to), HiveName)
    except UsageError:
        return False


def _joined(*words: str) -> str:
    return " ".join(("mergeberg", *(quoted(word) for word in words)))

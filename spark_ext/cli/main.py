"""The command `mergeberg`: lists its commands, runs one, and turns errors into exit codes.

This module imports little, because help, version and completion need no command. A command is
imported when it runs, and the module that reports errors when a command has failed.

Standard streams may be closed or full, so that printing never ends a command: `Stream` drops all
output after the first failure, and the command reports the failure once, at its end.

Exit: 0 done or nothing to do, 1 the lake differs from its source, 2 usage, 3 refused (nothing
changed), 4 failed (safe to re-run), 5 unknown (safe to re-run), 6 in progress elsewhere, 130
interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TextIO, cast

import click

from spark_ext.cli.sections import CONFIGURATION, Invocation, Section, SectionedGroup

__all__ = ["Stream", "invoke", "main", "open_closed_streams", "run", "text_of"]

_OWN: Final = ("--config", "--log", "--log-level")
"""The options of `mergeberg` itself that may come before or after the command."""
_HELP: Final = frozenset(("-h", "--help", "--help-all"))
_CONFIG_FILE: Final = "mergeberg.toml"
_CONFIG_VARIABLE: Final = "MERGEBERG_CONFIG"
_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_OF_EXPORTS: Final = {
    "cancel": "Cancel the running exports of PARTITION_IDs: nothing of them becomes visible.",
    "events": (
        "Show the counters of source parts since the ledger was created, and how many exports run."
    ),
    "forget": "Let the partition PARTITION_ID be exported again before its manifest TTL is over.",
    "list": "List the exports in the ledger, latest first, with their rows in the lake.",
    "log": "Show the latest outcomes of exports, oldest first.",
    "rebuild": "Rebuild the lost ledger of a lake table from the table itself.",
    "show": "Show the exports of PARTITION_ID: states, rows, files, times, source parts.",
    "unarchive": "Let exports replace the rows of the archived partition PARTITION_ID again.",
    "watermark": "Show up to which partition everything is exported, and unchanged since.",
}
_STATEMENTS: Final = {
    "alter": "Run a STATEMENT of ClickHouse's about partitions, as in Spark SQL.",
    "attach": "Bring detached rows back, or a partition of another table.",
    "clear-column": "Set a column to its default, in a partition or the whole table.",
    "clear-index": "Remove the bloom filters of an index from data files.",
    "delete": "Delete rows, in a partition or the whole table.",
    "detach": "Take a partition or part out of the table; it can be attached again.",
    "drop": "Drop a partition or part; earlier snapshots keep its rows until they expire.",
    "drop-detached": "Drop detached rows.",
    "fetch": "Bring a partition or part from elsewhere to the detached rows.",
    "forget": "Forget an empty partition: its record is removed once no snapshot has its rows.",
    "freeze": "Keep a partition, or the whole table, as it is now, under a tag.",
    "move": "Move a partition to another table, or a partition or part to a disk or volume.",
    "optimize": "Rewrite the files of a partition, or of each partition, as few sorted ones.",
    "replace": "Replace a partition with that of another table, in one snapshot.",
    "unfreeze": "Remove the tag of a FREEZE, for one partition or for all.",
    "update": "Set columns of rows, in a partition or the whole table.",
}
_LOOKING: Final = {
    "partitions": (
        "List the partitions of TABLE (database.table) with active parts, of every shard."
    ),
    "parts": "List the active parts of TABLE (database.table), of every shard.",
    "show": "Show where a lake TABLE is, what it holds, and the lines with which others read it.",
    "read": "List what is exported into TREE (hive:URI), or read it.",
}
_BEGINNING: Final = {
    "demo": "Show the whole way: fill a ClickHouse, export it through Spark, read the lake back.",
    "spark": (
        "Start Spark's own shell with everything of mergeberg; -- and its ARGUMENTS may follow."
    ),
    "config": "Show which configuration file is in effect, and the defaults that it gives.",
}


def _file_in_effect(given: str | None) -> str:
    """Return the path of the configuration file, '' if there is none; an empty path names none."""
    if given is not None:
        return given
    return _CONFIG_FILE if Path(_CONFIG_FILE).is_file() else ""


def _configure(context: click.Context, _option: click.Parameter, given: str | None) -> None:
    """Take defaults of options from the configuration file; help needs none that can be used."""
    path = _file_in_effect(given)
    if not path or context.resilient_parsing:
        return
    words = context.ensure_object(Invocation).words
    commands = import_module("spark_ext.cli.commands.config")
    try:
        found = commands.read_config(Path(path), main, is_named=given is not None)
    except ValueError:  # A UsageError, of a module that help does not import.
        if _HELP.isdisjoint(words):
            raise
        return
    context.default_map = dict(found.defaults)
    context.meta[CONFIGURATION] = found
    for warning in found.warnings:
        commands.output_for(as_json="--json" in words).note(warning)


def _named_configuration(context: click.Context) -> str:
    """Return the last line of the help: the configuration file in effect."""
    found = context.meta.get(CONFIGURATION)
    path = _file_in_effect(os.environ.get(_CONFIG_VARIABLE) or None)
    if found is None and not path:
        return ""
    return f"Defaults of options are taken from {found.path if found else Path(path).absolute()}"


@click.group(
    cls=SectionedGroup,
    sections=(Section("Commands", _OF_EXPORTS),),
    places=("declarations:OF_EXPORTS",),
)
def exports() -> None:
    """Show what was exported, what runs, what failed."""


_EXPORTING: Final[Mapping[str, str | click.Command]] = {
    "check": (
        "Check whether TABLE (database.table) can be exported, and show how columns are mapped."
    ),
    "export": "Export partitions of the ClickHouse TABLE (database.table) into an Iceberg table.",
    "verify": (
        "Compare exported partitions of the ClickHouse TABLE (database.table) with their source."
    ),
    "archive": (
        "Export partitions of TABLE, compare every column, and only then remove them from the "
        "source."
    ),
    "exports": exports,
    "gc": "List what abandoned exports left in a lake table and in a source; remove it with --yes.",
    "maintain": (
        "Maintain a lake TABLE so that exports stay in force: compact it, and remove what is old."
    ),
}


@click.group(
    cls=SectionedGroup,
    sections=(
        Section("Exports", _EXPORTING),
        Section("Statements on lake tables", _STATEMENTS),
        Section("Inspect", _LOOKING),
        Section("Get started", _BEGINNING),
    ),
    places=("declarations:COMMANDS", "typed_commands:TYPED_COMMANDS"),
    last_line=_named_configuration,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="mergeberg", message="mergeberg %(version)s")
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    envvar=_CONFIG_VARIABLE,
    is_eager=True,
    expose_value=False,
    callback=_configure,
    help=f"Defaults of options (TOML); otherwise {_CONFIG_FILE} in the working directory.",
)
@click.option(
    "--log",
    envvar="MERGEBERG_LOG",
    default="",
    help="Write a structured log: json (to standard error, instead of notes) or json:PATH.",
)
@click.option(
    "--log-level",
    envvar="MERGEBERG_LOG_LEVEL",
    type=click.Choice(_LOG_LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="The least that is written to the log; debug has every step with its duration.",
)
@click.pass_context
def main(context: click.Context, log: str, log_level: str) -> None:
    """Turn ClickHouse MergeTree partitions into Apache Iceberg snapshots, exactly once.

    \b
    Examples:
      mergeberg partitions db.events --source chdb:./clickhouse
      mergeberg check db.events --source chdb:./clickhouse --to lake.analytics.events
      mergeberg export db.events --partition-id 202401 --source chdb:./clickhouse \\
          --to lake.analytics.events
      mergeberg verify db.events --all --to lake.analytics.events
      mergeberg exports list
    """  # noqa: D301  \b is Click's mark for lines to keep
    if log:
        from spark_ext.actions.logs import writing_logs

        context.with_resource(writing_logs(log, log_level))


def run() -> None:
    """Run the command line of this process and end the process with its exit code."""
    open_closed_streams()
    code = invoke(sys.argv[1:], sys.stdout, sys.stderr)
    # Whatever registers a call for the end has loaded this module; help and version have not.
    if "catalog.processes" in sys.modules:
        from catalog.processes import finish

        finish()
    # Spark's JVM ends with this process; a regular exit would wait a second for its threads.
    os._exit(code)


def invoke(arguments: Sequence[str], out: TextIO | None, err: TextIO | None) -> int:
    """Run a command line and return its exit code; errors become one message.

    Args:
        arguments: the words after `mergeberg`.
        out: the stream for results; None if standard output is closed.
        err: the stream for progress, notes and errors; None if standard error is closed.
    """
    arguments = _own_first(arguments)
    results, notes = Stream(out), Stream(err)
    with (
        contextlib.redirect_stdout(text_of(results)),
        contextlib.redirect_stderr(text_of(notes)),
    ):
        code = _run(arguments)
        results.flush()
        if results.failure is not None:
            from spark_ext.cli.next_command import say_unprinted

            code = say_unprinted(arguments, results.failure, code, group=main)
        notes.flush()
        return code


def _run(arguments: Sequence[str]) -> int:
    """Run a command, report its error, and return the exit code."""
    words = list(arguments)
    running = Invocation(tuple(words))
    try:
        code = int(main.main(words, prog_name="mergeberg", standalone_mode=False, obj=running) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  whatever it is, the user gets one message
        from spark_ext.cli.next_command import say_failure

        return say_failure(arguments, error, group=main, running=running)
    if code:
        from spark_ext.cli.next_command import say_next

        say_next(arguments, code, group=main, running=running)
    return code


def _own_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the options of `mergeberg` itself moved to the front."""
    first: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            return [*first, *rest, word, *left]
        if word in _OWN:
            first += [word, *left[:1]]
            del left[:1]
        elif word.partition("=")[0] in _OWN:
            first.append(word)
        else:
            rest.append(word)
    return [*first, *rest]


_STANDARD: Final = (0, 1, 2)
# Marks of `tableformat/messages.py` begin with it; `--help` and TAB have none, and import nothing.
_MARK: Final = "\ufdd0"


class Stream:
    """A stream that drops all output after its first failure; `failure` is that error."""

    def __init__(self, stream: TextIO | None) -> None:
        """Wrap a stream; None stands for one that was closed when the process began."""
        self._stream = _Closed() if stream is None else stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the wrapped stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text with the options of the command line, or drop it after a failure."""
        if self.failure is None:
            with self._failing():
                self._stream.write(_in_words(text))
        return len(text)

    def isatty(self) -> bool:
        """Whether the stream is a terminal; False if it is closed."""
        return not self._stream.closed and self._stream.isatty()

    def flush(self) -> None:
        """Flush the stream, unless it has failed."""
        if self.failure is None:
            with self._failing():
                self._stream.flush()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
        except ValueError as error:
            if not self._stream.closed:
                raise
            self.failure = OSError(errno.EBADF, str(error))


def _in_words(text: str) -> str:
    """Return a text with the options of the command line."""
    if _MARK in text:
        from tableformat.messages import plain

        return plain(text)
    return text


class _Closed(io.StringIO):
    """A stream that was closed when the process began."""

    def write(self, _text: str) -> int:
        """Fail.

        Raises:
            OSError: always.
        """
        raise OSError(errno.EBADF, "it is closed")


def text_of(stream: Stream) -> TextIO:
    """Return a stream with the type that `print` and `redirect_stdout` expect."""
    return cast("TextIO", stream)


def open_closed_streams() -> None:
    """Open closed standard streams to the null device, so that no file gets their numbers."""
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            # os.open uses the lowest free number.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = io.StringIO()

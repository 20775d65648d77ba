"""The command `mergeberg`: its commands, and where errors become messages and exit codes.

Exit: 0 done or nothing to do, 1 the lake differs from its source, 2 usage, 3 refused (nothing
changed), 4 failed (safe to re-run), 5 unknown (safe to re-run), 6 in progress elsewhere, 130
interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final, TextIO

import click

from spark_ext.actions.logs import LOG_LEVELS, writing_logs
from spark_ext.cli.commands.alter import alter
from spark_ext.cli.commands.archive import archive_command
from spark_ext.cli.commands.check import check
from spark_ext.cli.commands.demo import demo
from spark_ext.cli.commands.export import export
from spark_ext.cli.commands.exports import exports
from spark_ext.cli.commands.gc import gc
from spark_ext.cli.commands.look import partitions, parts, read
from spark_ext.cli.commands.show import show
from spark_ext.cli.commands.spark import spark
from spark_ext.cli.commands.typed import TYPED_COMMANDS
from spark_ext.cli.commands.verify import verify
from spark_ext.cli.next_command import command_of, exit_code_of, next_command
from spark_ext.cli.output import JsonOutput, Output, TextOutput
from spark_ext.cli.sections import Section, SectionedGroup
from spark_ext.cli.streams import Stream, open_closed_streams, text_of
from tableformat.errors import TableFormatError
from tableformat.export.outcome import FAILED, INTERRUPTED, USAGE

__all__ = ["invoke", "main", "run"]

_OF_LOG: Final = ("--log", "--log-level")
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
"""Commands that do nothing else: what they cannot print, they have not done."""


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="mergeberg", message="mergeberg %(version)s")
@click.option(
    "--log",
    envvar="MERGEBERG_LOG",
    default="",
    help="Write a structured log: json (to standard error, instead of notes) or json:PATH.",
)
@click.option(
    "--log-level",
    envvar="MERGEBERG_LOG_LEVEL",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
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
    context.with_resource(writing_logs(log, log_level))


for section in (
    Section("Exports", (check, export, verify, archive_command, exports, gc)),
    Section("Statements on lake tables", (alter, *TYPED_COMMANDS)),
    Section("To look", (partitions, parts, show, read)),
    Section("To begin", (demo, spark)),
):
    main.add(section)


def run() -> None:
    """Run the command line of this process and end the process with its exit code."""
    open_closed_streams()
    code = invoke(sys.argv[1:], sys.stdout, sys.stderr)
    # Spark's JVM and its threads are ended by their parent's end; waiting for them costs a second.
    os._exit(code)


def invoke(arguments: Sequence[str], out: TextIO | None, err: TextIO | None) -> int:
    """Run a command line and return its exit code; errors become one message.

    Args:
        arguments: what stands after `mergeberg`.
        out: gets results, and nothing else; None where there is none.
        err: gets progress, notes and errors.
    """
    arguments = _logs_first(arguments)
    results, notes = Stream(out), Stream(err)
    with (
        contextlib.redirect_stdout(text_of(results)),
        contextlib.redirect_stderr(text_of(notes)),
    ):
        output = JsonOutput() if "--json" in arguments else TextOutput()
        code, error = _outcome(arguments, output)
        if error is not None and "--debug" in arguments:
            traceback.print_exception(error)
        results.flush()
        if results.failure is not None:
            code = _unprinted(arguments, output, results.failure, code)
        notes.flush()
        return code


def _logs_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the options of the log in front, wherever they were given."""
    first: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            return [*first, *rest, word, *left]
        if word in _OF_LOG:
            first += [word, *left[:1]]
            del left[:1]
        elif word.partition("=")[0] in _OF_LOG:
            first.append(word)
        else:
            rest.append(word)
    return [*first, *rest]


def _unprinted(arguments: Sequence[str], output: Output, why: OSError, code: int) -> int:
    """Say that results were not printed; return the exit code, which what was done decides."""
    only_prints = command_of(arguments, main) in _ONLY_PRINT
    if only_prints and isinstance(why, BrokenPipeError):
        # Whoever reads has what was wanted, as `head` has.
        return code
    what = f"Cannot write all results to standard output: {why.strerror}."
    if only_prints:
        message = f"{what} Nothing was changed. Write them elsewhere."
        output.error(message, _next(arguments, FAILED))
        return code or FAILED
    output.error(f"{what} What the command did is done; its exit code says how it ended.", "")
    return code


def _outcome(arguments: Sequence[str], output: Output) -> tuple[int, BaseException | None]:
    """Run a command; say what went wrong, and return the exit code and the error, if any."""
    landed: list[str] = []
    words = list(arguments)
    try:
        code = int(main.main(words, prog_name="mergeberg", standalone_mode=False, obj=landed) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0, None
    except click.ClickException as error:
        message = f"Cannot run the command: {error.format_message()}"
        output.error(message, _next(arguments, USAGE))
        return USAGE, error
    except (KeyboardInterrupt, click.Abort) as error:
        output.error(_INTERRUPTED_TEXT, _next(arguments, INTERRUPTED, landed=landed))
        return INTERRUPTED, error
    except TableFormatError as error:
        code = exit_code_of(error)
        after = _next(arguments, code, error, landed=landed)
        output.error(error.message, after, code=error.code)
        return code, error
    except Exception as error:  # noqa: BLE001  whatever it is, the user gets one message
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        message = (
            f"Cannot go on: an error that was not foreseen, {said}. This is a bug, please report "
            "it with what --debug shows."
        )
        output.error(message, _next([*arguments, "--debug"], FAILED))
        return FAILED, error
    command = _next(arguments, code, landed=landed) if code else ""
    if command:
        output.next(command)
    return code, None


def _next(
    arguments: Sequence[str],
    code: int,
    error: TableFormatError | None = None,
    *,
    landed: Sequence[str] = (),
) -> str:
    return next_command(arguments, code, group=main, error=error, landed=landed)

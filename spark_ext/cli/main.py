"""The command `mergeberg`: its commands, and where errors become messages and exit codes.

Exit: 0 done or nothing to do, 2 usage, 3 refused (nothing changed), 4 failed (safe to re-run),
5 unknown (safe to re-run), 6 in progress elsewhere, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

import click

from spark_ext.cli.commands.export import export
from spark_ext.cli.commands.exports import exports
from spark_ext.cli.commands.partitions import partitions
from spark_ext.cli.commands.parts import parts
from spark_ext.cli.output import JsonOutput, TextOutput
from tableformat.errors import RefusedError, TableFormatError, UsageError

__all__ = ["main", "run"]

_USAGE: Final = 2
_REFUSED: Final = 3
_FAILED: Final = 4
_INTERRUPTED: Final = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="mergeberg", message="mergeberg %(version)s")
def main() -> None:
    r"""Turn ClickHouse MergeTree partitions into Apache Iceberg snapshots, exactly once.

    \b
    Examples:
      mergeberg partitions db.events --source chdb:./clickhouse
      mergeberg export db.events --partition-id 202401 --source chdb:./clickhouse --to
      lake.analytics.events mergeberg exports list
    """


main.add_command(export)
main.add_command(exports)
main.add_command(partitions)
main.add_command(parts)


def run(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    output = JsonOutput() if "--json" in given else TextOutput()
    debug = "--debug" in given
    try:
        code = main.main(args=given, prog_name="mergeberg", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 0
    except click.ClickException as error:
        hint = (
            error.ctx.command_path
            if isinstance(error, click.UsageError) and error.ctx
            else "mergeberg"
        )
        output.error(f"Cannot run the command: {error.format_message()}", f"{hint} --help")
        code = _USAGE
    except (KeyboardInterrupt, click.Abort):
        output.error(
            "Interrupted. Nothing that is visible was changed; finished partitions stay.",
            "the same command",
        )
        code = _INTERRUPTED
    except TableFormatError as error:
        if debug:
            traceback.print_exc()
        output.error(str(error), _next(error))
        code = _code(error)
    sys.stdout.flush()
    sys.stderr.flush()
    # Spark's JVM and its threads are ended by their parent's end; waiting for them costs a second.
    os._exit(int(code or 0))


def _code(error: TableFormatError) -> int:
    match error:
        case RefusedError():
            return _REFUSED
        case UsageError():
            return _USAGE
        case _:
            return _FAILED


def _next(error: TableFormatError) -> str:
    match error:
        case RefusedError():
            return "mergeberg check TABLE --source SOURCE"
        case UsageError():
            return "mergeberg --help"
        case _:
            return "the same command, when the cause is gone; it is safe to run again"

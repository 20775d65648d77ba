"""The options that several commands share, each with its environment variable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from spark_ext.cli.output import JsonOutput, Output, TextOutput
from tableformat.errors import UsageError

__all__ = [
    "catalog_options",
    "conversions",
    "ledger_options",
    "mapping_options",
    "output_for",
    "output_options",
    "pairs",
    "source_options",
]

F = TypeVar("F", bound="Callable[..., Any]")

_SOURCE: Final = (
    click.option(
        "--source",
        default="chdb:./clickhouse",
        show_default=True,
        envvar="MERGEBERG_SOURCE",
        help="Where ClickHouse's data is: chdb:DIRECTORY.",
    ),
    click.option(
        "--source-wait",
        type=click.FloatRange(0),
        default=60.0,
        show_default=True,
        envvar="MERGEBERG_SOURCE_WAIT",
        help="Seconds to wait for the directory while another process has it open.",
    ),
)
_LEDGER: Final = (
    click.option(
        "--warehouse",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("./warehouse"),
        show_default=True,
        envvar="MERGEBERG_WAREHOUSE",
        help="Directory of a catalog that is not configured otherwise (SQLite and files).",
    ),
    click.option(
        "--ledger",
        envvar="MERGEBERG_LEDGER",
        help="sqlite:PATH. Default: beside a local warehouse.",
    ),
)
_CATALOG: Final = (
    click.option(
        "--connect-timeout",
        type=click.FloatRange(0, min_open=True),
        default=10.0,
        show_default=True,
        envvar="MERGEBERG_CONNECT_TIMEOUT",
        help="Seconds to connect to a catalog over HTTP.",
    ),
    click.option(
        "--read-timeout",
        type=click.FloatRange(0, min_open=True),
        default=60.0,
        show_default=True,
        envvar="MERGEBERG_READ_TIMEOUT",
        help="Seconds to wait for an answer of a catalog over HTTP.",
    ),
)
_MAPPING: Final = (
    click.option(
        "--partition-spec",
        help="Use this partition spec, e.g. 'month(ts), bucket(16, id)'; it is proved on the data.",
    ),
    click.option(
        "--convert",
        multiple=True,
        metavar="COLUMN=HOW",
        help="Convert a column that has no exact Iceberg type. Repeatable.",
    ),
    click.option(
        "--evolve-schema",
        is_flag=True,
        help="Add columns that the destination lacks, as optional ones.",
    ),
    click.option("--strict", is_flag=True, help="Refuse columns whose values would change kind."),
)
_OUTPUT: Final = (
    click.option("--json", "as_json", is_flag=True, help="One JSON object per line, nothing else."),
    click.option(
        "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
    ),
)


def source_options(command: F) -> F:
    """Add --source and --source-wait."""
    return _all(command, _SOURCE)


def ledger_options(command: F) -> F:
    """Add --warehouse and --ledger."""
    return _all(command, _LEDGER)


def catalog_options(command: F) -> F:
    """Add --connect-timeout and --read-timeout."""
    return _all(command, _CATALOG)


def mapping_options(command: F) -> F:
    """Add --partition-spec, --convert, --evolve-schema and --strict."""
    return _all(command, _MAPPING)


def conversions(given: tuple[str, ...]) -> dict[str, str]:
    """Read --convert: column to conversion.

    Raises:
        UsageError: one of them is not COLUMN=HOW.
    """
    return pairs("--convert", given)


def pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """Read an option of the form NAME=VALUE that may be given several times.

    Raises:
        UsageError: one of them is not of that form.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            message = (
                f"Cannot read {option} {text!r}: it is not NAME=VALUE. Write for example {option} "
                "name=value."
            )
            raise UsageError(message)
        found[name] = value
    return found


def output_options(command: F) -> F:
    """Add --json and --debug; --debug is read where errors become messages."""
    return _all(command, _OUTPUT)


def output_for(*, as_json: bool) -> Output:
    """Return the output that the user asked for."""
    return JsonOutput() if as_json else TextOutput()


def _all(command: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):
        command = option(command)
    return command

"""Makes values of the options of a command: a source, limits, time-outs, what is printed.

| options | value |
|---|---|
| --source, with those of a source | `source`, a `SourcePlace`, or None |
| --max-bandwidth, --max-slices, --no-parallel-formatting | `limits`, as `Limits` |
| --target-file-size | `file_format`, a `FileFormat` |
| --force, with those that say what is replaced | `options`, as `ExportOptions` |
| --connect-timeout, --read-timeout, --retry-for | `time_outs`, as `TimeOuts` |
| --metrics-port | `figures`, None without the option |
| --quiet, --verbose, --json | `summary`, of commands that have one |

It also reads options of the form NAME=VALUE, chooses partitions, and asks on a terminal before a
command removes rows; `--yes` skips it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final

import click

from catalog.network import TimeOuts
from catalog.sources import SourcePlace, server_of
from spark_ext.actions.logs import LoggedObserver
from spark_ext.actions.metrics import Figures
from spark_ext.cli.metrics_server import counting
from spark_ext.cli.output import output_for
from spark_ext.cli.summary import Summary, summary_of
from spark_ext.engine.session import SparkSettings
from spark_ext.sql.session_settings import check_without_statement
from tableformat.errors import RefusedError, UsageError
from tableformat.export.options import LateRows
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import (
    AllPartitions,
    ByExpression,
    ById,
    ExportOptions,
    Limits,
    Selection,
)
from tableformat.export.slices import FileFormat
from tableformat.mergetree.partition_literal import date_in_quotes
from tableformat.mergetree.summary_filter import parse_filter
from tableformat.names import PartitionId, split_named

__all__ = [
    "conversions",
    "is_asked",
    "is_confirmed",
    "pairs",
    "refuse_unless_confirmed",
    "selection",
    "shown_time",
    "spark_settings",
    "takes_rows",
    "values_of",
]

_EXAMPLES: Final = {
    "--cluster-host": "127.0.0.1:9000=127.0.0.1:8123: host:port of system.clusters, then of HTTP",
    "--conf": "spark.sql.session.timeZone=UTC",
    "--convert": "'price=decimal(38,2)'",
    "--hive-column": "'month=toYYYYMM(d)'",
    "--source-setting": "max_threads=2",
}
_OF_SETTINGS: Final = ("--conf", "--source-setting")
"""Options whose value may be a secret, also one that is written wrongly."""


def values_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a command as the values that it takes.

    Raises:
        TableFormatError: an option has no meaning, or metrics cannot be served.
    """
    values = dict(given)
    for value, option, made in _MADE:
        if option in given:
            values[value] = made(values)
    return values


def _limits(values: dict[str, Any]) -> Limits:
    return Limits(
        values.pop("max_bandwidth"),
        values.pop("max_slices"),
        in_turn=values.pop("no_parallel_formatting"),
    )


def _file_format(values: dict[str, Any]) -> FileFormat:
    return FileFormat(target_file_bytes=values.pop("max_bytes_per_file"))


def _options(values: dict[str, Any]) -> ExportOptions:
    names = {one.name for one in fields(ExportOptions)}
    given = {name: values.pop(name) for name in names & values.keys()}
    return ExportOptions(**{**given, "late_rows": LateRows(given["late_rows"])})


def _figures(values: dict[str, Any]) -> Figures | None:
    """Serve metrics as long as the command runs."""
    port = values.pop("metrics_port")
    # Without waiting, the process that exports serves them.
    if port is None or values.get("no_wait"):
        return None
    note = output_for(as_json=values["as_json"]).note
    return click.get_current_context().with_resource(counting(port, note))


def _source(values: dict[str, Any]) -> SourcePlace | None:
    """Return the place, and say once what the user should know about a server's address."""
    uri: str | None = values.pop("source")
    place = SourcePlace(
        uri or "",
        wait=values.pop("source_wait"),
        config_file=values.pop("source_config"),
        allow_insecure=values.pop("allow_insecure"),
        sync_timeout=values.pop("sync_timeout"),
        ignore_row_policies=values.pop("ignore_row_policies"),
        staging_database=values.pop("staging_database"),
        reading=tuple(pairs("--source-setting", values.pop("source_setting")).items()),
    )
    if uri is None:
        return None
    settings = server_of(place)
    for warning in settings.warnings if settings is not None else ():
        LoggedObserver(output_for(as_json=values["as_json"])).note(warning)
    return place


def _time_outs(values: dict[str, Any]) -> TimeOuts:
    return TimeOuts(*(values.pop(n) for n in ("connect_timeout", "read_timeout", "retry_for")))


def _summary(values: dict[str, Any]) -> Summary:
    return summary_of(
        quiet=values.pop("quiet"),
        verbose=values.pop("verbose"),
        as_json=values.pop("as_json"),
        of_all=values["everything"],
    )


_MADE: Final[tuple[tuple[str, str, Callable[[dict[str, Any]], Any]], ...]] = (
    ("limits", "max_slices", _limits),
    ("file_format", "max_bytes_per_file", _file_format),
    ("options", "force", _options),
    ("figures", "metrics_port", _figures),
    ("source", "source_wait", _source),
    ("time_outs", "retry_for", _time_outs),
    ("summary", "verbose", _summary),
)
"""Each value, one of the options that it is made of, and what makes it."""


def selection(
    partition_id: str | None,
    expression: str | None,
    where: str | None = None,
    *,
    everything: bool,
    with_where: bool = True,
) -> Selection:
    """Return the partitions that the options choose.

    Args:
        partition_id: --partition-id.
        expression: --partition.
        where: --where.
        everything: --all.
        with_where: whether the command has --where.

    Raises:
        UsageError: none or several of the options choose, or --where is not with --all.
    """
    given = [partition_id is not None, expression is not None, everything]
    if sum(given) != 1 or (where is not None and not everything):
        also = ", and --where only with --all" if with_where else ""
        message = (
            "Cannot choose partitions: give exactly one of --partition-id ID, --partition "
            f"EXPRESSION and --all{also}."
        )
        raise UsageError(message)
    if partition_id is not None:
        return ById(PartitionId(partition_id))
    if expression is not None:
        return ByExpression(date_in_quotes(expression))
    return AllPartitions(parse_filter(where) if where is not None else None)


def conversions(given: tuple[str, ...]) -> dict[str, str]:
    """Read --convert, column to conversion, as `pairs` does."""
    return pairs("--convert", given)


def pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    """Read an option of the form NAME=VALUE that may be given several times.

    A name in quotes is read as every name is, so that it may hold `=`.

    Raises:
        UsageError: one of them is not of that form.
    """
    found = {}
    for text in given:
        split = split_named(text)
        if split is None:
            shown = "" if option in _OF_SETTINGS else f" {text!r}"
            message = (
                f"Cannot read {option}{shown}: it is not NAME=VALUE. Write for example {option} "
                f"{_EXAMPLES[option]}."
            )
            raise UsageError(message)
        found[split[0]] = split[1]
    return found


def spark_settings(master: str, conf: tuple[str, ...]) -> SparkSettings:
    """Return --master and --conf of a command without a statement.

    Raises:
        UsageError: a --conf is not NAME=VALUE, or is a setting of mergeberg, which would have no
            effect.
    """
    given = pairs("--conf", conf)
    context = click.get_current_context()
    options = {name for one in context.command.params for name in one.opts}
    check_without_statement(given, f"mergeberg {context.info_name}", options)
    return SparkSettings(master, tuple(given.items()))


def shown_time(milliseconds: int) -> str:
    """Return a time since 1970 as people read it, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def is_asked(*, yes: bool, as_json: bool) -> bool:
    """Whether to ask the user of a terminal before rows leave the lake table."""
    return not yes and not as_json and sys.stdin.isatty() and sys.stderr.isatty()


def takes_rows(one: Outcome) -> bool:
    """Whether an outcome removes rows or values from main; some only rewrite files."""
    if not one.left_files:
        return False
    return one.came_rows < one.left_rows or one.status in (Status.CHANGED, Status.REPLACED)


def is_confirmed(loss: str) -> bool:
    """Ask the user of a terminal whether to continue, after a sentence about what would go."""
    click.echo(loss, err=True)
    return click.confirm("Continue?", default=False, err=True)


def refuse_unless_confirmed(what: str, loss: str) -> None:
    """Ask the user whether to continue.

    Args:
        what: the action, e.g. "drop partition 1 of lake.n.t".
        loss: a sentence about the rows that the action removes.

    Raises:
        RefusedError: the user does not continue.
    """
    if not is_confirmed(loss):
        message = f"Cannot {what}: it was not confirmed. Nothing was changed."
        raise RefusedError(message)

"""Options, duration formats and the confirmation prompt that several CLI commands share.

- The options of source, cluster, ledger, catalog, mapping, Spark and output, with their
  environment variables.
- `limit_options` bound how much a command writes at a time.
- `--hive-column` names the directories of a Hive tree.
- `shown_time` formats times for every command.
- `refuse_unless_confirmed` asks on a terminal before a command removes rows; `--yes` skips it.
- `--catalog` gives the catalog of lake tables; the command line has no current catalog.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from catalog.clickhouse.embedded import DEFAULT_WAIT
from catalog.clickhouse.server.replicas import SYNC_TIMEOUT
from catalog.clickhouse.staging_comment import STAGING_DATABASE
from catalog.network import DEFAULT_TIME_OUTS, TimeOuts
from catalog.sources import SourcePlace, server_of
from spark_ext.actions.logs import LoggedObserver
from spark_ext.cli.output import JsonOutput, Output, TextOutput
from tableformat.errors import RefusedError, UsageError
from tableformat.export.outcome import Outcome, Status
from tableformat.export.request import (
    MAX_SLICES,
    AllPartitions,
    ByExpression,
    ById,
    Limits,
    Selection,
)
from tableformat.mergetree.partition_literal import date_in_quotes
from tableformat.mergetree.summary_filter import parse_filter
from tableformat.names import PartitionId, split_named
from tableformat.quantities import parse_size

__all__ = [
    "Size",
    "catalog_options",
    "cluster_host_option",
    "cluster_options",
    "conversions",
    "grace_option",
    "hive_column_option",
    "is_asked",
    "ledger_options",
    "limit_options",
    "mapping_options",
    "named_catalog_option",
    "output_for",
    "output_options",
    "pairs",
    "partition_options",
    "refuse_unless_confirmed",
    "selection",
    "session_options",
    "shown_time",
    "source_options",
    "spark_options",
    "takes_rows",
    "warehouse_option",
    "where_option",
    "yes_option",
]


class Size(click.ParamType[int]):
    """A number of bytes, with a unit or without one, which the command gets as an integer."""

    name = "size"

    def __init__(self, *, unit: int = 1, least: int = 0) -> None:
        """Read a number without a unit as so many times `unit` bytes; refuse less than `least`."""
        self._unit, self._least = unit, least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the bytes."""
        if isinstance(value, int):
            return value
        option = param.opts[0] if param is not None else "a size"
        size = parse_size(option, str(value), unit=self._unit)
        if size < self._least:
            self.fail(f"{value} is less than {self._least}.", param, ctx)
        return size


def limit_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options; what they say reaches the command as one `Limits`."""

    @click.option(
        "--max-bandwidth",
        type=Size(),
        default="0",
        show_default=True,
        metavar="SIZE",
        envvar="MERGEBERG_MAX_BANDWIDTH",
        help="Bytes per second, e.g. 50MB, that all tasks together read from the source, and that "
        "they write; 0 is no limit (ClickHouse's max_exports_bandwidth_for_server).",
    )
    @click.option(
        "--max-slices",
        type=click.IntRange(1),
        default=MAX_SLICES,
        show_default=True,
        envvar="MERGEBERG_MAX_SLICES",
        help="Files that are written at the same time, if Spark can write that many (ClickHouse's "
        "background_move_pool_size).",
    )
    @click.option(
        "--no-parallel-formatting",
        is_flag=True,
        help="Write one file at a time, and read all of its rows to the disk of its host first: "
        "slower, with less memory (ClickHouse's output_format_parallel_formatting = "
        "0).",
    )
    @functools.wraps(command)
    def with_limits(
        *, max_bandwidth: int, max_slices: int, no_parallel_formatting: bool, **others: Any
    ) -> int:
        limits = Limits(max_bandwidth, max_slices, in_turn=no_parallel_formatting)
        return command(limits=limits, **others)

    return with_limits


F = TypeVar("F", bound="Callable[..., Any]")

_EXAMPLES: Final = {
    "--cluster-host": "127.0.0.1:9000=127.0.0.1:8123: host:port of system.clusters, then of HTTP",
    "--conf": "spark.sql.session.timeZone=UTC",
    "--convert": "'price=decimal(38,2)'",
    "--hive-column": "'month=toYYYYMM(d)'",
    "--source-setting": "max_threads=2",
}

where_option: Final = click.option(
    "--where",
    help="With --all: only partitions for which this holds, over partition_id, rows, bytes, "
    "min_time, max_time.",
)
grace_option: Final = click.option(
    "--grace",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds that running work may take to finish after a SIGTERM.",
)
_SOURCE: Final = (
    click.option(
        "--source-wait",
        type=click.FloatRange(0),
        default=DEFAULT_WAIT,
        show_default=True,
        envvar="MERGEBERG_SOURCE_WAIT",
        help="Seconds to wait for the directory while another process has it open.",
    ),
    click.option(
        "--source-config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="MERGEBERG_SOURCE_CONFIG",
        help="File with the login at a server (TOML), readable by its owner only.",
    ),
    click.option(
        "--allow-insecure",
        is_flag=True,
        envvar="MERGEBERG_ALLOW_INSECURE",
        help="Connect to another machine over http, which anybody in between can read and change.",
    ),
    click.option(
        "--sync-timeout",
        type=click.FloatRange(0),
        default=SYNC_TIMEOUT,
        show_default=True,
        envvar="MERGEBERG_SYNC_TIMEOUT",
        help="Seconds that a partition waits for parts that its replica does not have yet.",
    ),
    click.option(
        "--ignore-row-policies",
        is_flag=True,
        envvar="MERGEBERG_IGNORE_ROW_POLICIES",
        help="Also export rows of a server that row policies hide from its user.",
    ),
    click.option(
        "--source-setting",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting of a server for the queries that read rows. Repeatable.",
    ),
    click.option(
        "--staging-database",
        default=STAGING_DATABASE,
        show_default=True,
        envvar="MERGEBERG_STAGING_DATABASE",
        help="Database in ClickHouse for mergeberg's snapshots.",
    ),
)
_CLUSTER: Final = (
    click.option(
        "--cluster",
        help="TABLE is a table of every shard of this cluster. A Distributed table needs no such "
        "option.",
    ),
    click.option(
        "--cluster-host",
        multiple=True,
        metavar="NAME:PORT=HOST:PORT",
        help="The HTTP address of a host of the cluster, by its name in the cluster. Repeatable.",
    ),
)
warehouse_option: Final = click.option(
    "--warehouse",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("./warehouse"),
    show_default=True,
    envvar="MERGEBERG_WAREHOUSE",
    help="Directory of a catalog that is not configured otherwise (SQLite and files).",
)
_LEDGER: Final = (
    warehouse_option,
    click.option(
        "--ledger",
        envvar="MERGEBERG_LEDGER",
        help="sqlite:PATH or keeper://HOST[:PORT]/PATH. Default: next to a local warehouse.",
    ),
)
_CATALOG: Final = (
    click.option(
        "--connect-timeout",
        type=click.FloatRange(0, min_open=True),
        default=DEFAULT_TIME_OUTS.connect,
        show_default=True,
        envvar="MERGEBERG_CONNECT_TIMEOUT",
        help="Seconds to connect to a catalog over a network, or to an object store.",
    ),
    click.option(
        "--read-timeout",
        type=click.FloatRange(0, min_open=True),
        default=DEFAULT_TIME_OUTS.read,
        show_default=True,
        envvar="MERGEBERG_READ_TIMEOUT",
        help="Seconds to wait for a response of a catalog or an object store.",
    ),
    click.option(
        "--retry-for",
        type=click.FloatRange(0),
        default=DEFAULT_TIME_OUTS.retry_for,
        show_default=True,
        envvar="MERGEBERG_RETRY_FOR",
        help="Seconds to repeat requests while an object store is away or overloaded.",
    ),
)
_MAPPING: Final = (
    click.option(
        "--partition-spec",
        help="Use this partition spec, e.g. 'month(ts), bucket(16, id)'; it is checked on the "
        "data.",
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
        help="Add columns that the destination lacks, as optional ones, widen its types where "
        "values need that, and record the present source in it.",
    ),
    click.option(
        "--strict",
        is_flag=True,
        help="Refuse columns whose values would change kind, and a table that has other columns, "
        "or the same in another order.",
    ),
)
_SPARK: Final = (
    click.option(
        "--target-file-size",
        type=Size(unit=1024**2, least=1),
        default="512MiB",
        show_default=True,
        metavar="SIZE",
        help="Expected size of a data file, e.g. 128MiB or 1GB; a number alone counts MiB.",
    ),
    click.option(
        "--master",
        default="local[*]",
        show_default=True,
        envvar="MERGEBERG_MASTER",
        help="Spark's master.",
    ),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting. Repeatable."),
)
_OUTPUT: Final = (
    click.option("--json", "as_json", is_flag=True, help="One JSON object per line, nothing else."),
    click.option("--debug", is_flag=True, expose_value=False, help="Show an error's traceback."),
)


def partition_options(verb: str) -> Callable[[F], F]:
    """Return what adds --partition-id, --partition and --all; `verb` begins their help."""
    options = (
        click.option("--partition-id", help=f"{verb} the partition with this id."),
        click.option(
            "--partition",
            "expression",
            help=f"{verb} the partition of this value, e.g. 202401 or \"tuple('x', 3)\".",
        ),
        click.option(
            "--all", "everything", is_flag=True, help=f"{verb} every partition of the table."
        ),
    )
    return lambda command: _all(command, options)


def source_options(
    *, default: str | None = "chdb:./clickhouse", says: str = "Where ClickHouse's data is:"
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return what adds --source and its options, which reach the command as one `SourcePlace`.

    Args:
        default: of --source; None for a command that goes without one, which then gets None.
        says: how the help of --source begins.
    """
    address = click.option(
        "--source",
        default=default,
        show_default=default is not None,
        envvar="MERGEBERG_SOURCE",
        help=f"{says} chdb:DIRECTORY, https://[USER@]HOST[:PORT] or parts:DIR?ddl=FILE.",
    )

    def added(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def with_place(
            *, source: str | None, source_wait: float, source_config: Path | None,
            allow_insecure: bool, sync_timeout: float, ignore_row_policies: bool,
            staging_database: str, source_setting: tuple[str, ...], **others: Any
        ) -> int:  # fmt: skip
            place = (
                None
                if source is None
                else SourcePlace(
                    source,
                    source_wait,
                    source_config,
                    allow_insecure,
                    sync_timeout,
                    ignore_row_policies=ignore_row_policies,
                    staging_database=staging_database,
                    reading=tuple(pairs("--source-setting", source_setting).items()),
                )
            )
            if place is not None:
                _warn(place, as_json=bool(others.get("as_json")))
            return command(source=place, **others)

        return _all(with_place, (address, *_SOURCE))

    return added


def _warn(place: SourcePlace, *, as_json: bool) -> None:
    """Say once what the user should know about a server's address."""
    settings = server_of(place)
    for warning in settings.warnings if settings is not None else ():
        LoggedObserver(output_for(as_json=as_json)).note(warning)


def cluster_options(command: F) -> F:
    """Add --cluster and --cluster-host."""
    return _all(command, _CLUSTER)


def cluster_host_option(command: F) -> F:
    """Add --cluster-host."""
    return _all(command, _CLUSTER[1:])


def ledger_options(command: F) -> F:
    """Add --warehouse and --ledger."""
    return _all(command, _LEDGER)


def catalog_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add --connect-timeout, --read-timeout, --retry-for: they reach it as one `TimeOuts`."""

    @functools.wraps(command)
    def with_time_outs(
        *, connect_timeout: float, read_timeout: float, retry_for: float, **others: Any
    ) -> int:
        bounds = TimeOuts(connect_timeout, read_timeout, retry_for)
        return command(time_outs=bounds, **others)

    return _all(with_time_outs, _CATALOG)


def mapping_options(command: F) -> F:
    """Add --partition-spec, --convert, --evolve-schema and --strict."""
    return _all(command, _MAPPING)


def spark_options(command: F) -> F:
    """Add --target-file-size, --master and --conf."""
    return _all(command, _SPARK)


def session_options(command: F) -> F:
    """Add --master and --conf."""
    return _all(command, _SPARK[1:])


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
            message = (
                f"Cannot read {option} {text!r}: it is not NAME=VALUE. Write for example {option} "
                f"{_EXAMPLES[option]}."
            )
            raise UsageError(message)
        found[split[0]] = split[1]
    return found


def output_options(command: F) -> F:
    """Add --json and --debug; --debug is read where errors become messages."""
    return _all(command, _OUTPUT)


def output_for(*, as_json: bool, quiet: bool = False) -> Output:
    """Return the output that the user asked for; a log on standard error has its notes."""
    context = click.get_current_context(silent=True)
    is_logged = context is not None and context.find_root().params.get("log") == "json"
    return JsonOutput() if as_json else TextOutput(quiet=quiet or is_logged)


def _all(command: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


hive_column_option: Final = click.option(
    "--hive-column",
    multiple=True,
    metavar="NAME=EXPRESSION",
    help="With --to hive:URI: the name of the directory of a member of the partition key that is "
    "an expression, e.g. month=toYYYYMM(d). May be given several times; a tree remembers them.",
)


def shown_time(milliseconds: int) -> str:
    """Return a time since 1970 as people read it, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


yes_option: Final = click.option(
    "--yes",
    is_flag=True,
    help="Do not ask, on a terminal, before rows leave the lake table.",
)


def is_asked(*, yes: bool, as_json: bool) -> bool:
    """Whether somebody sits at a terminal who is to be asked."""
    return not yes and not as_json and sys.stdin.isatty() and sys.stderr.isatty()


def takes_rows(one: Outcome) -> bool:
    """Whether rows, or their values, would be gone from main: files may be written anew as well."""
    if not one.left_files:
        return False
    return one.came_rows < one.left_rows or one.status in (Status.CHANGED, Status.REPLACED)


def refuse_unless_confirmed(what: str, said: str) -> None:
    """Ask whether to go on.

    Args:
        what: is about to be done, e.g. "drop partition 1 of lake.n.t".
        said: what that takes away, in a sentence.

    Raises:
        RefusedError: the answer was no.
    """
    click.echo(said, err=True)
    if not click.confirm("Go on?", default=False, err=True):
        message = f"Cannot {what}: it was not confirmed. Nothing was changed."
        raise RefusedError(message)


named_catalog_option: Final = click.option(
    "--catalog",
    help="The catalog of lake tables that are named without one, namespace.table.",
)

"""Options of commands: those that several have, and those of an export from their list.

Each group is a decorator that adds its options to a command. The command gets their values as
`spark_ext.cli.option_values` makes them. The module imports little: the help of a command needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from click.core import ParameterSource

from catalog.network import DEFAULT_TIME_OUTS, holds_secret, shown_address, without_secret
from catalog.source_defaults import (
    DEFAULT_SOURCE,
    DEFAULT_WAIT,
    STAGING_DATABASE,
    SYNC_TIMEOUT,
)
from spark_ext.cli.sections import CONFIGURATION
from tableformat.export.options import EXPORT_OPTIONS, OptionType
from tableformat.names import shown_location
from tableformat.quantities import parse_size

__all__ = [
    "Adding",
    "Address",
    "Location",
    "NamedAddress",
    "Setting",
    "Size",
    "UndoOptions",
    "carried_options",
    "catalog_options",
    "cluster_host_option",
    "cluster_options",
    "export_option",
    "grace_option",
    "ledger_options",
    "limit_options",
    "maintain_options",
    "mapping_options",
    "metrics_option",
    "named_catalog_option",
    "output_options",
    "partition_options",
    "session_options",
    "shown_value",
    "source_options",
    "spark_options",
    "summary_options",
    "to_option",
    "together",
    "warehouse_option",
    "where_option",
    "yes_option",
]

Adding: TypeAlias = Callable[[Any], Any]
"""A decorator that adds options to a command."""


_HIDDEN: Final = "…"
"""Stands for the value of a secret setting."""


class Address(click.ParamType[Any]):
    """The address of a source or a ledger, which may have a secret in it."""

    name = "text"

    def shown(self, text: str) -> str:
        """Return a value as messages show it: without its secret."""
        return shown_address(text)


_NAMED: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<address>.+)", re.DOTALL)


class NamedAddress(Address):
    """NAME=ADDRESS, or an address alone."""

    name = "name=address"

    def convert(
        self, value: Any, _param: click.Parameter | None, _context: click.Context | None
    ) -> tuple[str, str]:
        """Return name and address."""
        if isinstance(value, tuple):
            return value
        named = _NAMED.fullmatch(value)
        return (named["name"], named["address"]) if named else (DEFAULT_SOURCE, value)

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Return the one that an environment variable has: an address may have blanks in it."""
        return (rv,)


class Location(Address):
    """A location of files, a tree of Hive directories or the name of a lake table."""

    def shown(self, text: str) -> str:
        """Return a value without the login or signature of its store; its path is kept as it is."""
        return shown_location(text)


class Setting(Address):
    """A setting of another program, NAME=VALUE, which may be a secret."""

    def shown(self, text: str) -> str:
        """Return a value without that of a secret, or without the secret of an address."""
        name, equals, value = text.partition("=")
        hidden = _HIDDEN if holds_secret(text) else without_secret(value)
        return f"{name}{equals}{hidden}" if equals else text


def shown_value(parameter: click.Parameter, text: str) -> str:
    """Return a value of a parameter as messages show it: without a secret."""
    return parameter.type.shown(text) if isinstance(parameter.type, Address) else text


def carried_options(
    context: click.Context, names: Collection[str], to: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the options of a running command that another command needs, each with its value.

    These are the options of the command line, and those of which the other command would have
    another value by itself: from the environment, the configuration file or its declaration.

    Args:
        context: of the running command.
        names: the options.
        to: the other command, as words.
    """
    if not any(name in _named(context.command) for name in names):
        return
    other = context.find_root()
    for name in to:
        if not isinstance(other.command, click.Group):
            # Nothing else runs next to a command that is used alone.
            return
        command = other.command.commands[name]
        other = command.make_context(name, [], parent=other, resilient_parsing=True)
    by_itself = {name: tuple(_words(one, other)) for name, one in _named(other.command).items()}
    for name, one in _named(context.command).items():
        if name not in names or name not in by_itself:
            continue
        words = tuple(_words(one, context))
        is_typed = context.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE
        if is_typed or words != by_itself[name]:
            yield from words


def _named(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by the first of their names."""
    return {one.opts[0]: one for one in command.params if isinstance(one, click.Option)}


def _words(option: click.Option, context: click.Context) -> Iterator[tuple[str, ...]]:
    """Yield an option and its value in a context as words of a command line."""
    value = context.params.get(str(option.name))
    if isinstance(value, bool):
        yield from ((name,) for name in (option.opts if value else option.secondary_opts)[:1])
    elif value is not None:
        for one in value if option.multiple else (value,):
            yield (option.opts[0], shown_value(option, str(one)))


@dataclass(frozen=True, slots=True)
class UndoOptions:
    """The options with which an undo statement finds the lake and the ledger of its command."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @classmethod
    def of(cls, context: click.Context | None) -> UndoOptions:
        """Return those of a running command; none without one."""
        if context is None:
            return cls()
        root, before = context.find_root(), list[str]()
        if root.get_parameter_source("config_file") is ParameterSource.COMMANDLINE:
            found = context.meta.get(CONFIGURATION)
            before += ["--config", "" if found is None else str(found.path)]
        pieces = carried_options(context, ("--warehouse", "--ledger"), ("alter",))
        return cls(tuple(before), tuple(word for piece in pieces for word in piece))


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


def export_option(name: str, **others: Any) -> Adding:
    """Return what adds an option of an export; `others` are Click's, and go before the list's.

    The command gets it by its name, one that sets a flag to false by that of the flag: `no_wait`.
    """
    one = EXPORT_OPTIONS[name]
    shown: dict[str, Any] = {"help": one.help, "metavar": one.metavar, "envvar": one.variable}
    default = one.default if one.in_command is None else one.in_command
    valued = {"default": default, "show_default": default is not None}
    match one.type:
        case OptionType.FLAG:
            shown |= {"is_flag": True}
        case OptionType.NUMBER:
            shown |= {"type": click.IntRange(one.least, one.most), **valued}
        case OptionType.BYTES:
            shown |= {"type": Size(least=one.least), **valued}
        case OptionType.TEXT if one.choices:
            shown |= {"type": click.Choice(one.choices), **valued}
        case OptionType.TEXT:
            shown |= valued
        case OptionType.PAIRS:
            shown |= {"multiple": True}
    names = (one.flag,) if one.is_negated else (one.flag, name)
    return click.option(*names, **{**shown, **others})


def together(*options: Adding) -> Adding:
    """Return what adds these options, in this order."""

    def added(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return added


def partition_options(verb: str) -> Adding:
    """Return what adds --partition-id, --partition and --all; `verb` begins their help."""
    return together(
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


def to_option(text: str, *, required: bool = False) -> Adding:
    """Return what adds --to; `text` is its help."""
    return click.option("--to", type=Location(), required=required, help=text)


def source_options(
    *, default: str | None = "chdb:./clickhouse", says: str = "Where ClickHouse's data is:"
) -> Adding:
    """Return what adds --source and its options.

    Args:
        default: of --source; None for a command that goes without one, which then gets None.
        says: how the help of --source begins.
    """
    address = click.option(
        "--source",
        type=Address(),
        default=default,
        show_default=default is not None,
        envvar="MERGEBERG_SOURCE",
        help=f"{says} chdb:DIRECTORY, https://[USER@]HOST[:PORT] or parts:DIR?ddl=FILE.",
    )
    return together(address, *_SOURCE)


limit_options: Final = together(
    *(export_option(name) for name in ("max_bandwidth", "max_slices", "parallel_formatting"))
)
mapping_options: Final = together(
    *(export_option(name) for name in ("partition_spec", "convert", "evolve_schema", "strict"))
)
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
        help="Connect to another machine over http, which anyone on the network can read and "
        "change.",
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
        type=Setting(),
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
cluster_host_option: Final = click.option(
    "--cluster-host",
    multiple=True,
    metavar="NAME:PORT=HOST:PORT",
    help="The HTTP address of a host of the cluster, by its name in the cluster. Repeatable.",
)
cluster_options: Final = together(export_option("cluster"), cluster_host_option)
warehouse_option: Final = click.option(
    "--warehouse",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("./warehouse"),
    show_default=True,
    envvar="MERGEBERG_WAREHOUSE",
    help="Directory of the built-in catalog (SQLite and files); others are configured.",
)
ledger_options: Final = together(
    warehouse_option,
    click.option(
        "--ledger",
        type=Address(),
        envvar="MERGEBERG_LEDGER",
        help="sqlite:PATH or keeper://HOST[:PORT]/PATH. Default: next to a local warehouse.",
    ),
)
catalog_options: Final = together(
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
maintain_options: Final = together(
    click.option(
        "--only",
        multiple=True,
        type=click.Choice(("compact", "manifests", "snapshots", "orphans")),
        help="Do only this task, in the order above. Repeatable.",
    ),
    click.option(
        "--older-than",
        metavar="AGE",
        show_default="7d",
        help="Expire snapshots of at least this age, and remove orphan files of at least this age "
        "and a day. The table's history.expire.max-snapshot-age-ms replaces the default for "
        "snapshots.",
    ),
    click.option(
        "--retain-last",
        type=click.IntRange(1),
        show_default="1",
        help="The least number of snapshots of each branch that stay. The table's "
        "history.expire.min-snapshots-to-keep replaces the default.",
    ),
    click.option("--dry-run", is_flag=True, help="Only report what it would do."),
    click.option(
        "--yes",
        is_flag=True,
        help="Delete without asking. Otherwise a terminal asks; elsewhere snapshots and orphans "
        "are only counted.",
    ),
)
session_options: Final = together(
    click.option(
        "--master",
        default="local[*]",
        show_default=True,
        envvar="MERGEBERG_MASTER",
        help="Spark's master.",
    ),
    click.option(
        "--conf",
        multiple=True,
        type=Setting(),
        metavar="KEY=VALUE",
        help="A Spark setting. Repeatable.",
    ),
)
spark_options: Final = together(
    export_option("max_bytes_per_file", type=Size(unit=1024**2, least=1)), session_options
)
output_options: Final = together(
    click.option("--json", "as_json", is_flag=True, help="One JSON object per line, nothing else."),
    click.option("--debug", is_flag=True, expose_value=False, help="Show an error's traceback."),
)
summary_options: Final = together(
    click.option(
        "--quiet", "-q", is_flag=True, help="With --all: only errors and the summary; no progress."
    ),
    click.option("--verbose", "-v", is_flag=True, help="With --all: a line for every partition."),
)
metrics_option: Final = click.option(
    "--metrics-port",
    metavar="[HOST:]PORT",
    envvar="MERGEBERG_METRICS_PORT",
    help="Serve metrics for Prometheus at http://HOST:PORT/metrics while the export runs. Host is "
    "127.0.0.1 by default; anyone who reaches another host can read them.",
)
yes_option: Final = click.option(
    "--yes",
    is_flag=True,
    help="Do not ask, on a terminal, before rows leave the lake table.",
)
named_catalog_option: Final = click.option(
    "--catalog",
    help="The catalog of lake tables that are named without one, namespace.table.",
)

"""Reads mergeberg's settings of a Spark session: sources by name, ledger, defaults.

    spark.mergeberg.source.ch                  https://exporter@ch1.example:8443
    spark.mergeberg.source.ch.config-file      /etc/mergeberg/ch.toml
    spark.mergeberg.source.default             ch
    spark.mergeberg.ledger                     sqlite:/var/lib/mergeberg/ledger.db

A ClickHouse table is `<source>.<database>.<table>` (docs/reference/spark-sources.md). A name
without a source belongs to the default source, or to the only one. The environment variables
MERGEBERG_SOURCE_... are for this source, and are never sent to another. An unknown setting is
refused, because it would have no effect. `statement_settings` reads the settings of a statement.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from catalog.clickhouse.source import ClickHouseSource
from catalog.network import DEFAULT_TIME_OUTS, TimeOuts
from catalog.shards import LocalTable, local_tables
from catalog.sources import SourcePlace, open_source
from spark_ext.sql.source_settings import REDACTED, SOURCE, nearest, source_place
from spark_ext.sql.statement_settings import SESSION, SETTINGS
from tableformat.errors import NotFoundError, UsageError
from tableformat.export.options import EXPORT_OPTIONS, OptionType
from tableformat.names import TableName
from tableformat.quantities import parse_size

__all__ = [
    "KNOWN",
    "SessionSettings",
    "SourceTable",
    "check_without_statement",
    "command_settings",
]

_OF_SESSIONS: Final = ("policy", "python")
"""The settings for which no command has an option."""
KNOWN: Final = (
    *("ledger", "warehouse", "connect-timeout", "read-timeout", "retry-for"),
    *_OF_SESSIONS,
)
"""The names of settings, except those of sources and the defaults of statements.

The JVM reads the settings below `python`. `policy` is a setting of the application
(`spark_ext.access`).
"""

_DEFAULT: Final = "default"
_WAREHOUSE: Final = Path("./warehouse")


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of a source that the session's settings name."""

    place: SourcePlace
    table: TableName

    def open(self, *, is_exporting: bool = False) -> ClickHouseSource:
        """Open the source of the table; the caller closes it.

        Args:
            is_exporting: whether an export will snapshot the source.

        Raises:
            UsageError: the address of the source is malformed.
        """
        return open_source(self.place, is_exporting=is_exporting)

    def tables(self, *, cluster: str | None = None) -> tuple[LocalTable, ...]:
        """Return the tables to read: this table, or its local table on each shard.

        Args:
            cluster: the cluster whose shards have the table; None for that of a Distributed table.

        Raises:
            UsageError: a cluster is named, and the source is not a server.
            NotFoundError: the server has no such cluster.
            UnsupportedError: the local tables of the Distributed table cannot be determined.
            SourceError: the server cannot be read.
        """
        return local_tables(self.place, self.table, cluster=cluster)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The mergeberg settings of a session.

    `ledger` is None for the ledger in a local warehouse. `default_source` is the source of names
    without one; None if the session has no source, or several and no default.
    """

    sources: Mapping[str, SourcePlace] = field(repr=False)
    ledger: str | None = None
    default_source: str | None = None
    warehouse: Path = _WAREHOUSE
    time_outs: TimeOuts = DEFAULT_TIME_OUTS

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> Self:
        """Parse the SQL settings of a session.

        Raises:
            UsageError: a mergeberg setting is unknown or has an invalid value.
            RefusedError: a secret is in a setting that Spark would show.
        """
        ours = {n.removeprefix(SESSION): text for n, text in conf.items() if n.startswith(SESSION)}
        own = {n: text for n, text in ours.items() if not n.startswith("source.")}
        _check_known(own)
        addresses, options = _by_source(conf)
        default = _default(conf.get(SOURCE + _DEFAULT), addresses)
        redacted = conf.get("spark.redaction.regex", REDACTED)
        sources = {
            name: source_place(
                name, text, options[name], redacted=redacted, environment=name == default
            )
            for name, text in addresses.items()
        }
        return cls(
            sources,
            own.get("ledger"),
            default,
            Path(own["warehouse"]) if "warehouse" in own else _WAREHOUSE,
            TimeOuts(
                _seconds(own, "connect-timeout", DEFAULT_TIME_OUTS.connect),
                _seconds(own, "read-timeout", DEFAULT_TIME_OUTS.read),
                _seconds(own, "retry-for", DEFAULT_TIME_OUTS.retry_for),
            ),
        )

    def table_of(self, source: str, database: str, name: str) -> SourceTable:
        """Return a table of a source, by unquoted names.

        Raises:
            NotFoundError: the session has no such source.
        """
        place = self.sources.get(source)
        if place is None:
            message = (
                f"Cannot find the source {source!r}: {self.listed()}. "
                f"{nearest(source, self.sources)}Set {SOURCE}{source} to the address of the "
                "ClickHouse, or name another source."
            )
            raise NotFoundError(message)
        return SourceTable(place, TableName(database, name))

    def listed(self) -> str:
        """Return a list of the sources, for error messages."""
        if not self.sources:
            return f"the session has no source ({SOURCE}NAME)"
        return f"the session has the sources {', '.join(sorted(self.sources))}"


def _by_source(conf: Mapping[str, str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the addresses and the options of the sources, both by name of the source.

    Raises:
        UsageError: a source has options and no address.
    """
    addresses, options = dict[str, str](), dict[str, dict[str, str]]()
    for whole, text in conf.items():
        if not whole.startswith(SOURCE) or whole == SOURCE + _DEFAULT:
            continue
        name, dot, option = whole.removeprefix(SOURCE).partition(".")
        options.setdefault(name, {})
        if dot:
            options[name][option] = text
        else:
            addresses[name] = text
    for name in options:
        if not addresses.get(name):
            one = next(iter(options[name]), "")
            message = (
                f"Cannot read the source {name!r}: {SOURCE}{name}.{one} is set, and its address is "
                f"not. {nearest(name, addresses)}Set {SOURCE}{name} to chdb:DIRECTORY, "
                "https://[USER@]HOST[:PORT] or parts:DIR?ddl=FILE."
            )
            raise UsageError(message)
    return addresses, options


def _default(named: str | None, addresses: Mapping[str, str]) -> str | None:
    """Return the name of the default source: the configured one, or the only one."""
    if named is None:
        return next(iter(addresses)) if len(addresses) == 1 else None
    if named not in addresses:
        known = ", ".join(sorted(addresses)) or "none"
        message = (
            f"Cannot find the default source: {SOURCE}{_DEFAULT} is {named!r}, and the sources are "
            f"{known}. {nearest(named, addresses)}Write the name of a source, not its address."
        )
        raise UsageError(message)
    return named


def _check_known(own: Mapping[str, str]) -> None:
    for name in own:
        if name.partition(".")[0] in KNOWN or name in SETTINGS:
            continue
        message = (
            f"Cannot read the session's settings: {SESSION}{name} is not known. "
            f"{nearest(name, (*KNOWN, *SETTINGS))}There are {', '.join(KNOWN[:-1])}, source.NAME, "
            "and what a statement may set."
        )
        raise UsageError(message)


def command_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a statement of the command line.

    They are those of --conf, and else those of the environment variables of limits, which are for
    all commands (docs/operating/limits.md). For what else a session sets, a command has options.

    Args:
        conf: the settings of --conf; those of Spark are returned as they are.

    Raises:
        UsageError: a setting of mergeberg is unknown or has no effect in a command, or the value
            of an environment variable is not a size.
    """
    for name in conf:
        if name.removeprefix(SESSION) not in SETTINGS:
            _check_of_command(name)
    found = dict[str, str]()
    for option in EXPORT_OPTIONS.values():
        text = os.environ.get(option.variable, "") if option.variable else ""
        if text and option.variable and option.setting:
            is_size = option.type is OptionType.BYTES
            value = str(parse_size(option.variable, text, unit=1)) if is_size else text
            found[SESSION + option.setting] = value
    return found | dict(conf)


def check_without_statement(conf: Iterable[str], command: str, options: Collection[str]) -> None:
    """Check that --conf of a command without a statement has no setting of mergeberg.

    Such a command takes no value from a session: each setting of a session has an option instead.

    Args:
        conf: the names of the settings.
        command: the command, for the message, e.g. `mergeberg export`.
        options: the options of the command.

    Raises:
        UsageError: a setting is one of mergeberg.
    """
    for name in conf:
        rule = SETTINGS.get(name.removeprefix(SESSION)) if name.startswith(SESSION) else None
        if rule is None:
            _check_of_command(name)
            continue
        flag = next((o.flag for o in EXPORT_OPTIONS.values() if o.setting == rule.name), None)
        if flag in options:
            why = f"`{command}` has the option {flag} instead. Use it, and leave the setting out."
        else:
            why = f"it is one of statements, and `{command}` does not use it. Leave it out."
        message = f"Cannot use the setting {name}: {why}"
        raise UsageError(message)


def _check_of_command(name: str) -> None:
    own = name.removeprefix(SESSION)
    if own == name:
        return
    of = own.partition(".")[0]
    if of in _OF_SESSIONS:
        why = "only a Spark session has it. Leave it out."
    elif of in {*KNOWN, "source"}:
        why = f"commands have the option --{of} instead. Use it, and leave the setting out."
    else:
        advice = nearest(own, SETTINGS).strip()
        why = f"it is not known. {advice or 'Write the name of a setting of statements.'}"
    message = f"Cannot use the setting {name}: {why}"
    raise UsageError(message)


def _seconds(own: Mapping[str, str], name: str, default: float) -> float:
    text = own.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < math.inf:
        message = (
            f"Cannot read the session's settings: {SESSION}{name} is {text!r}. Write a number of "
            "seconds above 0."
        )
        raise UsageError(message)
    return number

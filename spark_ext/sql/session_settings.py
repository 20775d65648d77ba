"""Reads mergeberg's settings of a Spark session: sources with their options, ledger, defaults.

    spark.mergeberg.source.ch                  https://exporter@ch1.example:8443
    spark.mergeberg.source.ch.config-file      /etc/mergeberg/ch.toml
    spark.mergeberg.source.ch.allow-insecure   true
    spark.mergeberg.source.default             ch
    spark.mergeberg.ledger                     sqlite:/var/lib/mergeberg/ledger.db

A ClickHouse table is `<source>.<database>.<table>` (docs/reference/spark-sources.md). A name
without a source belongs to the default source, or to the only one. The environment variables
MERGEBERG_SOURCE_... are for this source, and are never sent to another. An unknown setting is
refused, because it would have no effect. `statement_settings` reads the settings of a statement.

The settings of a source are the counterparts of `--source` options. Secrets belong in the config
file, or in the environment of the process that runs Spark. A setting may have a secret only if
Spark hides it: Spark shows the settings of a session on the page Environment and in the event log,
except those whose names match `spark.redaction.regex`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from catalog.clickhouse.server.settings import PREFIX, is_server
from catalog.clickhouse.source import ClickHouseSource
from catalog.network import DEFAULT_TIME_OUTS, TimeOuts
from catalog.shards import LocalTable, local_tables
from catalog.source_defaults import DEFAULT_DATABASE, DEFAULT_WAIT, STAGING_DATABASE, SYNC_TIMEOUT
from catalog.sources import SourcePlace, open_source
from spark_ext.sql.statement_settings import SESSION, SETTINGS, nearest
from tableformat.errors import NotFoundError, RefusedError, UsageError
from tableformat.export.options import EXPORT_OPTIONS, OptionType
from tableformat.names import TableName
from tableformat.quantities import parse_size

__all__ = [
    "KNOWN",
    "OPTIONS",
    "REDACTED",
    "SOURCE",
    "Option",
    "SessionSettings",
    "SourceTable",
    "check_without_statement",
    "command_settings",
    "source_place",
]

SOURCE: Final = "spark.mergeberg.source."
"""The prefix of the settings of all sources."""
REDACTED: Final = "(?i)secret|password|token|access[.]?key|credential"
"""The default of `spark.redaction.regex` in Spark 4.1."""

_SETTING: Final = "setting."


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a source, the last part of `spark.mergeberg.source.<source>.<name>`.

    `instead` is the equivalent command line option or environment variable. `description` is its
    text in docs/reference/spark-sources.md.
    """

    name: str
    instead: str
    description: str
    is_secret: bool = False


OPTIONS: Final = (
    Option("wait", "--source-wait", "seconds to wait for a directory in use; 60"),
    Option("config-file", "--source-config", "the TOML file with the login"),
    Option("allow-insecure", "--allow-insecure", "`true` to speak to another machine over http"),
    Option("sync-timeout", "--sync-timeout", "seconds to wait for parts that a replica lacks"),
    Option("ignore-row-policies", "--ignore-row-policies", "`true` to export what they hide"),
    Option("setting.NAME", "--source-setting", "a setting for the queries that read rows"),
    Option("staging-database", "--staging-database", "where snapshots are made"),
    Option("database", "--database", "of the tables that a statement names alone; `default`"),
    Option("cluster-hosts", "--cluster-host", "`HOST:PORT=HOST:PORT,…`: of a cluster, over HTTP"),
    Option("allow-alter", "--allow-alter", "`true` to let statements change the user's tables"),
    Option("user", f"{PREFIX}USER", "the user to log in as"),
    Option("password", f"{PREFIX}PASSWORD", "of the user", is_secret=True),
    Option("token", f"{PREFIX}TOKEN", "an access token, instead of both", is_secret=True),
    Option("ca-file", f"{PREFIX}CA_FILE", "the authorities to trust, a PEM file"),
    Option("certificate", f"{PREFIX}CERTIFICATE", "of the client, a PEM file"),
    Option("key", f"{PREFIX}KEY", "of the certificate, a PEM file"),
)
"""All options of a source."""

_BY_NAME: Final = {option.name: option for option in OPTIONS}


def source_place(
    name: str, address: str, options: Mapping[str, str], *, redacted: str, environment: bool
) -> SourcePlace:
    """Return the address and options of a source, from the settings of a session.

    Args:
        name: the name of the source.
        address: the address of the source, as for `--source`.
        options: the settings below `spark.mergeberg.source.<name>.`, by their last part.
        redacted: `spark.redaction.regex` of the session.
        environment: whether the environment variables MERGEBERG_SOURCE_... are for this source.
            Settings for the login replace all of them.

    Raises:
        UsageError: an option is unknown or has an invalid value.
        RefusedError: a secret is in a setting that Spark would show.
    """
    read = _Read(name, options)
    read.check()
    _check_secrets(name, address, options, redacted)
    place = SourcePlace(
        address,
        wait=read.seconds("wait", DEFAULT_WAIT),
        config_file=Path(options["config-file"]) if "config-file" in options else None,
        allow_insecure=read.flag("allow-insecure"),
        sync_timeout=read.seconds("sync-timeout", SYNC_TIMEOUT),
        ignore_row_policies=read.flag("ignore-row-policies"),
        staging_database=options.get("staging-database", STAGING_DATABASE),
        reading=tuple(
            (one.removeprefix(_SETTING), text)
            for one, text in sorted(options.items())
            if one.startswith(_SETTING)
        ),
        allow_alter=read.flag("allow-alter"),
        cluster_hosts=read.pairs("cluster-hosts"),
        database=read.filled("database", DEFAULT_DATABASE),
    )
    login = {
        option.instead: options[option.name]
        for option in OPTIONS
        if option.instead.startswith(PREFIX) and option.name in options
    }
    if not login and environment:
        return place
    return replace(place, environment=login)


@dataclass(frozen=True, slots=True)
class _Read:
    """Parses the options of a source; errors never show the value of a secret option."""

    source: str
    options: Mapping[str, str]

    def check(self) -> None:
        """Check that all options are known.

        Raises:
            UsageError: an option is unknown.
        """
        for option in self.options:
            if option in _BY_NAME and option != "setting.NAME":
                continue
            if option.startswith(_SETTING) and option != _SETTING:
                continue
            known = ", ".join(_BY_NAME)
            message = (
                f"Cannot read the source {self.source!r}: {SOURCE}{self.source}.{option} is no "
                f"setting of a source. {nearest(option, _BY_NAME)}There are {known}."
            )
            raise UsageError(message)

    def flag(self, option: str) -> bool:
        """Return an option that is true or false; false by default."""
        text = self.options.get(option, "false").lower()
        if text not in ("true", "false"):
            raise self._wrong(option, text, "true or false")
        return text == "true"

    def filled(self, option: str, default: str) -> str:
        """Return an option that must not be empty."""
        text = self.options.get(option, default)
        if not text.strip():
            raise self._wrong(option, text, "a name")
        return text

    def seconds(self, option: str, default: float) -> float:
        """Return an option that is a number of seconds."""
        text = self.options.get(option, "")
        if not text:
            return default
        try:
            number = float(text)
        except ValueError:
            number = -1
        if not 0 <= number < math.inf:
            raise self._wrong(option, text, "a number of seconds, 0 or more")
        return number

    def pairs(self, option: str) -> tuple[tuple[str, str], ...]:
        """Return the pairs of an option of the form NAME=VALUE,NAME=VALUE, with unique names."""
        text = self.options.get(option, "")
        found: dict[str, str] = {}
        for piece in text.split(",") if text.strip() else ():
            name, _, value = (part.strip() for part in piece.partition("="))
            if not (name and value) or name in found:
                what = "HOST:PORT=HOST:PORT, each host once, with commas between them"
                raise self._wrong(option, text, what)
            found[name] = value
        return tuple(found.items())

    def _wrong(self, option: str, text: str, wanted: str) -> UsageError:
        return UsageError(
            f"Cannot read the source {self.source!r}: {SOURCE}{self.source}.{option} is {text!r}. "
            f"Write {wanted}."
        )


def _check_secrets(name: str, address: str, options: Mapping[str, str], redacted: str) -> None:
    """Check that Spark does not show a secret of the source.

    Raises:
        RefusedError: the address has a password in it, or a secret setting is not redacted.
    """
    before = address.partition("://")[2].rpartition("@")[0]
    if is_server(address) and ":" in before:
        message = (
            f"Cannot use the source {name!r}: {SOURCE}{name} has a password in it, which Spark "
            f"shows on its page Environment and in the event log. Put it into the file that "
            f"{SOURCE}{name}.config-file names."
        )
        raise RefusedError(message)
    for option in OPTIONS:
        setting = f"{SOURCE}{name}.{option.name}"
        if option.is_secret and option.name in options and not _is_hidden(setting, redacted):
            message = (
                f"Cannot use the source {name!r}: Spark shows {setting} on its page Environment "
                "and in the event log, because spark.redaction.regex does not find its name. Put "
                f"the secret into the file that {SOURCE}{name}.config-file names, or let the "
                "expression find it."
            )
            raise RefusedError(message)


def _is_hidden(setting: str, redacted: str) -> bool:
    try:
        return re.search(redacted, setting) is not None
    except re.error:
        # Java's syntax of expressions has forms that Python lacks, so treat it as not matching.
        return False


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

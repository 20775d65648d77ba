"""Reads the settings of one source in a Spark session, the counterparts of `--source` options.

    spark.mergeberg.source.ch                  https://exporter@ch1.example:8443
    spark.mergeberg.source.ch.config-file      /etc/mergeberg/ch.toml
    spark.mergeberg.source.ch.allow-insecure   true

Secrets belong in the config file, or in the environment of the process that runs Spark. A setting
may have a secret only if Spark hides it: Spark shows the settings of a session on the page
Environment and in the event log, except those whose names match `spark.redaction.regex`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from catalog.clickhouse.server.settings import PREFIX, is_server
from catalog.source_defaults import DEFAULT_DATABASE, DEFAULT_WAIT, STAGING_DATABASE, SYNC_TIMEOUT
from catalog.sources import SourcePlace
from tableformat.errors import RefusedError, UsageError

__all__ = ["OPTIONS", "REDACTED", "SOURCE", "Option", "nearest", "source_place"]

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


def nearest(given: str, known: Iterable[str]) -> str:
    """Return "Did you mean X? " for the known name that is most similar, '' if none is."""
    found = difflib.get_close_matches(given, [*known], n=1)
    return f"Did you mean {found[0]}? " if found else ""


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

"""The configuration file: defaults of options; the command `mergeberg config` shows it.

    [general]                                   # of every command that has the option
    source = "https://exporter@ch1.example"

    [export]                                    # of one command
    max-replace = 3
    convert = ["UInt64=long"]

    [exports.list]
    limit = 20

The declared options of the commands are the keys, without `--`. The defaults become Click's default
map, so the command line and environment variables override them. A relative path is relative to the
directory of the file.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import click

from spark_ext.cli.options import Setting, shown_value
from spark_ext.cli.output import output_for
from spark_ext.cli.sections import CONFIGURATION
from tableformat.errors import RefusedError, TableFormatError, UsageError

__all__ = ["GENERAL", "ConfigFile", "config", "read_config"]

Value: TypeAlias = bool | str | list[str]
"""The value of an option, as a command line would have it."""
Shown: TypeAlias = bool | int | float | str | list[str]
"""The same, as the file has it, without secrets and with located paths."""
GENERAL: Final = "general"
"""The table of options for every command."""
_OF_ONE_RUN: Final = frozenset(
    ("--config", "--debug", "--force", "--help", "--help-all", "--json", "--no-wait", "--version")
) | {"--yes"}
"""Options that are given on the command line only: they are about a single run."""
_FOR_OTHERS: Final = stat.S_IROTH | stat.S_IRGRP
_ROOT: Final = 0
_PLACE: Final = re.compile(
    r"(?P<scheme>(?:[A-Za-z_]\w*=)?(?:chdb|parts|sqlite|hive|json):)(?P<path>[^?]*)(?P<options>.*)",
    re.DOTALL,
)
"""An address that has a path: of a source, perhaps with its name, of a ledger, a tree or a log."""
_FILE_OPTION: Final = re.compile(r"(?<=[?&])(?P<name>config-file|ddl)=(?P<path>[^&]*)")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file: its path, and Click's default map of `mergeberg`.

    `shown` are the tables with their keys and values, without secrets. `warnings` are notes for the
    user.
    """

    path: Path
    defaults: Mapping[str, Any]
    shown: Mapping[str, Mapping[str, Shown]]
    warnings: tuple[str, ...] = ()


def config(*, as_json: bool) -> None:
    """Run `mergeberg config`."""
    output = output_for(as_json=as_json)
    found: ConfigFile | None = click.get_current_context().meta.get(CONFIGURATION)
    if as_json:
        shown = {} if found is None else found.shown
        output.record({"file": None if found is None else str(found.path), "defaults": shown})
    elif found is None:
        output.say(
            "no configuration file: neither --config nor MERGEBERG_CONFIG names one, and the "
            "working directory has no mergeberg.toml"
        )
    else:
        output.say(f"# {found.path}")
        for line in _toml_lines(found.shown):
            output.say(line)


def read_config(path: Path, group: click.Group, *, is_named: bool) -> ConfigFile:
    """Read a configuration file.

    Args:
        path: of the file.
        group: `mergeberg` with its commands.
        is_named: whether the user named it; otherwise it was found in the working directory.

    Raises:
        UsageError: it cannot be read, or has an unknown key or a value that its option refuses.
        RefusedError: it was found, and others than the user may change it.
    """
    content, found = _content(path)
    if not is_named:
        _refuse_of_others(path, found)
    reading = _Reading(path)
    general = reading.table(GENERAL, content.pop(GENERAL, {}))
    defaults = reading.defaults(group, general, content)
    reading.check_general(general)
    warnings = reading.warnings(stat.S_IMODE(found.st_mode))
    return ConfigFile(path.absolute(), defaults, reading.shown, warnings)


def _content(path: Path) -> tuple[dict[str, Any], os.stat_result]:
    try:
        with path.open("rb") as file:
            return tomllib.loads(file.read().decode()), os.fstat(file.fileno())
    except FileNotFoundError as error:
        message = f"Cannot read the configuration {path}: there is no such file. Correct its path."
        raise UsageError(message) from error
    except OSError as error:
        message = f"Cannot read the configuration {path}: {error.strerror}. Name a readable file."
        raise UsageError(message) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # Without the cause, which shows the file's content.
        where = re.search(r"\(at [^)]*\)", str(error))
        message = (
            f"Cannot read the configuration {path}: it is not TOML"
            f"{f' {where[0]}' if where else ''}. Correct the file."
        )
        raise UsageError(message) from None


def _refuse_of_others(path: Path, found: os.stat_result) -> None:
    """Refuse a file in the working directory that another user may have written.

    It could name a server to read from, or settings with which Spark runs other code.
    """
    mode, there = stat.S_IMODE(found.st_mode), path.absolute()
    if mode & stat.S_IWOTH:
        message = (
            f"Cannot use the configuration {there}: everybody may change it (mode {mode:o}). Run: "
            f"chmod o-w {there}"
        )
        raise RefusedError(message)
    if found.st_uid not in (os.geteuid(), _ROOT):
        message = (
            f"Cannot use the configuration {there}: it belongs to another user. If you trust it, "
            f"give --config {there}."
        )
        raise RefusedError(message)


@dataclass(slots=True)
class _Option:
    """An option by one of its names; `is_on` is the value of a flag under this name."""

    option: click.Option
    is_on: bool = True

    @property
    def is_flag(self) -> bool:
        return self.option.is_flag and self.option.is_bool_flag

    @property
    def takes_settings(self) -> bool:
        """Whether a value is a setting of something else, NAME=VALUE, which may be a secret."""
        return isinstance(self.option.type, Setting)


def _options(command: click.Command) -> dict[str, _Option]:
    """Return the options that a file may have, by key."""
    return {
        name.removeprefix("--"): _Option(option, is_on)
        for option in command.params
        if isinstance(option, click.Option)
        for names, is_on in ((option.opts, True), (option.secondary_opts, False))
        for name in names
        if name.startswith("--") and name not in _OF_ONE_RUN
    }


@dataclass(slots=True)
class _Reading:
    """Reads one file; `shown` grows with every value, `known` with every command's options."""

    path: Path
    shown: dict[str, dict[str, Shown]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    secrets: list[str] = field(default_factory=list)

    def error(self, why: str, advice: str = "Correct the file.") -> UsageError:
        """Return an error about the file."""
        return UsageError(f"Cannot use the configuration {self.path}: {why}. {advice}")

    def table(self, name: str, value: object) -> dict[str, Any]:
        """Return a value that must be a table.

        Raises:
            UsageError: it is not.
        """
        if not isinstance(value, dict):
            why = f"{name} is outside of a table"
            raise self.error(why, f"Write it below [{GENERAL}], or below the name of a command.")
        return value

    def defaults(
        self, group: click.Group, general: Mapping[str, Any], own: Mapping[str, Any], of: str = ""
    ) -> dict[str, Any]:
        """Return Click's default map of a group.

        Args:
            group: the group.
            general: the options of every command.
            own: the tables of the commands, by name.
            of: the name of the group in the file, with a point at its end; '' for `mergeberg`.

        Raises:
            UsageError: a command or an option is unknown, or a value does not fit.
        """
        for name, value in own.items():
            self.table(f"{of}{name}", value)
            if name not in group.commands:
                commands = [*group.commands, *([] if of else [GENERAL])]
                what = f"{of}{name} is not a command"
                raise self.error(what, _nearest(name, commands) or "`mergeberg --help` lists them.")
        made = self._values(group, general, GENERAL, _options(group))
        for name, command in group.commands.items():
            table = own.get(name, {})
            where = f"{of}{name}"
            if isinstance(command, click.Group):
                made[name] = self.defaults(command, general, table, f"{where}.")
                continue
            options = _options(command)
            for key in sorted(table.keys() - options.keys()):
                raise self._unknown(where, key, options)
            made[name] = {
                **self._values(command, general, GENERAL, options),
                **self._values(command, table, where, options),
            }
        return made

    def check_general(self, general: Mapping[str, Any]) -> None:
        """Check that some command has each option of the general table.

        Raises:
            UsageError: none has it.
        """
        for key in sorted(general.keys() - self.known):
            raise self._unknown(GENERAL, key, self.known)

    def warnings(self, mode: int) -> tuple[str, ...]:
        """Return the notes on the file, whose permissions are `mode`."""
        if not self.secrets or not mode & _FOR_OTHERS:
            return ()
        path, which = self.path.absolute(), ", ".join(dict.fromkeys(self.secrets))
        text = (
            f"{path} holds a secret ({which}), and others than its owner may read it (mode "
            f"{mode:o}). Run: chmod 600 {path}"
        )
        return (text,)

    def _unknown(self, where: str, key: str, known: Mapping[str, _Option] | set[str]) -> UsageError:
        if f"--{key}" in _OF_ONE_RUN:
            why = f"[{where}] has {key}, which is about a single run"
            return self.error(why, f"Give --{key} on the command line.")
        help_of = "" if where == GENERAL else f" {where.replace('.', ' ')}"
        what = "no command has" if where == GENERAL else f"`mergeberg{help_of}` does not have"
        listed = f"`mergeberg{help_of} --help` lists the options."
        return self.error(
            f"[{where}] has {key}, an option that {what}", _nearest(key, known) or listed
        )

    def _values(
        self,
        command: click.Command,
        table: Mapping[str, Any],
        where: str,
        options: Mapping[str, _Option],
    ) -> dict[str, Any]:
        """Return the values of a table for the options of a command, by parameter."""
        self.known |= options.keys()
        made = {}
        for key, value in table.items():
            if (one := options.get(key)) is None:
                continue
            read = self._value(f"[{where}] {key}", one, value)
            self._check(command, f"[{where}] {key}", one, read)
            self.shown.setdefault(where, {})[key] = self._shown(key, one, value, read)
            made[str(one.option.name)] = read
        return made

    def _value(self, what: str, one: _Option, value: object) -> Value:
        """Return a value as the command line would have it."""
        if one.is_flag:
            if not isinstance(value, bool):
                raise self.error(f"{what} is neither true nor false")
            return value is one.is_on
        if isinstance(value, list) and not one.option.multiple:
            raise self.error(f"{what} is a list, and the option takes one value")
        texts = [
            self._text(what, one, each) for each in (value if isinstance(value, list) else [value])
        ]
        return texts if one.option.multiple else texts[0]

    def _text(self, what: str, one: _Option, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.error(f"{what} is neither a text nor a number")
        return _located(str(value), self.path.absolute().parent, of_path=_is_path(one.option))

    def _check(self, command: click.Command, what: str, one: _Option, read: Value) -> None:
        """Check that an option takes a value, which the error does not show if it is a secret."""
        try:
            one.option.type_cast_value(click.Context(command), read)
        except click.BadParameter as error:
            raise self.error(f"{what}: {error.message.rstrip('.')}") from None
        except TableFormatError as error:
            raise self.error(f"{what}: {error.message.rstrip('.')}", "") from None

    def _shown(self, key: str, one: _Option, value: object, read: Value) -> Shown:
        if isinstance(value, bool | int | float):
            return value
        texts = [
            self._without_secret(key, one, each)
            for each in (read if isinstance(read, list) else [str(read)])
        ]
        return texts if isinstance(value, list) else texts[0]

    def _without_secret(self, key: str, one: _Option, text: str) -> str:
        shown = shown_value(one.option, text)
        if shown != text:
            name = text.partition("=")[0]
            self.secrets.append(f"{key} {name}" if one.takes_settings else key)
        return shown


def _is_path(option: click.Option) -> bool:
    return isinstance(option.type, click.Path)


def _located(text: str, directory: Path, *, of_path: bool) -> str:
    """Return a value with its relative path below a directory, unless that is the working one."""
    if directory == Path.cwd():
        return text
    if of_path:
        return str(directory / text)
    found = _PLACE.fullmatch(text)
    if found is None or "://" in text:
        return text
    # The paths of frozen parts are quoted.
    is_quoted = found["scheme"].endswith("parts:")
    base = PurePosixPath(quote(str(directory)) if is_quoted else str(directory))
    options = _FILE_OPTION.sub(lambda one: f"{one['name']}={base / one['path']}", found["options"])
    path = str(base / found["path"]) if found["path"] else ""
    return f"{found['scheme']}{path}{options}"


def _nearest(given: str, known: Mapping[str, object] | set[str] | list[str]) -> str:
    similar = difflib.get_close_matches(given, [*known], n=1)
    return f"Did you mean {similar[0]}?" if similar else ""


def _toml_lines(shown: Mapping[str, Mapping[str, Shown]]) -> Iterator[str]:
    """Yield the lines of a file with these tables."""
    for table, values in shown.items():
        yield f"[{table}]"
        for key, value in values.items():
            # JSON's texts, lists and truth values are those of TOML.
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"

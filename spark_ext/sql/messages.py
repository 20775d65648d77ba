"""Writes messages with the names that options and commands have in SQL, Python and `alter`.

| on the command line | in CALL | in a statement of ClickHouse |
|---|---|---|
| `--force` | `force => true` | `export_merge_tree_partition_force_export = 1` |
| `--convert c=string` | `convert => map('c', 'string')` | the same, of CALL |
| `--source-wait` | spark.mergeberg.source.NAME.wait | the same |
| `mergeberg gc` | `CALL system.gc(...)` | the same |

Messages of `mergeberg alter` keep commands and the options of sources, ledgers and catalogs. An
option that is a setting of a statement gets the setting's name. For other options of an export, the
message says that `mergeberg export` has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from spark_ext.sql.session_settings import OPTIONS, SOURCE
from spark_ext.sql.statement_settings import SESSION
from tableformat.export.options import EXPORT_OPTIONS, ExportOption, OptionType
from tableformat.messages import Command, CommandLine, Option, named_in, written
from tableformat.names import quote_string, split_named

__all__ = ["in_alter", "in_call", "in_command", "in_python", "in_statement"]

_OPTIONS: Final = {one.flag: one for one in Option}
_OF_EXPORTS: Final = tuple(
    (one, of) for of in EXPORT_OPTIONS.values() for one in Option if one.flag == of.flag
)


def _argument(
    one: Option, option: ExportOption, equals: str, values: tuple[str, str], name: str
) -> str:
    """Return an option with a name, and with the value that its flag has, or that is advised."""
    if one.given:
        return f"`{name}{equals}{quote_string(one.given)}`"
    is_flag = option.type is OptionType.FLAG
    return f"`{name}{equals}{values[not option.is_negated]}`" if is_flag else f"`{name}`"


_ARGUMENTS: Final[Mapping[Option, str]] = {
    **{one: _argument(one, of, " => ", ("false", "true"), of.name) for one, of in _OF_EXPORTS},
    Option.ALL: "export_partitions",
    Option.CLUSTER: "`cluster`",
    Option.DROP: "`drop => true`",
    Option.OLDER_THAN: "`older_than`",
    Option.PARTITION_ID: "`partition_id`",
    Option.TO: "`table`",
}
_IN_PYTHON: Final[Mapping[Option, str]] = {
    **_ARGUMENTS,
    **{one: _argument(one, of, "=", ("False", "True"), of.name) for one, of in _OF_EXPORTS},
    Option.DROP: "`drop=True`",
}
_SETTINGS: Final[Mapping[Option, str]] = {
    **{
        one: _argument(one, of, " = ", ("0", "1"), of.setting)
        for one, of in _OF_EXPORTS
        if of.setting
    },
    Option.ALL: "PARTITION ALL",
}
_SESSION: Final[Mapping[Option, str]] = {
    Option.CATALOG: f"{SESSION}catalog",
    Option.LEDGER: f"{SESSION}ledger",
    Option.RETRY_FOR: f"{SESSION}retry-for",
    Option.SOURCE: f"{SOURCE}NAME",
    Option.WAREHOUSE: f"{SESSION}warehouse",
    **{
        _OPTIONS[one.instead]: f"{SOURCE}NAME.{one.name}"
        for one in OPTIONS
        if one.instead in _OPTIONS
    },
}
_OF_ALTER: Final[Mapping[Option, str]] = {
    **_SETTINGS,
    Option.CLUSTER: "ON CLUSTER",
    Option.PARTITION_ID: "PARTITION ID",
}
_PROCEDURES: Final[Mapping[Command, str]] = {
    Command.ARCHIVE: "archive_partition",
    Command.CANCEL: "cancel_export",
    Command.EXPORT: "export_partition",
    Command.GC: "gc",
    Command.PARTITIONS: "partitions",
    Command.PARTS: "parts",
    Command.VERIFY: "verify_partition",
}


@dataclass(frozen=True, slots=True)
class _Sql(CommandLine):
    """The names of options in SQL; commands are calls of procedures where there is one."""

    names: Mapping[Option, str]

    def options(self, named: tuple[Option, ...]) -> str:
        return ", ".join(self.names.get(one) or _SESSION[one] for one in named)

    def convert(self, column: str, conversion: str) -> str:
        name, way = split_named(f"{column}={conversion}") or (column, conversion)
        return f"`convert => map({quote_string(name)}, {quote_string(way)})`"

    def command(self, command: Command, arguments: str) -> str:
        if command in (Command.EXPORTS, Command.SHOW):
            return "`CALL system.exports()`"
        if command in _PROCEDURES:
            return f"`CALL system.{_PROCEDURES[command]}(...)`"
        return CommandLine.command(self, command, arguments)


class _Python(_Sql):
    """The names of arguments in Python."""

    def convert(self, column: str, conversion: str) -> str:
        name, way = split_named(f"{column}={conversion}") or (column, conversion)
        return f"`convert={{{name!r}: {way!r}}}`"


class _Alter(CommandLine):
    """The names of options in a statement of `mergeberg alter`."""

    def options(self, named: tuple[Option, ...]) -> str:
        return ", ".join(_OF_ALTER.get(one, one.value) for one in named)


def in_call(text: str) -> str:
    """Return a message with the arguments of CALL instead of command line options."""
    return written(text, _Sql(_ARGUMENTS))


def in_python(text: str) -> str:
    """Return a message with the arguments of Python functions instead of options."""
    return written(text, _Python(_IN_PYTHON))


def in_statement(text: str) -> str:
    """Return a message with the settings of a ClickHouse statement instead of options."""
    return written(text, _Sql({**_ARGUMENTS, **_SETTINGS}))


def in_alter(text: str) -> str:
    """Return a message for `mergeberg alter`, with settings instead of export options."""
    of_export = frozenset(one for one, _ in _OF_EXPORTS) - frozenset(_OF_ALTER)
    return written(_with_exports(text, of_export), _Alter())


def in_command(text: str, options: Collection[str]) -> str:
    """Return a message for a command with these options."""
    of_export = frozenset(one for one, _ in _OF_EXPORTS if one.flag not in options)
    return written(_with_exports(text, of_export), CommandLine())


def _with_exports(text: str, of_export: frozenset[Option]) -> str:
    """Return a message with a sentence on the options in it that only `mergeberg export` has."""
    named = named_in(text)
    lacking = [one.value for one in named if isinstance(one, Option) and one in of_export]
    if not lacking or Command.EXPORT in named:
        return text
    return f"{text.rstrip('. ')}. {Command.EXPORT} has {' and '.join(lacking)}."

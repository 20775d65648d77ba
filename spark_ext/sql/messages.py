"""Rewords messages of lower layers from the command line's names to those of SQL and Python.

| on the command line | in CALL | in a statement of ClickHouse |
|---|---|---|
| `--force` | `force => true` | `export_merge_tree_partition_force_export = 1` |
| `--convert c=string` | `convert => map('c', 'string')` | the same, of CALL |
| `--source-wait` | spark.mergeberg.source.NAME.wait | the same |
| `mergeberg gc` | `CALL system.gc(...)` | the same |
| run the command again | run the statement again | the same |

Messages of `mergeberg alter` keep commands and the options of sources, ledgers and catalogs. An
option that is a setting of a statement gets the setting's name. For other options of an export, the
message says that `mergeberg export` has them.

A test collects the options in messages, and checks that each interface names only its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from spark_ext.sql.source_settings import OPTIONS, SOURCE
from spark_ext.sql.statement_settings import SESSION, SETTINGS, SettingKind
from tableformat.export.options import EXPORT_OPTIONS, ExportOption, OptionType
from tableformat.names import quote_string, split_named

__all__ = ["in_alter", "in_call", "in_command", "in_python", "in_statement"]


def _parameter(option: ExportOption) -> str:
    """Return an export option as a CALL parameter."""
    value = "false" if option.is_negated else "true"
    is_flag = option.type is OptionType.FLAG
    return f"`{option.name} => {value}`" if is_flag else f"`{option.name}`"


_PARAMETERS: Final[Mapping[str, str]] = {
    # Every command and every interface has this one.
    **{o.flag: _parameter(o) for o in EXPORT_OPTIONS.values() if o.name != "dry_run"},
    "--partition-id": "`partition_id`",
    "--where": "`where`",
    "--drop": "`drop => true`",
    "--to": "`table`",
    "--older-than": "`older_than`",
    "--expire-dropped": "`expire_dropped`",
    "--keep-replaced": "`keep_replaced`",
    "--all": "export_partitions",
}
_SESSION: Final[Mapping[str, str]] = {
    "--ledger": f"{SESSION}ledger",
    "--retry-for": f"{SESSION}retry-for",
    "--warehouse": f"{SESSION}warehouse",
    "--source": f"{SOURCE}NAME",
    **{
        option.instead: f"{SOURCE}NAME.{option.name}"
        for option in OPTIONS
        if option.instead.startswith("--")
    },
}
_STATEMENT: Final[Mapping[str, str]] = {
    option: f"`{rule.name}{' = 1' if rule.kind is SettingKind.BOOL else ''}`"
    for rule in SETTINGS.values()
    for option in re.findall(r"`(--[a-z-]+)`", rule.effect)
} | {"--all": "PARTITION ALL"}
_ALTER: Final = {**_STATEMENT, "--partition-id": "PARTITION ID", "--cluster": "ON CLUSTER"}
_OF_EXPORT: Final = frozenset(_PARAMETERS) - frozenset(_ALTER) - {
    "--drop", "--older-than", "--expire-dropped", "--keep-replaced",
}  # fmt: skip
_COMMANDS: Final = (
    (r"`mergeberg exports list`", "`CALL system.exports()`"),
    (r"`mergeberg exports show [^`]*`", "`CALL system.exports()`"),
    (r"`mergeberg gc`", "`CALL system.gc(...)`"),
    (r"`mergeberg verify`", "`CALL system.verify_partition(...)`"),
    (r"`mergeberg (parts|partitions)(?: [^`]*)?`", r"`CALL system.\1(...)`"),
    (r"`mergeberg export`", "`CALL system.export_partition(...)`"),
    (r"`export --verify`", "an export with `verify => true`"),
    (r"\b([Rr]un) the (same )?command again", r"\1 the \2statement again"),
    (r"\bthe (same )?command again", r"the \1statement again"),
)
_ALONE: Final = re.compile(r"`(--[a-z-]+)`")
_AGE: Final = re.compile(r"--older-than AGE\b")
_CONVERT: Final = re.compile(
    r"--convert ((?:`(?:[^`\\]|\\.)+`|[^\s=`])+=\w+(?:\([^()]*\))?)", re.DOTALL
)
_IN_PYTHON: Final = re.compile(r"\b(\w+) => true\b")
_OPTION: Final = re.compile(r"--[a-z][a-z-]*[a-z]")
_COMMAND: Final = re.compile(r"(`(?:mergeberg|export) [^`]*`)")
_EXPORT: Final = "`mergeberg export`"
_ROW: Final = re.compile(r"--[a-z][a-z-]*[a-z](?: --[a-z][a-z-]*[a-z])*")


def in_call(text: str) -> str:
    """Return a message with the parameters of CALL instead of command line options."""
    return _worded(text, _PARAMETERS)


def in_python(text: str) -> str:
    """Return a message with the parameters of Python functions instead of options."""
    return _IN_PYTHON.sub(r"\1=True", in_call(text))


def in_statement(text: str) -> str:
    """Return a message with the settings of a ClickHouse statement instead of options."""
    return _worded(text, {**_PARAMETERS, **_STATEMENT})


def in_alter(text: str) -> str:
    """Return a message for `mergeberg alter`, with settings instead of export options."""
    worded = _outside_commands(text, lambda piece: _in_words(_ALONE.sub(r"\1", piece), _ALTER))
    return _with_exports(worded, _COMMAND.split(text)[::2], _OF_EXPORT)


def in_command(text: str, options: Collection[str]) -> str:
    """Return a message for a command with these options."""
    return _with_exports(text, _COMMAND.split(text)[::2], _PARAMETERS.keys() - {*options})


def _with_exports(text: str, words: Iterable[str], of_export: Collection[str]) -> str:
    """Return a message with a sentence on the options in it that only `mergeberg export` has."""
    options = (option for one in words for option in _OPTION.findall(one))
    lacking = dict.fromkeys(option for option in options if option in of_export)
    if not lacking or _EXPORT in text:
        return text
    return f"{text.rstrip('. ')}. {_EXPORT} has {' and '.join(lacking)}."


def _worded(text: str, words: Mapping[str, str]) -> str:
    for pattern, instead in _COMMANDS:
        text = re.sub(pattern, instead, text)
    return _outside_commands(text, lambda piece: _renamed(piece, words))


def _outside_commands(text: str, reword: Callable[[str], str]) -> str:
    """Reword the text between quoted commands, which keep their own options."""
    pieces = _COMMAND.split(text)
    return "".join(piece if at % 2 else reword(piece) for at, piece in enumerate(pieces))


def _renamed(text: str, words: Mapping[str, str]) -> str:
    """Rename options, but not in the names of columns that a conversion is advised for."""
    known = {**_SESSION, **words}

    def outside(piece: str) -> str:
        return _in_words(_ALONE.sub(r"\1", _AGE.sub("--older-than", piece)), known)

    pieces = _CONVERT.split(text)
    return "".join(
        _converted(piece) if at % 2 else outside(piece) for at, piece in enumerate(pieces)
    )


def _converted(argument: str) -> str:
    name, way = split_named(argument) or argument.rsplit("=", 1)
    return f"`convert => map({quote_string(name)}, {quote_string(way)})`"


def _in_words(text: str, known: Mapping[str, str]) -> str:
    def one_row(found: re.Match[str]) -> str:
        return ", ".join(known.get(option, option) for option in found[0].split(" "))

    return _ROW.sub(one_row, text)

"""Defines the settings of statements, and reads them from SETTINGS and from the session.

The names are ClickHouse's, from the requirements (srs-016 sections 3, 13, 17, 20 to 23). SETTINGS
of the statement override `spark.mergeberg.<name>` of the session. A setting that mergeberg cannot
apply is refused, unless its value is what mergeberg does in any case.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_ext.sql.clauses import Setting, SettingValue
from spark_ext.sql.statements import (
    FAST,
    Alter,
    Attach,
    AttachFrom,
    Fetch,
    MoveToDisk,
    MoveToTable,
    MoveToVolume,
    ReplaceFrom,
    Statement,
)
from tableformat.clickhouse_codes import SUPPORT_IS_DISABLED, TYPE_MISMATCH, UNKNOWN_SETTING
from tableformat.errors import RefusedError, UnsupportedError, UsageError
from tableformat.export.options import EXPORT_OPTIONS, ExportOption, LateRows, OptionType
from tableformat.export.request import ExportOptions, Limits
from tableformat.export.slices import FileFormat
from tableformat.hive.layout import listed_names
from tableformat.names import quote_string

__all__ = [
    "GATE",
    "SESSION",
    "SETTINGS",
    "SettingKind",
    "SettingRule",
    "StatementSettings",
    "check_export_is_allowed",
    "checked_setting",
    "limits_of_session",
    "nearest",
    "read_operation_settings",
    "read_statement_settings",
    "refuse_fast_without_effect",
    "refuse_unused_settings",
]

GATE: Final = "allow_experimental_export_merge_tree_part"
"""The setting without which no EXPORT runs; its default is 0."""

SESSION: Final = "spark.mergeberg."
"""The prefix of mergeberg's settings in a Spark session."""

_SHOWN: Final = 60
_TRUTHS: Final = {"false": 0, "true": 1}
_MOST: Final = 2**63 - 1
_NUMERAL: Final = re.compile("-?[0-9]+")


class SettingKind(Enum):
    """The type of a setting's value, in words for messages."""

    BOOL = "0 or 1"
    NUMBER = "a whole number from 0"
    COUNT = "a whole number from 1"
    LIMIT = "a whole number from 0, or -1 for no limit"
    TEXT = "a text in single quotes"


@dataclass(frozen=True, slots=True)
class SettingRule:
    """One setting of a statement.

    `effect` describes what the setting does, or why only the values in `only` are accepted. `only`
    is None if every value of the type is accepted. `choices` are the values of a text, if it has no
    others.
    """

    name: str
    kind: SettingKind
    default: int | str
    effect: str
    only: tuple[int | str, ...] | None = None
    choices: tuple[str, ...] = ()


_BOOL, _NUMBER, _COUNT, _LIMIT, _TEXT = SettingKind
_LEAST: Final = {_NUMBER: 0, _COUNT: 1, _LIMIT: -1}
_PART: Final = "export_merge_tree_part"
_SYNC: Final = "a statement returns when it is done"
_EFFECTS: Final = {
    "wait": "0 returns the transaction ids, and does not wait",
    "max_bytes_per_file": "{}, in bytes",
    "hive_columns": "{}, several with commas between them",
    "parallel_formatting": "0 is {}",
    "max_bandwidth": "{}, in bytes per second",
    "max_replace": "{}; -1 is no limit",
    "late_rows": "{}: `refuse`, `append`, `append-all` or `table`",
}
"""Effects of settings that are not simply the option's flag, by name of the option."""


def _rule(option: ExportOption) -> SettingRule:
    """Return the rule for the setting of an export option."""
    default = option.default if option.in_setting is None else option.in_setting
    effect = _EFFECTS.get(option.name, "{}").format(f"`{option.flag}`")
    match option.type:
        case OptionType.FLAG:
            return SettingRule(option.setting, _BOOL, int(default or 0), effect)
        case OptionType.NUMBER | OptionType.BYTES:
            kind = _COUNT if option.least and default else _NUMBER
            kind = _LIMIT if int(default or 0) < 0 else kind
            return SettingRule(option.setting, kind, int(default or 0), effect)
        case OptionType.TEXT | OptionType.PAIRS:
            text = str(default or "")
            return SettingRule(option.setting, _TEXT, text, effect, choices=option.choices)


_RULES: Final = (
    SettingRule(GATE, _BOOL, 0, "allows EXPORT, which is refused without it"),
    *(_rule(option) for option in EXPORT_OPTIONS.values() if option.setting),
    SettingRule(FAST, _BOOL, 0, "files that come to a lake table are compared by size alone"),
    SettingRule(f"{_PART}_max_rows_per_file", _NUMBER, 0, "files are bounded by bytes", (0,)),
    SettingRule(f"{_PART}_file_already_exists_policy", _TEXT, "skip", "file names are unique",
                ("skip",)),
    SettingRule(f"{_PART}_filename_pattern", _TEXT, "", "files are named by their attempt", ("",)),
    SettingRule(f"{_PART}_throw_on_pending_mutations", _BOOL, 1, "they are always refused", (1,)),
    SettingRule(f"{_PART}_throw_on_pending_patch_parts", _BOOL, 1, "they are always refused", (1,)),
    SettingRule(f"{_PART}_allow_lossy_cast", _BOOL, 0, "no value is ever cut", (0,)),
    SettingRule("mutations_sync", _NUMBER, 1, _SYNC, (1, 2)),
    SettingRule("alter_sync", _NUMBER, 1, _SYNC, (1, 2)),
    SettingRule("allow_drop_detached", _BOOL, 1, "DROP DETACHED needs no permission", (1,)),
    SettingRule("enforce_index_structure_match_on_partition_manipulation", _BOOL, 0,
                "it is a setting of a table, not of a statement", (0,)),
)  # fmt: skip

SETTINGS: Final[Mapping[str, SettingRule]] = {rule.name: rule for rule in _RULES}
"""All settings by name."""


def _default(option: str) -> int:
    return int(SETTINGS[EXPORT_OPTIONS[option].setting].default)


@dataclass(frozen=True, slots=True)
class StatementSettings:
    """The settings of a statement, completed by those of its session and the defaults.

    `max_bytes_per_file` is 0 and `max_replace` is -1 if it is not set. `wait` is whether the
    statement waits for its exports. `directories` is as in `ExportRequest`. With `fast`, files that
    are added to a table are compared by size only.
    """

    allow_export: bool = False
    force: bool = False
    manifest_ttl: int = _default("manifest_ttl")
    abandoned_ttl: int = _default("abandoned_ttl")
    overwrite_file_if_exists: bool = False
    replace_partition: bool = False
    strict: bool = False
    allow_empty: bool = False
    max_retries: int = _default("max_retries")
    max_bytes_per_file: int = 0
    limits: Limits = field(default_factory=Limits)
    wait: bool = True
    directories: Mapping[str, str] = field(default_factory=dict)
    fast: bool = False
    check_rows: bool = False
    max_replace: int = _default("max_replace")
    late_rows: LateRows = LateRows.TABLE
    incremental: bool = False

    @property
    def options(self) -> ExportOptions:
        """The options of an export with these settings."""
        return ExportOptions(
            force=self.force,
            manifest_ttl=self.manifest_ttl,
            allow_empty=self.allow_empty,
            overwrite_file_if_exists=self.overwrite_file_if_exists,
            replace_partition=self.replace_partition,
            check_rows=self.check_rows,
            max_replace=self.max_replace if self.max_replace >= 0 else None,
            late_rows=self.late_rows,
            incremental=self.incremental,
        )

    @property
    def file_format(self) -> FileFormat:
        """The file format of an export with these settings."""
        given = self.max_bytes_per_file
        return FileFormat(target_file_bytes=given) if given else FileFormat()


_OF_LAKE_TABLES: Final = frozenset(
    {
        "alter_sync",
        "mutations_sync",
        "allow_drop_detached",
        EXPORT_OPTIONS["allow_empty"].setting,
        FAST,
    }
)


_OF_SOURCES: Final = frozenset(
    {
        EXPORT_OPTIONS[option].setting
        for option in (
            *("manifest_ttl", "abandoned_ttl", "max_retries", "max_bytes_per_file"),
            *("max_bandwidth", "max_slices", "parallel_formatting"),
        )
    }
    | {rule.name for rule in _RULES if rule.only is not None}
)
"""The settings of exports that also act in ATTACH and REPLACE … FROM a ClickHouse table."""


def read_operation_settings(
    statement: Statement,
    conf: Mapping[str, str],
    *,
    alone: Collection[str] = (),
    reads_source: bool = False,
) -> StatementSettings:
    """Return the settings of a statement on a lake table, completed by those of its session.

    Args:
        statement: the statement.
        conf: the settings of the session.
        alone: the names in `conf` that were given for this statement alone, and not for all
            statements of a session; those without an effect are refused, as in SETTINGS.
        reads_source: whether the statement exports from a ClickHouse table.

    Raises:
        UsageError: a setting is unknown, has a value of another type, or has two values.
        UnsupportedError: a setting is not supported, or is only for exports (code 344).
    """
    commands = statement.commands if isinstance(statement, Alter) else ()
    attaches = any(isinstance(one, AttachFrom) for one in commands)
    of_attach = {EXPORT_OPTIONS["overwrite_file_if_exists"].setting}
    allowed = _OF_LAKE_TABLES | (of_attach if attaches else frozenset())
    _refuse_others((one.name for one in statement.ending.settings), allowed)
    _refuse_others(alone, allowed | _OF_SOURCES if reads_source else allowed)
    found = read_statement_settings(statement, conf)
    if found.fast and SESSION + FAST in alone:
        refuse_fast_without_effect(statement, f"the setting {SESSION}{FAST}")
    return found


def _refuse_others(names: Iterable[str], allowed: AbstractSet[str]) -> None:
    """Refuse settings of exports that have no effect in a statement.

    Raises:
        UnsupportedError: a known setting is not allowed (code 344).
    """
    for name in names:
        own = name.removeprefix(SESSION)
        if own in SETTINGS and own not in allowed:
            message = (
                f"Cannot use the setting {name} in a statement on a lake table: it is one "
                "of exports, and has no effect there. Leave it out."
            )
            raise UnsupportedError(message, code=SUPPORT_IS_DISABLED)


def refuse_unused_settings(names: Iterable[str], where: str, why: str) -> None:
    """Refuse settings of a session that were given for a statement which uses none of them.

    Args:
        names: the names of settings; those of Spark are not looked at.
        where: the statement, after "in", e.g. "KILL QUERY".
        why: why they have no effect.

    Raises:
        UnsupportedError: one is a setting of mergeberg (code 344).
    """
    for name in names:
        if name.startswith(SESSION):
            message = f"Cannot use the setting {name} in {where}: {why}. Leave it out."
            raise UnsupportedError(message, code=SUPPORT_IS_DISABLED)


def read_statement_settings(statement: Statement, conf: Mapping[str, str]) -> StatementSettings:
    """Return the settings of a statement, completed by those of its session and the defaults.

    Args:
        statement: the statement.
        conf: the SQL settings of the session; only mergeberg's are read.

    Raises:
        UsageError: a setting is unknown, has a value of another type, or has two values.
        UnsupportedError: a setting is not supported.
    """
    values: dict[str, SettingValue] = {}
    for setting in statement.ending.settings:
        _add(values, setting)
    effective = {name: _of_session(rule, conf) for name, rule in SETTINGS.items()}
    for name, value in values.items():
        effective[name] = _checked(SETTINGS[name], value, name)
    if FAST in values and effective[FAST]:
        refuse_fast_without_effect(statement, f"the setting {FAST}")

    def given(option: str) -> int | str:
        return effective[EXPORT_OPTIONS[option].setting]

    return StatementSettings(
        allow_export=bool(effective[GATE]),
        force=bool(given("force")),
        manifest_ttl=int(given("manifest_ttl")),
        abandoned_ttl=int(given("abandoned_ttl")),
        overwrite_file_if_exists=bool(given("overwrite_file_if_exists")),
        replace_partition=bool(given("replace_partition")),
        strict=bool(given("strict")),
        allow_empty=bool(given("allow_empty")),
        max_retries=int(given("max_retries")),
        max_bytes_per_file=int(given("max_bytes_per_file")),
        limits=_limits(given),
        wait=bool(given("wait")),
        directories=listed_names(
            str(given("hive_columns")), f"setting {EXPORT_OPTIONS['hive_columns'].setting}"
        ),
        fast=bool(effective[FAST]),
        check_rows=bool(given("check_rows")),
        max_replace=int(given("max_replace")),
        late_rows=LateRows(str(given("late_rows"))),
        incremental=bool(given("incremental")),
    )


def refuse_fast_without_effect(statement: Statement, what: str) -> None:
    """Refuse the setting for a fast comparison in statements that compare no files.

    Raises:
        UnsupportedError: no command of the statement compares files (code 344).
    """
    commands = statement.commands if isinstance(statement, Alter) else ()
    comparing = Attach | AttachFrom | ReplaceFrom | MoveToTable | MoveToDisk | MoveToVolume | Fetch
    if not any(isinstance(one, comparing) for one in commands):
        message = (
            f"Cannot use {what} in this statement: only ATTACH, REPLACE … FROM, MOVE and "
            "FETCH compare files with what was written. Leave it out."
        )
        raise UnsupportedError(message, code=SUPPORT_IS_DISABLED)


def checked_setting(setting: Setting) -> int | str:
    """Return the value of a known setting after a check of its type; DEFAULT gives the default.

    Raises:
        UsageError: the value has another type.
        UnsupportedError: the value is not supported.
    """
    return _checked(SETTINGS[setting.name], setting.value, setting.name)


def limits_of_session(conf: Mapping[str, str]) -> Limits:
    """Return the export limits of a session's settings.

    Raises:
        UsageError: a setting has an invalid value.
    """
    return _limits(lambda option: _of_session(SETTINGS[EXPORT_OPTIONS[option].setting], conf))


def _limits(given: Callable[[str], int | str]) -> Limits:
    """Return the limits of an export; `given` returns the value of an option."""
    return Limits(
        bandwidth=int(given("max_bandwidth")),
        slices=int(given("max_slices")),
        in_turn=not given("parallel_formatting"),
    )


def check_export_is_allowed(settings: StatementSettings) -> None:
    """Check that the settings of a statement allow exports.

    Raises:
        RefusedError: `GATE` is 0 (srs-016 section 20).
    """
    if not settings.allow_export:
        message = (
            "Cannot export: Exporting merge tree part is experimental, and the setting "
            f"{GATE} is 0. Write SETTINGS {GATE} = 1 at the end of the statement, or set "
            f"{SESSION}{GATE} to 1."
        )
        raise RefusedError(message, code=SUPPORT_IS_DISABLED)


def _add(values: dict[str, SettingValue], setting: Setting) -> None:
    """Add one setting of the statement to `values`.

    Raises:
        UsageError: the setting is unknown, or has another value already.
    """
    name = setting.name
    if name not in SETTINGS:
        raise _unknown(name)
    if name in values and repr(values[name]) != repr(setting.value):
        message = (
            f"Cannot use the setting {name}: it is given twice, as {_shown(values[name])} and as "
            f"{_shown(setting.value)}. Give it once."
        )
        raise UsageError(message)
    values[name] = setting.value


def _unknown(name: str) -> UsageError:
    shown = name[:_SHOWN]
    advice = nearest(shown, SETTINGS).strip() or f"The settings are {', '.join(sorted(SETTINGS))}."
    message = f"Cannot use the setting {shown!r}: it is not known here. {advice}"
    return UsageError(message, code=UNKNOWN_SETTING)


def _of_session(rule: SettingRule, conf: Mapping[str, str]) -> int | str:
    name = SESSION + rule.name
    return _checked(rule, conf[name], name) if name in conf else rule.default


def _checked(rule: SettingRule, value: SettingValue, name: str) -> int | str:
    """Convert a value to the type of the rule.

    Raises:
        UsageError: the value has another type.
        UnsupportedError: the value is not supported.
    """
    if value is None:
        return rule.default
    read = _read(rule.kind, value)
    if read is None:
        message = (
            f"Cannot use the setting {name}: {_shown(value)} is not {rule.kind.value}. Write for "
            f"example {rule.name} = {_shown(rule.default)}."
        )
        raise UsageError(message, code=TYPE_MISMATCH)
    if rule.choices and read not in rule.choices:
        message = (
            f"Cannot use the setting {name}: {_shown(value)} is not "
            f"{' or '.join(map(quote_string, rule.choices))}. Write one of them."
        )
        raise UsageError(message)
    if rule.only is not None and read not in rule.only:
        message = (
            f"Cannot use the setting {name} with {_shown(value)}: {rule.effect}. Leave the "
            "setting out."
        )
        raise UnsupportedError(message, code=SUPPORT_IS_DISABLED)
    return read


def _read(kind: SettingKind, value: float | str) -> int | str | None:
    """Convert a value to a type; None if it does not fit. A text may hold a number."""
    if kind is SettingKind.TEXT:
        return value if isinstance(value, str) else None
    least = _LEAST.get(kind, 0)
    most = 1 if kind is SettingKind.BOOL else _MOST
    match value:
        case str(text) if most == 1 and text.lower() in _TRUTHS:
            return _TRUTHS[text.lower()]
        case str(text) if _NUMERAL.fullmatch(text) and len(text) < len(str(_MOST)):
            return int(text) if least <= int(text) <= most else None
        case int(whole) if least <= whole <= most:
            return int(whole)
        case _:
            return None


def _shown(value: SettingValue) -> str:
    match value:
        case None:
            return "DEFAULT"
        case str(text):
            return quote_string(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
        case bool(truth):
            return str(int(truth))
        case _:
            return repr(value)


def nearest(given: str, known: Iterable[str]) -> str:
    """Return "Did you mean X? " for the known name that is most similar, '' if none is."""
    found = difflib.get_close_matches(given, [*known], n=1)
    return f"Did you mean {found[0]}? " if found else ""

"""What the settings of a statement and of its session make of an export."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ext.sql.clauses import Ending, Setting, SettingValue
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.statement_exports import exports_of
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statement_settings import (
    GATE,
    SETTINGS,
    SettingKind,
    SettingRule,
    StatementSettings,
    check_export_is_allowed,
    limits_of_session,
    read_statement_settings,
)
from spark_ext.sql.statements import Alter, Drop, Statement
from tableformat.errors import RefusedError, UnsupportedError, UsageError
from tableformat.export.options import LateRows
from tableformat.export.request import ExportOptions, Limits
from tableformat.mergetree.partition_literal import All
from tests.strategies.statements import values

EXPORT = "ALTER TABLE db.t EXPORT PARTITION ID '2020' TO TABLE lake.ns.t"
ACTING = [rule for rule in SETTINGS.values() if rule.only is None]
FIXED = [rule for rule in SETTINGS.values() if rule.only is not None]
NUMBERS = [rule.name for rule in ACTING if rule.kind is SettingKind.NUMBER]
SWITCHES = [rule.name for rule in ACTING if rule.kind is SettingKind.BOOL]


def parsed(text: str) -> Statement:
    statement = parse_statement(text)
    assert statement is not None
    return statement


def settings_of(given: str, **conf: str) -> StatementSettings:
    """Read the settings of an export; those of the session without `spark.mergeberg.`."""
    of_session = {f"spark.mergeberg.{name}": value for name, value in conf.items()}
    return read_statement_settings(parsed(f"{EXPORT} {given}"), of_session)


def test_without_settings_everything_is_the_default_of_the_requirements() -> None:
    """Of srs-016: the gate is closed, 3 retries, 180 seconds, no force, no overwriting."""
    found = settings_of("")

    assert found == StatementSettings()
    assert (found.allow_export, found.max_retries, found.options) == (
        False,
        3,
        ExportOptions(manifest_ttl=180),
    )
    assert found.abandoned_ttl == 7 * 86_400
    assert found.file_format.target_file_bytes is None
    assert found.wait
    assert found.limits == Limits(bandwidth=0, slices=8, in_turn=False)


def test_settings_of_a_statement_say_how_it_is_exported() -> None:
    found = settings_of(
        f"SETTINGS {GATE} = 1, export_merge_tree_partition_max_retries = 5, "
        "export_merge_tree_partition_manifest_ttl = 360, "
        "export_merge_tree_partition_abandoned_ttl = 3600, "
        "export_merge_tree_partition_force_export = 1, "
        "export_merge_tree_part_overwrite_file_if_exists = true, "
        "allow_replace_partition_from_empty_source, output_format_parallel_formatting = 0, "
        "export_merge_tree_part_max_bytes_per_file = 1000000, "
        "export_merge_tree_partition_wait = 0, background_move_pool_size = 2, "
        "max_exports_bandwidth_for_server = 100000000"
    )

    assert found.allow_export
    assert found.max_retries == 5
    assert found.abandoned_ttl == 3600
    assert found.options == ExportOptions(
        force=True, manifest_ttl=360, allow_empty=True, overwrite_file_if_exists=True
    )
    assert found.file_format.target_file_bytes == 1_000_000
    assert found.limits == Limits(bandwidth=100_000_000, slices=2, in_turn=True)
    assert not found.wait


def test_settings_say_what_force_replaces() -> None:
    """Harm prevented: in SQL a changed partition of a tree can never be exported again."""
    forced, whole = "export_merge_tree_partition_force_export", "export_merge_tree_partition"
    found = settings_of(f"SETTINGS {forced} = 1, {whole}_replace_partition = 1")

    assert found.options == ExportOptions(force=True, replace_partition=True)
    assert settings_of("", **{f"{whole}_replace_partition": "1"}).replace_partition


def test_a_setting_says_that_rows_are_compared_before_they_are_written() -> None:
    check = "export_merge_tree_partition_check_rows"

    assert settings_of(f"SETTINGS {check}").options == ExportOptions(check_rows=True)
    assert settings_of("", **{check: "1"}).options == ExportOptions(check_rows=True)


def test_a_setting_limits_how_many_partitions_are_replaced() -> None:
    limit = "export_merge_tree_partition_max_replace"

    assert settings_of("").options.max_replace is None
    assert settings_of(f"SETTINGS {limit} = 0").options == ExportOptions(max_replace=0)
    assert settings_of("", **{limit: "3"}).options.max_replace == 3
    assert settings_of(f"SETTINGS {limit} = DEFAULT", **{limit: "3"}).options.max_replace is None
    assert settings_of(f"SETTINGS {limit} = -1", **{limit: "3"}).options.max_replace is None


@pytest.mark.parametrize("rule", SETTINGS.values(), ids=lambda rule: rule.name)
def test_every_setting_accepts_its_own_default(rule: SettingRule) -> None:
    """Harm prevented: the page names a default, and who writes it is refused."""
    written = f"'{rule.default}'" if rule.kind is SettingKind.TEXT else str(rule.default)

    assert settings_of(f"SETTINGS {rule.name} = {written}") == StatementSettings()
    assert settings_of("", **{rule.name: str(rule.default)}) == StatementSettings()
    assert settings_of(f"SETTINGS {rule.name} = '{rule.default}'") == StatementSettings()


@pytest.mark.parametrize("value", ["-2", "'-2'", "1.5", "'some'", "'--1'", "'-'"])
def test_a_limit_is_a_number_or_none(value: str) -> None:
    name = "export_merge_tree_partition_max_replace"
    message = rf"{name}: {re.escape(value)} is not a whole number from 0, or -1 .* {name} = -1\."

    with pytest.raises(UsageError, match=message):
        settings_of(f"SETTINGS {name} = {value}")


def test_a_setting_says_what_happens_to_late_rows() -> None:
    late = "export_merge_tree_partition_late_rows"

    assert settings_of("").options.late_rows is LateRows.TABLE
    assert settings_of(f"SETTINGS {late} = 'append'").options.late_rows is LateRows.APPEND
    assert settings_of("", **{late: "append"}).options.late_rows is LateRows.APPEND
    with pytest.raises(UsageError, match=r"'all' is not 'refuse' or 'append' or"):
        settings_of(f"SETTINGS {late} = 'all'")


def test_a_setting_limits_exports_to_new_parts() -> None:
    incremental = "export_merge_tree_partition_incremental"

    assert not settings_of("").options.incremental
    assert settings_of(f"SETTINGS {incremental}").options.incremental
    assert settings_of("", **{incremental: "1"}).options.incremental
    assert not settings_of(f"SETTINGS {incremental} = 0", **{incremental: "1"}).options.incremental


def test_a_setting_says_how_strictly_a_table_is_compared() -> None:
    strict = "export_merge_tree_partition_strict"

    assert settings_of(f"SETTINGS {strict}").strict
    assert settings_of("", **{strict: "1"}).strict
    assert not settings_of(f"SETTINGS {strict} = 0", **{strict: "1"}).strict


def test_a_statement_overrides_its_session_and_the_session_the_default() -> None:
    ttl = "export_merge_tree_partition_manifest_ttl"

    assert settings_of("", **{ttl: "0"}).manifest_ttl == 0
    assert settings_of(f"SETTINGS {ttl} = 7", **{ttl: "0"}).manifest_ttl == 7
    assert settings_of(f"SETTINGS {ttl} = DEFAULT", **{ttl: "0"}).manifest_ttl == 180


@pytest.mark.parametrize("value", ["1", "true", "TRUE"])
def test_a_switch_of_the_session_is_text(value: str) -> None:
    assert settings_of("", **{GATE: value}).allow_export


def test_session_settings_that_are_not_about_statements_are_left_alone() -> None:
    conf = {"spark.mergeberg.source.ch": "chdb:./x", "spark.sql.shuffle.partitions": "7"}

    assert read_statement_settings(parsed(EXPORT), conf) == StatementSettings()


def test_an_export_is_refused_as_long_as_the_experiment_is_not_allowed() -> None:
    """The default of allow_experimental_export_merge_tree_part is 0."""
    for given_there, conf in (("", {}), (f"SETTINGS {GATE} = 0", {GATE: "1"}), ("", {GATE: "0"})):
        with pytest.raises(
            RefusedError, match=rf"merge tree part is experimental.*SETTINGS {GATE} = 1"
        ) as refused:
            check_export_is_allowed(settings_of(given_there, **conf))
        assert refused.value.code == 344


def test_the_gate_opens() -> None:
    check_export_is_allowed(settings_of(f"SETTINGS {GATE} = 1"))


@pytest.mark.parametrize(
    "text", ["ALTER TABLE lake.ns.t DROP PARTITION 1", "OPTIMIZE TABLE lake.ns.t"]
)
def test_the_gate_is_for_exports(text: str) -> None:
    assert exports_of(parsed(text)) == ()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("allow_experimental_export_merge_tree_parts", GATE),
        ("export_merge_tree_partition_retries", "export_merge_tree_partition_max_retries"),
        ("Output_format_parallel_formatting", "output_format_parallel_formatting"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(UsageError, match=rf"'{name}': it is not known.*mean {near}\?") as refused:
        settings_of(f"SETTINGS {name} = 1")

    assert refused.value.code == 115


def test_a_setting_that_is_like_none_is_refused_with_all_of_them() -> None:
    with pytest.raises(UsageError, match=f"The settings are .*{GATE}.*max_retries"):
        settings_of("SETTINGS zzz = 1")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["'x'", "-1", "1.5", "''", "'1.0'", "9223372036854775808"])
def test_a_value_that_is_no_whole_number_names_the_setting(name: str, value: str) -> None:
    shown = re.escape(value)

    with pytest.raises(UsageError, match=f"{name}: {shown} is not a whole number from 0"):
        settings_of(f"SETTINGS {name} = {value}")


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["2", "'yes'", "-1", "0.5"])
def test_a_value_that_is_no_switch_names_the_setting(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: {re.escape(value)} is not 0 or 1"):
        settings_of(f"SETTINGS {name} = {value}")


@pytest.mark.parametrize("value", ["0", "-1", "'many'", "1.5"])
def test_a_pool_without_a_place_names_the_setting(value: str) -> None:
    name = "background_move_pool_size"

    message = rf"{name}: {re.escape(value)} is not a whole number from 1"
    with pytest.raises(UsageError, match=message):
        settings_of(f"SETTINGS {name} = {value}")


def test_limits_of_a_session_are_read_without_a_statement() -> None:
    conf = {
        "spark.mergeberg.max_exports_bandwidth_for_server": "1000",
        "spark.mergeberg.background_move_pool_size": "3",
    }

    assert limits_of_session(conf) == Limits(1000, 3)
    assert limits_of_session({}) == Limits()
    with pytest.raises(UsageError, match="background_move_pool_size: '0' is not a whole number"):
        limits_of_session({"spark.mergeberg.background_move_pool_size": "0"})


def test_a_wrong_value_of_the_session_names_the_session_s_setting() -> None:
    with pytest.raises(UsageError, match=rf"spark\.mergeberg\.{GATE}: 'maybe' is not 0 or 1"):
        settings_of("", **{GATE: "maybe"})


@pytest.mark.parametrize("rule", FIXED, ids=lambda rule: rule.name)
def test_a_setting_that_cannot_act_is_refused_unless_it_asks_for_nothing(rule: SettingRule) -> None:
    """Never accepted silently: the user would believe that it holds."""
    assert rule.only is not None
    match rule.only[0]:
        case str(text):
            harmless, other = repr(text), "'other'"
        case number:
            is_switch = rule.kind is SettingKind.BOOL
            harmless, other = str(number), str(1 - number) if is_switch else "12345"

    with pytest.raises(UnsupportedError, match=f"{rule.name} with {other}: ") as refused:
        settings_of(f"SETTINGS {rule.name} = {other}")
    assert refused.value.code == 344
    assert settings_of(f"SETTINGS {rule.name} = {harmless}") == StatementSettings()


def test_a_setting_with_two_values_is_refused() -> None:
    ttl = "export_merge_tree_partition_manifest_ttl"

    with pytest.raises(UsageError, match=f"{ttl}: it is given twice, as 1 and as 2"):
        settings_of(f"SETTINGS {ttl} = 1, {ttl} = 2")
    assert settings_of(f"SETTINGS {ttl} = 1, {ttl} = 1").manifest_ttl == 1


@given(st.sampled_from(sorted(SETTINGS)) | st.text(max_size=40), values)
def test_no_setting_makes_anything_but_settings_or_an_error(name: str, value: SettingValue) -> None:
    drop = Drop(All())
    ending = Ending(settings=(Setting(name, value),))
    statement = Alter(DottedName(("t",)), (drop,), ending=ending)
    try:
        found = read_statement_settings(statement, {})
    except UsageError:
        return
    assert name in SETTINGS
    assert found.manifest_ttl >= 0

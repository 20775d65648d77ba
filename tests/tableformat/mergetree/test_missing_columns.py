"""Definitions from which ClickHouse computes a column that a part lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tableformat.export.content import content_of
from tableformat.mergetree.missing_columns import (
    called_functions,
    columns_of_parts,
    computed_text,
    definitions,
    depends_on_zone,
    external_reference,
)
from tableformat.mergetree.table import Column
from tableformat.mergetree.types import parse_type
from tests.support.fakes import TABLE, part

KNOWN = ("dictget", "getsetting", "hostname", "lower", "in", "plus", "getsubcolumn", "now")


def column(name: str, of: str, kind: str = "", expression: str = "") -> Column:
    return Column(name, parse_type(of), of, kind, expression)


COLUMNS = (
    column("k", "UInt64"),
    column("a", "String", "ALIAS", "lower(`two words`)"),
    column("two words", "String", "DEFAULT", "n.x[1]"),
    column("n.x", "Array(String)"),
    column("s", "String", "DEFAULT", "concat(a, 'u')"),
    column("u", "String", "MATERIALIZED", "toString(k)"),
    column("z", "Nullable(UInt8)"),
    column("b", "UInt8", "ALIAS", "dictGet('d', 'v', k)"),
)


@pytest.mark.parametrize(
    ("lacked", "needed"),
    [
        ((), ""),
        (("u",), "u"),
        (("s",), "a s"),
        (("s", "two words"), "a|two words|s"),
        (("s", "two words", "n.x"), "a|two words|n.x|s"),
        (("z",), "z"),
    ],
)
def test_the_definitions_that_count_are_those_of_what_no_file_has(
    lacked: tuple[str, ...], needed: str
) -> None:
    """Harm prevented: a change of an indirectly used column is not noticed."""
    found = [c.name for c in definitions(COLUMNS, lacked)]
    assert found == needed.split("|" if "|" in needed else None)


def test_a_table_over_parts_has_no_expression_that_none_of_them_needs() -> None:
    """Harm prevented: a dropped dictionary makes stored columns unreadable."""
    assert [(c.name, c.default_kind) for c in columns_of_parts(COLUMNS, ())] == [
        (name, "") for name in ("k", "two words", "n.x", "s", "u", "z")
    ]
    assert [(c.name, c.default_kind) for c in columns_of_parts(COLUMNS, ("s",))] == [
        ("k", ""), ("a", "ALIAS"), ("two words", ""), ("n.x", ""), ("s", "DEFAULT"), ("u", ""),
        ("z", ""),
    ]  # fmt: skip


def test_without_a_lacked_column_the_fingerprint_is_as_it_always_was() -> None:
    """Harm prevented: an upgrade exports every partition again."""
    parts = (part("all_1_1_0", 7), part("all_2_2_0", 5))
    table = replace(TABLE, columns=COLUMNS)
    known = "1fa162dd7f48f451f5ed44ac65d26d032152c812271e0a9b7580bc90d73cff06"

    assert content_of(table, parts).fingerprint == known
    assert content_of(table, tuple(replace(p, lacks=("z",)) for p in parts)).fingerprint == known
    assert content_of(table, (parts[0], replace(parts[1], lacks=("u",)))).fingerprint != known


def test_what_is_null_has_no_text_and_everything_else_has_one() -> None:
    assert computed_text(COLUMNS, ("z",)) == ""
    assert "toString(k)" in computed_text(COLUMNS, ("u", "z"))


@pytest.mark.parametrize(
    ("expression", "taken"),
    [
        ("k + 1", ""),
        ("lower(s)", ""),
        ("(k) IN (1, 2) AND (k)", ""),
        ("now()", ""),
        ("getSubcolumn(t, 'a')", ""),
        ("dictGet('d', 'v', k)", "the function dictGet"),
        ("lower(getSetting('x'))", "the function getSetting"),
        ("hostName()", "the function hostName"),
        ("`of ours`(k)", "the function of ours"),
        ("k IN `of ids`", "the table of ids"),
        ("lower('dictGet(1)')", ""),
    ],
)
def test_a_reference_to_the_source_is_reported_by_name(expression: str, taken: str) -> None:
    assert external_reference(expression, KNOWN) == taken


def test_functions_are_distinguished_from_words_before_brackets() -> None:
    found = called_functions("multiIf((k) > 1, f((2)), CAST((k), 'String')) IN (1) OR (NOT (g(1)))")
    assert found == ("multiIf", "f", "g")


_TIMES = (
    column("t", "DateTime"),
    column("u", "DateTime('UTC')"),
    column("d", "Date"),
    column("k", "UInt64"),
    column("s", "String"),
    column("j", "JSON"),
)


@pytest.mark.parametrize(
    ("of", "expression"),
    [
        ("DateTime", "'2024-01-01 00:00:00'"),
        ("Nullable(DateTime64(3))", "'2024-01-01 00:00:00'"),
        ("Array(DateTime)", "['2024-01-01 00:00:00']"),
        ("DateTime", "s"),
        ("DateTime", "u"),
        ("DateTime('UTC')", "t"),
        ("DateTime('UTC')", "toDateTime(s)"),
        ("String", "toString(t)"),
        ("String", "t"),
        ("String", "now()"),
        ("Date", "now()"),
        ("Date", "t"),
        ("Date", "today()"),
        ("Date", "1700000000"),
        ("Date", "k"),
        ("UInt8", "toHour(now())"),
        ("UInt8", "t > 1"),
        ("UInt32", "CAST(s, 'DateTime')"),
        ("UInt32", "s::DateTime"),
        ("String", "formatDateTime(u, '%H')"),
        ("String", "timezone()"),
        ("String", "toString(j.a)"),
        ("JSON", """'{"a": "2024-01-01 00:00:00"}'"""),
        ("JSON", "s"),
    ],
)
def test_a_default_may_depend_on_the_time_zone(of: str, expression: str) -> None:
    """Harm prevented: values of another host's hours and days in the lake."""
    assert depends_on_zone(_TIMES, column("new", of, "DEFAULT", expression))


@pytest.mark.parametrize(
    ("of", "expression"),
    [
        ("DateTime", ""),
        ("DateTime", "0"),
        ("DateTime", "t"),
        ("DateTime", "now()"),
        ("DateTime64(3)", "now64(3)"),
        ("DateTime('UTC')", "'2024-01-01 00:00:00'"),
        ("Date", "'2024-01-01'"),
        ("Date", "d"),
        ("String", "'2024-01-01'"),
        ("String", "concat(s, toString(k))"),
        ("UInt8", "k % 2"),
        ("JSON", "'{}'"),
    ],
)
def test_a_default_without_times_depends_on_no_time_zone(of: str, expression: str) -> None:
    """Harm prevented: partitions are refused although their values are known."""
    assert not depends_on_zone(_TIMES, column("new", of, "DEFAULT", expression))

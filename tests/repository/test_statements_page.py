"""docs/reference/statements.md and its folder say what the grammar reads, example by example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from spark_ext.cli.commands.statements import check_ending
from spark_ext.sql.grammar import parse_statement
from spark_ext.sql.statement_settings import SETTINGS, read_statement_settings
from spark_ext.sql.statements import Alter, Command, Statement
from tableformat.errors import UsageError
from tests.support.statement_examples import REFUSED_HERE, REFUSED_THERE
from tests.support.typed_pages import REFERENCE, statements

INDEX = "statements.md"


def text_of(page: str) -> str:
    """Return a page about statements."""
    return (REFERENCE / page).read_text(encoding="utf-8")


def tables(page: str) -> list[list[list[str]]]:
    """Return the rows of a page's tables without their headers; code without its marks."""
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?m)(?:^\|.*\n)+", text_of(page)):
        rows = [re.split(r" \| ", line.strip("| ")) for line in block.splitlines()]
        found.append([[cell.strip("`") for cell in row] for row in rows[2:]])
    return found


(STATEMENTS,) = tables(INDEX)
(TYPED_ROWS,) = tables("statements/named-arguments.md")
(PARTITIONS,) = tables("statements/partitions.md")
(ENDINGS,) = tables("statements/endings.md")
ACTING, FIXED = tables("statements/settings.md")
HERE, THERE = tables("statements/parser.md")


@pytest.mark.parametrize("row", STATEMENTS, ids=lambda row: row[0])
def test_an_example_is_a_statement_of_its_row(row: list[str]) -> None:
    form, example, does = row

    assert parse_statement(example) is not None
    verb = re.findall(r"[A-Z]+", form)[0]
    assert verb in example
    assert "](statements/" in does


def test_every_command_and_statement_has_an_example() -> None:
    """A form that no page describes does not exist for users."""
    read = [parse_statement(row[1]) for row in STATEMENTS]
    commands = {type(one) for s in read if isinstance(s, Alter) for one in s.commands}

    assert commands == set(get_args(Command))
    assert {type(one) for one in read} == set(get_args(Statement))


def test_statements_are_listed_with_their_calls_by_named_arguments() -> None:
    """`python -m tests.support.typed_pages` writes the table."""
    assert statements() in text_of("statements/named-arguments.md")
    assert [row for row in TYPED_ROWS if parse_statement(row[0]) is None] == []


@pytest.mark.parametrize("row", PARTITIONS, ids=lambda row: row[0])
def test_a_partition_of_the_page_is_read(row: list[str]) -> None:
    assert isinstance(parse_statement(f"ALTER TABLE t DROP PARTITION {row[1]}"), Alter)


@pytest.mark.parametrize("row", ENDINGS, ids=lambda row: row[0])
def test_an_ending_of_the_page_is_read(row: list[str]) -> None:
    assert isinstance(parse_statement(f"ALTER TABLE t FREEZE {row[1]}"), Alter)


@pytest.mark.parametrize("row", ENDINGS, ids=lambda row: row[0])
def test_an_ending_of_the_page_is_taken_by_the_command_line(
    row: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harm prevented: an example that is read, and refused before anything is done."""
    monkeypatch.chdir(tmp_path)
    statement = parse_statement(f"ALTER TABLE t EXPORT PARTITION ALL TO TABLE l.n.t {row[1]}")
    assert statement is not None

    check_ending(statement.ending)
    assert read_statement_settings(statement, {}).wait


def test_the_settings_of_the_page_are_those_that_are_known() -> None:
    acting = [(name, default, here.replace("`", "")) for name, _, default, here in ACTING]
    fixed = [(name, because) for name, _, because in FIXED]
    rules = SETTINGS.values()

    assert acting == [
        (rule.name, str(rule.default), rule.effect.replace("`", ""))
        for rule in rules
        if rule.only is None
    ]
    assert fixed == [(rule.name, rule.effect) for rule in rules if rule.only is not None]


def test_the_error_of_the_page_is_the_one_that_comes() -> None:
    shown = re.findall(r"(?m)(?:^    .*\n)+", text_of("statements/parser.md"))[0]
    text = "\n".join(line[4:] for line in shown.splitlines())

    with pytest.raises(UsageError) as refused:
        parse_statement(text.splitlines()[1].strip())

    assert refused.value.message == text


def test_the_differences_of_the_page_are_those_that_are_tested() -> None:
    assert [tuple(row) for row in HERE] == [(text, why) for text, _, why in REFUSED_HERE]
    assert [tuple(row) for row in THERE] == list(REFUSED_THERE)

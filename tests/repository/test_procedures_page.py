"""The pages about procedures say what they take and return, in the words of the code."""

from __future__ import annotations

import re

import pytest

from spark_ext.procedures.declarations import Procedure
from spark_ext.sql.dispatch import PROCEDURES
from spark_ext.sql.statements import TYPED, TypedStatement
from tests.support.procedures_page import INDEX, index, sections, written
from tests.support.typed_pages import call

SNAKE = re.compile(r"[a-z]+(_[a-z]+)*")
NAMED = re.compile(r"(\w+) => ")
EVERY = pytest.mark.parametrize("procedure", PROCEDURES.values(), ids=list(PROCEDURES))


def test_the_page_has_every_procedure_as_it_is_declared() -> None:
    """`python -m tests.support.procedures_page` writes the tables."""
    assert {name: tables for name, (tables, _) in written().items()} == sections()


def test_the_first_page_lists_every_procedure_with_its_page() -> None:
    """`python -m tests.support.procedures_page` writes the table."""
    assert index() in INDEX.read_text(encoding="utf-8")


@EVERY
def test_an_example_calls_its_procedure_with_arguments_that_it_has(procedure: Procedure) -> None:
    example = written()[procedure.name][1]

    assert example.startswith(f"CALL lake.system.{procedure.name}(")
    assert set(NAMED.findall(example)) <= {parameter.name for parameter in procedure.parameters}


@pytest.mark.parametrize("typed", TYPED.values(), ids=list(TYPED))
def test_the_example_of_a_statement_is_that_of_its_other_interfaces(typed: TypedStatement) -> None:
    assert written()[typed.name][1] == call(typed, typed.examples[0])


@EVERY
def test_names_follow_the_conventions_of_icebergs_procedures(procedure: Procedure) -> None:
    """Snake case, the table first, and what is required before what is not."""
    names = [parameter.name for parameter in procedure.parameters]
    required = [parameter.default is None for parameter in procedure.parameters]

    assert [n for n in (procedure.name, *names) if not SNAKE.fullmatch(n)] == []
    assert [c.name for c in procedure.columns if not SNAKE.fullmatch(c.name)] == []
    assert names[0] in {"table", "statement"}
    assert required == sorted(required, reverse=True)


@EVERY
def test_the_page_names_no_options_of_the_command_line(procedure: Procedure) -> None:
    texts = [procedure.description, *(p.comment for p in procedure.parameters)]

    assert [text for text in texts if "--" in text] == []

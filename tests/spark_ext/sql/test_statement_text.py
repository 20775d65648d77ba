"""A statement that is written is read as the same."""

from __future__ import annotations

from hypothesis import given

from spark_ext.sql.grammar import parse_statement, render_statement
from spark_ext.sql.statements import Statement
from tests.strategies.statements import statements


@given(statements)
def test_a_statement_that_is_written_is_read_as_the_same(statement: Statement) -> None:
    """What is noted of a statement, on one line, must be what the user wrote."""
    text = render_statement(statement)

    assert repr(parse_statement(text)) == repr(statement), text
    assert "\n" not in text

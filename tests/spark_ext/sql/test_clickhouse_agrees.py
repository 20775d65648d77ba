"""The grammar against ClickHouse's parser: what both read they read alike, and who refuses what.

ClickHouse's parser is asked through `EXPLAIN AST`, and through `formatQuery`, which is the same
parser and shows every name and value that it read. The differences that are left stand in
`tests/support/statement_examples.py` and in docs/reference/statements/parser.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_ext.sql.clauses import Ending
from spark_ext.sql.grammar import parse_statement, render_statement
from spark_ext.sql.statement_reader import DottedName
from spark_ext.sql.statements import Alter, ChangeRows, Export, Statement
from tableformat.errors import UsageError
from tableformat.mergetree.expression import Literal
from tableformat.mergetree.partition_literal import ByValue
from tableformat.mergetree.sql_tokens import TokenKind, scan
from tableformat.names import PartName, quote_string
from tests.strategies.statements import endings, known_exports, known_statements
from tests.support.statement_examples import KNOWN, REFUSED_HERE, REFUSED_THERE
from tests.tableformat.mergetree.clickhouse_process import ClickHouse

# What ClickHouse read is no statement about partitions, or is Spark's: DROP PARTITION (p = 'x').
_NOT_OURS: Final = re.compile(
    r"(?!ALTER |OPTIMIZE TABLE|KILL QUERY WHERE|.*\bIN PARTITION\b)|.*DROP PARTITION \(\S+ ="
)
# ClickHouse reads whole numbers beyond 64 bits as Float64; here they stay what they are.
_BEYOND_64_BITS: Final = re.compile(r"[0-9]{19}")


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[ClickHouse]:
    with ClickHouse() as started:
        yield started


def read_by_clickhouse(clickhouse: ClickHouse, text: str) -> str | None:
    """Return how ClickHouse writes what it read; None when it refuses the text."""
    ((found,),) = clickhouse.rows(f"SELECT formatQuerySingleLineOrNull({quote_string(text)})")
    assert found is None or isinstance(found, str)
    return found


def unordered(statement: Statement | None) -> str:
    """Return a text that is equal for equal statements.

    ClickHouse shows DEFAULT settings last, and not that a table is temporary.
    """
    if isinstance(statement, Alter):
        statement = replace(statement, is_temporary=False)
    match statement:
        case None:
            return ""
        case ChangeRows(settings=given):
            return repr(replace(statement, settings=tuple(sorted(given, key=repr))))
        case _:
            given = tuple(sorted(statement.ending.settings, key=repr))
            return repr(replace(statement, ending=replace(statement.ending, settings=given)))


@given(known_statements)
@settings(max_examples=60, deadline=None)
def test_clickhouse_reads_what_we_write_as_what_it_is(
    clickhouse: ClickHouse, statement: Statement
) -> None:
    text = render_statement(statement)
    # ClickHouse writes a column of that name without quotes, and reads it with luck.
    assume("`not`" not in text.lower() and not _BEYOND_64_BITS.search(text))

    found = read_by_clickhouse(clickhouse, text)

    assert found is not None, text
    assert unordered(parse_statement(found)) == unordered(statement)


@pytest.mark.parametrize("text", KNOWN)
def test_a_documented_statement_is_read_as_clickhouse_reads_it(
    clickhouse: ClickHouse, text: str
) -> None:
    found = read_by_clickhouse(clickhouse, text)

    assert found is not None
    assert unordered(parse_statement(text)) == unordered(parse_statement(found))


@pytest.mark.parametrize("text", [text for text in KNOWN if "SETTINGS" not in text])
def test_clickhouse_explains_what_we_write_and_what_the_user_wrote_alike(
    clickhouse: ClickHouse, text: str
) -> None:
    """The partition, the table and the conditions of EXPLAIN AST are the same."""
    statement = parse_statement(text)
    assert statement is not None

    explained = clickhouse.rows(f"EXPLAIN AST {text.rstrip(';')}")

    assert explained == clickhouse.rows(f"EXPLAIN AST {render_statement(statement)}")


@pytest.mark.parametrize(("text", "message", "why"), REFUSED_HERE)
def test_what_clickhouse_reads_and_we_refuse_is_known(
    clickhouse: ClickHouse, text: str, message: str, why: str
) -> None:
    assert why
    assert read_by_clickhouse(clickhouse, text) is not None

    with pytest.raises(UsageError, match=message):
        parse_statement(text)


@pytest.mark.parametrize(("text", "why"), REFUSED_THERE)
def test_what_we_read_and_clickhouse_refuses_is_known(
    clickhouse: ClickHouse, text: str, why: str
) -> None:
    assert why
    assert parse_statement(text) is not None

    assert read_by_clickhouse(clickhouse, text) is None


@given(st.lists(known_exports, min_size=1, max_size=3).map(tuple), endings)
@settings(max_examples=40, deadline=None)
def test_an_export_is_read_as_a_move_with_another_verb(
    clickhouse: ClickHouse, commands: tuple[Export, ...], ending: Ending
) -> None:
    """ClickHouse does not know EXPORT: the rest is compared with what it reads behind MOVE."""
    statement = Alter(DottedName(("db", "t")), commands, ending=ending)
    text = render_statement(statement)
    assume(not _BEYOND_64_BITS.search(text))
    moved = text.replace("EXPORT PARTITION ", "MOVE PARTITION ").replace(
        "EXPORT PART ", "MOVE PARTITION "
    )

    found = read_by_clickhouse(clickhouse, moved)

    assert found is not None, moved
    read = parse_statement(found.replace("MOVE PARTITION ", "EXPORT PARTITION "))
    as_values = tuple(
        replace(one, of=ByValue(Literal(str(one.of)))) if isinstance(one.of, PartName) else one
        for one in commands
    )
    assert unordered(read) == unordered(replace(statement, commands=as_values))


def is_ours_alone(statement: Statement) -> bool:
    """Whether it has one of the forms of REFUSED_THERE."""
    text = repr(statement)
    names = re.findall(r"DottedName\(parts=\(([^)]*)\)\)", text)
    values = re.findall(r"ByValue\(value=Call\(function='(\w+)", text)
    # A call without brackets around it is read as the only member of a tuple.
    bare = re.search(r"ByValue\(value=Call\(function='tuple', arguments=\(Call\(", text)
    return (
        any(len(name.split("', '")) > len(("db", "t")) for name in names)
        or any(function != "tuple" for function in values)
        or bare is not None
        or "DropDetached(of=All" in text
    )


POOL: Final = (
    *("ALTER", "TABLE", "DROP", "DETACH", "ATTACH", "MOVE", "REPLACE", "FREEZE", "UNFREEZE"),
    *("FETCH", "FORGET", "CLEAR", "COLUMN", "INDEX", "PARTITION", "PART", "ID", "ALL", "FROM"),
    *("TO", "DISK", "VOLUME", "WITH", "NAME", "IN", "WHERE", "UPDATE", "DELETE", "SETTINGS"),
    *("FORMAT", "INTO", "OUTFILE", "ON", "CLUSTER", "OPTIMIZE", "FINAL", "DEDUPLICATE", "BY"),
    *("EXCEPT", "KILL", "QUERY", "SYNC", "DETACHED", "IF", "EXISTS", "SET", "AND", "NOT", "NULL"),
    *("DEFAULT", "true", "tuple", "query_id", "t", "`q`", '"q"', "1", "'x'", "'all_1_1_0'"),
    *("(", ")", ",", ".", ";", "=", "==", "*", "-", "+"),
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Take a documented statement, and lose, double, exchange or add some of its tokens."""
    tokens = [t.text for t in scan(draw(st.sampled_from(KNOWN))) if t.kind is not TokenKind.END]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(tokens) - 1))
        other = draw(st.sampled_from(POOL))
        match draw(st.integers(0, 3)):
            case 0 if len(tokens) > 1:
                del tokens[at]
            case 1:
                tokens[at] = other
            case 2:
                tokens.insert(at, other)
            case _:
                tokens.insert(at, draw(st.sampled_from(tokens)))
    return " ".join(tokens)


def read_by_us(text: str) -> Statement | str | None:
    """Return the statement, None for what is not ours, or the message of the error."""
    try:
        return parse_statement(text)
    except UsageError as error:
        return error.message


@given(mutated())
@settings(max_examples=300, deadline=None)
def test_a_broken_statement_is_refused_by_both(clickhouse: ClickHouse, text: str) -> None:
    """Apart from the differences above, both read a text, and as the same, or both refuse it."""
    found = read_by_clickhouse(clickhouse, text)
    statement = read_by_us(text)
    if isinstance(statement, str):
        known = any(re.search(pattern, statement) for _, pattern, _ in REFUSED_HERE)
        assert found is None or known or _NOT_OURS.match(found), (found, statement)
    elif found is None:
        assert statement is None or is_ours_alone(statement), render_statement(statement)
    elif statement is None:
        assert _NOT_OURS.match(found), found
    else:
        assert unordered(parse_statement(found)) == unordered(statement)

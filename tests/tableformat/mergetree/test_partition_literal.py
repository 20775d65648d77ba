"""Partition literals of users, and that ClickHouse finds the same partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import Call, Expression, Literal
from tableformat.mergetree.partition_literal import (
    All,
    ById,
    ByValue,
    PartitionLiteral,
    date_in_quotes,
    parse_part_literal,
    parse_partition_literal,
    render_part_literal,
    render_partition_literal,
)
from tableformat.names import PartitionId, PartName
from tests.strategies.expressions import columns, constants
from tests.strategies.types import NASTY
from tests.tableformat.mergetree.clickhouse_process import ClickHouse

# Partition key, its one row's values, the literal, the part of the form that is tested.
KEYS = (
    ("toYYYYMM(d)", "202401"),
    ("toYYYYMM(d)", "tuple(toYYYYMM(toDate('2024-01-31')))"),
    ("toYYYYMM(d)", "tuple(202401)"),
    ("toYYYYMM(d)", "tuple(toYYYYMM(toDate('2024-01-01') + 30))"),
    ("toYYYYMM(d)", "tuple(plus(202400, 1))"),
    ("toYYYYMM(d)", "tuple(2024 * 100 + 1)"),
    ("(toYYYYMM(d), i)", "(202400 + 1, 0 - 5)"),
    ("(toYYYYMM(d), i)", "tuple(1 = 1 ? 202401 : 0, CASE WHEN 2 > 1 THEN -5 ELSE 5 END)"),
    ("i", "tuple(arraySum(x -> x - 1, [-2, -1]))"),
    ("toYYYYMM(d)", "ID '202401'"),
    ("toYYYYMM(d)", "ALL"),
    ("toYYYYMM(d)", "toYYYYMM(toDate('2024-01-31'))"),
    ("d", "DATE '2024-01-31'"),
    ("d", "'2024-01-31'::Date"),
    ("(d, i)", "CAST(('2024-01-31', -5) AS Tuple(Date, Int32))"),
    ("d", "'2024-01-31'"),
    ("d", "tuple('2024-01-31')"),
    ("i", "-5"),
    ("s", r"'it''s \\ \n (x'"),
    ("(s, i)", r"('it\'s \\ \n (x', -5)"),
    ("(toMonday(d), i)", "tuple(toMonday(toDate('2024-01-31')), -5)"),
    ("tuple()", "tuple()"),
)


@pytest.mark.parametrize(("key", "literal"), KEYS)
def test_clickhouse_finds_the_partition_by_what_we_read_and_write(
    clickhouse: ClickHouse, key: str, literal: str
) -> None:
    clickhouse.rows("DROP TABLE IF EXISTS t")
    clickhouse.rows(
        "CREATE TABLE t (d Date, i Int32, s String) ENGINE = MergeTree "
        f"PARTITION BY {key} ORDER BY tuple()"
    )
    clickhouse.rows(r"INSERT INTO t SELECT '2024-01-31', -5, 'it\'s \\ \n (x'")
    rendered = render_partition_literal(parse_partition_literal(literal))

    clickhouse.rows(f"ALTER TABLE t DROP PARTITION {rendered}")

    assert clickhouse.text("SELECT count() FROM t") == "0"


literals: st.SearchStrategy[PartitionLiteral] = st.one_of(
    st.just(All()),
    st.from_regex(r"[A-Za-z0-9-]{1,40}", fullmatch=True).map(PartitionId).map(ById),
    constants.map(lambda value: ByValue(_of_one_member(value))),
)


def _of_one_member(value: Expression) -> Expression:
    """Return a value as it is read: ClickHouse takes a call only in a tuple."""
    is_taken = not isinstance(value, Call) or value.function in ("tuple", "array", "CAST")
    return value if is_taken else Call("tuple", (value,))


@given(literals)
def test_a_partition_that_is_written_is_read_as_the_same(literal: PartitionLiteral) -> None:
    assert repr(parse_partition_literal(render_partition_literal(literal))) == repr(literal)


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("202401", ByValue(Literal(202401))),
        ("-5", ByValue(Literal(-5))),
        ("+5", ByValue(Literal(5))),
        ("'x'", ByValue(Literal("x"))),
        ("NULL", ByValue(Literal(None))),
        ("(202401, 'x')", ByValue(Call("tuple", (Literal(202401), Literal("x"))))),
        ("tuple()", ByValue(Call("tuple", ()))),
        (
            "DATE '2024-01-31'",
            ByValue(Call("tuple", (Call("toDate", (Literal("2024-01-31"),)),))),
        ),
        ("[1]", ByValue(Call("array", (Literal(1),)))),
        ("id '202401-5'", ById(PartitionId("202401-5"))),
        (" ID  '202401' ", ById(PartitionId("202401"))),
        ("all", All()),
    ],
)
def test_the_forms_of_a_partition(text: str, literal: PartitionLiteral) -> None:
    assert repr(parse_partition_literal(text)) == repr(literal)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it ends where"),
        ("'2024", "the quote ' at position 1 is not closed"),
        ("abc", "'abc' at position 1 is the name of a column"),
        ("tuple(202401, b)", "'b' at position 15 is the name of a column"),
        ("toDate(`a.b`.c)", r"'`a\.b`' at position 8 is the name of a column"),
        ("2024-01-31", "'-' at position 5 makes it an expression"),
        ("toDate('2024-01-31') + 1", r"'\+' at position 22 makes it an expression"),
        ("1 = 1", "'1' at position 1 makes it an expression"),
        ("NOT 1", "'NOT' at position 1 makes it an expression"),
        ("plus(1, 1)", "'plus' at position 1 makes it an expression"),
        ("(1 + 1)", r"'\+' at position 4 makes it an expression"),
        ("-toInt8(5) + 1", r"'\+' at position 12 makes it an expression"),
        ("[1 + 1]", r"'\+' at position 4 makes it an expression"),
        ("(2024-01-31, 1)", "'-' at position 6 makes it an expression"),
        ("tuple(2024-01-31)", "'-' at position 11 makes it an expression"),
        ("tuple(toDate(2024-1-31))", "'-' at position 18 makes it an expression"),
        ("('x', 2024-01)", "'-' at position 11 makes it an expression"),
        ("ID 202401", "'202401' at position 4 where only a quoted id"),
        ("ID", "it ends|'ID' at position 1"),
        ("ID '202401' x", "'x' at position 13 where only a quoted id"),
        ("ID '2024/01'", "'2024/01' as a partition id"),
        ("ID ''", "'' as a partition id"),
    ],
)
def test_what_names_no_partition_is_an_error_that_says_where(text: str, why: str) -> None:
    """An unquoted date must never be read as a number, and a name never as text."""
    with pytest.raises(UsageError, match=why):
        parse_partition_literal(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-31", "2024-01-31"),
        (" 2024-01-31 10:00:00.5 ", "2024-01-31 10:00:00.5"),
        ("'2024-01-31'", "2024-01-31"),
    ],
)
def test_a_date_alone_is_the_date_that_it_is_in_quotes(text: str, value: str) -> None:
    """A shell takes quotes off, and a text in SQL has its own."""
    assert parse_partition_literal(date_in_quotes(text)) == ByValue(Literal(value))


@pytest.mark.parametrize("text", ["202401", "2024-01", "('2024-01-31', 1)", "2024-01-31 + 1", "x"])
def test_what_is_no_date_alone_stays_as_it_is(text: str) -> None:
    assert date_in_quotes(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(SELECT 1)", "'1' at position 9"),
        ("202401; DROP TABLE t", "';' at position 7"),
        ("202401 FROM x", "'FROM' at position 8"),
        ("ALL 1", "'1' at position 5"),
    ],
)
def test_what_is_no_constant_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        parse_partition_literal(text)


@given(constants, columns)
def test_a_column_is_never_part_of_a_partition_value(value: Literal, column: Literal) -> None:
    text = render_partition_literal(ByValue(Call("tuple", (value, column))))

    with pytest.raises(UsageError, match="is the name of a column"):
        parse_partition_literal(text)


@given(st.text(NASTY + "aID ALL 12", max_size=20))
def test_no_text_makes_anything_but_a_partition_or_an_error(text: str) -> None:
    try:
        literal = parse_partition_literal(text)
    except UsageError:
        return
    assert repr(parse_partition_literal(render_partition_literal(literal))) == repr(literal)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("'all_1_1_0'", "all_1_1_0"),
        ("all_1_1_0", "all_1_1_0"),
        ("201901_2_2_0", "201901_2_2_0"),
        (" '20000101-1_1_3_1_5' ", "20000101-1_1_3_1_5"),
        ("'f1d64ec28a3a97fb9d19e6a1a1d8e9e5_1_1_0'", "f1d64ec28a3a97fb9d19e6a1a1d8e9e5_1_1_0"),
    ],
)
def test_a_part_is_named_in_quotes_or_without(text: str, name: str) -> None:
    """ClickHouse's own examples have both forms."""
    part = parse_part_literal(text)

    assert str(part) == name
    assert parse_part_literal(render_part_literal(part)) == part


@given(
    st.from_regex(r"[A-Za-z0-9-]{1,20}", fullmatch=True),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 100),
    st.none() | st.integers(0, 100),
)
def test_a_part_that_is_written_is_read_as_the_same(
    partition: str, low: int, high: int, level: int, mutation: int | None
) -> None:
    part = PartName(PartitionId(partition), low, high, level, mutation)

    assert parse_part_literal(render_part_literal(part)) == part
    assert parse_part_literal(str(part)) == part


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' as a part name"),
        ("all", "it is not <partition>_<low>_<high>_<level>"),
        ("'all_1_1_0' x", "it is not one text in quotes"),
        ("all_1_1_0; DROP TABLE t", "it is not <partition>"),
        ("'all_1_1_0", "the quote ' at position 1 is not closed"),
        ("`all_1_1_0`", "it is not one text in quotes"),
    ],
)
def test_what_names_no_part_is_an_error(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_part_literal(text)

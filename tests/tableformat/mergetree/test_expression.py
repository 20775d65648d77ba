"""The text of key expressions, read as ClickHouse reads it, and written to be read the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.expression import (
    Call,
    ColumnName,
    Expression,
    Literal,
    SortKey,
    columns_of,
    qualify,
    render_expression,
)
from tableformat.mergetree.expression_parser import (
    parse_expression,
    parse_partition_key,
    parse_sorting_key,
)
from tests.strategies.expressions import column_names, expressions, sort_keys
from tests.strategies.types import NASTY
from tests.tableformat.mergetree.clickhouse_process import ClickHouse

COLUMNS = (
    "a UInt32, b Int64, s String, n Nullable(String), d Date, dt DateTime, f Float64, "
    "arr Array(Int8), t Tuple(x Int8, y String), m Map(String, Int8), ne Nested(a Int8), "
    "`we ird` Int8, `x.y` Int8, `from` Int8, `a``b` Int8, interval Int8, date Date, TTL Date"
)
KEY_SETTINGS = (
    "allow_nullable_key = 1, allow_experimental_reverse_key = 1, allow_suspicious_indices = 1"
)
KEYS = (
    *("a", "(a, b)", "tuple()", "(a)", "tuple(a)", "((a, b))", "(a, (b, s))", "(a,)", "()"),
    *("-b", "a + 1", "a % 3", "a DIV 3", "a MOD 3", "a * -1", "b - (-1)", "(a + b) * 2", "- - b"),
    *("a + b * 2", "a - (b - 1)", "a - b - 1", "(b % 3) % 2", "b % (3 % 2)", "-(b + 1)", "-b % 3"),
    *("a > 1", "a <> 1", "a < 1 = 0", "not a", "NOT (a = 1 OR b = 2)", "not a = 1", "-(5) = b"),
    *("a = 1 AND b = 2 AND s = 'x'", "(a = 1 AND b = 2) AND s = 'x'", "a = 1 OR b = 2 AND a = 3"),
    *("a IN (1, 2)", "a IN (1)", "a NOT IN (1, b)", "s LIKE 'a%'", "s NOT LIKE '\\\\_x'"),
    *("a BETWEEN 1 AND 2", "a NOT BETWEEN 1 AND 2", "n IS NULL", "n IS NOT NULL", "n IS NULL = 1"),
    *("a IS TRUE", "a IS NOT FALSE", "a = 1 IS NOT TRUE", "NOT n IS UNKNOWN", "+a * 2", "- + a"),
    *("b IS DISTINCT FROM a + 1", "b IS NOT DISTINCT FROM NOT a AND n IS NOT UNKNOWN"),
    *("a BETWEEN 1 AND length(n) IS NULL", "a NOT BETWEEN b AND length(n) IS NOT NULL"),
    *("a BETWEEN 1 AND 2 BETWEEN 3 AND 4", "n IS NULL % 2", "NOT s = n IS NULL AND b = 1"),
    *("CAST(a AS Decimal(18,2))", "cast(a, 'UInt8')", "toString(a)::FixedString(10)", "-b::Int8"),
    *("1::UInt8 + a", "d + INTERVAL 1 DAY", "INTERVAL '3 month' + d", "dt - INTERVAL -2 hours"),
    *("toStartOfInterval(dt, INTERVAL 6 HOUR)", "d = DATE '2024-01-01'", "interval + 1"),
    *("arr[1]", "t.1", "t.x", "m['k']", "-arr[1]", "[a, b]", "ne.a", "`we ird` + 1", "`x.y`"),
    *("`from` + 1", "`a\\`b`", '"a"', "TTL", "date", "s || 'x' || s", "x.y"),
    r"concat(s, 'it''s \\ \' ORDER BY ( \n \t \0 \x07 \e \d ü')",
    *("f * 1.5", "f + 1e-7", "f + 1e100", "f = -1.5", "f + inf", "b + 0x1F", "b + 0b11"),
    *("b + 1_000", "b + 18446744073709551615", "a = true", "coalesce(n, NULL, 'x')"),
    *("toYYYYMM(d)", "(toYYYYMM(d), cityHash64(s) % 16)", "icebergBucket(4, a)", "intHash32(a)"),
)


# What stands in conditions and in the values of UPDATE.
VALUES = (
    *("arrayExists(x -> x > a, arr)", "arrayMap((x, y) -> x + y, arr, arr)", "f(() -> 1)"),
    *("arrayFilter(x -> x = 1 OR x = 2, arr)", "arrayMap(x -> (x, a), arr)", "f((x) -> x)"),
    *("arrayMap(x -> arrayMap(y -> x + y + a, arr), arr)", "arrayExists(`x y` -> `x y`, arr)"),
    *("lambda(tuple(x), x + a)", "arrayMap(t -> t.1, [t])", "f(x -> x ? 1 : 2)", "f((x -> 1), 2)"),
    *("a ? 1 : 2", "a = 1 ? b : 2 + 3", "a OR b ? a : b AND a", "(a ? 1 : 2) + 1", "-a ? 1 : 2"),
    *("a ? (b ? 1 : 2) : 3", "f(a ? b : a, 1)", "NOT a ? 1 : 2", "[a ? 1 : 2]", "arr[a ? 1 : 2]"),
    *("CASE WHEN a THEN 1 END", "CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END + 1"),
    *("CASE a WHEN 1 THEN 'x' ELSE 'y' END", "CASE (a) + 1 WHEN 2 THEN 3 END", "case + 1", "case"),
    *("CASE WHEN a THEN CASE b WHEN 1 THEN 2 END ELSE 4 END", "case(1)", "case in (1, 2)"),
    *("CASE WHEN a OR b THEN a ? 1 : 2 ELSE f(x -> x) END IS NULL", "f(case(1), case)"),
)


def tree(clickhouse: ClickHouse, text: str) -> list[str]:
    """Return ClickHouse's own syntax tree of an expression."""
    lines = [str(row[0]) for row in clickhouse.rows(f"EXPLAIN AST SELECT {text}")]
    return lines[next(i for i, line in enumerate(lines) if line.startswith("   ")) :]


def key_that_clickhouse_shows(clickhouse: ClickHouse, order_by: str) -> str:
    clickhouse.rows("DROP TABLE IF EXISTS keys")
    clickhouse.rows(
        f"CREATE TABLE keys ({COLUMNS}) ENGINE = MergeTree ORDER BY {order_by} "
        f"SETTINGS {KEY_SETTINGS}"
    )
    shown = clickhouse.text(
        "SELECT engine_full FROM system.tables WHERE database = 'default' AND name = 'keys'"
    )
    return shown.removeprefix("MergeTree ORDER BY ").partition(" SETTINGS ")[0]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_read_as_clickhouse_reads_it(clickhouse: ClickHouse, key: str) -> None:
    """A key that we read otherwise than ClickHouse would give a wrong spec or a wrong order."""
    shown = key_that_clickhouse_shows(clickhouse, key)

    rendered = render_expression(parse_expression(shown))

    # What the user wrote, what ClickHouse shows and what we write are one key.
    assert tree(clickhouse, rendered) == tree(clickhouse, shown)
    assert parse_sorting_key(key) == parse_sorting_key(shown)
    again = key_that_clickhouse_shows(clickhouse, rendered)
    assert parse_sorting_key(again) == parse_sorting_key(shown)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_read_as_clickhouse_reads_it(clickhouse: ClickHouse, value: str) -> None:
    read = parse_expression(value)

    assert tree(clickhouse, render_expression(read)) == tree(clickhouse, value)
    assert repr(parse_expression(render_expression(read))) == repr(read)


@pytest.mark.parametrize(
    ("text", "columns", "qualified"),
    [
        ("arrayMap(x -> x + a, arr)", {"a", "arr"}, "arrayMap((x) -> x + `t`.`a`, `t`.`arr`)"),
        ("f(x -> g(y -> x + y + z))", {"z"}, "f((x) -> g((y) -> (x + y) + `t`.`z`))"),
        ("x + f(x -> x)", {"x"}, "`t`.`x` + f((x) -> x)"),
        ("f(x -> x.y + x.1)", set(), "f((x) -> x.y + tupleElement(x, 1))"),
        ("f(lambda(a, b))", {"a", "b"}, "f(lambda(`t`.`a`, `t`.`b`))"),
    ],
)
def test_the_arguments_of_a_lambda_are_no_columns(
    text: str, columns: set[str], qualified: str
) -> None:
    """Harm prevented: a missing column is requested, or another one is read."""
    read = parse_expression(text)

    assert columns_of(read) == columns
    assert repr(parse_expression(qualify(read, "t"))) == repr(parse_expression(qualified))


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("a DESC", (SortKey(ColumnName("a"), descending=True),)),
        ("(a desc)", (SortKey(ColumnName("a"), descending=True),)),
        (
            "(intHash32(a), b DESC, n ASC)",
            (
                SortKey(Call("intHash32", (ColumnName("a"),))),
                SortKey(ColumnName("b"), descending=True),
                SortKey(ColumnName("n")),
            ),
        ),
    ],
)
def test_descending_keys_are_seen(
    clickhouse: ClickHouse, key: str, keys: tuple[SortKey, ...]
) -> None:
    """sorting_key of system.tables hides DESC; engine_full shows it, with `tuple(...)` around."""
    assert parse_sorting_key(key) == keys
    assert parse_sorting_key(key_that_clickhouse_shows(clickhouse, key)) == keys


def test_qualified_columns_are_the_tables_own_whatever_the_select_list_says(
    clickhouse: ClickHouse,
) -> None:
    """A value cast to another type keeps its column's name; ORDER BY must not see the cast."""
    key_that_clickhouse_shows(clickhouse, "tuple()")
    clickhouse.rows("INSERT INTO keys SELECT * FROM generateRandom() LIMIT 100")
    keys = [e for text in KEYS for e in parse_partition_key(text) if columns_of(e)]
    assert len(keys) > 80

    plain = ", ".join(f"toString({render_expression(e)})" for e in keys)
    qualified = ", ".join(f"toString({qualify(e)})" for e in keys)
    equal = clickhouse.text(f"SELECT countIf([{plain}] = [{qualified}]) FROM keys AS __src")

    assert equal == "100"
    shadowed = clickhouse.rows(
        f"SELECT toString(b) AS b FROM keys AS __src ORDER BY {qualify(ColumnName('b'))}"
    )
    assert [int(row[0]) for row in shadowed] == sorted(int(row[0]) for row in shadowed)


@given(expressions)
def test_an_expression_that_is_written_is_read_as_the_same(expression: Expression) -> None:
    # As text, because to Python 1, 1.0 and True are equal.
    assert repr(parse_expression(render_expression(expression))) == repr(expression)


@given(expressions)
def test_qualifying_changes_nothing_but_the_names_of_columns(expression: Expression) -> None:
    # No name that a lambda's argument could have.
    qualified = parse_expression(qualify(expression, "__src"))

    assert columns_of(qualified) == {f"__src.{name}" for name in columns_of(expression)}


@given(sort_keys)
def test_a_sorting_key_that_is_written_is_read_as_the_same(keys: tuple[SortKey, ...]) -> None:
    listed = ", ".join(
        render_expression(key.expression) + (" DESC" if key.descending else "") for key in keys
    )

    assert repr(parse_sorting_key(f"tuple({listed})")) == repr(keys)


@given(st.lists(expressions, max_size=4).map(tuple))
def test_a_partition_key_that_is_written_is_read_as_the_same(
    keys: tuple[Expression, ...],
) -> None:
    assert repr(parse_partition_key(render_expression(Call("tuple", keys)))) == repr(keys)


@given(column_names)
def test_a_column_of_any_name_is_a_column(name: str) -> None:
    assert parse_expression(render_expression(ColumnName(name))) == ColumnName(name)


@pytest.mark.parametrize("text", ["", " ", "tuple()", "()", " tuple ( ) "])
def test_no_key_has_no_members(text: str) -> None:
    assert parse_partition_key(text) == ()
    assert parse_sorting_key(text) == ()


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a", (ColumnName("a"),)),
        ("(a)", (ColumnName("a"),)),
        ("((a, b))", (ColumnName("a"), ColumnName("b"))),
        ("tuple((a, b))", (Call("tuple", (ColumnName("a"), ColumnName("b"))),)),
        ("(a) + (b)", (Call("plus", (ColumnName("a"), ColumnName("b"))),)),
    ],
)
def test_brackets_around_a_key_are_no_part_of_it(text: str, keys: tuple[Expression, ...]) -> None:
    assert parse_partition_key(text) == keys
    assert parse_sorting_key(text) == tuple(SortKey(key) for key in keys)


def test_a_list_without_brackets_is_a_sorting_key() -> None:
    """So system.tables shows primary_key."""
    assert parse_sorting_key("a, b") == (SortKey(ColumnName("a")), SortKey(ColumnName("b")))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("a /* c */ + -- x\n b", Call("plus", (ColumnName("a"), ColumnName("b")))),
        ("-5", Literal(-5)),
        ("- 5", Literal(-5)),
        ("-(5)", Call("negate", (Literal(5),))),
        ("1_000", Literal(1000)),
        ("007", Literal(7)),
        ("Null", Literal(None)),
        ("`null`", ColumnName("null")),
        ("'a' ", Literal("a")),
        ("LOWER(s)", Call("LOWER", (ColumnName("s"),))),
        ("t.1.2", Call("tupleElement", (parse_expression("t.1"), Literal(2)))),
        ("1.5::Decimal(9,2)", Call("CAST", (Literal("1.5"), Literal("Decimal(9, 2)")))),
        ("INTERVAL 2 WEEKS", Call("toIntervalWeek", (Literal(2),))),
        ("TIMESTAMP '2024-01-01 00:00:00'", Call("toDateTime", (Literal("2024-01-01 00:00:00"),))),
    ],
)
def test_other_ways_to_write_an_expression_are_read_too(text: str, expression: Expression) -> None:
    assert repr(parse_expression(text)) == repr(expression)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(a AS k, k)", "'AS' at position 4 where"),
        ("a IN (SELECT 1)", "'1' at position 14 where"),
        ("CASE WHEN a = 1 END", "'END' at position 17 where THEN"),
        ("CASE a WHEN 1 THEN 2, 3", "',' at position 21 where WHEN, ELSE or END"),
        ("a ? b ? c : d : e", r"'\?' at position 7 where ':'"),
        ("a ? b : c OR d", "'OR' at position 11 where the end"),
        ("x -> y -> x", "'->' at position 8 where the end"),
        ("a OR x -> 1", "'->' at position 8 where the end"),
        ("arrayMap(`x.y` -> 1, arr)", "'`x.y`' at position 10 where a name without a dot"),
        ("quantile(0.5)(a)", r"'\(' at position 14 where"),
        ("INTERVAL '1 fortnight'", "at position 10 where an amount and a unit"),
        ("a IS DISTINCT b", "'b' at position 15 where FROM"),
        ("a IS b", "'b' at position 6 where NULL, UNKNOWN, TRUE, FALSE or DISTINCT FROM"),
        ("f(-> 1)", "'->' at position 3 where a column"),
        ("a; DROP TABLE x", "';' at position 2 where the end"),
        ("a DESC", "'DESC' at position 3 where the end"),
        ("1e400", "'1e400' at position 1 where a number within the range"),
        ("'\\xff'", "bytes that are not UTF-8"),
    ],
)
def test_what_is_not_read_is_refused_with_its_place(text: str, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        parse_expression(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it ends where a column"),
        ("a +", "it ends where a column"),
        ("f(a", r"it ends where '\)'"),
        ("a BETWEEN 1", "it ends where AND"),
        ("'a", "the quote ' at position 1 is not closed"),
        ("a + `b", "the quote ` at position 5 is not closed"),
        ("a /* b", "the comment at position 3 is not closed"),
        ("(" * 200 + "a" + ")" * 200, "nested deeper than 100 levels"),
        ("- " * 200 + "a", "nested deeper than 100 levels"),
        ("+ " * 200 + "a", "nested deeper than 100 levels"),
        ("NOT " * 200 + "a", "nested deeper than 100 levels"),
        ("a + " * 2000 + "a", "nested deeper than 100 levels"),
        ("a" + "[1]" * 2000, "nested deeper than 100 levels"),
    ],
)
def test_a_malformed_expression_is_an_error_that_says_why(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "f(" * 90 + "a" + ")" * 90,
        "[(" * 45 + "a" + ", 1)]" * 45,
        "a" + " - a" * 90,
        "CAST(" * 90 + "a" + " AS Int8)" * 90,
        "a = 1 AND " * 2000 + "a",
    ],
)
def test_an_expression_may_be_long_and_nested(text: str) -> None:
    expression = parse_expression(text)

    assert columns_of(expression) == {"a"}
    assert parse_expression(render_expression(expression)) == expression


def test_a_long_text_is_shown_only_near_the_mistake() -> None:
    with pytest.raises(UsageError, match=r"'…\+ a \+ a") as refusal:
        parse_expression("a + " * 90 + "* a")
    assert len(str(refusal.value)) < 300


@given(st.text(NASTY + "aA1 NOT IN CAST", max_size=30))
def test_no_text_makes_anything_but_an_expression_or_an_error(text: str) -> None:
    try:
        expression = parse_expression(text)
    except UsageError:
        return
    assert repr(parse_expression(render_expression(expression))) == repr(expression)

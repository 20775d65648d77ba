"""The matrix of time expressions: every row, and every way to spell it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.iceberg.key_functions import MATRIX, DerivedField, canonical_function, time_field
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.mergetree.types import DataType, DateTime, DateTime64, Nullable, Simple
from tests.properties.key_texts import spellings
from tests.strategies.expressions import expressions
from tests.strategies.mapping import column_of, table_of

KINDS: dict[str, DataType] = {
    "Date": Simple("Date"),
    "Date32": Nullable(Simple("Date32")),
    "DateTime": DateTime("UTC"),
    "DateTime64": DateTime64(3, "UTC"),
}


def columns_of(of: DataType) -> MappedColumns:
    return map_columns(table_of(column_of("c", of)))


@pytest.mark.parametrize("row", MATRIX)
def test_every_row_says_what_it_is_of_each_kind_of_time(row: str) -> None:
    relations = MATRIX[row].split()

    assert len(relations) == len(KINDS)
    for relation, of in zip(relations, KINDS.values(), strict=True):
        for text in spellings(row):
            found = time_field(parse_expression(text.replace("{c}", "c")), columns_of(of), "UTC")
            if relation == "-":
                assert isinstance(found, str)
                assert "has no Iceberg transform when c is a" in found
            else:
                assert isinstance(found, DerivedField)
                assert (found.field.transform, found.exact) == (relation[1:], relation[0] != "~")


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("YEAR(c)", "toYear"),
        ("to_days(c)", "toDaysSinceYearZero"),
        ("date_trunc('Month', c, 'UTC')", "dateTrunc(month)"),
        ("CAST(c AS Date)", "toDate"),
        ("c::Nullable(Date32)", "toDate32"),
        ("date_bin(c, INTERVAL 1 DAY)", "toStartOfInterval(day)"),
        ("DATE_FORMAT(c, '%Y_%m')", "formatDateTime(month)"),
        ("formatDateTime(c, '%y-%m')", None),
        ("formatDateTime(c, '%Y-%m %M')", None),
        ("formatDateTime(c, '%Y-%Y')", None),
        ("formatDateTime(c, '%Y-%j')", None),
        ("toStartOfInterval(c, INTERVAL 2 MONTH)", None),
        ("dateTrunc('week', c)", None),
        ("toYear", None),
    ],
)
def test_other_spellings_are_the_same_row_or_none_of_the_matrix(text: str, row: str | None) -> None:
    spelled = canonical_function(parse_expression(text))

    found = spelled.row if spelled is not None and spelled.row in MATRIX else None
    assert found == row


@pytest.mark.parametrize(
    ("key", "of", "exact"),
    [
        ("toYYYYMM(toDate(c))", DateTime("UTC"), True),
        ("toYYYYMM(toDate(c))", DateTime64(3, "UTC"), False),
        ("toYYYYMM(toDate32(c))", DateTime64(3, "UTC"), True),
        ("toYear(c::Date)", Simple("Date32"), False),
    ],
)
def test_a_function_of_a_day_is_exact_when_both_are(key: str, of: DataType, exact: object) -> None:
    found = time_field(parse_expression(key), columns_of(of), "UTC")

    assert isinstance(found, DerivedField)
    assert found.exact is exact


@given(expression=expressions)
def test_any_expression_is_read_without_a_word_or_with_a_reason(expression: object) -> None:
    """A key is never a crash."""
    found = time_field(expression, columns_of(DateTime("UTC")), "UTC")  # type: ignore[arg-type]

    assert found is None or isinstance(found, str | DerivedField)


@given(zone=st.sampled_from(["Asia/Tokyo", "Europe/London"]), row=st.sampled_from(sorted(MATRIX)))
def test_no_row_that_follows_a_zone_is_derived_in_another_than_utc(zone: str, row: str) -> None:
    """A Tokyo month is no Iceberg month."""
    (text, *_) = spellings(row)
    found = time_field(
        parse_expression(text.replace("{c}", "c")), columns_of(DateTime64(3, zone)), "UTC"
    )

    free = "toUnixTimestamp," in row or row.startswith("iceberg")
    assert isinstance(found, DerivedField) is free

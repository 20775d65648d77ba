"""Rows in ClickHouse's output formats, written by ClickHouse."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.clickhouse.row_format import check_format, formatted
from tableformat.errors import UnsupportedError
from tests.strategies.types import nasty_text

COLUMNS = (("a", "String"), ("b c", "Int64"))
ROWS = [("x\t'y\\", 2**62), (None, None)]


@given(st.lists(st.tuples(st.none() | nasty_text, st.none() | st.integers(-(2**63), 2**63 - 1))))
@settings(max_examples=5, deadline=None)
def test_whatever_the_rows_hold_they_can_be_read_again(
    rows: list[tuple[str | None, int | None]],
) -> None:
    written = formatted("JSONCompactEachRow", COLUMNS, rows)

    assert [tuple(json.loads(line)) for line in written.splitlines()] == rows


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("TSV", b"x\\t\\'y\\\\\t4611686018427387904\n\\N\t\\N\n"),
        ("CSVWithNames", b'"a","b c"\n"x\t\'y\\",4611686018427387904\n\\N,\\N\n'),
        ("Null", b""),
        ("Values", b"('x\\t\\'y\\\\',4611686018427387904),(NULL,NULL)"),
    ],
)
def test_rows_are_written_as_clickhouse_writes_them(form: str, written: bytes) -> None:
    assert formatted(form, COLUMNS, ROWS) == written


@pytest.mark.parametrize(
    ("form", "is_text"), [("JSON", True), ("Null", True), ("PrettyCompact", True), ("ORC", False)]
)
def test_a_format_that_is_no_text_is_distinguished_from_others(form: str, *, is_text: bool) -> None:
    assert check_format(form, COLUMNS) == is_text


@pytest.mark.parametrize(
    ("form", "code", "message"),
    [
        ("prettycompac", 73, "Did you mean PrettyCompact?"),
        ("Npy", 161, "Expected single column"),
        ("x') SELECT 1 --", 73, "has no such format"),
    ],
)
def test_what_cannot_be_written_is_refused(form: str, code: int, message: str) -> None:
    with pytest.raises(UnsupportedError, match="Cannot write the result in the format") as refused:
        check_format(form, COLUMNS)

    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value


def test_a_binary_format_is_whole(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("format") / "rows.parquet"
    path.write_bytes(formatted("Parquet", COLUMNS, ROWS))

    assert pq.read_table(path).to_pylist()[1] == {"a": None, "b c": None}

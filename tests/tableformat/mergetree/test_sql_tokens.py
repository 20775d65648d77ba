"""Tokens of ClickHouse SQL: quotes, comments, and malformed texts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import UnsupportedError, UsageError
from tableformat.mergetree.sql_tokens import BROKEN, TokenKind, scan, tokenize
from tests.strategies.types import NASTY
from tests.tableformat.mergetree.clickhouse_process import ClickHouse

# Texts that are one constant, in every way that ClickHouse lets write one.
CONSTANTS = (
    r"'it''s \\ \n \x41 \d \e[0m'",
    "x'4142'",
    "X'414'",
    "b'0100000101000010'",
    "b'1000001'",
    "$$it's$$",
    "$tag$a $$ 'b' /* c$tag$",
    "\u2018it''s \\n\u2019",
    "'a' /* b /* c */ 'd' */",
    "-- 'a'\n'b' // 'c'\n",
    "#! 'a'\n'b' # 'c'",
    "\ufeff'a'\u200b",
)


@pytest.mark.parametrize("text", CONSTANTS)
def test_a_text_in_quotes_is_what_it_is_to_clickhouse(clickhouse: ClickHouse, text: str) -> None:
    kinds = [token.kind for token in scan(text)]
    value = next(token.value for token in scan(text))

    assert kinds == [TokenKind.STRING, TokenKind.END]
    assert clickhouse.text(f"SELECT {text}") == value


@pytest.mark.parametrize(
    ("text", "value"), [('"a""b"', 'a"b'), ("`a\\`b`", "a`b"), ("\u201ca'b\u201d", "a'b")]
)
def test_a_name_in_quotes_is_what_it_is_to_clickhouse(
    clickhouse: ClickHouse, text: str, value: str
) -> None:
    token = next(scan(text))

    assert (token.kind, token.value) == (TokenKind.QUOTED, value)
    assert clickhouse.text(f"SELECT {text} FROM (SELECT 7 AS {text})") == "7"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a 'b", "the quote ' at position 3 is not closed"),
        ("a $x$ b", r"the quote \$x\$ at position 3 is not closed"),
        ("a \u2018b", "the quote \u2018 at position 3 is not closed"),
        ("a /* b /* c */", "the comment at position 3 is not closed"),
    ],
)
def test_what_is_not_closed_is_an_error_that_says_where(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        tokenize(text, "text")


@pytest.mark.parametrize("text", [r"'\xff'", "x'ff'", "b'11111111'"])
def test_bytes_that_are_no_text_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="at position 1 has bytes that are not UTF-8"):
        tokenize(text, "text")


@given(st.text(NASTY + "$xb#0Aa1\u2018\u2019\u201c\u201d", max_size=30) | st.text(max_size=30))
def test_every_text_is_cut_to_its_end(text: str) -> None:
    tokens = list(scan(text))

    assert all(left.stop <= right.start for left, right in itertools.pairwise(tokens))
    assert tokens[-1].kind in (TokenKind.END, *BROKEN)
    assert tokens[-1].kind is TokenKind.NOT_UTF8 or tokens[-1].stop == len(text)

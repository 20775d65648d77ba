"""Errors and values of ClickHouse are read the same from every version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.clickhouse.connection import ClickHouseError, flag, text, whole
from tableformat.errors import InternalError


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        (
            "Code: 60. DB::Exception: Table db.t does not exist. (UNKNOWN_TABLE)",
            60,
            "Table db.t does not exist. (UNKNOWN_TABLE)",
        ),
        (
            "Code: 36. DB::Exception: Wrong. (BAD_ARGUMENTS) (version 26.9 (x))\nStack trace:\n0.",
            36,
            "Wrong. (BAD_ARGUMENTS)",
        ),
        ("Code: 47, e.displayText() = DB::Exception: Unknown column x", 47, "Unknown column x"),
        (
            "Code: 47, e.displayText() = DB::Exception: Unknown x, e.what() = DB::Exception",
            47,
            "Unknown x",
        ),
        (
            "Code: 999, e.displayText() = Coordination::Exception: No node, path: /t",
            999,
            "No node, path: /t",
        ),
        (
            "Code: 999. Coordination::Exception: Session expired. (KEEPER_EXCEPTION)",
            999,
            "Session expired. (KEEPER_EXCEPTION)",
        ),
        ("the pipe is broken", None, "the pipe is broken"),
        ("", None, "it gave no reason"),
    ],
)
def test_a_response_becomes_code_and_reason(message: str, code: int | None, reason: str) -> None:
    """Stack traces and version numbers hide what a user can act on."""
    error = ClickHouseError(message)

    assert (error.code, error.reason) == (code, reason)


@given(st.integers(0, 9999), st.text(st.characters(exclude_characters=".\n"), min_size=1))
def test_any_error_text_is_parsed(code: int, message: str) -> None:
    error = ClickHouseError(f"Code: {code}. DB::Exception: {message}\nand more")

    assert error.code == code
    assert "and more" not in str(error)


def test_a_response_of_another_type_is_a_bug_and_not_a_value() -> None:
    assert (text("a"), whole(3), flag(1), flag(value=False)) == ("a", 3, True, False)
    with pytest.raises(InternalError, match="3 is not text"):
        text(3)
    with pytest.raises(InternalError, match="'3' is not a whole number"):
        whole("3")
    with pytest.raises(InternalError, match="True is not a whole number"):
        whole(value=True)
    with pytest.raises(InternalError, match="2 is not 0 or 1"):
        flag(2)

"""Directory names that every Hive reader takes apart in the same way."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.file_names import HIVE_NULL, escape, partition_directory

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("plain", "plain"),
        ("2024-01", "2024-01"),
        ("a b", "a%20b"),
        ("a/b=c", "a%2Fb%3Dc"),
        ("50%", "50%25"),
        ("a+b~{x}", "a%2Bb%7E%7Bx%7D"),
        ("ü", "ü"),
        ("\n", "%0A"),
    ],
)
def test_ascii_beyond_letters_digits_and_three_marks_is_escaped(text: str, name: str) -> None:
    assert escape(text) == name


@given(text=TEXT)
def test_every_text_is_one_path_component_and_decodes_to_itself(text: str) -> None:
    """Readers decode by percent signs, some after UTF-8: both give the text."""
    name = escape(text)

    assert "/" not in name
    assert "=" not in name
    assert unquote(name) == text


def test_null_and_the_empty_text_share_hives_own_name() -> None:
    made = partition_directory(["a", "b", "c"], [None, "", "x"])

    assert made == f"a={HIVE_NULL}/b={HIVE_NULL}/c=x"


def test_a_table_without_partitions_has_no_directory() -> None:
    assert partition_directory([], []) == ""

"""How values of a partition key are spelled in the names of directories."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.types import IntegerType, StringType

from tableformat.errors import UnsupportedError
from tableformat.hive.levels import Level, tree_directory, why_no_directory
from tableformat.hive_names import HIVE_NULL

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["", HIVE_NULL, "null", "NULL", "nUlL", "Null"]),
)


def texts(count: int) -> list[Level]:
    return [Level(f"c{n} =", StringType()) for n in range(count)]


@given(values=st.lists(st.one_of(st.none(), TEXT), min_size=1, max_size=4))
@example(["NULL", None, "null"])
def test_a_directory_is_taken_apart_into_its_columns_and_values(values: list[str | None]) -> None:
    levels = texts(len(values))

    pieces = [piece.split("=") for piece in tree_directory(levels, values).split("/")]

    assert [unquote(name) for name, _ in pieces] == [level.name for level in levels]
    assert [None if v == HIVE_NULL else unquote(v) for _, v in pieces] == [
        None if value == HIVE_NULL else value or None for value in values
    ]


@given(value=TEXT)
def test_a_text_has_the_directory_of_null_only_where_it_is_refused(value: str) -> None:
    """Harm prevented: a text that a reader shows as NULL. DuckDB does so for the word null."""
    (level,) = texts(1)
    _, spelled = tree_directory([level], [value]).split("=")

    is_null = spelled == HIVE_NULL or spelled.casefold() == "null"
    assert is_null == (why_no_directory(level, value) != "")


def test_what_is_no_text_has_a_directory_of_its_own() -> None:
    assert why_no_directory(Level("n", IntegerType()), "7") == ""
    assert why_no_directory(Level("n", IntegerType()), None) == ""


def test_a_name_that_file_systems_do_not_take_is_refused_and_never_cut() -> None:
    level = Level("p", StringType())
    longest = "x" * (255 - len("p="))

    assert tree_directory([level], [longest]) == f"p={longest}"
    with pytest.raises(UnsupportedError, match="256 bytes") as refused:
        tree_directory([level], [f"{longest}x"])
    assert refused.value.code == 48

"""How values of a partition key are spelled in the names of directories."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.types import FixedType, IntegerType, StringType, TimestamptzType

from tableformat.errors import UnsupportedError
from tableformat.file_names import HIVE_NULL
from tableformat.hive.levels import (
    TEXT_OR_HEX,
    Level,
    remembered_spellings,
    remembering_spellings,
    spelled_in_utc,
    tree_directory,
    value_in_files,
    why_no_directory,
)

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


def moment(precision: int) -> Level:
    return Level("t", TimestamptzType(), spelled_in_utc(precision))


@pytest.mark.parametrize(
    ("precision", "value", "shown"),
    [
        (0, "2024-01-31T10:00:00+00:00", "2024-01-31%2010%3A00%3A00"),
        (3, "2024-01-31T10:00:00+00:00", "2024-01-31%2010%3A00%3A00.000"),
        (3, "2024-01-31T10:00:00.250000+00:00", "2024-01-31%2010%3A00%3A00.250"),
        (6, "1900-01-01T00:00:00.000001+00:00", "1900-01-01%2000%3A00%3A00.000001"),
        (9, "2024-01-31T10:00:00.250000+00:00", "2024-01-31%2010%3A00%3A00.250000"),
    ],
)
def test_a_time_is_spelled_as_clickhouse_writes_it_in_utc(
    precision: int, value: str, shown: str
) -> None:
    assert tree_directory([moment(precision)], [value]) == f"t={shown}"
    assert why_no_directory(moment(precision), value) == ""
    assert tree_directory([moment(precision)], [None]) == f"t={HIVE_NULL}"


def test_a_time_that_is_finer_than_the_directories_of_its_tree_is_refused() -> None:
    """Harm prevented: two times of one directory, after the source's column became finer."""
    assert why_no_directory(moment(0), "2024-01-31T10:00:00.250000+00:00") == (
        "is 2024-01-31T10:00:00.250000+00:00, and its directories have whole seconds"
    )
    assert "3 digits" in why_no_directory(moment(3), "2024-01-31T10:00:00.250001+00:00")
    assert why_no_directory(moment(3), "2024-01-31T10:00:00.250000+00:00") == ""


@given(values=st.lists(st.binary(min_size=4, max_size=4), min_size=2, max_size=2, unique=True))
@example([b"null", b"NULL"])
@example([b"ab\0\0", b"ab\0b"])
@example([b"\0\0\0\0", b"\xff\0\0\0"])
def test_two_fixed_texts_have_two_directories_other_than_that_of_null(
    values: list[bytes],
) -> None:
    level = Level("f", FixedType(4), TEXT_OR_HEX)

    found = [tree_directory([level], [value.hex()]) for value in values]

    assert len(set(found)) == 2
    for value, directory in zip(values, found, strict=True):
        text = unquote(directory.removeprefix("f="))
        assert text not in ("", HIVE_NULL)
        assert directory.casefold() != "f=null"
        assert why_no_directory(level, value.hex()) == ""
        assert value_in_files(level, text) == value.hex()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"eu\0\0", "eu"),
        (b"a/b ", "a%2Fb%20"),
        ("ü€".encode()[:4].ljust(4, b"\0"), "c3bce282"),
        ("üü".encode(), "üü"),
        (b"\xff\xfe\0\0", "fffe0000"),
        (b"\0\0\0\0", "00000000"),
        (b"a\0b\0", "61006200"),
    ],
)
def test_a_fixed_text_is_text_where_it_is_utf8_and_hex_elsewhere(value: bytes, shown: str) -> None:
    level = Level("f", FixedType(4), TEXT_OR_HEX)

    assert tree_directory([level], [value.hex()]) == f"f={shown}"


def test_a_tree_stores_the_spelling_of_its_levels() -> None:
    spelled = {"t": spelled_in_utc(3), "f": TEXT_OR_HEX}

    assert remembered_spellings(remembering_spellings(spelled)) == spelled
    assert remembering_spellings({}) == {}
    assert remembered_spellings({}) == {}

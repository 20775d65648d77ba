"""Messages name options and commands as values, which each interface writes in its own words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import RefusedError, refuse_all
from tableformat.messages import (
    Command,
    CommandLine,
    Option,
    convert,
    named_in,
    plain,
    together,
    written,
)


class Upper(CommandLine):
    """An interface with names in capital letters."""

    def options(self, named: tuple[Option, ...]) -> str:
        return "+".join(one.name for one in named)


@given(st.text(), st.sampled_from([*Option]), st.text())
def test_nothing_but_the_marks_is_replaced(before: str, option: Option, after: str) -> None:
    """Harm prevented: a column whose name is spelled like an option is renamed in the advice."""
    text = f"{before}{option}{after}"
    stays = before.replace("\ufdd0", ""), after.replace("\ufdd2", "")

    if (before, after) == stays:
        assert plain(text) == f"{before}{option.value}{after}"
        assert written(text, Upper()) == f"{before}{option.name}{after}"


@given(st.text())
def test_a_text_without_marks_stays_as_it_is(text: str) -> None:
    assert plain(text) == text
    assert named_in(text) == ()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Use {Option.FORCE} to replace it.", "Use --force to replace it."),
        (f"Use {together(Option.FORCE, Option.ALLOW_EMPTY)}.", "Use --force --allow-empty."),
        (f"{convert('id', 'decimal(38,0)')} fits", "--convert id=decimal(38,0) fits"),
        (f"{convert('`a b`', 'long')} fits", "--convert '`a b`=long' fits"),
        (f"{Command.GC} removes it", "`mergeberg gc` removes it"),
        (f"List {Command.PARTITIONS.on('db.t')}.", "List `mergeberg partitions db.t`."),
    ],
)
def test_the_command_line_shows_what_can_be_typed(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize("kind", ["options", "convert", "command", "", "other"])
@pytest.mark.parametrize("values", [(), ("NONE",), ("GC",), ("NONE", "FORCE", "a")])
def test_what_only_looks_like_a_mark_is_shown_as_it_is(kind: str, values: tuple[str, ...]) -> None:
    """Harm prevented: a name of a column makes the error about it fail."""
    text = "\ufdd0" + "\ufdd1".join((kind, *values)) + "\ufdd2"

    assert plain(text) == text
    assert named_in(text) == ()


def test_the_names_of_a_message_are_found_once_and_in_order() -> None:
    text = f"{Option.TO} {convert('a', 'long')} {Command.GC} {Option.TO} {Option.ALL}"

    assert named_in(text) == (Option.TO, Option.CONVERT, Command.GC, Option.ALL)


def test_an_error_shows_options_as_the_command_line_and_keeps_them_in_texts() -> None:
    error = RefusedError(f"Cannot export db.t: it is there. Use {Option.FORCE}.")
    around = RefusedError(f"Cannot archive db.t: {error}")
    several = refuse_all("export db.t", (f"use {Option.FORCE}", f"use {Option.STRICT}"))

    assert str(error) == "Cannot export db.t: it is there. Use --force."
    assert written(around.message, Upper()).endswith("Use FORCE.")
    assert [plain(one) for one in several.reasons] == [
        "Cannot export db.t: use --force.",
        "Cannot export db.t: use --strict.",
    ]

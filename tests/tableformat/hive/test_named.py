"""Names of directories: parsed, stored, and refused if readers would confuse them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import DestinationError, RefusedError, UsageError
from tableformat.hive.layout import (
    NamedDirectory,
    check_names,
    listed_names,
    names_in_force,
    remembered_names,
    remembering,
)
from tableformat.mergetree.expression_parser import parse_expression
from tableformat.messages import plain
from tableformat.names import HiveName, LakeName
from tests.support.fakes import TABLE

TREE = HiveName.at("/lake/tree")
KEYED = replace(TABLE, engine=replace(TABLE.engine, partition_by="(n % 10, intDiv(n, 7))"))
NAMES = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True),
    st.sampled_from(["n % 10", "intDiv(n, 7)", "toYYYYMM(d)", "lower(s)", "if(a = 1, 'x, y', b)"]),
    max_size=4,
)


def named(**names: str) -> tuple[NamedDirectory, ...]:
    return tuple(NamedDirectory(n, parse_expression(text)) for n, text in names.items())


@given(NAMES)
def test_names_in_one_text_read_back_and_a_tree_stores_them(
    names: dict[str, str],
) -> None:
    read = listed_names(", ".join(f"{n} = ({text})" for n, text in names.items()), "setting")
    given = names_in_force("db.t", TREE, read, None)

    assert given == named(**names)
    assert names_in_force("db.t", TREE, {}, remembering(given)) == given
    assert names_in_force("db.t", TREE, read, remembering(given)) == given
    assert remembered_names(remembering(given)).keys() == names.keys()


@pytest.mark.parametrize("text", ["month", "month=", "a=n % 10, a=n", "1=n", "a=b=c", "a=(n"])
def test_what_is_no_list_of_names_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="setting"):
        listed_names(text, "setting")


def names_of_tree(given: dict[str, str], made_with: dict[str, str], key: str) -> str:
    """Return the refusal to export by a key to a tree, whose code is 36."""
    table = replace(TABLE, engine=replace(TABLE.engine, partition_by=key))
    properties = remembering(named(**made_with))
    names = names_in_force("db.t", TREE, given, properties)
    with pytest.raises(RefusedError) as refused:
        check_names("db.t", table, names, has_tree=True)
    assert refused.value.code == 36
    return plain(refused.value.message)


@pytest.mark.parametrize(
    ("given", "made_with", "key", "why"),
    [
        ({"p": "n % 10"}, {"part": "n % 10"}, "n % 10", "named by part=n % 10"),
        ({"part": "n % 11"}, {"part": "n % 10"}, "n % 10", "named by part=n % 10"),
        ({"part": "n % 10"}, {}, "n", "plain columns only"),
    ],
)
def test_a_tree_that_has_other_names_takes_none(
    given: dict[str, str], made_with: dict[str, str], key: str, why: str
) -> None:
    (wrong,) = named(**given)

    assert names_of_tree(given, made_with, key) == (
        f"Cannot export db.t: the directories of the tree are {why}, and --hive-column {wrong} was "
        "given. Leave it out, or export to another tree."
    )


@pytest.mark.parametrize(
    ("given", "made_with", "key", "directories"),
    [
        ({}, {"part": "n % 10"}, "n % 11", "named by part=n % 10"),
        ({"part": "n % 11"}, {"part": "n % 10"}, "n % 11", "named by part=n % 10"),
        ({"part": "n % 10"}, {"part": "n % 10"}, "n % 11", "named by part=n % 10"),
        ({}, {"part": "n % 10"}, "n", "named by part=n % 10"),
        ({}, {"part": "n % 10"}, "(n % 10, intDiv(n, 7))", "named by part=n % 10"),
        ({}, {"part": "n % 10"}, "", "named by part=n % 10"),
        ({"part": "n % 10"}, {}, "n % 10", "plain columns only"),
    ],
)
def test_a_tree_of_another_key_says_that_the_keys_differ(
    given: dict[str, str], made_with: dict[str, str], key: str, directories: str
) -> None:
    """Restrictions.PartitionKey: before the names, of which no choice makes the keys equal."""
    assert names_of_tree(given, made_with, key) == (
        f"Cannot export db.t: Tables have different partition key: PARTITION BY {key or 'tuple()'},"
        f" and the directories of the tree are {directories}. Export to another tree, or to an "
        "Iceberg table."
    )


def test_only_trees_have_directories_to_name() -> None:
    table = LakeName("lake", ("n",), "t")

    assert names_in_force("db.t", table, {}, {"mergeberg.tree.directories": "?"}) == ()
    with pytest.raises(UsageError, match="only trees of Hive directories"):
        names_in_force("db.t", table, {"part": "n % 10"}, None)


@pytest.mark.parametrize("text", ["", "[]", "[1]", '{"a": "("}', '{"a": 1}'])
def test_unreadable_names_of_a_tree_are_an_error(text: str) -> None:
    """Harm prevented: an export continues without names, into other directories."""
    with pytest.raises(DestinationError, match=r"mergeberg\.tree\.directories") as refused:
        names_in_force("db.t", TREE, {}, {"mergeberg.tree.directories": text})
    assert str(refused.value).isprintable()
    assert "\\ufdd" not in str(refused.value)


def test_names_of_members_of_the_key_are_taken() -> None:
    check_names("db.t", KEYED, named(part="n % 10", block="intDiv(n, 7)"))


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({"part": "n"}, "n is a column"),
        ({"part": "n % 11"}, "names no member of the partition key"),
        ({"N": "n % 10"}, "N is the name of the table's column n"),
        ({"_p": "n % 10"}, "_p begins with _"),
        ({"a=b": "n % 10"}, "a=b has = in its name"),
        ({".p": "n % 10"}, ".p begins with ."),
        ({"p": "n % 10", "P": "intDiv(n, 7)"}, "P is given twice"),
        ({"p": "n % 10", "q": "n % 10"}, "n % 10 is named twice"),
    ],
)
def test_a_name_that_readers_or_the_key_have_no_use_for_is_refused(
    names: dict[str, str], why: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        check_names("db.t", KEYED, named(**names))

    assert (refused.value.code, why in refused.value.message) == (36, True), refused.value

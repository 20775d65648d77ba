"""The rules by which a tree was created decide which files may be added."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from tableformat.errors import DestinationError, UnsupportedError
from tableformat.hive.layout import check_rules, rules_of
from tableformat.names import HiveName

TREE = HiveName.at("file:///lake/tree")
PLAIN = Schema(NestedField(1, "k", IntegerType()), NestedField(2, "größe", IntegerType()))
ODD = Schema(NestedField(1, "k", IntegerType()), NestedField(2, "n.x", IntegerType()))
MEMBER = Schema(
    NestedField(
        1,
        "t",
        ListType(2, StructType(NestedField(3, "two words", IntegerType())), element_required=False),
    )
)


@pytest.mark.parametrize(
    ("schema", "names"), [(ODD, "n.x as n_x2Ex"), (MEMBER, "two words as two_x20words")]
)
def test_a_tree_of_an_earlier_release_with_escaped_names_is_refused(
    schema: Schema, names: str
) -> None:
    """Harm prevented: files of one tree whose readers see both n.x and n_x2Ex."""
    with pytest.raises(UnsupportedError, match="export to another tree") as refused:
        check_rules("db.t to it", TREE, schema, {})

    assert refused.value.code == 48
    assert names in refused.value.message
    check_rules("db.t to it", TREE, schema, rules_of({}))


def test_an_earlier_releases_tree_with_plain_names_stays_writable() -> None:
    check_rules("db.t to it", TREE, Schema(NestedField(1, "k_1", IntegerType())), {})
    check_rules("db.t to it", TREE, PLAIN, rules_of({}))


def test_a_tree_of_a_newer_release_is_refused() -> None:
    with pytest.raises(DestinationError, match="by the rules 4"):
        check_rules("db.t to it", TREE, PLAIN, {"mergeberg.tree.rules": "4"})


def test_a_tree_of_times_is_one_that_earlier_releases_refuse() -> None:
    """Harm prevented: an earlier release spells the times of a tree differently."""
    assert rules_of({}) == {"mergeberg.tree.rules": "2"}
    assert rules_of({"t": "UTC"}) == {"mergeberg.tree.rules": "3"}
    check_rules("db.t to it", TREE, ODD, rules_of({"t": "UTC"}))

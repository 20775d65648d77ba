"""A table's conversions are permanent, and contradictions are refused with both."""

from __future__ import annotations

import pytest

from tableformat.errors import RefusedError
from tableformat.iceberg.existing_table import conversions_in_force
from tableformat.iceberg.properties import RememberedSource
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import DateTime64, Simple
from tests.strategies.mapping import column_of, table_of

MADE = table_of(
    column_of("a", Simple("UInt64")),
    column_of("s", Simple("String")),
    column_of("t", DateTime64(9, "UTC")),
)
REMEMBERED = RememberedSource(MADE, {"a": "long", "t": "truncate"})


def in_force(given: dict[str, str], table: MergeTreeTable = MADE) -> dict[str, str]:
    return dict(conversions_in_force("export db.t to lake.n.t", table, given, REMEMBERED))


def test_what_is_left_out_is_as_the_table_was_made() -> None:
    assert in_force({}) == {"a": "long", "t": "truncate"}
    assert in_force({"a": "long"}) == {"a": "long", "t": "truncate"}


def test_a_new_or_foreign_table_has_only_the_given_conversions() -> None:
    assert conversions_in_force("export", MADE, {"s": "binary"}, None) == {"s": "binary"}


def test_a_default_conversion_may_be_named() -> None:
    """String is text by default, too."""
    assert in_force({"s": "string"})["s"] == "string"


def test_finer_times_may_be_cut_off_in_a_table_that_was_made_for_whole_ones() -> None:
    """The refusal of a partition with nanoseconds offers just that; whole values stay the same."""
    made = RememberedSource(MADE, {})

    found = conversions_in_force("export", MADE, {"t": "truncate"}, made)

    assert dict(found) == {"t": "truncate"}


def test_a_column_that_the_table_does_not_have_yet_may_be_converted() -> None:
    more = table_of(*MADE.columns, column_of("new", Simple("String")))

    assert in_force({"new": "binary"}, more)["new"] == "binary"


def test_what_the_source_no_longer_has_or_has_as_another_type_is_left_out() -> None:
    """The comparison of structures then decides whether the column fits."""
    assert in_force({}, table_of(column_of("a", Simple("Int64")))) == {}


def test_all_that_contradicts_is_refused_at_once_with_both_words() -> None:
    """Harm prevented: whole nanoseconds in one file and cut ones in the next, under one name."""
    with pytest.raises(RefusedError, match="2 reasons") as refused:
        in_force({"s": "binary", "t": "string"})

    assert refused.value.code == 36
    assert (
        "--convert s=binary was given, but the destination's column s was created without"
        in str(refused.value)
    )
    assert "column t was created with --convert t=truncate; leave it out" in str(refused.value)

"""Only where a lake partition is of one source partition may everything in it be replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.iceberg.partition_proof import why_not_one_to_one
from tableformat.iceberg.partition_spec import chosen_spec, derive_spec
from tableformat.iceberg.schema import map_columns
from tableformat.iceberg.spec_fields import parse_spec
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import DateTime, DateTime64, Simple
from tests.strategies.mapping import column_of, table_of

EXACT = (
    "toYYYYMM(ts)", "toDate(ts)", "toStartOfHour(ts)", "toYear(d)", "toYYYYMM(wide)", "region",
    "intDiv(id, 1000)", "icebergBucket(8, region)", "d",
)  # fmt: skip
WRAPS = ("toDate(wide)", "toStartOfMonth(wide)", "toStartOfHour(wide)")


def table(key: str) -> MergeTreeTable:
    return table_of(
        column_of("ts", DateTime("UTC")),
        column_of("wide", DateTime64(3, "UTC")),
        column_of("d", Simple("Date")),
        column_of("id", Simple("UInt64")),
        column_of("region", Simple("String")),
        partition_by=key,
    )


def why_not(key: str, spec: str | None = None) -> str:
    """Return why not, for the derived spec or one that the user chose."""
    made = table(key)
    columns = map_columns(made)
    if spec is None:
        return why_not_one_to_one(made, columns, derive_spec(made, columns))
    return why_not_one_to_one(made, columns, chosen_spec(made, parse_spec(spec, columns)))


@given(st.lists(st.sampled_from(EXACT), min_size=1, unique=True))
def test_a_key_whose_every_expression_is_exact_is_one_to_one(members: list[str]) -> None:
    """Harm prevented: the option that replaces everything is refused where it is safe."""
    assert why_not(f"({', '.join(members)})") == ""


@given(st.lists(st.sampled_from(EXACT), unique=True), st.sampled_from(WRAPS))
def test_a_key_that_wraps_around_is_not(members: list[str], wraps: str) -> None:
    """Harm prevented: two lake partitions for one source partition, or the reverse."""
    assert "from 1970 to 2105 only" in why_not(f"({', '.join([*members, wraps])})")


@pytest.mark.parametrize("key", ["", "tuple()"])
@pytest.mark.parametrize("spec", [None, "unpartitioned", "month(ts)"])
def test_a_source_without_partitions_is_its_own_only_one(key: str, spec: str | None) -> None:
    """Harm prevented: a table that is not partitioned cannot be replaced as a whole."""
    assert why_not(key, spec) == ""


@pytest.mark.parametrize("spec", ["month(ts)", "month(ts), region", "region, month(ts)"])
def test_a_chosen_spec_that_has_every_field_of_the_key_is_one_to_one(spec: str) -> None:
    """Harm prevented: a user who names the derived spec is refused."""
    assert why_not("toYYYYMM(ts)", spec) == ""


@pytest.mark.parametrize(
    ("key", "spec", "why"),
    [
        ("toYYYYMM(ts)", "unpartitioned", "the lake table is not partitioned, the source is, by"),
        ("toYYYYMM(ts)", "year(ts)", "'year(ts)' does not divide by month(ts)"),
        ("(toYYYYMM(ts), region)", "month(ts)", "'month(ts)' does not divide by region"),
        ("region", "bucket(4, region)", "does not divide by region"),
        ("cityHash64(region)", "region", "nothing shows that 'region' divides rows as PARTITION"),
    ],
)
def test_it_says_why_several_source_partitions_may_share_one_of_the_lake(
    key: str, spec: str, why: str
) -> None:
    """Harm prevented: rows of a neighbouring source partition are replaced with it."""
    assert why in why_not(key, spec)

"""Two tables are divided alike only where equal rows have equal partition ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tableformat.mergetree.compatibility import division_of
from tableformat.mergetree.table import MergeTreeTable
from tableformat.mergetree.types import DateTime, Simple
from tests.strategies.mapping import column_of, table_of

MONTHS = table_of(
    column_of("ts", DateTime("UTC")),
    column_of("n", Simple("Int64")),
    partition_by="toYYYYMM(ts)",
)


def of(kind: DateTime, zone: str) -> MergeTreeTable:
    return table_of(column_of("ts", kind), server_zone=zone, partition_by="toYYYYMM(ts)")


def test_what_else_a_table_is_does_not_count() -> None:
    other = replace(MONTHS, identity="other", columns=MONTHS.columns[:1], has_ttl_columns=True)

    assert division_of(other) == division_of(MONTHS)


@pytest.mark.parametrize(
    "other",
    [
        replace(MONTHS, engine=replace(MONTHS.engine, partition_by="toYYYYMMDD(ts)")),
        replace(MONTHS, engine=replace(MONTHS.engine, partition_by="")),
        of(DateTime("Asia/Tokyo"), "UTC"),
    ],
)
def test_another_key_and_other_types_of_its_columns_do(other: MergeTreeTable) -> None:
    """Harm prevented: a month in Tokyo is taken for one in UTC, and other rows are dropped."""
    assert division_of(other) != division_of(MONTHS)


def test_the_zone_of_the_server_does_where_a_time_has_none_of_its_own() -> None:
    assert division_of(of(DateTime(), "UTC")) != division_of(of(DateTime(), "Asia/Tokyo"))


def test_a_table_that_is_not_divided_has_no_text() -> None:
    assert division_of(table_of(column_of("n", Simple("Int64")))) == ""

"""What the lake table remembers reads back as it was; strangers' tables remember nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableformat.errors import DestinationError
from tableformat.iceberg.properties import (
    RememberedColumn,
    RememberedSource,
    remembered_source,
    table_properties,
)
from tableformat.iceberg.schema import map_columns
from tableformat.mergetree.types import Simple
from tests.strategies_mapping import column_of, table_of

PAGE = Path(__file__).parents[3] / "docs" / "spec" / "table-properties.md"


@given(expression=st.text(max_size=20), key=st.text(max_size=20), zone=st.text(max_size=10))
def test_the_source_reads_back_as_it_was_remembered(expression: str, key: str, zone: str) -> None:
    table = table_of(
        column_of("a", Simple("UInt64")),
        column_of("ü", Simple("String"), default_kind="DEFAULT", default_expression=expression),
        server_zone=zone,
        partition_by=key,
        order_by="a",
        primary_key="a",
        arguments="ver",
    )

    again = remembered_source(table_properties(table, map_columns(table, {"a": "long"})))

    assert again == RememberedSource(
        table="db.t",
        engine="MergeTree(ver)",
        partition_key=key,
        sorting_key="a",
        primary_key="a",
        server_zone=zone,
        columns=(
            RememberedColumn("a", "UInt64", conversion="long"),
            RememberedColumn("ü", "String", "DEFAULT", expression),
        ),
    )


def test_a_new_table_is_version_2_and_cleans_its_metadata() -> None:
    table = table_of(column_of("a", Simple("Int8")))

    properties = table_properties(table, map_columns(table))

    assert properties["format-version"] == "2"
    assert properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert properties["write.metadata.metrics.default"] == "truncate(16)"


def test_a_very_wide_table_keeps_its_manifests_small() -> None:
    table = table_of(*(column_of(f"c{i}", Simple("Int8")) for i in range(201)))

    properties = table_properties(table, map_columns(table))

    assert properties["write.metadata.metrics.default"] == "counts"


def test_a_table_that_mergeberg_did_not_make_remembers_nothing() -> None:
    assert remembered_source({"owner": "somebody"}) is None


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"mergeberg.source.mapping-version": "2"}, "this release reads 1"),
        ({"mergeberg.source.mapping-version": "1"}, "mergeberg.source.columns"),
        (
            {"mergeberg.source.mapping-version": "1", "mergeberg.source.columns": "["},
            "Restore the properties",
        ),
    ],
)
def test_properties_that_cannot_be_read_are_refused(properties: dict[str, str], why: str) -> None:
    with pytest.raises(DestinationError, match=why):
        remembered_source(properties)


def test_every_property_is_documented() -> None:
    table = table_of(column_of("a", Simple("Int8")))
    page = PAGE.read_text()

    missing = [p for p in table_properties(table, map_columns(table)) if f"`{p}`" not in page]

    assert missing == []

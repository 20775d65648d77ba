"""A lake table's stored source reads back unchanged; foreign tables have none."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableformat.errors import DestinationError
from tableformat.iceberg.properties import (
    FILTER_PROPERTY,
    RememberedSource,
    filter_properties,
    filters_of,
    remembered_source,
    renewed_properties,
    table_properties,
)
from tableformat.iceberg.schema import MappedColumns, map_columns
from tableformat.mergetree.engine_text import parse_engine, stored_engine
from tableformat.mergetree.table import (
    Column,
    Engine,
    MergeTreeTable,
    Projection,
    SkipIndex,
)
from tableformat.mergetree.types import Simple, parse_type, render_type
from tableformat.names import TableName
from tests.strategies.mapping import column_of, table_of
from tests.strategies.types import data_types, names, nasty_text

PAGE = Path(__file__).parents[3] / "docs" / "spec" / "table-properties.md"
PREFIX = "mergeberg.source."
NONE: frozenset[str] = frozenset()
# A few kilobytes that stand for 64 MiB and one byte.
ENDLESS = "deflate:" + base64.b64encode(zlib.compress(bytes((1 << 26) + 1))).decode()

# A type as a source gives it: read from its text.
types = data_types.map(render_type).map(parse_type)
columns = st.builds(
    lambda name, of, kind, expression, comment: Column(
        name, of, render_type(of), kind, expression if kind else "", comment
    ),
    names,
    types,
    st.sampled_from(["", "DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL"]),
    nasty_text,
    nasty_text,
)
engines = st.builds(
    Engine,
    st.sampled_from(["MergeTree", "ReplicatedReplacingMergeTree", "SharedMergeTree"]),
    arguments=st.sampled_from(["", "ver", "'/clickhouse/{uuid}', '{replica}', (a, b)", "(x)"]),
    partition_by=nasty_text,
    primary_key=nasty_text,
    order_by=nasty_text,
    sample_by=nasty_text,
    ttl=nasty_text,
    settings=st.dictionaries(
        st.from_regex("[a-z_]{1,9}", fullmatch=True).filter(lambda name: name != "disk"), nasty_text
    ).map(lambda found: tuple(found.items())),
)
tables = st.builds(
    MergeTreeTable,
    name=st.builds(TableName, names, names),
    identity=nasty_text,
    uuid=st.uuids().map(str),
    engine=engines,
    columns=st.lists(columns, min_size=1, max_size=5).map(tuple),
    storage_policy=nasty_text,
    server_version=st.just("26.9.2.1"),
    server_zone=nasty_text,
    has_ttl_columns=st.booleans(),
    indices=st.lists(
        st.builds(SkipIndex, names, nasty_text, nasty_text, st.integers(1, 1000)), max_size=3
    ).map(tuple),
    projections=st.lists(st.builds(Projection, names, nasty_text), max_size=3).map(tuple),
)
NO_COLUMNS = MappedColumns((), map_columns(table_of(column_of("a", Simple("Int8")))).schema)


def remembered(properties: dict[str, str]) -> RememberedSource:
    found = remembered_source(properties)
    assert found is not None
    return found


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(table=tables)
def test_any_stored_table_reads_back_unchanged(table: MergeTreeTable) -> None:
    """Harm prevented: statements on the lake that go by another key than the source's."""
    assert remembered(table_properties(table, NO_COLUMNS)) == RememberedSource(table, {})


def test_conversions_are_stored_by_column() -> None:
    table = table_of(column_of("a", Simple("UInt64")), column_of("ü", Simple("String")))

    properties = table_properties(table, map_columns(table, {"a": "long"}))

    assert remembered(properties) == RememberedSource(table, {"a": "long"})


def test_the_definition_of_a_disk_is_not_stored() -> None:
    """Harm prevented: credentials in the metadata of a table that many may read."""
    given_settings = (("disk", "disk(secret = 'x')"), ("index_granularity", "1"))
    engine = Engine("MergeTree", settings=given_settings)
    table = replace(table_of(column_of("a", Simple("Int8"))), engine=engine)

    properties = table_properties(table, map_columns(table))

    assert "secret" not in str(properties)
    assert remembered(properties).table.engine.settings == (("index_granularity", "1"),)


def test_bytes_that_are_not_utf_8_are_stored_and_do_not_stop_the_export() -> None:
    """Names, types and keys are refused before; a query of a projection is only remembered."""
    text = b"SELECT '\xff'".decode("utf-8", "surrogateescape")
    table = table_of(column_of("a", Simple("Int8")), ttl=text)
    table = replace(table, projections=(Projection("p", text),))

    properties = table_properties(table, map_columns(table))

    assert "\\xff" in "".join(properties.values()).encode().decode()
    assert remembered(properties).table.projections == table.projections


@pytest.mark.parametrize("count", [1, 40, 1000])
def test_the_stored_source_stays_small(count: int) -> None:
    """Every commit writes all properties again."""
    made = [column_of(f"column_{i}", Simple("UInt64"), comment=f"number {i}") for i in range(count)]
    table = table_of(*made)

    properties = table_properties(table, map_columns(table))

    assert remembered(properties).table == table
    assert sum(len(text) for text in properties.values()) < 12_000


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


def test_a_source_of_the_old_syntax_is_known_by_its_arguments() -> None:
    engine = parse_engine("ReplacingMergeTree(d, k, 8192, v)")
    table = replace(table_of(column_of("d", Simple("Date"))), engine=engine)

    properties = table_properties(table, map_columns(table))

    assert properties[f"{PREFIX}engine"] == "ReplacingMergeTree(d, k, 8192, v)"
    assert remembered(properties).table.engine == stored_engine(engine)


def test_a_foreign_table_stores_no_source() -> None:
    assert remembered_source({"owner": "somebody"}) is None


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("mapping-version", "2", "this release reads 1. Use the release that made the table"),
        ("columns", "[", "Restore the properties"),
        ("columns", "deflate:AAAA", "Restore the properties"),
        ("columns", "deflate:%%%%", "Restore the properties"),
        ("columns", '[{"name":"a"}]', "Restore the properties"),
        ("columns", ENDLESS, "of more than 67,108,864 bytes, or one that breaks off"),
        ("indices", "[[1]]", "Restore the properties"),
        ("table", "a.b.c", "Restore the properties"),
        ("engine", "MergeTree('d, k, 8192)", "Restore the properties"),
        ("partition-key", None, "'partition-key'.*Restore the properties"),
    ],
)
def test_properties_that_cannot_be_read_are_refused(name: str, text: str | None, why: str) -> None:
    """Harm prevented: a key that was lost is taken for none, and every partition for one."""
    table = table_of(column_of("a", Simple("Int8")))
    properties = table_properties(table, map_columns(table))
    properties.pop(f"{PREFIX}{name}")
    if text is not None:
        properties[f"{PREFIX}{name}"] = text

    with pytest.raises(DestinationError, match=why):
        remembered_source(properties)


def test_of_another_source_a_table_notes_new_columns_and_leaves_the_others() -> None:
    """Harm prevented: the properties describe a column otherwise than its files."""
    before = table_of(column_of("a", Simple("UInt64")), column_of("b", Simple("Int8")))
    properties = table_properties(before, map_columns(before, {"a": "long"}))
    other = table_of(*(column_of(n, Simple("Int64")) for n in ("a", "b", "c")))
    other = replace(other, identity="uuid:another", engine=replace(other.engine, ttl="d"))
    now = map_columns(other)

    grown = renewed_properties(properties, other, now, ("a", "b", "c"), frozenset({"b", "c"}))

    assert list(grown) == [f"{PREFIX}columns"]
    after = remembered(properties | grown)
    assert [c.type_text for c in after.table.columns] == ["UInt64", "Int64", "Int64"]
    assert after.conversions == {"a": "long"}
    assert renewed_properties({}, other, now, ("a", "b", "c"), frozenset({"c"})) == {}


def test_a_source_is_stored_as_it_is_now_without_dropped_columns() -> None:
    """Harm prevented: a table that was changed once can be put nowhere for ever."""
    before = table_of(*(column_of(n, Simple("Int8")) for n in ("a", "gone", "only there", "b")))
    properties = table_properties(before, map_columns(before))
    now = table_of(*(column_of(n, Simple("Int64")) for n in ("b", "a", "c")))
    now = replace(now, engine=replace(now.engine, ttl="d + INTERVAL 1 DAY"))
    columns = map_columns(now)

    renewed = renewed_properties(properties, now, columns, ("a", "b", "c", "only there"), NONE)

    after = remembered(properties | renewed).table
    assert [(c.name, c.type_text) for c in after.columns] == [
        ("b", "Int64"), ("a", "Int64"), ("c", "Int64"), ("only there", "Int8"),
    ]  # fmt: skip
    assert after.engine == now.engine
    again = renewed_properties(properties | renewed, now, columns, ("only there",), NONE)
    assert again == {}


def test_every_property_is_documented() -> None:
    table = table_of(column_of("a", Simple("Int8")))
    page = PAGE.read_text()

    missing = [p for p in table_properties(table, map_columns(table)) if f"`{p}`" not in page]

    assert missing == []


def test_bytes_get_filters_only_where_the_owner_of_the_table_sets_them() -> None:
    """DuckDB misses their rows; for an owner with other readers a filter is worth its bytes."""
    columns = ("FixedString(4)", "String", "UUID", "Decimal(9, 2)", "Float64")
    table = table_of(*(column_of(f"c{i}", parse_type(text)) for i, text in enumerate(columns)))
    mapped = map_columns(table, {"c1": "binary"})
    index = SkipIndex("i", "c0, c1, c2, c3, c4", "bloom_filter", 1)

    found = filter_properties((index,), mapped.schema)
    owned = {**found, f"{FILTER_PROPERTY}c0": "true", f"{FILTER_PROPERTY}c1": "true"}

    assert found == {f"{FILTER_PROPERTY}c2": "true", f"{FILTER_PROPERTY}c3": "true"}
    assert filters_of(owned, mapped.schema) == ("c0", "c1", "c2", "c3")

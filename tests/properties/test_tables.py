"""Whole tables of every kind, from ClickHouse to two readers: a few now, many by `make soak`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableformat.mergetree import wire_types
from tableformat.mergetree.conversions import Faithfulness, TypeConversions, WireValue
from tableformat.mergetree.types import DataType, Simple, parse_type, render_type
from tableformat.mergetree.wire_types import conversions_of
from tests.properties.column_types import (
    CONVERSIONS,
    FAMILIES,
    column_types,
    family_of,
    not_among,
)
from tests.properties.many_tables import ManyTables, Way
from tests.properties.promised_columns import Promise, inner_types, words_of
from tests.properties.row_binary import RowReader, encode
from tests.properties.stored_values import drawn_value
from tests.properties.table_check import Seen, check_table
from tests.properties.table_keys import PartitionKey, SortingKey
from tests.strategies.tables import (
    ENGINE_SETTINGS,
    ColumnDefinition,
    Insert,
    TableDefinition,
    tables,
)


@pytest.fixture(scope="module")
def opened() -> Iterator[ManyTables]:
    with ManyTables() as found:
        yield found


@pytest.fixture(scope="module", params=[Way.ARROW, Way.NATIVE], ids=lambda way: way.value)
def served(request: pytest.FixtureRequest) -> Iterator[ManyTables]:
    with ManyTables(way=request.param) as found:
        yield found


def table_with(of: str, *values: object, conversion: str = "") -> TableDefinition:
    """Return a table with one column and these values."""
    column = ColumnDefinition("c", parse_type(of), conversion=conversion)
    rows = tuple((value,) for value in values)
    return TableDefinition(
        (column,), "MergeTree", PartitionKey(), SortingKey(), wide=False, inserts=(Insert(rows),)
    )


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(table=tables())
def test_every_table_is_in_the_lake_row_by_row_or_is_refused_by_name(
    opened: ManyTables, table: TableDefinition
) -> None:
    """Harm prevented: a lost row, a wrong value, a refusal that nobody understands, or none."""
    check_table(opened, table, Seen())


@pytest.mark.soak
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(table=tables())
def test_every_table_of_a_server_arrives_as_well(
    served: ManyTables, table: TableDefinition
) -> None:
    """Harm prevented: a value that is another one on the wire than in the parts."""
    check_table(served, table, Seen())


def shifted_dates(ways: dict[str, TypeConversions]) -> None:
    wire = WireValue(Simple("Date32"), Faithfulness.LOSSLESS, sql="toDate32({}) + 1")
    ways["Date"] = TypeConversions(wire)


def wrapped_numbers(ways: dict[str, TypeConversions]) -> None:
    ways["UInt64"] = TypeConversions(
        WireValue(Simple("Int64"), Faithfulness.LOSSLESS, sql="reinterpretAsInt64({})")
    )


def swapped_bytes(ways: dict[str, TypeConversions]) -> None:
    wire = WireValue(Simple("String"), Faithfulness.OTHER_KIND, sql="toString(toUInt32({}))")
    ways["IPv4"] = TypeConversions(wire)


@pytest.mark.parametrize(
    ("mistake", "of", "value"),
    [
        (shifted_dates, "Date", 1),
        (wrapped_numbers, "UInt64", 2**64 - 1),
        (swapped_bytes, "IPv4", 7),
    ],
)
def test_a_wrong_cast_would_be_found(
    opened: ManyTables,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Callable[[dict[str, TypeConversions]], None],
    of: str,
    value: int,
) -> None:
    """A judge that uses our own SELECT list would agree with every mistake in it."""
    table = table_with(of, value)
    check_table(opened, table, Seen())
    changed = dict(wire_types._PLAIN)
    mistake(changed)
    monkeypatch.setattr(wire_types, "_PLAIN", changed)

    with pytest.raises(AssertionError):
        check_table(opened, table, Seen())


def test_a_refusal_that_does_not_come_would_be_found(opened: ManyTables) -> None:
    table = table_with("UInt8", 1)
    wrong = TableDefinition(
        table.columns,
        table.engine,
        table.partition,
        table.sorting,
        wide=False,
        inserts=table.inserts,
        refused=("column c: ",),
    )

    with pytest.raises(AssertionError, match="not refused for"):
        check_table(opened, wrong, Seen())


def test_a_table_refused_for_two_kinds_of_reasons_names_the_first(opened: ManyTables) -> None:
    table = table_with("UInt8", 1)
    taken = tuple(ColumnDefinition(name, Simple("UInt8")) for name in ("_part", "_file"))
    wrong = replace(
        table,
        columns=(*table.columns, *taken),
        inserts=tuple(
            replace(one, rows=tuple((*row, 0, 0) for row in one.rows)) for one in table.inserts
        ),
        refused=("taken by Iceberg", "column _part: "),
    )
    seen = Seen()

    check_table(opened, wrong, seen)

    assert seen.outcomes["tables refused for columns"] == 1


def test_what_a_run_has_not_drawn_is_drawn_at_its_end() -> None:
    """Harm prevented: a long run that is right fails by chance, or leaves out a type."""
    families, conversions = FAMILIES - {"Dynamic", "UUID"}, CONVERSIONS - {("Enum8", "long")}

    found = {(family_of(of), word) for of, word in not_among(families, conversions)}

    assert found == {("Dynamic", ""), ("UUID", ""), ("Enum8", "long")}
    assert [*not_among(FAMILIES, CONVERSIONS)] == []


# Names of settings that decide how a part is written, and so how it is read.
_OF_STORAGE = (
    "serializ|nested|final_mark|compact_variant|file_name|escape|granularity|compress_|codec"
)
# They bound a merge, or an index that no export reads.
_NOT_GENERATED = (
    *("min_index_granularity_bytes", "marks_compress_block_size", "text_index_posting_list_codec"),
    *("primary_key_compress_block_size", "text_index_serialization_version"),
)


def test_every_setting_that_decides_how_a_part_is_stored_is_generated(opened: ManyTables) -> None:
    """Harm prevented: a newer ClickHouse stores parts in a way that no generated table has."""
    rows = opened.clickhouse.rows(
        "SELECT name FROM system.merge_tree_settings WHERE NOT is_obsolete"
        f" AND (match(name, '{_OF_STORAGE}'))"
    )
    there = {str(name) for (name,) in rows} - {*_NOT_GENERATED}

    assert there <= ENGINE_SETTINGS.keys(), sorted(there - ENGINE_SETTINGS.keys())


@given(of=column_types())
def test_the_judge_knows_the_conversions_of_every_type(of: DataType) -> None:
    """A conversion that the properties do not know is one that nobody tests."""
    for inner in inner_types(of):
        known = {word.partition("(")[0] for word in words_of(inner)}
        offered = {word.partition("(")[0] for word in conversions_of(inner)}
        # What a state comes to is asked of ClickHouse; the text of the type does not tell it.
        assert known - {"finalize"} == offered - {"finalize"}, render_type(inner)


@given(data=st.data())
def test_a_stored_value_is_read_as_it_was_written(data: st.DataObject) -> None:
    of = data.draw(column_types().filter(lambda found: render_type(found) != "Tuple()"))

    @st.composite
    def values(draw: st.DrawFn) -> object:
        return drawn_value(draw, of, Promise(), tame=False)

    value = data.draw(values())
    row = encode(of, value)
    reader = RowReader(row)
    again = reader.read(of)

    assert reader.at_end
    assert encode(of, again) == row
    assert repr(again) == repr(value)

"""A column may have the name of a virtual column, which the table then hides from us."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.clickhouse.embedded import EmbeddedConnection
from spark_ext.actions.check import CheckRequest, check_export
from tableformat.errors import RefusedError
from tableformat.export.plan import plan_table
from tableformat.names import TableName
from tests.support.clickhouse_source import Clickhouse, assert_same_rows
from tests.support.frozen_folders import freeze

_KEYS = "ENGINE = MergeTree PARTITION BY p ORDER BY k"
_ASKED = ("_part", "_partition_id", "_partition_value")


def named(clickhouse: Clickhouse, column: str, kind: str = "") -> TableName:
    name = clickhouse.table(_KEYS, f"p UInt8, k UInt64, `{column}` String {kind}")
    clickhouse.command(
        f"INSERT INTO {name.sql} (p, k) SELECT number % 2, number FROM numbers(100)"
        if kind
        else f"INSERT INTO {name.sql} SELECT number % 2, number, 'mine' FROM numbers(100)"
    )
    return name


def virtual_columns(clickhouse: Clickhouse) -> list[str]:
    """Return the names of virtual columns that a column may have in the engine at hand."""
    name = clickhouse.table(_KEYS, "p UInt8, k UInt64")
    described = clickhouse.rows(
        f"DESCRIBE TABLE {name.sql} SETTINGS describe_include_virtual_columns = 1"
    )
    found = {str(row[0]) for row in described} - {"p", "k"}
    return sorted(found - {"_row_exists", "_block_number", "_block_offset"})


@pytest.mark.parametrize("column", _ASKED)
@pytest.mark.parametrize("kind", ["", "ALIAS 'mine'", "DEFAULT 'mine'"])
def test_a_column_that_hides_where_a_row_is_is_refused_before_any_work(
    clickhouse: Clickhouse, column: str, kind: str
) -> None:
    """Harm prevented: "a row policy hides rows", or no rows of a slice, where neither is true."""
    name = named(clickhouse, column, kind)
    table = clickhouse.source.describe(name)
    staged = clickhouse.staging_tables()
    why = f"column {column}: ClickHouse has a virtual column of that name"

    with pytest.raises(RefusedError, match=why):
        plan_table(table, conversions={}, strict=False, partition_spec=None)
    with pytest.raises(RefusedError, match=why):
        clickhouse.snapshot(name)
    request = CheckRequest(name, None, {}, strict=False, partition_spec=None)
    found = check_export(request, clickhouse.source, None, None)

    assert [reason for reason in found.reasons if why in reason]
    assert f"RENAME COLUMN `{column}`" in found.reasons[0]
    assert clickhouse.staging_tables() == staged


@pytest.mark.parametrize("column", _ASKED)
def test_the_way_round_that_is_named_works(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path, column: str
) -> None:
    name = named(clickhouse, column)
    clickhouse.command(f"ALTER TABLE {name.sql} RENAME COLUMN `{column}` TO renamed")

    assert_same_rows(clickhouse, reader, name, tmp_path, "count(), countIf(renamed = 'mine')")


def test_columns_with_the_names_of_all_other_virtual_columns_are_exported(
    clickhouse: Clickhouse, reader: EmbeddedConnection, tmp_path: Path
) -> None:
    """They are the table's own, and no one is asked for anything else by these names."""
    others = [column for column in virtual_columns(clickhouse) if column not in _ASKED]
    assert "_part_offset" in others
    columns = ", ".join(f"`{column}` String" for column in others)
    name = clickhouse.table(_KEYS, f"p UInt8, k UInt64, {columns}")
    values = ", ".join(f"'{column}'" for column in others)
    clickhouse.command(
        f"INSERT INTO {name.sql} SELECT number % 2, number, {values} FROM numbers(100)"
    )

    read = ", ".join(f"countIf(__src.`{column}` = '{column}')" for column in others)
    snapshot = assert_same_rows(clickhouse, reader, name, tmp_path, read)

    # A range of a part would be asked for by the offset of its rows.
    assert not snapshot.layout.ranges


def test_frozen_parts_with_offsets_of_their_own_are_refused(
    clickhouse: Clickhouse, tmp_path: Path
) -> None:
    """Without the place of each row nobody can prove that they are sorted."""
    refused = freeze(clickhouse, named(clickhouse, "_part_offset"), tmp_path).refusals()

    assert refused.keys() == {"0", "1"}
    assert "its column _part_offset has the name of a virtual column" in refused["0"]
